from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from copy import deepcopy
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit
from uuid import UUID

import pytest

from core.clock import db_now
from core.rest.sealed import seal, unseal
from gpr.models import Gpr
from inventory.services.nodes import node_cordon
from journal.models import Event
from tests import factories
from tests.api.conftest import Caller, World, assert_problem


def kinds(caller: Caller, query: str = "") -> list[str]:
    response = caller.get(f"events/{query}")
    assert response.status_code == 200, response.content
    return [row["kind"] for row in response.json()["results"]]


@pytest.fixture(autouse=True, scope="module")
def built_gpr(built_world: World) -> Gpr:
    factories.gpr(built_world.foreign_slice, built_world.people.outsider, name="canary", priority=1)
    return factories.started(built_world.slice, built_world.people.owner, name="job")


@pytest.fixture
def gpr(built_gpr: Gpr, db: None) -> Gpr:
    return deepcopy(built_gpr)


def test_they_come_newest_first_with_who_what_and_why(owner: Caller, world: World, gpr: Gpr) -> None:
    newest, created, *_ = owner.get("events/").json()["results"]

    assert (newest["kind"], newest["name"], newest["old"], newest["new"]) == ("gpr.transition",) * 2 + ("QUEUED", "PROVISIONING")
    assert (newest["actor"], newest["severity"], newest["cluster_id"]) == (None, "info", str(world.cluster.pk))
    assert (created["kind"], created["actor"], created["gpr_id"]) == ("gpr.created", "owner", str(gpr.pk))
    assert created["slice_id"] == str(world.slice.pk)


def test_a_member_s_are_those_of_his_slices(owner: Caller, outsider: Caller, admin: Caller, gpr: Gpr) -> None:
    assert "canary" not in owner.get("events/").content.decode()
    assert "job" not in outsider.get("events/").content.decode()
    assert "cluster.created" not in kinds(owner)
    assert {"cluster.created", "node.joined", "gpr.created"} <= set(kinds(admin))


def test_filters_narrow_them(owner: Caller, gpr: Gpr) -> None:
    for query, found in [
        ("?gpr=job", ["gpr.transition", "gpr.created"]),
        ("?gpr=canary", []),
        ("?slice=vision&kind=gpr.created", ["gpr.created"]),
        ("?slice=canary-slice", []),
        ("?cluster=aurora", ["gpr.transition"]),
        ("?cluster=borealis", []),
        ("?kind=gpr.transition", ["gpr.transition"]),
        ("?kind=nothing", []),
        ("?severity=error", []),
        ("?severity=error,info&gpr=job", ["gpr.transition", "gpr.created"]),
        ("?node=aurora-0", []),
    ]:
        assert kinds(owner, query) == found


def test_filters_take_ids_and_foreign_ones_find_nothing(owner: Caller, outsider: Caller, world: World, gpr: Gpr) -> None:
    for query in (f"?gpr={gpr.pk}", f"?slice={world.slice.pk}"):
        assert kinds(owner, query)
        assert kinds(outsider, query) == []
    assert kinds(owner, f"?cluster={world.cluster.pk}") == ["gpr.transition"]


def test_an_administrator_finds_a_node_s(admin: Caller, world: World) -> None:
    node = world.cluster.nodes.get(name="aurora-0")
    node_cordon(node=node, actor=world.people.admin, why="Loud.", now=db_now())

    assert kinds(admin, "?node=aurora-0") == kinds(admin, f"?node={node.pk}") == ["node.cordoned", "node.joined"]


def test_since_leaves_out_what_is_older(owner: Caller, gpr: Gpr) -> None:
    def since(ago: timedelta) -> list[str]:
        return kinds(owner, f"?since={quote((db_now() - ago).isoformat())}")

    assert "gpr.created" in since(timedelta(minutes=5))
    assert since(timedelta(minutes=-5)) == []


def test_a_filter_that_means_nothing_is_an_error(owner: Caller, world: World) -> None:
    for query in ["?since=yesterday", "?severity=bad", "?gpr=%00", "?kinds=x", "?since=9999-12-31T23:59:59-23:59", "?wait_s=26"]:
        assert_problem(owner.get(f"events/{query}"), 400, "invalid_input")


def test_what_its_reader_knows_is_not_sent_again_and_does_not_wait_without_a_server(owner: Caller, gpr: Gpr) -> None:
    etag = owner.get("events/?gpr=job").headers["ETag"]

    for known in (etag, f"W/{etag}", f'"other", {etag}'):  # a proxy that compresses makes it weak
        answer = owner._call("get", "events/?gpr=job&wait_s=20", headers={"If-None-Match": known})
        assert (answer.status_code, answer.content, answer.headers["ETag"]) == (304, b"", etag)
    assert owner._call("get", "events/?gpr=job&kind=gpr.created", headers={"If-None-Match": etag}).status_code == 200


def test_all_pages_together_are_all_events_once(admin: Caller, gpr: Gpr) -> None:
    everything = [row["id"] for row in admin.get("events/?page_size=500").json()["results"]]

    def walk(page: dict[str, Any], way: str) -> list[str]:
        seen: list[str] = []
        while True:
            ids = [row["id"] for row in page["results"]]
            seen = seen + ids if way == "next" else ids + seen
            if page[way] is None:
                return seen
            last.append(page)
            page = admin.get(page[way]).json()

    last: list[dict[str, Any]] = []
    assert walk(admin.get("events/?page_size=3").json(), "next") == everything
    end = admin.get(last[-1]["next"]).json()
    assert walk(end, "previous") == everything


def test_neither_ids_nor_cursors_tell_how_much_happened_elsewhere(owner: Caller, world: World, gpr: Gpr) -> None:
    """Ids of a sequence would count the acts of all tenants."""
    page = owner.get("events/?page_size=1").json()
    (cursor,) = parse_qs(urlsplit(page["next"]).query)["cursor"]
    newest = Event.objects.filter(slice_id=world.slice.pk).latest("pk").pk

    assert UUID(page["results"][0]["id"]) == seal(newest)
    assert str(newest) not in page["results"][0]["id"].split("-")
    assert json.loads(urlsafe_b64decode(cursor)) == [False, [str(seal(newest))]]
    assert [unseal(seal(number)) for number in (0, 1, -1, 2**63 - 1, -(2**63))] == [0, 1, -1, 2**63 - 1, -(2**63)]
