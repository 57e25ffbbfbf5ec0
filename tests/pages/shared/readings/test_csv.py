"""Lists of GPUs, workloads, pods and alerts as CSV: the rows of the page, nobody else's, and no cell that a spreadsheet runs."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from core.clock import db_now
from gpr.models import Gpr
from inventory.models import Gpu
from observability.workloads.models import Pod, Workload
from portal_shared.parts import csv_files
from slices.models import Slice
from tests.observability.alerts.rows import alert_of, rule_of
from tests.observability.telemetry.saying import reading, store
from tests.observability.workloads.saying import pods_of, seen, tell
from tests.pages.admin_world import AdminWorld
from tests.pages.user_world import client_of
from tests.slices.kubeconfigs import ready_namespace

pytestmark = pytest.mark.django_db


@pytest.fixture
def world(admin_world: AdminWorld) -> AdminWorld:
    """`runs` of vision has a workload and an alert, speech has a workload and an alert, the platform an alert."""
    Gpr.objects.filter(pk=admin_world.runs.pk).update(name="=runs")
    now, theirs = db_now(), Slice.objects.get(name="speech")
    ready_namespace(admin_world.slice, admin_world.cluster, at=now, name="vision-ns")
    ready_namespace(theirs, admin_world.cluster, at=now, name="speech-ns")
    tell(admin_world.cluster, *pods_of(admin_world.runs, "vision-ns"), seen("canary", "speech-ns", owners=()))
    Workload.objects.filter(name="train").update(model="-llama")
    Pod.objects.filter(workload__name="train").update(why="-1 is no rank")
    gpus = Gpu.objects.order_by("node__name", "index")
    store(admin_world.cluster, *(reading(gpu, at=now, temperature_c=50 + gpu.index) for gpu in gpus[:4]), now=now)
    for owner, name in ((admin_world.slice, "@Hot"), (theirs, "Canary"), (None, "Fleet")):
        alert_of(owner, None, rule=rule_of(owner, None, name=name))
    return admin_world


def read(client: Client, url: str, **query: str) -> list[dict[str, str]]:
    answer: Any = client.get(url, query)
    assert answer.status_code == 200
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    return list(csv.DictReader(io.StringIO(answer.getvalue().decode())))


def test_a_member_has_the_rows_of_his_workspaces_and_an_administrator_all(world: AdminWorld, admin: Client) -> None:
    owner = client_of(world.people.owner)

    gpus = read(owner, "/gpus/gpus.csv")
    assert {(row["workspace"], row["request"]) for row in gpus} == {("vision", "'=runs")}
    assert [row["temperature_c"] for row in gpus[:4]] == ["53", "52", "51", "50"]
    assert len(read(admin, "/admin/gpus/gpus.csv")) == Gpu.objects.count()
    assert read(client_of(world.people.outsider), "/gpus/gpus.csv") == []
    (workload,) = read(owner, "/workloads/workloads.csv")
    assert (workload["name"], workload["model"], workload["requests"]) == ("train", "'-llama", "'=runs")
    assert {row["name"] for row in read(admin, "/admin/workloads/workloads.csv")} == {"train", "canary"}
    pods = read(owner, "/pods/pods.csv")
    assert {(row["workspace"], row["request"], row["workload"], row["why"]) for row in pods} == {
        ("vision", "'=runs", "train", "'-1 is no rank")
    }
    assert {row["workload"] for row in read(admin, "/admin/pods/pods.csv")} == {"train", "canary"}
    assert [row["rule"] for row in read(owner, "/alerts/alerts.csv")] == ["'@Hot"]
    assert [row["rule"] for row in read(admin, "/admin/alerts/alerts.csv")] == ["Fleet"]
    assert {row["rule"] for row in read(admin, "/admin/alerts/alerts.csv", of="workspaces")} == {"'@Hot", "Canary"}
    assert owner.get("/admin/gpus/gpus.csv").status_code == 404


def test_its_filters_are_those_of_the_page_whose_foot_leads_to_it(world: AdminWorld, admin: Client) -> None:
    assert read(admin, "/admin/gpus/gpus.csv", q="speech") == read(admin, "/admin/workloads/workloads.csv", view="ended") == []
    assert read(admin, "/admin/pods/pods.csv", view="ended") == read(admin, "/admin/pods/pods.csv", q="nobody") == []
    assert read(admin, "/admin/alerts/alerts.csv", severity="info") == []
    assert len(read(admin, "/admin/gpus/gpus.csv", view="stale")) == Gpu.objects.count() - 4
    for url, query in (("gpus", "view=stale"), ("workloads", ""), ("pods", ""), ("alerts", "state=firing")):
        page = admin.get(f"/admin/{url}/?{query}").content.decode()
        assert f'href="/admin/{url}/{url}.csv{"?" if query else ""}{query}"' in page
        assert "Rows 1 to " in page


def test_a_long_list_ends_at_its_bound_and_costs_few_queries(world: AdminWorld, admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def cost() -> tuple[int, int]:
        with CaptureQueriesContext(connection) as queries:
            rows = read(admin, "/admin/gpus/gpus.csv")
        return len(rows), len(queries)

    whole, queries = cost()
    monkeypatch.setattr(csv_files, "ROWS_AT_ONCE", 5)
    monkeypatch.setattr(csv_files, "ROWS_MOST", 10)
    bounded, more = cost()
    assert bounded == 10 < whole
    assert more <= queries + 3
