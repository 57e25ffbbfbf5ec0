"""Defines the planner's output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from planner.causes import Cause, PlannedEviction, victims_of
from planner.promises.ranges import WaitForecast
from planner.snapshot import Arrival, Shadow, Slot

if TYPE_CHECKING:
    from planner.basis import Basis  # it needs the compiler, and processes that only read plans do not


class Reason(StrEnum):
    """The API shows these codes."""

    STARTS_NOW = "starts_now"
    WAITS_FOR_GPUS = "waits_for_gpus"  # others hold them, or are to start before it
    WAITS_FOR_SLICE = "waits_for_slice"  # an earlier GPR of its own slice; a slice holds one at a time
    WAITS_FOR_QUOTA = "waits_for_quota"  # its project or its slice may hold no more at once
    WAITS_FOR_START_TIME = "waits_for_start_time"  # its own earliest start
    WAITS_FOR_PREDECESSOR = "waits_for_predecessor"  # the GPR that it starts after has not ended
    PREDECESSOR_HAS_NO_PLACE = "predecessor_has_no_place"  # that GPR waits for approval, or can never start
    WAITS_FOR_NODES = "waits_for_nodes"  # nodes are closed for an unknown time
    WAITS_FOR_CONTACT = "waits_for_contact"  # the cluster of its slot is silent; it keeps the slot
    WAITS_FOR_MAINTENANCE = "waits_for_maintenance"  # announced
    WAITS_FOR_ORDER = "waits_for_order"  # ordered nodes have not arrived
    NODES_NOT_BACK = "nodes_not_back"  # not set by the planner: its time is over, but its agent holds nodes
    NEVER_FITS = "never_fits"  # no pool could hold it even when empty, or a quota forbids it
    DOES_NOT_FIT_THEN = "does_not_fit_then"  # a booking whose time is taken


@dataclass(frozen=True, slots=True)
class Blocker:
    id: str
    is_running: bool
    until_s: int
    is_overdue: bool = False  # its time is over, and the release of its nodes is unknown
    node_count: int = 0  # 0: not known, stored by an old version
    gpus_per_node: int = 0  # 0: all


@dataclass(frozen=True, slots=True)
class Explanation:
    """It contains ids of other tenants: redact it before showing (explain.py)."""

    reason: Reason
    blockers: tuple[Blocker, ...] = ()
    ahead_count: int = 0  # how many start before it
    most_node_count: int = 0  # for NEVER_FITS: the largest request of its kind that could start
    most_gpus_per_node: int = 0


@dataclass(frozen=True, slots=True)
class PromiseMove:
    old_s: int
    new_s: int
    cause: Cause
    cause_id: str  # the box, node, maintenance or order that caused it


@dataclass(frozen=True, slots=True)
class BarePlacement:
    id: str
    slot: Slot | None
    promise_s: int | None
    moved: PromiseMove | None = None
    lost: tuple[Cause, str] | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """`slot` is None only for NEVER_FITS, DOES_NOT_FIT_THEN and PREDECESSOR_HAS_NO_PLACE."""

    id: str
    slot: Slot | None
    start_s: int | None  # if no more requests come and every box takes its whole length; no later than the slot
    promise_s: int | None  # None, or the old one, if it has no slot
    starts_now: bool
    explanation: Explanation
    moved: PromiseMove | None = None
    turn_share: int = 0  # among equals in priority the least share is first, then the least key
    turn_key: int = 0
    borrows: bool = False  # at its start it would exceed what its project is guaranteed
    # why its slot is gone; or, if it has one, why it is at risk: slot and promise then stay, even if their time has passed
    lost: tuple[Cause, str] | None = None

    @property
    def is_late(self) -> bool:
        promised_s = self.moved.old_s if self.moved is not None else self.promise_s
        return promised_s is not None and (self.slot is None or self.slot.start_s > promised_s)


@dataclass(frozen=True, slots=True)
class Remembered:
    arrivals: tuple[tuple[str, Arrival], ...]
    shadows: tuple[Shadow, ...]
    promised_s: float  # this and `patient_s`: the sums of `Memory` now
    patient_s: float
    summed_at_s: int


class Harm(StrEnum):
    LATE = "late"  # somebody would start later than promised
    EVICTED = "evicted"  # somebody would be evicted


def harm_of(before: Plan, after: Plan) -> Harm | None:
    return next((harm for harm, _ in harms_of(before, after)), None)


def harms_of(before: Plan, after: Plan) -> Iterator[tuple[Harm, str]]:
    """Yields each harm with the id of the request that is late or evicts."""
    late = {placement.id: placement for placement in before.placements if placement.is_late}
    for placement in after.placements:
        if placement.is_late and not _was_as_late(placement, late.get(placement.id)):
            yield Harm.LATE, placement.id
    evicted = {victim.id for victim in victims_of(before.evictions)}
    for eviction in after.evictions:
        if any(victim.id not in evicted for victim in eviction.victims):
            yield Harm.EVICTED, eviction.id


def _was_as_late(now: Placement, before: Placement | None) -> bool:
    if before is None or before.slot is None:
        return before is not None
    return now.slot is not None and now.slot.start_s <= before.slot.start_s


class Flaw(StrEnum):
    SHAPE = "shape"  # the wrong nodes, number of nodes or length
    EARLY = "early"  # before it may start
    CROWDED = "crowded"  # no room beside all others, or above a limit
    LATE = "late"  # after its promise, without a recorded cause


@dataclass(frozen=True, slots=True)
class PlanFault:
    id: str
    flaw: Flaw


@dataclass(frozen=True, slots=True)
class Plan:
    """Store `evictions` together with the slots, or neither."""

    now_s: int
    placements: tuple[Placement, ...]  # in order of turn
    remembered: Remembered | None = None  # None without newcomers
    forecasts: tuple[WaitForecast, ...] = ()  # for new or edited requests that wait; without bounds yet
    evictions: tuple[PlannedEviction, ...] = ()
    others: tuple[BarePlacement, ...] = ()  # requests without an explanation that are not as stored; all, if nodes can be ordered
    faults: tuple[PlanFault, ...] = ()  # empty unless the planner is wrong
    basis: Basis | None = field(default=None, compare=False, repr=False)  # None: the next plan explains all

    @property
    def all_placements(self) -> tuple[Placement | BarePlacement, ...]:
        return self.placements + self.others

    @property
    def starts(self) -> tuple[Placement, ...]:
        return tuple(p for p in self.placements if p.starts_now)


@dataclass(frozen=True, slots=True)
class Offer:
    pool: str
    cluster: str
    shape: str
    start_s: int  # as the queue stands
    promise_s: int  # the latest
    slot: Slot
    explain: Callable[[], Explanation] = field(compare=False, repr=False)  # takes a pass over the queue, which few need
    forecast: WaitForecast  # without bounds yet
    evictions: tuple[PlannedEviction, ...] = ()  # what would end early for it
    borrows: bool = False  # see `Placement`
    supply: str = ""  # the id of the supply whose ordered nodes it would use
