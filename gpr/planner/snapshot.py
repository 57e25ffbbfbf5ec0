"""What the planner is told: plain, frozen, ordered. The loader fills it, tests write it by hand."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of time `[start_s, end_s)`."""

    start_s: int
    end_s: int


@dataclass(frozen=True, slots=True)
class Node:
    """A node that boxes may stand on. `closed` are stretches in which none may: maintenance, or sick until repaired."""

    id: str
    gpu_count: int
    closed: tuple[Window, ...] = ()


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes that are alike to a request: one cluster, one shape, one node type."""

    id: str
    cluster: str
    shape: str
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a waiting request stands in the witness, the one feasible plan that all promises rest on."""

    pool: str
    start_s: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """A GPR that waits.

    `length_s` is the whole box: entry, duration, exit. `gpus_per_node` 0 means all GPUs of each node. `pools` are the ids of the
    pools it may use, best liked first. `rank` orders equals: who was queued first. `promise_s` and `slot` are None when it is new.
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
    promise_s: int | None = None
    slot: Slot | None = None


@dataclass(frozen=True, slots=True)
class Running:
    """A box that holds nodes now. `end_s` is when its GPUs are free again by the books: end and exit included.

    An overrun (`end_s <= now_s`, not yet released) still holds its GPUs; the planner expects them back a moment from now.
    """

    id: str
    slice: str
    project: str
    priority: int
    pool: str
    nodes: tuple[str, ...]
    gpus_per_node: int
    end_s: int


@dataclass(frozen=True, slots=True)
class Policy:
    """How to choose. `overrun_grace_s`: how far ahead an overdue release is expected, again and again until it comes.

    So an overrun counts as busy until its end plus the first multiple of that which lies in the future: those who wait for it
    are told anew once in that time, not every second.
    `promise_tolerance_s`: a slot that is late by no more is no broken promise, so none is moved for it. Ticks are not exact.
    """

    overrun_grace_s: int = 60
    promise_tolerance_s: int = 0
    # An optimization only: False tells that since the slots were made nothing became free earlier than they assumed,
    # so no slot can move up. The plan is the same either way; a property test holds that.
    may_improve: bool = True


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that the planner may know.

    `freed_nodes`, `freed_slices`: with `may_improve`, where something became free earlier than the slots assumed since they were
    made: a box released or given up before the end that it was booked until (or, when overdue, was expected at), a slot withdrawn,
    a request edited to be smaller, a node that opened. None: nobody kept account, so every slot is tried, which costs a fit each.
    """

    now_s: int
    pools: tuple[Pool, ...]
    running: tuple[Running, ...] = ()
    queue: tuple[Request, ...] = ()
    policy: Policy = field(default_factory=Policy)
    freed_nodes: tuple[str, ...] | None = None
    freed_slices: tuple[str, ...] = ()
