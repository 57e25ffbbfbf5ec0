from __future__ import annotations

from typing import Any

import pytest
import yaml

from core.clock import db_now
from gpr.models import GprState
from gpr.requests.editing import gpr_cancel
from slices.models import Role
from slices.services import member_set
from tests import factories
from tests.api.conftest import Caller, World, assert_problem


@pytest.fixture
def gprs(world: World) -> dict[str, str]:
    """Name -> id: one active, one queued, one waiting for approval, one canceled, and a stranger's."""
    people, own = world.people, world.slice
    other = factories.make_slice(world.cluster, name="speech", owner=people.owner)
    made = [
        factories.active(own, people.owner, name="running", priority=10),
        factories.gpr(own, people.owner, name="waiting", priority=100),
        factories.gpr(other, people.owner, name="asking", priority=300),
        factories.gpr(other, people.owner, name="gone", priority=150),
        factories.gpr(world.foreign_slice, people.outsider, name="canary"),
    ]
    gpr_cancel(gpr=made[3], actor=people.owner, now=db_now())
    return {gpr.name: str(gpr.pk) for gpr in made}


def names(response: Any) -> list[str]:
    assert response.status_code == 200, response.content
    return [row["name"] for row in response.json()["results"]]


@pytest.mark.both_databases
def test_a_list_is_newest_first_and_holds_his_slices_gprs_only(owner: Caller, outsider: Caller, admin: Caller, gprs: Any) -> None:
    assert names(owner.get("gprs/")) == ["gone", "asking", "waiting", "running"]
    assert names(outsider.get("gprs/")) == ["canary"]
    assert names(admin.get("gprs/")) == ["canary", "gone", "asking", "waiting", "running"]


@pytest.mark.both_databases
def test_filters_narrow_it(owner: Caller, gprs: Any) -> None:
    for query, found in [
        ("state=QUEUED", {"waiting"}),
        ("state=QUEUED,ACTIVE", {"waiting", "running"}),
        ("state=QUEUED&state=CANCELED", {"waiting", "gone"}),
        ("state=QUEUED, ACTIVE", {"waiting", "running"}),
        ("slice=speech", {"asking", "gone"}),
        ("slice=canary-slice", set()),
        ("slice=nowhere", set()),
        ("owner=me", {"gone", "asking", "waiting", "running"}),
        ("owner=owner", {"gone", "asking", "waiting", "running"}),
        ("owner=outsider", set()),
        ("cluster=aurora", {"running"}),
        ("cluster=borealis", set()),
        ("priority_min=100", {"waiting", "asking", "gone"}),
        ("priority_max=100", {"waiting", "running"}),
        ("priority_min=100&priority_max=100", {"waiting"}),
        ("name=ING", {"waiting", "running", "asking"}),
        ("name=%25", set()),
        ("ended=true", {"gone"}),
        ("ended=false", {"running", "waiting", "asking"}),
        ("state=QUEUED&slice=speech", set()),
    ]:
        assert set(names(owner.get(f"gprs/?{query}"))) == found


@pytest.mark.both_databases
def test_filters_take_ids(owner: Caller, world: World, gprs: Any) -> None:
    assert set(names(owner.get(f"gprs/?slice={world.slice.pk}"))) == {"waiting", "running"}
    assert set(names(owner.get(f"gprs/?cluster={world.cluster.pk}"))) == {"running"}
    assert names(owner.get(f"gprs/?slice={world.foreign_slice.pk}")) == []


BAD = [
    "state=RUNNING",
    "state=QUEUED,x",
    "priority_min=0",
    "priority_min=301",
    "priority_max=x",
    "priority_max=1.5",
    "ended=maybe",
    "ended=1",
]
BAD += [
    "priority_min=" + "9" * 400,
    "name=a%00b",
    "slice=%00",
    "owner=%00",
    "owned=me",
    "page_size=0",
    "page_size=501",
    "page_size=x",
    "state=%00",
]


def test_a_filter_that_means_nothing_is_an_error(owner: Caller, world: World) -> None:
    for query in BAD:
        assert_problem(owner.get(f"gprs/?{query}"), 400, "invalid_input")


