"""What the planner answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from planner.promises.ranges import Forecast
from planner.snapshot import Arrival, Shadow, Slot


class Reason(StrEnum):
    """Why a request starts when it does. Stable codes: the API shows them."""

    STARTS_NOW = "starts_now"
    WAITS_FOR_GPUS = "waits_for_gpus"  # others hold them, or are to start before it
    WAITS_FOR_SLICE = "waits_for_slice"  # an earlier GPR of its own slice; a slice holds one at a time
    WAITS_FOR_QUOTA = "waits_for_quota"  # its project or its slice may hold no more at once
    WAITS_FOR_START_TIME = "waits_for_start_time"  # its own earliest start
    WAITS_FOR_NODES = "waits_for_nodes"  # nodes are closed, and nobody knows for how long
    WAITS_FOR_CONTACT = "waits_for_contact"  # its slot is in a cluster that is not heard at present; it keeps the slot
    WAITS_FOR_MAINTENANCE = "waits_for_maintenance"  # nodes are closed, as announced
    WAITS_FOR_ORDER = "waits_for_order"  # nodes that have been ordered, and are to come
    NODES_NOT_BACK = "nodes_not_back"  # not of the plan: its time is over, and its agent has not let all nodes go
    NEVER_FITS = "never_fits"  # no pool could hold it even when empty, or it is above a ceiling
    DOES_NOT_FIT_THEN = "does_not_fit_then"  # a booking whose time is taken


class Cause(StrEnum):
    """Why a promise was moved to a later time."""

    OVERRUN = "overrun"  # a box before it gave its nodes back late
    NODE_FAILURE = "node_failure"  # nodes of its slot went away
    MAINTENANCE = "maintenance"  # nodes of its slot are closed, as announced
    CHANGED = "changed"  # the request itself was edited
    ACCESS = "access"  # its slice may no longer use the nodes of its slot
    SILENCE = "silence"  # the cluster of its slot was not heard when it was due, so it and those behind it start later
    LATE_TICK = "late_tick"  # nobody planned when it was due, so it and those behind it start later
    RECLAIM = "reclaim"  # it would have borrowed GPUs to which another is entitled
    QUOTA = "quota"  # its project or its slice may hold no more then
    ADMIN = "admin"  # an administrator moved it, or another before it
    PRIORITY = "priority"  # by the policy one of a much higher priority may move it
    SUPPLY = "supply"  # the nodes that were to come did not come
    TOPOLOGY = "topology"  # nodes of its slot are no longer in the one rack or NVLink domain that it needs
    FAULT = "fault"  # nothing that may move a promise did: the planner itself is at fault


class EvictionKind(StrEnum):
    """By what right a box ends before its time."""

    RECLAIM = "reclaim"  # it borrowed the GPUs, and whoever is entitled to them wants them
    PRIORITY = "priority"  # it is evictable, and one of higher priority may evict
    DEFRAGMENT = "defrag"  # an administrator moves it, so that whole nodes come free


@dataclass(frozen=True, slots=True)
class Blocker:
    """One box that a request waits for: running, or waiting with an earlier slot.

    `node_count` nodes it holds, or is to; 0: not known, for it was stored before that was. `gpus_per_node` of each; 0: all.
    """

    id: str
    is_running: bool
    until_s: int
    is_overdue: bool = False  # its time is over, and nobody knows when its nodes come back
    node_count: int = 0
    gpus_per_node: int = 0


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why this start, as data. Ids of other tenants stand in it: whoever shows it must redact first (see explain.py).

    `most_node_count`, `most_gpus_per_node`: for NEVER_FITS, the largest request of its kind that could ever start.
    """

    reason: Reason
    blockers: tuple[Blocker, ...] = ()
    ahead_count: int = 0
    most_node_count: int = 0
    most_gpus_per_node: int = 0


@dataclass(frozen=True, slots=True)
class PromiseMove:
    """A promise that could not be kept, moved, and why. `cause_id` is the box, node, maintenance or order behind it."""

    old_s: int
    new_s: int
    cause: Cause
    cause_id: str


@dataclass(frozen=True, slots=True)
class BarePlacement:
    """Holds slot, promise and `lost` of a request that needs no explanation. The fields mean what they mean in a Placement."""

    id: str
    slot: Slot | None
    promise_s: int | None
    moved: PromiseMove | None = None
    lost: tuple[Cause, str] | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """The plan for one request. `slot` is None only when it NEVER_FITS or DOES_NOT_FIT_THEN; then `promise_s` is None or what it was.

    `lost`: why a slot that it had is gone; or, where it has one, why that is at risk: then slot and promise are as they were, even if their
    time has passed.

    `start_s`: when it starts if nobody comes and every box takes its whole length; no later than its slot, which it is to keep.
    `turn_share`, `turn_key`: among equals in priority the least share is considered first, then the least key. `borrows`: at its start it
    would be beyond what its project is guaranteed.
    """

    id: str
    slot: Slot | None
    start_s: int | None
    promise_s: int | None
    starts_now: bool
    explanation: Explanation
    moved: PromiseMove | None = None
    turn_share: int = 0
    turn_key: int = 0
    borrows: bool = False
    lost: tuple[Cause, str] | None = None

    @property
    def is_late(self) -> bool:
        """After its promise, or after what that was until now; a tolerance makes no difference."""
        promised_s = self.moved.old_s if self.moved is not None else self.promise_s
        return promised_s is not None and (self.slot is None or self.slot.start_s > promised_s)


