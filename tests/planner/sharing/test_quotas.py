"""Guarantees, borrowing, reclaim and ceilings; the first tests follow the two teams of docs/how-to/quotas.md."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.causes import Cause, EvictionKind
from planner.engine import plan
from planner.offers import offers
from planner.plan import Plan, Reason
from planner.promises.repair import board_of
from planner.sharing.rights import Rank, Rights
from planner.snapshot import Node, PlanPolicy, Pool, Quota, Request, Running, Snapshot
from tests.effort import examples
from tests.planner.build import EITHER, moves, placements, pool, request, running, settled, slots, starts, waiting
from tests.planner.draw import NOW_S, POLICIES, snapshots

DAY_S = 86_400
POLICY = PlanPolicy(notice_s=600, least_run_s=1800, exit_s=60)
NODES = pool(4, 10)
HALF_EACH = (Quota("A", "shape-p", 20), Quota("B", "shape-p", 20))


def asked(id: str, team: str, *, count: int = 1, gpus: int = 0, length: int = DAY_S, priority: int = 101) -> Request:
    return request(id, project=team, count=count, gpus=gpus, length=length, priority=priority)


def held(id: str, team: str, *nodes: str, gpus: int = 0, since: int = -7200, priority: int = 101, slice: str | None = None) -> Running:
    return running(id, *nodes, end=DAY_S, gpus=gpus, project=team, since=since, priority=priority, slice=slice)


def victims(made: Plan) -> dict[str, set[str]]:
    return {eviction.id: {victim.id for victim in eviction.victims} for eviction in made.evictions}


def test_a_greedy_team_gives_back_what_it_borrowed_when_the_other_wants_its_own() -> None:
    """Scenario 1: team A holds thirty of forty GPUs, B comes for its twenty."""
    greedy = (held("a1", "A", "p0"), held("a2", "A", "p1", since=-7000), held("a3", "A", "p2", since=-6000))
    made = plan(Snapshot(0, (NODES,), greedy, (asked("b", "B", count=2),), POLICY, quotas=HALF_EACH))

    (eviction,) = made.evictions
    assert [(victim.id, victim.kind) for victim in eviction.victims] == [("a3", EvictionKind.RECLAIM)]
    assert eviction.start_s == POLICY.notice_s + POLICY.exit_s  # after the notice, and the way out
    assert starts(made)["b"] == eviction.start_s
    assert placements(made)["b"].promise_s == eviction.start_s


def test_a_team_with_a_ceiling_cannot_become_greedy() -> None:
    """Scenario 1 again: with no more than twenty allowed, the third ten wait for the first."""
    quotas = (Quota("A", "shape-p", 20, 20), Quota("B", "shape-p", 20, 20))
    holds = (held("a1", "A", "p0"), held("a2", "A", "p1"))
    made = plan(Snapshot(0, (NODES,), holds, (asked("a3", "A"), asked("b", "B", count=2)), POLICY, quotas=quotas))

    assert starts(made) == {"a3": DAY_S, "b": 0}
    assert placements(made)["a3"].explanation.reason == Reason.WAITS_FOR_QUOTA
    assert made.evictions == ()


def test_small_boxes_are_packed_so_that_the_large_one_starts_at_once() -> None:
    """Scenario 2: six boxes of three GPUs leave two whole nodes for one of eight."""
    small = tuple(asked(f"a{i}", "A", gpus=3) for i in range(6))
    made = plan(Snapshot(0, (NODES,), (), (*small, asked("b", "B", gpus=8)), POLICY, quotas=HALF_EACH))

    nodes = [placement.slot.nodes[0] for placement in made.placements if placement.slot and placement.id != "b"]
    assert sorted(nodes.count(node) for node in set(nodes)) == [3, 3]
    assert set(starts(made).values()) == {0}


def test_idle_gpus_are_lent_and_come_back_when_they_are_wanted() -> None:
    """Scenario 3: A runs on all forty while B rests; then B comes."""
    first = plan(Snapshot(0, (NODES,), (), tuple(asked(f"a{i}", "A") for i in range(4)), POLICY, quotas=HALF_EACH))
    assert set(starts(first).values()) == {0}

    lent = tuple(held(f"a{i}", "A", f"p{i}", since=-7200 + i) for i in range(4))
    back = plan(Snapshot(0, (NODES,), lent, (asked("b", "B"),), POLICY, quotas=HALF_EACH))
    assert victims(back) == {"b": {"a3"}}


def test_an_offer_says_whether_it_would_borrow() -> None:
    snapshot = Snapshot(0, (NODES,), (held("a1", "A", "p0"),), (), POLICY, quotas=HALF_EACH)
    for count, borrows in [(1, False), (2, True)]:
        (offer,) = offers(snapshot, asked("new", "A", count=count))
        assert (offer.start_s, offer.borrows) == (0, borrows)
    (offer,) = offers(replace(snapshot, quotas=()), asked("new", "A", count=3))
    assert not offer.borrows


def test_nobody_takes_back_more_than_its_guarantee() -> None:
    boxes = (held("a1", "A", "p0"), held("a2", "A", "p1"), held("b1", "B", "p2"), held("b2", "B", "p3"))
    made = plan(Snapshot(0, (NODES,), boxes, (asked("b3", "B"),), POLICY, quotas=HALF_EACH))

    assert made.evictions == ()
    assert starts(made)["b3"] == DAY_S


def test_of_a_team_over_its_guarantee_the_lowest_priority_has_borrowed_then_the_youngest() -> None:
    boxes = (
        held("old", "A", "p0", since=-9000),
        held("high", "A", "p1", priority=150, since=-5000),
        held("young", "A", "p2", since=-6000),
        held("low", "A", "p3", priority=50, since=-9999),
    )
    one = plan(Snapshot(0, (NODES,), boxes, (asked("b", "B"),), POLICY, quotas=HALF_EACH))
    two = plan(Snapshot(0, (NODES,), boxes, (asked("b", "B", count=2),), POLICY, quotas=HALF_EACH))

    assert victims(one) == {"b": {"low"}}
    assert victims(two) == {"b": {"low", "young"}}


def test_least_work_is_lost_even_if_more_boxes_end() -> None:
    """Eight boxes of an hour on one node have done less than one of ten hours on another."""
    quotas = (Quota("A", "shape-p", 0), Quota("B", "shape-p", 8))
    small = tuple(held(f"s{i}", "A", "p0", gpus=1, since=-3600) for i in range(8))
    large = held("large", "A", "p1", since=-36_000)
    made = plan(Snapshot(0, (pool(2, 8),), (*small, large), (asked("b", "B"),), POLICY, quotas=quotas))
    assert victims(made) == {"b": {box.id for box in small}}

    large = replace(large, started_s=-3000)
    made = plan(Snapshot(0, (pool(2, 8),), (*small, large), (asked("b", "B"),), POLICY, quotas=quotas))
    assert victims(made) == {"b": {"large"}}


def test_a_box_that_has_just_begun_may_run_for_a_while() -> None:
    quotas = (Quota("A", "shape-p", 0), Quota("B", "shape-p", 10))
    made = plan(Snapshot(0, (pool(1, 10),), (held("a", "A", "p0", since=-100),), (asked("b", "B"),), POLICY, quotas=quotas))

    assert starts(made)["b"] == POLICY.least_run_s - 100 + POLICY.exit_s


def test_nobody_is_evicted_for_a_gain_of_minutes() -> None:
    quotas = (Quota("A", "shape-p", 0), Quota("B", "shape-p", 10))
    soon = replace(held("a", "A", "p0"), end_s=POLICY.notice_s + POLICY.exit_s + POLICY.eviction_gain_s - 1)
    made = plan(Snapshot(0, (pool(1, 10),), (soon,), (asked("b", "B"),), POLICY, quotas=quotas))

    assert made.evictions == ()
    assert starts(made)["b"] == soon.end_s


@pytest.mark.parametrize(("is_open", "end_s"), [(False, DAY_S), (True, -5)])
def test_a_box_on_its_way_in_or_out_is_left_alone(is_open: bool, end_s: int) -> None:
    quotas = (Quota("A", "shape-p", 0), Quota("B", "shape-p", 10))
    box = replace(held("a", "A", "p0"), is_open=is_open, end_s=end_s)
    made = plan(Snapshot(0, (pool(1, 10),), (box,), (asked("b", "B"),), POLICY, quotas=quotas))

    assert made.evictions == ()


def test_within_a_project_a_slice_takes_back_what_is_its_own() -> None:
    quotas = (Quota("A", "shape-p", 20), Quota("mine", "shape-p", 10))
    boxes = (held("a1", "A", "p0", slice="other"), held("a2", "A", "p1", slice="third", since=-7000))
    own = replace(asked("q", "A"), slice="mine")
    made = plan(Snapshot(0, (pool(2, 10),), boxes, (own,), POLICY, quotas=quotas))

    assert victims(made) == {"q": {"a2"}}


def test_who_waits_to_borrow_makes_way_and_is_told_why() -> None:
    """A slot of a borrower lies where the entitled one can start; nothing runs that could be ended."""
    quotas = (Quota("A", "shape-p", 0), Quota("B", "shape-p", 10))
    fixed = replace(held("b0", "B", "p0"), end_s=5000)
    borrower = replace(waiting("a", 5000, "p0", length=DAY_S), project="A")
    snapshot = Snapshot(0, (pool(1, 10),), (fixed,), (borrower, asked("b", "B")), POLICY, quotas=quotas)

    assert slots(plan(snapshot)) == {"b": 5000, "a": 5000 + DAY_S}
    assert moves(snapshot)["a"].cause == Cause.RECLAIM
    assert moves(snapshot)["a"].cause_id == "b"


def test_an_offer_says_whom_it_would_end() -> None:
    quotas = (Quota("A", "shape-p", 0), Quota("B", "shape-p", 10))
    snapshot = Snapshot(0, (pool(1, 10),), (held("a", "A", "p0"),), (), POLICY, quotas=quotas)

    (offer,) = offers(snapshot, asked("b", "B"))

    assert offer.start_s == POLICY.notice_s + POLICY.exit_s
    assert [victim.id for eviction in offer.evictions for victim in eviction.victims] == ["a"]


def test_what_is_larger_than_the_ceiling_can_never_start_and_the_most_that_could_is_told() -> None:
    quotas = (Quota("A", "shape-p", 0, 20),)
    made = plan(Snapshot(0, (NODES,), (), (asked("q", "A", count=3),), POLICY, quotas=quotas))

    explanation = placements(made)["q"].explanation
    assert explanation.reason == Reason.NEVER_FITS
    assert explanation.most_node_count == 2


def test_a_ceiling_below_what_is_held_takes_nothing_away_but_lets_nothing_new_in() -> None:
    quotas = (Quota("A", "shape-p", 0, 10),)
    boxes = (held("a1", "A", "p0"), replace(held("a2", "A", "p1"), end_s=2 * DAY_S))
    made = plan(Snapshot(0, (NODES,), boxes, (asked("a3", "A"),), POLICY, quotas=quotas))

    assert starts(made) == {"a3": 2 * DAY_S}
    assert made.evictions == ()


def test_those_without_hope_do_not_stand_in_the_way_of_who_has_a_right() -> None:
    """However many there are, and however high their priority."""
    boxes = tuple(held(f"a{i}", "A", f"p{i}", since=-7200 + i) for i in range(4))
    hopeless = tuple(asked(f"x{i}", "A", priority=110) for i in range(40))
    made = plan(Snapshot(0, (NODES,), boxes, (*hopeless, asked("b", "B")), POLICY, quotas=HALF_EACH))

    assert victims(made) == {"b": {"a3"}}


def test_nobody_gets_more_than_its_guarantee_by_asking_again_at_a_higher_priority() -> None:
    boxes = (
        *(held(f"b{i}", "B", f"p{i}", priority=50) for i in range(2)),
        *(held(f"c{i}", "C", f"p{i}", priority=200) for i in (2, 3)),
    )
    made = plan(Snapshot(0, (NODES,), boxes, (asked("more", "B", count=2, priority=51),), POLICY, quotas=(Quota("B", "shape-p", 20),)))

    assert made.evictions == ()


def test_what_cannot_run_at_the_same_time_does_not_use_up_the_guarantee() -> None:
    """Two of one slice that runs one at a time, and one that starts in weeks, are before the sibling in turn."""
    boxes = tuple(held(f"a{i}", "A", f"p{i}", since=-7200 + i) for i in range(4))
    serial = tuple(replace(asked(f"s{i}", "B", length=3600 + i), slice="S") for i in range(2))
    later = replace(asked("later", "B", length=60), earliest_start_s=20 * DAY_S)
    made = plan(Snapshot(0, (NODES,), boxes, (*serial, later, asked("sibling", "B")), POLICY, quotas=HALF_EACH))

    assert victims(made).keys() == {"s0", "sibling"}


def test_a_limit_without_a_guarantee_makes_nobody_a_borrower() -> None:
    snapshot = Snapshot(0, (NODES,), (), (), POLICY, quotas=(Quota("Z", "shape-p", 0, 10),))

    assert [offer.borrows for offer in offers(snapshot, asked("q", "A"))] == [False]


def test_a_little_later_is_better_than_much_more_harm() -> None:
    """The box that has just begun is free ten seconds after the one with a day's work."""
    quotas = (Quota("A", "shape-p", 0), Quota("B", "shape-p", 10))
    young = held("young", "A", "p0", since=-(POLICY.least_run_s - POLICY.notice_s - 10), priority=1)
    old = held("old", "A", "p1", since=-80_000, priority=300)
    made = plan(Snapshot(0, (pool(2, 10),), (young, old), (asked("b", "B"),), POLICY, quotas=quotas))

    assert victims(made) == {"b": {"young"}}


