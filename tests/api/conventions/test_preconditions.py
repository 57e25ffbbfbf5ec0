"""A change may require that nobody has changed the object since the caller read it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from egs.api import router
from tests import factories
from tests.api.conftest import Answer, Caller, World, assert_problem
from tests.builders import SHAPE

QUOTA = {"slice": "vision", "shape": SHAPE, "guaranteed_gpus": 0, "most_gpus": 8}
BUDGET = {"slice": "vision", "gpu_hours": 100, "period": "month"}
RULE = {"name": "hot", "slice": "vision", "signal": "temperature_c", "kind": "threshold", "level": 80, "severity": "warning"}
SUPPLY = {"name": "extra", "cluster": "aurora", "kind": "NODE_POOL", "shape": SHAPE, "gpus_per_node": 8, "gpu_memory_gib": 80}
SUPPLY |= {"node_count": 2, "lead_time_s": 600, "gain_s": 600}
# Path, body that makes one there (or the object that is there), and two changes.
OBJECTS: list[tuple[str, Any, dict[str, Any], dict[str, Any]]] = [
    ("quotas/", QUOTA, {"most_gpus": 4}, {"most_gpus": 6}),
    ("budgets/", BUDGET, {"gpu_hours": 50}, {"gpu_hours": 70}),
    ("templates/", {"name": "small", "slice": "vision", "nodes": 1}, {"nodes": 2}, {"duration_s": 600}),
    ("check-policies/", {"cluster": "aurora"}, {"runtime_class": "nvidia"}, {"pull_secret": "pull"}),
    ("alert-rules/", RULE, {"hold_s": 120}, {"name": "warm"}),
    ("clusters/", "aurora/", {"drain_grace_s": 60}, {"drain_grace_s": 90}),
    ("remediation-policies/", "aurora/", {"watches_faults": False}, {"reboot_node": "auto"}),
    ("slices/", "vision/", {"nodes_approval": 3}, {"home": "aurora"}),
    ("projects/", None, {"in_league": False}, {"ends_at": "2099-01-01T00:00:00Z"}),
    ("users/", "teammate/", {"role": "auditor"}, {"role": "member"}),
    ("supplies/", SUPPLY, {"node_count": 3}, {"node_count": 4}),
    ("me/", "notices/", {"zone": "Europe/Berlin"}, {"zone": "Asia/Tokyo"}),
]


def changed(caller: Caller, path: str, body: Any, etag: str) -> Answer:
    answer: Answer = caller.client.patch(f"/api/v1/{path}", body, headers={"If-Match": etag})
    return answer


@pytest.mark.parametrize(("place", "made", "first", "second"), OBJECTS, ids=[place for place, *_ in OBJECTS])
def test_a_change_meets_only_the_object_that_was_read(
    place: str, made: Any, first: dict[str, Any], second: dict[str, Any], admin: Caller, world: World
) -> None:
    made = f"{world.slice.project.name}/" if place == "projects/" else made
    path = f"{place}{made}" if isinstance(made, str) else f"{place}{admin.post(place, made).json()['id']}/"
    first_read = admin.get(path)
    assert first_read.status_code == 200, first_read.json()
    read = first_read["ETag"]

    assert admin.get(path)["ETag"] == read
    assert admin.patch(path, first).status_code == 200
    present = admin.get(path)

    assert_problem(changed(admin, path, second, read), 409, "stale_version")
    assert admin.get(path).json() == present.json()
    answer = changed(admin, path, second, present["ETag"])
    assert (answer.status_code, answer["ETag"] != present["ETag"]) == (200, True)
    assert admin.get(path)["ETag"] == answer["ETag"]


def test_a_star_means_a_request_as_it_is(owner: Caller, world: World) -> None:
    gpr = factories.gpr(world.slice, world.people.owner, name="any")

    assert changed(owner, f"gprs/{gpr.pk}/", {"nodes": 2}, "*").status_code == 200


def test_a_deletion_may_have_a_condition_too(owner: Caller, world: World) -> None:
    made = owner.post("templates/", {"name": "small", "slice": "vision", "nodes": 1})
    path = f"/api/v1/templates/{made.json()['id']}/"
    owner.client.patch(path, {"nodes": 2})

    assert_problem(owner.client.delete(path, headers={"If-Match": made["ETag"]}), 409, "stale_version")
    assert_problem(owner.client.delete(path, headers={"If-Match": "no quotes"}), 400, "invalid_input")
    assert owner.client.delete(path, headers={"If-Match": f'"other", {owner.client.get(path)["ETag"]}'}).status_code == 204


def test_a_condition_tells_nothing_of_objects_that_one_may_not_see(outsider: Caller, owner: Caller, world: World) -> None:
    made = owner.post("templates/", {"name": "small", "slice": "vision", "nodes": 1})

    answer = changed(outsider, f"templates/{made.json()['id']}/", {"nodes": 2}, made["ETag"])

    assert_problem(answer, 404, "not_found")


def test_what_moves_by_itself_leaves_the_etag(admin: Caller, world: World) -> None:
    read = admin.get("clusters/aurora/")["ETag"]

    admin.post("clusters/aurora/disable/", {})

    assert admin.get("clusters/aurora/")["ETag"] == read


def test_every_object_that_can_be_changed_has_an_etag_and_openapi_says_so(db: None, owner: Caller) -> None:
    views = {prefix: view for prefix, view, _ in router.registry if hasattr(view, "partial_update")}
    paths = yaml.safe_load(owner.client.get("/api/schema/").content)["paths"]
    patches = {path: methods["patch"] for path, methods in paths.items() if "patch" in methods}

    assert [prefix for prefix, view in views.items() if getattr(view, "change_body", None) is None] == []
    assert len(patches) >= len(views) > 10
    assert [path for path, patch in patches.items() if "If-Match" not in {each["name"] for each in patch["parameters"]}] == []
