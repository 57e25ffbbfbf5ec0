"""Sends lists as CSV, piece by piece."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from io import StringIO
from typing import Any, Final

from django.db.models import QuerySet

from core.rest.pagination import page_behind
from core.streaming import StreamedText

ROWS_AT_ONCE: Final = 1000
ROWS_MOST: Final = 10_000  # of a list; filters find the others
FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")
Cell = str | int | float | datetime | None


def csv_file(pieces: Iterator[str], name: str) -> StreamedText:
    return StreamedText(pieces, content_type="text/csv; charset=utf-8", filename=f"{name}.csv")


def list_csv(
    rows: QuerySet[Any, Any], *, ordering: tuple[str, ...], columns: Sequence[str], cells: Callable[[Any], Sequence[Cell]], name: str
) -> StreamedText:
    """Returns the first ROWS_MOST of these rows."""

    def pieces() -> Iterator[str]:
        yield csv_text([columns])
        for page in pages_of(rows, ordering, most=ROWS_MOST):
            yield csv_text(map(cells, page))

    return csv_file(pieces(), name)


def pages_of(rows: QuerySet[Any, Any], ordering: tuple[str, ...], *, most: int | None = None) -> Iterator[Sequence[Any]]:
    cursor, count = None, 0
    while most is None or count < most:
        page = page_behind(rows, ordering, cursor=cursor, size=ROWS_AT_ONCE)
        yield page.rows
        cursor, count = page.next, count + len(page.rows)
        if cursor is None:
            return


def csv_text(rows: Iterable[Sequence[Cell]]) -> str:
    text = StringIO()
    csv.writer(text).writerows(map(_written, row) for row in rows)
    return text.getvalue()


def _written(cell: Cell) -> str | int | float:
    """A spreadsheet runs text that looks like a formula."""
    if isinstance(cell, datetime):
        return cell.astimezone(UTC).isoformat(timespec="seconds")
    if isinstance(cell, str) and cell.startswith(FORMULA_STARTS):
        return f"'{cell}"
    return "" if cell is None else cell
