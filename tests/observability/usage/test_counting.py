"""Usage rows are exact: run twice, late, by two at once or after a crash."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import Sum
from django.test.utils import CaptureQueriesContext
from msgspec import structs

from gpr.budgets.selectors import budget_uses
from gpr.models import Gpr, UsageDay, UsageProgress
from gpr.requests.ending import gpr_release
from gpr.usage.selectors import usage_by, usage_total
from gpr.usage.services import WORKLOADS_KEPT, held_count, workloads_forget
from inventory.models import Reservation
from observability.models import Reading1m
from observability.usage import services as usage_services
from protocol.assignments import Phase
from slices.budgets.services import budget_create
from slices.models import Period
from slices.namespaces.services import namespace_bind
from tests.lifecycle.stage import EXIT, Stage
from tests.observability.usage.working import LAG_S, count, work
from tests.observability.workloads.saying import JOB, pods_of, tell

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]

HOUR_MS, DAY_S = 3_600_000, 86_400


@pytest.fixture
def stage() -> Stage:
    made = Stage(nodes=2, gpus=4)
    made.now = made.now.replace(second=0)
    return made


def ended(stage: Stage, seconds: float, **asked: Any) -> Gpr:
    gpr = stage.active(entry_s=0, duration_s=6 * DAY_S, **asked)
    stage.after(seconds)
    gpr_release(gpr=gpr, actor=stage.owner, now=stage.now)
    stage.say(gpr, *EXIT)
    stage.tick()
    return gpr


def rows() -> list[tuple[str, float, float, float]]:
    """Returns the day and the hours held, measured and used."""
    found = UsageDay.objects.order_by("day", "pk").values_list("day", "held_gpu_ms", "measured_gpu_ms", "used_gpu_ms")
    return [(str(day), *(ms / HOUR_MS for ms in sums)) for day, *sums in found]


def test_a_box_is_counted_by_day_in_utc_from_reservation_to_release(stage: Stage) -> None:
    first = stage.now.date()
    ended(stage, 18 * 3600, nodes=2)

    count(stage)

    assert rows() == [(str(first), 8 * 12, 0, 0), (str(first + timedelta(days=1)), 8 * 6, 0, 0)]
    assert UsageDay.objects.aggregate(n=Sum("held_gpu_ms"))["n"] == 8 * 18 * HOUR_MS


def test_rows_are_the_same_however_often_and_late_they_are_counted(stage: Stage) -> None:
    gpr = stage.active(entry_s=0, nodes=1, duration_s=6 * DAY_S)
    for hours in (1, 14, 1):
        stage.after(hours * 3600)
        count(stage)
        count(stage)
    gpr_release(gpr=gpr, actor=stage.owner, now=stage.now)
    stage.say(gpr, *EXIT)
    stage.tick()
    count(stage)
    often = rows()
    UsageDay.objects.all().delete()
    UsageProgress.objects.all().delete()
    stage.after(3 * DAY_S)

    count(stage)

    assert rows() == often
    assert sum(row[1] for row in often) == 4 * 16


def test_a_release_that_is_committed_after_midnight_is_counted_before_it_and_a_final_day_stays(stage: Stage) -> None:
    gpr = stage.active(entry_s=0, nodes=1, duration_s=6 * DAY_S)
    midnight = datetime.combine(stage.now.date() + timedelta(days=1), datetime.min.time(), UTC)
    held_count(now=midnight + timedelta(seconds=30))
    Reservation.objects.filter(gpr=gpr).update(state="RELEASED", released_at=midnight - timedelta(seconds=1))

    held_count(now=midnight + timedelta(minutes=5))
    assert [row[1] for row in rows()] == [4 * (12 - 1 / 3600), 0]

    held_count(now=midnight + timedelta(hours=1))
    late = midnight - timedelta(minutes=1)  # a process whose clock, or whose turn, is far behind
    held_count(now=late)
    assert [row[1] for row in rows()] == [4 * (12 - 1 / 3600), 0]


def test_minutes_of_readings_are_counted_once_and_only_those_of_the_open_box(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    gpr = stage.submit(nodes=1, duration_s=DAY_S)
    stage.tick()
    work(stage, gpr, 5, lambda n: 100)  # the checks of the entry
    stage.say(gpr, Phase.ACTIVE)
    stage.tick()
    work(stage, gpr, 30, lambda n: [50, 0, 4, None][n])
    stage.after(LAG_S)

    def crash(*_: Any, **__: Any) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(usage_services, "measured_add", crash)
        with pytest.raises(RuntimeError):
            count(stage)
    for _ in range(3):
        count(stage)

    (row,) = rows()
    assert row[2:] == pytest.approx((3 * 0.5, 0.5 * 0.5 + 0.5 * 0.04))
    assert UsageProgress.objects.get().measured_until_at is not None
    assert Reading1m.objects.filter(utilization_percent=100).exists()


def test_what_workloads_had_is_a_part_of_what_their_box_held_and_in_time_all_that_is_known(stage: Stage) -> None:
    gpr = stage.active(entry_s=0, nodes=1, duration_s=2 * DAY_S)
    namespace_bind(slice_=stage.slice, cluster=stage.cluster, name="vision-ns", actor=None, now=stage.now)
    (gang,) = pods_of(gpr, "vision-ns")
    half = [structs.replace(gang, gpus=gang.gpus[n : n + 2], gpu_count=2, uid=f"p{n}", owners=(JOB,) if n else ()) for n in (0, 2)]
    tell(stage.cluster, *half, at=stage.now)
    work(stage, gpr, 30, lambda n: [50, 100, 4, None][n])
    tell(stage.cluster, gone=["p2"], at=stage.now)
    work(stage, gpr, 30, lambda n: 0)
    stage.after(LAG_S)
    before = usage_total(UsageDay.objects.all()).held_hours
    count(stage)

    def by_workload() -> dict[str, tuple[float, float, float]]:
        found = usage_by(UsageDay.objects.all(), by="workload", since=date.min)
        return {row.name: (row.held_ms / HOUR_MS, row.measured_ms / HOUR_MS, row.used_ms / HOUR_MS) for row in found}

    held = (stage.now - gpr.active_at).total_seconds() / 3600 * 4  # type: ignore[operator]
    assert by_workload() == {
        "Pod job-0": pytest.approx((2, 2, 0.75)),
        "Job train-worker": pytest.approx((1, 0.5, 0.02)),
        "No workload": pytest.approx((held - 3, 1, 0)),
    }
    assert usage_total(UsageDay.objects.filter(gpr=gpr)).held_hours == pytest.approx(held)
    assert before == 0

    # It was released while the last two of the three hours were counted.
    Reservation.objects.filter(gpr=gpr).update(state="RELEASED", released_at=stage.now - timedelta(minutes=45))
    count(stage)
    assert sum(row[0] for row in by_workload().values()) == pytest.approx(held - 3)
    stage.after(WORKLOADS_KEPT.total_seconds() + DAY_S)
    workloads_forget(now=stage.now)
    assert by_workload() == {"No workload": pytest.approx((held - 3, 3.5, 0.77))}


def test_many_workloads_cost_as_many_queries_as_one(stage: Stage) -> None:
    gpr = stage.active(entry_s=0, nodes=1, duration_s=2 * DAY_S)
    namespace_bind(slice_=stage.slice, cluster=stage.cluster, name="vision-ns", actor=None, now=stage.now)
    (gang,) = pods_of(gpr, "vision-ns")

    def cost() -> int:
        work(stage, gpr, 2, lambda n: 50)
        stage.after(LAG_S)
        with CaptureQueriesContext(connection) as queries:
            count(stage)
        return len(queries)

    tell(stage.cluster, gang, at=stage.now)
    cost()
    one = cost()
    tell(stage.cluster, gone=[gang.uid], at=stage.now)
    tell(stage.cluster, *(structs.replace(gang, gpus=(gpu,), gpu_count=1, uid=gpu, name=gpu, owners=()) for gpu in gang.gpus), at=stage.now)
    cost()
    assert cost() <= one + 1  # ten minutes may be rolled up, too
    assert UsageDay.objects.values("workload").distinct().count() == 6


def test_budgets_count_the_final_rows_and_the_rest_from_reservations(stage: Stage) -> None:
    def budget(period: Period, **dates: Any) -> Any:
        change: Any = {"gpu_hours": 10_000, **dates}
        return budget_create(owner=stage.slice, shape="", period=period, change=change, actor=None, now=stage.now)

    begin = stage.now
    starts = (begin - timedelta(days=3), begin + timedelta(hours=3))
    budgets = [budget(Period.RANGE, starts_at=at, ends_at=begin + timedelta(days=30)) for at in starts]
    stage.active(entry_s=0, nodes=1, duration_s=6 * DAY_S)
    stage.after(60 * 3600)
    before = [use.used_hours for use in budget_uses(budgets, now=stage.now)]
    assert before == [4 * 60, 4 * 57]

    count(stage)
    assert [use.used_hours for use in budget_uses(budgets, now=stage.now)] == pytest.approx(before)

    UsageDay.objects.filter(day=(begin + timedelta(days=1)).date()).update(held_gpu_ms=0)
    assert [use.used_hours for use in budget_uses(budgets, now=stage.now)] == pytest.approx([hours - 4 * 24 for hours in before])
