"""The planner's victims are compared with every choice: the highest priority, then the work lost, then the number of boxes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from unittest.mock import patch

from hypothesis import assume, given
from hypothesis import strategies as st

from planner.causes import PlannedEviction, victims_of
from planner.engine import plan
from planner.offers import offers
from planner.sharing import bookings
from planner.snapshot import Node, PlanPolicy, Pool, Quota, Request, Running, SlackSettings, Snapshot
from tests.effort import examples
from tests.planner.build import GENEROUS, request
from tests.planner.draw import NOW_S
from tests.planner.oracle import Oracle

POLICY = PlanPolicy(notice_s=2, least_run_s=4, exit_s=1, eviction_gain_s=2, slack=SlackSettings(of_length=0.0))
OWN = "wants"
HOUR_S = 3600
# What B holds is its own, and what A holds is borrowed.
ENTITLED = (Quota("A", "s", 0), Quota("B", "s", 1000))
Boxes = tuple[Running, ...]


@st.composite
def crowded(draw: st.DrawFn, *, counts: tuple[int, ...] = (3, 5, 6, 6)) -> Snapshot:
    """One of B wants room on at most six nodes, on which boxes of A and B stand, as many as there is room for."""
    nodes = tuple(Node(f"n{i}", draw(st.sampled_from([2, 4, 4]))) for i in range(draw(st.sampled_from([1, 2, 2, 3, 4, 6]))))
    boxes, left = [], {node.id: node.gpu_count for node in nodes}
    for i in range(draw(st.sampled_from(counts))):
        gpus = draw(st.sampled_from([1, 1, 2, 3, 4]))
        roomy = [id_ for id_, count in left.items() if count >= gpus]
        if roomy:
            chosen = tuple(draw(st.permutations(roomy))[: draw(st.sampled_from([1, 1, 1, 2]))])
            boxes.append(draw(holders(f"b{i}", chosen, gpus)))
            left |= {id_: left[id_] - gpus for id_ in chosen}
    own = Request(
        OWN,
        slice=draw(st.sampled_from([OWN, OWN, "b0"])),
        project="B",
        priority=draw(st.sampled_from([101, 150])),
        rank=0,
        node_count=draw(st.sampled_from([1, 1, 1, 2, 3])),
        gpus_per_node=draw(st.sampled_from([0, 1, 2, 3, 4])),
        length_s=draw(st.integers(1, 8)),
        pools=("p",),
        may_evict=draw(st.sampled_from([True, True, False])),
    )
    quotas = draw(st.sampled_from([(), ENTITLED]))
    return Snapshot(NOW_S, (Pool("p", "c", "s", nodes),), tuple(boxes), (own,), POLICY, memory=GENEROUS, quotas=quotas)


@st.composite
def holders(draw: st.DrawFn, id_: str, nodes: tuple[str, ...], gpus: int) -> Running:
    return Running(
        id_,
        slice=id_,
        project=draw(st.sampled_from("AAB")),
        priority=draw(st.sampled_from([50, 50, 50, 100, 120])),
        pool="p",
        nodes=nodes,
        gpus_per_node=gpus,
        end_s=NOW_S + draw(st.integers(1, 30)),
        started_s=NOW_S - draw(st.integers(0, 20)),
        evictable=draw(st.integers(0, 7)) > 0,
        is_open=draw(st.integers(0, 7)) > 0,
    )


def frees_s(box: Running) -> int:
    return max(NOW_S + POLICY.notice_s, box.started_s + POLICY.least_run_s) + POLICY.exit_s


def may_end(snapshot: Snapshot, own: Request, box: Running) -> bool:
    """The written rules say: borrowed, or of lower priority and evictable."""
    if not box.is_open or frees_s(box) >= box.end_s:
        return False
    is_borrowed = bool(snapshot.quotas) and box.project == "A"
    return is_borrowed or (own.may_evict and box.evictable and box.priority < own.priority)


def start_s(snapshot: Snapshot, own: Request, ended: Boxes) -> int:
    """The first second at which it has room, if these end early."""
    has_room, at_s = room_of(snapshot, own, ended), NOW_S
    while not has_room(at_s):
        at_s += 1
    return at_s


def room_of(snapshot: Snapshot, own: Request, ended: Boxes) -> Callable[[int], bool]:
    """Has it room at a second, if these end early?"""
    boxes = tuple(replace(box, end_s=frees_s(box)) if box in ended else box for box in snapshot.running)
    oracle, nodes = (
        Oracle(replace(snapshot, running=boxes)),
        [node.id for node in snapshot.pools[0].nodes if node.gpu_count >= own.gpus_per_node],
    )
    return lambda at_s: sum(oracle.fits(own, [node], at_s) for node in nodes) >= own.node_count


def harm(ended: Boxes, at_s: int = NOW_S) -> tuple[int, int, int]:
    lost = sum(len(box.nodes) * box.gpus_per_node * (at_s - box.started_s) for box in ended)
    return max((box.priority for box in ended), default=0), lost, len(ended)


def choices(boxes: Boxes) -> Iterator[Boxes]:
    for count in range(len(boxes) + 1):
        yield from combinations(boxes, count)


def least_harm(snapshot: Snapshot, own: Request) -> tuple[tuple[int, int, int], int] | None:
    """Returns the choices by which it starts as soon as by any, or less than the gain later, and until when. None: nobody is to end."""
    able = tuple(box for box in snapshot.running if may_end(snapshot, own, box))
    before_s = start_s(snapshot, own, ()) - POLICY.eviction_gain_s
    soonest_s = start_s(snapshot, own, able)
    if soonest_s >= before_s:
        return None
    until_s = min(soonest_s + POLICY.eviction_gain_s, before_s)
    in_order = sorted(choices(able), key=harm)
    return next(harm(ended) for ended in in_order if start_s(snapshot, own, ended) < until_s), until_s


@examples(300)
@given(crowded())
def test_of_all_choices_of_whom_to_evict_the_one_that_harms_least_is_made(snapshot: Snapshot) -> None:
    (own,) = snapshot.queue
    assume(sum(node.gpu_count >= own.gpus_per_node for node in snapshot.pools[0].nodes) >= own.node_count)

    made, least = plan(snapshot).evictions, least_harm(snapshot, own)

    assert len(made) == (least is not None)
    if least is not None:
        ended = ended_by(snapshot, made[0])
        assert (harm(ended), made[0].start_s) == (least[0], start_s(snapshot, own, ended))
        assert made[0].start_s < least[1]


@examples(300)
@given(crowded(), st.integers(1, 20))
def test_a_booking_has_its_time_wherever_others_can_be_told_to_go_before_it_and_they_end_for_it_and_no_sooner(
    snapshot: Snapshot, ahead_s: int
) -> None:
    at_s = NOW_S + ahead_s
    (own,) = (replace(each, is_fixed=True, earliest_start_s=at_s) for each in snapshot.queue)
    snapshot = replace(snapshot, queue=(own,))
    able = tuple(box for box in snapshot.running if may_end(snapshot, own, box))
    enough = [ended for ended in choices(able) if room_of(snapshot, own, ended)(at_s)]

    made, offered = plan(snapshot), offers(replace(snapshot, queue=()), own)

    assert [placement.start_s for placement in made.placements] == [at_s if enough else None]
    assert [(offer.start_s, offer.promise_s, offer.evictions) for offer in offered] == [(at_s, at_s, made.evictions)] * bool(enough)
    if enough:
        ended = tuple(box for eviction in made.evictions for box in ended_by(snapshot, eviction))
        assert harm(ended, at_s=at_s) == min(harm(each, at_s=at_s) for each in enough)
        assert {victim.id: victim.frees_s for victim in victims_of(made.evictions)} == {box.id: max(frees_s(box), at_s) for box in ended}


@examples(200)
@given(crowded(), st.integers(1, 20))
def test_the_nearest_times_of_a_booking_are_those_it_would_get_by_right(snapshot: Snapshot, ahead_s: int) -> None:
    (own,) = (replace(each, is_fixed=True, earliest_start_s=NOW_S + ahead_s) for each in snapshot.queue)
    alone = replace(snapshot, queue=())

    def gets(at_s: int) -> bool:
        return plan(replace(snapshot, queue=(replace(own, earliest_start_s=at_s),))).placements[0].start_s == at_s

    with patch.object(bookings, "GRID_S", 1):
        found = bookings.nearest(alone, own, since_s=NOW_S)

    assert found.fits == gets(own.earliest_start_s)
    if not found.fits:
        assert found.before_s == next((at_s for at_s in range(own.earliest_start_s - 1, NOW_S - 1, -1) if gets(at_s)), None)
        later = range(own.earliest_start_s + 1, NOW_S + 60)
        assert found.after_s == next((at_s for at_s in later if gets(at_s)), None)


def test_what_is_cheap_elsewhere_does_not_make_a_node_dear() -> None:
    """Two boxes would lose 6 and 9 GPU-hours on the first node, one loses 14 on the second, and need not end with it one of 5."""
    stays = replace(held("n0", "stays", 1, 0), evictable=False)
    boxes = (stays, held("n0", "a", 1, 6), held("n0", "b", 2, 9), held("n1", "c", 3, 14), held("n1", "d", 1, 5))

    assert evicted(boxes, request("wants", gpus=3, may_evict=True)) == {"c"}


def test_of_two_choices_that_lose_the_same_work_the_one_with_fewer_boxes_is_made() -> None:
    boxes = (held("n0", "a", 1, 8), held("n0", "b", 1, 8), held("n1", "c", 2, 16), held("n0", "other", 2, 99), held("n1", "another", 2, 99))

    assert evicted(boxes, request("wants", gpus=2, may_evict=True)) == {"c"}


def held(node: str, id_: str, gpus: int, gpu_hours: int) -> Running:
    """It is held for six hours more; so much work has it done."""
    return Running(id_, id_, "x", 50, "p", (node,), gpus, 6 * HOUR_S, started_s=-gpu_hours * HOUR_S // gpus)


def evicted(boxes: Boxes, own: Request) -> set[str]:
    nodes = tuple(Node(f"n{i}", 4) for i in range(2))
    (eviction,) = plan(Snapshot(0, (Pool("p", "c", "s", nodes),), boxes, (own,))).evictions
    return {victim.id for victim in eviction.victims}


@examples(150)
@given(crowded(counts=(14, 20)))
def test_however_many_could_be_evicted_the_highest_priority_that_pays_is_the_lowest_and_nobody_pays_in_vain(snapshot: Snapshot) -> None:
    (own,), made = snapshot.queue, plan(snapshot).evictions
    assume(made)
    ended = ended_by(snapshot, made[0])
    able = tuple(box for box in snapshot.running if may_end(snapshot, own, box))
    until_s = min(start_s(snapshot, own, able) + POLICY.eviction_gain_s, start_s(snapshot, own, ()) - POLICY.eviction_gain_s)
    highest, _, count = harm(ended)

    assert start_s(snapshot, own, ended) < until_s
    assert start_s(snapshot, own, tuple(box for box in able if box.priority < highest)) >= until_s
    assert all(start_s(snapshot, own, fewer) >= until_s for fewer in combinations(ended, count - 1))


def ended_by(snapshot: Snapshot, eviction: PlannedEviction) -> Boxes:
    ids = {victim.id for victim in eviction.victims}
    return tuple(box for box in snapshot.running if box.id in ids)
