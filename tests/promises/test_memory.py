"""What a newcomer's slack follows from: alike arrivals are read as one."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpr.models import Shadow, Witness
from gpr.planner.snapshot import Arrival
from gpr.services.requests import gpr_submit
from gpr.snapshot import SLACK, memory_load
from tests.builders import NOW, make_cluster, make_slice, make_user, spec

pytestmark = pytest.mark.django_db


def test_alike_arrivals_count_together_from_the_first_on_and_old_ones_not_at_all() -> None:
    cluster, user = make_cluster(nodes=1), make_user(is_admin=True)
    asks = [(3600, NOW), (3600, NOW + timedelta(seconds=5)), (7200, NOW + timedelta(seconds=9))]
    gprs = [gpr_submit(actor=user, spec=spec(make_slice(cluster), duration_s=length_s), now=at) for length_s, at in asks]
    short, _, long = (Shadow.objects.get(gpr=gpr) for gpr in gprs)
    now_s = int(NOW.timestamp())

    assert memory_load(Witness(), now=asks[-1][1]).arrivals == (
        Arrival(now_s, short.priority, short.gpu_s, 2),
        Arrival(now_s + 9, long.priority, long.gpu_s, 1),
    )

    later = NOW + timedelta(seconds=SLACK.observed_s + 7)
    assert memory_load(Witness(), now=later).arrivals == (Arrival(now_s + 9, long.priority, long.gpu_s, 1),)
