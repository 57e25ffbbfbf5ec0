"""Defines the planner's input: plain, frozen, ordered."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Window:
    """It is `[start_s, end_s)`."""

    start_s: int
    end_s: int
    maintenance: str = ""  # id of the announcement, if any
    order: str = ""  # id of the order whose node arrives at the end
    is_late: bool = False  # the ordered node should have arrived earlier
    unheard: str = ""  # why the state of the nodes is unknown (a plan.Cause): a silent cluster, or EGS was away. Slots there are kept


@dataclass(frozen=True, slots=True)
class Node:
    id: str
    gpu_count: int
    closed: tuple[Window, ...] = ()  # when no box may be there: maintenance, or sick until repaired
    rack: str = ""  # unique over all pools; empty if unknown
    nvlink_domain: str = ""  # likewise


@dataclass(frozen=True, slots=True)
class Supply:
    id: str
    lead_s: int  # an ordered node arrives after this
    gain_s: int = 0  # nodes are ordered only for a start that is sooner by this
    unordered: frozenset[str] = frozenset()  # ids of nodes that do not exist and are not ordered


@dataclass(frozen=True, slots=True)
class Pool:
    """Its nodes are alike to a request: one cluster, shape and node type."""

    id: str
    cluster: str
    shape: str
    nodes: tuple[Node, ...]
    supply: Supply | None = None  # set if it can grow


@dataclass(frozen=True, slots=True)
class Slot:
    """It is the place of a waiting request in the stored plan, on which promises rest."""

    pool: str
    start_s: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """An administrator sets it: the request has this place as if it had this share and work."""

    share: int
    key: int  # work in GPU-seconds


class Within(StrEnum):
    ANY = ""
    RACK = "rack"
    NVLINK = "nvlink"


@dataclass(frozen=True, slots=True)
class Request:
    """`promise_s` and `slot` are None when it is new."""

    id: str
    slice: str  # holds one box at a time; empty: shares none
    project: str
    priority: int
    rank: int  # orders equals: the first in queue has the least
    node_count: int
    gpus_per_node: int  # 0: all of each node
    length_s: int  # the whole box: entry, duration, exit
    pools: tuple[str, ...]  # ids, preferred first
    earliest_start_s: int = 0
    share: int = 0  # among equals in priority the least is first
    promise_s: int | None = None
    slot: Slot | None = None
    is_fixed: bool = False  # booked: starts at `earliest_start_s` or has no slot
    may_evict: bool = False  # boxes of lower priority that are `evictable` may end for it
    evictable: bool = True
    place: Place | None = None  # set by an administrator
    # (pool, seconds): a start there counts as this much later, so the pool is used only if it saves more time than that
    handicaps: tuple[tuple[str, int], ...] = ()
    within: Within = Within.ANY  # for all of its nodes
    orders: tuple[str, ...] = ()  # ids of pools in which nodes may be ordered for it
    promised_at_s: int = 0  # 0: not promised yet
    lost: tuple[str, str] | None = None  # why its slot is gone, or was at risk in the last plan: (plan.Cause, id of what caused it)
    after: str = ""  # its predecessor, a request or a box: it starts when that has ended. One that is neither has no place yet

    @property
    def may_order_in(self) -> tuple[str, ...]:
        return () if self.is_fixed else self.orders

    def handicap_s(self, pool: str) -> int:
        """A booking has none, since its time is fixed."""
        return 0 if self.is_fixed else dict(self.handicaps).get(pool, 0)


@dataclass(frozen=True, slots=True)
class Running:
    """An overdue box (`end_s <= now_s`) still holds its GPUs."""

    id: str
    slice: str
    project: str
    priority: int
    pool: str
    nodes: tuple[str, ...]
    gpus_per_node: int
    end_s: int  # when its GPUs should be free, exit included
    started_s: int = 0
    evictable: bool = True  # by a request of higher priority that may evict
    is_open: bool = True  # not in entry or exit, where it cannot be ended early
    is_movable: bool = True  # if ended early it would wait again, and it did not book its time and place
    uncounted: tuple[str, ...] = ()  # stand-ins for nodes of the box that still exist; quotas do not count both

    @property
    def counted(self) -> tuple[str, ...]:
        return tuple(node for node in self.nodes if node not in self.uncounted) if self.uncounted else self.nodes


@dataclass(frozen=True, slots=True)
class Quota:
    owner: str  # id of the project or slice
    shape: str
    guaranteed: int  # beyond this it borrows what others leave idle
    most: int | None = None  # the limit; None: no limit


class PolicyName(StrEnum):
    GUARDED = "guarded"  # shortest first, beside everybody's promised slot
    CONSERVATIVE = "conservative"  # each as early as those before it allow


@dataclass(frozen=True, slots=True)
class SlackSettings:
    """They say how much later than the earliest start a newcomer may be promised.

    Source of form and figures: tuned on replays of real job lists, see docs/queue.md and bench/README.md.
    """

    of_length: float = 0.7  # share of its own length
    of_wait: float = 0.65  # share of the work that is expected to overtake it
    most_of_patient: float = 3.0  # the most, relative to the promise of conservative backfill
    most_of_strict: float = 1.5  # the most for big requests, relative to the promise of strict order
    big_gpus: int = 8  # a request is big from here on
    budget_share: float = 0.05
    busy_most: float = 0.75
    remembered_s: int = 3 * 86_400
    observed_s: int = 5 * 86_400
    reserve_after_s: int = 30 * 86_400  # a node failure counts for this long
    reserve_failures: int = 2  # a promise is later by the time that this many nodes are away, spread over the pool
    reserve_most_s: int = 900  # at most


@dataclass(frozen=True, slots=True)
class PlanPolicy:
    """An overdue box counts as busy until the next multiple of `overrun_grace_s` after its end."""

    name: PolicyName = PolicyName.GUARDED
    overrun_grace_s: int = 60
    promise_tolerance_s: int = 0  # a slot that is late by no more breaks no promise, as ticks are not exact
    notice_s: int = 600  # from now until an eviction
    least_run_s: int = 1800  # the least time that an evicted box has run by then
    exit_s: int = 0  # from its end until its GPUs are free
    entry_s: int = 0  # from the start of a box until its window opens
    eviction_gain_s: int = 600  # the least gain for an eviction or for moving a promise
    break_from: int | None = None  # newcomers of this priority move promises of lower ones; None: none do
    gang_patience: float = 0.3  # a gang that has waited for this share of its promised wait moves up into any room
    slack: SlackSettings = field(default_factory=SlackSettings)


@dataclass(frozen=True, slots=True)
class Shadow:
    """It is the start of a request in two queues without overtaking, as of its arrival."""

    id: str
    gpus_per_node: int
    patient: Slot
    patient_end_s: int
    strict: Slot
    strict_end_s: int


@dataclass(frozen=True, slots=True)
class Arrival:
    at_s: int
    priority: int
    gpu_s: int
    more_gpu_s: int = 0  # of others of its priority and size class, which came after it


@dataclass(frozen=True, slots=True)
class Failed:
    cluster: str
    at_s: int  # the last time
    away_s: int  # about how long a failed node is away there


@dataclass(frozen=True, slots=True)
class Memory:
    """Sums over past requests, from which the slack of newcomers follows. All sums fade with time."""

    shadows: tuple[Shadow, ...] = ()
    arrivals: tuple[Arrival, ...] = ()
    promised_s: float = 0.0  # sum of promised waits
    patient_s: float = 0.0  # sum of the waits that conservative backfill would have promised
    summed_at_s: int = 0
    ran_s: float = 0.0  # sum of what boxes used
    booked_s: float = 0.0  # sum of what boxes had booked
    failed: tuple[Failed, ...] = ()  # one per cluster at most


@dataclass(frozen=True, slots=True)
class Moved:
    id: str
    behind: str = ""  # empty: moved up


@dataclass(frozen=True, slots=True)
class Snapshot:
    now_s: int
    pools: tuple[Pool, ...]
    running: tuple[Running, ...] = ()
    queue: tuple[Request, ...] = ()
    policy: PlanPolicy = field(default_factory=PlanPolicy)
    memory: Memory = field(default_factory=Memory)  # matters only if the queue has newcomers
    quotas: tuple[Quota, ...] = ()
    moved: Moved | None = None  # the order has changed; the slots follow once
    has_freed: bool = False  # a box has ended early since the last plan
    edited: Request | None = None  # a request that its owner has just changed, as it was before