def test_a_row_is_what_the_detail_is_without_its_history(owner: Caller, gprs: dict[str, str]) -> None:
    rows = owner.get("gprs/").json()["results"]

    for row in rows:
        detail = owner.get(f"gprs/{row['id']}/").json()
        assert detail.pop("promise_moves") == detail.pop("replacements") == []
        for changing in ("time_left_s", "explanation"):
            row.pop(changing), detail.pop(changing)
        assert row == detail


def test_positions_count_everybody_but_name_nobody(owner: Caller, outsider: Caller, world: World) -> None:
    factories.gpr(world.foreign_slice, world.people.outsider, priority=200)
    factories.gpr(world.slice, world.people.owner, priority=150)
    factories.gpr(world.foreign_slice, world.people.outsider, priority=120)

    assert [row["position"] for row in owner.get("gprs/").json()["results"]] == [2]
    assert [row["position"] for row in outsider.get("gprs/").json()["results"]] == [3, 1]


def test_who_joins_a_slice_sees_its_gprs_and_who_leaves_it_no_longer(outsider: Caller, world: World, gprs: Any) -> None:
    member_set(slice_=world.slice, user=world.people.outsider, role=Role.VIEWER, actor=None, now=db_now())
    assert set(names(outsider.get("gprs/"))) == {"canary", "waiting", "running"}

    world.slice.memberships.filter(user=world.people.outsider).delete()
    assert names(outsider.get("gprs/")) == ["canary"]


@pytest.mark.both_databases
def test_only_those_that_hold_nodes_show_nodes(owner: Caller, gprs: dict[str, str]) -> None:
    rows = {row["name"]: row for row in owner.get("gprs/").json()["results"]}

    assert {name: len(row["nodes_assigned"]) for name, row in rows.items()} == {"gone": 0, "asking": 0, "waiting": 0, "running": 1}
    (node,) = rows["running"]["nodes_assigned"]
    assert node["node"] == "aurora-0"
    assert node["phase"] == "ACTIVE"
    assert node["gpus"] == [f"GPU-aurora-0-{n}" for n in range(8)]
    assert rows["running"]["state"] == GprState.ACTIVE


def test_a_text_too_long_to_search_for_is_refused_by_its_name(owner: Caller, admin: Caller, world: World) -> None:
    for path in (
        "gprs/?name",
        "gprs/?owner",
        "nodes/?name",
        "templates/?name",
        "events/?kind",
        "gprs/?priority_min",
        "schedule/?cluster",
        "insights/?days",
    ):
        refused = assert_problem(admin.get(f"{path}={'a' * 50_000}"), 400, "invalid_input")
        assert "characters at most" in str(refused["errors"][path.partition("?")[2]]), path
    assert_problem(owner.get("gprs/?" + "&".join(["state=QUEUED"] * 900)), 400, "invalid_input")


def test_a_list_says_in_openapi_how_it_is_sorted_and_how_long_a_filter_may_be(owner: Caller, admin: Caller) -> None:
    gprs = yaml.safe_load(owner.client.get("/api/schema/").content)["paths"]["/api/v1/gprs/"]["get"]

    assert "Sorted by created_at (descending), id." in gprs["description"]
    assert {each["name"]: each["schema"].get("maxLength") for each in gprs["parameters"]}["name"] == 500
    for caller, path in ((owner, "gprs/"), (admin, "defragmentation/"), (owner, "tokens/")):
        assert "ordering" in assert_problem(caller.get(f"{path}?ordering=name"), 400, "invalid_input")["errors"]


def test_what_a_key_made_is_found_by_the_key_and_by_nobody_else(owner: Caller, teammate: Caller, ask: dict[str, Any]) -> None:
    made = owner.post("gprs/", ask, key="k1").json()

    def found(caller: Caller, key: str) -> list[str]:
        return [row["id"] for row in caller.get("gprs/", idempotency_key=key).json()["results"]]

    assert (found(owner, "k1"), found(owner, "k2")) == ([made["id"]], [])
    assert found(teammate, "k1") == []
