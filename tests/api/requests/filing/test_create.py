from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from core.clock import db_now
from gpr.allocation.allocator import tick
from gpr.models import Gpr, GprState
from inventory.models import Node
from journal.models import Event
from slices.models import Role, Slice
from slices.services import member_set
from tests import factories
from tests.api.conftest import Caller, World, assert_problem, faults
from tests.builders import SHAPE

NUMBER_MAX = 2**53 - 1


def test_a_request_comes_back_queued_with_a_promise_and_a_reason(owner: Caller, ask: dict[str, Any]) -> None:
    response = owner.post("gprs/", ask)

    assert response.status_code == 201, response.content
    gpr = response.json()
    assert (gpr["state"], gpr["version"], gpr["position"]) == ("QUEUED", 1, 1)
    assert gpr["promised_start_at"] == gpr["estimate"]["start_at"] == gpr["estimate"]["p50_at"] == gpr["estimate"]["p90_at"]
    assert gpr["explanation"] == {"reason": "starts_now", "sentence": "It starts now.", "blockers": [], "ahead_count": 0}
    assert (gpr["slice"], gpr["owner"], gpr["cluster"], gpr["nodes_assigned"], gpr["time_left_s"]) == ("vision", "owner", None, [], None)
    assert owner.get(f"gprs/{gpr['id']}/").json() == gpr


def test_every_field_is_kept_as_it_was_asked(owner: Caller, world: World, ask: dict[str, Any]) -> None:
    Slice.objects.filter(pk=world.slice.pk).update(may_evict=True)
    asked = {
        "name": "all of it",
        "shape": SHAPE,
        "min_gpu_memory_gib": 40,
        "nodes": 2,
        "gpus_per_node": 4,
        "duration_s": 5400,
        "priority": 42,
        "clusters": ["aurora"],
        "earliest_start_at": (db_now() + timedelta(hours=2)).isoformat().replace("+00:00", "Z"),
        "node_type": "hgx",
        "rdma": False,
        "evictable": False,
        "may_evict": True,
        "requeue_on_failure": False,
        "run_checks": False,
        "model": {"name": "llama", "parameters": {"layers": 80, "rate": 1e-4, "tags": ["a", None, True]}},
    }

    gpr = owner.post("gprs/", {"slice": str(world.slice.pk), **asked}).json()

    assert {name: gpr[name] for name in asked} == asked
    assert gpr["explanation"]["reason"] == "waits_for_start_time"
    assert owner.get(f"gprs/{gpr['id']}/").json() == gpr


def test_defaults_are_the_service_s(owner: Caller, ask: dict[str, Any]) -> None:
    gpr = owner.post("gprs/", ask).json()

    assert (gpr["priority"], gpr["gpus_per_node"], gpr["clusters"], gpr["model"]) == (101, None, [], {})
    assert (gpr["evictable"], gpr["may_evict"], gpr["requeue_on_failure"], gpr["run_checks"]) == (True, False, True, True)


def test_an_idle_time_out_may_be_asked_for_and_one_longer_than_the_policy_s_needs_approval(
    owner: Caller, admin: Caller, world: World, ask: dict[str, Any]
) -> None:
    made = owner.post("gprs/", {**ask, "idle_timeout_s": "30m"}).json()
    assert (made["state"], made["idle_timeout_s"], made["idle"]) == ("QUEUED", 1800, None)
    assert owner.patch(f"gprs/{made['id']}/", {"idle_timeout_s": None}).json()["idle_timeout_s"] is None
    assert set(faults(owner.post("gprs/", {**ask, "idle_timeout_s": 299}))) == {"idle_timeout_s"}

    admin.patch("slices/vision/", {"idle_timeout_s": 3600})
    states = {}
    for asked in (None, 3600, 3601, 0):
        made = owner.post("gprs/", {**ask, "idle_timeout_s": asked}).json()
        states[asked] = made["state"], made["approval_reasons"]
    assert states[None] == states[3600] == ("QUEUED", [])
    assert states[3601] == ("PENDING_APPROVAL", ["Idle time-out of 1 h 01 s; longer than 1 h needs approval."])
    assert states[0] == ("PENDING_APPROVAL", ["No idle time-out; longer than 1 h needs approval."])


def test_slice_and_clusters_are_taken_by_id_as_well_as_by_name(owner: Caller, world: World, ask: dict[str, Any]) -> None:
    by_id = {"slice": str(world.slice.pk), "clusters": [str(world.cluster.pk), "aurora"]}

    gpr = owner.post("gprs/", {**ask, **by_id}).json()

    assert (gpr["slice"], gpr["slice_id"], gpr["clusters"]) == ("vision", str(world.slice.pk), ["aurora"])


