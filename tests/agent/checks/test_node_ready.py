"""The first entry check: a node that is not ready says which of its conditions, or what else, keeps it from being so."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from protocol import cluster_names
from protocol.nodes.checks import Verdict
from protocol.nodes.steps import EntryStep
from tests.agent.fake_kube import Object, assignment, fill, made
from worker_agent.cluster.base import StepCall, StepProgress, StepStatus
from worker_agent.kube.api.objects import Node
from worker_agent.kube.checks.steps import Checks

FOREIGN = {
    "metadata": {"name": "secret-project", "namespace": "blue", "uid": "uid-foreign", "resourceVersion": "7"},
    "spec": {"nodeName": "n1", "containers": [{"resources": {"limits": {cluster_names.GPU: "1"}}}]},
    "status": {"phase": "Running"},
}


def conditions(*told: tuple[str, str, str]) -> Object:
    return {"status": {"conditions": [{"type": kind, "status": status, "reason": reason} for kind, status, reason in told]}}


def checked(change: Object, *, pods: list[Object] | None = None) -> StepProgress:
    """Merges `change` into the parts of a node in good order and runs the check on it."""
    api, driver = made({"n1": {"GPU-0": None}}, guard={}, pods=pods or [])
    node = api.objects[cluster_names.node_path("n1")]
    for part, fields in change.items():
        node.setdefault(part, {}).update({key: _merged(node[part].get(key), value) for key, value in fields.items()})
    fill(driver._nodes, {("", "n1"): msgspec.convert(node, Node)})
    box = assignment("a", "n1", "GPU-0")
    call = StepCall(step=EntryStep.NODE_READY, attempt=1, assignment=box, node=driver.observe()["n1"])
    return Checks(api, image="egs.test/agent").run(call)  # type: ignore[arg-type]  # it asks nothing


def _merged(old: Any, new: Any) -> Any:
    return {**old, **new} if isinstance(old, dict) and isinstance(new, dict) else new


def test_a_node_that_is_ready_passes_without_a_word() -> None:
    result = checked({})

    assert (result.status, [each.text for each in result.results]) == (StepStatus.OK, [""])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (conditions(("Ready", "False", "KubeletNotReady")), "Ready is False (KubeletNotReady)"),
        (conditions(("Ready", "Unknown", "")), "Ready is Unknown"),
        (conditions(), "the cluster tells no condition Ready"),
        (
            conditions(("Ready", "True", ""), ("MemoryPressure", "True", "KubeletHasInsufficientMemory")),
            "MemoryPressure is True (KubeletHasInsufficientMemory)",
        ),
        (conditions(("Ready", "True", ""), ("DiskPressure", "True", "")), "DiskPressure is True"),
        (
            conditions(("Ready", "False", ""), ("PIDPressure", "True", ""), ("NetworkUnavailable", "True", "NoRoute")),
            "Ready is False; PIDPressure is True; NetworkUnavailable is True (NoRoute)",
        ),
        ({"spec": {"unschedulable": True}}, "cordoned"),
        ({"metadata": {"deletionTimestamp": "2026-07-01T12:00:00Z"}}, "being deleted"),
        ({"metadata": {"labels": {cluster_names.MANAGED: "false"}}}, "it has no label egs.io/managed=true any more"),
        ({"metadata": {"annotations": {cluster_names.RECORDS: "{"}}}, "the annotation egs.io/records cannot be read: "),
    ],
)
def test_a_node_that_is_not_ready_names_what_holds_it(change: Object, said: str) -> None:
    result = checked(change)

    (node_ready,) = result.results
    assert (result.status, node_ready.verdict) == (StepStatus.FAILED, Verdict.FAIL)
    assert node_ready.text.startswith(said)
    assert said in result.log


def test_foreign_pods_on_the_gpus_are_told_and_not_by_name() -> None:
    """The text is read by the owner of the request."""
    result = checked({}, pods=[FOREIGN])

    assert result.status is StepStatus.FAILED
    assert "pods with GPUs that EGS did not let in run there" in result.log
    assert "secret-project" not in result.log
