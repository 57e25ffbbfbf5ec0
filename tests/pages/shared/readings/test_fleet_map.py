"""The fleet map in both portals: what a cell says, and to whom."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from core.clock import db_now
from inventory.models import Gpu
from tests.observability.telemetry.saying import gpus_of, reading, store
from tests.pages.admin_world import QUERIES_MAX, AdminWorld
from tests.pages.user_world import client_of

pytestmark = pytest.mark.django_db

FLEET, OWN = "/admin/gpus/map/", "/gpus/map/"
TABLE_ROW = re.compile(r'<span class="strong">([^<]+)</span>')


@pytest.fixture
def gpus(admin_world: AdminWorld) -> list[Gpu]:
    """Returns those of the first node of the box `runs`: the first one hot, the second one idle, the third one sick."""
    gpus = gpus_of(admin_world.cluster.nodes.order_by("name")[0])
    Gpu.objects.filter(pk=gpus[2].pk).update(is_healthy=False)
    values: list[dict[str, float]] = [
        {"temperature_c": 89, "utilization_percent": 97, "power_w": 650},
        {"temperature_c": 41, "utilization_percent": 0, "power_w": 80},
    ]
    now = db_now()
    store(admin_world.cluster, *(reading(gpu, at=now, **told) for gpu, told in zip(gpus, values, strict=False)))
    return gpus


def cells(client: Client, url: str) -> dict[str, Any]:
    response = client.get(url, {"part": "cells"})
    assert response.status_code == 200
    told: dict[str, Any] = response.json()
    return told


def states(told: dict[str, Any]) -> list[str]:
    return [told["states"][number][0] for number in told["state"]]


def ids(told: dict[str, Any]) -> list[str]:
    return re.findall(".{32}", told["ids"])


def test_each_gpu_is_one_cell_with_its_readings_its_holder_and_its_health(admin: Client, gpus: list[Gpu]) -> None:
    told = cells(admin, FLEET)

    assert sorted(ids(told)) == sorted(gpu.pk.hex for gpu in Gpu.objects.filter(gone_at=None))
    assert sum(count for *_, count in told["nodes"]) == len(told["index"])
    first = ids(told).index(gpus[0].pk.hex)
    assert [told[name][first] for name in ("temperature", "use", "power")] == [89, 97, 650]
    assert told["holders"][told["holder"][first]][:2] == ["runs", "vision"]
    assert states(told)[first : first + 3] == ["held", "held", "sick"]


def test_the_page_carries_its_cells_and_says_the_same_in_a_table_of_racks(admin: Client, gpus: list[Gpu]) -> None:
    markup = admin.get(FLEET).content.decode()
    (embedded,) = re.findall(r'<script id="fleet-data" type="application/json">(.*?)</script>', markup, re.S)

    assert json.loads(embedded)["index"] == cells(admin, FLEET)["index"]
    assert TABLE_ROW.findall(markup)
    assert "1 idle" in markup
    assert "89 °C" in markup


def test_a_member_sees_his_own_cells_and_of_others_that_they_are_held(admin_world: AdminWorld, gpus: list[Gpu]) -> None:
    owner, outsider = (cells(client_of(person), OWN) for person in (admin_world.people.owner, admin_world.people.outsider))

    assert owner["holders"][0][:2] == ["runs", "vision"]
    assert 89 in owner["temperature"]
    assert outsider["holders"] == []
    assert {*outsider["temperature"], *outsider["use"], *outsider["power"]} <= {None}
    shared = set(ids(owner)) & set(ids(outsider))
    assert {state for pk, state in zip(ids(outsider), states(outsider), strict=True) if pk in shared and pk == gpus[0].pk.hex} <= {"held"}
    assert client_of(admin_world.people.owner).get(FLEET).status_code == 404


def test_what_others_hold_is_named_nowhere_on_the_page(admin_world: AdminWorld, gpus: list[Gpu]) -> None:
    markup = client_of(admin_world.people.outsider).get(OWN, {"by": "holder"}).content.decode()

    main = markup[markup.index("<main") :]
    assert "runs" not in main
    assert "vision" not in main


def test_an_odd_color_is_refused(admin: Client, gpus: list[Gpu]) -> None:
    assert admin.get(FLEET, {"by": "odd"}).status_code == 400


def test_the_map_costs_few_queries(admin: Client, gpus: list[Gpu]) -> None:
    with CaptureQueriesContext(connection) as queries:
        assert admin.get(FLEET).status_code == 200
    assert len(queries) <= QUERIES_MAX
