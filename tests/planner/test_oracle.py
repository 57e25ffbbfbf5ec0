"""The planner against brute force: every second, every set of nodes."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from gpr.planner.engine import plan
from gpr.planner.plan import Reason
from gpr.planner.profile import NodeProfile
from gpr.planner.snapshot import Snapshot
from tests.planner.build import placements
from tests.planner.draw import snapshots
from tests.planner.oracle import Oracle, of_slot, problems

BOXES = st.tuples(st.integers(0, 30), st.integers(1, 12), st.integers(1, 4))


@settings(max_examples=300, deadline=None)
@given(snapshots())
def test_each_newcomer_gets_the_first_second_and_the_nodes_that_brute_force_finds(snapshot: Snapshot) -> None:
    made = plan(snapshot)

    oracle = Oracle(snapshot)
    requests = {request.id: request for request in snapshot.queue}
    for placement in made.placements:  # in the order in which they were placed
        request = requests[placement.id]
        assert placement.slot == oracle.earliest(request)
        assert (placement.explanation.reason == Reason.NEVER_FITS) is (placement.slot is None)
        if placement.slot is not None:
            assert placement.promise_s == placement.slot.start_s
            oracle.boxes.append(of_slot(request, placement.slot))


@settings(max_examples=300, deadline=None)
@given(snapshots(most=7))
def test_a_plan_is_feasible_and_complete(snapshot: Snapshot) -> None:
    made = plan(snapshot)

    assert problems(snapshot, made) == []
    assert placements(made).keys() == {request.id for request in snapshot.queue}


@settings(max_examples=200, deadline=None)
@given(st.lists(BOXES, max_size=6), st.integers(1, 4), st.integers(1, 15), st.integers(0, 30))
def test_a_profile_is_the_sum_of_its_boxes(boxes: list[tuple[int, int, int]], level: int, length_s: int, since_s: int) -> None:
    node = NodeProfile("n", 4, order=0, since_s=0)
    for start_s, duration_s, gpus in boxes:
        node.take(start_s, start_s + duration_s, gpus)

    free = [4 - sum(gpus for start, length, gpus in boxes if start <= at < start + length) for at in range(100)]
    first = next(at for at in range(100) if all(free[s] >= level for s in range(at, at + length_s)) and at >= since_s)
    times, values = zip(*node.steps(), strict=True)
    assert [values[bisect_right(times, at) - 1] for at in range(100)] == free
    assert node.least_free(since_s, since_s + length_s) == min(free[since_s : since_s + length_s])
    assert node.first_fit(level, length_s, since_s) == first
    assert all(a != b for a, b in pairwise(values))


@settings(max_examples=100, deadline=None)
@given(st.lists(BOXES, max_size=6), st.integers(0, 40), st.data())
def test_a_profile_forgets_what_was_given_back_and_what_is_over(boxes: list[tuple[int, int, int]], now_s: int, data: st.DataObject) -> None:
    node, other = NodeProfile("n", 4, order=0, since_s=0), NodeProfile("n", 4, order=0, since_s=0)
    kept = [box for box in boxes if data.draw(st.booleans())]
    for start_s, length_s, gpus in boxes:
        node.take(start_s, start_s + length_s, gpus)
    node.forget_before(now_s)
    for box in boxes:
        if box not in kept:
            node.give(box[0], box[0] + box[1], box[2])
    for start_s, length_s, gpus in (box for box in boxes if box in kept):
        other.take(start_s, start_s + length_s, gpus)

    node.forget_before(now_s)
    assert all(node.least_free(at, at + 1) == other.least_free(at, at + 1) for at in range(now_s, 60))
    assert len([at for at, _ in node.steps() if at < now_s]) <= 1