def test_a_slot_that_others_end_for_is_promised() -> None:
    """It had a late promise already; from now on nothing puts it off to that again."""
    quotas = (Quota("A", "shape-p", 0), Quota("B", "shape-p", 10))
    late = replace(waiting("b", DAY_S, "p0", length=DAY_S), project="B")
    made = plan(Snapshot(0, (pool(1, 10),), (held("a", "A", "p0"),), (late,), POLICY, quotas=quotas))

    assert placements(made)["b"].promise_s == POLICY.notice_s + POLICY.exit_s


MIXED = Pool("p", "c", "s", (Node("p0", 4), Node("p1", 8)))


@EITHER
def test_a_whole_node_counts_below_a_ceiling_as_what_it_has_before_it_starts_as_after(policy: PlanPolicy) -> None:
    """Four GPUs and eight are no more than twelve, so both start at once: the second neither later nor later than it was told."""
    snapshot = Snapshot(0, (MIXED,), (), (request("a"), request("b")), policy, quotas=(Quota("x", "s", 0, 12),))

    assert starts(plan(snapshot)) == {"a": 0, "b": 0}


@EITHER
def test_slots_below_a_ceiling_stand_again_in_any_order(policy: PlanPolicy) -> None:
    """The one on the larger node is the first to be put back; the other needs no more than its own node has."""
    slotted = (waiting("small", 50, "p0"), waiting("large", 40, "p1"))
    snapshot = Snapshot(0, (MIXED,), (running("r", "p0", "p1", end=40, project="y"),), slotted, policy, quotas=(Quota("x", "s", 0, 12),))

    assert moves(snapshot) == {}


