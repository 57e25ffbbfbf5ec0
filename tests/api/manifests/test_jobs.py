"""Jobs as manifests: the fields of the custom resource, filed once, never changed, exported while they wait."""

from __future__ import annotations

from textwrap import indent

import pytest
import yaml

from core.clock import db_now
from gpr.models import Gpr, GprState, Job
from manifests.models import ManifestObject
from tests.api.conftest import Answer, Caller, World, assert_problem
from tests.api.manifests.setups import acts, apply, document
from tests.builders import SHAPE
from tests.slices.kubeconfigs import ready_namespace

BOX = f"workspace: vision, shape: {SHAPE}, nodes: 2, duration: 2h"
TRAIN = document("GPUJob", "train", f"{BOX}, image: 'a/b:1', command: [torchrun, train.py], env: {{LR: '3e-4'}}, retries: 2, userId: 2000")
OBJECT = """apiVersion: apps/v1
kind: Deployment
metadata: {name: own}
spec:
  selector: {matchLabels: {app: own}}
  template:
    metadata: {labels: {app: own}}
    spec:
      securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
      containers:
        - {name: main, image: "a:1", securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}
"""


def export(caller: Caller) -> str:
    return str(caller.get("manifests/export/?kind=GPUJob&workspace=vision").json()["text"])


def delete(caller: Caller, text: str) -> Answer:
    return caller.post("manifests/delete/", {"files": [{"name": "setup.yaml", "text": text}]})


@pytest.fixture(autouse=True)
def namespace(world: World) -> None:
    ready_namespace(world.slice, world.cluster, at=db_now())


def test_a_job_is_filed_once_and_its_export_gives_the_same(owner: Caller) -> None:
    assert acts(apply(owner, TRAIN)) == ["created"]
    assert acts(apply(owner, TRAIN)) == ["unchanged"]

    job = Job.objects.get()
    assert (job.command, job.env, job.retries, job.user_id) == (["torchrun", "train.py"], {"LR": "3e-4"}, 2, 2000)
    assert (job.gpr.nodes, job.gpr.duration_s, job.gpr.owner.name) == (2, 7200, "owner")
    exported = export(owner)
    spec = yaml.safe_load(exported)["spec"]
    assert (spec["image"], spec["command"], spec["duration"], spec["workspace"]) == ("a/b:1", ["torchrun", "train.py"], "2h", "vision")
    assert acts(apply(owner, exported)) == ["unchanged"]


def test_a_waiting_job_is_exported_once_and_an_empty_egs_gets_it_back_byte_for_byte(owner: Caller) -> None:
    apply(owner, TRAIN + "---\n" + document("GPUProvisioningRequest", "alone", BOX))
    path = "manifests/export/?kind=GPUJob,GPUProvisioningRequest&workspace=vision"

    exported = str(owner.get(path).json()["text"])
    assert [(each["kind"], each["metadata"]["name"]) for each in yaml.safe_load_all(exported)] == [
        ("GPUProvisioningRequest", "alone"),
        ("GPUJob", "train"),
    ]
    Job.objects.all().delete()
    Gpr.objects.all().delete()
    ManifestObject.objects.all().delete()
    assert acts(apply(owner, exported)) == ["created", "created"]

    assert owner.get(path).json()["text"] == exported
    assert (Gpr.objects.count(), Job.objects.count()) == (2, 1)


def test_what_runs_cannot_be_changed_and_mistakes_are_told_by_line(owner: Caller) -> None:
    apply(owner, TRAIN)

    (fault,) = assert_problem(apply(owner, TRAIN.replace("a/b:1", "a/b:2")), 400, "invalid_manifests")["faults"]
    assert fault["field"] == "spec.image"
    bad = document("GPUJob", "bad", f"{BOX}, image: 'no image', userId: 0")
    faults = assert_problem(apply(owner, bad), 400, "invalid_manifests")["faults"]
    assert {fault["field"] for fault in faults} == {"spec.image", "spec.userId"}
    assert Gpr.objects.count() == 1


def test_own_objects_are_text_as_in_the_custom_resource(owner: Caller) -> None:
    head = "apiVersion: egs.io/v1alpha1\nkind: GPUJob\nmetadata: {name: own}\nspec:\n"
    box = f"  workspace: vision\n  shape: {SHAPE}\n  nodes: 1\n  duration: 1h\n  kind: Manifest\n  manifest: |\n"
    text = f"{head}{box}{indent(OBJECT, '    ')}"

    assert acts(apply(owner, text)) == ["created"]
    assert acts(apply(owner, text)) == ["unchanged"]

    assert Job.objects.get().objects_wanted[0]["kind"] == "Deployment"
    assert acts(apply(owner, export(owner))) == ["unchanged"]
    broken = text.replace("own}", "other}").replace("securityContext: {runAs", "hostPID: true\n          securityContext: {runAs")
    (fault,) = assert_problem(apply(owner, broken), 400, "invalid_manifests")["faults"]
    assert (fault["line"], fault["field"]) == (19, "spec.manifest.spec.template.spec.hostPID")


def test_numbers_are_no_text_in_a_manifest_either(owner: Caller) -> None:
    wrong = TRAIN.replace("train.py]", "8]").replace("'3e-4'", "3")

    faults = assert_problem(apply(owner, wrong), 400, "invalid_manifests")["faults"]

    assert [(fault["field"], fault["detail"]) for fault in faults] == [
        ("spec.command[1]", 'Must be text. Write it in quotes: "8".'),
        ("spec.env.LR", 'Must be text. Write it in quotes: "3".'),
    ]


def test_deleting_it_cancels_the_job_and_one_that_is_over_is_not_filed_again(owner: Caller) -> None:
    apply(owner, TRAIN)

    assert acts(delete(owner, TRAIN)) == ["deleted"]

    assert Gpr.objects.get().state == GprState.CANCELED
    assert acts(delete(owner, TRAIN)) == ["absent"]


def test_a_viewer_files_no_job(teammate: Caller) -> None:
    assert_problem(apply(teammate, TRAIN), 400, "invalid_manifests")

    assert not Job.objects.exists()