@dataclass(frozen=True, slots=True)
class Remembered:
    """What newcomers add to the snapshot's memory: their work, their shadows if they have one, and the sums as they are now."""

    arrivals: tuple[tuple[str, Arrival], ...]
    shadows: tuple[Shadow, ...]
    promised_s: float
    patient_s: float
    summed_at_s: int


@dataclass(frozen=True, slots=True)
class Victim:
    """A box that is to end early. `frees_s`: when its GPUs are free then. `lost_gpu_s`: what it has done since it began."""

    id: str
    kind: EvictionKind
    frees_s: int
    lost_gpu_s: int


@dataclass(frozen=True, slots=True)
class Eviction:
    """Boxes that end early for one that waits: it starts at `start_s` instead of `instead_s`.

    Of a booking, `instead_s` is the next time for which it would have found room.
    """

    id: str
    victims: tuple[Victim, ...]
    start_s: int
    instead_s: int


class Harm(StrEnum):
    """What a change does to others, if anything."""

    LATE = "late"  # somebody would start later than promised
    EVICTED = "evicted"  # somebody would be evicted


def harm_of(before: Plan, after: Plan) -> Harm | None:
    """Of what makes the one plan the other: to those whom it does to what was not to happen anyway."""
    hurt = hurt_by(before, after)
    return hurt[0] if hurt else None


def hurt_by(before: Plan, after: Plan) -> tuple[Harm, str] | None:
    """The harm with the id of a request: the first that would be late, or for which somebody would be evicted."""
    late = {placement.id: placement for placement in before.placements if placement.is_late}
    for placement in after.placements:
        if placement.is_late and not _was_as_late(placement, late.get(placement.id)):
            return Harm.LATE, placement.id
    evicted = {victim.id for victim in victims_of(before.evictions)}
    for eviction in after.evictions:
        if any(victim.id not in evicted for victim in eviction.victims):
            return Harm.EVICTED, eviction.id
    return None


def _was_as_late(now: Placement, before: Placement | None) -> bool:
    """No slot is later than any."""
    if before is None or before.slot is None:
        return before is not None
    return now.slot is not None and now.slot.start_s <= before.slot.start_s


def victims_of(evictions: Iterable[Eviction]) -> list[Victim]:
    """All boxes that end early for anybody, in order."""
    return [victim for eviction in evictions for victim in eviction.victims]


class Flaw(StrEnum):
    """What is wrong with a slot that the planner gave. Stable codes."""

    SHAPE = "shape"  # other nodes than it asked for, or not as many, or not for as long
    EARLY = "early"  # before it may start
    CROWDED = "crowded"  # beside all others there is no room for it, or more is held than may be
    LATE = "late"  # after its promise, and no cause is recorded that moved it


@dataclass(frozen=True, slots=True)
class Fault:
    """That the planner went wrong with this request (proof.py)."""

    id: str
    flaw: Flaw


@dataclass(frozen=True, slots=True)
class Plan:
    """One placement a request, in the order in which the planner considered them; or a stand, of whom nothing was to be told.

    `remembered`: None when nobody was new. `forecasts`: of those that are new, or have just been edited, and have to wait; their bounds
    are not known yet. The slots of those for whom `evictions` are made rest on them: the two are to be stored together, or not at all.
    `faults`: empty, or the planner is wrong.
    """

    now_s: int
    placements: tuple[Placement, ...]
    remembered: Remembered | None = None
    forecasts: tuple[Forecast, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    others: tuple[BarePlacement, ...] = ()
    faults: tuple[Fault, ...] = ()

    @property
    def all_placements(self) -> tuple[Placement | BarePlacement, ...]:
        """Of all requests."""
        return self.placements + self.others

    @property
    def starts(self) -> tuple[Placement, ...]:
        return tuple(p for p in self.placements if p.starts_now)


@dataclass(frozen=True, slots=True)
class Offer:
    """A start that the planner can give now, in one pool: `start_s` as the queue stands, `promise_s` at the latest.

    `forecast`: what to ask past promises about, its bounds not known yet. `evictions`: what would be ended early for it. `borrows`: as of
    its placement. `supply`: the id of that whose ordered nodes it would stand on.
    """

    pool: str
    cluster: str
    shape: str
    start_s: int
    promise_s: int
    slot: Slot
    explanation: Explanation
    forecast: Forecast
    evictions: tuple[Eviction, ...] = ()
    borrows: bool = False
    supply: str = ""