@EITHER
def test_whole_nodes_are_let_in_below_a_ceiling_if_the_largest_could_be(policy: PlanPolicy) -> None:
    """The one that asks is told so. Four of twelve are left, as many as the free node has, and it is not asked which is free."""
    snapshot = Snapshot(0, (MIXED,), (running("r", "p1", end=70),), (request("b"),), policy, quotas=(Quota("x", "s", 0, 12),))

    made = plan(snapshot)

    assert starts(made) == {"b": 70}
    assert placements(made)["b"].explanation.reason == Reason.WAITS_FOR_QUOTA


@EITHER
def test_who_waits_for_a_node_is_not_told_that_it_waits_for_a_ceiling_below_which_whole_nodes_leave_room(policy: PlanPolicy) -> None:
    queue = (request("small", length=30, priority=201), request("large", length=60, priority=200), request("next", gpus=1))
    made = plan(Snapshot(0, (MIXED,), (), queue, policy, quotas=(Quota("x", "s", 0, 13),)))

    assert starts(made) == {"small": 0, "large": 0, "next": 30}
    explanation = placements(made)["next"].explanation
    assert (explanation.reason, [each.id for each in explanation.blockers]) == (Reason.WAITS_FOR_GPUS, ["small"])


def test_what_a_new_ceiling_puts_off_is_told_so() -> None:
    own = replace(waiting("q", 100, "p1", length=50), project="A")
    snapshot = Snapshot(0, (pool(2, 10),), (held("a", "A", "p0"),), (own,), POLICY, quotas=(Quota("A", "shape-p", 0, 10),))

    assert moves(snapshot)["q"].cause == Cause.QUOTA


