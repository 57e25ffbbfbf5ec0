"""A plan counts in whole seconds, which the database counts out: as exactly as Python would, on both."""

from __future__ import annotations

import math
from datetime import timedelta
from uuid import uuid4

import pytest

from gpr.allocation.live import snapshot_load
from gpr.models import Gpr, GprState, Shadow
from inventory.models import Reservation
from tests.builders import HOUR, NOW, hold, make_cluster, make_gpr, make_slice, nodes_of

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]


@pytest.mark.parametrize("microseconds", [0, 1, 499_600, 999_999])
def test_a_box_is_there_from_the_second_in_which_it_began_until_the_one_after_its_end(microseconds: int) -> None:
    cluster, part = make_cluster(nodes=1), timedelta(microseconds=microseconds)
    gpr = make_gpr(make_slice(cluster))
    Gpr.objects.update(state=GprState.PROVISIONING, provisioning_at=NOW + part)
    (row,) = hold(gpr, *nodes_of(cluster))
    Reservation.objects.filter(pk=row.pk).update(ends_at=NOW + HOUR + part)

    (box,) = snapshot_load(now=NOW).snapshot.running

    assert box.started_s == NOW.timestamp()
    assert box.end_s == math.ceil((NOW + HOUR + part).timestamp())


@pytest.mark.parametrize("microseconds", [0, 1, 499_600, 999_999])
def test_where_one_stands_in_queues_that_nobody_overtakes_is_in_whole_seconds(microseconds: int) -> None:
    part = timedelta(microseconds=microseconds)
    ends = {"starts_at": NOW + HOUR + part, "ends_at": NOW + 2 * HOUR + part}
    times = {f"{queue}_{end}": moment for queue in ("patient", "strict") for end, moment in ends.items()}
    place = {"pool": "p", "nodes": [str(uuid4())]}
    gpr = make_gpr(make_slice(make_cluster()))
    Shadow.objects.create(gpr=gpr, made_at=NOW, priority=101, gpu_s=1, gpus_per_node=1, patient=place, strict=place, **times)

    (shadow,) = snapshot_load(now=NOW, with_memory=True).snapshot.memory.shadows

    start_s, end_s = (NOW + HOUR).timestamp(), (NOW + 2 * HOUR).timestamp()
    assert (shadow.patient.start_s, shadow.patient_end_s) == (shadow.strict.start_s, shadow.strict_end_s) == (start_s, end_s)
