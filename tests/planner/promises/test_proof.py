"""The planner holds each of its plans against what was asked and promised: what it gets wrong itself is never called anybody's edit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from planner import engine
from planner.board.board import Board
from planner.causes import Cause
from planner.engine import plan
from planner.plan import Flaw, Plan, PlanFault, PromiseMove
from planner.promises.proof import InvalidPlanError
from planner.snapshot import PolicyName, Quota, Request, Snapshot, Window, Within
from simulation.replay import Planner
from tests.planner.build import GUARDED, pool, request, running, waiting

Sabotage = Callable[[Board], None]


def planned(snapshot: Snapshot, sabotage: Sabotage, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Plans by a planner that does this when all is decided."""
    make_evictions = engine.make_evictions

    def wrong(board: Board, *given: Any) -> Any:
        answer = make_evictions(board, *given)
        sabotage(board)
        return answer

    monkeypatch.setattr(engine, "make_evictions", wrong)
    return plan(snapshot)


def put(id_: str, start_s: int, *nodes: str) -> Sabotage:
    def sabotage(board: Board) -> None:
        board.remove_slot(board.queue[id_])
        board.place(board.queue[id_], start_s, board.places(nodes))

    return sabotage


def world(*queue: Request, **changes: Any) -> Snapshot:
    """It has two nodes, which are busy until 100."""
    given: dict[str, Any] = {"pools": (pool(2),), "running": (running("busy", "p0", "p1", end=100),), "policy": GUARDED, "queue": queue}
    return Snapshot(0, **{**given, **changes})


def test_a_plan_that_is_right_has_no_faults() -> None:
    made = plan(world(waiting("a1", 100, "p0"), waiting("a2", 110, "p1"), waiting("a3", 210, "p0", "p1"), request("a4")))

    assert made.faults == ()


def test_a_slot_over_a_box_that_runs_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    made = planned(world(waiting("a1", 100, "p0")), put("a1", 60, "p0"), monkeypatch)

    assert made.faults == (PlanFault("a1", Flaw.CROWDED),)


def test_two_slots_over_each_other_are_both_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    made = planned(world(waiting("a1", 100, "p0"), waiting("a2", 200, "p0")), put("a2", 150, "p0"), monkeypatch)

    assert set(made.faults) == {PlanFault("a1", Flaw.CROWDED), PlanFault("a2", Flaw.CROWDED)}


def test_a_slot_where_a_node_is_closed_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = pool(2, closed={1: (Window(300, 400),)})
    made = planned(world(waiting("a1", 400, "p1"), pools=(closed,)), put("a1", 250, "p1"), monkeypatch)

    assert made.faults == (PlanFault("a1", Flaw.CROWDED),)


def test_two_slots_of_one_slice_at_once_are_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (replace(each, slice="s") for each in (waiting("a1", 100, "p0"), waiting("a2", 200, "p1")))
    made = planned(world(one, two), put("a2", 150, "p1"), monkeypatch)

    assert set(made.faults) == {PlanFault("a1", Flaw.CROWDED), PlanFault("a2", Flaw.CROWDED)}


def test_more_at_once_than_a_quota_allows_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    quota = Quota("x", "shape-p", 0, 8)
    made = planned(world(waiting("a1", 100, "p1"), quotas=(quota,)), put("a1", 50, "p1"), monkeypatch)

    assert made.faults == (PlanFault("a1", Flaw.CROWDED),)


def test_a_start_before_its_time_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    made = planned(world(replace(waiting("a1", 300, "p1"), earliest_start_s=300)), put("a1", 200, "p1"), monkeypatch)

    assert made.faults == (PlanFault("a1", Flaw.EARLY),)


def test_one_node_twice_and_nodes_apart_are_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    gang = waiting("a1", 100, "p0", "p1")
    nodes = tuple(replace(node, rack=rack) for node, rack in zip(pool(3).nodes, "rrs", strict=True))
    racks = replace(pool(3), nodes=nodes)

    twice = planned(world(gang), put("a1", 100, "p1", "p1"), monkeypatch)
    apart = planned(world(replace(gang, within=Within.RACK), pools=(racks,)), put("a1", 100, "p1", "p2"), monkeypatch)

    assert twice.faults == apart.faults == (PlanFault("a1", Flaw.SHAPE),)


def test_a_promise_that_the_planner_breaks_without_a_cause_is_its_fault_and_not_the_owners_edit(monkeypatch: pytest.MonkeyPatch) -> None:
    made = planned(world(waiting("a1", 100, "p0")), put("a1", 500, "p0"), monkeypatch)
    told = [placement.moved for placement in made.placements]

    assert made.faults == (PlanFault("a1", Flaw.LATE),)
    assert told == [PromiseMove(100, 500, Cause.FAULT, "")]


def test_a_promise_that_a_recorded_cause_moved_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def move(board: Board) -> None:
        put("a1", 500, "p0")(board)
        board.queue["a1"].displaced = Cause.ADMIN, "a1"

    assert planned(world(waiting("a1", 100, "p0")), move, monkeypatch).faults == ()


def test_a_box_that_starts_is_looked_at_where_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked at beside all slots: its own was somewhere else."""
    snapshot = world(waiting("a1", 100, "p0"), waiting("a2", 100, "p1"))
    expected = Board.expected

    def wrong(board: Board, *given: Any) -> Any:
        return expected(board, *given) | {"a1": board.slot_at(board.places(["p0"]), 0)}

    monkeypatch.setattr(Board, "expected", wrong)

    assert plan(snapshot).faults == (PlanFault("a1", Flaw.CROWDED),)


@pytest.mark.parametrize("nodes", [["p0"], ["p0", "p1", "p2"]], ids=["too few", "too many"])
def test_a_box_that_starts_on_another_number_of_nodes_is_a_fault(nodes: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its slot, which is right, says nothing for it."""
    snapshot = world(request("a1", count=2), pools=(pool(3),), running=())
    expected = Board.expected

    def wrong(board: Board, *given: Any) -> Any:
        return expected(board, *given) | {"a1": board.slot_at(board.places(nodes), 0)}

    monkeypatch.setattr(Board, "expected", wrong)

    assert plan(snapshot).faults == (PlanFault("a1", Flaw.SHAPE),)


@pytest.mark.parametrize(
    ("start_s", "node", "flaw"),
    [(50, "p0", "a2 crowded"), (900, "p0", "a2 late")],
    ids=["over another", "after its promise"],
)
def test_a_simulation_ends_where_the_planner_is_wrong(start_s: int, node: str, flaw: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = Planner((pool(1),), PolicyName.GUARDED)
    for id_ in ("a1", "a2"):
        scheduler.submit(request(id_), 0)
    scheduler.tick(0)
    monkeypatch.setattr("simulation.replay.bring_forward", put("a2", start_s, node))
    scheduler._has_freed = True

    with pytest.raises(InvalidPlanError, match=flaw):
        scheduler.tick(10)


def test_a_simulation_ends_where_a_box_starts_beyond_the_quota_of_its_second_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = Planner((pool(1), pool(2, id="q")), PolicyName.GUARDED, (Quota("x", "shape-q", 0, 8),))
    scheduler.submit(request("a1", pools=("q",)), 0)
    scheduler.submit(request("a2"), 0)
    scheduler.submit(request("a3", pools=("p", "q")), 0)
    scheduler.tick(0)
    monkeypatch.setattr("simulation.replay.bring_forward", put("a3", 10, "q1"))
    scheduler._has_freed = True

    with pytest.raises(InvalidPlanError, match="a3 crowded"):
        scheduler.tick(10)
