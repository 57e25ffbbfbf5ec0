"""Rows that may be spoiled: what one of them holds makes no sense, and the others are wanted all the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import structlog
from django.db import DataError
from django.db.models import Model, Q, QuerySet

log = structlog.get_logger(__name__)
Row = TypeVar("Row", bound=Model)
Made = TypeVar("Made")

# What reading a column raises where it holds no date, no id, nothing of its kind, or one beyond all calendars.
SPOILED: Final = (ValueError, TypeError, OverflowError, DataError)
LOST_MAX: Final = 50
# Ticks read each second: meanwhile the log names a row once for each process.
LOG_AGAIN_S: Final = 600
LOGGED_MAX: Final = 10_000
# PostgreSQL has times before, after and `infinity`. No zone pushes these out of the calendar.
FIRST, LAST = datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)


def readable(rows: QuerySet[Any, Any]) -> tuple[list[Any], list[Any]]:
    """All that can be read, in their order, and the ids of the others, which the log names. One query, unless one of them cannot.

    Then the half that cannot is read in halves: a few queries for each such row, not one for each of ten thousand. There is no limit:
    where none can be read it answers with none.
    """
    try:
        return list(rows), []
    except SPOILED:
        found, lost = _halves(rows, list(rows.prefetch_related(None).values_list("pk", flat=True)))
        _name(rows.model, lost)
        return found, lost


def readable_first(rows: QuerySet[Any, Any], count: int) -> tuple[list[Any], list[Any]]:
    """The first `count` that can be read, in their order, and the ids of those among them that cannot, which the log names.

    One query, unless there are such. Raises what reading them does where more than LOST_MAX cannot: that is not the fault of rows.
    """
    lost: list[Any] = []
    while True:
        part = rows.exclude(pk__in=lost) if lost else rows
        try:
            return list(part[:count]), lost
        except SPOILED:
            pks = list(part.prefetch_related(None).values_list("pk", flat=True)[:count])
            more = _halves(part, pks)[1]
            if not more or len(lost) + len(more) > LOST_MAX:
                raise
            lost += more
            _name(rows.model, more)


def made_of(rows: Iterable[Row], make: Callable[[Row], Made]) -> list[Made]:
    """What `make` makes of each, in their order, but of those that hold what nothing can be made of: these the log names."""
    found = []
    for row in rows:
        try:
            found.append(make(row))
        except SPOILED:
            _name(type(row), [row.pk])
    return found


def first_readable(rows: QuerySet[Row, Row]) -> Row | None:
    """As the first of `readable_first`; None where there is none."""
    return next(iter(readable_first(rows, 1)[0]), None)


def is_time(name: str) -> Q:
    """The column holds a time that can be read: for sums over rows, which one of them would spoil."""
    return Q(**{f"{name}__gte": FIRST, f"{name}__lte": LAST})


_logged_s: dict[tuple[str, str], float] = {}


def _name(of: type[Model], lost: Iterable[Any]) -> None:
    """In the log."""
    model, now_s = of._meta.label, time.monotonic()
    ids = [str(pk) for pk in lost]
    ids = [id_ for id_ in ids if now_s - _logged_s.get((model, id_), -LOG_AGAIN_S) >= LOG_AGAIN_S]
    if not ids:
        return
    if len(_logged_s) + len(ids) > LOGGED_MAX:
        _logged_s.clear()
    _logged_s.update({(model, id_): now_s for id_ in ids})
    log.error("rows_unreadable", model=model, ids=ids)


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
