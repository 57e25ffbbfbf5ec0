"""Draws boxes over time as text: a line for each node, a character for each stretch of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

MARKS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
FREE, OTHERS = "·", "▒"
LABEL_EVERY = 10


@dataclass(frozen=True, slots=True)
class Stretch:
    node: str
    name: str  # empty: of another workspace
    starts_at: datetime
    ends_at: datetime


def strip(nodes: Sequence[str], stretches: Sequence[Stretch], *, begin: datetime, hours: float, width: int) -> list[str]:
    """Returns the scale, the nodes, and what the marks mean. Fits into `width`."""
    label = max((len(node) for node in nodes), default=0)
    cells = max(width - label - 2, LABEL_EVERY)
    cell = timedelta(hours=hours) / cells
    names = list(dict.fromkeys(stretch.name for stretch in sorted(stretches, key=lambda each: each.starts_at) if stretch.name))
    marks = {name: MARKS[at % len(MARKS)] for at, name in enumerate(names)}
    rows = {node: [FREE] * cells for node in nodes}
    for stretch in stretches:
        first, last = (stretch.starts_at - begin) / cell, (stretch.ends_at - begin) / cell
        for at in range(max(int(first), 0), min(max(int(last), int(first) + 1), cells)):
            if stretch.node in rows:
                rows[stretch.node][at] = marks.get(stretch.name, OTHERS)
    lines = [f"{'':<{label}}  {_scale(begin, cell, cells)}"]
    lines += [f"{node:<{label}}  {''.join(row)}" for node, row in rows.items()]
    lines += [f"{mark} = {name}" for name, mark in marks.items()]
    return [*lines, f"{FREE} = free, {OTHERS} = another workspace"]


def _scale(begin: datetime, cell: timedelta, cells: int) -> str:
    text = ""
    while len(text) + LABEL_EVERY <= cells:
        text += f"{begin + cell * len(text):%H:%M}".ljust(LABEL_EVERY)
    return text.rstrip()
