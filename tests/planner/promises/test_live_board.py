"""Plans on the board that lives on are those on a board that is made anew, whatever happens between two of them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.engine import plan, plan_newcomers, plan_starts
from planner.offers import OfferFinder
from planner.plan import Placement
from planner.promises import live_board
from planner.promises.live_board import LiveBoard, restore_anew
from planner.snapshot import Node, PlanPolicy, Pool, Quota, Request, Running, Shadow, Snapshot, Supply, Window
from tests.effort import examples
from tests.planner.build import GUARDED, pool, request, running, settled
from tests.planner.draw import POLICIES
from tests.planner.world import BACK, CHAINS, MISHAPS, MIXED, Asks, World

ASKS = st.sampled_from([MIXED, CHAINS])
Part = TypeVar("Part", Request, Running, Shadow)
QUOTAS = (Quota("x", "s", guaranteed=2, most=5),)
LIMITS = QUOTAS, (Quota("x", "s", guaranteed=4), Quota("a", "s", guaranteed=2, most=2)), (Quota("y", "s", guaranteed=0, most=4),)


class Process:
    """It keeps the objects of what did not change, as the memory of a process does."""

    def __init__(self) -> None:
        self.board = LiveBoard()
        self.last = Snapshot(now_s=0, pools=())

    def read(self, snapshot: Snapshot) -> Snapshot:
        last = self.last
        self.last = replace(
            snapshot,
            pools=last.pools if last.pools == snapshot.pools else snapshot.pools,
            queue=_kept(last.queue, snapshot.queue),
            running=_kept(last.running, snapshot.running),
            memory=replace(snapshot.memory, shadows=_kept(last.memory.shadows, snapshot.memory.shadows)),
        )
        return self.last


def _kept(before: tuple[Part, ...], now: tuple[Part, ...]) -> tuple[Part, ...]:
    known: Mapping[str, Part] = {part.id: part for part in before}
    return tuple(was if (was := known.get(part.id)) == part else part for part in now)


@examples(4_000, quick_count=100)
@given(
    st.integers(0, 10**6), st.sampled_from(POLICIES), ASKS, st.sets(st.sampled_from(sorted(MISHAPS | {BACK})), max_size=3), st.booleans()
)
def test_a_history_is_planned_alike_on_both(seed: int, policy: PlanPolicy, asks: Asks, mishaps: set[str], has_quotas: bool) -> None:
    world, process, dice = World(seed, policy, frozenset(mishaps), asks, now_s=1000), Process(), random.Random(seed)
    for step in range(25):
        snapshot, made = world.step()
        snapshot = process.read(replace(snapshot, quotas=QUOTAS if has_quotas else ()))
        explained = {each.id for each in snapshot.queue if dice.random() < 0.3} if dice.random() < 0.5 else None
        anew = plan(snapshot, explained=explained) if has_quotas or explained is not None else made
        assert plan(snapshot, explained=explained, restore=process.board.restore) == anew
        if snapshot.edited is None and step % 3 == 0:
            new = replace(world.submit(), id="new")
            world.queue = world.queue[:-1]
            known, fresh = (OfferFinder(snapshot, restore=restore).offers(new) for restore in (process.board.restore, restore_anew))
            assert [(each, each.explain()) for each in known] == [(each, each.explain()) for each in fresh]


@examples(1_000, quick_count=40)
@given(st.integers(0, 10**6), st.sampled_from(POLICIES), ASKS, st.sets(st.sampled_from(sorted(MISHAPS)), max_size=1), st.booleans())
def test_newcomers_planned_alone_get_what_a_whole_plan_gives_them_and_leave_the_board_as_it_was(
    seed: int, policy: PlanPolicy, asks: Asks, mishaps: set[str], has_quotas: bool
) -> None:
    world, process = World(seed, policy, frozenset(mishaps), asks, now_s=1000), Process()
    for _ in range(25):
        snapshot, _ = world.step()
        snapshot = process.read(replace(snapshot, quotas=QUOTAS if has_quotas else ()))
        newcomers = {each.id for each in snapshot.queue if each.slot is None}
        with process.board.trial(snapshot) as restored:
            alone = plan_newcomers(snapshot, restored) if restored is not None else None
        whole = plan(snapshot, explained=newcomers, restore=process.board.restore)

        assert whole == plan(snapshot, explained=newcomers)
        if newcomers and alone is not None:  # a plan that explains nobody else names those that start now
            assert list(map(_uncounted, alone.placements)) == list(map(_uncounted, whole.placements))
            assert (alone.remembered, alone.forecasts, alone.faults) == (whole.remembered, whole.forecasts, whole.faults)
            assert not whole.others


@examples(400)
@given(
    st.integers(0, 10**6),
    st.sampled_from(POLICIES),
    ASKS,
    st.sets(st.sampled_from(sorted(MISHAPS | {BACK})), max_size=3),
    st.sampled_from(((), *LIMITS)),
    st.booleans(),
)
def test_who_is_told_only_what_may_have_changed_knows_as_much_as_who_is_told_all(
    seed: int, policy: PlanPolicy, asks: Asks, mishaps: set[str], quotas: tuple[Quota, ...], can_order: bool
) -> None:
    world, process, shown, basis = World(seed, policy, frozenset(mishaps), asks, now_s=1000), Process(), dict[str, object](), None
    for _ in range(25):
        snapshot, _ = world.step()
        snapshot = _in_two_projects(replace(snapshot, quotas=quotas))
        snapshot = process.read(_with_supply(snapshot) if can_order else snapshot)
        whole = plan(snapshot)
        part = plan(snapshot, since=basis, restore=process.board.restore)
        basis = part.basis
        shown |= {each.id: _shown(each) for each in part.placements}

        assert {each.id: shown[each.id] for each in whole.placements} == {each.id: _shown(each) for each in whole.placements}
        assert (part.starts, part.faults) == (whole.starts, whole.faults)
        stored = {each.id: (each.slot, each.promise_s, each.moved, each.lost) for each in whole.all_placements}
        assert {each.id: (each.slot, each.promise_s, each.moved, each.lost) for each in part.all_placements}.items() <= stored.items()


@examples(200)
@given(st.integers(0, 10**6), st.sampled_from(POLICIES), ASKS, st.sets(st.sampled_from(sorted(MISHAPS | {BACK})), max_size=3))
def test_what_is_not_planned_again_while_nothing_changes_is_what_a_plan_would_be(
    seed: int, policy: PlanPolicy, asks: Asks, mishaps: set[str]
) -> None:
    world = World(seed, policy, frozenset(mishaps), asks, now_s=1000)
    for _ in range(25):
        world.step()
        snapshot = world.snapshot()  # with what was stored
        before = plan(snapshot)
        basis = before.basis
        assert basis is not None
        if basis.until_s <= before.now_s:
            continue
        later = replace(snapshot, now_s=world.dice.randrange(before.now_s, min(basis.until_s, before.now_s + 10_000)))
        if basis.holds_for(later):
            anew = plan(later)
            assert plan(later, since=basis).placements == anew.starts == ()
            assert {each.id: _shown(each) for each in anew.placements} == {each.id: _shown(each) for each in before.placements}


@examples(100)
@given(st.integers(0, 10**6), st.sampled_from(POLICIES), ASKS, st.sets(st.sampled_from(sorted(MISHAPS | {BACK})), max_size=3))
def test_a_plan_in_a_hurry_starts_the_same_and_stores_the_same_slots(seed: int, policy: PlanPolicy, asks: Asks, mishaps: set[str]) -> None:
    world, process = World(seed, policy, frozenset(mishaps), asks, now_s=1000), Process()
    for _ in range(25):
        snapshot, whole = world.step()
        snapshot = process.read(snapshot)
        with process.board.trial(snapshot) as restored:
            alone = plan_starts(snapshot, restored) if restored is not None else None
        if alone is not None:
            assert (alone.placements, alone.faults, whole.evictions) == (whole.starts, whole.faults, ())
        plan(snapshot, restore=process.board.restore)
        hurried = plan(snapshot, explained=frozenset())
        assert {each.id: (each.slot, each.promise_s) for each in hurried.placements} == {
            each.id: (each.slot, each.promise_s) for each in whole.starts
        }
        stored = {each.id: (each.slot, each.promise_s, each.moved, each.lost) for each in whole.all_placements}
        assert {each.id: (each.slot, each.promise_s, each.moved, each.lost) for each in hurried.others}.items() <= stored.items()


def test_who_waits_for_a_limit_is_told_who_else_has_come_under_it() -> None:
    limits = (Quota("x", "shape-p", guaranteed=0, most=12),)
    stands = Snapshot(now_s=0, pools=(pool(3),), running=(running("a", "p0", end=100),), queue=(request("b"),), quotas=limits)
    process = Process()
    before = process.read(settled(stands))
    more = process.read(replace(before, running=(*before.running, running("d", "p1", end=100, gpus=4))))

    (told,) = plan(more, since=plan(before).basis).placements

    assert {blocker.id for blocker in told.explanation.blockers} == {"a", "d"}


def _in_two_projects(snapshot: Snapshot) -> Snapshot:
    """The odd ones are in project y."""
    queue = tuple(replace(each, project="xy"[int(each.id[1:]) % 2]) for each in snapshot.queue)
    return replace(snapshot, queue=queue, running=tuple(replace(each, project="xy"[int(each.id[1:]) % 2]) for each in snapshot.running))


def _with_supply(snapshot: Snapshot) -> Snapshot:
    """One node has been ordered, two more can be. The random world never hears of it."""
    nodes = (Node("s0", 4, (Window(1000, 1015, order="s0"),)), Node("s1", 4), Node("s2", 2))
    grows = Pool("s", "cs", "s", nodes, Supply("supply", 5, 3, frozenset({"s1", "s2"})))
    queue = tuple(replace(each, pools=(*each.pools, "s"), orders=("s",)) for each in snapshot.queue)
    return replace(snapshot, pools=(*snapshot.pools, grows), queue=queue)


def _uncounted(placement: Placement) -> Placement:
    return replace(placement, explanation=replace(placement.explanation, ahead_count=0))  # pages count anew


def _shown(placement: Placement) -> object:
    explanation = _uncounted(placement).explanation
    return placement.start_s, explanation, placement.turn_share, placement.turn_key, placement.borrows


def test_one_who_comes_goes_or_starts_costs_no_new_board_while_a_box_is_overdue(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = tuple(request(f"q{i}", length=50 + i) for i in range(9))
    boxes = running("r", "p0", end=40), running("overdue", "p1", end=-5)
    stands = settled(Snapshot(now_s=0, pools=(pool(3),), running=boxes, queue=crowd, policy=GUARDED))
    process, made_anew = Process(), list[Snapshot]()
    plan(process.read(stands), restore=process.board.restore)

    for now_s, queue in ((1, (*stands.queue, request("q10"))), (2, stands.queue[1:]), (3, stands.queue)):
        stands = settled(replace(stands, now_s=now_s, queue=queue))
        with monkeypatch.context() as patch:
            patch.setattr(live_board, "board_of", made_anew.append)
            plan(process.read(stands), restore=process.board.restore)

    assert made_anew == []
