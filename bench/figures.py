from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass


class NotRun(Exception):
    """Says why a benchmark could not run here."""


@dataclass(frozen=True, slots=True)
class Figure:
    """`peer` and `peer_value` are empty when no other project measures this; `goal` is text, with its direction."""

    bench: str
    case: str
    unit: str
    ours: float
    peer: str = ""
    peer_value: float | None = None
    goal: str = ""

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def table(figures: Sequence[Figure]) -> str:
    rows = [("bench", "case", "ours", "peer", "goal")]
    rows += [(figure.bench, figure.case, amount(figure.ours, figure.unit), peer_of(figure), figure.goal) for figure in figures]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n" for row in rows)


def peer_of(figure: Figure) -> str:
    return "" if figure.peer_value is None else f"{amount(figure.peer_value, figure.unit)} ({figure.peer})"


def amount(value: float, unit: str) -> str:
    number = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{number} {unit}".rstrip()