def test_without_a_shape_the_memory_decides(owner: Caller, ask: dict[str, Any]) -> None:
    del ask["shape"]

    assert "shape" in assert_problem(owner.post("gprs/", ask), 400, "invalid_input")["errors"]
    assert owner.post("gprs/", {**ask, "min_gpu_memory_gib": 80}).json()["shape"] == ""


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (5400, 5400),
        (60.0, 60),
        ("000000000003600", 3600),
        ("1h30m", 5400),
        ("1 h 30 min", 5400),
        ("PT1H30M", 5400),
        ("2d", 172_800),
        ("P1D", 86_400),
    ],
)
def test_a_duration_is_seconds_or_text(text: Any, seconds: int, owner: Caller, ask: dict[str, Any]) -> None:
    assert owner.post("gprs/", {**ask, "duration_s": text}).json()["duration_s"] == seconds


BAD_NUMBERS: list[Any] = [0, -1, 1.5, "2", "two", True, False, [], [2], {}, 100_001, NUMBER_MAX, 2**53, 10**30, -(10**30), 1e300]
BAD_DURATIONS: list[Any] = [0, -5, 0.5, "", "soon", "1h-5m", "-PT1H", "PT-1H", "P99999999999D", "9" * 40, "1h " * 50, "\u0663", True, []]
BAD_DURATIONS += [2**53, 10**30, {"h": 1}, "1\u0000h", "PT", "P", "PT0.5S", "PT1.5S"]
UNSEEN = ["a\u2028b", "\u3164", "a\u2003b", "a\ufe0f"]  # a line break, a filler, a space like another, a variation selector
BAD_FLAGS: list[Any] = ["true", "false", 1, 0, None, "yes", []]
BAD_MOMENTS = ["2001-01-01T00:00:00Z", "2026-13-01T00:00:00Z", "2199-01-01T00:00:00Z"]
BAD_MOMENTS += ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59"]
BAD: dict[str, list[Any]] = {
    "nodes": [*BAD_NUMBERS, None],
    "priority": [*BAD_NUMBERS, None],
    "gpus_per_node": BAD_NUMBERS,
    "min_gpu_memory_gib": BAD_NUMBERS,
    "duration_s": [*BAD_DURATIONS, None],
    "idle_timeout_s": [*(value for value in BAD_DURATIONS if value != 0), 60, "2m"],
    "name": [
        "",
        " ",
        "a\u0000b",
        "a\u0007b",
        "\u200b",
        "x" * 64,
        5,
        True,
        None,
        ["a"],
        "\u202e",
        "a\u2028b",
        "\u3164",
        "a\u2003b",
        "a\ufe0f",
    ],
    "shape": [5, None, "H200", "x" * 1000, "H100-80GB\u0000"],
    "slice": [5, None, "", ["vision"], {}, "x" * 300, "vision\u0000"],
    "clusters": ["aurora", 5, None, [5], [None], [[]], {"a": 1}, ["a"] * 101],
    "rdma": BAD_FLAGS,
    "evictable": BAD_FLAGS,
    "may_evict": BAD_FLAGS,
    "requeue_on_failure": BAD_FLAGS,
    "run_checks": BAD_FLAGS,
    "earliest_start_at": ["tomorrow", 5, True, [], "", *BAD_MOMENTS],
    "model": ["llama", 5, None, [], [1], {"a": "\u0000"}, {"a\u0000": 1}, {"n": 10**400}, {"n": [{"m": 2**53}]}, {"a": "x" * 20_000}],
    "node_type": [5, None, "x" * 64, "a\u0000"],
    "within": [5, None, "row", ["rack"]],
    **{name: [1] for name in ("state", "id", "owner", "version", "position", "template", "Nodes")},
}


@pytest.mark.rotates  # each day: the other cases, and tests/api/conventions/test_schema.py
@pytest.mark.parametrize("field", BAD)
def test_whatever_is_wrong_with_a_field_is_a_400_that_names_it(field: str, owner: Caller, ask: dict[str, Any]) -> None:
    for value in BAD[field]:
        response = owner.post("gprs/", {**ask, field: value})

        if response.status_code == 400 and response.json()["code"] == "over_policy":
            assert field == "duration_s"
            continue
        body = assert_problem(response, 400, "invalid_input")
        assert [name.split(".")[0] for name in body["errors"]] == [field], (value, body)
    assert not Gpr.objects.exists()
    assert not Event.objects.filter(kind="gpr.created").exists()


@pytest.mark.parametrize("missing", ["name", "slice", "nodes", "duration_s"])
def test_what_must_be_there_is_named_when_it_is_not(missing: str, owner: Caller, ask: dict[str, Any]) -> None:
    del ask[missing]

    assert faults(owner.post("gprs/", ask)) == [missing]


