"""Builds the records that fence each GPU. All functions are pure and read an observed node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from protocol.assignments import Assignment, Desired, Observed, Phase
from protocol.nodes.steps import ExitStep
from worker_agent.cluster.base import GpuPhase, GpuRecord, NodeState

_RANK = {phase: rank for rank, phase in enumerate(GpuPhase)}
_SHOWN = {GpuPhase.ISOLATED: Phase.ENTERING, GpuPhase.OPEN: Phase.ACTIVE, GpuPhase.CLOSED: Phase.EXITING}


def own_record(node: NodeState | None, assignment: Assignment) -> GpuRecord | None:
    """Return the record of this assignment and epoch; if its GPUs differ, the least advanced one."""
    if node is None or node.view.uid != assignment.node_uid:
        return None
    least: GpuRecord | None = None
    for gpu in assignment.gpus:  # a plain loop, since it runs for every node at every pass
        record = node.records.get(gpu)
        if record is None or record is least:
            continue
        is_own = record.assignment_id == assignment.id and record.epoch == assignment.epoch
        if is_own and (least is None or _RANK[record.phase] < _RANK[least.phase]):
            least = record
    return least


def isolation_refusal(node: NodeState | None, assignment: Assignment) -> str:
    """Return why these GPUs cannot be isolated now, or ""."""
    if node is None:
        return f"node {assignment.node} is not in the cluster"
    if node.view.uid != assignment.node_uid:
        return f"node {assignment.node} was made anew: its UID is {node.view.uid}, not {assignment.node_uid}"
    there = {gpu.uuid for gpu in node.view.gpus}
    if missing := [gpu for gpu in assignment.gpus if gpu not in there]:
        return f"node {assignment.node} has no GPU {', '.join(missing)}"
    return next((why for gpu in assignment.gpus if (why := _why_held(gpu, node.records.get(gpu), assignment))), "")


def _why_held(gpu: str, record: GpuRecord | None, assignment: Assignment) -> str:
    if record is None:
        return ""
    if record.epoch >= assignment.epoch:
        return f"GPU {gpu} has epoch {record.epoch} on record, this assignment has {assignment.epoch}: too old"
    if record.phase is not GpuPhase.FREE:
        return f"GPU {gpu} is still {record.phase} for assignment {record.assignment_id} (epoch {record.epoch})"
    return ""


def is_lost(node: NodeState | None, assignment: Assignment) -> bool:
    """Tell whether the hub gave one of its GPUs to a later epoch."""
    return any(_went_on(node, assignment))


def is_given_on(node: NodeState | None, assignment: Assignment) -> bool:
    """Tell whether the hub gave all of its GPUs to later epochs."""
    return bool(assignment.gpus) and all(_went_on(node, assignment))


def _went_on(node: NodeState | None, assignment: Assignment) -> list[bool]:
    if node is None or node.view.uid != assignment.node_uid:
        return [False]
    return [gpu in node.records and node.records[gpu].epoch > assignment.epoch for gpu in assignment.gpus]


def new_records(
    assignment: Assignment, phase: GpuPhase, *, active_s: float | None = None, closed_s: float | None = None
) -> dict[str, GpuRecord]:
    record = GpuRecord(
        epoch=assignment.epoch,
        assignment_id=assignment.id,
        gpr_id=assignment.gpr_id,
        slice=assignment.slice_key,
        run=assignment.run,
        is_repair=assignment.is_repair,
        phase=phase,
        active_s=active_s,
        closed_s=closed_s,
    )
    return dict.fromkeys(assignment.gpus, record)


def fence_records(node: NodeState, assignment: Assignment) -> dict[str, GpuRecord]:
    """Put the epoch on record, so that a delayed message cannot take the GPUs."""
    records = new_records(assignment, GpuPhase.FREE)
    return {gpu: record for gpu, record in records.items() if not _why_held(gpu, node.records.get(gpu), assignment)}


HeldGpus = tuple[NodeState, GpuRecord, tuple[str, ...]]  # a node, a record on it, and the GPUs that the record holds


class HeldByNode:
    """Keeps held GPUs by node, until the node is another object."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[NodeState, tuple[HeldGpus, ...]]] = {}

    def on(self, nodes: Mapping[str, NodeState]) -> Iterator[HeldGpus]:
        if len(self._known) > len(nodes):
            self._known = {name: known for name, known in self._known.items() if name in nodes}
        for name, node in nodes.items():
            known = self._known.get(name)
            if known is None or known[0] is not node:
                known = self._known[name] = (node, tuple(_held_on(node)))
            yield from known[1]


def _held_on(node: NodeState) -> Iterator[HeldGpus]:
    gpus_of: dict[GpuRecord, list[str]] = {}
    for gpu, record in node.records.items():
        if record.phase is not GpuPhase.FREE:
            gpus_of.setdefault(record, []).append(gpu)
    for record, gpus in gpus_of.items():
        yield node, record, tuple(sorted(gpus))


def observed_orphan(record: GpuRecord) -> Observed:
    return Observed(
        assignment_id=record.assignment_id,
        epoch=record.epoch,
        phase=_SHOWN[record.phase],
        active_s=record.active_s,
        exit_began_s=record.closed_s,
        failure="known from the node alone: the agent's own document does not have it",
    )


def assignment_of_closed(node: NodeState, record: GpuRecord, gpus: tuple[str, ...]) -> Assignment:
    """The node's record alone is enough to finish an exit that had begun."""
    return Assignment(
        id=record.assignment_id,
        gpr_id=record.gpr_id,
        gpr_name=record.gpr_id,
        slice=record.slice,
        run=record.run,
        is_repair=record.is_repair,
        namespaces=(),
        node=node.view.name,
        node_uid=node.view.uid,
        gpus=gpus,
        epoch=record.epoch,
        desired=Desired.ABSENT,
        gang_count=1,
        not_before_s=0.0,
        enter_by_s=0.0,
        duration_s=0.0,
        not_after_s=0.0,
        entry_steps=(),
        exit_steps=tuple(ExitStep),
    )
