"""Draws what is on the nodes of a schedule, on the axis of the time strip. It is pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from core.pages import words
from core.pages.axis import Axis


@dataclass(frozen=True, slots=True)
class NodeBox:
    kind: str  # held, booked, planned, exiting, ended or aside
    starts_at: datetime
    ends_at: datetime
    name: str
    workspace: str = ""
    url: str = ""  # empty: no GPR, or another workspace's
    hue: int = 0
    mark: int = 0
    # The height in rows, for a GPR on adjacent nodes.
    row_count: int = 1
    # A further part of a linked GPR, which is not in the tab order again.
    is_repeat: bool = False


@dataclass(frozen=True, slots=True)
class DrawnBox:
    box: NodeBox
    css: str
    x: str
    width: str
    elapsed_width: str  # empty: no time used
    label: str  # the name, or the workspace's initials if it does not fit, or nothing
    label_x: str
    label_width: str
    height: float
    spoken: str


# The start of a label, and the widths of average and of capital letters.
LABEL_LEFT_PX, CHAR_PX, CODE_CHAR_PX = 20, 6.2, 8

KIND_CSS = {
    "held": "box-active",
    "booked": "box-booked",
    "planned": "box-planned",
    "exiting": "box-exiting",
    "ended": "box-ended",
    "aside": "box-aside",
}
KIND_WORDS = {"held": "Held", "booked": "Booked", "planned": "Planned", "exiting": "Exiting", "ended": "Ended", "aside": "Set aside"}


def node_strip(boxes: Iterable[NodeBox], axis: Axis, *, row_px: int = 19) -> tuple[DrawnBox, ...]:
    drawn = (_drawn(box, axis, row_px) for box in sorted(boxes, key=lambda box: box.starts_at))
    return tuple(box for box in drawn if box)


def _drawn(box: NodeBox, axis: Axis, row_px: int) -> DrawnBox | None:
    span = axis.span(box.starts_at, box.ends_at)
    if span is None:
        return None
    left, right = max(axis.percent(box.starts_at), 0.0), min(axis.percent(box.ends_at), 100.0)
    now = axis.percent(axis.now)
    used = axis.span(box.starts_at, min(axis.now, box.ends_at)) if box.kind == "held" and box.starts_at < axis.now else None
    if axis.now_x and left < now < right:  # a label never crosses the line of now
        left, right = (now, right) if right - now > now - left else (left, now)
    label = _label(box, (right - left) / 100 * axis.width_px - LABEL_LEFT_PX)
    whom = ", ".join(part for part in (box.name, box.workspace) if part)
    return DrawnBox(
        box=box,
        css=KIND_CSS[box.kind],
        x=span[0],
        width=span[1],
        elapsed_width=used[1] if used else "",
        label=label,
        label_x=f"{left:.2f}%",
        label_width=f"{max(right - left, 0):.2f}%",
        height=box.row_count * row_px - 5,
        spoken=f"{_code(label, box)}{whom}. {KIND_WORDS[box.kind]} {axis.says(box.starts_at)} to {axis.says(box.ends_at)}.",
    )


def _label(box: NodeBox, room_px: float) -> str:
    if len(box.name) * CHAR_PX <= room_px:
        return box.name
    code = words.initials(box.workspace) if box.workspace else ""
    return code if len(code) * CODE_CHAR_PX <= room_px else ""


def _code(label: str, box: NodeBox) -> str:
    """Say a visible abbreviation before its meaning."""
    return f"{label}: " if label and label != box.name else ""