def test_all_faults_of_values_are_told_at_once(owner: Caller, ask: dict[str, Any]) -> None:
    body = assert_problem(owner.post("gprs/", {**ask, "nodes": 0, "priority": 301, "duration_s": 0, "name": ""}), 400, "invalid_input")

    assert set(body["errors"]) == {"nodes", "priority", "duration_s", "name"}


@pytest.mark.parametrize(
    "name", ["\u5927\u6a21\u578b", "r\u00e9sum\u00e9", "<script>alert(1)</script>", "'; DROP TABLE gpr_gpr; --", "a/b", "{{7*7}}"]
)
def test_a_name_may_be_any_text(name: str, owner: Caller, ask: dict[str, Any]) -> None:
    assert owner.post("gprs/", {**ask, "name": name}).json()["name"] == name


def test_what_no_cluster_could_hold_is_refused_with_the_most_that_could(owner: Caller, ask: dict[str, Any]) -> None:
    body = assert_problem(owner.post("gprs/", {**ask, "nodes": 3}), 400, "can_never_start")

    assert (body["most_nodes"], body["most_gpus_per_node"]) == (2, 8)
    assert not Gpr.objects.exists()


def test_longer_than_the_policy_ever_allows_is_refused_with_the_limit(owner: Caller, world: World, ask: dict[str, Any]) -> None:
    Slice.objects.filter(pk=world.slice.pk).update(duration_max_s=3600, duration_approval_s=3600)

    body = assert_problem(owner.post("gprs/", {**ask, "duration_s": 3601}), 400, "over_policy")

    assert (body["limit"], body["most"]) == ("duration_max_s", 3600)


def test_a_breach_of_the_policy_waits_for_approval_and_names_the_rules(owner: Caller, ask: dict[str, Any]) -> None:
    gpr = owner.post("gprs/", {**ask, "priority": 250}).json()

    assert gpr["state"] == GprState.PENDING_APPROVAL
    assert owner.get(f"gprs/{gpr['id']}/").json() == gpr
    assert gpr["approval_reasons"] == ["Priority 250; above 200 needs approval."]
    assert (gpr["estimate"], gpr["position"], gpr["explanation"], gpr["queued_at"]) == (None, None, None, None)


@pytest.mark.parametrize("reference", ["canary-slice", "nowhere", "00000000-0000-4000-8000-000000000000", "{foreign_id}"])
def test_a_foreign_slice_is_as_absent_as_one_that_is_not_there(reference: str, owner: Caller, world: World, ask: dict[str, Any]) -> None:
    slice_ = reference.format(foreign_id=world.foreign_slice.pk)

    body = assert_problem(owner.post("gprs/", {**ask, "slice": slice_}), 404, "not_found")

    assert body == owner.post("gprs/", {**ask, "slice": "nothing-of-the-kind"}).json()


@pytest.mark.parametrize("reference", ["borealis", "nowhere", "00000000-0000-4000-8000-000000000000"])
def test_a_cluster_that_he_may_not_use_is_as_absent_as_one_that_is_not_there(
    reference: str, owner: Caller, world: World, ask: dict[str, Any]
) -> None:
    factories.cluster("borealis")

    body = assert_problem(owner.post("gprs/", {**ask, "clusters": [reference]}), 404, "not_found")

    assert body == owner.post("gprs/", {**ask, "clusters": ["nothing-of-the-kind"]}).json()


def test_a_cluster_of_another_slice_of_his_is_refused_by_name(owner: Caller, world: World, ask: dict[str, Any]) -> None:
    factories.make_slice(factories.cluster("borealis"), owner=world.people.owner)

    assert faults(owner.post("gprs/", {**ask, "clusters": ["borealis"]})) == ["clusters"]


@pytest.mark.parametrize(
    ("persona", "status", "code"),
    [("owner", 201, ""), ("teammate", 403, "not_allowed"), ("outsider", 404, "not_found"), ("admin", 201, "")],
)
def test_who_may_file_a_request(persona: str, status: int, code: str, request: pytest.FixtureRequest, ask: dict[str, Any]) -> None:
    response = request.getfixturevalue(persona).post("gprs/", ask)

    assert response.status_code == status
    assert response.json().get("code", "") == code


def test_an_editor_may_file_a_request(world: World, ask: dict[str, Any]) -> None:
    editor = factories.user("editor")
    member_set(slice_=world.slice, user=editor, role=Role.EDITOR, actor=None, now=db_now())

    assert Caller(factories.token(editor)).post("gprs/", ask).status_code == 201


