"""A field that refers to an object takes its id or its name."""

from __future__ import annotations

from typing import TypeVar
from uuid import UUID

from django.db.models import Model, QuerySet

Row = TypeVar("Row", bound=Model)


def by_reference(rows: QuerySet[Row], reference: str | UUID) -> Row | None:
    """The one of `rows` with this id or name. `rows` holds only what the reader may see."""
    try:
        return rows.filter(pk=UUID(str(reference))).first()
    except ValueError:
        return rows.filter(name=str(reference)).first() if "\x00" not in str(reference) else None
