"""A job and its GPR are filed together, or neither is."""

from __future__ import annotations

from typing import Any

import pytest

from gpr.models import Gpr, GprState, Job
from inventory.models import AgentSession
from journal.models import Event
from tests.api.conftest import Caller, World, assert_problem, faults
from tests.builders import SHAPE

SERVICE = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "peers"}, "spec": {"clusterIP": "None"}}
SAFE = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
OF_POD = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
MAIN = {"name": "main", "image": "a:1", "securityContext": SAFE}
POD_OF_JOB = {"spec": {"restartPolicy": "Never", "securityContext": OF_POD, "containers": [MAIN]}}
OWN_JOB = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "own"}, "spec": {"template": POD_OF_JOB}}


def job_with(**of_pod: Any) -> dict[str, Any]:
    return {**OWN_JOB, "spec": {"template": {"spec": {**POD_OF_JOB["spec"], **of_pod}}}}


def test_one_call_files_the_request_and_the_job(owner: Caller, job: dict[str, Any]) -> None:
    made = owner.post("jobs/", {**job, "env": {"LR": "3e-4"}, "model": {"name": "llama"}})

    assert made.status_code == 201, made.content
    told = made.json()
    gpr = Gpr.objects.get(pk=told["gpr_id"])
    assert (gpr.name, gpr.state, gpr.nodes, gpr.model) == ("train", GprState.QUEUED, 2, {"name": "llama"})
    assert (told["state"], told["kind"], told["command"], told["env"]) == ("WAITING", "Job", ["torchrun", "train.py"], {"LR": "3e-4"})
    assert list(Event.objects.filter(gpr_id=gpr.pk).order_by("id").values_list("kind", flat=True)) == ["gpr.created", "job.created"]
    assert owner.get("jobs/train/").json() == told


def test_a_key_that_is_sent_twice_files_one(owner: Caller, job: dict[str, Any]) -> None:
    first, second = owner.post("jobs/", job, key="k"), owner.post("jobs/", job, key="k")

    assert (first.json()["id"], second["Idempotency-Replayed"]) == (second.json()["id"], "true")
    assert Job.objects.count() == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("image", "two words:1"),
        ("image", ""),
        ("image", "Registry/UPPER"),
        ("duration_s", 0),
        ("command", ["", "x"]),
        ("command", ["x"] * 201),
        ("env", {"1BAD": "x"}),
        ("env", {"MASTER_ADDR": "me"}),
        ("env", {"PET_MASTER_ADDR": "me"}),
        ("secrets", ["Not A Name"]),
        ("volumes", {"data": "relative"}),
        ("volumes", {"data": "/etc/egs"}),
        ("volumes", {"data": "/x/../etc/egs"}),
        ("volumes", {"data": "/x\ny"}),
        ("volumes", {"a": "/x", "b": "/x/"}),
        ("user_id", 0),
        ("retries", 101),
        ("namespace", "elsewhere"),
        ("kind", "CronJob"),
        ("manifest", [OWN_JOB]),
    ],
)
def test_what_cannot_run_is_refused_with_its_field_and_nothing_is_filed(owner: Caller, job: dict[str, Any], field: str, value: Any) -> None:
    assert faults(owner.post("jobs/", {**job, field: value})) == [field]

    assert (Gpr.objects.count(), Job.objects.count()) == (0, 0)


@pytest.mark.parametrize(
    ("objects", "words"),
    [
        ([], "at least one"),
        ([SERVICE], "Services alone run nothing"),
        ([{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}], "kind Pod of v1 is none of"),
        ([{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "a"}}], "kind RoleBinding"),
        ([{**OWN_JOB, "metadata": {"name": "own", "namespace": "kube-system"}}], "leave metadata.namespace out"),
        ([{**OWN_JOB, "metadata": {"name": "own", "labels": {"egs.io/job": "x"}}}], "written by EGS alone"),
        ([{**OWN_JOB, "metadata": {"name": "own", "ownerReferences": []}}], "not ownerReferences"),
        ([{**OWN_JOB, "metadata": {"name": "Own Job"}}], "metadata.name"),
        ([{**SERVICE, "spec": {"externalIPs": ["10.0.0.1"]}}], "ClusterIP"),
        ([{**SERVICE, "spec": {"type": "LoadBalancer"}}], "ClusterIP"),
        ([OWN_JOB, OWN_JOB], "another Job of the name own"),
        ([{**OWN_JOB, "apiVersion": [], "kind": {}}], "kind {} of []"),
        ([{**OWN_JOB, "spec": {}}, SERVICE], "Object 1, spec.template: It needs the template of its pods here"),
        ([{"metadata": {"name": "own"}}], "an object needs apiVersion and kind"),
        ([job_with(hostNetwork=True)], "may not have hostNetwork"),
        ([job_with(volumes=[{"name": "root", "hostPath": {"path": "/"}}])], "may not be of kind hostPath"),
        ([job_with(containers=[{"name": "main", "image": "a:1"}])], "allowPrivilegeEscalation: false"),
        ([job_with(initContainers=[{**MAIN, "securityContext": {**SAFE, "privileged": True}}])], "no securityContext.privileged"),
        ([job_with(securityContext={})], "runAsNonRoot: true"),
        ([job_with(securityContext={**OF_POD, "seccompProfile": {"type": ["RuntimeDefault"]}})], "seccompProfile: {type: RuntimeDefault}"),
        ('apiVersion: batch/v1\nkind: Job\nmetadata: {name: own}\nspec: {a: "\\0"}', "Line 4, spec.a: A character here is no text"),
        ([job_with(containers=[{**MAIN, "ports": [{"hostPort": 80}]}])], "no hostPort"),
    ],
)
def test_a_manifest_may_have_what_a_workspace_may_make_alone(owner: Caller, job: dict[str, Any], objects: Any, words: str) -> None:
    box = {name: value for name, value in job.items() if name not in {"image", "command"}}

    errors = assert_problem(owner.post("jobs/", {**box, "kind": "Manifest", "manifest": objects}), 400, "invalid_input")["errors"]

    assert words in " ".join(errors["manifest"])
    assert not Gpr.objects.exists()


