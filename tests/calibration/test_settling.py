"""Each promise is held against what came, once: at the start, or when it is taken back after it was overdue."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpr.models import AllocatorRecord, Forecast, Promise, PromiseOutcome
from gpr.queue.decisions import gpr_evict
from gpr.queue.moves import MoveTo, gpr_move
from gpr.requests.editing import gpr_cancel, gpr_edit, spec_of
from gpr.requests.ending import gpr_release
from tests.builders import make_slice
from tests.lifecycle.stage import EXIT, Stage, fresh, length_s

pytestmark = pytest.mark.django_db
HOUR_S = 3_600


@pytest.fixture
def stage() -> Stage:
    return Stage(nodes=2)


def test_who_starts_at_once_has_kept_its_promise_and_was_foretold_nothing(stage: Stage) -> None:
    gpr = stage.submit(nodes=2)
    stage.tick()

    outcome = PromiseOutcome.objects.get()

    assert (outcome.gpr, outcome.forecast, outcome.started_at, outcome.settled_at) == (gpr, None, stage.now, stage.now)
    assert (outcome.margin_s, outcome.wait_s, outcome.length_s) == (0, 0, length_s(gpr))
    assert (outcome.is_gang, outcome.is_moved, outcome.is_learned) == (True, False, False)


def test_who_had_to_wait_is_settled_with_its_forecast_in_the_transaction_of_its_start(stage: Stage) -> None:
    runs = stage.active(nodes=2, duration_s=4 * HOUR_S)
    waits = stage.submit(make_slice(stage.cluster, owner=stage.owner))
    promised_at = Promise.objects.get(gpr=waits).promised_start_at
    stage.after(HOUR_S)
    gpr_release(gpr=runs, actor=stage.owner, now=stage.now)
    stage.say(runs, *EXIT)
    stage.tick()

    outcome = PromiseOutcome.objects.get(gpr=waits)

    assert outcome.forecast == Forecast.objects.get(gpr=waits)
    assert (outcome.promised_start_at, outcome.started_at) == (promised_at, fresh(waits).provisioning_at)
    assert outcome.margin_s == (promised_at - stage.now).total_seconds() > 0
    assert outcome.wait_s == HOUR_S
    assert not outcome.is_gang


def test_a_promise_that_is_moved_is_held_against_the_time_that_was_promised_first(stage: Stage) -> None:
    runs = stage.active(nodes=2, duration_s=HOUR_S)
    waits = stage.submit(make_slice(stage.cluster, owner=stage.owner))
    promised_at = Promise.objects.get(gpr=waits).promised_start_at
    stage.now = promised_at + timedelta(minutes=5)
    stage.tick()  # the box before it is not back
    stage.say(runs, *EXIT)
    stage.tick()

    outcome = PromiseOutcome.objects.get(gpr=waits)

    assert (outcome.promised_start_at, outcome.margin_s, outcome.is_moved) == (promised_at, -300, True)
    assert AllocatorRecord.objects.values_list("kept_count", "late_count").get() == (1, 1)


def test_a_promise_that_only_got_earlier_was_not_moved(stage: Stage) -> None:
    """An administrator moves it up: nothing had to give way that was promised."""
    stage.active(nodes=2, duration_s=HOUR_S)
    first = stage.submit(make_slice(stage.cluster, owner=stage.owner), nodes=2, duration_s=HOUR_S)
    stage.after(1)
    second = stage.submit(make_slice(stage.cluster, owner=stage.owner), nodes=2, duration_s=HOUR_S)
    promised_at = Promise.objects.get(gpr=second).first_promised_start_at
    gpr_move(gpr=second, to=MoveTo.FIRST, actor=stage.admin, now=stage.now)
    assert Promise.objects.get(gpr=second).promised_start_at < promised_at
    gpr_cancel(gpr=first, actor=stage.owner, now=stage.now)
    stage.now = promised_at + timedelta(minutes=2)
    gpr_cancel(gpr=second, actor=stage.owner, now=stage.now)

    outcome = PromiseOutcome.objects.get(gpr=second)

    assert (outcome.promised_start_at, outcome.is_moved) == (promised_at, False)


def test_a_promise_that_an_edit_made_earlier_is_held_against_the_earlier_time(stage: Stage) -> None:
    stage.active(nodes=1, duration_s=4 * HOUR_S)
    waits = stage.submit(make_slice(stage.cluster, owner=stage.owner), nodes=2, duration_s=HOUR_S)
    before = Promise.objects.get(gpr=waits)
    stage.after(60)
    gpr_edit(gpr=fresh(waits), actor=stage.owner, spec=spec_of(fresh(waits), nodes=1), now=stage.now)

    now = Promise.objects.get(gpr=waits)

    assert now.first_promised_start_at == now.promised_start_at < before.first_promised_start_at
    assert now.made_at == stage.now


def test_one_that_is_withdrawn_after_it_was_overdue_was_not_kept_and_before_it_tells_nothing(stage: Stage) -> None:
    stage.active(nodes=2, duration_s=HOUR_S)
    early, late = (stage.submit(make_slice(stage.cluster, owner=stage.owner)) for _ in range(2))
    promised_at = Promise.objects.get(gpr=late).promised_start_at
    gpr_cancel(gpr=early, actor=stage.owner, now=stage.now)
    stage.now = promised_at + timedelta(minutes=2)
    gpr_cancel(gpr=late, actor=stage.owner, now=stage.now)

    outcome = PromiseOutcome.objects.exclude(wait_s=0).get()

    assert (outcome.gpr, outcome.started_at, outcome.margin_s, outcome.forecast) == (late, None, -120, None)


def test_one_that_runs_and_waits_again_is_settled_for_each_of_its_promises(stage: Stage) -> None:
    gpr = stage.active(nodes=1)
    stage.after(600)
    gpr_evict(gpr=gpr, actor=stage.admin, why="Release week.", now=stage.now, requeue=True)
    stage.say(gpr, *EXIT)
    for _ in range(2):
        stage.tick()
        stage.after(5)

    made = list(PromiseOutcome.objects.filter(gpr=gpr).order_by("pk").values_list("made_at", flat=True))

    assert fresh(gpr).run == len(made) == 2
    assert made[0] < made[1]
