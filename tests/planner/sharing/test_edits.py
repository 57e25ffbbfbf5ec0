"""An edited request gets its offer, and moves nobody else."""

from __future__ import annotations

import random
from collections.abc import Set
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from planner.engine import plan
from planner.offers import offers
from planner.plan import Placement
from planner.snapshot import PlanPolicy, Pool, Request, Running, Slot, Snapshot, Within
from tests.effort import examples
from tests.planner.build import EITHER, placements, pool, running, settled, waiting
from tests.planner.draw import GUARDED, POLICIES
from tests.planner.tenants import DEEDS, Tenants
from tests.planner.world import MISHAPS, World

SEEDS = st.integers(0, 10**6)
OF_ANY = st.sampled_from(POLICIES)
OF_MISHAPS = st.sets(st.sampled_from(sorted(MISHAPS)), max_size=3)
OF_DEEDS = st.sets(st.sampled_from(sorted(DEEDS)), max_size=3)
NONE: frozenset[str] = frozenset()
LESS = ("shorter", "fewer nodes", "fewer GPUs")
MORE = ("longer", "more nodes", "more GPUs", "all GPUs", "later", "other pools", "urgent", "humble", "rack")


def changed(old: Request, change: str, now_s: int) -> Request:
    values: dict[str, dict[str, Any]] = {
        "shorter": {"length_s": max(1, old.length_s // 2)},
        "fewer nodes": {"node_count": max(1, old.node_count - 1)},
        "fewer GPUs": {"gpus_per_node": 1},
        "longer": {"length_s": old.length_s + 3},
        "more nodes": {"node_count": old.node_count + 1},
        "more GPUs": {"gpus_per_node": old.gpus_per_node + 1 if old.gpus_per_node else 0},
        "all GPUs": {"gpus_per_node": 0},
        "later": {"earliest_start_s": now_s + 5},
        "other pools": {"pools": old.pools[-1:]},
        "urgent": {"priority": 300},
        "humble": {"priority": 1},
        "rack": {"within": Within.RACK},
    }
    return replace(old, **values[change])


def worlds_edit(
    seed: int, policy: PlanPolicy, change: str, *, mishaps: Set[str] = NONE, deeds: Set[str] = NONE, is_settled: bool = False
) -> tuple[Snapshot, Snapshot] | None:
    """A drawn world before and after an edit of one of those who wait; None where nobody does."""
    world = Tenants(seed, policy, frozenset(mishaps), deeds=frozenset(deeds)) if deeds else World(seed, policy, frozenset(mishaps))
    for _ in range(15):
        world.step()
    dice, now = random.Random(seed), world.snapshot()
    before = settled(now) if is_settled else replace(now, now_s=now.now_s + dice.choice([0, 1, 4]))
    promised = [each for each in before.queue if each.promise_s is not None and not each.is_fixed]
    if not promised:
        return None
    old = dice.choice(promised)
    new = changed(old, change, before.now_s)
    queue = tuple(new if each is old else each for each in before.queue)
    return before, replace(before, queue=queue, edited=old)


def edited_in(snapshot: Snapshot) -> Request:
    assert snapshot.edited is not None
    return next(each for each in snapshot.queue if each.id == snapshot.edited.id)


def told(placement: Placement) -> tuple[int | None, int | None]:
    return placement.start_s, placement.promise_s


@examples(200)
@given(SEEDS, OF_ANY, OF_MISHAPS, OF_DEEDS, st.sampled_from(LESS + MORE))
def test_what_an_edit_is_offered_is_what_it_gives(seed: int, policy: PlanPolicy, mishaps: set[str], deeds: set[str], change: str) -> None:
    """This holds with all its pools, and in each place alone."""
    drawn = worlds_edit(seed, policy, change, mishaps=mishaps, deeds=deeds)
    if drawn is None:
        return
    after = drawn[1]
    new = edited_in(after)

    found = offers(replace(after, queue=drawn[0].queue), new)

    got = placements(plan(after))[new.id]
    assert [(o.start_s, o.promise_s, o.slot, o.explain()) for o in found[:1]] == (
        [] if got.slot is None else [(got.start_s, got.promise_s, found[0].slot, got.explanation)]
    )
    waits = got.start_s is not None and got.start_s > after.now_s
    assert [told for told in plan(after).forecasts if told.id == new.id] == ([found[0].forecast] if waits else [])
    for offer in found[1:]:
        alone = replace(new, pools=(offer.pool,))
        there = placements(plan(replace(after, queue=tuple(alone if each is new else each for each in after.queue))))
        assert told(there[new.id]) == (offer.start_s, offer.promise_s)


@examples(200)
@given(SEEDS, OF_ANY, OF_MISHAPS, OF_DEEDS, st.sampled_from(LESS + MORE))
def test_an_edit_moves_nobody_else(seed: int, policy: PlanPolicy, mishaps: set[str], deeds: set[str], change: str) -> None:
    """Everything else that happens at the same moment does so as without it."""
    drawn = worlds_edit(seed, policy, change, mishaps=mishaps, deeds=deeds)
    if drawn is None:
        return
    before, after = drawn

    without, made = placements(plan(before)), placements(plan(after))

    own = edited_in(after).id
    assert {id_: (each.promise_s, each.moved) for id_, each in made.items() if id_ != own} == {
        id_: (each.promise_s, each.moved) for id_, each in without.items() if id_ != own
    }


@examples(200)
@given(SEEDS, OF_ANY, OF_MISHAPS, st.sampled_from(LESS))
def test_who_asks_for_less_is_promised_no_later_start(seed: int, policy: PlanPolicy, mishaps: set[str], change: str) -> None:
    drawn = worlds_edit(seed, policy, change, mishaps=mishaps)
    if drawn is None:
        return
    before, after = drawn
    own = edited_in(after).id

    was, now = (placements(plan(snapshot))[own] for snapshot in (before, after))

    if was.slot is not None:  # who could not start at all any more starts by asking for less, if late
        assert now.promise_s is not None
        assert was.promise_s is not None
        assert now.promise_s <= was.promise_s


@examples(200)
@given(SEEDS, st.sampled_from(GUARDED), st.sampled_from(LESS + MORE))
def test_an_edit_is_promised_no_later_a_start_than_a_newcomer_in_its_place(seed: int, policy: PlanPolicy, change: str) -> None:
    """The exception is one that likes one pool better, and stands there."""
    drawn = worlds_edit(seed, policy, change, is_settled=True)
    if drawn is None or edited_in(drawn[1]).handicaps or edited_in(drawn[1]) == drawn[1].edited:
        return
    before, after = drawn
    own = edited_in(after)
    shadows = tuple(shadow for shadow in before.memory.shadows if shadow.id != own.id)
    others = replace(before, memory=replace(before.memory, shadows=shadows))

    found = offers(others, replace(own, slot=None, promise_s=None))

    promise_s = placements(plan(after))[own.id].promise_s
    assert all(promise_s is not None and promise_s <= offer.promise_s for offer in found)


def row(*asked: Request) -> tuple[tuple[Pool, ...], tuple[Running, ...], tuple[Request, ...]]:
    return (pool(2),), (running("r", "p0", end=1100), running("s", "p1", end=1500)), asked


@EITHER
def test_who_needs_fewer_nodes_starts_when_these_are_free(policy: PlanPolicy) -> None:
    """It does not start as late as it was promised for all of them."""
    old = waiting("a1", 1500, "p0", "p1")
    pools, boxes, queue = row(replace(old, node_count=1))

    got = placements(plan(Snapshot(1000, pools, boxes, queue, policy=policy, edited=old)))["a1"]

    assert (got.promise_s, got.slot) == (1100, Slot("p", 1100, ("p0",)))


def test_who_asks_for_the_same_keeps_what_he_has() -> None:
    """This holds also where there is something better by now: he changed nothing."""
    old = waiting("a1", 1500, "p1")
    pools, boxes, queue = row(replace(old, rank=3))

    got = placements(plan(Snapshot(1000, pools, boxes, queue, edited=old)))["a1"]

    assert (got.promise_s, got.slot) == (1500, old.slot)


def test_who_stays_at_home_though_it_is_free_elsewhere_sooner_stays_there_when_he_asks_for_less() -> None:
    """It is sooner there by less than that is worth."""
    pools = (pool(1), pool(1, id="q"))
    old = replace(waiting("a1", 1100, "p0"), pools=("p", "q"), handicaps=(("q", 200),))
    new = replace(old, length_s=50)

    got = placements(plan(Snapshot(1000, pools, (running("r", "p0", end=1100),), (new,), edited=old)))["a1"]

    assert (got.slot is not None and got.slot.pool, got.promise_s) == ("p", 1100)
