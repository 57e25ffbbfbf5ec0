"""If the stored plan no longer holds, as few slots as possible move, and the plan records each cause."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.causes import Cause
from planner.engine import plan
from planner.plan import PromiseMove
from planner.promises import repair
from planner.snapshot import Node, PlanPolicy, Pool, Quota, Request, Running, Snapshot, Supply, Window
from tests.planner.build import (
    CONSERVATIVE,
    EITHER,
    GUARDED,
    moves,
    placements,
    pool,
    request,
    running,
    settled,
    stand,
    starts,
    stored,
    waiting,
)


def chain(*ids: str) -> tuple[Request, ...]:
    """The requests stand one behind the other on p0 from 1000 on."""
    return tuple(waiting(id_, 1000 + 100 * i, "p0") for i, id_ in enumerate(ids))


@EITHER
def test_slots_that_hold_stay_to_the_second_and_on_their_nodes(policy: PlanPolicy) -> None:
    busy = (running("r", "p0", end=1700), running("s", "p1", end=1400))
    queue = (waiting("a1", 1400, "p1"), waiting("b2", 1700, "p0", promise=2000), waiting("c3", 1500, "p1", length=1000))
    made = plan(Snapshot(1000, (pool(2),), busy, queue, policy=policy))

    assert [(p.id, p.slot, p.promise_s, p.moved) for p in made.placements] == [
        ("a1", stand(1400, "p1"), 1400, None),
        ("b2", stand(1700, "p0"), 2000, None),
        ("c3", stand(1500, "p1"), 1500, None),
    ]


def test_guarded_a_slot_stays_at_its_promise_whatever_comes_free() -> None:
    busy = (running("r", "p0", end=1200),)
    made = plan(Snapshot(1000, (pool(1),), busy, (waiting("a1", 1400, "p0"),), policy=GUARDED))

    assert made.placements[0].slot == stand(1400, "p0")
    assert (made.placements[0].start_s, made.placements[0].promise_s) == (1200, 1400)


def test_conservative_a_slot_moves_up_to_what_comes_free() -> None:
    busy = (running("r", "p0", end=1200),)
    made = plan(Snapshot(1000, (pool(1),), busy, (waiting("a1", 1400, "p0"),), policy=CONSERVATIVE))

    assert made.placements[0].slot == stand(1200, "p0")
    assert (made.placements[0].start_s, made.placements[0].promise_s) == (1200, 1400)


@EITHER
def test_who_starts_before_its_promise_keeps_it(policy: PlanPolicy) -> None:
    made = plan(Snapshot(1000, (pool(1),), queue=(waiting("a1", 1400, "p0"),), policy=policy))

    assert (starts(made), made.placements[0].promise_s) == ({"a1": 1000}, 1400)


def test_what_came_free_goes_to_the_highest_priority_first() -> None:
    busy = (running("r", "p0", end=1500), running("freed", "p1", end=1500))
    low, high = request("low1", priority=50, length=300), request("high2", priority=201, length=300)
    before = settled(Snapshot(1000, (pool(2),), busy, (low,), policy=CONSERVATIVE))
    before = settled(replace(before, queue=(*before.queue, high)))
    assert {r.id: r.slot.start_s for r in before.queue if r.slot} == {"low1": 1500, "high2": 1500}

    made = plan(replace(before, running=busy[:1]))

    assert starts(made) == {"high2": 1000, "low1": 1300}


def test_room_that_a_slot_leaves_behind_is_used_again() -> None:
    queue = (waiting("wide1", 1300, "p0", "p1"), waiting("late2", 1400, "p1", gpus=8))

    assert starts(plan(Snapshot(1000, (pool(2),), queue=queue, policy=CONSERVATIVE))) == {"wide1": 1000, "late2": 1100}


@EITHER
def test_a_tick_that_comes_late_shoves_each_request_by_no_more_than_the_delay(policy: PlanPolicy) -> None:
    assert starts(plan(Snapshot(1005, (pool(1),), queue=chain("a1", "b2", "c3"), policy=policy))) == {
        "a1": 1005,
        "b2": 1105,
        "c3": 1205,
    }


@EITHER
def test_a_late_tick_is_recorded_as_the_cause_for_all_whom_it_delays(policy: PlanPolicy) -> None:
    assert moves(Snapshot(1005, (pool(1),), queue=chain("a1", "b2"), policy=policy)) == {
        "a1": PromiseMove(1000, 1005, Cause.LATE_TICK, "a1"),
        "b2": PromiseMove(1100, 1105, Cause.LATE_TICK, "a1"),
    }


@EITHER
def test_a_promise_with_room_to_spare_is_not_moved(policy: PlanPolicy) -> None:
    queue = (waiting("a1", 1000, "p0", promise=1005), waiting("b2", 1100, "p0", promise=1104))

    assert moves(Snapshot(1005, (pool(1),), queue=queue, policy=policy)) == {"b2": PromiseMove(1104, 1105, Cause.LATE_TICK, "a1")}


@EITHER
def test_a_delay_within_the_tolerance_moves_no_promise(policy: PlanPolicy) -> None:
    policy = replace(policy, promise_tolerance_s=5)

    made = plan(Snapshot(1005, (pool(1),), queue=chain("a1", "b2"), policy=policy))
    assert [(p.slot and p.slot.start_s, p.promise_s, p.moved) for p in made.placements] == [
        (1005, 1000, None),
        (1105, 1100, None),
    ]
    assert moves(Snapshot(1006, (pool(1),), queue=chain("a1"), policy=policy))["a1"].new_s == 1006


@pytest.mark.parametrize("away_s", [0, 59, 60, 100, 600])
@EITHER
def test_where_a_box_is_overdue_after_a_while_without_ticks_nobody_goes_behind_the_others(policy: PlanPolicy, away_s: int) -> None:
    """The delay is both: for so long nobody planned, and then there is the grace of the box."""
    queue = tuple(waiting(f"q{number}", 1000 + 100 * number, "p0") for number in range(8))
    made = plan(Snapshot(1000 + away_s, (pool(1),), (running("slow", "p0", end=1000),), queue, policy=policy))

    behind_s = {placement.slot.start_s - 1000 - 100 * number for number, placement in enumerate(made.placements) if placement.slot}
    assert len(behind_s) == 1
    assert behind_s.pop() <= away_s + policy.overrun_grace_s


@EITHER
def test_an_hour_without_a_tick_starts_all_that_are_due_and_have_room(policy: PlanPolicy) -> None:
    queue = (waiting("a1", 1000, "p0"), waiting("b2", 2000, "p1"), waiting("c3", 3000, "p0"), waiting("d4", 4000, "p1"))

    made = plan(Snapshot(4600, (pool(2),), queue=queue, policy=policy))

    assert starts(made) == {"a1": 4600, "b2": 4600, "c3": 4700, "d4": 4700}
    assert {placement.id for placement in made.starts} == {"a1", "b2"}


@EITHER
def test_an_overdue_box_shoves_those_behind_it_and_is_named_as_the_cause(policy: PlanPolicy) -> None:
    busy = (running("slow", "p0", end=1000),)

    assert moves(Snapshot(1000, (pool(1),), busy, chain("a1", "b2"), policy=policy)) == {
        "a1": PromiseMove(1000, 1060, Cause.OVERRUN, "slow"),
        "b2": PromiseMove(1100, 1160, Cause.OVERRUN, "slow"),
    }


@EITHER
def test_who_waits_for_an_overdue_box_is_told_anew_once_a_grace_period_not_at_every_tick(policy: PlanPolicy) -> None:
    now = Snapshot(1000, (pool(1),), (running("slow", "p0", end=1000),), chain("a1"), policy=policy)
    told = []
    for now_s in range(1000, 1180):
        told += list(moves(replace(now, now_s=now_s)).values())
        now = settled(replace(now, now_s=now_s))

    assert [(move.old_s, move.new_s) for move in told] == [(1000, 1060), (1060, 1120), (1120, 1180)]


@EITHER
def test_a_shoved_request_takes_another_node_if_that_is_sooner(policy: PlanPolicy) -> None:
    busy = (running("slow", "p0", end=1000), running("other", "p1", end=1030))

    made = plan(Snapshot(1000, (pool(2),), busy, chain("a1"), policy=policy))

    assert placements(made)["a1"].start_s == 1030


@EITHER
def test_a_box_that_overruns_in_a_slice_delays_the_slice_only(policy: PlanPolicy) -> None:
    busy = (running("slow", "p0", end=1000, slice="s"),)
    queue = (
        request("same1", slice="s", promise=1000, slot=stand(1000, "p1")),
        request("other2", promise=1000, slot=stand(1000, "p2")),
    )

    assert moves(Snapshot(1000, (pool(3),), busy, queue, policy=policy)) == {"same1": PromiseMove(1000, 1060, Cause.OVERRUN, "slow")}


@EITHER
@pytest.mark.parametrize(
    ("of_pool", "busy", "cause"),
    [
        (pool(2, closed={0: (Window(1000, 9000),)}), (), (Cause.NODE_FAILURE, "p0")),
        (Pool("p", "c", "s", pool(2).nodes[1:]), (), (Cause.NODE_FAILURE, "p0")),
        (pool(2), (running("extended", "p0", end=5000),), (Cause.OVERRUN, "extended")),
    ],
    ids=["closed", "gone", "extended"],
)
def test_when_a_node_is_lost_only_the_slots_on_it_move(
    of_pool: Pool, busy: tuple[Running, ...], cause: tuple[Cause, str], policy: PlanPolicy
) -> None:
    queue = (waiting("lost1", 1000, "p0"), waiting("safe2", 1000, "p1"), waiting("safe3", 1100, "p1"))

    snapshot = Snapshot(1000, (of_pool,), busy, queue, policy=policy)

    assert starts(plan(snapshot)) == {"lost1": 1200, "safe2": 1000, "safe3": 1100}
    assert moves(snapshot) == {"lost1": PromiseMove(1000, 1200, *cause)}


@EITHER
def test_a_pool_that_is_gone_altogether_is_a_failure_not_an_edit(policy: PlanPolicy) -> None:
    lost = replace(waiting("a1", 1000, "p0"), pools=("q",))
    busy = (running("r", "q0", end=1300, pool="q"),)

    assert moves(Snapshot(1000, (pool(1, id="q"),), busy, (lost,), policy=policy)) == {
        "a1": PromiseMove(1000, 1300, Cause.NODE_FAILURE, "p0")
    }


@EITHER
def test_a_lost_slot_that_finds_another_place_in_time_moves_no_promise(policy: PlanPolicy) -> None:
    closed = pool(2, closed={0: (Window(1000, 9000),)})

    made = plan(Snapshot(1000, (closed,), queue=(waiting("a1", 1500, "p0"),), policy=policy))

    assert (placements(made)["a1"].slot, placements(made)["a1"].moved) == (stand(1000, "p1"), None)


@EITHER
def test_of_several_lost_slots_the_higher_priority_and_then_the_older_promise_is_placed_first(policy: PlanPolicy) -> None:
    closed = pool(2, closed={0: (Window(1000, 9000),)})
    queue = (
        replace(waiting("b1", 1200, "p0"), priority=101),
        replace(waiting("c2", 1100, "p0"), priority=101),
        replace(waiting("a3", 1300, "p0"), priority=201),
    )

    assert starts(plan(Snapshot(1000, (closed,), queue=queue, policy=policy))) == {"a3": 1000, "c2": 1100, "b1": 1200}


@EITHER
@pytest.mark.parametrize(
    "edit",
    [
        {"node_count": 2},
        {"pools": ("q",)},
        {"earliest_start_s": 1600},
        {"gpus_per_node": 9},
    ],
)
def test_an_edited_request_that_no_longer_fits_its_slot_loses_it(edit: dict[str, object], policy: PlanPolicy) -> None:
    pools = (pool(2), pool(1, 16, id="q"))
    old = replace(waiting("a1", 1500, "p0"), pools=("p", "q"))
    edited = replace(old, **edit)  # type: ignore[arg-type]

    after = plan(Snapshot(1000, pools, queue=(edited,), policy=policy)).placements[0]
    assert after.slot == plan(Snapshot(1000, pools, queue=(replace(edited, slot=None),), policy=policy)).placements[0].slot
    assert after.slot != old.slot


@EITHER
def test_a_request_that_became_too_long_for_its_gap_moves_and_says_that_it_was_changed(policy: PlanPolicy) -> None:
    long = replace(chain("a1")[0], length_s=150)

    assert moves(Snapshot(1000, (pool(1),), queue=(waiting("b2", 1100, "p0"), long), policy=policy)) == {
        "b2": PromiseMove(1100, 1150, Cause.CHANGED, "a1")
    }


@EITHER
def test_the_place_of_a_lost_slot_is_used_by_others(policy: PlanPolicy) -> None:
    moved_away = replace(waiting("a1", 1500, "p0"), pools=("q",))

    made = plan(
        Snapshot(1000, (pool(1), pool(1, id="q")), (running("r", "p0", end=1500),), (moved_away, waiting("b2", 1600, "p0")), policy=policy)
    )

    assert starts(made) == {"a1": 1000, "b2": 1500}


@EITHER
def test_a_promised_request_without_a_slot_keeps_its_promise_if_it_can(policy: PlanPolicy) -> None:
    busy = (running("r", "p0", end=1300),)

    kept, moved = (plan(Snapshot(1000, (pool(1),), busy, (request("a1", promise=p),), policy=policy)).placements[0] for p in (1300, 1299))

    assert (kept.promise_s, kept.moved) == (1300, None)
    assert (moved.promise_s, moved.moved) == (1300, PromiseMove(1299, 1300, Cause.CHANGED, "a1"))


@EITHER
def test_a_request_whose_nodes_are_all_gone_keeps_what_it_was_promised(policy: PlanPolicy) -> None:
    placement = plan(Snapshot(1000, (pool(0),), queue=(waiting("a1", 1500, "p0"),), policy=policy)).placements[0]

    assert (placement.slot, placement.promise_s, placement.moved) == (None, 1500, None)


LOST = {
    "its node went away": ({"pools": (pool(0),)}, PromiseMove(1500, 3000, Cause.NODE_FAILURE, "p0")),
    "its nodes are fewer GPUs now": ({"pools": (pool(1, 4),)}, PromiseMove(1500, 3000, Cause.NODE_FAILURE, "p0")),
    "it may hold no more": ({"quotas": (Quota("x", pool().shape, 0, 0),)}, PromiseMove(1500, 3000, Cause.QUOTA, "")),
}


@EITHER
@pytest.mark.parametrize("loss", LOST)
def test_who_had_no_place_at_all_for_a_while_is_told_why_it_lost_its_own(loss: str, policy: PlanPolicy) -> None:
    """However many plans there were meanwhile. Nobody says to an owner that he had changed something."""
    change, moved = LOST[loss]
    own = replace(waiting("a1", 1500, "p0"), gpus_per_node=8, project="x")
    snapshot = Snapshot(1000, (pool(1),), queue=(own,), policy=policy)
    for now_s in (1001, 1002, 1003):
        lost = replace(snapshot, now_s=now_s, **change)  # type: ignore[arg-type]
        snapshot = replace(snapshot, queue=stored(lost, plan(lost)))
    assert snapshot.queue[0].slot is None

    busy = (running("r", "p0", end=3000),)
    back = replace(snapshot, now_s=1004, running=busy)

    assert moves(back) == {"a1": moved}
    assert moves(replace(back, edited=back.queue[0], queue=(replace(back.queue[0], length_s=99),))) == {"a1": moved}


@EITHER
def test_whose_slice_may_no_longer_use_a_pool_is_told_so_unless_the_owner_has_just_said_it_himself(policy: PlanPolicy) -> None:
    pools = (pool(1), pool(1, id="q"))
    own = replace(waiting("a1", 1000, "p0"), pools=("q",))
    was = replace(own, pools=("p", "q"))
    snapshot = Snapshot(1000, pools, (running("r", "q0", end=3000),), (own,), policy=policy)

    assert moves(snapshot) == {"a1": PromiseMove(1000, 3000, Cause.ACCESS, "")}
    assert moves(replace(snapshot, edited=was)) == {"a1": PromiseMove(1000, 3000, Cause.CHANGED, "a1")}


def test_guarded_a_lost_slot_goes_to_the_latest_place_that_keeps_its_promise() -> None:
    """Shorter ones can then still go first."""
    closed = pool(2, closed={0: (Window(1000, 9000),)})
    busy = (running("r", "p1", end=1100),)
    queue = (waiting("a1", 1500, "p0"), waiting("b2", 1650, "p1"))

    made = plan(Snapshot(1000, (closed,), busy, queue, policy=GUARDED))

    assert (placements(made)["a1"].slot, placements(made)["a1"].start_s) == (stand(1500, "p1"), 1100)
    assert placements(made)["a1"].moved is None


@EITHER
def test_a_slot_that_was_lost_and_cannot_be_had_in_time_goes_to_the_earliest_place(policy: PlanPolicy) -> None:
    closed = pool(2, closed={0: (Window(1000, 9000),)})
    busy = (running("r", "p1", end=1600),)

    made = plan(Snapshot(1000, (closed,), busy, (waiting("a1", 1500, "p0"),), policy=policy))

    assert placements(made)["a1"].slot == stand(1600, "p1")
    assert placements(made)["a1"].moved == PromiseMove(1500, 1600, Cause.NODE_FAILURE, "p0")


def crowded(*, second_free_at: int = 440, other: Request | None = None, policy: PlanPolicy = GUARDED) -> Snapshot:
    """The long one is due at 500 on p0, which is gone until 2000. The short one, due at 450 on p1, would do with the gap on p2.

    All times are free but for what is busy: p1 until 400, p2 until 440 and from 600 on.
    """
    short = other or waiting("short", 450, "p1", length=120)
    long = waiting("long", 500, "p0", length=200)
    booked = replace(waiting("booked", 600, "p2", length=5000), earliest_start_s=600, is_fixed=True)
    busy = (running("a", "p1", end=400), running("b", "p2", end=second_free_at))
    return Snapshot(300, (pool(3, closed={0: (Window(0, 2000),)}),), busy, (short, long, booked), policy)


def test_a_promise_that_a_failure_would_break_is_kept_where_one_other_slot_can_be_elsewhere_as_early() -> None:
    told = placements(plan(crowded()))

    assert (told["long"].slot, told["long"].promise_s, told["long"].moved) == (stand(500, "p1"), 500, None)
    assert (told["short"].slot, told["short"].promise_s, told["short"].moved) == (stand(450, "p2"), 450, None)


def test_nobody_gives_way_who_would_have_to_wait_for_it() -> None:
    """The gap on p2 begins ten seconds after its slot; its promise would allow that, but what it has is better."""
    late = crowded(second_free_at=460, other=waiting("short", 450, "p1", length=120, promise=480))

    assert moves(late) == {"long": PromiseMove(500, 570, Cause.NODE_FAILURE, "p0")}
    assert placements(plan(late))["short"].slot == stand(450, "p1")


SHORT = waiting("short", 450, "p1", length=120)
KEEPS = {
    "a booking": replace(SHORT, earliest_start_s=450, is_fixed=True),
    "who has a higher priority, and would start sooner than its slot": replace(SHORT, priority=201),
    "for whom others may be evicted": replace(SHORT, may_evict=True),
    "whose project has a guarantee": replace(SHORT, project="entitled"),
    "a workspace that has one": replace(SHORT, slice="entitled"),
    "who would find a place in another pool only": replace(SHORT, pools=("p", "q"), length_s=170),
}


@pytest.mark.parametrize("other", KEEPS.values(), ids=KEEPS.keys())
def test_who_gives_way_to_nobody(other: Request) -> None:
    world = crowded(other=other)
    world = replace(world, pools=(*world.pools, pool(1, id="q")), running=(*world.running, running("c", "q0", end=440, pool="q")))
    world = replace(world, quotas=(Quota("entitled", "shape-p", guaranteed=8),))

    told = placements(plan(world))

    assert told["short"].slot == SHORT.slot
    assert told["long"].moved is not None


def test_a_gang_gives_way_to_nobody_so_its_nodes_stay_near_together() -> None:
    gang = waiting("short", 450, "p1", "p3", length=120)
    world = replace(crowded(other=gang), pools=(pool(4, closed={0: (Window(0, 2000),)}),))

    assert placements(plan(world))["short"].slot == stand(450, "p1", "p3")


def test_nobody_gives_way_for_what_somebody_asked_for() -> None:
    """An extension of the box before it is such a wish, and is refused where it breaks a promise."""
    world = crowded()
    world = replace(world, pools=(pool(3),), running=(*world.running, running("extended", "p0", end=2000)))

    assert moves(world) == {"long": PromiseMove(500, 570, Cause.OVERRUN, "extended")}


def test_nobody_gives_up_nodes_that_were_ordered_for_it() -> None:
    ordered = Pool("s", "cluster-p", "shape-p", tuple(Node(f"s{i}", 8) for i in range(2)), Supply("supply", 100, 30, frozenset()))
    short = replace(request("short", length=120, promise=450, slot=stand(450, "s0", pool="s"), pools=("s",)), orders=("s",))
    long = replace(waiting("long", 500, "p0", length=200), pools=("p", "s"))
    booked = replace(request("booked", length=5000, pools=("s",), promise=600, slot=stand(600, "s1", pool="s")), earliest_start_s=600)
    busy = (running("a", "s0", end=400, pool="s"), running("b", "s1", end=440, pool="s"))
    closed = pool(1, closed={0: (Window(0, 2000),)})

    made = plan(Snapshot(300, (closed, ordered), busy, (short, long, replace(booked, is_fixed=True)), GUARDED))

    assert placements(made)["short"].slot == short.slot
    assert placements(made)["long"].moved is not None


def test_nobody_has_to_give_way_for_a_delay_within_the_tolerance() -> None:
    told = placements(plan(crowded(policy=replace(GUARDED, promise_tolerance_s=70))))

    assert (told["long"].slot, told["long"].moved) == (stand(570, "p1"), None)
    assert told["short"].slot == stand(450, "p1")


@pytest.mark.parametrize("limit", ["EXCHANGES_MOST", "EXCHANGES_EACH"])
def test_a_failure_of_many_nodes_is_mended_with_a_bounded_number_of_tries(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The only try goes to the box that is last in turn, which does not help."""
    last = replace(waiting("last", 590, "p2", length=10), priority=50)
    world = crowded()
    world = replace(world, queue=(*world.queue, last))
    assert moves(world) == {}

    monkeypatch.setattr(repair, limit, 1)

    assert [move.cause for move in moves(world).values()] == [Cause.NODE_FAILURE]