@st.composite
def limited(draw: st.DrawFn) -> Snapshot:
    """Draws small snapshots of two projects with ceilings and guarantees, on nodes of several sizes."""
    drawn = draw(snapshots(policies=POLICIES))
    pools = tuple(
        replace(p, nodes=tuple(replace(n, gpu_count=n.gpu_count * draw(st.sampled_from([1, 1, 2]))) for n in p.nodes)) for p in drawn.pools
    )
    quotas = tuple(
        Quota(owner, "s", draw(st.integers(0, 4)), draw(st.sampled_from([None, 2, 3, 5, 9])))
        for owner in draw(st.sets(st.sampled_from("xyab")))
    )
    policy = replace(drawn.policy, notice_s=2, least_run_s=1, eviction_gain_s=1)
    projects = st.sampled_from("xy")
    gpus = st.sampled_from([None, None, 0])
    queue = tuple(
        replace(r, project=draw(projects), may_evict=draw(st.booleans()), gpus_per_node=r.gpus_per_node if (g := draw(gpus)) is None else g)
        for r in drawn.queue
    )
    boxes = tuple(
        replace(b, project=draw(projects), priority=draw(st.sampled_from([50, 101])), started_s=NOW_S - draw(st.integers(0, 9)))
        for b in drawn.running
    )
    return replace(drawn, pools=pools, queue=queue, running=boxes, quotas=quotas, policy=policy)


