"""EGS itself is away for a while, and comes back: agents that it could not hear meanwhile have not been silent."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest
from django.conf import settings
from django.test import override_settings

from gpr.allocation import allocator
from gpr.allocation.absence import AWAY_S, web_server_seen
from gpr.allocation.advance import ENTRY_SILENCE_S
from gpr.allocation.allocator import tick
from gpr.models import AllocatorRecord, Gpr, GprState, Promise, PromiseMove
from inventory.models import SupplyOrderState
from inventory.services.supplies import ORDER_LATE_MOST_S
from planner.causes import Cause
from protocol.assignments import Desired
from tests.builders import make_slice, node_view
from tests.lifecycle.boxes.spares import spare_of, swapping
from tests.lifecycle.boxes.test_supplies import LEAD_S, busy_stage, ordering_slice, report, states, supply
from tests.lifecycle.stage import ENTRY, Stage, fresh

# Each day: test_silence.py, and tests/planner/promises/test_silence.py
pytestmark = [pytest.mark.django_db, pytest.mark.rotates]

S = GprState
GONE_S = settings.EGS_AGENT_UNREACHABLE_S + 5
# Web servers are away for so long while ticks go on. An agent that could be heard would count as silent by then.
NOT_SERVED_S = GONE_S + AWAY_S
TICKED_EVERY_S = AWAY_S - 10


def _with_queue(count: int = 2) -> tuple[Stage, list[Gpr]]:
    """It has one node, a box on it, and requests that wait behind each other."""
    stage = Stage(nodes=1)
    stage.active(duration_s=7200)
    return stage, [stage.submit(make_slice(stage.cluster, owner=stage.owner), duration_s=7200) for _ in range(count)]


def _promised() -> list[object]:
    return list(Promise.objects.order_by("pk").values_list("promised_start_at", flat=True))


def _is_at_risk(gpr: Gpr) -> bool:
    """Says whether it is at risk by the silence of its cluster, and promised what it was."""
    return Promise.objects.get(gpr=gpr).risk == Cause.SILENCE and not PromiseMove.objects.exists()


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


@pytest.mark.daily
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


def test_a_cluster_that_stays_silent_after_the_return_of_egs_is_silent_itself_when_its_time_is_over() -> None:
    stage, (first, *_) = _with_queue()
    stage.tick()

    stage.after(GONE_S)
    tick(now=stage.now)
    stage.watched(GONE_S)
    tick(now=stage.now)

    assert _is_at_risk(first)


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

    assert _is_at_risk(first)


def test_when_web_servers_come_and_go_agents_are_still_waited_for() -> None:
    """A new release may be rolled back at once: its servers were there for a moment, and no agent had come by then."""
    stage, _ = _with_queue()
    web_server_seen(now=stage.now)
    stage.tick()
    before = _promised()

    for _ in range(3):
        _ticking(stage, NOT_SERVED_S, is_served=False)
        _ticking(stage, 20, is_served=True)
    for _ in range(4):
        tick(now=stage.after(1))

    assert (_promised(), PromiseMove.objects.count()) == (before, 0)


def _ticking(stage: Stage, seconds: int, *, is_served: bool) -> None:
    """Ticks go on, and no agent is heard."""
    for _ in range(seconds // TICKED_EVERY_S):
        stage.now += timedelta(seconds=TICKED_EVERY_S)
        if is_served:
            web_server_seen(now=stage.now)
        tick(now=stage.now)


def test_while_only_the_web_servers_are_away_no_agent_counts_as_silent() -> None:
    stage, _ = _with_queue()
    web_server_seen(now=stage.now)
    stage.tick()
    before = _promised()

    _ticking(stage, NOT_SERVED_S, is_served=False)
    during = _promised()
    _ticking(stage, 30, is_served=True)
    stage.tick()

    assert (during, _promised(), PromiseMove.objects.count()) == (before, before, 0)


def test_an_agent_that_stays_silent_after_the_return_of_the_web_servers_is_silent_itself_when_its_time_is_over() -> None:
    stage, (first, *_) = _with_queue()
    web_server_seen(now=stage.now)
    stage.tick()

    _ticking(stage, NOT_SERVED_S, is_served=False)
    _ticking(stage, GONE_S + TICKED_EVERY_S, is_served=True)

    assert _is_at_risk(first)


def test_an_agent_that_is_silent_while_web_servers_are_there_counts_as_silent() -> None:
    stage, (first, *_) = _with_queue()
    web_server_seen(now=stage.now)
    stage.tick()

    _ticking(stage, GONE_S + TICKED_EVERY_S, is_served=True)

    assert _is_at_risk(first)


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


def test_ticks_that_fail_are_no_absence(monkeypatch: pytest.MonkeyPatch) -> None:
    """EGS is there, and its agent is not."""
    stage, _ = _with_queue(0)
    stage.tick()

    def broken(**_: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(allocator, "orphans_cancel", broken)
    for _ in range(10):
        stage.now += timedelta(seconds=20)
        with suppress(RuntimeError):
            tick(now=stage.now)
    gpr = stage.submit(make_slice(stage.cluster, owner=stage.owner))

    assert Promise.objects.get(gpr=gpr).promised_start_at > stage.now + timedelta(hours=3)


def test_an_order_whose_node_came_while_egs_was_away_is_not_given_up_before_its_agent_could_tell() -> None:
    stage = busy_stage()
    supply(stage)
    stage.submit(ordering_slice(stage))
    stage.tick()

    stage.after(LEAD_S + ORDER_LATE_MOST_S + 10)
    tick(now=stage.now)
    report(stage, node_view("spot-1"))
    stage.tick()

    assert states() == [SupplyOrderState.ARRIVED]


def test_what_can_only_be_ordered_is_promised_before_agents_are_heard_again() -> None:
    stage = busy_stage()
    supply(stage)
    of = ordering_slice(stage)
    stage.tick()

    stage.after(GONE_S)

    assert Promise.objects.filter(gpr=stage.submit(of, nodes=2)).exists()


@override_settings(EGS_SPARE_GRACE_S=0, EGS_SPARE_LEAST_S=600, EGS_SPARE_WAIT_S=300, EGS_SPARE_TRIES_MAX=2)
def test_a_spare_whose_entry_ended_while_egs_was_away_is_not_given_up_before_its_agent_could_tell() -> None:
    stage = Stage(nodes=3)
    spare = spare_of(swapping(stage, duration_s=7200))

    stage.after(settings.EGS_ENTRY_TIMEOUT_S + 60)
    tick(now=stage.now)

    spare.refresh_from_db()
    assert spare.desired == Desired.PRESENT
