"""Forecasts as the hub keeps them: told when promised, scored at the start, learned from."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import IntegrityError

from egs.clock import db_now
from gpr.allocator import tick
from gpr.estimates import Estimate, gpr_estimate
from gpr.forecasts import LEARNED, NO_HISTORY
from gpr.models import Forecast, Gpr, GprState, Promise
from gpr.planner.bands import ENOUGH_COUNT
from gpr.services.ending import gpr_release
from gpr.services.requests import gpr_cancel
from tests import factories
from tests.builders import agent_says
from worker_agent.protocol import Phase

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


def test_who_has_to_wait_is_foretold_and_who_starts_at_once_is_not(holder: Gpr, waiting: Gpr) -> None:
    told = Forecast.objects.get()

    assert told.gpr == waiting
    assert told.started_at is None
    assert 0 < told.p50_s <= told.p90_s == told.promised_wait_s


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


def test_an_estimate_says_whether_it_rests_on_history(holder: Gpr, waiting: Gpr) -> None:
    before = of_a_new_one(holder)
    assert before.basis == NO_HISTORY
    assert before.p90_s == (before.promised_start_at - before.start_at).total_seconds() + before.wait_s

    told = Forecast.objects.get()
    past = Forecast.objects.get(pk=told.pk)
    for i in range(ENOUGH_COUNT):
        past.pk, past.made_at = None, told.made_at - timedelta(days=2, minutes=i)
        past.started_at = past.made_at + timedelta(seconds=told.promised_wait_s // 10)
        past.save(force_insert=True)

    after = of_a_new_one(holder)
    assert after.basis == LEARNED
    assert after.p50_s <= after.p90_s < before.p90_s / 5
    newcomer = factories.gpr(factories.make_slice(holder.slice.clusters.get(), owner=holder.owner), holder.owner, nodes=1)
    promise = Promise.objects.get(gpr=newcomer)
    assert promise.p50_at is not None
    assert promise.p90_at is not None
    assert promise.p50_at <= promise.p90_at <= promise.promised_start_at


def test_one_gpr_has_one_open_forecast(waiting: Gpr) -> None:
    told = Forecast.objects.get()
    told.pk = None

    with pytest.raises(IntegrityError):
        told.save(force_insert=True)