def use_over(boxes: Iterable[tuple[str, str, int, int, int]], owner: str) -> int:
    """The most GPUs that the owner's boxes (project, slice, GPUs, start, end) hold at one moment."""
    own = [(start, end, gpus) for project, slice_, gpus, start, end in boxes if owner in {project, slice_}]
    return max((sum(gpus for s, e, gpus in own if s <= at < e) for at, _, _ in own), default=0)


@examples(400)
@given(limited())
def test_no_ceiling_is_exceeded_at_any_moment_by_anything_that_is_planned(snapshot: Snapshot) -> None:
    made = plan(snapshot)
    sizes = {node.id: node.gpu_count for p in snapshot.pools for node in p.nodes}
    by_id = {r.id: r for r in snapshot.queue}
    ended = {victim.id: victim.frees_s for eviction in made.evictions for victim in eviction.victims}
    now = [
        (b.project, b.slice, sum(b.gpus_per_node or sizes[node] for node in b.nodes), NOW_S, max(ended.get(b.id, b.end_s), NOW_S + 1))
        for b in snapshot.running
    ]
    planned = []
    for placement in made.placements:
        if placement.slot is not None:
            r, slot = by_id[placement.id], placement.slot
            gpus = sum(r.gpus_per_node or sizes[node] for node in slot.nodes)
            planned.append((r.project, r.slice, gpus, slot.start_s, slot.start_s + r.length_s))
    for quota in snapshot.quotas:
        if quota.most is not None and planned:
            assert use_over([*now, *planned], quota.owner) <= max(quota.most, use_over(now, quota.owner))