def test_of_several_lost_slots_a_lower_priority_in_time_leaves_the_higher_its_earliest_place() -> None:
    """Both were on p0, and there is room from 700 to 800: the higher is late there, the lower would be in time."""
    high = replace(waiting("high", 500, "p0", length=100), priority=201)
    low = waiting("low", 700, "p0", length=100)
    busy = (running("a", "p1", end=700),)
    later = replace(waiting("booked", 800, "p1", length=500), earliest_start_s=800, is_fixed=True)

    told = placements(plan(Snapshot(300, (pool(2, closed={0: (Window(0, 2000),)}),), busy, (high, low, later), GUARDED)))

    assert (told["high"].slot, told["low"].slot) == (stand(700, "p1"), stand(1300, "p1"))


def test_one_for_whom_nothing_helps_leaves_tries_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    hopeless = replace(waiting("hopeless", 320, "p0", "p1", "p2", length=300), priority=201)
    world = crowded()
    world = replace(world, queue=(*world.queue, hopeless))
    monkeypatch.setattr(repair, "EXCHANGES_EACH", 1)

    assert set(moves(world)) == {"hopeless"}


@EITHER
def test_nodes_that_come_back_move_no_promise_again(policy: PlanPolicy) -> None:
    closed = pool(2, closed={0: (Window(1000, 9000),)})
    snapshot = Snapshot(1000, (closed,), (running("r", "p1", end=1600),), (waiting("a1", 1500, "p0"),), policy=policy)
    after = replace(settled(snapshot), pools=(pool(2),), now_s=1010)

    (placement,) = plan(after).placements

    assert (placement.starts_now, placement.promise_s, placement.moved) == (True, 1600, None)


