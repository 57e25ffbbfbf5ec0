"""Short ways to write a snapshot, and to store a plan as the allocator does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gpr.planner.engine import plan
from gpr.planner.plan import Placement, Plan
from gpr.planner.snapshot import Node, Policy, Pool, Request, Running, Slot, Snapshot, Window

TRUSTING = Policy(may_improve=False)


def pool(count: int = 1, gpus: int = 8, *, id: str = "p", closed: Mapping[int, tuple[Window, ...]] | None = None) -> Pool:
    """Nodes are called p0, p1, ..."""
    nodes = tuple(Node(f"{id}{i}", gpus, (closed or {}).get(i, ())) for i in range(count))
    return Pool(id, f"cluster-{id}", f"shape-{id}", nodes)


def request(
    id: str,
    *,
    length: int = 100,
    count: int = 1,
    gpus: int = 0,
    priority: int = 101,
    rank: int | None = None,
    slice: str | None = None,
    pools: tuple[str, ...] = ("p",),
    earliest: int = 0,
    promise: int | None = None,
    slot: Slot | None = None,
) -> Request:
    """Alone in its slice; ranked by its name's digits unless told."""
    digits = "".join(filter(str.isdigit, id))
    if rank is None:
        rank = int(digits) if digits else 0
    return Request(id, slice or f"slice of {id}", "x", priority, rank, count, gpus, length, pools, earliest, promise, slot)


def running(id: str, *nodes: str, end: int, gpus: int = 0, slice: str | None = None, pool: str = "p") -> Running:
    return Running(id, slice or f"slice of {id}", "x", 101, pool, nodes, gpus, end)


def stand(start: int, *nodes: str, pool: str = "p") -> Slot:
    return Slot(pool, start, nodes)


def placements(made: Plan) -> dict[str, Placement]:
    return {placement.id: placement for placement in made.placements}


def starts(made: Plan) -> dict[str, int | None]:
    return {placement.id: placement.slot.start_s if placement.slot else None for placement in made.placements}


def stored(snapshot: Snapshot, made: Plan) -> tuple[Request, ...]:
    """The queue as the allocator keeps it after the plan, those that start now included."""
    by_id = placements(made)
    return tuple(replace(r, slot=by_id[r.id].slot, promise_s=by_id[r.id].promise_s) for r in snapshot.queue)


def settled(snapshot: Snapshot) -> Snapshot:
    """The snapshot with all slots stored: what started runs."""
    made = plan(snapshot)
    going = {placement.id for placement in made.starts}
    queue = stored(snapshot, made)
    begun = tuple(run(r) for r in queue if r.id in going)
    waiting = tuple(r for r in queue if r.id not in going)
    return replace(snapshot, running=snapshot.running + begun, queue=waiting, freed_nodes=None)


def run(started: Request) -> Running:
    assert started.slot is not None
    slot = started.slot
    return Running(
        started.id,
        started.slice,
        started.project,
        started.priority,
        slot.pool,
        slot.nodes,
        started.gpus_per_node,
        slot.start_s + started.length_s,
    )
