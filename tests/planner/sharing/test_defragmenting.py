"""Proposals to move running boxes so that whole nodes come free: the best there is, true when they are done, and nobody else pays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from planner.engine import plan
from planner.sharing import defragment
from planner.sharing.defragment import Proposal, fit_booking, proposals
from planner.snapshot import PlanPolicy, Quota, Request, Running, SlackSettings, Snapshot, Window
from tests.effort import examples
from tests.planner.build import pool, request, running, settled, starts, stored, waiting
from tests.planner.build import run as begun
from tests.planner.oracle import Oracle, of_slot

NOW_S, HOUR_S = 1_000_000, 3600
POLICY = PlanPolicy(notice_s=600, least_run_s=1800, exit_s=300, entry_s=120, eviction_gain_s=600)
NOTICE_S = POLICY.notice_s + POLICY.exit_s


def scattered(*nodes: int, size: int = 10, hours: int = 10, **changes: Any) -> Snapshot:
    """Source document 003 has nodes of ten GPUs; on these of them boxes of three have run for an hour."""
    boxes = (
        running(f"a{i}", f"p{node}", gpus=3, end=NOW_S + hours * HOUR_S, since=NOW_S - HOUR_S, **changes) for i, node in enumerate(nodes)
    )
    return Snapshot(NOW_S, (pool(4, size),), tuple(boxes), policy=POLICY)


def asking(snapshot: Snapshot, *requests: Request) -> Snapshot:
    return settled(replace(snapshot, queue=requests))


def the_one(snapshot: Snapshot) -> Proposal:
    (proposal,) = proposals(snapshot)
    return proposal


def test_one_box_moves_where_boxes_of_three_leave_no_node_with_eight_free() -> None:
    snapshot = asking(scattered(0, 0, 1, 1, 2, 3), request("b", gpus=8, length=4 * HOUR_S))

    made = the_one(snapshot)

    (move,) = made.relocations
    assert made.freed == made.slot.nodes == move.from_nodes
    assert move.from_nodes != move.to_nodes
    assert made.start_s == move.frees_s == move.restarts_s == NOW_S + NOTICE_S
    assert made.instead_s == NOW_S + 10 * HOUR_S


def test_cost_is_what_it_has_run_and_its_way_out_and_in_and_value_the_wait_that_is_saved() -> None:
    made = the_one(asking(scattered(0, 0, 1, 1, 2, 3), request("b", gpus=8, length=4 * HOUR_S)))

    assert made.relocations[0].lost_gpu_s == 3 * HOUR_S
    assert made.relocations[0].idle_gpu_s == 3 * (POLICY.exit_s + POLICY.entry_s)
    assert made.cost_gpu_s == 3 * (HOUR_S + POLICY.exit_s + POLICY.entry_s)
    assert made.value_gpu_s == 8 * (10 * HOUR_S - NOTICE_S)


def test_what_costs_more_than_it_is_worth_is_not_proposed() -> None:
    snapshot = asking(scattered(0, 0, 1, 1, 2, 3), request("b", gpus=8, length=4 * HOUR_S))
    long_ago = tuple(replace(box, started_s=NOW_S - 30 * HOUR_S) for box in snapshot.running)

    assert proposals(replace(snapshot, running=long_ago)) == ()


def test_the_one_that_has_run_least_is_moved() -> None:
    snapshot = scattered(0, 0, 1, 1, 2, 3)
    boxes = tuple(replace(box, started_s=NOW_S - (1800 if box.id == "a5" else 7200)) for box in snapshot.running)

    made = the_one(asking(replace(snapshot, running=boxes), request("b", gpus=8, length=HOUR_S)))
    assert [move.id for move in made.relocations] == ["a5"]


@pytest.mark.parametrize(
    "changes",
    [
        {"evictable": False},
        {"is_movable": False},
        {"is_open": False},
        {"priority": 102},
        {"slice": "of b"},
        {"gpus_per_node": 0},
        {"end_s": NOW_S + NOTICE_S},
        {"started_s": NOW_S - 60, "end_s": NOW_S + 1800},
    ],
    ids=["not evictable", "booked", "on its way", "higher", "of its own workspace", "whole node", "notice already", "young"],
)
def test_who_is_exempt_stays(changes: dict[str, Any]) -> None:
    """A box on each of two nodes, of which one stays anyway."""
    far_s, ask = NOW_S + 10 * HOUR_S, request("b", length=HOUR_S, slice="of b")
    stays = running("stays", "p0", gpus=3, end=far_s, evictable=False)
    goes = running("goes", "p1", gpus=3, end=far_s, since=NOW_S - HOUR_S)
    snapshot = Snapshot(NOW_S, (pool(2, 10),), policy=POLICY)

    (made,) = proposals(asking(replace(snapshot, running=(stays, goes)), ask))
    assert [(move.id, move.to_nodes) for move in made.relocations] == [("goes", ("p0",))]
    assert proposals(asking(replace(snapshot, running=(stays, replace(goes, **changes))), ask)) == ()


def test_small_requests_have_no_proposals() -> None:
    full = asking(scattered(0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3), request("b", gpus=4, length=HOUR_S))

    assert proposals(full) == ()


def test_a_moved_box_comes_behind_a_slot_that_another_was_promised() -> None:
    """The only other node is promised to one that waits: the box may run there again when that is over."""
    far_s = NOW_S + 10 * HOUR_S
    boxes = (running("a", "p0", gpus=3, end=far_s, since=NOW_S - 1800), running("c", "p1", end=NOW_S + NOTICE_S))
    snapshot = replace(scattered(), pools=(pool(2, 10),), running=boxes)
    promised = waiting("d", NOW_S + NOTICE_S, "p1", length=3 * HOUR_S)
    made = the_one(asking(snapshot, promised, replace(request("b", length=6 * HOUR_S), priority=150)))

    assert made.id == "b"
    assert made.relocations[0].restarts_s == NOW_S + NOTICE_S + 3 * HOUR_S


def test_who_would_only_wait_for_its_own_node_is_not_moved() -> None:
    """Worth it or not: there is no other node for it."""
    alone = replace(scattered(0), pools=(pool(1, 10),))

    assert proposals(asking(alone, request("b", length=HOUR_S))) == ()


def test_no_ceiling_is_passed_by_moved_boxes() -> None:
    """A moved box ends later than it would have by its way in and out, when another of its project is promised all that this may hold."""
    ask, promised = request("b", gpus=8, length=4 * HOUR_S), waiting("d", NOW_S + 10 * HOUR_S, "p2", "p3", gpus=9, length=HOUR_S)
    snapshot = asking(scattered(0, 0, 1, 1, 2, 3, project="y"), replace(promised, project="y"), ask)
    assert back_at(snapshot) == [NOW_S + NOTICE_S]

    assert back_at(replace(snapshot, quotas=(Quota("y", "shape-p", 0, most=18),))) == [NOW_S + 11 * HOUR_S]


def back_at(snapshot: Snapshot) -> list[int]:
    """Returns when those who would move for b run again."""
    return [move.restarts_s for proposal in proposals(snapshot) if proposal.id == "b" for move in proposal.relocations]


def test_a_wanted_booking_gets_its_nodes_at_its_time_with_nothing_waiting() -> None:
    snapshot = scattered(0, 0, 1, 1, 2, 3)
    wanted = replace(request("wanted", count=2, length=2 * HOUR_S, earliest=NOW_S + 5 * HOUR_S), is_fixed=True)

    answer = fit_booking(snapshot, wanted)

    assert (answer.fits, answer.instead_s) == (False, NOW_S + 10 * HOUR_S)
    assert answer.proposal is not None
    assert answer.proposal.start_s == NOW_S + 5 * HOUR_S
    assert answer.proposal.slot.nodes == answer.proposal.freed == ("p2", "p3")
    assert answer.proposal.value_gpu_s == 20 * 5 * HOUR_S


def test_a_booking_that_fits_needs_no_moves_and_one_before_any_notice_is_over_gets_none() -> None:
    snapshot = scattered(0, 0, 1, 1, 2, 3)
    later = fit_booking(snapshot, request("wanted", length=HOUR_S, earliest=NOW_S + 10 * HOUR_S))
    soon = fit_booking(snapshot, request("wanted", length=HOUR_S, earliest=NOW_S + NOTICE_S - 1))

    assert (later.fits, later.proposal) == (True, None)
    assert (soon.fits, soon.instead_s, soon.proposal) == (False, NOW_S + 10 * HOUR_S, None)


def test_what_no_pool_can_hold_has_no_room_ever() -> None:
    answer = fit_booking(scattered(0, 1), request("wanted", count=9, length=HOUR_S, earliest=NOW_S + HOUR_S))

    assert (answer.fits, answer.instead_s, answer.proposal) == (False, None, None)


# Drawn worlds, second by second.

DRAWN = PlanPolicy(notice_s=2, least_run_s=1, exit_s=1, entry_s=1, eviction_gain_s=2, slack=SlackSettings(of_length=0.0))
T_S = 100


@st.composite
def worlds(draw: st.DrawFn) -> Snapshot:
    """Two to four nodes with boxes on parts of them, and one to three that wait, the first for whole nodes."""
    count, gpus = draw(st.integers(2, 4)), draw(st.sampled_from([2, 4]))
    closed = draw(st.sampled_from([{}, {}, {0: (Window(T_S + 20, T_S + 30),)}]))
    boxes: list[Running] = []
    for node in range(count):
        for k in range(draw(st.sampled_from([0, 1, 1, 1, 2]))):
            nodes = (f"p{node}", f"p{(node + 1) % count}") if count > 2 and k == 0 and draw(st.integers(0, 5)) == 0 else (f"p{node}",)
            end_s, since_s = T_S + draw(st.integers(2, 40)), T_S - draw(st.integers(0, 8))
            made = running(f"a{node}{k}", *nodes, end=end_s, gpus=gpus // 2 if len(nodes) == 1 else 1, since=since_s)
            made = replace(made, priority=draw(st.sampled_from([50, 101, 101, 201])), is_movable=draw(st.integers(0, 7)) > 0)
            boxes.append(replace(made, evictable=draw(st.integers(0, 7)) > 0, is_open=draw(st.integers(0, 7)) > 0))
    boxes = _that_fit(boxes, gpus)
    asks = [
        request(
            f"r{i}",
            count=draw(st.sampled_from([1, 1, 2])),
            gpus=0 if i == 0 else draw(st.sampled_from([0, 1, gpus])),
            length=draw(st.integers(1, 12)),
            priority=draw(st.sampled_from([101, 101, 201])),
        )
        for i in range(draw(st.integers(1, 3)))
    ]
    return settled(Snapshot(T_S, (pool(count, gpus, closed=closed),), tuple(boxes), tuple(asks), DRAWN))


def _that_fit(boxes: list[Running], gpus: int) -> list[Running]:
    used: dict[str, int] = {}
    kept = []
    for box in boxes:
        if all(used.get(node, 0) + box.gpus_per_node <= gpus for node in box.nodes):
            kept.append(box)
            used |= {node: used.get(node, 0) + box.gpus_per_node for node in box.nodes}
    return kept


@dataclass(frozen=True)
class Way:
    """A set of moves: what it costs, what it is worth, when the beneficiary starts."""

    cost: int
    value: int
    start_s: int
    ids: tuple[str, ...]


def ways(snapshot: Snapshot, asks: Request, *, instead_s: int, latest_s: int) -> Iterator[Way]:
    """Every set of boxes that may be moved, as slowly and plainly as can be."""
    policy = snapshot.policy
    may = [box for box in snapshot.running if box.evictable and box.is_movable and box.is_open and box.gpus_per_node]
    may = [box for box in may if box.priority <= asks.priority and frees(box, policy) < box.end_s and box.end_s > snapshot.now_s]
    for count in range(1, len(may) + 1):
        for moved in combinations(may, count):
            way = way_of(snapshot, asks, moved, instead_s)
            if way is not None and way.start_s <= latest_s and way.cost <= way.value:
                yield way


def frees(box: Running, policy: PlanPolicy) -> int:
    return max(T_S + policy.notice_s, box.started_s + policy.least_run_s) + policy.exit_s


def way_of(snapshot: Snapshot, asks: Request, moved: tuple[Running, ...], instead_s: int) -> Way | None:
    policy = snapshot.policy
    ids = {box.id for box in moved}
    ended = tuple(replace(box, end_s=frees(box, policy)) if box.id in ids else box for box in snapshot.running)
    oracle = without(replace(snapshot, running=ended), asks)
    slot = oracle.earliest(asks)
    assert slot is not None
    oracle.boxes.append(of_slot(asks, slot))
    cost = 0
    for box in sorted(moved, key=lambda box: (-box.priority, work(box, policy), box.id)):
        back = again(box, policy)
        place = oracle.earliest(back)
        assert place is not None
        if set(place.nodes) == set(box.nodes):
            return None
        oracle.boxes.append(of_slot(back, place))
        gpus = len(box.nodes) * box.gpus_per_node
        cost += gpus * (T_S - box.started_s + place.start_s + policy.entry_s - frees(box, policy) + policy.exit_s)
    gpus = asks.node_count * (asks.gpus_per_node or snapshot.pools[0].nodes[0].gpu_count)
    return Way(cost, gpus * (instead_s - slot.start_s), slot.start_s, tuple(sorted(ids)))


def again(box: Running, policy: PlanPolicy) -> Request:
    length_s = box.end_s - frees(box, policy) + policy.entry_s + policy.exit_s
    whole = request(box.id, count=len(box.nodes), gpus=box.gpus_per_node, length=length_s, slice=box.slice, rank=0)
    return replace(whole, priority=box.priority, earliest_start_s=frees(box, policy))


def work(box: Running, policy: PlanPolicy) -> int:
    return len(box.nodes) * box.gpus_per_node * again(box, policy).length_s


def without(snapshot: Snapshot, asks: Request) -> Oracle:
    """Returns all slots but its own."""
    return Oracle(snapshot, [of_slot(other, other.slot) for other in snapshot.queue if other.id != asks.id and other.slot])


def best_of(snapshot: Snapshot, asks: Request, *, instead_s: int, latest_s: int) -> Way | None:
    found = ways(snapshot, asks, instead_s=instead_s, latest_s=latest_s)
    return min(found, key=lambda way: (way.cost - way.value, way.cost, way.start_s, len(way.ids)), default=None)


def instead_of(snapshot: Snapshot, asks: Request) -> int:
    expected_s, slot = starts(plan(snapshot))[asks.id], without(snapshot, asks).earliest(asks)
    assert expected_s is not None
    assert slot is not None
    return min(expected_s, slot.start_s)


@examples(150)
@given(worlds())
def test_no_other_moves_are_better_for_anybody(snapshot: Snapshot) -> None:
    made = {proposal.id: proposal for proposal in proposals(snapshot)}
    for asks in snapshot.queue:
        if asks.slot is None or 0 < 2 * asks.gpus_per_node < snapshot.pools[0].nodes[0].gpu_count:
            assert asks.id not in made
            continue
        instead_s = instead_of(snapshot, asks)
        best, own = best_of(snapshot, asks, instead_s=instead_s, latest_s=instead_s - DRAWN.eviction_gain_s), made.get(asks.id)
        assert (best is None) == (own is None)
        if best is not None and own is not None:
            assert (own.cost_gpu_s, own.value_gpu_s, own.start_s, own.instead_s) == (best.cost, best.value, best.start_s, instead_s)


@examples(100)
@given(worlds(), st.integers(3, 20), st.integers(1, 8), st.integers(1, 2))
def test_no_other_moves_are_better_for_a_wanted_booking(snapshot: Snapshot, ahead_s: int, length_s: int, count: int) -> None:
    wanted = replace(request("wanted", count=count, length=length_s, earliest=T_S + ahead_s), is_fixed=True)
    free = without(snapshot, wanted).earliest(wanted)

    answer = fit_booking(snapshot, wanted)

    assert free is not None
    assert answer.fits == (free.start_s == wanted.earliest_start_s)
    if not answer.fits:
        assert answer.instead_s == free.start_s
        best = best_of(snapshot, wanted, instead_s=free.start_s, latest_s=wanted.earliest_start_s)
        assert (best is None) == (answer.proposal is None)
        if best is not None and answer.proposal is not None:
            assert (answer.proposal.cost_gpu_s, answer.proposal.start_s) == (best.cost, wanted.earliest_start_s)


@examples(150)
@given(worlds(), st.booleans())
def test_done_and_played_forward_it_gives_the_start_that_it_says_and_moves_nobody_s_slot(snapshot: Snapshot, is_exact: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(defragment, "EXACT_MOST", 10 if is_exact else 0)
        made = proposals(snapshot)
    assume(made)
    for proposal in made:
        started_s = played(snapshot, proposal)
        assert started_s[proposal.id] <= proposal.start_s
        if len(snapshot.queue) == len(proposal.relocations) == 1:
            assert started_s[proposal.id] == proposal.start_s
            assert started_s[proposal.relocations[0].id] == proposal.relocations[0].restarts_s


def played(snapshot: Snapshot, proposal: Proposal) -> dict[str, int]:
    """Returns when each starts from now on by the planner's own ticks, if nobody comes."""
    back = {box.id: again(box, snapshot.policy) for box in snapshot.running}
    frees_s = {move.id: move.frees_s for move in proposal.relocations}
    started_s: dict[str, int] = {}
    snapshot = done(snapshot, proposal)
    slots = {each.id: each.slot for each in snapshot.queue}
    while snapshot.queue or any(id_ not in started_s for id_ in frees_s):
        ended = [box.id for box in snapshot.running if box.end_s <= snapshot.now_s]
        queue = snapshot.queue + tuple(back[id_] for id_ in ended if id_ in frees_s and id_ not in started_s)
        snapshot = replace(snapshot, queue=queue, running=tuple(box for box in snapshot.running if box.id not in ended))
        made = plan(snapshot)
        for placement in made.placements:
            assert placement.moved is None
            assert placement.starts_now or placement.id in frees_s or placement.slot == slots[placement.id]
        going = {placement.id for placement in made.starts}
        started_s |= dict.fromkeys(going, snapshot.now_s)
        queue = stored(snapshot, made)
        left, boxes = tuple(each for each in queue if each.id not in going), tuple(begun(each) for each in queue if each.id in going)
        snapshot = replace(snapshot, now_s=snapshot.now_s + 1, queue=left, running=snapshot.running + boxes)
        assert snapshot.now_s < T_S + 300
    return started_s


