"""The table of GPUs and the page of one, in both portals."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from core.clock import db_now
from inventory.models import Gpu, Reservation, ReservedGpu
from tests.observability.telemetry.saying import gpus_of, reading, store
from tests.pages.admin_world import QUERIES_MAX, AdminWorld
from tests.pages.user_world import client_of

pytestmark = pytest.mark.django_db

FLEET, OWN = "/admin/gpus/", "/gpus/"


def text(response: Any) -> str:
    assert response.status_code == 200, response.content
    return re.sub(r"\s+", " ", response.content.decode())


def rows(markup: str) -> list[tuple[str, str]]:
    """Node and number of each GPU, in the order of the table."""
    return re.findall(r'<a class="strong" href="[^"]*">([^<]+)</a> <span class="muted">(GPU \d+)</span>', markup)


@pytest.fixture
def gpus(admin_world: AdminWorld) -> list[Gpu]:
    """Those of the box `runs`, the first one hot, the second one idle, the third one stale."""
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

    assert re.findall(r'<td class="num">(\d+)</td> <td class="num">97</td>', shown) == ["87", "88", "89"]
    assert "runs of vision took it" in shown


def test_a_user_sees_the_course_of_a_gpu_in_his_own_time(admin_world: AdminWorld, gpus: list[Gpu]) -> None:
    owner, outsider = client_of(admin_world.people.owner), client_of(admin_world.people.outsider)

    assert "89" in text(owner.get(f"{OWN}{gpus[0].pk}/"))
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
