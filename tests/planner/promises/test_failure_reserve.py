"""If nodes fail, a promise stands some time after its slot, so that later slots can shift at the next failure."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from planner.causes import Cause
from planner.engine import plan
from planner.offers import offers
from planner.plan import PromiseMove
from planner.promises import failure_shift
from planner.snapshot import Failed, Memory, PlanPolicy, Quota, Request, SlackSettings, Slot, Snapshot, Window
from tests.effort import examples
from tests.planner.build import CONSERVATIVE, GENEROUS, GUARDED, moves, placements, pool, request, running, slots, waiting
from tests.planner.draw import GUARDED as DRAWN
from tests.planner.draw import NOW_S, snapshots

DAY_S = 86_400
NOW = 40 * DAY_S
SEEN = Failed("cluster-p", NOW - DAY_S, 4000)


def promised(failed: Failed | None, new: Request | None = None, *, free_at: int = NOW + 500, policy: PlanPolicy = GUARDED) -> Snapshot:
    """There are ten nodes, and all are busy until then."""
    busy = tuple(running(f"r{i}", f"p{i}", end=free_at) for i in range(10))
    memory = Memory(failed=() if failed is None else (failed,))
    return Snapshot(NOW, (pool(10),), busy, (new or request("new"),), policy=policy, memory=memory)


def reserve_of(snapshot: Snapshot) -> int:
    told = placements(plan(snapshot))["new"]
    assert told.slot is not None
    assert told.promise_s is not None
    return told.promise_s - told.slot.start_s


def test_a_promise_leaves_so_much_time_as_two_failures_cost_each_of_the_nodes() -> None:
    assert reserve_of(promised(SEEN)) == 2 * 4000 // 10
    assert reserve_of(promised(replace(SEEN, away_s=10**6))) == SlackSettings().reserve_most_s


NONE_SEEN = {
    "no node has failed": promised(None),
    "none has failed for a month": promised(replace(SEEN, at_s=NOW - 31 * DAY_S)),
    "nodes fail in another cluster": promised(replace(SEEN, cluster="cluster-q")),
    "it is booked for a time": promised(SEEN, replace(request("new", earliest=NOW + 600), is_fixed=True)),
    "each takes the earliest place": promised(SEEN, policy=CONSERVATIVE),
}


@pytest.mark.parametrize("snapshot", NONE_SEEN.values(), ids=NONE_SEEN.keys())
def test_a_promise_is_its_slot_where(snapshot: Snapshot) -> None:
    assert reserve_of(snapshot) == 0


def test_who_starts_at_once_is_promised_that() -> None:
    assert placements(plan(replace(promised(SEEN), running=())))["new"].promise_s == NOW


def test_an_offer_promises_what_the_request_is_then_promised() -> None:
    before = promised(SEEN)

    (offer,) = offers(replace(before, queue=()), before.queue[0])

    assert offer.promise_s == placements(plan(before))["new"].promise_s == offer.slot.start_s + 800
    assert offer.forecast.promised_wait_s == 1300


@examples(100)
@given(snapshots(policies=DRAWN))
def test_failures_that_were_seen_move_promises_alone(snapshot: Snapshot) -> None:
    failed = tuple(Failed(pool.cluster, NOW_S - 1, 3) for pool in snapshot.pools)

    before, after = (placements(plan(replace(snapshot, memory=replace(GENEROUS, failed=seen)))) for seen in ((), failed))

    for id_, told in after.items():
        assert (told.slot, told.start_s, told.starts_now) == (before[id_].slot, before[id_].start_s, before[id_].starts_now)
        assert (told.promise_s or 0) >= (before[id_].promise_s or 0)


def row(*, reserve_s: int, third: Request | None = None) -> Snapshot:
    """a, b, c and d were to start one after the other, 40 s apart, each on a node of its own, and p4 is free after the last of them.

    a's node is gone for long. A reserve of 40 s is just enough for each to take the next one's node.
    """
    starts_s = (1100, 1140, 1180, 1220)
    queue = [
        waiting(id_, at_s, f"p{i}", promise=at_s + reserve_s, length=1000)
        for i, (id_, at_s) in enumerate(zip("abcd", starts_s, strict=True))
    ]
    queue[2] = third or queue[2]
    busy = tuple(running(f"r{i}", f"p{i}", end=1100 + 40 * i) for i in range(1, 5))
    return Snapshot(1000, (pool(5, closed={0: (Window(0, 9000),)}),), busy, tuple(queue), policy=GUARDED)


def test_where_a_node_fails_all_behind_it_shift_a_little_and_every_promise_is_kept() -> None:
    assert moves(row(reserve_s=40)) == {}
    assert slots(plan(row(reserve_s=40))) == {"a": 1140, "b": 1180, "c": 1220, "d": 1260}


def test_nobody_shifts_where_that_would_break_no_fewer_promises() -> None:
    assert moves(row(reserve_s=39)) == {"a": PromiseMove(1139, 1260, Cause.NODE_FAILURE, "p0")}
    assert slots(plan(row(reserve_s=39))) == {"a": 1260, "b": 1140, "c": 1180, "d": 1220}


def test_no_promise_of_higher_priority_is_broken_to_keep_more_of_lower() -> None:
    """Both halves take the node of b, which has to wait for one behind c. The request of high priority on the lost node has time."""
    halves = [waiting(id_, 1100, "p0", promise=1140, gpus=4, length=1000) for id_ in ("half1", "half2")]
    high = [replace(waiting("c", 1180, "p2", promise=1190, length=1000), priority=201)]
    high += [replace(waiting("lost", 5000, "p0", promise=9000), priority=201)]
    world = row(reserve_s=40)

    assert moves(replace(world, queue=(*halves, world.queue[1], high[0], world.queue[3], high[1]))).keys() == {"b"}


STAYS = {
    "who has a higher priority": {"priority": 201},
    "a booking": {"is_fixed": True, "earliest_start_s": 1180},
    "who may evict others": {"may_evict": True},
}


@pytest.mark.parametrize("change", STAYS.values(), ids=STAYS.keys())
def test_who_never_shifts(change: dict[str, object]) -> None:
    stays = replace(waiting("c", 1180, "p2", promise=1220, length=1000), **change)  # type: ignore[arg-type]

    told = placements(plan(row(reserve_s=40, third=stays)))

    assert told["c"].slot == stays.slot


def test_where_too_many_would_have_to_shift_nobody_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_shift, "SHIFTED_MOST", 3)

    assert moves(row(reserve_s=40)).keys() == {"a"}


def test_a_failure_elsewhere_moves_nobody_and_is_nobodys_cause() -> None:
    """Nobody behind could help in q; alone it moves one, and so it does beside a failure in p that all shift for."""
    other = pool(2, id="q", closed={0: (Window(0, 9000),)})
    alone = replace(waiting("z", 1100, "q0", promise=1140, length=1000), pools=("q",), slot=Slot("q", 1100, ("q0",)))
    here, there = row(reserve_s=40), running("r9", "q1", end=5000, pool="q")
    both = replace(here, pools=(*here.pools, other), running=(*here.running, there), queue=(*here.queue, alone))

    assert moves(both) == {"z": PromiseMove(1140, 5000, Cause.NODE_FAILURE, "q0")}
    assert {id_: at_s for id_, at_s in slots(plan(both)).items() if id_ != "z"} == slots(plan(here))


def test_nobody_behind_is_made_later_than_the_worst_would_have_been() -> None:
    """The halves could take the node of c in time, one broken promise for two; but c would wait until a booking on p2 is over."""
    halves = [waiting(id_, 1600, "p0", promise=2500, gpus=4, length=10_000) for id_ in ("half1", "half2")]
    behind = waiting("c", 1700, "p1", promise=2600, length=100_000)
    booked = replace(waiting("d", 13_600, "p2", length=10**6), is_fixed=True, earliest_start_s=13_600)
    busy = running("r1", "p1", end=1700), running("r2", "p2", end=2800)
    pools = (pool(3, closed={0: (Window(0, 10**6),)}),)
    world = Snapshot(1000, pools, busy, (*halves, behind, booked), policy=GUARDED)

    assert {id_: move.new_s - move.old_s for id_, move in moves(world).items()} == {"half1": 300, "half2": 300}
    assert slots(plan(world))["c"] == 1700


def test_what_an_owner_changed_is_not_mixed_with_what_a_failure_does() -> None:
    """The edited request lost its place by that alone, whatever fails in the same plan."""
    edited = replace(waiting("edited", 1100, "p4", promise=1100, length=1000), earliest_start_s=1200)
    here = row(reserve_s=40)
    world = replace(here, queue=(*here.queue, edited))

    found = moves(world)

    assert found["edited"].cause == Cause.CHANGED
    assert all(move.cause == Cause.NODE_FAILURE for id_, move in found.items() if id_ != "edited")


ENTITLED = (Quota("B", "shape-p", 80), Quota("A", "shape-p", 0))


def gives_way(new: Request) -> Snapshot:
    """One node, which is promised to a borrower from now on."""
    borrower = request("w", project="A", length=9000, promise=NOW + 10, slot=Slot("p", NOW + 10, ("p0",)))
    memory = Memory(failed=(SEEN,))
    return Snapshot(NOW, (pool(1),), (), (borrower, new), quotas=ENTITLED, policy=GUARDED, memory=memory)


def test_who_starts_now_since_others_give_way_is_promised_now() -> None:
    """Its first place was behind them."""
    snapshot = gives_way(request("new", project="B"))

    told = placements(plan(snapshot))["new"]
    (offer,) = offers(replace(snapshot, queue=snapshot.queue[:1]), snapshot.queue[1])

    assert (told.start_s, told.promise_s) == (offer.start_s, offer.promise_s) == (NOW, NOW)
