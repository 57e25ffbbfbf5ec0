"""Tenants may rely on promises, notices and ceilings, whatever others do; every act that moves them is recorded as their cause."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from planner.causes import Cause
from planner.snapshot import PlanPolicy
from tests.effort import examples
from tests.planner.draw import ROOMY, TIGHT
from tests.planner.tenants import DEEDS, Tenants
from tests.planner.world import MISHAPS

SEEDS = st.integers(0, 10**9)
POLICIES = st.sampled_from([replace(policy, notice_s=2, least_run_s=3, exit_s=1, eviction_gain_s=2) for policy in (ROOMY, TIGHT)])
# Which deed may move a promise, and how that is called.
CAUSES = {
    # A slot is not stored any more while a ceiling is too low for it: so nobody knows afterwards what took it.
    "quotas": {Cause.RECLAIM, Cause.QUOTA, Cause.CHANGED},
    "book": {Cause.RECLAIM},
    "evict": {Cause.RECLAIM, Cause.PRIORITY},
    "move": {Cause.ADMIN},
    "priority": set[Cause](),
    "extend": set[Cause](),
}


@examples(120)
@given(SEEDS, POLICIES, st.sets(st.sampled_from(sorted(DEEDS))))
def test_a_promise_is_moved_by_a_right_or_an_administrator_and_never_by_anybody_elses_wish(
    seed: int, policy: PlanPolicy, deeds: set[str]
) -> None:
    """Each plan on the way is checked second by second: room, ceilings, notice, and who may evict whom."""
    world = Tenants(seed, policy, deeds=frozenset(deeds))
    for _ in range(40):
        world.step()

    causes = {move.cause for moves in world.moves.values() for move in moves}
    assert causes <= set[Cause]().union(*(CAUSES[deed] for deed in deeds))


@examples(120)
@given(SEEDS, POLICIES, st.sets(st.sampled_from(sorted(DEEDS))), st.sets(st.sampled_from(sorted(MISHAPS - {"overrun"}))))
def test_whatever_happens_beside_that_no_plan_breaks_a_rule_and_no_box_is_cut_again_and_again(
    seed: int, policy: PlanPolicy, deeds: set[str], mishaps: set[str]
) -> None:
    world = Tenants(seed, policy, frozenset(mishaps), deeds=frozenset(deeds))
    for _ in range(40):
        world.step()

    assert Cause.FAULT not in {move.cause for moves in world.moves.values() for move in moves}
    assert all(count <= 3 for count in world.evicted.values())
