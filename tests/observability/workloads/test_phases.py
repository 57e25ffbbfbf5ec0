"""Phases of a workload follow from what its GPUs did, and from nothing before its box."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from core.clock import db_now
from inventory.models import ReservedGpu
from observability.workloads.models import Workload
from observability.workloads.phases import Point, WorkPhase, course_of, phases_of
from observability.workloads.selectors import gpus_of
from slices.namespaces.services import namespace_bind
from tests import factories
from tests.builders import unique
from tests.observability.telemetry.saying import reading, store
from tests.observability.workloads.saying import pods_of, tell

STEP = timedelta(seconds=15)
T0 = datetime(2026, 11, 27, 12, tzinfo=UTC)


def course(*points: tuple[float, float], gap_after: int | None = None) -> list[Point]:
    """(use, memory) of each step; a gap of five minutes after one of them."""
    late = [timedelta(minutes=5) if gap_after is not None and n > gap_after else timedelta(0) for n in range(len(points))]
    return [Point(T0 + n * STEP + late[n], use, memory, 60, 400.0) for n, (use, memory) in enumerate(points)]


def test_loading_work_a_checkpoint_and_idleness_are_told_apart() -> None:
    points = course((4, 1_000), (5, 9_000), (5, 40_000), (96, 70_000), (97, 70_000), (22, 70_000), (95, 70_000), (0, 70_000))

    spans = phases_of(points, STEP)

    assert [span.phase for span in spans] == [
        WorkPhase.IDLE,
        WorkPhase.LOADING,
        WorkPhase.BUSY,
        WorkPhase.LIGHT,
        WorkPhase.BUSY,
        WorkPhase.IDLE,
    ]
    assert (spans[2].since_at, spans[2].until_at, spans[2].use_percent) == (T0 + 3 * STEP, T0 + 5 * STEP, 96)


def test_a_time_without_readings_belongs_to_no_phase() -> None:
    spans = phases_of(course((90, 1), (90, 1), (90, 1), gap_after=0), STEP)

    assert [(span.until_at - span.since_at) / STEP for span in spans] == [1, 2]


@pytest.mark.django_db
@pytest.mark.both_databases
def test_the_course_of_a_workload_tells_of_no_time_before_its_box() -> None:
    cluster, owner, now = factories.cluster(unique("c"), nodes=1, gpus=4), factories.user(unique("owner")), db_now()
    vision = factories.make_slice(cluster, owner=owner)
    namespace_bind(slice_=vision, cluster=cluster, name="vision-ns", actor=None, now=now)
    box = factories.active(vision, owner, nodes=1)
    ReservedGpu.objects.filter(reservation__gpr=box).update(starts_at=now - timedelta(seconds=30))
    tell(cluster, *pods_of(box, "vision-ns"))
    row = Workload.objects.get()
    gpus = [gpu.gpu for gpu in gpus_of([row])[row.pk]]
    for seconds, use in ((60, 11), (15, 80), (0, 90)):
        at = now - timedelta(seconds=seconds)
        store(cluster, *(reading(gpu, at=at, utilization_percent=use, power_w=100, temperature_c=50) for gpu in gpus), now=at)

    points, step = course_of(gpus_of([row])[row.pk], since=now - timedelta(hours=1), now=now)

    assert step == STEP
    assert [(round(point.use_percent), point.temperature_c, point.power_w) for point in points] == [(80, 50, 400), (90, 50, 400)]
