"""Rows that may be spoiled: what one of them holds makes no sense, and the others are wanted all the same."""

from __future__ import annotations

from typing import Any, Final

from django.db import DataError
from django.db.models import QuerySet

# What reading a column raises where it holds no date, no id, nothing of its kind, or one beyond all calendars.
SPOILED: Final = (ValueError, TypeError, OverflowError, DataError)


def readable(rows: QuerySet[Any, Any]) -> tuple[list[Any], list[Any]]:
    """All that can be read, in their order, and the ids of the others. One query, unless one of them cannot.

    Then the half that cannot is read in halves: a few queries for each such row, not one for each of ten thousand.
    """
    try:
        return list(rows), []
    except SPOILED:
        return _halves(rows, list(rows.values_list("pk", flat=True)))


def _part(rows: QuerySet[Any, Any], pks: list[Any]) -> tuple[list[Any], list[Any]]:
    try:
        return list(rows.filter(pk__in=pks)), []
    except SPOILED:
        return _halves(rows, pks)


def _halves(rows: QuerySet[Any, Any], pks: list[Any]) -> tuple[list[Any], list[Any]]:
    """Of those that could not be read together."""
    if len(pks) < 2:
        return [], pks
    middle = len(pks) // 2
    (found, lost), (more, also) = _part(rows, pks[:middle]), _part(rows, pks[middle:])
    return found + more, lost + also
