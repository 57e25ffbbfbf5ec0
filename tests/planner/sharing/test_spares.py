"""One more node for a box that runs: beside everybody's slots, near the others, and where it leaves most to others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from planner.engine import plan
from planner.plan import Harm, harm_of
from planner.sharing.spares import NoSpareReason, SpareAnswer, SpareRequest, spare_for, with_spare_node
from planner.snapshot import Node, Pool, Quota, Request, Running, Snapshot, Window, Within
from tests.effort import IS_SOAK
from tests.planner.build import GUARDED, pool, running, waiting
from tests.planner.world import World


def ask(snapshot: Snapshot, box: str = "r", leaving: str = "p0", **changes: object) -> SpareAnswer:
    return spare_for(snapshot, replace(SpareRequest(box, leaving, ("p",), 8), **changes))  # type: ignore[arg-type]


def test_a_free_node_until_the_end_is_a_spare() -> None:
    assert ask(Snapshot(1000, (pool(2),), (running("r", "p0", end=2000),))) == SpareAnswer("p1")


@pytest.mark.parametrize(
    ("pools", "changes"),
    [
        (pool(1), {}),
        (pool(2), {"barred": frozenset({"p1"})}),
        (pool(2, closed={1: (Window(1999, 3000),)}), {}),
        (Pool("p", "c", "s", (Node("p0", 8), Node("p1", 4))), {}),
        (pool(2), {"pools": ("q",)}),
    ],
    ids=["there is no other", "it was tried", "it is closed before the end", "it is too small", "it is of another kind"],
)
def test_a_node_that_will_not_do_is_none(pools: Pool, changes: dict[str, Any]) -> None:
    assert ask(Snapshot(1000, (pools,), (running("r", "p0", end=2000),)), **changes) == SpareAnswer(why=NoSpareReason.NONE_FREE)


def test_what_is_promised_before_the_end_is_no_spare_and_what_is_free_until_then_is() -> None:
    boxes = (running("r", "p0", end=2000),)
    assert ask(Snapshot(1000, (pool(2),), boxes, (waiting("a1", 1999, "p1"),))) == SpareAnswer(why=NoSpareReason.PROMISED)
    assert ask(Snapshot(1000, (pool(2),), boxes, (waiting("a1", 2000, "p1"),))) == SpareAnswer("p1")


def test_a_part_of_a_node_is_taken_where_others_have_parts_already() -> None:
    boxes = (running("r", "p0", end=2000, gpus=2), running("s", "p2", end=2000, gpus=3))
    assert ask(Snapshot(1000, (pool(3),), boxes), gpu_count=2) == SpareAnswer("p2")


def test_the_nearest_to_the_others_is_taken_and_what_must_be_near_is() -> None:
    racks = ["r1", "r1", "r2", "r2"]
    nodes = tuple(Node(f"p{i}", 8, (), rack=rack) for i, rack in enumerate(racks))
    snapshot = Snapshot(1000, (Pool("p", "c", "s", nodes),), (running("r", "p0", "p2", end=2000),))
    assert ask(snapshot, leaving="p2") == SpareAnswer("p1")
    assert ask(snapshot, leaving="p0") == SpareAnswer("p3")

    full = replace(snapshot, running=(*snapshot.running, running("s", "p1", end=2000)))
    assert ask(full, leaving="p2") == SpareAnswer("p3")
    assert ask(full, leaving="p2", within=Within.RACK) == SpareAnswer(why=NoSpareReason.NOT_NEAR)


def test_a_box_of_its_projects_ceiling_gets_a_spare_for_both_count_once() -> None:
    box = running("r", "p0", end=2000, project="x")
    quotas = (Quota("x", "shape-p", 8, 8),)
    snapshot = Snapshot(1000, (pool(2),), (box,), (waiting("a1", 2000, "p0"),), quotas=quotas)
    assert ask(snapshot) == SpareAnswer("p1")
    assert harm_of(plan(snapshot), plan(with_spare_node(snapshot, box, "p1"))) is None


@pytest.mark.parametrize(("already_s", "then_s", "harm"), [(0, 100, Harm.LATE), (30, 30, None), (30, 31, Harm.LATE), (30, 20, None)])
def test_who_is_late_already_is_harmed_by_what_makes_him_later(already_s: int, then_s: int, harm: Harm | None) -> None:
    """This holds also within the tolerance, in which nobody's promise moves."""

    def world(late_s: int) -> Snapshot:
        box = running("r", "p0", end=2000 + late_s)
        return Snapshot(
            1000, (pool(1),), (box,), (waiting("a1", 2000 + late_s, "p0", promise=2000),), policy=replace(GUARDED, promise_tolerance_s=60)
        )

    assert harm_of(plan(world(already_s)), plan(world(then_s))) == harm


