"""Repairs what does not depend on an assignment: nodes that join or leave, changed marks and guard, pods without a box.

Everything follows from the records on the nodes, so repairs may run at any time and repeat.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from protocol.cluster_names import node_path
from protocol.nodes.drift import Drift
from worker_agent.cluster.base import ClusterError, GpuPhase, NodeState, Note, Records
from worker_agent.kube.api.client import Api, Missing
from worker_agent.kube.api.objects import Node, Pod
from worker_agent.kube.nodes.bind_guard import NOBODY, BindGuard, closed_value, slices_in
from worker_agent.kube.nodes.marks import (
    NodeMarks,
    UnreadableRecords,
    describe_difference,
    marks_for_records,
    read_records,
    records_text,
    removal_ops,
    write_ops,
)
from worker_agent.kube.nodes.observation import Observation, has_held_gpus, has_records, is_managed
from worker_agent.kube.pods.draining import Draining

EVERY_S: Final = 1.0
GUARD_ANEW_S: Final = 30.0  # re-read at this interval: an administrator may have changed it
ORPHAN_GRACE_S: Final = 30.0
DETAIL_MAX_CHARS: Final = 300


class DriftRepair:
    def __init__(self, api: Api, *, observation: Observation, guard: BindGuard, draining: Draining, note: Note) -> None:
        self._api, self._observation, self._guard, self._draining, self._note = api, observation, guard, draining, note
        self._last_mono = self._guard_mono = float("-inf")
        self._said: dict[str, str] = {}
        self._intact: dict[str, tuple[Node, bool]] = {}  # by name: the node that needed no repair, and whether the guard was in order
        self._kept: tuple[object, ...] = ()  # the serial and guard that needed no repair
        self._repairs = True
        self._found: list[Drift] = []
        self._guard_unrepaired: list[Drift] = []  # drift in the guard that the policy leaves unrepaired

    def repair_drift(self, *, repairs: bool) -> Sequence[Drift] | None:
        now = time.monotonic()
        if now - self._last_mono < EVERY_S:
            return None
        self._last_mono = now
        if repairs != self._repairs:
            self._repairs, self._kept = repairs, ()
        self._found = []
        if now - self._guard_mono >= GUARD_ANEW_S:
            self._guard_mono = now
            self._guard.forget()
        is_guarded = self._try("guard", self._repair_guard)
        self._found += self._guard_unrepaired
        for node in list(self._observation.nodes()):
            known = self._intact.get(node.metadata.name)
            if known is None or known[0] is not node or known[1] != is_guarded:
                self._try(node.metadata.name, lambda node=node: self._repair_node(node, is_guarded=is_guarded))  # type: ignore[misc]
        for pod in self._observation.pods_without_box():
            self._draining.evict_unplaced(pod, ORPHAN_GRACE_S)
        self._end_pods_of_former_nodes()
        return self._found

    def _end_pods_of_former_nodes(self) -> None:
        # Done whatever the drift policy says: nobody may use the node while they run.
        by_node: dict[str, list[Pod]] = {}
        for pod in self._observation.pods_of_former_nodes():
            self._draining.end(pod, ORPHAN_GRACE_S)
            by_node.setdefault(pod.spec.nodeName, []).append(pod)
        for node, pods in by_node.items():
            named = ", ".join(sorted(pod.label for pod in pods))
            detail = f"It was created again while pods of an earlier box ran there, and takes no box before they have ended: {named}."
            self._found.append(Drift(what=f"pods on node {node}", detail=detail[:DETAIL_MAX_CHARS], node=node))

    def _try(self, what: str, act: Callable[[], None]) -> bool:
        # A failure on one node must not delay the others. The same failure is logged once.
        try:
            act()
        except ClusterError as error:
            said = "the guard is not installed: no node is taken in" if isinstance(error, Missing) and what == "guard" else str(error)
            if self._said.get(what) != said:
                self._said[what] = said
                self._note("tending_failed", {"what": what, "error": said})
            if isinstance(error, UnreadableRecords):
                self._found.append(Drift(what=f"node {what}", detail=said[:DETAIL_MAX_CHARS], node=what))
            return False
        self._said.pop(what, None)
        return True

    def _repair_guard(self) -> None:
        # A managed node is listed with no workspace before it is added; later it is closed to workspaces without an open record.
        serial, listed = self._observation.nodes_serial, self._guard.nodes()
        self._found += self._guard_removals()
        if self._kept == (serial, listed):
            return
        there = {node.metadata.name: node for node in self._observation.nodes()}
        changes: dict[str, tuple[str, str | None]] = {}
        extras = {name: slices_in(listed.get(name, "")) - self._open_slices(node) for name, node in there.items()}
        for name, node in there.items():
            if name not in listed and (is_managed(node) or has_records(node)):
                changes[name] = ("", NOBODY)
            elif extras[name]:
                if self._repairs:
                    changes[name] = (listed[name], closed_value(listed[name], extras[name]))
            elif name in listed and not is_managed(node) and not has_records(node):
                changes[name] = (listed[name], None)
        for name in listed.keys() - there.keys():
            changes[name] = (listed[name], None)
        self._guard.write(changes)
        drifts = [self._guard_drift(name, extra) for name, extra in extras.items() if extra]
        self._guard_unrepaired = [] if self._repairs else drifts
        self._found += drifts if self._repairs else []
        self._intact = {name: known for name, known in self._intact.items() if name in there}
        self._kept = (serial, dict(self._guard.nodes()))

    def _guard_removals(self) -> Iterator[Drift]:
        """Reports entries that others removed from the guard."""
        # Restored whatever the drift policy says: otherwise the node would be open to everyone, or closed to its own box.
        for name, (before, after) in self._guard.take_changed().items():
            node = self._observation.node(name)
            if node is None or not has_records(node):
                continue
            missing = sorted(self._open_slices(node) & (slices_in(before) - slices_in(after)))
            if not after:
                detail = "EGS took the node out of the box, since pods of others might have been bound there."
            elif missing:
                detail = f"It did not name {', '.join(missing)} any more, though the node is open to it: its pods could not be bound there."
            else:
                continue
            yield Drift(what=f"bind guard of node {name}", detail=detail[:DETAIL_MAX_CHARS], node=name, is_repaired=True)

    def _guard_drift(self, node: str, extra: Iterable[str]) -> Drift:
        detail = f"It let pods of {', '.join(sorted(extra))} onto the node, where no box is open to that workspace."
        return Drift(what=f"bind guard of node {node}", detail=detail[:DETAIL_MAX_CHARS], node=node, is_repaired=self._repairs)

    def _open_slices(self, node: Node) -> set[str]:
        return {record.slice for record in self._observation.state(node).records.values() if record.phase is GpuPhase.OPEN}

    def _repair_node(self, node: Node, *, is_guarded: bool) -> None:
        if not has_records(node):
            if is_managed(node) and is_guarded:
                self._add_node(node)
            else:
                self._intact[node.metadata.name] = (node, is_guarded)
            return
        state = self._observation.state(node)
        if not is_managed(node) and not has_held_gpus(state):
            self._remove_node(node, state)
        elif state.view.gpus and (detail := describe_difference(node, marks_for_node(node, state, state.records))):
            self._repair_marks(node, state, detail)
        else:
            self._intact[node.metadata.name] = (node, is_guarded)

    def _repair_marks(self, node: Node, state: NodeState, detail: str) -> None:
        name = node.metadata.name
        if self._repairs:
            self._observation.learn_node(write_node(self._api, node, state, read_records(state.version)))
            self._note("marks_repaired", {"node": name})
        self._found.append(Drift(what=f"node {name}", detail=detail[:DETAIL_MAX_CHARS], node=name, is_repaired=self._repairs))

    def _add_node(self, node: Node) -> None:
        marks = marks_for_records(node.metadata.uid, {}, ())
        self._observation.learn_node(self._api.patch(node_path(node.metadata.name), write_ops(node, "", records_text({}), marks), Node))
        self._note("node_taken_in", {"node": node.metadata.name})

    def _remove_node(self, node: Node, state: NodeState) -> None:
        self._observation.learn_node(self._api.patch(node_path(node.metadata.name), removal_ops(node, state.version), Node))
        self._note("node_let_go", {"node": node.metadata.name})


def write_node(api: Api, node: Node, seen: NodeState, records: Records) -> Node:
    """Writes records, taint and labels in one patch that tests the records as seen."""
    ops = write_ops(node, seen.version, records_text(records), marks_for_node(node, seen, records))
    return api.patch(node_path(node.metadata.name), ops, Node)


def marks_for_node(node: Node, seen: NodeState, records: Records) -> NodeMarks:
    return marks_for_records(node.metadata.uid, records, (gpu.uuid for gpu in seen.view.gpus))
