"""Assigns pods to runs of a GPR: one run may end on a node while the next begins. It is pure."""

from __future__ import annotations

from collections.abc import Iterable

from protocol.assignments import Assignment
from worker_agent.cluster.base import BoxEnd, GpuPhase, StepCall
from worker_agent.kube.api.objects import Pod


def is_in_run(box: Assignment | BoxEnd, pod: Pod) -> bool:
    """True also if the run of the pod is unknown."""
    return pod.run_of(box.gpr_id) in ("", str(box.run))


def pods_to_drain(pods: Iterable[Pod], call: StepCall, *, is_last: bool = False) -> list[Pod]:
    """Returns pods on the node and, if `is_last`, those without one."""
    # Pods of another run on the node are left to that run only if it has GPUs there: otherwise nothing else would remove them.
    box, node = call.assignment, call.node
    held = {str(record.run) for record in node.records.values() if record.gpr_id == box.gpr_id and record.phase is not GpuPhase.FREE}
    beside = held - {str(box.run)}
    here = [pod for pod in pods if pod.holds and pod.spec.nodeName in (node.view.name, "")]
    return [pod for pod in here if (pod.run_of(box.gpr_id) not in beside if pod.spec.nodeName else is_last and is_in_run(box, pod))]
