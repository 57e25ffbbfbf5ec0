"""Looks objects up by id or name."""

from __future__ import annotations

from typing import TypeVar
from uuid import UUID

from django.db.models import Model, Q, QuerySet

from core.errors import Conflict, NotFound

Row = TypeVar("Row", bound=Model)


def by_reference(rows: QuerySet[Row], reference: str | UUID) -> Row | None:
    """`rows` holds only what the reader may see."""
    return rows.filter(is_object(reference)).first()


def one_by_reference(rows: QuerySet[Row], reference: str | UUID, *, what: str) -> Row:
    """Finds a row by a name that may repeat. Raises NotFound, or Conflict for a name that several have."""
    found = list(rows.filter(is_object(reference))[:2])
    if not found:
        raise NotFound(what)
    if len(found) > 1:
        raise Conflict(f"There is more than one {what} of this name. Give its id.")
    return found[0]


def one_by_id(rows: QuerySet[Row], text: str | UUID, *, what: str) -> Row:
    """Raises NotFound, also for text that is no id."""
    id_ = id_of(text)
    row = rows.filter(pk=id_).first() if id_ else None
    if row is None:
        raise NotFound(what)
    return row


def id_of(text: str | UUID) -> UUID | None:
    try:
        return UUID(str(text))
    except ValueError:
        return None


def is_object(reference: str | UUID, *, path: str = "") -> Q:
    """The row, or the object behind the relation `path`, has this id or name."""
    if id_ := id_of(reference):
        return Q(**{path or "pk": id_})
    name = f"{path}__name" if path else "name"
    return Q(**{name: reference}) if "\x00" not in str(reference) else Q(pk__in=[])
