"""A plan that tells of some only says of them what the plan that tells of all says, and leaves the same slots for everybody."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.engine import plan
from planner.snapshot import PlanPolicy, Snapshot
from tests.effort import examples
from tests.planner.build import placements, settled
from tests.planner.draw import POLICIES, requests, snapshots
from tests.planner.world import CHAINS, MISHAPS, MIXED, Asks, World


def same(snapshot: Snapshot, tells: frozenset[str]) -> None:
    whole, some = plan(snapshot), plan(snapshot, explained=tells)

    told = placements(whole)
    assert {placement.id: placement for placement in some.placements} == {id_: told[id_] for id_ in tells}
    # Who starts at once has its slot there, once it is told so.
    slots = {request.id: (request.slot, request.promise_s, None) for request in snapshot.queue if request.id not in tells}
    others = {stand.id: (stand.slot, stand.promise_s, stand.moved) for stand in some.others}
    assert others.keys() <= slots.keys()
    for id_, slot in (slots | others).items():
        if not told[id_].starts_now:
            assert slot == (told[id_].slot, told[id_].promise_s, told[id_].moved)
    assert (some.remembered, some.forecasts, some.evictions) == (whole.remembered, whole.forecasts, whole.evictions)


@pytest.mark.parametrize("is_on", [True, False])
def test_a_plan_leaves_the_search_for_cycles_as_its_process_had_it(is_on: bool) -> None:
    was_on = gc.isenabled()
    (gc.enable if is_on else gc.disable)()
    try:
        plan(Snapshot(now_s=0, pools=()))

        assert gc.isenabled() == is_on
    finally:
        (gc.enable if was_on else gc.disable)()


@examples(200)
@given(snapshots(), st.data())
def test_newcomers_are_told_what_they_would_be_told_beside_all_others(snapshot: Snapshot, data: st.DataObject) -> None:
    before = data.draw(st.sampled_from([snapshot, settled(snapshot), replace(settled(snapshot), running=())]))
    newcomer = data.draw(requests("new", data.draw(st.sampled_from([-1, 99]))))

    same(replace(before, queue=(*before.queue, newcomer)), frozenset({"new"}))


@examples(60)
@given(
    st.integers(0, 10**6), st.sampled_from(POLICIES), st.sampled_from([MIXED, CHAINS]), st.sets(st.sampled_from(sorted(MISHAPS))), st.data()
)
def test_so_are_those_that_wait_whatever_has_happened(
    seed: int, policy: PlanPolicy, asks: Asks, mishaps: set[str], data: st.DataObject
) -> None:
    world = World(seed, policy, frozenset(mishaps), asks)
    for _ in range(12):
        world.step()
    ids = sorted(request.id for request in world.queue)

    same(world.snapshot(), frozenset(data.draw(st.sets(st.sampled_from(ids))) if ids else ()))
