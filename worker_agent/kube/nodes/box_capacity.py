"""Computes the capacity of boxes on their nodes, cached because a box may have hundreds.

Must not live here: which pod goes where (lifting.py), any call.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from protocol import cluster_names
from protocol.assignments import Assignment
from protocol.nodes.inventory import NodeView
from worker_agent.kube.api.objects import Node, Pod
from worker_agent.kube.nodes.marks import box_taint
from worker_agent.kube.nodes.view import why_unready
from worker_agent.kube.pods.lifting import NodeCapacity, shared_node_amounts, whole_node_amounts


class BoxCapacities:
    def __init__(self) -> None:
        # By assignment ID: the objects that the result was computed from, and the result.
        self._known: dict[str, tuple[tuple[object, ...], NodeCapacity | None]] = {}

    def of(self, assignment: Assignment, node: Node, view: NodeView, others: Sequence[Pod]) -> NodeCapacity | None:
        """Returns None if no pod can start there now."""
        seen = (assignment, node, view, *others)
        known = self._known.get(assignment.id)
        if known is None or len(known[0]) != len(seen) or any(old is not new for old, new in zip(known[0], seen, strict=True)):
            known = self._known[assignment.id] = (seen, _capacity(assignment, node, view, others))
        return known[1]

    def keep(self, assignments: Iterable[Assignment]) -> None:
        ids: Collection[str] = {each.id for each in assignments}
        self._known = {id_: known for id_, known in self._known.items() if id_ in ids}


def _capacity(assignment: Assignment, node: Node, view: NodeView, others: Sequence[Pod]) -> NodeCapacity | None:
    # Without named GPUs, the box's part of a shared node is unknown.
    own, taint = set(assignment.gpus), box_taint(node)
    is_shared = taint == cluster_names.SHARED or not own.issuperset(gpu.uuid for gpu in view.gpus)
    if node.metadata.uid != assignment.node_uid or why_unready(node) or (is_shared and not view.gpus):
        return None
    if is_shared:
        has = shared_node_amounts(node, sum(gpu.healthy and gpu.uuid in own for gpu in view.gpus), len(view.gpus), others)
    else:
        has = whole_node_amounts(node, len(own), others)
    return NodeCapacity(assignment.node, assignment.node_uid, taint, has, is_shared)
