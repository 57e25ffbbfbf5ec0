"""Which pods are of which run, and which are an exit's to take.

Pure. A GPR may be on its way out of one run and in its next one at once, on the same node even. By what the lift wrote into the pod, which
nobody else may.
"""

from __future__ import annotations

from collections.abc import Iterable

from protocol.assignments import Assignment
from worker_agent.cluster.base import BoxEnd, GpuPhase, StepCall
from worker_agent.kube.api.objects import Pod


def is_of(box: Assignment | BoxEnd, pod: Pod) -> bool:
    """Of the same run, or of none that is known."""
    return pod.run_of(box.gpr_id) in ("", str(box.run))


def inside(pods: Iterable[Pod], call: StepCall, *, is_last: bool = False) -> list[Pod]:
    """Of the GPR's pods those on the node, and where `is_last` those of the run that have none yet.

    On the node those of another run are left to it if it has GPUs there; else nobody would take them.
    """
    box, node = call.assignment, call.node
    held = {str(record.run) for record in node.records.values() if record.gpr_id == box.gpr_id and record.phase is not GpuPhase.FREE}
    beside = held - {str(box.run)}
    here = [pod for pod in pods if pod.holds and pod.spec.nodeName in (node.view.name, "")]
    return [pod for pod in here if (pod.run_of(box.gpr_id) not in beside if pod.spec.nodeName else is_last and is_of(box, pod))]
