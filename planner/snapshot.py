"""What the planner is told: plain, frozen, ordered. The loader fills it, tests write it by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of time `[start_s, end_s)`. `maintenance`: the id of the announcement; empty for a closure that nobody announced.

    `order`: the id of the order whose node is to come at the end of it; `is_late`: it was to come before.
    `unheard`: why nobody knows how it is there (a plan.Cause): its cluster is silent, or EGS itself was away. Slots there are kept.
    """

    start_s: int
    end_s: int
    maintenance: str = ""
    order: str = ""
    is_late: bool = False
    unheard: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """A node that boxes may stand on. `closed` are stretches in which none may: maintenance, or sick until repaired.

    `rack`, `nvlink_domain`: names, unique over all pools; empty where that is not known.
    """

    id: str
    gpu_count: int
    closed: tuple[Window, ...] = ()
    rack: str = ""
    nvlink_domain: str = ""


@dataclass(frozen=True, slots=True)
class Supply:
    """That more nodes of a pool can be had. Ordered now they come `lead_s` from now; only for a start sooner by `gain_s` is any ordered.

    `unordered`: ids of its nodes that do not exist, and that nobody has ordered: they hold nothing until they are.
    """

    id: str
    lead_s: int
    gain_s: int = 0
    unordered: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes that are alike to a request: one cluster, one shape, one node type. `supply`: it can grow."""

    id: str
    cluster: str
    shape: str
    nodes: tuple[Node, ...]
    supply: Supply | None = None


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a waiting request stands in the witness, the one feasible plan that all promises rest on."""

    pool: str
    start_s: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """As if it were of that share and had so much work, in GPU-seconds. The rank says who is first among equals, as ever."""

    share: int
    key: int


class Within(StrEnum):
    """How near together the nodes of a gang must be. Stable codes. They are put as near as can be anyway."""

    ANY = ""
    RACK = "rack"
    NVLINK = "nvlink"


@dataclass(frozen=True, slots=True)
class Request:
    """A GPR that waits.

    `length_s` is the whole box: entry, duration, exit. `gpus_per_node` 0 means all GPUs of each node. `pools` are the ids of the
    pools it may use, best liked first. `rank` orders equals: who was queued first. `promise_s` and `slot` are None when it is new.
    `slice` holds one box at a time; empty: none that it shares with others. `share`: of equals in priority who has the least is first.
    `is_fixed`: booked for `earliest_start_s`; it starts then, or has no place at all. `may_evict`: boxes of lower priority that are
    `evictable` may end for it. `place`: where an administrator put it among those of its priority, instead of where it would be.
    `handicaps`, in seconds by pool: a start there counts as if it were so much later. So a pool that costs extra, or is far from the data,
    is used only where that saves more time than its handicap. `within`: what all of its nodes must be of. `orders`: those of its pools in
    which more nodes may be ordered for it. `promised_at_s`: when it got its promise; 0 while it has none. `lost`: why it has no slot any
    more, where it had one, or why that was at risk by the last plan: a cause (plan.Cause) and the id of what caused it.
    """

    id: str
    slice: str
    project: str
    priority: int
    rank: int
    node_count: int
    gpus_per_node: int
    length_s: int
    pools: tuple[str, ...]
    earliest_start_s: int = 0
    share: int = 0
    promise_s: int | None = None
    slot: Slot | None = None
    is_fixed: bool = False
    may_evict: bool = False
    evictable: bool = True
    place: Place | None = None
    handicaps: tuple[tuple[str, int], ...] = ()
    within: Within = Within.ANY
    orders: tuple[str, ...] = ()
    promised_at_s: int = 0
    lost: tuple[str, str] | None = None

    @property
    def may_order_in(self) -> tuple[str, ...]:
        """A booking is met by what is there."""
        return () if self.is_fixed else self.orders

    def handicap_s(self, pool: str) -> int:
        """A booking, whose time is fixed, has none."""
        return 0 if self.is_fixed else dict(self.handicaps).get(pool, 0)


@dataclass(frozen=True, slots=True)
class Running:
    """A box that holds nodes now. `end_s` is when its GPUs are free again by the books: end and exit included.

    An overrun (`end_s <= now_s`, not yet released) still holds its GPUs; the planner expects them back a moment from now.
    `evictable`: a request that may evict, of higher priority, may end it before its time. `is_open`: its window is open; on the way in or
    out it cannot be ended early. `is_movable`: ended early it would wait again, and it did not book its very time and place.
    `uncounted`: of its nodes those that stand in for another of them that is still there; no quota counts both.
    """

    id: str
    slice: str
    project: str
    priority: int
    pool: str
    nodes: tuple[str, ...]
    gpus_per_node: int
    end_s: int
    started_s: int = 0
    evictable: bool = True
    is_open: bool = True
    is_movable: bool = True
    uncounted: tuple[str, ...] = ()

    @property
    def counted(self) -> list[str]:
        """The nodes that count as its own."""
        return [node for node in self.nodes if node not in self.uncounted]


