"""EGS itself is away for a while, and comes back: agents that it could not hear meanwhile have not been silent."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.conf import settings

from gpr.allocator import ENTRY_SILENCE_S, tick
from gpr.models import AllocatorRecord, Gpr, GprState, Promise, PromiseMove
from gpr.planner.plan import Cause
from tests.builders import make_slice
from tests.lifecycle.stage import ENTRY, Stage, fresh

pytestmark = pytest.mark.django_db

S = GprState
GONE_S = settings.EGS_AGENT_UNREACHABLE_S + 5


def _with_queue(count: int = 3) -> tuple[Stage, list[Gpr]]:
    """One node, a box on it, and others behind each other."""
    stage = Stage(nodes=1)
    stage.active(duration_s=7200)
    return stage, [stage.submit(make_slice(stage.cluster, owner=stage.owner), duration_s=7200) for _ in range(count)]


def _promised() -> list[object]:
    return list(Promise.objects.order_by("pk").values_list("promised_start_at", flat=True))


def test_an_absence_of_egs_moves_no_promise_before_the_agents_had_their_time_to_be_heard_again() -> None:
    stage, _ = _with_queue()
    stage.watched(600)
    stage.tick()
    before = _promised()

    stage.after(GONE_S)
    for _ in range(3):
        tick(now=stage.now)
        stage.watched(20)
    stage.tick()

    assert (_promised(), PromiseMove.objects.count()) == (before, 0)


def test_a_request_that_is_filed_before_the_first_tick_after_an_absence_moves_no_promise_either() -> None:
    stage, _ = _with_queue()
    stage.tick()
    before = _promised()

    stage.after(GONE_S)
    newcomer = stage.submit(make_slice(stage.cluster, owner=stage.owner))

    assert list(Promise.objects.exclude(gpr=newcomer).order_by("pk").values_list("promised_start_at", flat=True)) == before


def test_nothing_starts_after_an_absence_before_the_agent_is_heard_and_what_was_due_is_late_by_that_absence() -> None:
    stage = Stage(nodes=1)
    due_at = stage.now + timedelta(minutes=10)
    gpr = stage.submit(earliest_start_at=due_at)
    behind = stage.submit(make_slice(stage.cluster, owner=stage.owner), earliest_start_at=due_at)
    stage.tick()

    stage.after(900)
    tick(now=stage.now)
    stage.watched(1)
    tick(now=stage.now)
    assert fresh(gpr).state == S.QUEUED

    stage.watched(1)
    stage.tick()
    assert fresh(gpr).state == S.PROVISIONING
    assert {move.cause for move in PromiseMove.objects.all()} == {Cause.LATE_TICK}
    put_off = Promise.objects.get(gpr=behind)
    assert put_off.promised_start_at - put_off.first_promised_start_at < timedelta(minutes=6)


def test_a_cluster_that_stays_silent_after_the_return_of_egs_counts_as_lost_when_its_time_is_over() -> None:
    stage, (first, *_) = _with_queue()
    stage.tick()

    stage.after(GONE_S)
    tick(now=stage.now)
    stage.watched(GONE_S)
    tick(now=stage.now)

    assert PromiseMove.objects.filter(gpr=first, cause=Cause.NODE_FAILURE).exists()


def test_a_cluster_that_was_lost_before_egs_went_away_is_no_less_lost_when_it_is_back() -> None:
    stage, (first, *_) = _with_queue()
    stage.tick()
    stage.watched(GONE_S)
    tick(now=stage.now)
    lost = Promise.objects.get(gpr=first).slot_start_at

    stage.after(GONE_S)
    tick(now=stage.now)

    assert Promise.objects.get(gpr=first).slot_start_at == lost


def test_when_egs_comes_and_goes_agents_are_still_waited_for() -> None:
    """It was never there for as long as an agent may take."""
    stage, _ = _with_queue()
    stage.tick()
    before = _promised()

    for _ in range(4):
        stage.after(GONE_S)
        tick(now=stage.now)
        stage.watched(10)
        tick(now=stage.now)

    assert _promised() == before


def test_a_clock_that_is_set_forward_and_back_loses_no_cluster() -> None:
    stage, _ = _with_queue()
    stage.tick()
    before = _promised()

    there = stage.now
    tick(now=there + timedelta(minutes=30))
    stage.now = there + timedelta(seconds=2)
    stage.tick()

    assert _promised() == before
    assert AllocatorRecord.objects.get().back_at is None


def test_a_long_tick_is_no_absence() -> None:
    stage, (first, *_) = _with_queue()
    stage.tick()
    AllocatorRecord.objects.update(last_duration_s=GONE_S)
    stage.now += timedelta(seconds=GONE_S)

    tick(now=stage.now)

    assert PromiseMove.objects.filter(gpr=first, cause=Cause.NODE_FAILURE).exists()


def test_a_box_whose_entry_ended_while_egs_was_away_is_not_given_up_before_its_agent_could_tell() -> None:
    stage = Stage(nodes=1)
    gpr = stage.submit()
    stage.tick()

    stage.after(settings.EGS_ENTRY_TIMEOUT_S + ENTRY_SILENCE_S + 1)
    tick(now=stage.now)
    stage.watched(5)
    stage.say(gpr, *ENTRY)
    stage.tick()

    assert fresh(gpr).state == S.ACTIVE