@examples(150)
@given(limited())
def test_below_ceilings_too_everybody_starts_when_expected(snapshot: Snapshot) -> None:
    """Second by second nobody comes, nobody evicts, and every box takes its whole length."""
    quiet = replace(snapshot, quotas=tuple(replace(q, guaranteed=0) for q in snapshot.quotas))
    quiet = replace(quiet, queue=tuple(replace(r, may_evict=False) for r in quiet.queue))
    quiet = replace(quiet, running=tuple(b for b in quiet.running if b.end_s > NOW_S))
    expected = starts(plan(quiet))
    world = quiet
    happened: dict[str, int] = {}
    for now_s in range(NOW_S, NOW_S + 80):
        world = replace(world, now_s=now_s, running=tuple(b for b in world.running if b.end_s > now_s))
        happened |= {placement.id: now_s for placement in plan(world).starts}
        world = settled(world)

    assert {id_: start_s for id_, start_s in expected.items() if start_s is not None} == happened


@examples(400)
@given(limited())
def test_whoever_is_evicted_had_notice_and_its_time_and_whoever_gains_starts_sooner(snapshot: Snapshot) -> None:
    made = plan(snapshot)
    boxes, queue = {b.id: b for b in snapshot.running}, {r.id: r for r in snapshot.queue}
    ends_s = {box.id: box.end_s for box in snapshot.running}
    for eviction in made.evictions:
        own = queue[eviction.id]
        assert eviction.start_s + snapshot.policy.eviction_gain_s <= eviction.instead_s
        assert eviction.start_s >= own.earliest_start_s
        for victim in eviction.victims:
            box = boxes[victim.id]
            # Each time sooner, where it ends for several.
            assert NOW_S + snapshot.policy.notice_s <= victim.frees_s < ends_s[victim.id]
            ends_s[victim.id] = victim.frees_s
            assert victim.frees_s - box.started_s >= snapshot.policy.least_run_s
            # Not before it starts; of a box that ends early it may need just the last part.
            assert eviction.start_s <= victim.frees_s < eviction.start_s + own.length_s
            if victim.kind == EvictionKind.PRIORITY:
                assert own.may_evict
                assert box.evictable
                assert box.priority < own.priority
            else:
                assert snapshot.quotas


@examples(200)
@given(limited())
def test_no_box_ends_in_vain(snapshot: Snapshot) -> None:
    """Were any one of them spared, the one that it ends for could not start then."""
    made = plan(replace(snapshot, queue=snapshot.queue[:1]))
    for eviction in made.evictions:
        for spared in eviction.victims:
            boxes = tuple(replace(b, is_open=b.id in {v.id for v in eviction.victims} and b.id != spared.id) for b in snapshot.running)
            again = plan(replace(snapshot, running=boxes, queue=snapshot.queue[:1]))
            start_s = starts(again)[eviction.id]
            assert start_s is not None
            assert start_s > eviction.start_s


def test_nobody_has_to_end_before_whom_it_ends_for_can_start() -> None:
    """It works on until then, whatever else the other has to wait for: its own time, or a node that nobody can take from."""
    later = replace(asked("b", "B"), earliest_start_s=40_000)
    full = tuple(held(f"a{i}", "A", f"p{i}", since=-7200 - i) for i in range(4))
    (eviction,) = plan(Snapshot(0, (NODES,), full, (later,), POLICY, quotas=HALF_EACH)).evictions
    assert ([victim.frees_s for victim in eviction.victims], eviction.start_s) == ([40_000], 40_000)

    other = replace(held("c", "C", "p3"), end_s=36_000)
    quotas = (Quota("A", "shape-p", 0), Quota("B", "shape-p", 30), Quota("C", "shape-p", 10))
    gang = asked("b", "B", count=4, gpus=7)
    (eviction,) = plan(Snapshot(0, (NODES,), (*full[:3], other), (gang,), POLICY, quotas=quotas)).evictions
    assert ({victim.frees_s for victim in eviction.victims}, eviction.start_s) == ({36_000}, 36_000)


