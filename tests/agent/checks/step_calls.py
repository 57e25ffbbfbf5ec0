"""One poll of a check, for a box on a node of H100s."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.assignments import Assignment, Desired
from protocol.nodes.checks import CheckPolicy
from protocol.nodes.inventory import GpuView, NodeView
from protocol.nodes.steps import EntryStep, ExitStep
from worker_agent.cluster.base import NodeState, StepCall


def step_call(
    step: str,
    gpus: Sequence[str],
    *,
    held: int | None = None,
    node: str = "node-1",
    id: str = "a",
    gpr_id: str = "gpr",
    gang: tuple[str, ...] = (),
    attempt: int = 1,
    policy: CheckPolicy | None = None,
    rdma: bool = False,
) -> StepCall:
    """`gpus`: of the node, of which the box has the first `held`; None: all."""
    views = tuple(GpuView(uuid=gpu, index=n, model="H100", memory_gib=80) for n, gpu in enumerate(gpus))
    view = NodeView(name=node, uid="uid", shape="H100-80GB", node_type="hgx-h100", gpus=views, rdma=rdma)
    assignment = Assignment(
        id=id,
        gpr_id=gpr_id,
        gpr_name="train",
        slice="red",
        namespaces=(),
        node=node,
        node_uid="uid",
        gpus=tuple(gpus[:held]),
        epoch=1,
        desired=Desired.PRESENT,
        gang_count=len(gang) or 1,
        not_before_s=0.0,
        enter_by_s=0.0,
        duration_s=60.0,
        not_after_s=None,
        entry_steps=tuple(EntryStep),
        exit_steps=tuple(ExitStep),
        checks=policy or CheckPolicy(),
    )
    return StepCall(step=step, attempt=attempt, assignment=assignment, node=NodeState(view=view, version="1", records={}), gang=gang)
