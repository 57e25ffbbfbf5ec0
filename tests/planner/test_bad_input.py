"""Odd snapshots: whatever is in them, there is a plan, and one request's trouble is not another's."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from planner.engine import plan
from planner.feasibility import largest_that_fits
from planner.offers import offers
from planner.plan import Reason
from planner.snapshot import Memory, PlanPolicy, Request, Running, Shadow, Slot, Snapshot, Window
from tests.effort import IS_SOAK, examples
from tests.planner.build import EITHER, GUARDED, moves, placements, pool, request, running, settled, slots, stand, starts, stored, waiting
from tests.planner.draw import snapshots
from tests.planner.oracle import problems

YEAR_S = 365 * 86_400


@EITHER
def test_an_empty_snapshot_has_an_empty_plan(policy: PlanPolicy) -> None:
    assert plan(Snapshot(1000, (), policy=policy)).placements == ()


NEVER = (  # of three nodes of eight GPUs
    request("x", gpus=9),
    request("x", count=4),
    request("x", count=0),
    request("x", count=-1),
    request("x", gpus=-1),
    request("x", pools=()),
    request("x", pools=("unknown",)),
    request("x", pools=("none",)),
    request("x", pools=("zero",)),
    request("x", count=10**9),
    request("x", gpus=1 << 62),
    request("x", gpus=1 << 70),
    request("x", count=1 << 70),
)


@EITHER
@pytest.mark.parametrize("never", NEVER)
def test_what_can_never_start_is_said_so_and_stops_nobody(never: Request, policy: PlanPolicy) -> None:
    pools = (pool(3), pool(0, id="none"), pool(2, 0, id="zero"))
    queue = (request("a1"), replace(never, priority=900), request("b2", count=3))
    without = Snapshot(1000, pools, queue=(queue[0], queue[2]), policy=policy)

    made = plan(replace(without, queue=queue))

    told = placements(made)["x"]
    assert (told.slot, told.start_s, told.promise_s, told.starts_now) == (None, None, None, False)
    assert placements(made)["x"].explanation.reason is Reason.NEVER_FITS
    assert {id_: s for id_, s in starts(made).items() if id_ != "x"} == starts(plan(without)) == {"a1": 1000, "b2": 1100}
    assert offers(without, never) == ()


@examples(100)
@given(snapshots(), st.sampled_from(NEVER))
def test_one_that_never_fits_changes_no_plan(snapshot: Snapshot, never: Request) -> None:
    assume(not largest_that_fits(snapshot.pools, never).fits)
    made = plan(replace(snapshot, queue=(*snapshot.queue, never)))

    others = {id_: placement for id_, placement in placements(made).items() if id_ != "x"}
    assert others == placements(plan(snapshot))


@EITHER
@pytest.mark.parametrize("length_s", [0, -5, 1 << 62, 1 << 70])
def test_a_length_that_makes_no_sense_is_one_and_stops_nobody_before_it(length_s: int, policy: PlanPolicy) -> None:
    queue = (request("a1", priority=900), request("x", length=length_s, rank=9), request("b2", pools=("q",)))

    made = plan(Snapshot(1000, (pool(1), pool(1, id="q")), queue=queue, policy=policy))

    assert starts(made) == {"a1": 1000, "x": 1100, "b2": 1000}


@EITHER
def test_requests_for_years_wait_for_years(policy: PlanPolicy) -> None:
    queue = tuple(request(f"r{i}", length=100 * YEAR_S) for i in range(40))

    made = plan(Snapshot(1_800_000_000, (pool(1),), queue=queue, policy=policy))

    assert slots(made) == {f"r{i}": 1_800_000_000 + 100 * YEAR_S * i for i in range(40)}
    assert problems_of_one_node(slots(made), 100 * YEAR_S) == []


def problems_of_one_node(slots_s: dict[str, int | None], length_s: int) -> list[int]:
    ordered = sorted(slot_s for slot_s in slots_s.values() if slot_s is not None)
    return [b for a, b in pairwise(ordered) if b < a + length_s]


@EITHER
@pytest.mark.parametrize("end_s", [1 << 40, 1 << 62, 1 << 70, 10**30])
def test_a_node_that_is_closed_for_ever_is_waited_for_and_not_called_impossible(end_s: int, policy: PlanPolicy) -> None:
    closed = {0: (Window(0, end_s),)}

    made = plan(Snapshot(1000, (pool(2, closed=closed),), queue=(request("a1", count=2), request("b2")), policy=policy))

    assert placements(made)["a1"].slot is not None
    assert placements(made)["a1"].explanation.reason is Reason.WAITS_FOR_NODES
    assert starts(made)["b2"] == 1000


@EITHER
def test_a_box_that_never_ends_is_waited_for(policy: PlanPolicy) -> None:
    made = plan(Snapshot(1000, (pool(1),), (running("r", "p0", end=1 << 70),), (request("a1"),), policy=policy))

    assert (starts(made)["a1"] or 0) > 1 << 50


@EITHER
def test_windows_that_overlap_are_empty_or_over_close_what_they_cover_and_no_more(policy: PlanPolicy) -> None:
    windows = (Window(1100, 1200), Window(1150, 1300), Window(1300, 1300), Window(1400, 1350), Window(0, 900))

    made = plan(Snapshot(1000, (pool(1, closed={0: windows}),), queue=(request("a1"), request("b2")), policy=policy))

    assert starts(made) == {"a1": 1000, "b2": 1300}


@EITHER
def test_pools_that_are_named_twice_or_unknown_are_no_matter(policy: PlanPolicy) -> None:
    made = plan(Snapshot(1000, (pool(1),), queue=(request("a1", pools=("q", "p", "q", "p")), request("b2")), policy=policy))

    assert starts(made) == {"a1": 1000, "b2": 1100}


@EITHER
def test_a_box_on_a_node_that_is_gone_still_holds_its_slice(policy: PlanPolicy) -> None:
    busy = (running("r", "gone", end=1300, slice="s"), running("q", "gone", "p0", end=1200, slice="t"))

    made = plan(
        Snapshot(1000, (pool(2),), busy, (request("a1", slice="s"), request("b2", slice="t"), request("c3", count=2)), policy=policy)
    )

    assert {id_: start for id_, start in starts(made).items() if id_ != "c3"} == {"a1": 1300, "b2": 1200}
    assert placements(made)["a1"].explanation.reason is Reason.WAITS_FOR_SLICE


@EITHER
def test_a_box_that_holds_more_than_its_node_has_leaves_nothing_there_until_it_ends(policy: PlanPolicy) -> None:
    """A GPU has fallen off the bus."""
    made = plan(Snapshot(1000, (pool(1, 7),), (running("r", "p0", end=1300, gpus=8),), (request("a1", gpus=1),), policy=policy))

    assert starts(made) == {"a1": 1300}


@EITHER
def test_boxes_that_stand_on_each_other_are_waited_for_all(policy: PlanPolicy) -> None:
    busy = (running("r", "p0", end=1300), running("q", "p0", end=1500, gpus=4), running("p", "p0", end=1400, gpus=4))

    assert starts(plan(Snapshot(1000, (pool(1),), busy, (request("a1", gpus=5),), policy=policy))) == {"a1": 1500}


@EITHER
def test_two_boxes_of_one_slice_are_both_waited_for(policy: PlanPolicy) -> None:
    busy = (running("r", "p0", end=1300, slice="s"), running("q", "p1", end=1500, slice="s"))

    made = plan(Snapshot(1000, (pool(3),), busy, (request("a1", slice="s"), request("b2", slice="s", length=50)), policy=policy))

    assert sorted(start or 0 for start in starts(made).values()) in ([1500, 1550], [1500, 1600])


@EITHER
def test_stored_slots_that_contradict_each_other_are_put_right(policy: PlanPolicy) -> None:
    queue = (waiting("a1", 1500, "p0"), waiting("b2", 1550, "p0"), waiting("c3", 1500, "p0", "p0"), waiting("d4", 1500, "p1", "gone"))
    snapshot = Snapshot(1000, (pool(2),), (running("r", "p0", "p1", end=1500),), queue, policy=policy)

    assert problems(snapshot, plan(snapshot)) == []


@EITHER
@pytest.mark.parametrize(
    "slot",
    [Slot("p", 1500, ()), Slot("q", 1500, ("p0",)), Slot("", 1500, ("",)), Slot("p", -5, ("p0",)), Slot("p", 1 << 61, ("p0",))],
    ids=["no nodes", "another pool's", "empty", "negative", "far"],
)
def test_a_slot_that_makes_no_sense_is_replaced(slot: Slot, policy: PlanPolicy) -> None:
    queue = (request("a1", promise=1500, slot=slot), request("b2"))
    snapshot = Snapshot(1000, (pool(1), pool(1, id="q")), queue=queue, policy=policy)

    made = plan(snapshot)

    assert {id_ for id_, placement in placements(made).items() if placement.slot} == {"a1", "b2"}
    assert problems(snapshot, made) == []


def test_what_is_remembered_of_nodes_and_pools_that_are_gone_does_no_harm() -> None:
    slot = Slot("gone", 1000, ("gone0", "p0"))
    memory = Memory(shadows=(Shadow("old", 0, slot, 1300, replace(slot, nodes=("gone0",)), 1300),))

    made = plan(Snapshot(1000, (pool(1),), queue=(request("a1"), request("b2")), policy=GUARDED, memory=memory))

    assert starts(made) == {"a1": 1000, "b2": 1100}


def test_the_slack_of_a_pool_that_is_full_for_ever_is_a_number() -> None:
    """Promises for beyond all years, in a queue that is busy, and a memory that is absurd."""
    snapshot = Snapshot(1000, (pool(1, closed={0: (Window(0, 1 << 70),)}),), memory=Memory(promised_s=-1e300, patient_s=1e300))
    for i in range(5):
        snapshot = settled(replace(snapshot, queue=(*snapshot.queue, request(f"r{i}", length=1 << 40))))

    assert all(r.promise_s is not None for r in snapshot.queue)


def test_thousands_of_equal_requests_neither_hang_nor_break() -> None:
    count = 10_000 if IS_SOAK else 1_200
    queue = tuple(request(f"r{i}", gpus=1, length=60, slice="") for i in range(count))
    snapshot = Snapshot(1000, (pool(50),), queue=queue, policy=GUARDED)

    made = plan(snapshot)

    assert sorted(start_s or 0 for start_s in starts(made).values()) == [1000 + 60 * (i // 400) for i in range(count)]
    left = tuple(r for r in stored(snapshot, made) if r.slot and r.slot.start_s > 1000)
    later = replace(snapshot, now_s=1060, queue=left)
    assert [len(plan(later).starts), len(moves(later))] == [400, 0]
    lost = replace(later, pools=(pool(50, closed=dict.fromkeys(range(1, 50), (Window(0, 10**6),))),))
    assert problems(replace(lost, queue=left[:100]), plan(replace(lost, queue=left[:100]))) == []
    assert len(plan(lost).starts) == 8


def test_a_box_that_is_overdue_for_years_is_expected_in_a_moment() -> None:
    box: Running = running("r", "p0", end=-(10**12))

    made = plan(Snapshot(1_800_000_000, (pool(1),), (box,), (request("a1"),)))

    assert 0 < (starts(made)["a1"] or 0) - 1_800_000_000 <= 60
    assert placements(made)["a1"].slot == stand(starts(made)["a1"] or 0, "p0")


@pytest.mark.parametrize("grace_s", [0, -5])
def test_a_grace_of_nothing_is_a_second(grace_s: int) -> None:
    policy = replace(GUARDED, overrun_grace_s=grace_s)

    assert starts(plan(Snapshot(1000, (pool(1),), (running("r", "p0", end=990),), (request("a1"),), policy=policy))) == {"a1": 1001}


@pytest.mark.parametrize("summed_at_s", [4_000_000_000, 10**12])
def test_a_clock_that_is_set_back_by_decades_stops_no_plan(summed_at_s: int) -> None:
    queue = (request("a1"), request("a2"), request("a3"))
    memory = Memory(promised_s=100.0, patient_s=200.0, summed_at_s=summed_at_s)
    made = plan(Snapshot(0, (pool(),), queue=queue, policy=GUARDED, memory=memory))

    assert made.remembered is not None
    assert starts(made) == {"a1": 0, "a2": 100, "a3": 200}
    assert made.remembered.patient_s <= 200.0 + 100 + 200
