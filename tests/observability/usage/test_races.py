"""Two who act at once, on a database that really lets them: a box is kept or released, and a minute is counted once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from threading import Barrier

import pytest
from django.db import connection

from core.errors import EgsError
from gpr.idle.ending import idle_release
from gpr.idle.services import gpr_keep
from gpr.models import GprState, IdleBox, UsageDay
from journal.models import Event
from observability.telemetry.services import telemetry_step
from observability.usage.services import usage_step
from tests.builders import make_slice
from tests.lifecycle.stage import Stage, fresh
from tests.observability.telemetry.saying import reading, store
from tests.observability.usage.working import gpus_of_box, work

pytestmark = [pytest.mark.postgres_only, pytest.mark.django_db(transaction=True)]
HOUR = timedelta(hours=1)


def at_once(*works: Callable[[], object]) -> list[object]:
    """Returns what each returned; its error, if it was refused."""
    barrier = Barrier(len(works))

    def one(act: Callable[[], object]) -> object:
        with closing(connection):
            barrier.wait()
            try:
                return act()
            except EgsError as error:
                return error

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(one, works))


def test_who_keeps_a_box_while_it_is_being_released_has_it_or_is_told_that_it_is_over() -> None:
    stage = Stage(nodes=4, gpus=1)
    slices = [make_slice(stage.cluster, owner=stage.owner) for _ in range(4)]
    for gpr in [stage.active(slice_=slice_, entry_s=0, nodes=1, duration_s=36_000, idle_timeout_s=600) for slice_ in slices]:
        now = stage.watched(60)
        IdleBox.objects.create(gpr=gpr, run=gpr.run, idle_since_at=now - HOUR)

        kept, released = at_once(
            lambda gpr=gpr, now=now: gpr_keep(gpr=fresh(gpr), actor=stage.owner, now=now),
            lambda gpr=gpr, now=now: idle_release(gpr_id=gpr.pk, known_at=now, now=now),
        )

        is_kept = not isinstance(kept, EgsError)
        assert released is not is_kept
        assert fresh(gpr).state == (GprState.ACTIVE if is_kept else GprState.EXITING)
        assert Event.objects.filter(gpr_id=gpr.pk, kind="gpr.idle_kept").exists() is is_kept


def test_processes_that_count_at_once_count_each_minute_once() -> None:
    stage = Stage(nodes=1, gpus=2)
    stage.now = stage.now.replace(second=0)
    gpr = stage.active(entry_s=0, nodes=1, duration_s=36_000)
    work(stage, gpr, 10, lambda n: 50)
    store(stage.cluster, *(reading(gpu, at=stage.now, utilization_percent=0) for gpu in gpus_of_box(gpr)), now=stage.now)
    now = stage.watched(300)
    telemetry_step(now=now)

    at_once(*(lambda: usage_step(now=now) for _ in range(4)))

    row = UsageDay.objects.get()
    assert (row.held_gpu_ms, row.measured_gpu_ms, row.used_gpu_ms) == (2 * 15 * 60_000, 2 * 11 * 60_000, 10 * 60_000)