def test_a_box_that_is_to_end_for_one_later_ends_sooner_for_another() -> None:
    """Otherwise a guarantee would have to wait for the end that was put off."""
    later = replace(asked("b", "B", length=600), earliest_start_s=40_000)
    full = tuple(held(f"a{i}", "A", f"p{i}", since=-7200 - i) for i in range(4))
    quotas = (Quota("A", "shape-p", 20), Quota("B", "shape-p", 10), Quota("C", "shape-p", 10))
    first = plan(snapshot := Snapshot(0, (NODES,), full, (later,), POLICY, quotas=quotas))
    (put_off,) = first.evictions[0].victims
    assert put_off.frees_s == 40_000

    told = tuple(replace(box, end_s=40_000) if box.id == put_off.id else box for box in full)
    queue = (*settled(snapshot).queue, asked("c", "C", length=600))
    second = plan(replace(snapshot, now_s=10, running=told, queue=queue))

    assert [(eviction.id, victim.id, victim.frees_s) for eviction in second.evictions for victim in eviction.victims] == [
        ("c", put_off.id, 10 + POLICY.notice_s + POLICY.exit_s)
    ]
    assert starts(second) == {"b": 40_000, "c": 670}


def test_without_quotas_and_may_evict_nothing_is_ever_ended() -> None:
    @examples(100)
    @given(snapshots())
    def check(snapshot: Snapshot) -> None:
        assert plan(snapshot).evictions == ()

    check()


def test_who_waits_hears_whether_it_is_to_run_within_its_guarantee_or_on_what_it_borrows() -> None:
    """Its offer said so: what A holds fills its guarantee by half, so one more box of ten is its own, and the next borrows."""
    holds = (held("a1", "A", "p0"), held("b1", "B", "p1"))
    queue = tuple(asked(id, "A", gpus=10) for id in ("a2", "a3"))
    made = placements(plan(Snapshot(0, (NODES,), holds, queue, POLICY, quotas=HALF_EACH)))

    assert {id: placement.borrows for id, placement in made.items()} == {"a2": False, "a3": True}


def test_who_starts_when_what_its_project_holds_is_over_borrows_nothing() -> None:
    """A's guarantee is full now, and nobody of A runs any more when its second box starts: its slice runs one at a time."""
    holds = (held("a1", "A", "p0", "p1", slice="one"),)
    own = replace(asked("a2", "A", count=2), slice="one")
    snapshot = Snapshot(0, (NODES,), holds, (own,), POLICY, quotas=HALF_EACH)

    assert not placements(plan(snapshot))["a2"].borrows
    assert [offer.borrows for offer in offers(replace(snapshot, queue=()), own)] == [False]


def test_who_goes_first_in_its_project_borrows_nothing_though_others_of_it_run() -> None:
    """Its priority gives it the place of a box of A within A's guarantee: that one borrows from then on."""
    holds = (held("a1", "A", "p0", "p1"),)
    made = plan(Snapshot(0, (NODES,), holds, (asked("a2", "A", count=2, priority=200),), POLICY, quotas=HALF_EACH))

    assert starts(made) == {"a2": 0}
    assert not placements(made)["a2"].borrows


