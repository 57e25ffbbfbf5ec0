"""Both portals have a table of GPUs and a page for each."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from core.clock import db_now
from inventory.models import Gpu, Reservation, ReservedGpu, StepResult
from observability.alerts.models import AlertSubject
from observability.models import FaultCount
from tests.observability.alerts.rows import alert_of
from tests.observability.telemetry.saying import gpus_of, reading, store
from tests.pages.admin_world import QUERIES_MAX, AdminWorld
from tests.pages.user_world import client_of

pytestmark = pytest.mark.django_db

FLEET, OWN = "/admin/gpus/", "/gpus/"


def text(response: Any) -> str:
    assert response.status_code == 200, response.content
    return re.sub(r"\s+", " ", response.content.decode())


def rows(markup: str) -> list[tuple[str, str]]:
    """Returns node and number of each GPU, in the order of the table."""
    return re.findall(r'<a class="strong" href="[^"]*">([^<]+)</a> <span class="muted">(GPU \d+)</span>', markup)


@pytest.fixture
def gpus(admin_world: AdminWorld) -> list[Gpu]:
    """Returns those of the box `runs`, the first one hot, the second one idle, the third one stale."""
    node = admin_world.cluster.nodes.order_by("name")[0]
    gpus, now = gpus_of(node), db_now()
    old = now - timedelta(minutes=2)
    rows_of_runs = Reservation.objects.filter(gpr=admin_world.runs)
    ReservedGpu.objects.filter(reservation__in=rows_of_runs).update(starts_at=now - timedelta(minutes=10))
    rows_of_runs.update(starts_at=now - timedelta(minutes=10))
    store(admin_world.cluster, reading(gpus[2], at=old, temperature_c=60), now=old)
    for seconds in (30, 15, 0):
        at = now - timedelta(seconds=seconds)
        store(
            admin_world.cluster,
            reading(gpus[0], at=at, temperature_c=89 - seconds / 15, utilization_percent=97, power_w=650, throttled_percent=30, xid=94),
            reading(gpus[1], at=at, temperature_c=41, utilization_percent=0, power_w=80, memory_used_mib=20480),
            now=at,
        )
    return gpus


def test_the_table_shows_the_hottest_first_with_what_is_wrong(admin: Client, gpus: list[Gpu]) -> None:
    shown = text(admin.get(FLEET))

    assert rows(shown)[:2] == [("aurora-0", "GPU 0"), ("aurora-0", "GPU 1")]
    assert '<span class="heat-cell heat-8">89 °C</span>' in shown
    assert "Throttled 30 %, Xid 94" in shown
    assert "Last half hour, from 87 to 89 °C" in shown
    assert "20 of 80 GiB" in shown
    assert '<span class="heat-cell is-stale">60 °C</span>' in shown
    assert "Stale for 2 min" in shown
    assert shown.count("Held and idle") == 2  # the fact and the tab


@pytest.mark.parametrize(("view", "found"), [("hot", ["GPU 0"]), ("idle", ["GPU 1"]), ("faulty", ["GPU 0"])])
def test_a_view_shows_its_gpus(view: str, found: list[str], admin: Client, gpus: list[Gpu]) -> None:
    assert [gpu for _, gpu in rows(text(admin.get(FLEET, {"view": view})))] == found


@pytest.mark.parametrize(("asked", "count"), [("aurora-0", 8), ("runs", 16), ("vision", 16), ("GPU-aurora-0-3", 1), ("nothing", 0)])
def test_a_search_finds_nodes_gpus_requests_and_workspaces(asked: str, count: int, admin: Client, gpus: list[Gpu]) -> None:
    assert len(rows(text(admin.get(FLEET, {"q": asked})))) == count


def test_a_user_sees_the_gpus_of_his_workspaces_and_of_no_other(admin_world: AdminWorld, gpus: list[Gpu]) -> None:
    owner, outsider = client_of(admin_world.people.owner), client_of(admin_world.people.outsider)

    assert len(rows(text(owner.get(OWN)))) == 16
    assert "You hold no GPUs now" in text(outsider.get(OWN))
    assert rows(text(outsider.get(OWN, {"q": "runs"}))) == []
    assert owner.get(FLEET).status_code == 404


def test_the_page_of_a_gpu_has_its_course_as_a_table_and_the_boxes_that_took_it(admin: Client, gpus: list[Gpu]) -> None:
    shown = text(admin.get(f"{FLEET}{gpus[0].pk}/"))

    assert re.findall(r'<td class="num">(\d+)</td> ?<td class="num">97</td>', shown) == ["87", "88", "89"]
    assert "runs of vision took it" in shown
    assert "Corrected ECC errors" in shown
    power = text(admin.get(f"{FLEET}{gpus[0].pk}/?measure=power"))  # it is drawn, so it stands first
    assert re.search(r'</time></td> ?<td class="num">650</td> ?<td class="num">89</td>', power)
    assert admin.get(f"{FLEET}{gpus[0].pk}/?measure=odd").status_code == 400


def test_a_user_sees_the_course_of_a_gpu_in_his_own_time(admin_world: AdminWorld, gpus: list[Gpu]) -> None:
    owner, outsider = client_of(admin_world.people.owner), client_of(admin_world.people.outsider)

    own = text(owner.get(f"{OWN}{gpus[0].pk}/"))
    assert ("89" in own, "Corrected ECC errors" in own) == (True, False)
    strange = text(outsider.get(f"{OWN}{gpus[0].pk}/"))
    assert "No readings in this time" in strange
    assert "runs" not in strange


@pytest.mark.parametrize("query", [{"view": "odd"}, {"cursor": "odd"}])
def test_what_the_table_does_not_have_is_told(query: dict[str, str], admin: Client, gpus: list[Gpu]) -> None:
    assert admin.get(FLEET, query).status_code == 400


def test_the_table_costs_few_queries(admin: Client, gpus: list[Gpu]) -> None:
    with CaptureQueriesContext(connection) as queries:
        text(admin.get(FLEET))
    assert len(queries) <= QUERIES_MAX


def test_several_gpus_stand_in_one_table_and_chart_the_hottest_first(admin: Client, gpus: list[Gpu]) -> None:
    shown = text(admin.get(f"{FLEET}compare/", {"q": "aurora-0"}))

    assert re.findall(r'<th scope="col" class="num">([^<]+)</th>', shown)[:2] == ["aurora-0 GPU 0", "aurora-0 GPU 1"]
    assert re.search(r'<td class="num">89</td> ?<td class="num">41</td>', shown)
    assert "runs of vision took its GPUs" in shown
    assert shown.count('<span class="swatch ws-h') == 8
    ticked = text(admin.get(f"{FLEET}compare/", {"view": "hot", "gpu": [str(gpus[2].pk), str(gpus[1].pk), "odd"]}))
    assert re.findall(r'<th scope="col" class="num">([^<]+)</th>', ticked) == ["aurora-0 GPU 1", "aurora-0 GPU 2"]
    assert f'name="gpu" value="{gpus[2].pk}" form="gpu-compare"' in text(admin.get(FLEET))


@pytest.mark.parametrize(("measure", "value"), [("use", "97"), ("power", "650"), ("memory", "20")])
def test_a_comparison_shows_what_was_asked_for(measure: str, value: str, admin: Client, gpus: list[Gpu]) -> None:
    assert f'<td class="num">{value}</td>' in text(admin.get(f"{FLEET}compare/", {"q": "aurora-0", "measure": measure}))


def test_a_comparison_shows_a_member_his_own_gpus_and_nothing_of_others(admin_world: AdminWorld, gpus: list[Gpu]) -> None:
    owner, outsider = client_of(admin_world.people.owner), client_of(admin_world.people.outsider)

    assert '<td class="num">89</td>' in text(owner.get(f"{OWN}compare/"))
    strange = text(outsider.get(f"{OWN}compare/", {"q": "runs"}))
    assert "No GPUs match" in strange
    assert "took its GPUs" not in strange
    assert "No GPUs match" in text(outsider.get(f"{OWN}compare/", {"gpu": str(gpus[0].pk)}))


def test_marks_tell_of_checks_and_of_faults(admin: Client, admin_world: AdminWorld, gpus: list[Gpu]) -> None:
    now, box = db_now(), Reservation.objects.get(gpr=admin_world.runs, node=gpus[0].node)
    for step, outcome in (("nccl", "OK"), ("exit_network", "FAILED")):
        StepResult.objects.create(reservation=box, step=step, attempt=1, outcome=outcome, started_at=now, ended_at=now)
    store(admin_world.cluster, reading(gpus[3], at=now, temperature_c=60, new_faults=2))

    before = now - timedelta(minutes=11)  # somebody else's time
    for at, counts in ((before - timedelta(hours=1), ""), (before, "48:1"), (now, "48:1 79:2")):
        FaultCount.objects.create(gpu=gpus[3], at=at, xid_counts=counts, is_newest=at == now)
    alert = alert_of(None, None)
    AlertSubject.objects.filter(alert=alert).update(subject_id=gpus[3].pk)

    own = text(client_of(admin_world.people.owner).get(f"{OWN}{gpus[3].pk}/"))
    assert ("Xid 79" in own, "Xid 48" in own, "Alert: hot" in own) == (True, False, False)
    shown = text(admin.get(f"{FLEET}{gpus[3].pk}/"))
    assert "Xid 79, GPU has fallen off the bus, 2 times" in shown
    assert "Xid 48, uncorrectable memory error" in shown
    assert "2 new faults, by its counters or an Xid" in shown
    assert "runs passed its checks" in shown
    assert "runs failed the check exit_network" in shown
    together = text(admin.get(f"{FLEET}compare/", {"q": "aurora-0"}))
    assert "aurora-0 GPU 3: 2 new faults" in together
    assert "aurora-0 GPU 3: Alert: hot" in together


def test_a_comparison_costs_few_queries(admin: Client, gpus: list[Gpu]) -> None:
    with CaptureQueriesContext(connection) as queries:
        text(admin.get(f"{FLEET}compare/"))
    assert len(queries) <= QUERIES_MAX


@pytest.mark.parametrize("query", [{"measure": "odd"}, {"range": "odd"}, {"view": "odd"}])
def test_what_a_comparison_does_not_have_is_told(query: dict[str, str], admin: Client, gpus: list[Gpu]) -> None:
    assert admin.get(f"{FLEET}compare/", query).status_code == 400
