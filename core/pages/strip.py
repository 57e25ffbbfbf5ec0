"""Draws the time strip: a GPR as a box in time, and the same as a sentence.

x and width are percentages of the axis, y and height are pixels.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from core.pages import words
from core.pages.axis import PHONE_PX, Axis

MARKS = (25, 50, 75)
ENDED = frozenset({"COMPLETED", "RELEASED", "EVICTED", "FAILED", "CANCELED", "REJECTED"})
# States in which the rest of the window was taken away, drawn as a cut.
CUT = frozenset({"EVICTED"})
CHAR_PX = 6.4  # average width of a letter
GAP_PX = 8

Anchors = tuple[str, ...]  # start, middle, end: the allowed positions of a label, the best first


@dataclass(frozen=True, slots=True)
class StripBox:
    """`state` is that of a GPR, or BOOKED, or OFFER."""

    state: str
    filed_at: datetime | None = None
    planned_start_at: datetime | None = None
    p90_at: datetime | None = None
    promised_at: datetime | None = None
    started_at: datetime | None = None  # nodes reserved, entry steps run
    active_at: datetime | None = None  # the window runs
    exiting_at: datetime | None = None  # nodes began to leave
    ends_at: datetime | None = None  # of the window, planned or strict
    ended_at: datetime | None = None  # nothing is held any more
    asks: str = ""  # "4 × 8 H100-80GB"
    reason: str = ""  # one sentence, without a full stop
    hue: int = 0
    mark: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """A rect has a width; a line without x2 is vertical."""

    shape: str  # line, rect, flag, dot or text
    css: str
    x: str
    y: float
    y2: float = 0
    x2: str = ""
    width: str = ""
    text: str = ""
    anchor: str = "middle"
    dx: float = 0

    @property
    def height(self) -> float:
        return self.y2 - self.y


@dataclass(frozen=True, slots=True)
class Strip:
    parts: tuple[Part, ...]
    spoken: str
    hue: int
    height: int
    axis_name: str
    later: str = ""  # the start, if all of it is after the axis: "Fri 18:02"
    css: str = ""

    @property
    def text_y(self) -> float:
        return self.height / 2 + 5


@dataclass(frozen=True, slots=True)
class _Pen:
    axis: Axis
    height: int
    box_px: float
    top: float
    parts: list[Part] = field(default_factory=list)

    @classmethod
    def of(cls, axis: Axis, height: int) -> _Pen:
        box_px = 12 if height < 40 else 15 if height < 60 else 24
        return cls(axis, height, box_px, (height - box_px) // 2 + (2 if height < 60 else -2))

    @property
    def bottom(self) -> float:
        return self.top + self.box_px

    @property
    def middle(self) -> float:
        return self.top + self.box_px / 2

    def box(self, css: str, start: datetime | None, end: datetime | None, *, inset: float = 0) -> None:
        span = self.axis.span(start, end)
        if span:
            self.parts.append(Part("rect", css, span[0], self.top + inset, self.bottom - inset, width=span[1]))

    def line(self, css: str, start: datetime | None, end: datetime | None) -> None:
        if start and end and end > start and self.axis.span(start, end):
            self.parts.append(Part("line", css, self.axis.x(start), self.middle, self.middle, x2=self.axis.x(end)))

    def upright(self, css: str, at: datetime | None, y: float, y2: float) -> None:
        if at and self.axis.has(at):
            self.parts.append(Part("line", css, self.axis.x(at), y, y2))

    def promise(self, at: datetime | None, over_px: float = 5) -> None:
        if at and self.axis.has(at):
            self.upright("promise-stem", at, self.top - over_px, self.bottom)
            self.parts.append(Part("flag", "", self.axis.x(at), self.top - over_px - 2))

    def text(self, text: str, at: datetime, y: float, *, css: str = "", anchor: str = "middle", dx: float = 0) -> None:
        self.parts.append(Part("text", css, self.axis.x(at), y, text=text, anchor=anchor, dx=dx))


def strip_of(box: StripBox, axis: Axis, *, height: int = 30) -> Strip:
    pen = _Pen.of(axis, height)
    _draw(box, pen)
    begins_at = box.started_at or box.active_at or box.planned_start_at
    later = axis.says(begins_at) if begins_at and begins_at > axis.end else ""
    return Strip(tuple(pen.parts), sentence(box, axis), box.hue, height, axis.name, later)


def hero_of(box: StripBox, axis: Axis, *, height: int = 76) -> Strip:
    """Draws the larger strip with labels on a GPR's own page."""
    pen = _Pen.of(axis, height)
    if box.filed_at and axis.has(box.filed_at):
        pen.parts.append(Part("dot", "dot", axis.x(box.filed_at), pen.middle))
    _draw(box, pen)
    row_top, row_bottom = _LabelRow(axis), _LabelRow(axis)
    if box.promised_at:
        row_top.put(
            pen, f"Promised by {axis.says(box.promised_at)}", box.promised_at, pen.top - 7, css="sub", anchors=("start", "end"), gap_px=9
        )
    for at, name, anchors in _milestones(box):
        css = "" if name in {"Ends", "Ended"} else "sub"
        row_bottom.put(pen, f"{name} {axis.says(at)}", at, pen.bottom + 12, css=css, anchors=anchors)
    return Strip(tuple(pen.parts), sentence(box, axis), box.hue, height, axis.name, css="big-strip")


