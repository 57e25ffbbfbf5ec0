"""The setting `EGS_POLICY` chooses how the hub works the queue off."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import override_settings

from gpr.models import Gpr, GprState, Promise
from gpr.requests.ending import gpr_release
from tests.builders import make_slice
from tests.lifecycle.stage import EXIT, Stage, fresh

pytestmark = pytest.mark.django_db
HOUR_S = 3600


def queue_behind_a_box(stage: Stage) -> tuple[Gpr, Gpr]:
    """A box of four hours is on the only node; behind it wait first one of three hours, then one of an hour.

    It is given back after an hour.
    """
    box, long, short = (make_slice(stage.cluster, owner=stage.owner) for _ in range(3))
    runs = stage.active(slice_=box, duration_s=4 * HOUR_S)
    first = stage.submit(long, duration_s=3 * HOUR_S)
    stage.after(1)
    second = stage.submit(short, duration_s=HOUR_S)
    stage.after(HOUR_S)
    gpr_release(gpr=runs, actor=stage.owner, now=stage.now)
    stage.say(runs, *EXIT)
    stage.tick()
    return fresh(first), fresh(second)


@override_settings(EGS_POLICY="guarded")
def test_guarded_who_is_short_goes_first_where_it_delays_nobody() -> None:
    long, short = queue_behind_a_box(Stage(nodes=1))

    assert (long.state, short.state) == (GprState.QUEUED, GprState.PROVISIONING)


@override_settings(EGS_POLICY="conservative")
def test_conservative_who_came_first_moves_up_first_and_the_next_behind_it() -> None:
    stage = Stage(nodes=1)
    long, short = queue_behind_a_box(stage)

    assert (long.state, short.state) == (GprState.PROVISIONING, GprState.QUEUED)
    slot_at, promised_at = Promise.objects.values_list("slot_start_at", "promised_start_at").get(gpr=short)
    assert timedelta(hours=3) <= slot_at - stage.now < timedelta(hours=3, minutes=10)
    assert promised_at > slot_at  # as it was told: it may be beaten
