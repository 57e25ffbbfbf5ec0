"""A quota is lowered, or made, while the allocator starts boxes under it: no start makes more be held than it allows by then."""

from __future__ import annotations

import pytest
from django.db import connection

from core.clock import db_now
from gpr.allocation import starts
from gpr.allocation.allocator import TickReport, tick
from gpr.models import Gpr, GprState
from inventory.models import ReservationState, ReservedGpu
from slices.models import Project, Quota, Slice
from slices.quotas import services as quotas_module
from slices.quotas.services import quota_change, quota_create
from tests import factories
from tests.builders import SHAPE
from tests.factories import People
from tests.promises.races.test_lock_order import Other, stopped_after

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres_only]

GPUS = 8  # of each of two nodes; each box wants one


class Bench:
    """Two boxes of a project wait for a node each, and could start at once."""

    def __init__(self) -> None:
        self.people: People = factories.make_people()
        cluster, self.project = factories.cluster(nodes=2, gpus=GPUS), factories.project()
        self.slices: list[Slice] = [factories.make_slice(cluster, owner=self.people.owner, of=self.project) for _ in range(2)]
        self.gprs: list[Gpr] = [factories.gpr(slice_, self.people.owner) for slice_ in self.slices]

    def limit(self, owner: Project | Slice, most_gpus: int) -> Quota:
        return quota_create(
            owner=owner, shape=SHAPE, change={"guaranteed_gpus": 0, "most_gpus": most_gpus}, actor=self.people.admin, now=db_now()
        )

    def held_gpus(self) -> int:
        return ReservedGpu.objects.filter(state=ReservationState.HELD).count()


def ticked(reports: list[TickReport]) -> None:
    report = tick(now=db_now())
    assert report is not None
    reports.append(report)


@pytest.mark.parametrize("is_new", [True, False], ids=["made", "lowered"])
def test_a_limit_that_comes_between_the_plan_and_its_starts_holds_for_them(is_new: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    quota = None if is_new else bench.limit(bench.project, 2 * GPUS)

    def write() -> None:
        if quota is None:
            bench.limit(bench.project, GPUS)
        else:
            quota_change(quota=quota, change={"most_gpus": GPUS}, actor=bench.people.admin, now=db_now())

    other = Other(write)
    stopped_after(monkeypatch, starts, "quotas_keep", other, before=True)

    report = tick(now=db_now())

    other.end()
    assert report is not None
    assert bench.held_gpus() == GPUS
    assert len(report.started) == 1
    assert list(report.skipped.values()) == [f"The quota of {SHAPE} lets project {bench.project.name} hold {GPUS}, not {2 * GPUS}."]

    tick(now=db_now())
    assert bench.held_gpus() == GPUS
    assert Gpr.objects.filter(state=GprState.QUEUED, explanation__reason="waits_for_quota").count() == 1


def test_a_limit_of_a_workspace_holds_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    other = Other(lambda: bench.limit(bench.slices[0], GPUS - 1))
    stopped_after(monkeypatch, starts, "quotas_keep", other, before=True)

    report = tick(now=db_now())

    other.end()
    assert report is not None
    assert report.started == [bench.gprs[1].pk]


def test_a_limit_that_is_made_while_boxes_start_waits_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes nothing away: they had begun before it."""
    bench = Bench()
    other = Other(lambda: bench.limit(bench.project, GPUS))
    stopped_after(monkeypatch, starts, "reservations_hold", other)

    report = tick(now=db_now())

    other.end()
    assert report is not None
    assert (len(report.started), report.skipped, bench.held_gpus()) == (2, {}, 2 * GPUS)


def test_starts_wait_for_a_limit_that_is_being_made(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    reports: list[TickReport] = []
    other = Other(lambda: ticked(reports))
    stopped_after(monkeypatch, quotas_module, "_record", other)

    bench.limit(bench.project, GPUS)

    other.end()
    assert bench.held_gpus() == GPUS
    assert [len(report.started) for report in reports] == [1]
    connection.close()
