"""The agent counts pods of a job's own object, by the label of their operator, and none whose name only begins alike."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from protocol.assignments import Drain
from protocol.cluster_names import JOB, JOB_BOX, JOB_OF_POD, JOB_SET_OF_POD, TRAINING_OF_POD, box_of
from protocol.tenancy.workloads import WorkloadKind
from tests.agent.fake_kube import FakeApi
from tests.agent.jobs.test_manifests import WORK
from worker_agent.hub.workloads import BoxJob, OpenBox
from worker_agent.kube.api.objects import Meta, Pod, PodSpec, PodStatus
from worker_agent.kube.jobs.driver import KubernetesWorkloads

BOX = OpenBox(
    gpr_id=WORK.gpr_id,
    run=WORK.run,
    slice=WORK.slice,
    nodes=("a",),
    gpus_per_node=8,
    active_s=0.0,
    ends_s=3600.0,
    drain=Drain(grace_s=30, force_after_s=120),
)
LABELS = {JOB: WORK.id, JOB_BOX: box_of(WORK.gpr_id, WORK.run)}


class Lists(FakeApi):
    """Kinds of which there is nothing have empty lists."""

    def get(self, path: str, type_: Any, **params: Any) -> Any:
        return msgspec.convert(self.objects.get(path, {"metadata": {}, "items": []}), type_)


def pod(name: str, phase: str, **labels: str) -> Pod:
    return Pod(metadata=Meta(name=name, namespace="train", uid=name, labels=labels), spec=PodSpec(), status=PodStatus(phase=phase))


@pytest.mark.parametrize(
    ("path", "version", "kind", "label"),
    [
        ("batch/v1/jobs", "batch/v1", "Job", JOB_OF_POD),
        ("jobset.x-k8s.io/v1alpha2/jobsets", "jobset.x-k8s.io/v1alpha2", "JobSet", JOB_SET_OF_POD),
        ("kubeflow.org/v1/pytorchjobs", "kubeflow.org/v1", "PyTorchJob", TRAINING_OF_POD),
    ],
)
def test_pods_of_a_person_s_own_manifest_are_counted_by_their_owner(path: str, version: str, kind: str, label: str) -> None:
    """`train` and `train-2` are two jobs of one namespace."""
    made = {"apiVersion": version, "kind": kind, "metadata": {"name": "train"}, "spec": {}}
    work = msgspec.structs.replace(WORK, kind=WorkloadKind.MANIFEST, objects=(made,))
    api = Lists()
    api.objects[f"/apis/{path}"] = {
        "metadata": {},
        "items": [{"metadata": {"name": "train", "namespace": "train", "uid": "u", "labels": LABELS}}],
    }
    pods = [pod("train-a", "Running", **{label: "train", JOB_OF_POD: "train" if kind == "Job" else "train-node-0"})]
    pods += [pod("train-2-a", "Running", **{label: "train-2", JOB_OF_POD: "train-2"}), pod("other", "Running")]
    driver: Any = KubernetesWorkloads(
        api=api,  # type: ignore[arg-type]
        bound=lambda name: WORK.slice,
        pods=lambda: pods,
        nodes=list,
        why=lambda pod: "",
        note=lambda *args: None,
    )

    (seen,) = driver.reconcile([BoxJob(work, BOX)], {(WORK.gpr_id, WORK.run)}, now_s=0.0)

    assert (seen.phase, seen.pods_running) == ("RUNNING", 1)
