"""Forecasts as the hub keeps them: told when promised, scored at the start, learned from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError

from core.clock import db_now
from gpr.allocation.allocator import tick
from gpr.allocation.snapshot import length_s
from gpr.models import Forecast, Gpr, GprState, Promise, PromiseOutcome
from gpr.promises.forecasts import LEARNED, NO_HISTORY, ranges_load
from gpr.promises.outcomes import promises_settle
from gpr.requests.editing import gpr_cancel, gpr_edit, spec_of
from gpr.requests.ending import gpr_release
from gpr.requests.estimates import Estimate, gpr_estimate
from planner.promises.ranges import ENOUGH_COUNT, ForecastRanges, WaitForecast
from protocol.assignments import Phase
from tests import factories
from tests.builders import agent_says

pytestmark = pytest.mark.django_db


@pytest.fixture
def holder() -> Gpr:
    """It runs on the only node."""
    owner = factories.user("owner")
    cluster = factories.cluster("aurora", nodes=1)
    return factories.active(factories.make_slice(cluster, owner=owner), owner, nodes=1)


@pytest.fixture
def waiting(holder: Gpr) -> Gpr:
    return factories.gpr(factories.make_slice(holder.slice.clusters.get(), owner=holder.owner), holder.owner, nodes=1)


def of_a_new_one(holder: Gpr) -> Estimate:
    slice_ = factories.make_slice(holder.slice.clusters.get(), owner=holder.owner)
    return gpr_estimate(actor=holder.owner, spec=factories.spec(slice_, nodes=1), now=db_now())[0]


def learned_from(told: Forecast, *, wait_parts: Sequence[float] = (0.1,)) -> None:
    """Enough like it started after these parts, in turn, of what was promised, some days ago."""
    past = Forecast.objects.get(pk=told.pk)
    for i in range(ENOUGH_COUNT):
        past.pk, past.made_at = None, told.made_at - timedelta(days=2, minutes=i)
        past.started_at = past.made_at + timedelta(seconds=int(told.promised_wait_s * wait_parts[i % len(wait_parts)]))
        past.save(force_insert=True)


def edit(gpr: Gpr, now: datetime, **changes: Any) -> Gpr:
    known = Gpr.objects.select_related("slice").get(pk=gpr.pk)
    return gpr_edit(gpr=known, actor=gpr.owner, spec=spec_of(known, **changes), now=now)


def range_of(gpr: Gpr) -> tuple[datetime | None, datetime | None]:
    return Promise.objects.values_list("p50_at", "p90_at").get(gpr=gpr)


def test_who_has_to_wait_is_foretold_and_who_starts_at_once_is_not(holder: Gpr, waiting: Gpr) -> None:
    told = Forecast.objects.get()

    assert told.gpr == waiting
    assert told.started_at is None
    assert 0 < told.p50_s <= told.p90_s == told.promised_wait_s


@pytest.mark.both_databases
def test_a_start_is_the_outcome(holder: Gpr, waiting: Gpr) -> None:
    now = db_now() + timedelta(seconds=5)
    gpr_release(gpr=holder, actor=holder.owner, now=now)
    for row in factories.held(holder):
        agent_says(row, Phase.RELEASED, now=now)

    tick(now=now)
    waiting.refresh_from_db()

    assert waiting.state == GprState.PROVISIONING
    assert Forecast.objects.get().started_at == waiting.provisioning_at


def test_nothing_is_learned_of_one_that_was_canceled(waiting: Gpr) -> None:
    gpr_cancel(gpr=waiting, actor=waiting.owner, now=db_now())

    assert not Forecast.objects.exists()


@pytest.mark.both_databases
def test_an_estimate_says_whether_it_rests_on_history(holder: Gpr, waiting: Gpr) -> None:
    before = of_a_new_one(holder)
    assert before.basis == NO_HISTORY
    assert before.p90_s == (before.promised_start_at - before.start_at).total_seconds() + before.wait_s

    learned_from(Forecast.objects.get())

    after = of_a_new_one(holder)
    assert after.basis == LEARNED
    assert after.p50_s <= after.p90_s < before.p90_s / 5
    newcomer = factories.gpr(factories.make_slice(holder.slice.clusters.get(), owner=holder.owner), holder.owner, nodes=1)
    promise = Promise.objects.get(gpr=newcomer)
    assert promise.p50_at is not None
    assert promise.p90_at is not None
    assert promise.p50_at <= promise.p90_at <= promise.promised_start_at


@pytest.mark.both_databases
def test_one_gpr_has_one_open_forecast(waiting: Gpr) -> None:
    told = Forecast.objects.get()
    told.pk = None

    with pytest.raises(IntegrityError):
        told.save(force_insert=True)


@pytest.mark.parametrize("change", [{"duration_s": 1_200}, {"duration_s": 20_000}, {"gpus_per_node": 2}, {"earliest_start_at": True}])
def test_who_changes_what_he_asks_for_is_told_the_range_of_that(holder: Gpr, waiting: Gpr, change: dict[str, Any]) -> None:
    """The one that he was offered for it; and it is the one that is scored."""
    learned_from(Forecast.objects.get())
    now = db_now() + timedelta(seconds=100)
    change = {name: now + timedelta(hours=9) if value is True else value for name, value in change.items()}
    (offer,) = gpr_estimate(actor=waiting.owner, spec=spec_of(waiting, **change), now=now, edited=waiting)
    assert offer.basis == LEARNED

    edited = edit(waiting, now, **change)

    assert range_of(waiting) == (now + timedelta(seconds=offer.p50_s), now + timedelta(seconds=offer.p90_s))
    told = Forecast.objects.get(gpr=waiting, started_at=None)
    assert (told.made_at, told.length_s) == (now, length_s(edited))
    assert (told.expected_wait_s, told.p50_s, told.p90_s) == (offer.wait_s, offer.p50_s, offer.p90_s)


def test_an_edit_is_told_no_range_while_too_few_have_started_to_tell(holder: Gpr, waiting: Gpr) -> None:
    told = Forecast.objects.get()
    Promise.objects.filter(gpr=waiting).update(p50_at=told.made_at, p90_at=told.made_at)

    edit(waiting, db_now(), duration_s=1_200)

    assert range_of(waiting) == (None, None)


def test_a_new_name_changes_nothing_of_what_was_foretold(holder: Gpr, waiting: Gpr) -> None:
    learned_from(Forecast.objects.get())
    edit(waiting, db_now(), duration_s=1_200)
    before = range_of(waiting), Forecast.objects.filter(gpr=waiting, started_at=None).values().get()

    edit(waiting, db_now() + timedelta(seconds=100), name="another", requeue_on_failure=False)

    assert (range_of(waiting), Forecast.objects.filter(gpr=waiting, started_at=None).values().get()) == before


def test_who_can_start_at_once_by_his_edit_is_foretold_nothing_any_more(holder: Gpr) -> None:
    other = factories.cluster("borealis", nodes=1)
    slice_ = factories.make_slice(holder.slice.clusters.get(), other, owner=holder.owner)
    waiting = factories.gpr(slice_, holder.owner, nodes=1, clusters=(holder.slice.clusters.get(),))
    learned_from(Forecast.objects.get())

    edit(waiting, db_now(), clusters=(other,))

    assert range_of(waiting) == (None, None)
    assert not Forecast.objects.filter(gpr=waiting, started_at=None).exists()


@pytest.mark.both_databases
def test_the_start_of_who_was_edited_is_held_against_what_was_foretold_then(holder: Gpr, waiting: Gpr) -> None:
    """The words before the edit teach nothing: they were of another request."""
    edited_at = db_now() + timedelta(seconds=5)
    edit(waiting, edited_at, duration_s=1_200)
    now = edited_at + timedelta(seconds=50)
    gpr_release(gpr=holder, actor=holder.owner, now=now)
    for row in factories.held(holder):
        agent_says(row, Phase.RELEASED, now=now)

    tick(now=now)

    outcome, told = PromiseOutcome.objects.get(gpr=waiting), Forecast.objects.get(gpr=waiting)
    assert (outcome.forecast, outcome.wait_s) == (told, 50)
    assert (told.made_at, told.started_at) == (edited_at, now)


@pytest.mark.both_databases
def test_a_range_rests_on_the_last_outcomes_and_on_all_who_wait_longer_than_they_were_told(holder: Gpr, waiting: Gpr) -> None:
    told = Forecast.objects.get()
    learned_from(told, wait_parts=[0.1, 0.2, 0.3, 0.4, 0.5])
    now = told.made_at + timedelta(seconds=told.p50_s + 1)
    asked = WaitForecast("new", math.floor(now.timestamp()), told.length_s, told.gpu_count, told.expected_wait_s, 90_000, (0, 0))
    rows = [*Forecast.objects.exclude(started_at=None).order_by("started_at", "pk"), told]

    replayed = ForecastRanges([planner_forecast(row) for row in rows]).forecast(asked)

    assert ranges_load(now=now).forecast(asked).bounds_s == replayed.bounds_s
    assert ranges_load(now=told.made_at).forecast(asked).bounds_s < replayed.bounds_s
    assert ranges_load(now=now, edited=waiting).forecast(asked).bounds_s < replayed.bounds_s


@pytest.mark.both_databases
def test_outcomes_that_are_older_than_the_newest_are_learned_from_too(holder: Gpr, waiting: Gpr) -> None:
    """Several requests start at the same time, and a clock may be set back."""
    told = Forecast.objects.get()
    learned_from(told)
    assert ranges_load(now=db_now()).outcome_count == ENOUGH_COUNT

    promises_settle([waiting], now=told.made_at - timedelta(days=9))

    assert ranges_load(now=db_now()).outcome_count == ENOUGH_COUNT + 1


def planner_forecast(row: Forecast) -> WaitForecast:
    wait_s = None if row.started_at is None else int((row.started_at - row.made_at).total_seconds())
    made_s, bounds_s = math.floor(row.made_at.timestamp()), (row.p50_s, row.p90_s)
    return WaitForecast(str(row.pk), made_s, row.length_s, row.gpu_count, row.expected_wait_s, row.promised_wait_s, bounds_s, wait_s)
