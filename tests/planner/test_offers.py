"""An offer is what the request then gets."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from planner.engine import plan
from planner.offers import OfferFinder, offers
from planner.plan import Reason
from planner.snapshot import PlanPolicy, Request, Snapshot
from tests.effort import examples
from tests.planner.build import EITHER, placements, pool, request, running, settled, stand
from tests.planner.draw import CONSERVATIVE, POLICIES, TIGHT, requests, snapshots
from tests.planner.world import CHAINS, MISHAPS, MIXED, Asks, World

SIZES = ("node_count", "gpus_per_node", "length_s")


@examples(200)
@given(snapshots(), st.data())
def test_an_offer_of_a_pool_is_what_the_candidate_gets_there_when_it_is_submitted(snapshot: Snapshot, data: st.DataObject) -> None:
    """It agrees to the second and the node, also while others are still to be placed, or boxes are overdue or ended early."""
    before = data.draw(st.sampled_from([snapshot, settled(snapshot), replace(settled(snapshot), running=())]))
    candidate = data.draw(requests("new", data.draw(st.sampled_from([-1, 99]))))

    found = offers(before, candidate)

    assert [(o.start_s, o.promise_s) for o in found] == sorted((o.start_s, o.promise_s) for o in found)
    for pool_id in candidate.pools:
        only = replace(candidate, pools=(pool_id,))
        got = placements(plan(replace(before, queue=(*before.queue, only))))["new"]
        told = [(o.start_s, o.promise_s, o.explain()) for o in found if o.pool == pool_id]
        assert told == ([] if got.slot is None else [(got.start_s, got.promise_s, got.explanation)])
    for offer in found:
        assert offer.slot.start_s == offer.start_s <= offer.promise_s


@examples(60)
@given(snapshots(), st.data())
def test_an_offer_is_the_same_whatever_was_asked_before(snapshot: Snapshot, data: st.DataObject) -> None:
    before = data.draw(st.sampled_from([snapshot, settled(snapshot), replace(settled(snapshot), running=(), has_freed=True)]))
    candidates = [data.draw(requests("new", 99)) for _ in range(3)]
    finder = OfferFinder(before)

    assert [finder.offers(candidate) for candidate in candidates] == [offers(before, candidate) for candidate in candidates]


@examples(100)
@given(
    snapshots(policies=(CONSERVATIVE, TIGHT)), st.integers(0, 12), st.sampled_from(["node_count", "gpus_per_node", "length_s"]), st.data()
)
def test_the_most_that_has_a_place_by_some_time_is_the_most_that_would_be_promised_it(
    snapshot: Snapshot, in_s: int, field: str, data: st.DataObject
) -> None:
    finder = OfferFinder(settled(snapshot))
    candidate = data.draw(requests("new", 99))
    by_s = snapshot.now_s + in_s

    def sized(size: int) -> Request:
        change: dict[str, Any] = {field: size}
        return replace(candidate, **change)

    promised = [min((offer.promise_s for offer in finder.offers(sized(size))), default=None) for size in range(1, 5)]
    able = [size for size, promise_s in enumerate(promised, start=1) if promise_s is not None and promise_s <= by_s]
    assert finder.most_by(by_s, range(1, 5), sized) == max(able, default=None)


@examples(100)
@given(snapshots(policies=(CONSERVATIVE, TIGHT)), st.data())
def test_the_soonest_promise_is_what_the_candidate_gets_when_it_may_use_all_its_pools(snapshot: Snapshot, data: st.DataObject) -> None:
    candidate = data.draw(requests("new", 99))
    before = settled(snapshot)

    found = offers(before, candidate)

    got = placements(plan(replace(before, queue=(*before.queue, candidate))))["new"]
    assert got.promise_s == min((offer.promise_s for offer in found), default=None)
    if snapshot.policy == CONSERVATIVE and got.slot is not None:
        assert (found[0].slot, found[0].explain().ahead_count) == (got.slot, got.explanation.ahead_count)


@examples(100)
@given(st.integers(0, 10**6), st.sampled_from(POLICIES), st.sampled_from([MIXED, CHAINS]), st.sets(st.sampled_from(sorted(MISHAPS))))
def test_each_offer_is_kept_when_it_is_taken_and_time_plays_forward(seed: int, policy: PlanPolicy, asks: Asks, mishaps: set[str]) -> None:
    world = World(seed, policy, frozenset(mishaps), asks)
    for _ in range(12):
        world.step()
    world.freeze()
    candidate = world.submit()
    for offer in offers(replace(world.snapshot(), queue=world.queue[:-1]), candidate):
        taken = deepcopy(world)
        taken.queue = (*world.queue[:-1], replace(candidate, pools=(offer.pool,)))
        taken.tick()
        while any(waiting.slot for waiting in taken.queue):
            taken.pass_s()

        assert taken.started_s[candidate.id] == offer.start_s
        assert taken.first_promise_s[candidate.id] == offer.promise_s


@EITHER
def test_offers_change_nothing(policy: PlanPolicy) -> None:
    snapshot = settled(Snapshot(1000, (pool(2),), (running("x", "p0", end=1300),), (request("a1", count=2),), policy=policy))
    before = plan(snapshot)

    offers(snapshot, request("new", length=50))

    assert plan(snapshot) == before


@EITHER
def test_offers_come_soonest_first_and_then_in_the_order_of_the_candidates_pools(policy: PlanPolicy) -> None:
    pools = (pool(1), pool(1, id="q"), pool(1, id="r"))
    snapshot = Snapshot(1000, pools, (running("x", "q0", end=1300, pool="q"),), policy=policy)

    found = offers(snapshot, request("new", pools=("q", "r", "p", "r")))

    assert [(offer.pool, offer.start_s) for offer in found] == [("r", 1000), ("p", 1000), ("q", 1300)]
    assert [(found[2].cluster, found[2].shape, found[2].slot)] == [("cluster-q", "shape-q", stand(1300, "q0", pool="q"))]
    assert found[2].explain().reason is Reason.WAITS_FOR_GPUS


@EITHER
def test_a_pool_that_could_never_hold_the_candidate_makes_no_offer(policy: PlanPolicy) -> None:
    snapshot = Snapshot(1000, (pool(1), pool(2, id="q")), policy=policy)

    assert [offer.pool for offer in offers(snapshot, request("new", count=2, pools=("p", "q", "unknown")))] == ["q"]


@EITHER
def test_an_edit_can_be_tried_without_standing_in_its_own_way(policy: PlanPolicy) -> None:
    snapshot = settled(Snapshot(1000, (pool(1),), (running("x", "p0", end=1300),), (request("a1"),), policy=policy))

    (offer,) = offers(snapshot, request("a1", length=5000))

    assert offer.start_s == 1300
