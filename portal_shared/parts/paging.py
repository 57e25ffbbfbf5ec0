"""Lists with the API's cursors, and tabs by state."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

from django.db.models import Model, QuerySet
from rest_framework.exceptions import ValidationError

from core.errors import InvalidInput
from core.pages.parts import ListFoot
from core.rest.pagination import CURSOR, page_behind
from portal_shared.access import PageRequest

PAGE_ROWS = 50
STATE_MAX_CHARS = 40
Row = TypeVar("Row", bound=Model)


@dataclass(frozen=True, slots=True)
class ListPage(Generic[Row]):
    """`next` and `previous` are cursors or empty."""

    rows: list[Row]
    next: str
    previous: str


def page_of(request: PageRequest, rows: QuerySet[Row, Row], *, ordering: tuple[str, ...]) -> ListPage[Row]:
    """The page of `?cursor=`. Raises InvalidInput."""
    try:
        found = page_behind(rows, ordering, cursor=request.GET.get(CURSOR), size=PAGE_ROWS)
    except ValidationError:
        raise InvalidInput({CURSOR: ["There is no such page of this list. Begin at its first one."]}) from None
    return ListPage(found.rows, found.next or "", found.previous or "")


def state_of(request: PageRequest, known: Collection[str]) -> str:
    """Returns `?state=`, or nothing. Raises InvalidInput."""
    state = request.GET.get("state", "")
    if state and state not in known:
        there = ", ".join(filter(None, known))
        raise InvalidInput({"state": [f"There is no state “{state[:STATE_MAX_CHARS]}”. There are: {there}."]})
    return state


def foot_of(page: ListPage[Any], url: str, filters: Mapping[str, str] | None = None) -> ListFoot:
    return ListFoot(
        previous_url=url_with(url, filters or {}, cursor=page.previous) if page.previous else "",
        next_url=url_with(url, filters or {}, cursor=page.next) if page.next else "",
    )


def url_with(url: str, filters: Mapping[str, str], **changes: str) -> str:
    """Omits empty filters."""
    given = {name: value for name, value in {**filters, **changes}.items() if value}
    return f"{url}?{urlencode(given)}" if given else url
