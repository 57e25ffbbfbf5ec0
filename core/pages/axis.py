"""Draws the time axis above strips.

Positions are percentages of the axis. Text sizes are pixels; `width_px` is the nominal width.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from core.pages import words

# A box may exceed the axis by this much, which shows that it goes on.
PERCENT_MIN, PERCENT_MAX = -1.0, 101.0
WIDTH_PERCENT_MIN = 0.25

TICK_PX_MIN, LABEL_PX_MIN = 36, 60
TICKS_MAX = 14
PHONE_PX = 340
PILL_HALF_PX = 19
# The least distance between the middle of the pill that shows now and the middle of a label.
CLEAR_OF_PILL_PX = 38
CLEAR_OF_PILL_DAY_PX = 44
LABEL_HALF_PX = 18

STEPS = tuple(timedelta(minutes=minutes) for minutes in (1, 5, 10, 15, 30, 60, 120, 180, 240, 360, 720)) + tuple(
    timedelta(days=days) for days in (1, 2, 7, 14, 28, 56, 112, 224, 448)
)
DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Tick:
    x: str
    is_day: bool


@dataclass(frozen=True, slots=True)
class AxisLabel:
    x: str
    text: str
    anchor: str  # SVG's text-anchor: start, middle, end
    is_day: bool
    is_thin: bool  # hidden on a phone


@dataclass(frozen=True, slots=True)
class Axis:
    start: datetime
    end: datetime
    now: datetime
    zone: tzinfo
    width_px: int = 420
    name: str = "axis"  # prefix of its grid's ids; one page may hold several axes

    def __post_init__(self) -> None:
        if self.end <= self.start:
            raise ValueError("an axis ends after it starts")

    def percent(self, at: datetime) -> float:
        """The result is clamped to slightly outside the axis."""
        share = (at - self.start) / (self.end - self.start) * 100
        return min(max(share, PERCENT_MIN), PERCENT_MAX)

    def x(self, at: datetime) -> str:
        return f"{self.percent(at):.2f}%"

    def span(self, start: datetime | None, end: datetime | None) -> tuple[str, str] | None:
        """Return x and width of the visible part, or None."""
        if start is None or end is None or end < start or end < self.start or start > self.end:
            return None
        left = self.percent(start)
        width = max(self.percent(end) - left, WIDTH_PERCENT_MIN)
        return f"{min(left, PERCENT_MAX - width):.2f}%", f"{width:.2f}%"

    def px(self, at: datetime, width_px: int | None = None) -> float:
        return self.percent(at) / 100 * (width_px or self.width_px)

    def before_end(self, room_px: float) -> datetime:
        return self.end - (self.end - self.start) * min(room_px / self.width_px, 1)

    def has(self, at: datetime | None) -> bool:
        return at is not None and self.start <= at <= self.end

    def says(self, at: datetime) -> str:
        return words.moment(at, now=self.now, zone=self.zone)

    @property
    def now_x(self) -> str:
        """Empty if now is not on the axis."""
        return self.x(self.now) if self.has(self.now) else ""

    @property
    def now_text(self) -> str:
        return f"{self.now.astimezone(self.zone):%H:%M}"

    @property
    def pill_shift_px(self) -> float:
        px = self.px(self.now)
        return round(max(PILL_HALF_PX - px, 0) + min(self.width_px - PILL_HALF_PX - px, 0), 1)

    @property
    def pill_x(self) -> float:
        return self.pill_shift_px - PILL_HALF_PX

    @property
    def spoken(self) -> str:
        now = f", now {self.now_text}" if self.now_x else ""
        return f"Time axis, {self.says(self.start)} to {self.says(self.end)}{now}"

    @property
    def ticks(self) -> list[Tick]:
        return [Tick(self.x(at), self._is_midnight(at)) for at in self._marks(self._tick_step) if self.start < at < self.end]

    @property
    def labels(self) -> list[AxisLabel]:
        step = self._label_step(self._tick_step, self.width_px)
        phone_step = self._label_step(step, min(PHONE_PX, self.width_px))
        thick = set(self._marks(phone_step))
        return [self._label(at, is_thin=at not in thick) for at in self._marks(step) if self._is_clear_of_pill(at, self.width_px)]

    def _label(self, at: datetime, *, is_thin: bool) -> AxisLabel:
        is_day, local, px = self._is_midnight(at), at.astimezone(self.zone), self.px(at)
        text = f"{local:%H:%M}"
        if is_day:
            text = f"{local:%a} {local.day}" if self.end - self.start <= 14 * DAY else f"{local.day} {local:%b}"
        anchor = "middle"
        if px < LABEL_HALF_PX:
            anchor = "start"
        elif px > self.width_px - LABEL_HALF_PX:
            anchor = "end"
        return AxisLabel(self.x(at), text, anchor, is_day, (is_thin and not is_day) or not self._is_clear_of_pill(at, PHONE_PX))

    def _is_clear_of_pill(self, at: datetime, width_px: int) -> bool:
        if not self.now_x:
            return True
        # Neither the pill nor a label exceeds the axis.
        pill_px = min(max(self.px(self.now, width_px), PILL_HALF_PX), width_px - PILL_HALF_PX)
        label_px = min(max(self.px(at, width_px), LABEL_HALF_PX), width_px - LABEL_HALF_PX)
        return abs(label_px - pill_px) >= (CLEAR_OF_PILL_DAY_PX if self._is_midnight(at) else CLEAR_OF_PILL_PX)

    @property
    def _tick_step(self) -> timedelta:
        fits = (step for step in STEPS if self._step_px(step, self.width_px) >= TICK_PX_MIN and (self.end - self.start) / step <= TICKS_MAX)
        return next(fits, STEPS[-1])

    def _label_step(self, base: timedelta, width_px: int) -> timedelta:
        fits = (step for step in STEPS if step % base == timedelta(0) and self._step_px(step, width_px) >= LABEL_PX_MIN)
        return next(fits, STEPS[-1])

    def _step_px(self, step: timedelta, width_px: int) -> float:
        return step / (self.end - self.start) * width_px

    def _is_midnight(self, at: datetime) -> bool:
        local = at.astimezone(self.zone)
        return local.hour == local.minute == 0

    def _marks(self, step: timedelta) -> Iterator[datetime]:
        """Yield round times of the reader's clock, also across a change of summer time."""
        day = self.start.astimezone(self.zone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
        last = self.end.astimezone(self.zone).replace(tzinfo=None)
        while day <= last:
            if step >= DAY:
                yield from self._instants(day) if day.toordinal() % step.days == 0 else ()
            else:
                for number in range(DAY // step):
                    yield from self._instants(day + number * step)
            day += DAY

    def _instants(self, wall: datetime) -> Iterator[datetime]:
        """Yield nothing if the reader's clock skips this time."""
        at = wall.replace(tzinfo=self.zone).astimezone(UTC)
        if at.astimezone(self.zone).replace(tzinfo=None) == wall and self.start <= at <= self.end:
            yield at