def _milestones(box: StripBox) -> list[tuple[datetime, str, Anchors]]:
    """Return labels and their positions, the most important first."""
    named: list[tuple[datetime | None, str, Anchors]] = [
        (box.ended_at, "Ended", ("end", "middle", "start")),
        (box.ends_at if not box.ended_at else None, "Ends", ("end", "middle", "start")),
        (box.active_at, "Active", ("start", "end")),
        (box.planned_start_at if not box.started_at else None, "Starts", ("start", "end")),
        (box.filed_at, "Filed", ("start", "end")),
        (box.started_at if box.started_at != box.active_at else None, "Provisioning", ("end", "start")),
    ]
    # Marks after its end have no label.
    named_marks = [(share, at) for share, at in _marks(box) if not box.ended_at or at <= (box.exiting_at or box.ended_at)]
    marks: list[tuple[datetime, str, Anchors]] = [(at, f"{share} %", ("middle", "start", "end")) for share, at in named_marks]
    return [(at, name, anchors) for at, name, anchors in named if at is not None] + marks


def _draw(box: StripBox, pen: _Pen) -> None:
    if box.state in ENDED:
        _draw_ended(box, pen)
    elif box.state in {"PROVISIONING", "ACTIVE", "EXITING"}:
        _draw_held(box, pen)
    else:
        _draw_waiting(box, pen)


def _draw_waiting(box: StripBox, pen: _Pen) -> None:
    start, now = box.planned_start_at, pen.axis.now
    waits_until = start or now
    if waits_until > pen.axis.end:  # the start is shown as text there
        waits_until = pen.axis.before_end((len(pen.axis.says(waits_until)) + 2) * CHAR_PX)
    pen.line("wait", box.filed_at or (None if box.state == "BOOKED" else now), waits_until)
    pen.box("box-booked" if box.state == "BOOKED" else "box-planned", start, box.ends_at)
    if start and box.p90_at and box.p90_at > start:
        pen.box("box-hatch", start, min(box.p90_at, box.ends_at or box.p90_at))
        pen.upright("range-line", box.p90_at, pen.top - 2, pen.bottom + 2)
    if start and box.promised_at and box.promised_at < start:
        pen.line("slip", box.promised_at, start)
    pen.promise(box.promised_at)


def _draw_held(box: StripBox, pen: _Pen) -> None:
    now = pen.axis.now
    active_at, begins_at = box.active_at, box.started_at or box.active_at
    if pen.height >= 60:
        pen.line("wait", box.filed_at, begins_at)
    pen.box("box-active", active_at or begins_at, box.ends_at)
    if begins_at and (active_at is None or active_at > begins_at):
        pen.box("box-provisioning" if active_at else "box-provisioning goes-on", begins_at, active_at or now)
    if active_at:
        used_until = min(box.exiting_at or box.ends_at or now, now)
        if now > active_at:
            pen.box("box-elapsed" if box.exiting_at else "box-elapsed goes-on", active_at, max(used_until, active_at))
        pen.box("box-frame", active_at, box.ends_at)
        for _, at in _marks(box):
            pen.upright("mark mark-done" if at <= now else "mark", at, pen.bottom - min(pen.box_px / 3, 8), pen.bottom)
    if box.state == "EXITING":
        pen.box("box-exiting goes-on", box.exiting_at or box.ends_at or now, now)
    pen.promise(box.promised_at)


def _draw_ended(box: StripBox, pen: _Pen) -> None:
    held_from = box.active_at or box.started_at
    left_at = box.exiting_at or box.ended_at
    if held_from and left_at:
        pen.box("box-ended", held_from, left_at)
        if box.ends_at and left_at < box.ends_at:
            pen.box("box-unused", left_at, box.ends_at, inset=0.5)
        if box.state in CUT:
            pen.upright("box-cut", left_at, pen.top - 2, pen.bottom + 2)
        pen.promise(box.promised_at)


def _marks(box: StripBox) -> list[tuple[int, datetime]]:
    if not box.active_at or not box.ends_at or box.ends_at <= box.active_at:
        return []
    return [(share, box.active_at + (box.ends_at - box.active_at) * share / 100) for share in MARKS]


