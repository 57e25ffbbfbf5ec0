"""Defines plain values for templates/components/, whose README shows examples."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from core.pages.strip import Strip


@dataclass(frozen=True, slots=True)
class Fact:
    label: str
    value: str
    note: str = ""
    url: str = ""
    tone: str = ""  # good, late or bad
    is_wide: bool = False
    at: datetime | None = None  # the note ends with how far away it is


@dataclass(frozen=True, slots=True)
class Tab:
    label: str
    url: str
    is_current: bool = False
    count: int | None = None
    key: str = ""  # the keyboard shortcut
    key_says: str = ""  # its name in the list of shortcuts


@dataclass(frozen=True, slots=True)
class Pair:
    """An empty value is shown as "none"."""

    term: str
    value: str
    note: str = ""
    is_code: bool = False


@dataclass(frozen=True, slots=True)
class GpuTile:
    index: int
    value: str
    small: str = ""
    heat: str = "none"  # 0 to 8, or none
    title: str = ""
    css: str = ""  # is-held with ws-hN, is-sick


@dataclass(frozen=True, slots=True)
class NodeRow:
    name: str
    state: str  # free, held, draining, set-aside, silent
    gpus: tuple[GpuTile, ...]
    place: str = ""
    note: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True)
class MeasureRow:
    state: str  # as in StepRow
    name: str
    where: str  # node or GPU, or their number
    measured: str  # "31 to 43 °C"
    bound: str  # "at most 87 °C"
    text: str


@dataclass(frozen=True, slots=True)
class StepRow:
    id: str  # the element's id, so that it stays open when HTMX swaps it
    state: str  # waiting, running, passed, warned, failed, skipped
    name: str
    note: str = ""
    figure: str = ""  # "3 of 4, 1 failed"
    took: str = ""
    log: str = ""
    is_open: bool = False
    measures: tuple[MeasureRow, ...] = ()


@dataclass(frozen=True, slots=True)
class EventRow:
    """Without `state`, its icon shows the severity: info, warning or error."""

    at: datetime
    text: str
    severity: str = "info"
    state: str = ""


@dataclass(frozen=True, slots=True)
class OfferRow:
    value: str
    cluster: str
    shape: str
    start_at: datetime
    strip: Strip
    why: str
    supply: str = ""
    supply_icon: str = ""
    promised_at: datetime | None = None
    is_checked: bool = False


@dataclass(frozen=True, slots=True)
class SwapRow:
    """Describes a change that would start sooner."""

    change: str
    instead_of: str
    start_at: datetime
    strip: Strip
    why: str
    field_id: str
    field_value: str


@dataclass(frozen=True, slots=True)
class ListFoot:
    first_row: int = 0
    last_row: int = 0
    about_total: int = 0
    previous_url: str = ""
    next_url: str = ""
    csv_url: str = ""
    new_count: int = 0
    new_url: str = ""


@dataclass(frozen=True, slots=True)
class Meter:
    """Shows GPUs of a quota, or hours of a budget. `limit_count` None: no limit."""

    held_count: int
    more_count: int = 0
    guaranteed_count: int = 0
    limit_count: int | None = None
    unit: str = "GPUs"
    held_words: str = "now"
    more_words: str = "with this request"

    @property
    def after_count(self) -> int:
        return self.held_count + self.more_count

    @property
    def borrowed_count(self) -> int:
        return max(self.held_count - self.guaranteed_count, 0)

    @property
    def is_over(self) -> bool:
        return self.limit_count is not None and self.after_count > self.limit_count

    @property
    def held_width(self) -> str:
        return self._share(self.held_count)

    @property
    def after_width(self) -> str:
        return self._share(self.after_count)

    @property
    def guaranteed_x(self) -> str:
        return self._share(self.guaranteed_count) if self.guaranteed_count else ""

    @property
    def spoken(self) -> str:
        limit = "" if self.limit_count is None else f" of {self.limit_count}"
        return f"{self.after_count}{limit} {self.unit}{f' {self.more_words}' if self.more_count else ''}"

    def _share(self, count: int) -> str:
        whole = max(self.after_count, self.guaranteed_count, self.limit_count or 0, 1)
        return f"{count / whole * 100:.2f}%"