def test_nobody_is_evicted_for_a_spare() -> None:
    """One that is entitled to the free node would take another's as soon as it is gone."""
    policy = replace(GUARDED, least_run_s=0, notice_s=10, eviction_gain_s=1)
    quotas = (Quota("mine", "shape-p", 8), Quota("theirs", "shape-p", 8))
    boxes = (running("r", "p0", end=90_000, project="mine"), running("s", "p1", end=90_000, project="mine"))
    entitled = replace(waiting("e1", 90_000, "p1", length=50), project="theirs")
    snapshot = Snapshot(1000, (pool(3),), boxes, (entitled,), policy, quotas=quotas)

    assert ask(snapshot) == SpareAnswer(why=NoSpareReason.WOULD_EVICT)
    assert ask(replace(snapshot, queue=())) == SpareAnswer("p2")


def test_a_box_that_is_not_there_or_is_overdue_has_no_spare() -> None:
    assert ask(Snapshot(1000, (pool(2),))) == SpareAnswer(why=NoSpareReason.NONE_FREE)
    assert ask(Snapshot(1000, (pool(2),), (running("r", "p0", end=1000),))) == SpareAnswer(why=NoSpareReason.NONE_FREE)


@pytest.mark.parametrize("seed", range(60 if IS_SOAK else 10))
def test_by_a_slow_count_a_spare_is_free_beside_all_slots_and_where_there_is_none_no_node_is(seed: int) -> None:
    world = World(seed, mishaps=frozenset({"early"}))
    asked = 0
    for _ in range(25):
        world.step()
        snapshot = world.snapshot()
        for box in snapshot.running[:2]:
            if not box.nodes or box.end_s <= snapshot.now_s or any(r.slot is None for r in snapshot.queue):
                continue
            asked += 1
            size = min(node.gpu_count for pool_ in snapshot.pools for node in pool_.nodes if node.id in box.nodes)
            wanted = SpareRequest(box.id, box.nodes[0], (box.pool,), box.gpus_per_node or size)
            answer, free = spare_for(snapshot, wanted), free_nodes(snapshot, box, wanted.gpu_count)
            if answer.node:
                assert answer.node in free
                before = plan(snapshot)
                assert harm_of(before, plan(with_spare_node(snapshot, box, answer.node))) is None
            elif answer.why == NoSpareReason.NONE_FREE:
                assert free == set()
    assert asked


def free_nodes(snapshot: Snapshot, box: Running, least: int) -> set[str]:
    """Second by second: those of its pool with room for one node's share of the box until its end, beside all boxes and slots."""
    found = set()
    for node in next(pool_ for pool_ in snapshot.pools if pool_.id == box.pool).nodes:
        need = box.gpus_per_node or node.gpu_count
        taken = [_taken(snapshot, node, at_s) for at_s in range(snapshot.now_s, box.end_s)]
        if node.id not in box.nodes and node.gpu_count >= least and all(taken_ + need <= node.gpu_count for taken_ in taken):
            found.add(node.id)
    return found


def _taken(snapshot: Snapshot, node: Node, at_s: int) -> int:
    if any(window.start_s <= at_s < window.end_s for window in node.closed):
        return node.gpu_count
    held = sum(_size(other.gpus_per_node, node) for other in snapshot.running if node.id in other.nodes and at_s < _until(other, snapshot))
    return held + sum(_size(other.gpus_per_node, node) for other in snapshot.queue if _stands(other, node, at_s))


def _size(gpus: int, node: Node) -> int:
    return gpus or node.gpu_count


def _until(box: Running, snapshot: Snapshot) -> int:
    """An overdue one is expected back within its grace."""
    grace_s = max(snapshot.policy.overrun_grace_s, 1)
    late_s = snapshot.now_s - box.end_s
    return box.end_s if late_s < 0 else box.end_s + grace_s * (late_s // grace_s + 1)


def _stands(other: Request, node: Node, at_s: int) -> bool:
    slot = other.slot
    return slot is not None and node.id in slot.nodes and slot.start_s <= at_s < slot.start_s + other.length_s
