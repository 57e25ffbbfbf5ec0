"""A cluster is silent for a while: contact lost is not capacity lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.causes import Cause
from planner.plan import Plan, PromiseMove, Reason
from planner.snapshot import PlanPolicy, Pool, Request, Window
from tests.effort import IS_SOAK
from tests.planner.build import placements
from tests.planner.draw import POLICIES
from tests.planner.world import MIXED, Asks, World

# From its beginning on a silence is expected to last so long.
ASSUMED_S = 40
LONG = Asks(priorities=(50, 101), node_counts=(1, 1, 2), lengths_s=range(4, 30))


class SilentWorld(World):
    """The cluster of pool p may be silent: of its boxes nobody hears when they end."""

    silent_until_s: int | None = None

    def be_silent(self) -> None:
        self.silent_until_s = self.now_s + ASSUMED_S
        self._close_silent()

    def be_heard(self) -> None:
        self.silent_until_s = None
        self.pools = tuple(self._with_windows(pool, ()) if pool.id == "p" else pool for pool in self.pools)

    def end_boxes(self) -> None:
        if self.silent_until_s is None:
            super().end_boxes()
            return
        unheard = {id_: end_s for id_, end_s in self.real_end_s.items() if self.running[id_].pool == "p"}
        self.real_end_s = {id_: end_s for id_, end_s in self.real_end_s.items() if id_ not in unheard}
        super().end_boxes()
        self.real_end_s |= unheard
        self._close_silent()

    def _close_silent(self) -> None:
        assert self.silent_until_s is not None
        window = Window(self.now_s, self.silent_until_s, unheard=Cause.SILENCE)
        self.pools = tuple(self._with_windows(pool, (window,)) if pool.id == "p" else pool for pool in self.pools)

    @staticmethod
    def _with_windows(pool: Pool, closed: tuple[Window, ...]) -> Pool:
        return replace(pool, nodes=tuple(replace(node, closed=closed) for node in pool.nodes))


def _silenced(seed: int, policy: PlanPolicy, asks: Asks, silent_s: int) -> tuple[SilentWorld, int, dict[str, Request]]:
    """A world that was silent for so long, just before it is heard; since when it was; and who waited then."""
    world = SilentWorld(seed, policy, asks=asks)
    for _ in range(15):
        world.step()
    world.tick()
    waited, since_s = {request.id: request for request in world.queue}, world.now_s
    world.be_silent()
    for _ in range(silent_s):
        world.step()  # which also checks that nothing at risk moves, and that nobody else gets its place
    return world, since_s, waited


def _moves(world: World, since: int = 0) -> list[PromiseMove]:
    return [move for moves in world.moves.values() for move in moves[since:]]


@pytest.mark.parametrize("asks", [MIXED, LONG])
def test_a_silence_moves_no_promise_but_what_time_has_passed_and_what_comes_behind_that(asks: Asks) -> None:
    calm_count = 0
    for seed in range(30 if IS_SOAK else 8):
        world, _, waited = _silenced(seed, POLICIES[seed % len(POLICIES)], asks, 1 + seed * 7 % (ASSUMED_S - 1))
        assert _moves(world) == []

        world.be_heard()
        world.now_s += 1
        world.end_boxes()
        at_risk = [request for request in world.queue if request.slot is not None and request.lost is not None]
        has_passed = any(request.slot is not None and request.slot.start_s < world.now_s for request in at_risk)
        world.tick()

        assert {move.cause for move in _moves(world)} <= {Cause.SILENCE}
        assert all(move.old_s < move.new_s for move in _moves(world))
        if not has_passed:
            calm_count += 1
            assert _moves(world) == []
            assert all(request.promise_s == waited[request.id].promise_s for request in world.queue if request.id in waited)
    assert calm_count > 0


def test_one_at_risk_says_so_and_starts_in_another_cluster_where_it_fits_there_sooner() -> None:
    """Worlds in which both happen are looked for, so that the property above says something."""
    told, elsewhere, newcomers = set(), 0, 0
    for seed in range(25):
        world, since_s, waited = _silenced(seed, POLICIES[0], LONG, 20)
        made: Plan = world.tick()[1]
        told |= {p.explanation.reason for p in placements(made).values() if p.lost is not None and p.slot is not None and not p.starts_now}
        begun = [id_ for id_, start_s in world.started_s.items() if since_s < start_s and id_ in waited]
        elsewhere += sum(request.pool == "q" for id_ in begun if (request := world.running.get(id_)) is not None)
        newcomers += sum(request.id not in waited and request.pools == ("p",) for request in world.queue)
    assert told <= {Reason.WAITS_FOR_CONTACT, Reason.WAITS_FOR_GPUS, Reason.WAITS_FOR_SLICE}
    assert Reason.WAITS_FOR_CONTACT in told
    assert elsewhere > 0
    assert newcomers > 0