@dataclass(frozen=True, slots=True)
class Quota:
    """GPUs of one shape for a project or a slice; `owner` is the id of either.

    `guaranteed`: what it is entitled to at any moment; beyond that it borrows what others leave idle. `most`: never more; None: no limit.
    """

    owner: str
    shape: str
    guaranteed: int
    most: int | None = None


class PolicyName(StrEnum):
    """How the queue is worked off. Stable codes."""

    GUARDED = "guarded"  # shortest first, beside everybody's promised slot
    CONSERVATIVE = "conservative"  # each as early as those before it allow


@dataclass(frozen=True, slots=True)
class SlackSettings:
    """How much later than the earliest start a newcomer may be promised, so that shorter ones can go first.

    Shares of its own length and of the work that is expected to overtake it; never more than so many times what two patient queues
    would have promised: one of conservative backfill for small boxes, one of strict turn for those of `big_gpus` and more.
    Where a node failed during the last `reserve_after_s`, a newcomer's promise stands some time after its slot: the time that
    `reserve_failures` nodes are away, spread over all nodes of the pool, but `reserve_most_s` at most.
    Source of form and figures: tuned on replays of real job lists, see docs/queue.md and bench/README.md.
    """

    of_length: float = 0.7
    of_wait: float = 0.65
    most_of_patient: float = 3.0
    most_of_strict: float = 1.5
    big_gpus: int = 8
    budget_share: float = 0.05
    busy_most: float = 0.75
    remembered_s: int = 3 * 86_400
    observed_s: int = 5 * 86_400
    reserve_after_s: int = 30 * 86_400
    reserve_failures: int = 2
    reserve_most_s: int = 900


@dataclass(frozen=True, slots=True)
class Policy:
    """How to choose. `overrun_grace_s`: how far ahead an overdue release is expected, again and again until it comes.

    So an overrun counts as busy until its end plus the first multiple of that which lies in the future: those who wait for it
    are told anew once in that time, not every second.
    `promise_tolerance_s`: a slot that is late by no more is no broken promise, so none is moved for it. Ticks are not exact.
    A box that is evicted has `notice_s` from now on, and has run for `least_run_s` then; `exit_s` later its GPUs are free. The window of
    one that starts is open after `entry_s`. Nobody is evicted, and no promise moved, for a gain of less than `claim_gain_s`. `break_from`:
    from this priority on a newcomer moves promises of lower ones; None: no priority does. `gang_patience`: a gang that has waited for this
    share of the wait that it was promised is moved up into whatever room there is.
    """

    name: PolicyName = PolicyName.GUARDED
    overrun_grace_s: int = 60
    promise_tolerance_s: int = 0
    notice_s: int = 600
    least_run_s: int = 1800
    exit_s: int = 0
    entry_s: int = 0
    claim_gain_s: int = 600
    break_from: int | None = None
    gang_patience: float = 0.3
    slack: SlackSettings = field(default_factory=SlackSettings)


@dataclass(frozen=True, slots=True)
class Shadow:
    """Where a request would stand in two queues that nobody overtakes, as they were when it came: the measure for slack."""

    id: str
    gpus_per_node: int
    patient: Slot
    patient_end_s: int
    strict: Slot
    strict_end_s: int


@dataclass(frozen=True, slots=True)
class Arrival:
    """That requests came, `count` since then, and how much work each brought."""

    at_s: int
    priority: int
    gpu_s: int
    count: int = 1


@dataclass(frozen=True, slots=True)
class Failed:
    """That a node of a cluster failed, the last time at `at_s`; one that fails there is away for about `away_s`."""

    cluster: str
    at_s: int
    away_s: int


@dataclass(frozen=True, slots=True)
class Memory:
    """What is remembered of the past to give newcomers their slack. It shapes promises, never their safety.

    `promised_s`, `patient_s`: sums of promised waits, and of what conservative backfill would have promised, as of `summed_at_s`.
    `ran_s`, `booked_s`: sums of what boxes used and had booked. All sums fade. `failed`: one for each cluster at most.
    """

    shadows: tuple[Shadow, ...] = ()
    arrivals: tuple[Arrival, ...] = ()
    promised_s: float = 0.0
    patient_s: float = 0.0
    summed_at_s: int = 0
    ran_s: float = 0.0
    booked_s: float = 0.0
    failed: tuple[Failed, ...] = ()


@dataclass(frozen=True, slots=True)
class Moved:
    """That an administrator has just moved a request in the order: behind another, or up where `behind` is empty."""

    id: str
    behind: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that the planner may know. `memory` matters only where something new is in the queue.

    `has_freed`: a box has ended before its time since the last plan.

    `moved`: the order is changed already; the slots are to follow, once. `edited`: a request that was promised something, as it was until
    its owner changed it, just now; in the queue it is as it is now.
    """

    now_s: int
    pools: tuple[Pool, ...]
    running: tuple[Running, ...] = ()
    queue: tuple[Request, ...] = ()
    policy: Policy = field(default_factory=Policy)
    memory: Memory = field(default_factory=Memory)
    quotas: tuple[Quota, ...] = ()
    moved: Moved | None = None
    has_freed: bool = False
    edited: Request | None = None
