"""Plans on the board that lives on are those on a board that is made anew, whatever happens between two of them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.engine import plan
from planner.offers import OfferFinder
from planner.plan import Placement
from planner.promises import live_board
from planner.promises.live_board import LiveBoard
from planner.snapshot import Policy, Quota, Request, Running, Shadow, Snapshot
from tests.effort import examples
from tests.planner.build import GUARDED, pool, request, running, settled
from tests.planner.draw import POLICIES
from tests.planner.world import BACK, MISHAPS, World

Part = TypeVar("Part", Request, Running, Shadow)
QUOTAS = (Quota("x", "s", guaranteed=2, most=5),)


class Process:
    """What did not change keeps its objects, as in the memory of a process."""

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


@examples(10_000, quick_count=20)
@given(st.integers(0, 10**6), st.sampled_from(POLICIES), st.sets(st.sampled_from(sorted(MISHAPS | {BACK})), max_size=3), st.booleans())
def test_a_history_is_planned_alike_on_both(seed: int, policy: Policy, mishaps: set[str], has_quotas: bool) -> None:
    world, process, dice = World(seed, policy, frozenset(mishaps), now_s=1000), Process(), random.Random(seed)
    for step in range(25):
        snapshot, _ = world.step()
        snapshot = process.read(replace(snapshot, quotas=QUOTAS if has_quotas else ()))
        told = {each.id for each in snapshot.queue if dice.random() < 0.3}
        for explained in (None, told):
            assert plan(snapshot, explained=explained, restore=process.board.restore) == plan(snapshot, explained=explained)
        if snapshot.edited is None and step % 3 == 0:
            new = replace(world.submit(), id="new")
            world.queue = world.queue[:-1]
            assert OfferFinder(snapshot, restore=process.board.restore).offers(new) == OfferFinder(snapshot).offers(new)


@examples(400)
@given(st.integers(0, 10**6), st.sampled_from(POLICIES), st.sets(st.sampled_from(sorted(MISHAPS | {BACK})), max_size=3))
def test_who_is_told_only_what_may_have_changed_knows_as_much_as_who_is_told_all(seed: int, policy: Policy, mishaps: set[str]) -> None:
    world, process, shown, basis = World(seed, policy, frozenset(mishaps), now_s=1000), Process(), dict[str, object](), None
    for _ in range(25):
        snapshot, _ = world.step()
        snapshot = process.read(snapshot)
        whole = plan(snapshot)
        part = plan(snapshot, since=basis, restore=process.board.restore)
        basis = part.basis
        shown |= {each.id: _shown(each) for each in part.placements}

        assert {each.id: shown[each.id] for each in whole.placements} == {each.id: _shown(each) for each in whole.placements}
        assert (part.starts, part.next_start_s, part.faults) == (whole.starts, whole.next_start_s, whole.faults)
        stored = {each.id: (each.slot, each.promise_s, each.moved, each.lost) for each in whole.all_placements}
        assert {each.id: (each.slot, each.promise_s, each.moved, each.lost) for each in part.all_placements}.items() <= stored.items()


def _shown(placement: Placement) -> object:
    explanation = replace(placement.explanation, ahead_count=0)  # pages count anew
    return placement.start_s, explanation, placement.turn_share, placement.turn_key, placement.borrows


def test_one_who_comes_goes_or_starts_costs_no_new_board(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = tuple(request(f"q{i}", length=50 + i) for i in range(9))
    stands = settled(Snapshot(now_s=0, pools=(pool(3),), running=(running("r", "p0", end=40),), queue=crowd, policy=GUARDED))
    process, made_anew = Process(), list[Snapshot]()
    plan(process.read(stands), restore=process.board.restore)

    for now_s, queue in ((1, (*stands.queue, request("q10"))), (2, stands.queue[1:]), (3, stands.queue)):
        stands = settled(replace(stands, now_s=now_s, queue=queue))
        with monkeypatch.context() as patch:
            patch.setattr(live_board, "board_of", made_anew.append)
            plan(process.read(stands), restore=process.board.restore)

    assert made_anew == []
