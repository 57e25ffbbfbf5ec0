"""Lays a cluster's part of the schedule out, from boxes on nodes to rows and steps. It is pure.

A node is one row high, or has a lane per box if boxes share it at the same time. Boxes of one GPR on adjacent nodes are drawn as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise

from core.pages.axis import Axis
from core.pages.node_strip import DrawnBox, NodeBox, node_strip

ROW_PX = 19
LANES_MAX = 8
STEPS_PX, STEP_TOP_PX = 42, 26
# Minimum width of a step that shows its number.
NUMBER_PERCENT = 2.0


@dataclass(frozen=True, slots=True)
class Stay:
    """It is a box on one node. `key` is the same on all nodes of a GPR's run."""

    key: str
    box: NodeBox


@dataclass(frozen=True, slots=True)
class Row:
    top: int
    boxes: tuple[DrawnBox, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """Draws a bar of the curve of free nodes."""

    x: str
    width: str
    y: float
    height: float
    middle: str
    count: str  # empty if the bar is too narrow


@dataclass(frozen=True, slots=True)
class Drawing:
    rows: tuple[Row, ...]
    lanes: tuple[int, ...]  # per node
    lines: tuple[float, ...]  # between nodes
    height: int


def draw(stays: Sequence[Sequence[Stay]], axis: Axis) -> Drawing:
    """`stays` per node, in order of rows."""
    laned = [_lanes(of_node) for of_node in stays]
    tops, top = [], 0
    for lanes in laned:
        tops.append(top)
        top += max(len(lanes), 1)
    rows: dict[int, list[NodeBox]] = {}
    linked: set[str] = set()
    for first, lane, stay, row_count in _merged(laned):
        box = replace(stay.box, row_count=row_count, is_repeat=stay.key in linked)
        linked.add(stay.key)
        rows.setdefault(tops[first] + lane, []).append(box)
    return Drawing(
        rows=tuple(Row(number * ROW_PX, node_strip(boxes, axis, row_px=ROW_PX)) for number, boxes in sorted(rows.items())),
        lanes=tuple(max(len(lanes), 1) for lanes in laned),
        lines=tuple((start + max(len(lanes), 1)) * ROW_PX - 0.5 for start, lanes in zip(tops, laned, strict=True)),
        height=max(top, 1) * ROW_PX,
    )


def free_steps(stays: Sequence[Sequence[Stay]], axis: Axis) -> tuple[Step, ...]:
    """Begins now. A node is free while it has no box at all."""
    begin = max(axis.start, axis.now)
    changes: dict[datetime, int] = {begin: len(stays)}
    for of_node in stays:
        for start, end in _busy([stay.box for stay in of_node], begin, axis.end):
            changes[start] = changes.get(start, 0) - 1
            changes[end] = changes.get(end, 0) + 1
    steps, count = [], 0
    moments = [*sorted(at for at in changes if at < axis.end), axis.end]
    for at, until in pairwise(moments):
        count += changes[at]
        if count > 0:
            steps.append(_step(at, until, count, len(stays), axis))
    return tuple(steps)


def _step(at: datetime, until: datetime, count: int, total: int, axis: Axis) -> Step:
    left, right = axis.percent(at), axis.percent(until)
    height = max(round(count / total * STEP_TOP_PX, 1), 2)
    text = str(count) if right - left >= NUMBER_PERCENT else ""
    return Step(f"{left:.2f}%", f"{right - left:.2f}%", STEPS_PX - height, height, f"{(left + right) / 2:.2f}%", text)


def _busy(boxes: Iterable[NodeBox], begin: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Returns disjoint intervals with at least one box."""
    until: datetime | None = None
    since = begin
    for box in sorted(boxes, key=lambda box: box.starts_at):
        start, stop = max(box.starts_at, begin), min(box.ends_at, end)
        if stop <= start:
            continue
        if until is not None and start > until:
            yield since, until
            until = None
        if until is None:
            since, until = start, stop
        until = max(until, stop)
    if until is not None:
        yield since, until


def _lanes(stays: Sequence[Stay]) -> list[list[Stay]]:
    """Each stay takes the first free lane; the last lane takes the rest."""
    lanes: list[list[Stay]] = []
    for stay in sorted(stays, key=lambda stay: (stay.box.starts_at, stay.key)):
        lane = next((lane for lane in lanes if lane[-1].box.ends_at <= stay.box.starts_at), None)
        if lane is not None:
            lane.append(stay)
        elif len(lanes) < LANES_MAX:
            lanes.append([stay])
        else:
            lanes[-1].append(stay)
    return lanes


def _merged(laned: Sequence[Sequence[Sequence[Stay]]]) -> Iterator[tuple[int, int, Stay, int]]:
    """Yields node, lane, stay and height in rows. A box extends over the next nodes that have one lane and the same stay."""
    drawn: set[tuple[int, str]] = set()
    whole: list[Mapping[str, Stay]] = [{stay.key: stay for stay in lanes[0]} if len(lanes) == 1 else {} for lanes in laned]
    for number, lanes in enumerate(laned):
        for lane, stays in enumerate(lanes):
            for stay in stays:
                if (number, stay.key) in drawn:
                    continue
                row_count = 1
                while (
                    stay.key in whole[number]
                    and number + row_count < len(laned)
                    and _is_same(whole[number + row_count].get(stay.key), stay)
                ):
                    drawn.add((number + row_count, stay.key))
                    row_count += 1
                yield number, lane, stay, row_count


def _is_same(other: Stay | None, stay: Stay) -> bool:
    return other is not None and (other.box.starts_at, other.box.ends_at, other.box.kind) == (
        stay.box.starts_at,
        stay.box.ends_at,
        stay.box.kind,
    )
