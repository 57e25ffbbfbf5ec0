"""A workspace sees the whole course of a GPU that many of its boxes held, one after the other."""

from __future__ import annotations

from datetime import timedelta

import pytest

from core.clock import db_now
from inventory.models import Reservation, ReservationState, ReservedGpu
from observability.models import LatestReading, Reading10m
from observability.telemetry.partitions import partitions_ensure
from observability.telemetry.selectors import course_of
from tests.builders import make_cluster, make_gpr, make_slice, make_user, nodes_of
from tests.observability.telemetry.saying import gpus_of

BOXES = 1200
HOUR = timedelta(hours=1)


@pytest.mark.django_db
def test_a_member_reads_the_course_of_a_gpu_that_1200_of_his_boxes_held_and_of_no_time_between_them() -> None:
    cluster, owner = make_cluster("c1", nodes=1, gpus=1), make_user()
    gpr = make_gpr(make_slice(cluster, owner=owner), owner=owner)
    (node,), now = nodes_of(cluster), db_now().replace(minute=0, second=0, microsecond=0)
    (gpu,) = gpus_of(node)
    since = now - BOXES * HOUR
    given = {"gpr": gpr, "slice": gpr.slice, "cluster": cluster, "node": node, "gang_count": 1, "duration_s": 1800, "enter_by_at": now}
    held = [(since + n * HOUR, since + n * HOUR + HOUR / 2) for n in range(BOXES)]
    boxes = Reservation.objects.bulk_create(
        Reservation(epoch=n + 1, state=ReservationState.RELEASED, starts_at=begin, ends_at=end, released_at=end, **given)
        for n, (begin, end) in enumerate(held)
    )
    ReservedGpu.objects.bulk_create(
        ReservedGpu(reservation=box, gpu=gpu, state=box.state, starts_at=box.starts_at, ends_at=box.ends_at) for box in boxes
    )
    series = LatestReading.objects.create(gpu=gpu, at=now)
    steps = [since + n * Reading10m.STEP for n in range(BOXES * 6)]
    partitions_ensure(Reading10m, steps)
    Reading10m.objects.bulk_create(Reading10m(series_id=series.pk, at=at, temperature_c=50) for at in steps)

    course = course_of(owner, gpu, since=since, until=now, step_s=None, now=now)

    assert len(course.spans) == BOXES
    assert [point["at"] for point in course.points] == [at for at in steps if at.minute in (0, 10, 20)]
