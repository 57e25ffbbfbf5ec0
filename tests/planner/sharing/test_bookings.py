"""Bookings: a fixed request starts at its time or has no place, nobody pays for it but by right, and the gap before it is used."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from planner.causes import Cause, victims_of
from planner.engine import plan
from planner.offers import offers
from planner.plan import PromiseMove, Reason
from planner.sharing import bookings
from planner.sharing.bookings import GRID_S, fitting, nearest
from planner.snapshot import PlanPolicy, Quota, Request, Snapshot, Window
from tests.effort import examples
from tests.planner.build import EITHER, moves, placements, pool, request, run, running, settled, slots, stand, starts, stored, waiting
from tests.planner.draw import NOW_S, requests, snapshots
from tests.planner.oracle import problems


@EITHER
def test_a_booking_gets_its_very_time_without_slack_and_waits_for_it(policy: PlanPolicy) -> None:
    booking = replace(request("b1", earliest=1500), is_fixed=True)
    made = plan(Snapshot(1000, (pool(1),), (running("r", "p0", end=1400),), (booking,), policy))

    (placement,) = made.placements
    assert (placement.start_s, placement.promise_s, placement.starts_now) == (1500, 1500, False)
    assert placement.explanation.reason == Reason.WAITS_FOR_START_TIME
    assert made.forecasts == ()


@EITHER
def test_a_booking_whose_time_is_taken_has_no_place_and_says_so(policy: PlanPolicy) -> None:
    booking = replace(request("b1", earliest=1350), is_fixed=True)
    snapshot = Snapshot(1000, (pool(1),), (running("r", "p0", end=1400),), (booking,), policy)

    (placement,) = plan(snapshot).placements
    assert (placement.slot, placement.promise_s, placement.explanation.reason) == (None, None, Reason.DOES_NOT_FIT_THEN)
    assert offers(replace(snapshot, queue=()), booking) == ()


@EITHER
def test_the_gap_before_a_booking_is_used_by_what_is_over_in_time(policy: PlanPolicy) -> None:
    booking = replace(request("b9", earliest=1500), is_fixed=True)
    before = settled(Snapshot(1000, (pool(1),), queue=(booking,), policy=policy))
    fits, too_long = request("f1", length=500), request("l2", length=600)

    assert starts(plan(replace(before, queue=(*before.queue, fits)))) == {"b9": 1500, "f1": 1000}
    assert starts(plan(replace(before, queue=(*before.queue, too_long)))) == {"b9": 1500, "l2": 1600}


@EITHER
def test_a_booking_waits_behind_no_box_of_its_own_slice(policy: PlanPolicy) -> None:
    booking = replace(request("b1", slice="s", earliest=1350), is_fixed=True)
    busy = (running("r", "p0", end=1400, slice="s"),)

    (placement,) = plan(Snapshot(1000, (pool(2),), busy, (booking,), policy)).placements
    assert placement.explanation.reason == Reason.DOES_NOT_FIT_THEN


@EITHER
def test_a_booking_that_loses_its_nodes_moves_as_every_promise_with_its_cause(policy: PlanPolicy) -> None:
    closed = pool(1, closed={0: (Window(1200, 1700, "firmware"),)})
    booking = replace(waiting("b1", 1500, "p0"), earliest_start_s=1500, is_fixed=True)

    (move,) = moves(Snapshot(1000, (closed,), queue=(booking,), policy=policy)).values()
    assert (move.old_s, move.new_s, move.cause, move.cause_id) == (1500, 1700, Cause.MAINTENANCE, "firmware")


def test_what_waits_for_the_end_of_a_maintenance_is_told_so() -> None:
    closed = pool(1, closed={0: (Window(1050, 1700, "firmware"),)})
    (placement,) = plan(Snapshot(1000, (closed,), queue=(request("a1"),))).placements

    assert (placement.start_s, placement.explanation.reason) == (1700, Reason.WAITS_FOR_MAINTENANCE)


def test_the_nearest_times_lie_on_whole_minutes_around_what_is_taken() -> None:
    booking = replace(request("b1", length=600, earliest=6000), is_fixed=True)
    snapshot = Snapshot(1000, (pool(1),), queue=(waiting("a2", 5950, "p0", length=100),))

    found = nearest(snapshot, booking, since_s=1300)
    assert (found.fits, found.before_s, found.after_s) == (False, 5340, 6060)
    assert nearest(snapshot, booking, since_s=5341).before_s is None


@examples(200)
@given(snapshots(), requests("booked", 9), st.integers(0, 15))
def test_it_starts_exactly_then_or_not_at_all_and_nobodys_promise_moves_by_it(snapshot: Snapshot, drawn: object, ahead_s: int) -> None:
    assert isinstance(drawn, type(snapshot.queue[0]))
    booking = replace(drawn, is_fixed=True, earliest_start_s=NOW_S + ahead_s)
    before = settled(snapshot)
    promised = {r.id: r.promise_s for r in before.queue}

    asked = replace(before, queue=(*before.queue, booking))
    made = plan(asked)

    assert problems(asked, made) == []
    own = placements(made)["booked"]
    assert own.start_s in {None, booking.earliest_start_s}
    assert slots(made)["booked"] == own.start_s
    assert all(p.moved is None and p.promise_s == promised[p.id] for p in made.placements if p.id != "booked" and p.id in promised)
    assert nearest(asked, booking, since_s=NOW_S).fits == (own.start_s is not None)


@examples(100)
@given(snapshots(), requests("booked", 9), st.integers(0, 15))
def test_what_is_called_nearest_would_fit(snapshot: Snapshot, drawn: object, ahead_s: int) -> None:
    assert isinstance(drawn, type(snapshot.queue[0]))
    booking = replace(drawn, is_fixed=True, earliest_start_s=NOW_S + ahead_s)
    before = settled(snapshot)
    found = nearest(before, booking, since_s=NOW_S)
    assume(found.after_s is not None)

    for start_s in (found.before_s, found.after_s):
        if start_s is not None:
            again = replace(booking, earliest_start_s=start_s)
            assert start_s % GRID_S == 0
            assert placements(plan(replace(before, queue=(*before.queue, again))))["booked"].start_s == start_s


@st.composite
def guaranteed(draw: st.DrawFn) -> tuple[Snapshot, Request]:
    """Three projects with guarantees, in which some run and some wait; one books, mostly of the first, which has the largest."""
    drawn, booking = draw(snapshots(most=3)), draw(requests("booked", 9))
    quotas = tuple(Quota(owner, "s", draw(st.sampled_from(amounts))) for owner, amounts in (("a", [4, 16]), ("b", [0, 2]), ("c", [0, 2])))
    policy = replace(drawn.policy, notice_s=2, least_run_s=0, eviction_gain_s=1)
    owners = st.sampled_from("abc")
    snapshot = replace(
        drawn,
        policy=policy,
        quotas=quotas,
        running=tuple(replace(box, project=draw(owners), end_s=box.end_s + draw(st.sampled_from([0, 20, 40]))) for box in drawn.running),
        queue=tuple(replace(each, project=draw(owners)) for each in drawn.queue),
    )
    made = plan(snapshot)
    ends_s = {victim.id: victim.frees_s for victim in victims_of(made.evictions)}
    running = tuple(replace(box, end_s=ends_s.get(box.id, box.end_s)) for box in snapshot.running)
    going = {placement.id for placement in made.starts}
    queue = stored(snapshot, made)
    begun = tuple(run(each) for each in queue if each.id in going)
    left = tuple(each for each in queue if each.id not in going)
    at_s = NOW_S + draw(st.integers(1, 12))
    booked = replace(
        booking, project=draw(st.sampled_from("aaab")), slice="", is_fixed=True, earliest_start_s=at_s, may_evict=draw(st.booleans())
    )
    return replace(snapshot, running=(*running, *begun), queue=left), booked


@examples(300)
@given(guaranteed())
def test_what_fits_by_right_is_told_before_and_no_promise_moves_but_of_those_who_would_borrow(drawn: tuple[Snapshot, Request]) -> None:
    before, booking = drawn
    asked = replace(before, queue=(*before.queue, booking))

    made, offered = plan(asked), offers(before, booking)
    with patch.object(bookings, "GRID_S", 1):
        found = nearest(asked, booking, since_s=NOW_S)

    own = placements(made)["booked"]
    assert own.start_s in {None, booking.earliest_start_s}
    assert found.fits == (own.start_s is not None) == bool(offered)
    assert {offer.start_s for offer in offered} <= {booking.earliest_start_s}
    assert {p.moved.cause for p in made.placements if p.moved} <= {Cause.RECLAIM}
    for start_s in (found.before_s, found.after_s):
        if start_s is not None:
            again = replace(before, queue=(*before.queue, replace(booking, earliest_start_s=start_s)))
            assert placements(plan(again))["booked"].start_s == start_s


@examples(200)
@given(guaranteed())
def test_whoever_would_win_its_time_by_right_is_never_left_out_by_the_quick_look(drawn: tuple[Snapshot, Request]) -> None:
    snapshot, booking = drawn
    with patch.object(bookings, "_may_have_right", return_value=True):
        tried = fitting(snapshot, [booking])

    assert fitting(snapshot, [booking]) == tried


@pytest.mark.parametrize(("guaranteed_gpus", "tries"), [(7, 0), (8, 1)])
def test_nothing_is_tried_for_a_booking_that_can_have_no_right(guaranteed_gpus: int, tries: int) -> None:
    """Each try costs a copy of the board."""
    booking = replace(request("b1", earliest=1350, project="b"), is_fixed=True)
    quotas = (Quota("b", "shape-p", guaranteed_gpus), Quota("other", "shape-p", 8))
    snapshot = Snapshot(1000, (pool(1),), (running("r", "p0", end=1400),), quotas=quotas)

    with patch.object(bookings._TimesByRight, "has", return_value=False) as has:
        assert fitting(snapshot, [booking]) == [False]
    assert has.call_count == tries


@EITHER
def test_the_nearest_times_are_below_the_ceilings_too(policy: PlanPolicy) -> None:
    """There are idle nodes enough; its project may not hold another one while the first runs."""
    busy = (running("r", "p0", end=1790),)
    booking = replace(request("b1", earliest=1500, length=120), is_fixed=True)
    snapshot = Snapshot(1000, (pool(3),), busy, (), policy, quotas=(Quota("x", "shape-p", 0, 8),))

    found = nearest(snapshot, booking, since_s=1000)

    assert (found.fits, found.before_s, found.after_s) == (False, None, 1800)
    assert placements(plan(replace(snapshot, queue=(booking,))))["b1"].slot is None


ENTITLED = (Quota("b", "shape-p", 8), Quota("x", "shape-p", 0))


@EITHER
def test_who_only_waits_to_borrow_gives_way_to_a_booking_that_is_entitled_and_nobody_has_to_end(policy: PlanPolicy) -> None:
    booking = replace(request("b1", earliest=1500, project="b"), is_fixed=True)
    borrower = waiting("a2", 1450, "p0")
    snapshot = Snapshot(1000, (pool(1, closed={0: (Window(1000, 1450),)}),), (), (booking, borrower), policy, quotas=ENTITLED)

    made = plan(snapshot)

    assert (starts(made), made.evictions) == ({"b1": 1500, "a2": 1600}, ())
    assert placements(made)["a2"].moved == PromiseMove(1450, 1600, Cause.RECLAIM, "b1")
    assert nearest(replace(snapshot, queue=(borrower,)), booking, since_s=1000).fits


@EITHER
def test_who_waits_within_its_own_guarantee_keeps_its_slot_whoever_books(policy: PlanPolicy) -> None:
    booking = replace(request("b1", earliest=1500, project="b"), is_fixed=True)
    entitled = replace(waiting("a2", 1450, "p0"), project="b")
    snapshot = Snapshot(1000, (pool(1, closed={0: (Window(1000, 1450),)}),), (), (booking, entitled), policy, quotas=ENTITLED)

    assert starts(plan(snapshot)) == {"b1": None, "a2": 1450}


def test_a_booking_goes_where_nobody_has_to_end_for_it_though_it_likes_another_place_better() -> None:
    booking = replace(request("b1", earliest=3000, project="b", pools=("p", "q")), is_fixed=True)
    busy = (running("r", "p0", end=9000),)
    snapshot = Snapshot(1000, (pool(1), pool(1, id="q")), busy, (booking,), quotas=ENTITLED)
    made = plan(snapshot)
    first, second = offers(replace(snapshot, queue=()), booking)

    assert (made.evictions, placements(made)["b1"].slot) == ((), first.slot)
    assert (first.pool, first.evictions, second.pool, [each.id for each in second.evictions]) == ("q", (), "p", ["b1"])


DAY_S = 86_400
OF_B = (Quota("b", "shape-p", 8), Quota("x", "shape-p", 0))


def booked(id_: str, at_s: int, length_s: int = DAY_S, project: str = "b") -> Request:
    return replace(request(id_, earliest=at_s, length=length_s, project=project), is_fixed=True)


@EITHER
def test_bookings_that_overlap_take_back_no_more_than_the_guarantee_of_their_project(policy: PlanPolicy) -> None:
    """Each is to start a little before the one that was made before it, so that none is there yet when another begins."""
    busy = tuple(running(f"r{i}", f"p{i}", end=9 * DAY_S, project="x") for i in range(5))
    asked = tuple(booked(f"b{i}", 5 * DAY_S - 600 * i) for i in range(5))
    together = plan(Snapshot(1000, (pool(5),), busy, asked, policy, quotas=OF_B))
    snapshot = Snapshot(1000, (pool(5),), busy, (), policy, quotas=OF_B)
    for each in asked:
        made = plan(replace(snapshot, queue=(*snapshot.queue, each)))
        ends_s = {victim.id: victim.frees_s for victim in victims_of(made.evictions)}
        boxes = tuple(replace(box, end_s=ends_s.get(box.id, box.end_s)) for box in snapshot.running)
        queue = stored(replace(snapshot, queue=(*snapshot.queue, each)), made)
        snapshot = replace(snapshot, running=boxes, queue=tuple(waits for waits in queue if waits.slot))

    assert len([p for p in together.placements if p.slot]) == 1
    assert [waits.id for waits in snapshot.queue] == ["b0"]
    assert len([box for box in snapshot.running if box.end_s < 9 * DAY_S]) == 1


@EITHER
def test_who_would_run_into_a_booking_of_its_project_only_borrows(policy: PlanPolicy) -> None:
    busy = tuple(running(f"r{i}", f"p{i}", end=9 * DAY_S, project="x") for i in range(2))
    alone = Snapshot(1000, (pool(2),), busy, (request("a8", length=2 * DAY_S, project="b"),), policy, quotas=OF_B)
    (taken,) = victims_of(plan(replace(alone, queue=(booked("b0", DAY_S),))).evictions)
    boxes = tuple(replace(box, end_s=taken.frees_s) if box.id == taken.id else box for box in busy)
    booking = replace(
        booked("b0", DAY_S), slot=stand(DAY_S, *(node for box in boxes if box.id == taken.id for node in box.nodes)), promise_s=DAY_S
    )

    assert [each.id for each in plan(alone).evictions] == ["a8"]
    assert plan(replace(alone, running=boxes, queue=(booking, *alone.queue))).evictions == ()


def test_what_will_be_held_within_a_guarantee_when_a_booking_starts_is_not_taken_for_it() -> None:
    """Today b borrows with one of its boxes; by the time of the booking of another the first has ended, and it is within its own."""
    goes, stays = running("goes", "p0", end=3000, project="b", priority=150), running("stays", "p1", end=9000, project="b")
    borrows = running("borrows", "p2", end=9000, project="x", since=-5000)
    quotas = (Quota("b", "shape-p", 8), Quota("c", "shape-p", 8), Quota("x", "shape-p", 0))
    closed = {0: (Window(3000, 9000),)}
    made = plan(Snapshot(1000, (pool(3, closed=closed),), (goes, stays, borrows), (booked("b1", 5000, 100, "c"),), quotas=quotas))

    assert [victim.id for victim in victims_of(made.evictions)] == ["borrows"]
