"""The agent of a cluster is silent for a while, though EGS is there: promises are at risk meanwhile, and not moved."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpr.allocation.allocator import tick
from gpr.models import Gpr, GprState, Promise, PromiseMove
from gpr.requests.editing import gpr_edit, spec_of
from planner.causes import Cause
from tests.builders import make_cluster, make_slice
from tests.effort import IS_SOAK
from tests.inventory.agent import Agent
from tests.lifecycle.stage import Stage, fresh

pytestmark = pytest.mark.django_db

S = GprState
DURATION_S = 7200


def _waiting(stage: Stage, count: int) -> list[Gpr]:
    return [stage.submit(make_slice(stage.cluster, owner=stage.owner), duration_s=DURATION_S) for _ in range(count)]


def _promised(gprs: list[Gpr]) -> list[tuple[object, ...]]:
    rows = Promise.objects.filter(gpr__in=gprs).order_by("pk")
    return list(rows.values_list("promised_start_at", "slot_start_at", "slot_nodes", "lost_cause"))


def _silent(stage: Stage, seconds: int, *, every_s: int = 60) -> None:
    """EGS ticks on, and the agent is not heard."""
    for _ in range(seconds // every_s):
        stage.watched(every_s)
        tick(now=stage.now)


@pytest.mark.parametrize(("silent_s", "every_s"), [(120, 60), (5400, 60 if IS_SOAK else 300)])
def test_promises_stay_as_they_were_when_the_cluster_is_heard_before_their_time(silent_s: int, every_s: int) -> None:
    stage = Stage(nodes=1)
    stage.active(duration_s=DURATION_S)
    gprs = _waiting(stage, 3)
    stage.tick()
    before = _promised(gprs)

    _silent(stage, silent_s, every_s=every_s)
    newcomer = stage.submit(make_slice(stage.cluster, owner=stage.owner), duration_s=600)
    _silent(stage, 60)
    assert [row[:3] for row in _promised(gprs)] == [row[:3] for row in before]
    assert {promise.risk for promise in Promise.objects.filter(gpr__in=gprs)} == {Cause.SILENCE}
    assert {fresh(gpr).explanation["reason"] for gpr in gprs} == {"waits_for_contact"}

    stage.tick()
    assert (_promised(gprs), PromiseMove.objects.count()) == (before, 0)
    assert Promise.objects.get(gpr=newcomer).risk == ""


def test_what_time_has_passed_starts_when_the_cluster_is_heard_and_the_move_says_that_it_was_silent() -> None:
    stage = Stage(nodes=1)
    due_at = stage.now + timedelta(minutes=5)
    first = stage.submit(earliest_start_at=due_at, duration_s=DURATION_S)
    second = _waiting(stage, 1)[0]
    stage.tick()
    promised = {gpr.pk: Promise.objects.get(gpr=gpr).promised_start_at for gpr in (first, second)}

    _silent(stage, 900)
    newcomer = stage.submit(make_slice(stage.cluster, owner=stage.owner), duration_s=600)
    told_at = Promise.objects.get(gpr=newcomer).promised_start_at
    assert not PromiseMove.objects.exists()
    stage.tick()

    assert fresh(first).state == S.PROVISIONING
    assert {move.cause for move in PromiseMove.objects.all()} == {Cause.SILENCE}
    put_off = Promise.objects.get(gpr=second).promised_start_at - promised[second.pk]
    assert timedelta() <= put_off <= timedelta(seconds=900)
    assert Promise.objects.get(gpr=newcomer).promised_start_at == told_at


def test_one_whose_cluster_is_silent_starts_in_another_where_it_fits() -> None:
    stage = Stage(nodes=1)
    other = make_cluster(nodes=1, gpus=4, is_heard=False)
    agent = Agent.joined(other)
    slice_ = make_slice(stage.cluster, other, owner=stage.owner)
    agent.sync(at=stage.now)
    stage.agent.sync(at=stage.now)
    blocker = stage.submit(make_slice(other, owner=stage.owner), duration_s=3600)
    waits = stage.submit(slice_, earliest_start_at=stage.now + timedelta(minutes=5), duration_s=600)
    agent.sync(at=stage.now)
    stage.tick()
    assert fresh(blocker).state == S.PROVISIONING
    assert Promise.objects.get(gpr=waits).slot_pool.startswith(stage.cluster.name)

    for _ in range(10):
        stage.watched(60)
        agent.sync(at=stage.now)
        tick(now=stage.now)
    assert (fresh(waits).state, PromiseMove.objects.count()) == (S.QUEUED, 0)
    for row in stage.held(blocker):
        row.gpus.all().delete()
        row.delete()
    Gpr.objects.filter(pk=blocker.pk).update(state=S.EXITING)
    tick(now=stage.now)

    assert (fresh(waits).state, fresh(waits).cluster) == (S.PROVISIONING, other)
    assert {move.cause for move in PromiseMove.objects.filter(gpr=waits)} == {Cause.SILENCE}


def test_who_asks_for_less_while_its_cluster_is_silent_keeps_its_place() -> None:
    stage = Stage(nodes=1)
    stage.active(duration_s=DURATION_S)
    gpr = _waiting(stage, 1)[0]
    stage.tick()
    before = _promised([gpr])
    _silent(stage, 120)

    gpr_edit(gpr=fresh(gpr), actor=stage.owner, spec=spec_of(fresh(gpr), duration_s=DURATION_S // 2), now=stage.now)
    stage.tick()

    assert _promised([gpr]) == before
