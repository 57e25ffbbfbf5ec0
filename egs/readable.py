"""Rows that may be spoiled: what one of them holds makes no sense, and the others are wanted all the same."""

from __future__ import annotations

from typing import Any, Final

from django.db import DataError
from django.db.models import QuerySet

# What reading a column raises where it holds no date, no id, nothing of its kind, or one beyond all calendars.
SPOILED: Final = (ValueError, TypeError, OverflowError, DataError)


def readable(rows: QuerySet[Any, Any]) -> tuple[list[Any], list[Any]]:
    """All that can be read, in their order, and the ids of the others. One query, unless one of them cannot."""
    try:
        return list(rows), []
    except SPOILED:
        found, lost = [], []
    for pk in rows.values_list("pk", flat=True):
        try:
            found += list(rows.filter(pk=pk))
        except SPOILED:
            lost.append(pk)
    return found, lost