def test_who_starts_when_the_box_before_it_of_its_own_workspace_is_over_does_not_borrow_for_that_one() -> None:
    """Both of slice two go before what slice one runs, and they never run together: each alone is within A's guarantee."""
    holds = (held("a1", "A", "p0", "p1", slice="one"),)
    first, second = (
        replace(asked(id, "A", count=count, length=length, priority=200), slice="two")
        for id, count, length in (("a2", 1, 3600), ("a3", 2, DAY_S))
    )
    made = plan(Snapshot(0, (NODES,), holds, (first, second), POLICY, quotas=HALF_EACH))

    assert starts(made) == {"a2": 0, "a3": 3600}
    assert [placements(made)[id].borrows for id in ("a2", "a3")] == [False, False]


def most_at_once(boxes: Iterable[tuple[str, int]]) -> int:
    """The most GPUs that these boxes (slice, GPUs) can hold at one moment: by all choices of one or none of each slice."""
    of_slice: dict[str, list[int]] = {}
    for slice_, gpus in boxes:
        of_slice.setdefault(slice_, [0]).append(gpus)
    return max(sum(choice) for choice in product(*of_slice.values()))


def within_by_the_book(snapshot: Snapshot, project: str) -> dict[str, Rank]:
    """Returns in order, among all in the project that run or have a slot, each that fits beside all before it that can run when it does."""
    board, _ = board_of(snapshot)
    guaranteed = {quota.owner: quota.guaranteed for quota in snapshot.quotas}
    shares = [
        (gpus > guaranteed.get(box.slice, 0), -box.priority, False, box.began_s, box.id, box.slice or box.id, gpus)
        for box in board.running.values()
        if box.project == project
        for gpus in [board.gpus_of(box)]
    ]
    shares += [
        (gpus > guaranteed.get(own.slice, 0), -own.priority, True, place, own.id, own.slice or own.id, gpus)
        for place, waiting in enumerate(board.order)
        if (own := waiting.request).project == project and board.has_slot(waiting)
        for gpus in board.gpus_by_shape(own).values()
    ]
    before: list[tuple[str, int]] = []
    ranks = {}
    for is_beyond, _, _, _, id, slice_, gpus in sorted(shares):
        fits = gpus + most_at_once(each for each in before if each[0] != slice_) <= guaranteed.get(project, 0)
        before += [(slice_, gpus)] if fits else []
        ranks[id] = Rank.BORROWS if not fits else Rank.OF_PROJECT if is_beyond else Rank.OF_SLICE
    return ranks


@examples(300)
@given(limited(), st.data())
def test_the_order_within_a_project_is_that_by_the_book(drawn: Snapshot, data: st.DataObject) -> None:
    # A slice runs one at a time.
    whose = data.draw(st.permutations([box.id for box in drawn.running]))[:2]
    boxes = tuple(replace(box, slice="ab"[whose.index(box.id)] if box.id in whose else box.id) for box in drawn.running)
    snapshot = settled(replace(drawn, running=boxes))
    board, _ = board_of(snapshot)
    rights = Rights(board, snapshot.quotas)

    for project in "xy":
        by_the_book = within_by_the_book(snapshot, project)
        for each in board.order:
            if each.request.id in by_the_book and any(quota.guaranteed for quota in snapshot.quotas):
                assert rights.of_waiting(each.request, "s", NOW_S).within == by_the_book[each.request.id]


def test_where_nothing_is_guaranteed_nobody_borrows_and_what_never_starts_does_not_either() -> None:
    made = plan(Snapshot(0, (NODES,), (), (asked("a1", "A"), asked("a2", "A", count=9)), POLICY))
    assert not any(placement.borrows for placement in made.placements)


@examples(200)
@given(limited())
def test_whoever_files_what_it_was_offered_borrows_as_the_offer_said(snapshot: Snapshot) -> None:
    """It asks for one pool; with all of its pools it is in one of them."""
    *others, newcomer = snapshot.queue
    newcomer = replace(newcomer, pools=newcomer.pools[:1])
    found = offers(replace(snapshot, queue=tuple(others)), newcomer)
    placement = placements(plan(replace(snapshot, queue=(*others, newcomer))))[newcomer.id]

    assert [offer.borrows for offer in found] == ([placement.borrows] if placement.slot else [])
    assert placement.slot or not placement.borrows
