"""Keeps the recorded figures: `bench/results.json`, and the table in bench/README.md that is made from it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import date
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
    """Returns as Markdown the figures that have a goal. All others stand in the JSON alone."""
    lines = ["| bench | case | ours | peer | goal | measured |", "|---|---|---|---|---|---|"]
    for row in rows:
        figure = Figure(**{name: value for name, value in row.items() if name != "date"})
        if figure.goal:
            goal = figure.goal if is_met(figure) else f"{figure.goal}, **missed**"
            lines.append(
                f"| {figure.bench} | {figure.case} | {amount(figure.ours, figure.unit)} | {peer_of(figure)} | {goal} | {row['date']} |"
            )
    return "\n".join(lines) + "\n"


def is_met(figure: Figure) -> bool:
    """A goal is a bound ("<= 1.5", in the figure's unit), times the peer's figure where it names one ("<= 1.5 x fifo"), or a number."""
    if about := ABOUT.fullmatch(figure.goal):
        return abs(figure.ours - float(about[1])) <= float(about[2])
    bound = BOUND.match(figure.goal)
    if bound is None:
        return figure.ours == float(figure.goal)
    limit = float(bound[2])
    if " x " in figure.goal and figure.peer_value is not None:
        limit *= figure.peer_value
    return figure.ours <= limit if bound[1] == "<=" else figure.ours >= limit
