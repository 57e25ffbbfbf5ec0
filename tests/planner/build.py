"""Short ways to write a snapshot, and to store a plan and what is remembered as the allocator does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from planner.engine import bring_forward, plan
from planner.plan import Placement, Plan, PromiseMove
from planner.promises.repair import board_of
from planner.promises.slack import ENDS_FADING
from planner.snapshot import Memory, Node, Place, PlanPolicy, PolicyName, Pool, Request, Running, Slot, Snapshot, Window

GUARDED = PlanPolicy(name=PolicyName.GUARDED)
CONSERVATIVE = PlanPolicy(name=PolicyName.CONSERVATIVE)
# For statements that hold for both.
EITHER = pytest.mark.parametrize("policy", [GUARDED, CONSERVATIVE], ids=["guarded", "conservative"])
# Promises so far were much better than conservative backfill's would have been: all of the slack by length is granted.
GENEROUS = Memory(patient_s=1e9)


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
    share: int = 0,
    promise: int | None = None,
    slot: Slot | None = None,
    project: str = "x",
    may_evict: bool = False,
    evictable: bool = True,
    place: Place | None = None,
) -> Request:
    """Makes a request that is alone in its slice. The digits of its name rank it unless told otherwise."""
    digits = "".join(filter(str.isdigit, id))
    if rank is None:
        rank = int(digits) if digits else 0
    own = f"slice of {id}" if slice is None else slice
    made = Request(id, own, project, priority, rank, count, gpus, length, pools, earliest, share, promise_s=promise, slot=slot)
    return replace(made, may_evict=may_evict, evictable=evictable, place=place)


def waiting(id: str, start: int, *nodes: str, promise: int | None = None, gpus: int = 0, length: int = 100) -> Request:
    """Makes one with a stored slot, which is its promise unless told."""
    return request(id, count=len(nodes), gpus=gpus, length=length, promise=start if promise is None else promise, slot=stand(start, *nodes))


def running(
    id: str,
    *nodes: str,
    end: int,
    gpus: int = 0,
    slice: str | None = None,
    pool: str = "p",
    project: str = "x",
    priority: int = 101,
    since: int = 0,
    evictable: bool = True,
    is_open: bool = True,
) -> Running:
    own = slice or f"slice of {id}"
    return Running(id, own, project, priority, pool, nodes, gpus, end, since, evictable, is_open)


def stand(start: int, *nodes: str, pool: str = "p") -> Slot:
    return Slot(pool, start, nodes)


def placements(made: Plan) -> dict[str, Placement]:
    assert made.faults == ()
    return {placement.id: placement for placement in made.placements}


def starts(made: Plan) -> dict[str, int | None]:
    """Returns when each is expected to start."""
    return {id_: placement.start_s for id_, placement in placements(made).items()}


def slots(made: Plan) -> dict[str, int | None]:
    """Returns when each starts at the latest."""
    return {id_: placement.slot.start_s if placement.slot else None for id_, placement in placements(made).items()}


def moves(snapshot: Snapshot) -> dict[str, PromiseMove]:
    return {id_: placement.moved for id_, placement in placements(plan(snapshot)).items() if placement.moved}


def stored(snapshot: Snapshot, made: Plan) -> tuple[Request, ...]:
    """The queue as the allocator keeps it after the plan, those that start now included."""
    by_id = placements(made)
    return tuple(
        replace(
            r,
            slot=by_id[r.id].slot,
            promise_s=by_id[r.id].promise_s,
            lost=by_id[r.id].lost,
            promised_at_s=snapshot.now_s if r.promise_s is None else r.promised_at_s,
        )
        for r in snapshot.queue
    )


def settled(snapshot: Snapshot) -> Snapshot:
    """The snapshot with all slots stored: what started runs."""
    made = plan(snapshot)
    going = {placement.id for placement in made.starts}
    queue = stored(snapshot, made)
    begun = tuple(run(r) for r in queue if r.id in going)
    left = tuple(r for r in queue if r.id not in going)
    return replace(snapshot, running=snapshot.running + begun, queue=left, memory=remembered(snapshot, made))


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
        slot.start_s,
        started.evictable,
    )


def remembered(snapshot: Snapshot, made: Plan) -> Memory:
    """The snapshot's memory with what the plan adds. Where nobody waited before, older shadows are over."""
    new = made.remembered
    if new is None:
        return snapshot.memory
    return replace(
        snapshot.memory,
        shadows=(snapshot.memory.shadows if _waits(snapshot) else ()) + new.shadows,
        arrivals=snapshot.memory.arrivals + tuple(arrival for _, arrival in new.arrivals),
        promised_s=new.promised_s,
        patient_s=new.patient_s,
        summed_at_s=new.summed_at_s,
    )


def _waits(snapshot: Snapshot) -> bool:
    """Does anybody wait as newcomers find it? Not a gang that was moved up to now."""
    board, _ = board_of(snapshot)
    if snapshot.has_freed and snapshot.policy.name == PolicyName.GUARDED:
        bring_forward(board)
    return not board.nobody_waits


def ended(memory: Memory, id_: str, *, now_s: int, ran_s: int, booked_s: int) -> Memory:
    """A box has run, shorter than it booked or not."""
    all_ran_s, all_booked_s = memory.ran_s * ENDS_FADING + ran_s, memory.booked_s * ENDS_FADING + booked_s
    return replace(cut(memory, id_, now_s=now_s, ran_s=ran_s), ran_s=all_ran_s, booked_s=all_booked_s)


def cut(memory: Memory, id_: str, *, now_s: int, ran_s: int) -> Memory:
    """A box used less than it booked: in the queues that nobody overtakes it would have, too."""

    def free_s(start_s: int, end_s: int) -> int:
        return min(end_s, max(now_s, start_s + ran_s))

    shadows = tuple(
        replace(
            s,
            patient_end_s=free_s(s.patient.start_s, s.patient_end_s),
            strict_end_s=free_s(s.strict.start_s, s.strict_end_s),
        )
        if s.id == id_
        else s
        for s in memory.shadows
    )
    return replace(memory, shadows=shadows)
