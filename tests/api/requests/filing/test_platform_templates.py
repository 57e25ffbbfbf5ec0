"""Templates of the platform: an administrator writes them, every workspace starts from them, and a workspace's own hides its namesake."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError, transaction

from core.clock import db_now
from gpr.models import GprTemplate
from journal.models import Event
from tests import factories
from tests.api.conftest import Caller, World, assert_problem, faults
from tests.api.manifests.setups import acts, apply, document
from tests.builders import SHAPE
from tests.pages.user_world import client_of, text
from tests.slices.kubeconfigs import ready_namespace

WORDS = {"shape": SHAPE, "nodes": 1, "gpus_per_node": 4, "duration_s": 7200}
ASKING = {"name": "train", "slice": "vision"}


@pytest.fixture
def platform(admin: Caller, world: World) -> dict[str, Any]:
    answer = admin.post("templates/", {"name": "training", **WORDS, "image": "a/b:1"})
    assert answer.status_code == 201, answer.content
    made: dict[str, Any] = answer.json()
    return made


def names(caller: Caller, **given: Any) -> list[tuple[str, str | None]]:
    return [(row["name"], row["slice"]) for row in caller.get("templates/", **given).json()["results"]]


def test_everybody_sees_and_uses_it_and_only_an_administrator_writes_it(
    owner: Caller, outsider: Caller, admin: Caller, world: World, platform: dict[str, Any]
) -> None:
    ready_namespace(world.slice, world.cluster, at=db_now())
    assert (platform["slice"], platform["slice_id"]) == (None, None)
    assert names(owner) == names(outsider) == names(owner, slice="vision") == [("training", None)]

    filed = owner.post("gprs/", {**ASKING, "template": "training", "nodes": 2}).json()
    assert (filed["template"], filed["nodes"], filed["gpus_per_node"], filed["duration_s"]) == ("training", 2, 4, 7200)
    assert owner.post("jobs/", {"name": "run", "slice": "vision", "template": "training"}).json()["image"] == "a/b:1"

    for caller in (owner, outsider):
        assert_problem(caller.patch("templates/training/", {"nodes": 3}), 403, "not_allowed")
        assert_problem(caller.delete("templates/training/"), 403, "not_allowed")
        assert_problem(caller.post("templates/", {"name": "mine", **WORDS}), 403, "not_allowed")
    assert admin.patch("templates/training/", {"nodes": 3}).json()["nodes"] == 3
    assert admin.delete("templates/training/").status_code == 204
    told = Event.objects.filter(kind__startswith="template.").order_by("pk")
    assert [(event.kind, event.slice_id) for event in told] == [(f"template.{what}", None) for what in ("created", "changed", "deleted")]
    assert told[0].message.startswith(f"Template training of the platform was made: shape {SHAPE}")
    assert not [event for event in owner.get("events/").json()["results"] if event["kind"].startswith("template.")]


def test_a_workspace_s_own_of_the_same_name_hides_it_there_and_nowhere_else(
    owner: Caller, admin: Caller, world: World, platform: dict[str, Any]
) -> None:
    own = owner.post("templates/", {"name": "training", "slice": "vision", **WORDS, "nodes": 5}).json()

    assert names(owner, slice="vision") == [("training", "vision")]
    assert names(admin, slice="canary-slice") == [("training", None)]
    assert owner.post("gprs/", {**ASKING, "template": "training", "nodes": 1}).json()["template_id"] == own["id"]
    assert_problem(owner.post("gprs/", {**ASKING, "template": platform["id"]}), 404, "not_found")
    assert_problem(owner.get("templates/training/"), 409, "conflict")  # two have the name: the id says which
    assert_problem(admin.post("templates/", {"name": "training", **WORDS}), 409, "conflict")


def test_it_is_nobody_s_default_and_for_all_clusters(admin: Caller, world: World, platform: dict[str, Any]) -> None:
    body = {"name": "wrong", **WORDS, "cluster": "aurora", "is_default": True, "auto": True}
    assert faults(admin.post("templates/", body)) == ["cluster", "is_default", "auto"]
    assert faults(admin.post("templates/", {"name": "wrong", **WORDS, "shape": "NO-SUCH-GPU", "nodes": 0})) == ["nodes", "shape"]
    for wrong in ({"is_default": True}, {"cluster": world.cluster}):
        with pytest.raises(IntegrityError), transaction.atomic():
            GprTemplate.objects.create(name="wrong", created_at=db_now(), **wrong)
    with pytest.raises(IntegrityError), transaction.atomic():
        GprTemplate.objects.create(name="training", created_at=db_now())


def test_a_manifest_without_a_workspace_is_one_of_the_platform_and_its_export_gives_the_same(
    owner: Caller, admin: Caller, world: World
) -> None:
    setup = document("GPRTemplate", "batch", f"shape: {SHAPE}, nodes: 1, duration: 2h, image: 'a/b:1'")
    (fault,) = assert_problem(apply(owner, setup), 400, "invalid_manifests")["faults"]
    assert "Name a workspace to make one of your own" in fault["detail"]

    assert acts(apply(admin, setup)) == ["created"]
    assert acts(apply(admin, setup)) == ["unchanged"]
    exported = str(admin.get("manifests/export/?kind=GPRTemplate").json()["text"])
    GprTemplate.objects.all().delete()
    assert acts(apply(admin, exported)) == ["created"]
    assert admin.get("manifests/export/?kind=GPRTemplate").json()["text"] == exported
    assert owner.get("manifests/export/?kind=GPRTemplate&workspace=vision").json()["text"] == ""


def test_administrators_write_them_on_a_page_and_members_find_them_marked_in_their_forms(world: World) -> None:
    admin, owner = client_of(world.people.admin), client_of(world.people.owner)
    assert "No template of the platform yet" in text(admin.get("/admin/templates/"))
    assert admin.post("/admin/templates/new/", {"name": "two words"}).status_code == 422
    sent = {"name": "short", "shape": SHAPE, "duration": "2 h", "runs": "image: a/b:1"}
    assert admin.post("/admin/templates/new/", sent).headers["Location"] == "/admin/templates/"
    made = GprTemplate.objects.get()
    assert (made.slice, made.asked, made.job) == (None, {"shape": SHAPE, "duration_s": 7200}, {"image": "a/b:1"})
    assert admin.post(f"/admin/templates/{made.pk}/", {**sent, "nodes": "2"}).status_code == 302

    listed = text(owner.get("/workspaces/vision/templates/"))
    assert "for all workspaces, from the platform" in listed
    assert f"/workspaces/vision/templates/{made.pk}/" not in listed
    assert "short (platform)" in text(owner.get("/workspaces/vision/jobs/new/"))
    assert owner.get(f"/workspaces/vision/templates/{made.pk}/").status_code == 403
    assert admin.get(f"/workspaces/vision/templates/{made.pk}/").status_code == 404
    assert owner.get("/admin/templates/").status_code in {403, 404}
    own = factories.template(world.slice, name="short")
    assert "short (platform)" not in text(owner.get("/workspaces/vision/jobs/new/"))
    own.delete()

    asked = text(admin.get(f"/admin/templates/{made.pk}/delete/"))
    assert "Delete template short?" in asked
    assert "No workspace can start from it any more" in asked
    assert admin.post(f"/admin/templates/{made.pk}/delete/").status_code == 302
    assert not GprTemplate.objects.exists()