def done(snapshot: Snapshot, proposal: Proposal) -> Snapshot:
    """Does what an administrator's word makes: these boxes end early, and the beneficiary has its slot."""
    frees_s = {move.id: move.frees_s for move in proposal.relocations}
    boxes = tuple(replace(box, end_s=frees_s.get(box.id, box.end_s)) for box in snapshot.running)
    queue = (replace(each, slot=proposal.slot, promise_s=proposal.start_s) if each.id == proposal.id else each for each in snapshot.queue)
    return replace(snapshot, running=boxes, queue=tuple(queue))


@examples(100)
@given(worlds())
def test_where_not_all_sets_are_tried_a_proposal_is_never_better_than_the_best(snapshot: Snapshot) -> None:
    best = {proposal.id: proposal for proposal in proposals(snapshot)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(defragment, "EXACT_MOST", 0)
        found = proposals(snapshot)

    for proposal in found:
        assert proposal.value_gpu_s - proposal.cost_gpu_s <= best[proposal.id].value_gpu_s - best[proposal.id].cost_gpu_s


@examples(30)
@given(worlds(), st.randoms(use_true_random=False))
def test_the_same_world_has_the_same_proposals_in_whatever_order_it_is_told(snapshot: Snapshot, dice: Any) -> None:
    boxes, queue = list(snapshot.running), list(snapshot.queue)
    dice.shuffle(boxes)
    dice.shuffle(queue)

    assert proposals(replace(snapshot, running=tuple(boxes), queue=tuple(queue))) == proposals(snapshot)
