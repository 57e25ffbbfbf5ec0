"""Keeps the recorded figures: `bench/results.json`, and the table in bench/README.md that is made from it."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from math import inf
from pathlib import Path
from typing import Any, Final

from bench.figures import Figure, amount, peer_of

RESULTS: Final = Path(__file__).with_name("results.json")
README: Final = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- The table is made by `python -m bench --record`. -->\n", "<!-- end -->"
BOUND: Final = re.compile(r"(<=|>=) ?([\d.]+)")
ABOUT: Final = re.compile(r"([\d.]+) \+- ([\d.]+)")


def record(figures: Sequence[Figure], *, today: date) -> None:
    """Put the figures of these benches in the place of their old ones, and make the table anew."""
    rows = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    measured = {figure.bench for figure in figures}
    rows = [row for row in rows if row["bench"] not in measured]
    rows += [{"date": today.isoformat(), **figure.as_dict()} for figure in figures]
    rows.sort(key=lambda row: row["bench"])  # stable: within a bench the figures keep their order
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n")
    text = README.read_text()
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    README.write_text(text[:begin] + table_of(rows) + text[end:])


def table_of(rows: Sequence[dict[str, Any]]) -> str:
    """Returns the figures that have a goal as Markdown. All others stand in the JSON alone.

    A missed goal has its own line. A bench's figures that keep the same goal share one, which shows the worst of them.
    """
    lines: dict[object, list[Figure]] = defaultdict(list)
    benches: dict[str, set[str]] = defaultdict(set)
    for index, row in enumerate(rows):
        figure = Figure(**{name: value for name, value in row.items() if name != "date"})
        if figure.goal:
            lines[(figure.bench, figure.goal, figure.unit) if is_met(figure) else index].append(figure)
            benches[row["date"]].add(figure.bench)
    days = "; ".join(f"{day}: {', '.join(sorted(names))}" for day, names in sorted(benches.items()))
    return "\n".join(["bench | case | ours | goal", "---|---|---|---", *_lines(lines.values()), "", f"Measured on {days}.", ""])


def _lines(lines: Iterable[Sequence[Figure]]) -> Iterator[str]:
    before = ""
    for equal in lines:
        figure = max(equal, key=_used_share)
        head, colon, tail = f"{figure.bench} | {figure.case}".partition(": ")
        case = f"{figure.bench} | … {tail}" if colon and head == before else f"{head}{colon}{tail}"
        before = head
        count = "" if len(equal) == 1 else f" (the worst of {len(equal)})"
        ours = " beside ".join(filter(None, (amount(figure.ours, figure.unit), peer_of(figure))))
        yield f"{case}{count} | {ours} | {figure.goal if is_met(figure) else f'{figure.goal}, **missed**'}"


def is_met(figure: Figure) -> bool:
    """A goal is a bound ("<= 1.5", in the figure's unit), times the peer's figure where it names one ("<= 1.5 x fifo"), or a number."""
    if about := ABOUT.fullmatch(figure.goal):
        return abs(figure.ours - float(about[1])) <= float(about[2])
    if BOUND.match(figure.goal) is None:
        return figure.ours == float(figure.goal)
    return _used_share(figure) <= 1


def _used_share(figure: Figure) -> float:
    """Returns how much of its bound a figure uses; 0 if its goal is no bound."""
    bound = BOUND.match(figure.goal)
    if bound is None:
        return 0.0
    limit = float(bound[2])
    if " x " in figure.goal and figure.peer_value is not None:
        limit *= figure.peer_value
    used, of = (figure.ours, limit) if bound[1] == "<=" else (limit, figure.ours)
    return used / of if of else inf if used else 0.0