class _LabelRow:
    """Places labels at one height, so that they neither overlap nor touch the line of now; a phone shows fewer."""

    def __init__(self, axis: Axis) -> None:
        self._axis = axis
        self._taken_px: dict[int, list[tuple[float, float]]] = {axis.width_px: [], PHONE_PX: []}

    def put(self, pen: _Pen, text: str, at: datetime, y: float, *, css: str, anchors: Anchors, gap_px: float = 2) -> None:
        if not self._axis.has(at):
            return
        for anchor in anchors:
            dx = {"middle": 0.0, "start": gap_px, "end": -gap_px}[anchor]
            if not self._take(self._axis.width_px, text, at, anchor, dx):
                continue
            if self._axis.width_px > PHONE_PX and not self._take(PHONE_PX, text, at, anchor, dx):
                css = f"{css} thin".strip()
            pen.text(text, at, y, css=css, anchor=anchor, dx=dx)
            return

    def _take(self, width_px: int, text: str, at: datetime, anchor: str, dx: float) -> bool:
        text_px = len(text) * CHAR_PX
        left = self._axis.px(at, width_px) + dx - {"middle": text_px / 2, "start": 0, "end": text_px}[anchor]
        right, taken = left + text_px, self._taken_px[width_px]
        now_px = self._axis.px(self._axis.now, width_px)
        crosses_now = bool(self._axis.now_x) and left < now_px + 1 and right > now_px - 1
        if left < 0 or right > width_px or crosses_now or any(left < end and right > start for start, end in taken):
            return False
        taken.append((left - GAP_PX / 2, right + GAP_PX / 2))
        return True


# Sentences: the same content for people who do not see the drawing.


def sentence(box: StripBox, axis: Axis) -> str:
    told = _told_ended if box.state in ENDED else _TOLD.get(box.state, _told_waiting)
    return " ".join(f"{part}." for part in (told(box, axis), box.asks, box.reason) if part)


def _told_waiting(box: StripBox, axis: Axis) -> str:
    start = box.planned_start_at
    if box.state == "PENDING_APPROVAL" or start is None:
        since = f" since {axis.says(box.filed_at)}" if box.filed_at else ""
        return f"{words.STATE_WORDS.get(box.state, 'Waiting')}{since}, no start is planned"
    until = f" to {axis.says(box.ends_at)}" if box.ends_at else ""
    if box.state == "BOOKED":
        return f"Booked {axis.says(start)}{until}"
    parts = [f"{'Starts' if box.state == 'OFFER' else 'Planned'} {axis.says(start)}{until}"]
    if box.p90_at:
        parts.append(f"at the latest {axis.says(box.p90_at)} with 90 % certainty")
    if box.promised_at:
        parts.append(f"promised {axis.says(box.promised_at)}")
        if late := words.late((start - box.promised_at).total_seconds()):
            parts.append(f"{late.removeprefix('+')} late")
    return ", ".join(parts)


def _told_provisioning(box: StripBox, axis: Axis) -> str:
    return ", ".join(_since("Provisioning", box.started_at, axis) + _ends(box, axis) + _promised(box, axis))


def _told_active(box: StripBox, axis: Axis) -> str:
    rest = [words.left(box.ends_at, now=axis.now)] if box.ends_at and box.ends_at > axis.now else []
    return ", ".join(_since("Running", box.active_at or box.started_at, axis) + _ends(box, axis) + rest + _promised(box, axis))


def _told_exiting(box: StripBox, axis: Axis) -> str:
    held = [f"held since {axis.says(box.active_at)}"] if box.active_at else []
    return ", ".join(_since("Exiting", box.exiting_at or box.ends_at, axis) + held)


def _told_ended(box: StripBox, axis: Axis) -> str:
    word = words.STATE_WORDS[box.state]
    held_from, left_at = box.active_at, box.exiting_at or box.ended_at
    if not held_from or not left_at:
        return f"{word} {axis.says(box.ended_at)}, never active" if box.ended_at else f"{word}, never active"
    parts = [f"{word}, {axis.says(held_from)} to {axis.says(left_at)}"]
    if box.ends_at and left_at < box.ends_at:
        parts.append(f"booked to {axis.says(box.ends_at)}")
    return ", ".join(parts)


_TOLD = {"PROVISIONING": _told_provisioning, "ACTIVE": _told_active, "EXITING": _told_exiting}


def _since(word: str, at: datetime | None, axis: Axis) -> list[str]:
    return [f"{word} since {axis.says(at)}" if at else word]


def _ends(box: StripBox, axis: Axis) -> list[str]:
    return [f"ends {axis.says(box.ends_at)}"] if box.ends_at else []


def _promised(box: StripBox, axis: Axis) -> list[str]:
    return [f"promised {axis.says(box.promised_at)}"] if box.promised_at else []
