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
ROW = "row"  # number of the first row, in addresses of lists whose rows are counted anyway
ROW_MAX_DIGITS = 9
STATE_MAX_CHARS = 40
Row = TypeVar("Row", bound=Model)


@dataclass(frozen=True, slots=True)
class ListPage(Generic[Row]):
    """`next` and `previous` are cursors or empty."""

    rows: list[Row]
    next: str
    previous: str
    first_row: int  # as the page before said; 0: not known


def page_of(request: PageRequest, rows: QuerySet[Row, Row], *, ordering: tuple[str, ...]) -> ListPage[Row]:
    """Returns the page of `?cursor=`. Raises InvalidInput."""
    try:
        found = page_behind(rows, ordering, cursor=request.GET.get(CURSOR), size=PAGE_ROWS)
    except ValidationError:
        raise InvalidInput({CURSOR: ["There is no such page of this list. Begin at its first one."]}) from None
    said = request.GET.get(ROW, "" if CURSOR in request.GET else "1")
    first_row = int(said) if said.isdecimal() and len(said) <= ROW_MAX_DIGITS and found.rows else 0
    return ListPage(found.rows, found.next or "", found.previous or "", first_row)


def state_of(request: PageRequest, known: Collection[str]) -> str:
    """Returns `?state=`, or nothing. Raises InvalidInput."""
    state = request.GET.get("state", "")
    if state and state not in known:
        there = ", ".join(filter(None, known))
        raise InvalidInput({"state": [f"There is no state “{state[:STATE_MAX_CHARS]}”. There are: {there}."]})
    return state


def foot_of(
    page: ListPage[Any], url: str, filters: Mapping[str, str] | None = None, *, total: int | None = None, csv_url: str = ""
) -> ListFoot:
    """`total`: how many rows there are on all pages, where that is known."""
    first, count = page.first_row if total is not None else 0, len(page.rows)
    next_row, previous_row = (str(first + count), str(max(first - PAGE_ROWS, 1))) if first else ("", "")
    return ListFoot(
        first_row=first,
        last_row=first + count - 1 if first else 0,
        about_total=total or 0,
        previous_url=url_with(url, filters or {}, cursor=page.previous, row=previous_row) if page.previous else "",
        next_url=url_with(url, filters or {}, cursor=page.next, row=next_row) if page.next else "",
        csv_url=url_with(csv_url, filters or {}) if csv_url and page.rows else "",
    )


def at_page(request: PageRequest) -> dict[str, str]:
    """Where the reader is in a list, for the address of its fragment."""
    return {name: request.GET.get(name, "") for name in (CURSOR, ROW)}


def url_with(url: str, filters: Mapping[str, str], **changes: str) -> str:
    """Omits empty filters."""
    given = {name: value for name, value in {**filters, **changes}.items() if value}
    return f"{url}?{urlencode(given)}" if given else url