def test_the_same_key_and_body_answer_with_the_same_object(owner: Caller, ask: dict[str, Any]) -> None:
    first, second = owner.post("gprs/", ask, key="k 1"), owner.post("gprs/", dict(reversed(ask.items())), key="k 1")

    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json() == second.json()
    assert "Idempotency-Replayed" not in first
    assert second["Idempotency-Replayed"] == "true"
    assert Gpr.objects.count() == 1


def test_the_same_key_with_another_body_is_a_conflict(owner: Caller, ask: dict[str, Any]) -> None:
    owner.post("gprs/", ask, key="k")

    assert_problem(owner.post("gprs/", {**ask, "nodes": 2}, key="k"), 409, "conflict")
    assert Gpr.objects.count() == 1


def test_a_key_is_one_user_s_and_one_path_s(owner: Caller, admin: Caller, ask: dict[str, Any]) -> None:
    ids = {owner.post("gprs/", ask, key="k").json()["id"], admin.post("gprs/", ask, key="k").json()["id"]}

    assert len(ids) == 2
    assert admin.post("projects/", {"name": "p"}, key="k").status_code == 201


def test_a_key_of_a_refused_request_is_free_again(owner: Caller, ask: dict[str, Any]) -> None:
    assert_problem(owner.post("gprs/", {**ask, "nodes": 3}, key="k"), 400, "can_never_start")

    assert owner.post("gprs/", ask, key="k").status_code == 201


@pytest.mark.parametrize("key", ["", " " * 0, "x" * 256, "a\x7f", "\u00e9"])
def test_a_key_that_is_none_is_refused(key: str, owner: Caller, ask: dict[str, Any]) -> None:
    assert faults(owner.post("gprs/", ask, key=key)) == ["Idempotency-Key"]
    assert not Gpr.objects.exists()


def test_a_replay_whose_object_is_not_there_any_more_says_so(owner: Caller, world: World, ask: dict[str, Any]) -> None:
    owner.post("gprs/", ask, key="k")
    template = {"name": "half-node", "slice": "vision"}
    owner.post("templates/", template, key="k")
    owner.delete("templates/half-node/")

    assert "deleted" in assert_problem(owner.post("templates/", template, key="k"), 410, "gone")["detail"]
    world.slice.memberships.all().delete()
    assert_problem(owner.post("gprs/", ask, key="k"), 410, "gone")


def test_nodes_that_must_be_of_one_rack_are_and_what_no_rack_holds_is_refused_at_once(
    owner: Caller, world: World, ask: dict[str, Any]
) -> None:
    """The racks are as the agent reports them: two nodes in one, a third in another."""
    factories.add_nodes(world.cluster, 1)
    for node, rack in zip(Node.objects.order_by("name"), ["r1", "r2", "r1"], strict=True):
        Node.objects.filter(pk=node.pk).update(rack=rack)

    made = owner.post("gprs/", {**ask, "nodes": 2, "within": "rack"}).json()
    refused = assert_problem(owner.post("gprs/", {**ask, "name": "wide", "nodes": 3, "within": "rack"}), 400, "can_never_start")
    tick(now=db_now())

    assert made["within"] == "rack"
    assert refused["most_nodes"] == 2
    assert {row["node"] for row in owner.get(f"gprs/{made['id']}/").json()["nodes_assigned"]} == {"aurora-0", "aurora-2"}


def test_no_more_requests_of_a_workspace_wait_than_its_policy_says(owner: Caller, admin: Caller, world: World, ask: dict[str, Any]) -> None:
    """Requests that wait for approval count; those that run and those of other workspaces do not."""
    changed = admin.patch(f"slices/{world.slice.name}/", {"queued_max": 2})
    assert (changed.status_code, changed.json()["queued_max"]) == (200, 2)
    factories.active(world.slice, world.people.owner)
    factories.gpr(world.foreign_slice, world.people.outsider)
    assert owner.post("gprs/", ask).status_code == 201
    assert owner.post("gprs/", {**ask, "priority": 300}).json()["state"] == "PENDING_APPROVAL"

    refused = owner.post("gprs/", ask)
    body = assert_problem(refused, 429, "queue_full")
    starts_at = Gpr.objects.get(slice=world.slice, state="QUEUED").planned_start_at
    assert starts_at is not None
    assert abs(int(refused["Retry-After"]) - (starts_at - db_now()).total_seconds()) < 60
    assert (body["limit"], body["most"], Gpr.objects.filter(slice=world.slice).count()) == ("queued_max", 2, 3)

    owner.delete(f"gprs/{Gpr.objects.get(slice=world.slice, state='QUEUED').pk}/")
    assert owner.post("gprs/", ask).status_code == 201
