"""Paginates by cursors: new and deleted rows do not shift a page.

A cursor holds all order fields of a row. DRF's holds one, and fails when many rows share it, as the start of a gang.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date
from typing import Any, Final
from uuid import UUID

from django.core.exceptions import ValidationError as FieldInvalid
from django.db import models
from django.db.models import Q
from django.db.models.fields.tuple_lookups import Tuple, TupleGreaterThan, TupleLessThan
from django.utils.dateparse import parse_datetime
from rest_framework.exceptions import ValidationError
from rest_framework.pagination import BasePagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.settings import api_settings
from rest_framework.utils.urls import replace_query_param
from rest_framework.views import APIView

from core.rest.fields import whole_number
from core.rest.sealed import seal, unseal

PAGE_SIZE_MAX = 500
CURSOR_MAX_CHARS = 2000
CURSOR, PAGE_SIZE = "cursor", "page_size"
NEWEST_FIRST: Final = ("-created_at", "id")


@dataclass(frozen=True, slots=True)
class Cursor:
    is_reversed: bool  # the page ends before the row; otherwise it begins after the row
    values: tuple[Any, ...]

    def encode(self) -> str:
        packed = json.dumps([self.is_reversed, [_packed(value) for value in self.values]], separators=(",", ":"))
        return base64.urlsafe_b64encode(packed.encode()).decode()


@dataclass(frozen=True, slots=True)
class CursorPage:
    rows: list[Any]
    next: str | None  # a cursor, or None at the end
    previous: str | None


def page_behind(rows: Any, ordering: tuple[str, ...], *, cursor: str | None, size: int) -> CursorPage:
    """The fields of `ordering` must together be unique, and never null. Raises ValidationError for a bad cursor."""
    at = _decode(rows, ordering, cursor)
    backward = at is not None and at.is_reversed
    order = _turned(ordering) if backward else ordering
    rows = rows.order_by(*order)
    found: list[Any] = []
    for stretch in [Q()] if at is None else _stretches(order, at.values):
        found += rows.filter(stretch)[: size + 1 - len(found)]
        if len(found) > size:
            break
    page = found[:size]
    if backward:
        page.reverse()
    is_more = len(found) > size
    has_next, has_previous = (True, is_more) if backward else (is_more, at is not None)
    here = at.values if at else ()
    last, first = (_values(page[-1], ordering), _values(page[0], ordering)) if page else (here, here)
    next_, previous = Cursor(False, last).encode() if has_next else None, Cursor(True, first).encode() if has_previous else None
    return CursorPage(page, next_, previous)


class CursorPagination(BasePagination):
    """Sorts by the `ordering` of the viewset."""

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> list[Any]:
        self._url = request.build_absolute_uri()
        size, cursor = _page_size(request.query_params.get(PAGE_SIZE)), request.query_params.get(CURSOR)
        self._page = page_behind(queryset, view.ordering, cursor=cursor, size=size)
        return self._page.rows

    def get_paginated_response(self, data: Any) -> Response:
        return Response({"next": self._link(self._page.next), "previous": self._link(self._page.previous), "results": data})

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        link = {"type": "string", "format": "uri", "nullable": True}
        return {
            "type": "object",
            "required": ["next", "previous", "results"],
            "properties": {"next": link, "previous": link, "results": schema},
        }

    def get_schema_operation_parameters(self, view: APIView) -> list[dict[str, Any]]:
        cursor = {"type": "string", "pattern": "^[A-Za-z0-9_-]+=*$", "maxLength": CURSOR_MAX_CHARS}
        size = {"type": "integer", "minimum": 1, "maximum": PAGE_SIZE_MAX, "default": api_settings.PAGE_SIZE}
        return [
            {"name": CURSOR, "in": "query", "required": False, "description": "From `next` or `previous`.", "schema": cursor},
            {"name": PAGE_SIZE, "in": "query", "required": False, "description": "Rows a page.", "schema": size},
        ]

    def _link(self, cursor: str | None) -> str | None:
        return replace_query_param(self._url, CURSOR, cursor) if cursor is not None else None


class OnePage(CursorPagination):
    """A list that is computed as a whole, and in its own order."""

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> list[Any]:
        return list(queryset)

    def get_paginated_response(self, data: Any) -> Response:
        return Response({"next": None, "previous": None, "results": data})

    def get_schema_operation_parameters(self, view: APIView) -> list[dict[str, Any]]:
        return []


def _values(row: Any, ordering: Sequence[str]) -> tuple[Any, ...]:
    return tuple(_value(row, name.lstrip("-")) for name in ordering)


def _decode(rows: Any, ordering: Sequence[str], text: str | None) -> Cursor | None:
    if text is None:
        return None
    try:
        is_reversed, packed = json.loads(base64.urlsafe_b64decode(text[:CURSOR_MAX_CHARS].encode("ascii")))
        if not isinstance(is_reversed, bool) or len(packed) != len(ordering):
            raise ValueError("not a cursor of this list")
        values = [_unpacked(_field(rows, name.lstrip("-")), value) for name, value in zip(ordering, packed, strict=True)]
    except (ValueError, TypeError, OverflowError, RecursionError, binascii.Error, FieldInvalid):
        raise ValidationError({CURSOR: ["This is no cursor of this list."]}) from None
    return Cursor(is_reversed, tuple(values))


def _page_size(text: str | None) -> int:
    if text is None:
        return int(api_settings.PAGE_SIZE or 50)
    try:
        if 1 <= (size := whole_number(text)) <= PAGE_SIZE_MAX:
            return size
    except ValueError:
        pass
    raise ValidationError({PAGE_SIZE: [f"Must be from 1 to {PAGE_SIZE_MAX}."]})


def _turned(ordering: Sequence[str]) -> list[str]:
    return [name[1:] if name.startswith("-") else f"-{name}" for name in ordering]


def _stretches(ordering: Sequence[str], values: Sequence[Any]) -> Iterator[Q]:
    """Yield disjoint conditions for the rows after these values, in order."""
    # An index finds the start of a comparison of several fields only if all go the same way. So where the last fields go one way and the
    # first ones another, the rows that share the first ones are queried separately.
    ways = [name.startswith("-") for name in ordering]
    split = next((at for at in range(len(ways), 0, -1) if ways[at - 1] != ways[-1]), 0)
    if len(ways) - split == 1:  # few rows share all but the last
        yield _behind(ordering, values)
        return
    names = [name.lstrip("-") for name in ordering]
    beyond = TupleLessThan if ways[-1] else TupleGreaterThan
    yield Q(beyond(Tuple(*names[split:]), values[split:]), **dict(zip(names[:split], values[:split], strict=True)))
    if split:
        yield _behind(ordering[:split], values[:split])


def _behind(ordering: Sequence[str], values: Sequence[Any]) -> Q:
    # Greater in the first field, or equal in it and greater in the second, and so on.
    condition, equal = Q(), Q()
    for name, value in zip(ordering, values, strict=True):
        field = name.lstrip("-")
        condition |= equal & Q(**{f"{field}__{'lt' if name.startswith('-') else 'gt'}": value})
        equal &= Q(**{field: value})
    # Redundant, but an index on the first field can use it.
    first = ordering[0].lstrip("-")
    return condition & Q(**{f"{first}__{'lte' if ordering[0].startswith('-') else 'gte'}": values[0]})


def _value(row: Any, path: str) -> Any:
    for name in path.split("__"):
        row = getattr(row, name)
    return row


def _field(rows: Any, path: str) -> models.Field[Any, Any]:
    if path in rows.query.annotations:
        made: models.Field[Any, Any] = rows.query.annotations[path].output_field
        return made
    *steps, last = path.split("__")
    model: type[models.Model] = rows.model
    for step in steps:
        related = model._meta.get_field(step).related_model
        model = related if isinstance(related, type) else model
    field = model._meta.get_field(last)
    if not isinstance(field, models.Field):
        raise TypeError(f"{path} is not a field to order by")
    return field


def _packed(value: Any) -> Any:
    if isinstance(value, date):  # or a time
        return value.isoformat()
    if isinstance(value, int) and not isinstance(value, bool):
        return str(seal(value))
    return str(value) if isinstance(value, UUID) else value


def _unpacked(field: models.Field[Any, Any], value: Any) -> Any:
    if isinstance(field, models.DateTimeField):
        moment = parse_datetime(value)
        if moment is None or moment.tzinfo is None:
            raise ValueError("not a time")
        return moment.astimezone(UTC)
    if isinstance(field, models.IntegerField):
        return unseal(UUID(str(value)))
    if not isinstance(value, str) or "\x00" in value or any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError("not a text")
    return field.to_python(value)