def test_numbers_and_flags_are_no_text_and_the_refusal_shows_how_to_quote_them(owner: Caller, job: dict[str, Any]) -> None:
    body = {**job, "image": 1, "command": ["train", 8], "env": {"LR": 0.1, "FAST": True}, "name": 5}

    errors = assert_problem(owner.post("jobs/", body), 400, "invalid_input")["errors"]

    assert errors == {
        "name": ['Must be text. Write it in quotes: "5".'],
        "image": ['Must be text. Write it in quotes: "1".'],
        "command.1": ['Must be text. Write it in quotes: "8".'],
        "env.LR": ['Must be text. Write it in quotes: "0.1".'],
        "env.FAST": ['Must be text. Write it in quotes: "true".'],
    }


def test_a_manifest_holds_what_the_database_can_store_and_says_itself_how_often_it_runs(owner: Caller, job: dict[str, Any]) -> None:
    box = {name: value for name, value in job.items() if name not in {"image", "command"}}
    body = {**box, "kind": "Manifest", "manifest": [OWN_JOB], "retries": 2, "user_id": 7}

    assert faults(owner.post("jobs/", body)) == ["user_id", "retries"]
    odd = {**box, "kind": "Manifest", "manifest": [{**OWN_JOB, "spec": {"a": "\x00"}}]}
    assert [name.partition(".")[0] for name in faults(owner.post("jobs/", odd))] == ["manifest"]
    assert not Gpr.objects.exists()


def test_a_manifest_of_allowed_kinds_is_filed_as_it_is(owner: Caller, job: dict[str, Any]) -> None:
    box = {name: value for name, value in job.items() if name not in {"image", "command"}}

    made = owner.post("jobs/", {**box, "kind": "Manifest", "manifest": [SERVICE, OWN_JOB]})

    assert made.status_code == 201, made.content
    assert made.json()["manifest"] == [SERVICE, OWN_JOB]


def test_without_a_namespace_there_is_no_place_to_run_in(owner: Caller, world: World) -> None:
    body = {"name": "train", "slice": "vision", "shape": SHAPE, "nodes": 1, "duration_s": 3600, "image": "a:1"}

    assert "An owner of it can bind one" in assert_problem(owner.post("jobs/", body), 400, "invalid_input")["errors"]["namespace"][0]


def test_a_kind_needs_a_cluster_that_serves_it(owner: Caller, world: World, job: dict[str, Any]) -> None:
    assert faults(owner.post("jobs/", {**job, "kind": "PyTorchJob"})) == ["kind"]

    AgentSession.objects.filter(cluster=world.cluster).update(workload_kinds=["Job", "PyTorchJob"])

    assert owner.post("jobs/", {**job, "kind": "PyTorchJob"}).status_code == 201


def test_others_workspaces_have_no_such_job(owner: Caller, teammate: Caller, outsider: Caller, admin: Caller, job: dict[str, Any]) -> None:
    made = owner.post("jobs/", job).json()

    assert [row["id"] for row in teammate.get("jobs/").json()["results"]] == [made["id"]]
    assert outsider.get("jobs/").json()["results"] == []
    for path in (f"jobs/{made['id']}/", "jobs/train/", f"jobs/{made['id']}/logs/"):
        assert_problem(outsider.get(path), 404, "not_found")
    assert_problem(outsider.post(f"jobs/{made['id']}/cancel/"), 404, "not_found")
    assert_problem(teammate.post(f"jobs/{made['id']}/cancel/"), 403, "not_allowed")
    assert_problem(outsider.post("jobs/", job), 404, "not_found")
    assert all(event["gpr_id"] != made["gpr_id"] for event in outsider.get("events/").json()["results"])


def test_a_canceled_job_withdraws_its_request(owner: Caller, job: dict[str, Any]) -> None:
    made = owner.post("jobs/", job).json()

    canceled = owner.post(f"jobs/{made['id']}/cancel/")

    assert (canceled.json()["state"], canceled.json()["gpr_state"]) == ("STOPPED", "CANCELED")
    assert_problem(owner.post(f"jobs/{made['id']}/cancel/"), 409, "wrong_state")
    assert owner.get("jobs/", ended="false").json()["results"] == []
    assert len(owner.get("jobs/", state="STOPPED").json()["results"]) == 1