def test_a_shove_keeps_those_who_fit_behind_it_where_they_are() -> None:
    """There is room of 100 s between b2 and c3, so that c3 is not late."""
    queue = (*chain("a1", "b2"), waiting("c3", 1300, "p0"))

    assert moves(Snapshot(1005, (pool(1),), queue=queue, policy=GUARDED)).keys() == {"a1", "b2"}


@EITHER
def test_closed_nodes_that_hold_nobodys_slot_move_nobody(policy: PlanPolicy) -> None:
    busy = (running("r", "p0", end=1500),)
    snapshot = Snapshot(
        1000, (pool(3, closed={1: (Window(1000, 9000),), 2: (Window(1000, 9000),)}),), busy, (waiting("a1", 1500, "p0"),), policy=policy
    )

    assert plan(snapshot).placements[0].slot == stand(1500, "p0")
    assert moves(snapshot) == {}


@EITHER
def test_an_edit_that_makes_it_shorter_moves_nobody_and_keeps_its_promise(policy: PlanPolicy) -> None:
    busy = (running("r", "p0", end=1500),)
    queue = (waiting("a1", 1500, "p0", length=40), waiting("b2", 1600, "p0"))

    made = plan(Snapshot(1000, (pool(1),), busy, queue, policy=policy))

    assert starts(made) == {"a1": 1500, "b2": 1540}
    assert [(p.promise_s, p.moved) for p in made.placements] == [(1500, None), (1600, None)]
