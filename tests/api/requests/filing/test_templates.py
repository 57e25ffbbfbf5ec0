"""`templates/`: what requests of a slice may start from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from core.clock import db_now
from core.errors import InvalidInput
from gpr.models import Gpr, GprTemplate
from gpr.requests.services import gpr_submit
from gpr.templates.services import template_change, template_create
from inventory.models import Cluster
from journal.models import Event
from slices.models import Role
from slices.namespaces.services import namespace_bind
from slices.services import member_set
from tests import factories
from tests.api.conftest import Caller, World, assert_problem, faults
from tests.builders import SHAPE, spec

WORDS = {"shape": SHAPE, "nodes": 1, "gpus_per_node": 4, "duration_s": 7200, "priority": 120, "node_type": "hgx", "evictable": False}
ASKING = {"name": "train", "slice": "vision"}


@pytest.fixture
def sample(owner: Caller, world: World) -> dict[str, Any]:
    made: dict[str, Any] = owner.post("templates/", {"name": "half-node", "slice": "vision", **WORDS, "duration_s": "2h"}).json()
    return made


def defaults(cluster: Cluster | None = None) -> list[str]:
    return list(GprTemplate.objects.filter(is_default=True, cluster=cluster).values_list("name", flat=True))


def test_a_template_is_read_as_it_was_made_and_says_null_where_it_says_nothing(owner: Caller, sample: dict[str, Any]) -> None:
    read = owner.get(f"templates/{sample['id']}/").json()

    assert read == sample
    assert {name: read[name] for name in WORDS} == WORDS
    assert read["within"] is read["rdma"] is read["min_gpu_memory_gib"] is read["cluster"] is None
    assert (read["slice"], read["is_default"], read["auto"]) == ("vision", False, False)
    assert owner.get("templates/half-node/").json() == read
    assert [row["name"] for row in owner.get("templates/", slice="vision").json()["results"]] == ["half-node"]


def test_a_stranger_never_learns_of_a_template(world: World, outsider: Caller, owner: Caller, sample: dict[str, Any]) -> None:
    assert outsider.get("templates/").json()["results"] == []
    foreign = {**ASKING, "slice": "canary-slice", "template": sample["id"]}
    assert_problem(outsider.post("gprs/", foreign), 404, "not_found")
    assert_problem(owner.post("gprs/", {**foreign, "slice": "vision", "template": "not-there"}), 404, "not_found")


@pytest.mark.usefixtures("sample")
def test_what_a_request_does_not_say_its_template_gives_and_what_it_says_goes_first(owner: Caller) -> None:
    made = owner.post("gprs/", {**ASKING, "template": "half-node", "priority": 90, "gpus_per_node": None}).json()

    assert {name: made[name] for name in WORDS} == {**WORDS, "priority": 90, "gpus_per_node": None}
    assert made["template"] == "half-node"
    assert owner.get(f"gprs/{made['id']}/").json()["template_id"] == owner.get("templates/half-node/").json()["id"]


@pytest.mark.usefixtures("sample")
def test_an_estimate_from_a_template_is_that_of_what_would_be_filed(owner: Caller) -> None:
    offers = owner.post("gprs/estimate/", {"slice": "vision", "template": "half-node"}).json()["offers"]

    assert [(offer["cluster"], offer["shape"]) for offer in offers] == [("aurora", SHAPE)]


def test_what_neither_the_request_nor_its_template_says_is_asked_for(owner: Caller, world: World) -> None:
    assert owner.post("templates/", {"name": "short", "slice": "vision", "duration_s": 600}).status_code == 201

    assert faults(owner.post("gprs/", {**ASKING, "shape": SHAPE, "template": "short"})) == ["nodes"]
    assert faults(owner.post("gprs/", {**ASKING, "shape": SHAPE})) == ["nodes", "duration_s"]


def test_a_template_of_one_cluster_asks_for_that_one(owner: Caller, world: World) -> None:
    world.slice.clusters.add(factories.cluster("borealis"))
    owner.post("templates/", {"name": "north", "slice": "vision", "cluster": "borealis", **WORDS})

    assert owner.post("gprs/", {**ASKING, "template": "north"}).json()["clusters"] == ["borealis"]
    assert owner.post("gprs/", {**ASKING, "template": "north", "clusters": ["aurora"]}).json()["clusters"] == ["aurora"]


def test_who_files_from_a_template_of_a_cluster_that_has_left_the_workspace_is_told_so(owner: Caller, admin: Caller, world: World) -> None:
    """He never named the cluster, and can name others."""
    factories.template(world.slice, name="north", cluster=factories.cluster("borealis"), asked=WORDS)

    for caller in (owner, admin):
        refused = caller.post("gprs/", {**ASKING, "template": "north"})
        assert faults(refused) == ["template"]
        assert {"north", "borealis,"} <= set(refused.json()["errors"]["template"][0].split())
    assert owner.post("gprs/", {**ASKING, "template": "north", "clusters": ["aurora"]}).status_code == 201


@pytest.mark.parametrize("name", ["two words", "", "-x", "x" * 64, "5e6f7081-92a3-4b4c-9d5e-6f708192a3b4", "a/b"])
def test_whoever_makes_or_changes_a_template_a_name_that_does_not_fit_into_a_path_is_refused(name: str, world: World) -> None:
    """The service itself refuses it, for the API, the pages and whatever comes later."""
    owner, now = world.people.owner, db_now()
    made = template_create(slice_=world.slice, change={"name": "fine"}, actor=owner, now=now)

    with pytest.raises(InvalidInput) as at_first:
        template_create(slice_=world.slice, change={"name": name}, actor=owner, now=now)
    with pytest.raises(InvalidInput) as later:
        template_change(template=made, change={"name": name}, actor=owner, now=now)
    assert list(at_first.value.extra["errors"]) == list(later.value.extra["errors"]) == ["name"]


@pytest.mark.usefixtures("sample")
def test_an_editor_files_from_a_template_that_he_may_not_change(world: World, as_user: Callable[..., Caller]) -> None:
    member_set(slice_=world.slice, user=world.people.teammate, role=Role.EDITOR, actor=None, now=db_now())
    editor = as_user(world.people.teammate)

    assert editor.post("gprs/", {**ASKING, "template": "half-node"}).status_code == 201
    assert_problem(editor.patch("templates/half-node/", {"nodes": 2}), 403, "not_allowed")
    assert_problem(editor.post("templates/", {"name": "own", "slice": "vision"}), 403, "not_allowed")


def test_a_request_stays_when_its_template_goes(owner: Caller, sample: dict[str, Any]) -> None:
    made = owner.post("gprs/", {**ASKING, "template": "half-node"}).json()

    assert owner.delete("templates/half-node/").status_code == 204

    read = owner.get(f"gprs/{made['id']}/").json()
    assert (read["template"], read["template_id"], read["gpus_per_node"]) == (None, None, 4)
    assert read["version"] == made["version"]


def test_a_change_sets_what_it_says_takes_back_what_is_null_and_leaves_the_rest(owner: Caller, sample: dict[str, Any]) -> None:
    changed = owner.patch("templates/half-node/", {"name": "half", "nodes": 2, "node_type": None}).json()

    assert changed == {**sample, "name": "half", "nodes": 2, "node_type": None}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"shape": "NO-SUCH-GPU"}, "shape"),
        ({"nodes": 0}, "nodes"),
        ({"priority": 301}, "priority"),
        ({"within": "galaxy"}, "within"),
        ({"idle_timeout_s": 60}, "idle_timeout_s"),
        ({"model": {}}, "model"),
        ({"earliest_start_at": "2027-01-01T00:00:00Z"}, "earliest_start_at"),
        ({"name": "two words"}, "name"),
    ],
)
def test_what_no_request_could_ask_for_no_template_says(fields: dict[str, Any], field: str, owner: Caller, world: World) -> None:
    assert faults(owner.post("templates/", {"name": "wrong", "slice": "vision", **fields})) == [field]


def test_a_template_gives_its_idle_time_out_and_zero_is_never(owner: Caller, sample: dict[str, Any]) -> None:
    assert owner.patch("templates/half-node/", {"nodes": 2, "idle_timeout_s": "30m"}).json()["idle_timeout_s"] == 1800
    assert "idle timeout 30 min" in Event.objects.get(kind="template.changed").message
    assert owner.post("gprs/", {**ASKING, "template": "half-node"}).json()["idle_timeout_s"] == 1800
    assert faults(owner.post("gprs/", {**ASKING, "template": "half-node", "idle_timeout_s": 60})) == ["idle_timeout_s"]
    assert owner.patch("templates/half-node/", {"idle_timeout_s": 0}).json()["idle_timeout_s"] == 0
    assert owner.patch("templates/half-node/", {"idle_timeout_s": None}).json()["idle_timeout_s"] is None


def test_a_template_beyond_the_policy_or_for_a_foreign_cluster_is_refused(owner: Caller, admin: Caller, world: World) -> None:
    factories.cluster("borealis")

    assert_problem(owner.post("templates/", {"name": "long", "slice": "vision", "duration_s": "91d"}), 400, "over_policy")
    assert_problem(owner.post("templates/", {"name": "far", "slice": "vision", "cluster": "borealis"}), 404, "not_found")
    assert faults(admin.post("templates/", {"name": "far", "slice": "vision", "cluster": "borealis"})) == ["cluster"]


def test_a_name_is_given_once_in_a_slice(owner: Caller, admin: Caller, sample: dict[str, Any]) -> None:
    assert_problem(owner.post("templates/", {"name": "half-node", "slice": "vision"}), 409, "conflict")
    assert admin.post("templates/", {"name": "half-node", "slice": "canary-slice"}).status_code == 201
    assert_problem(admin.get("templates/half-node/"), 409, "conflict")  # two have the name: only the id says which


def test_the_same_key_and_body_make_one_template(owner: Caller, world: World) -> None:
    body = {"name": "once", "slice": "vision"}

    assert owner.post("templates/", body, key="k").json() == owner.post("templates/", body, key="k").json()


def test_a_new_default_takes_the_place_of_the_old_one_of_the_same_cluster(owner: Caller, world: World) -> None:
    for name, cluster in (("all-1", None), ("aurora-1", "aurora"), ("all-2", None), ("aurora-2", "aurora")):
        assert owner.post("templates/", {"name": name, "slice": "vision", "cluster": cluster, "is_default": True}).status_code == 201

    assert (defaults(), defaults(world.cluster)) == (["all-2"], ["aurora-2"])
    assert owner.patch("templates/all-1/", {"is_default": True}).json()["is_default"] is True
    assert owner.patch("templates/aurora-2/", {"cluster": None}).json()["cluster"] is None
    assert (defaults(), defaults(world.cluster)) == (["aurora-2"], [])


@pytest.mark.parametrize("of_cluster", [False, True])
def test_the_database_takes_no_second_default_whoever_writes_it(of_cluster: bool, world: World) -> None:
    cluster = world.cluster if of_cluster else None
    factories.template(world.slice, name="first", cluster=cluster, is_default=True)
    factories.template(world.slice, name="no-default", cluster=cluster)
    factories.template(world.foreign_slice, name="of-others", cluster=cluster, is_default=True)

    with pytest.raises(IntegrityError), transaction.atomic():
        factories.template(world.slice, name="second", cluster=cluster, is_default=True)


def test_each_change_is_told_with_who_did_it_and_nothing_is_told_of_none(owner: Caller, world: World, sample: dict[str, Any]) -> None:
    owner.patch("templates/half-node/", {"is_default": True, "auto": True})
    owner.patch("templates/half-node/", {"is_default": True})
    owner.delete("templates/half-node/")

    told = Event.objects.filter(kind__startswith="template.").order_by("pk")
    assert [(event.kind, event.actor, event.slice_id) for event in told] == [
        (f"template.{what}", world.people.owner, world.slice.pk) for what in ("created", "changed", "deleted")
    ]
    said = f"shape {SHAPE}, nodes 1, GPUs per node 4, duration 2 h, priority 120, node type hgx, evictable no"
    assert told[0].message == f"Template half-node was made: {said}."
    assert told[1].message.endswith("; the default; for pods that wait.")


def generation_of(cluster: Cluster) -> int:
    return Cluster.objects.values_list("generation", flat=True).get(pk=cluster.pk)


def test_agents_hear_of_a_change_of_the_default_and_of_no_other(owner: Caller, world: World) -> None:
    namespace_bind(slice_=world.slice, cluster=world.cluster, name="train", actor=None, now=db_now())
    before = generation_of(world.cluster)

    owner.post("templates/", {"name": "one", "slice": "vision", "auto": True, "shape": SHAPE, "duration_s": 3600})
    assert generation_of(world.cluster) == before
    owner.patch("templates/one/", {"is_default": True})
    owner.patch("templates/one/", {"nodes": 2})
    owner.patch("templates/one/", {"is_default": False})
    assert generation_of(world.cluster) == before + 3


def test_a_template_that_has_become_impossible_can_be_switched_off(owner: Caller, world: World) -> None:
    factories.template(world.slice, name="gone", asked={"shape": "NO-SUCH-GPU", "duration_s": 60}, auto=True, is_default=True)

    for flag in ("auto", "is_default"):
        assert owner.patch("templates/gone/", {flag: False}).json()[flag] is False
        assert faults(owner.patch("templates/gone/", {flag: True})) == ["shape"]
    assert faults(owner.patch("templates/gone/", {"nodes": 1})) == ["shape"]


@pytest.mark.parametrize(
    ("asked", "missing"),
    [
        ({}, ["shape", "duration_s"]),
        ({"shape": SHAPE}, ["duration_s"]),
        ({"min_gpu_memory_gib": 40, "duration_s": 3600}, ["shape"]),
    ],
)
def test_what_is_filed_for_pods_that_wait_names_a_shape_and_says_for_how_long(
    asked: dict[str, Any], missing: list[str], owner: Caller, world: World
) -> None:
    """The kind of object that the agent files by asks for both: it would refuse the request each time."""
    assert faults(owner.post("templates/", {"name": "pods", "slice": "vision", "auto": True, **asked})) == missing
    owner.post("templates/", {"name": "pods", "slice": "vision", **asked})
    assert faults(owner.patch("templates/pods/", {"auto": True})) == missing


@pytest.mark.parametrize("word", ["shape", "duration_s"])
def test_what_is_filed_for_pods_keeps_its_shape_and_duration_until_auto_is_off(word: str, owner: Caller, world: World) -> None:
    owner.post("templates/", {"name": "pods", "slice": "vision", "auto": True, **WORDS})

    assert faults(owner.patch("templates/pods/", {word: None, "min_gpu_memory_gib": 40})) == [word]
    assert owner.patch("templates/pods/", {word: None, "min_gpu_memory_gib": 40, "auto": False}).status_code == 200


def test_a_request_whose_template_was_deleted_while_it_was_filed_is_filed_all_the_same(world: World) -> None:
    template = factories.template(world.slice)
    asked = spec(world.slice, template=template)
    GprTemplate.objects.filter(pk=template.pk).delete()

    made = gpr_submit(actor=world.people.owner, spec=asked, now=db_now())

    made.refresh_from_db()
    assert (made.state, made.template) == ("QUEUED", None)


def test_the_template_of_a_gpr_is_of_its_own_slice(owner: Caller, world: World) -> None:
    """His own template of another slice is none of this one."""
    other = factories.make_slice(world.cluster, name="other", owner=world.people.owner)
    owner.post("templates/", {"name": "of-other", "slice": "other", **WORDS})

    assert_problem(owner.post("gprs/", {**ASKING, "template": "of-other"}), 404, "not_found")
    assert owner.post("gprs/", {**ASKING, "slice": other.name, "template": "of-other"}).status_code == 201
    assert Gpr.objects.get(slice=other).template == GprTemplate.objects.get(name="of-other")
