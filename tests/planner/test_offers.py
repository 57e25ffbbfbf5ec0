"""An offer is what the request then gets."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from gpr.planner.engine import offers, plan
from gpr.planner.plan import Reason
from gpr.planner.snapshot import Snapshot
from tests.planner.build import placements, pool, request, running, settled, stand
from tests.planner.draw import requests, snapshots
from tests.planner.world import World


@settings(max_examples=200, deadline=None)
@given(snapshots(), st.data())
def test_the_best_offer_is_what_the_candidate_gets_when_it_is_submitted(snapshot: Snapshot, data: st.DataObject) -> None:
    """Also while others are still to be placed, slots can move up, or boxes are overdue."""
    before = data.draw(st.sampled_from([snapshot, settled(snapshot), replace(settled(snapshot), running=())]))
    candidate = data.draw(requests("new", data.draw(st.sampled_from([-1, 99]))))

    found = offers(before, candidate)

    got = placements(plan(replace(before, queue=(*before.queue, candidate))))["new"]
    if got.slot is None:
        assert found == ()
    else:
        best = found[0]
        assert (best.slot, best.start_s, best.promise_s) == (got.slot, got.slot.start_s, got.promise_s)
        assert best.pool == got.slot.pool
        assert best.explanation.ahead_count == got.explanation.ahead_count


@settings(max_examples=150, deadline=None)
@given(snapshots(), st.data())
def test_each_offer_is_what_the_candidate_gets_in_that_pool_alone(snapshot: Snapshot, data: st.DataObject) -> None:
    before = settled(snapshot)
    candidate = data.draw(requests("new", 99))

    found = offers(before, candidate)

    assert [offer.start_s for offer in found] == sorted(offer.start_s for offer in found)
    for pool_id in candidate.pools:
        only = replace(candidate, pools=(pool_id,))
        got = placements(plan(replace(before, queue=(*before.queue, only))))["new"]
        told = [(offer.slot, offer.explanation) for offer in found if offer.pool == pool_id]
        assert told == ([] if got.slot is None else [(got.slot, got.explanation)])


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6))
def test_an_offer_is_kept_when_time_plays_forward(seed: int) -> None:
    world = World(seed)
    for _ in range(12):
        world.step()
    candidate = world.submit()
    found = offers(replace(world.snapshot(), queue=world.queue[:-1]), candidate)
    world.tick()

    while any(waiting.slot for waiting in world.queue):
        world.now_s += 1
        world.end_boxes()
        world.tick()

    assert [offer.start_s for offer in found[:1]] == [s for id_, s in world.started_s.items() if id_ == candidate.id]


def test_offers_come_soonest_first_and_then_in_the_order_of_the_candidates_pools() -> None:
    pools = (pool(1), pool(1, id="q"), pool(1, id="r"))
    snapshot = Snapshot(1000, pools, (running("x", "q0", end=1300, pool="q"),))

    found = offers(snapshot, request("new", pools=("q", "r", "p", "r")))

    assert [(offer.pool, offer.start_s) for offer in found] == [("r", 1000), ("p", 1000), ("q", 1300)]
    assert [(found[2].cluster, found[2].shape, found[2].slot)] == [("cluster-q", "shape-q", stand(1300, "q0", pool="q"))]
    assert found[2].explanation.reason is Reason.WAITS_FOR_GPUS


def test_a_pool_that_could_never_hold_the_candidate_makes_no_offer() -> None:
    snapshot = Snapshot(1000, (pool(1), pool(2, id="q")))

    assert [offer.pool for offer in offers(snapshot, request("new", count=2, pools=("p", "q", "unknown")))] == ["q"]


def test_an_edit_can_be_tried_without_standing_in_its_own_way() -> None:
    snapshot = settled(Snapshot(1000, (pool(1),), (running("x", "p0", end=1300),), (request("a1"),)))

    (offer,) = offers(snapshot, request("a1", length=5000))

    assert offer.start_s == 1300
