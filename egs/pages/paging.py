"""Pages of a list by cursor, with the API's own cursors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import parse_qs, urlencode, urlsplit

from django.db.models import Model, QuerySet
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from egs.errors import InvalidInput
from egs.pages.access import PageRequest
from egs.rest.pagination import CURSOR, CreatedPagination

PAGE_ROWS = 50
Row = TypeVar("Row", bound=Model)


@dataclass(frozen=True, slots=True)
class ListPage(Generic[Row]):
    """`next`, `previous`: cursors, empty where there is nothing more."""

    rows: list[Row]
    next: str
    previous: str


class _Cursors(CreatedPagination):
    def __init__(self, ordering: tuple[str, ...]) -> None:
        self.ordering = ordering  # type: ignore[misc]  # of the class in the API


def page_of(request: PageRequest, rows: QuerySet[Row, Row], *, ordering: tuple[str, ...]) -> ListPage[Row]:
    """The page that `?cursor=` names, PAGE_ROWS long. `ordering` as for the API. Raises InvalidInput for what is no cursor of this list."""
    plain = request.GET.copy()
    plain.pop("page_size", None)
    asked: Any = request
    asked.GET = plain
    paginator = _Cursors(ordering)
    try:
        found = paginator.paginate_queryset(rows, Request(asked))
    except ValidationError:
        raise InvalidInput({CURSOR: ["This is no cursor of this list. Begin at its first page."]}) from None
    links = paginator.get_paginated_response(None).data
    return ListPage(found, _cursor_in(links["next"]), _cursor_in(links["previous"]))


def url_with(url: str, filters: Mapping[str, str], **changes: str) -> str:
    """An address with filters in it; empty ones are left out."""
    given = {name: value for name, value in {**filters, **changes}.items() if value}
    return f"{url}?{urlencode(given)}" if given else url


def _cursor_in(link: str | None) -> str:
    return parse_qs(urlsplit(link).query)[CURSOR][0] if link else ""
