"""The planner against brute force: every second, every set of nodes."""

from __future__ import annotations

from hypothesis import given

from planner.engine import plan
from planner.plan import Reason
from planner.snapshot import PolicyName, Snapshot
from tests.effort import examples
from tests.planner.build import placements
from tests.planner.draw import CONSERVATIVE, TIGHT, snapshots
from tests.planner.oracle import Oracle, of_slot, problems


@examples(400)
@given(snapshots(policies=(CONSERVATIVE, TIGHT)))
def test_each_newcomer_gets_the_first_second_and_the_nodes_that_brute_force_finds(snapshot: Snapshot) -> None:
    """The plan has no slack; guarded, one that can start now leaves that slot."""
    made = plan(snapshot)

    oracle = Oracle(snapshot)
    requests = {request.id: request for request in snapshot.queue}
    for placement in made.placements:  # in the order in which they were placed
        request = requests[placement.id]
        slot = oracle.earliest(request)
        assert (placement.explanation.reason == Reason.NEVER_FITS) is (slot is None) is (placement.slot is None)
        assert placement.promise_s == (slot.start_s if slot else None)
        if snapshot.policy.name == PolicyName.CONSERVATIVE or not placement.starts_now:
            assert placement.slot == slot
        if slot is not None:
            oracle.boxes.append(of_slot(request, slot))


@examples(400)
@given(snapshots(most=7))
def test_a_plan_is_feasible_and_complete(snapshot: Snapshot) -> None:
    made = plan(snapshot)

    assert problems(snapshot, made) == []
    assert placements(made).keys() == {request.id for request in snapshot.queue}
