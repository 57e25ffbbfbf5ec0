"""EGS tells the owner of a box once, after its end, what it used and which smaller one would have done."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from gpr.models import Gpr
from gpr.requests.ending import gpr_release
from inventory.models import Gpu, Reservation
from journal.models import Event
from journal.notices.audience import hearers_of
from observability.usage.reports import BoxWork, work_of
from tests.lifecycle.stage import EXIT, Stage
from tests.observability.telemetry.saying import reading, store
from tests.observability.usage.working import LAG_S, count, gpus_of_box, work

pytestmark = pytest.mark.django_db


@pytest.fixture
def stage() -> Stage:
    made = Stage(nodes=2, gpus=4)
    made.now = made.now.replace(second=0)
    return made


def begin(stage: Stage, **asked: Any) -> Gpr:
    return stage.active(entry_s=0, **{"nodes": 1, "duration_s": 7200, "name": "train", **asked})


def end(stage: Stage, gpr: Gpr) -> list[Event]:
    gpr_release(gpr=Gpr.objects.get(pk=gpr.pk), actor=stage.owner, now=stage.now)
    stage.say(gpr, *EXIT, exit_began_s=stage.now.timestamp())
    stage.tick()
    stage.after(LAG_S)
    count(stage)
    stage.after(60)
    count(stage)
    return list(Event.objects.filter(kind="gpr.used"))


@pytest.mark.both_databases
def test_a_box_with_gpus_and_time_to_spare_is_told_the_smaller_one(stage: Stage) -> None:
    gpr = begin(stage)
    work(stage, gpr, 10, lambda n: [100, 100, 0, 2][n])
    work(stage, gpr, 30, lambda n: 0)

    (event,) = end(stage, gpr)

    assert event.message == (
        "train held 2.7 GPU-hours. Kernels ran in 0.3 GPU-hours, 13 % of the measured time. "
        "Only 2 of its 4 GPUs did anything and nothing ran in the last 30 min: 2 GPUs for 10 min would have done."
    )
    assert [hearer.user for hearer in hearers_of([event])] == [stage.owner]


@pytest.mark.both_databases
def test_the_work_of_nodes_that_left_apart_is_read_by_the_statements_of_one_node(stage: Stage) -> None:
    gpr = begin(stage, nodes=2)
    work(stage, gpr, 10, lambda n: 90)
    end(stage, gpr)

    def work_and_size() -> tuple[BoxWork | None, list[int]]:
        with CaptureQueriesContext(connection) as queries:
            found = work_of(Gpr.objects.get(pk=gpr.pk))
        return found, [len(query["sql"]) for query in queries.captured_queries]

    together, size = work_and_size()
    Reservation.objects.filter(pk=Reservation.objects.filter(gpr=gpr)[0].pk).update(
        exit_began_at=F("exit_began_at") - timedelta(minutes=10)
    )
    apart, size_apart = work_and_size()

    assert together is not None
    assert apart is not None
    assert (together.worked_count, apart.worked_count, together.last_at) == (8, 4, apart.last_at)
    assert size_apart == size


@pytest.mark.rotates
def test_a_box_that_was_used_to_the_end_is_told_of_no_smaller_one(stage: Stage) -> None:
    gpr = begin(stage)
    work(stage, gpr, 10, lambda n: 90)

    (event,) = end(stage, gpr)

    assert event.message == "train held 0.7 GPU-hours. Kernels ran in 0.6 GPU-hours, 90 % of the measured time."


@pytest.mark.rotates
def test_of_a_box_without_readings_nothing_is_claimed(stage: Stage) -> None:
    gpr = begin(stage)
    other = Gpu.objects.exclude(pk__in=[gpu.pk for gpu in gpus_of_box(gpr)])[0]
    for _ in range(3):
        store(stage.cluster, reading(other, at=stage.now, utilization_percent=0), now=stage.now)
        stage.watched(60)

    (event,) = end(stage, gpr)

    assert event.message == "train held 0.2 GPU-hours. EGS has no readings of it, so it does not know its use."
