"""Describes the cluster as observed in one pass: node states, and pods grouped by their relation to EGS.

Must not live here: any call.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

import msgspec

from protocol import cluster_names
from protocol.nodes.inventory import NodeView
from worker_agent.cluster.base import GpuPhase, GpuRecord, NodeState, Records
from worker_agent.kube.api.mirror import Mirror
from worker_agent.kube.api.objects import LONG_AGO, Meta, Namespace, Node, Pod
from worker_agent.kube.nodes.marks import UnreadableRecords, read_records
from worker_agent.kube.nodes.view import NotShown, node_view, why_unready
from worker_agent.kube.pods.lifting import asks_for_gpus

Key = tuple[str, str]


@dataclass(slots=True)
class PodIndex:
    # By namespace: pods behind the EGS scheduling gate, the oldest first.
    waiting: dict[str, list[Pod]] = field(default_factory=lambda: defaultdict(list))
    # By GPR: pods whose gate EGS has lifted.
    lifted: dict[str, list[Pod]] = field(default_factory=lambda: defaultdict(list))
    # By node and GPR: the lifted pods that may run.
    placed: dict[str, dict[str, list[Pod]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    # By node: pods that EGS did not let in.
    others: dict[str, list[Pod]] = field(default_factory=lambda: defaultdict(list))
    # Nodes where such pods use GPUs that EGS would give out. The agent's own check pods do not count.
    strange: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, pods: Iterable[Pod]) -> PodIndex:
        index = cls()
        for pod in pods:
            if gpr_id := pod.metadata.label(cluster_names.POD_GPR):
                index.lifted[gpr_id].append(pod)
                if pod.spec.nodeName and pod.holds:
                    index.placed[pod.spec.nodeName][gpr_id].append(pod)
            elif pod.spec.nodeName:
                if not pod.is_over:
                    index.others[pod.spec.nodeName].append(pod)
                    if pod.metadata.namespace != cluster_names.NAMESPACE and asks_for_gpus(pod):
                        index.strange.add(pod.spec.nodeName)
            elif not pod.is_leaving and any(gate.name == cluster_names.GATE for gate in pod.spec.schedulingGates):
                index.waiting[pod.metadata.namespace].append(pod)
        for waiting in index.waiting.values():
            waiting.sort(key=lambda pod: (pod.metadata.creationTimestamp or LONG_AGO, pod.metadata.name))
        return index


class Observation:
    """It is not thread-safe."""

    def __init__(self, nodes: Mirror[Node], pods: Mirror[Pod], namespaces: Mirror[Namespace]) -> None:
        self._nodes, self._pods, self._namespaces = nodes, pods, namespaces
        self.pods, self._index_serial = PodIndex(), -1
        self._bound: dict[str, tuple[str, ...]] = {}
        self._bound_serial = -1
        self._boxes: dict[tuple[str, str], set[str]] = {}  # by box label (key and value): UIDs of the nodes that have it
        self._boxes_serial = -1
        self._states: dict[str, tuple[Node, bool, NodeState]] = {}

    @property
    def is_whole(self) -> bool:
        return self._nodes.is_whole and self._pods.is_whole and self._namespaces.is_whole

    @property
    def serial(self) -> int:
        return self._nodes.serial + self._pods.serial + self._namespaces.serial

    @property
    def nodes_serial(self) -> int:
        return self._nodes.serial

    # -- pods and namespaces -------------------------------------------------------------------------------------------

    def look(self) -> None:
        serial = self._pods.serial
        if self._index_serial != serial:
            self._index_serial = serial
            self.pods = PodIndex.of(self._pods.objects().values())

    def learn_pod(self, pod: Pod) -> None:
        """Takes effect at the next `look`."""
        self._pods.learn(pod)

    def namespaces_of(self, slice_key: str) -> Sequence[str]:
        if self._bound_serial != self._namespaces.serial:
            self._bound_serial = self._namespaces.serial
            bound: dict[str, list[str]] = defaultdict(list)
            for (_, name), namespace in self._namespaces.objects().items():
                if not namespace.metadata.label(cluster_names.EXEMPT):
                    bound[namespace.metadata.label(cluster_names.SLICE)].append(name)
            self._bound = {key: tuple(sorted(names_)) for key, names_ in bound.items() if key}
        return self._bound.get(slice_key, ())

    def about_namespaces(self, slice_key: str) -> list[Meta]:
        there = self._namespaces.objects()
        return [there["", name].metadata for name in self.namespaces_of(slice_key) if ("", name) in there]

    def waiting(self, slice_key: str) -> list[Pod]:
        return [pod for namespace in self.namespaces_of(slice_key) for pod in self.pods.waiting.get(namespace, ())]

    def all_waiting(self) -> Iterable[Pod]:
        return (pod for waiting in self.pods.waiting.values() for pod in waiting)

    def slice_of(self, namespace: str) -> str:
        found = self._namespaces.objects().get(("", namespace))
        return found.metadata.label(cluster_names.SLICE) if found else ""

    def strays(self, node: str, slice_key: str) -> list[Pod]:
        """Returns pods of the slice on the node that EGS did not let in."""
        bound = self.namespaces_of(slice_key)
        return [pod for pod in self.pods.others.get(node, ()) if pod.metadata.namespace in bound and pod.holds]

    def pods_without_box(self) -> list[Pod]:
        """Lifted pods without a node whose box or assigned node is gone."""
        unplaced = [pod for pods in self.pods.lifted.values() for pod in pods if not pod.spec.nodeName and pod.holds]
        return [pod for pod in unplaced if not self._is_box_there(pod)]

    def pods_of_former_nodes(self) -> list[Pod]:
        """Returns lifted pods still running on a node re-created under its old name."""
        there = [node for node in map(self.node, self.pods.placed) if node is not None and has_records(node)]
        return [pod for node in there for pod in self._pods_of_former_node(node, self.state(node).records)]

    def _pods_of_former_node(self, node: Node, records: Records) -> list[Pod]:
        # Pods of GPRs without records on the node, placed there before this node object was created.
        placed, born = self.pods.placed.get(node.metadata.name), node.metadata.creationTimestamp
        if not placed or born is None or all(node.metadata.label(cluster_names.box_label(gpr_id)) for gpr_id in placed):
            return []  # the common case; this runs for every node in every pass
        unknown = placed.keys() - {record.gpr_id for record in records.values()}
        return [pod for gpr_id in unknown for pod in placed[gpr_id] if (pod.placed_at or born) <= born]

    def _is_box_there(self, pod: Pod) -> bool:
        selector = pod.spec.nodeSelector or {}
        key, uid = cluster_names.box_label(pod.metadata.label(cluster_names.POD_GPR)), selector.get(cluster_names.NODE_UID, "")
        homes = self._nodes_of_boxes().get((key, selector.get(key, "")), ())
        return uid in homes if uid else bool(homes)

    def has_box(self, gpr_id: str, run: int) -> bool:
        return (cluster_names.box_label(gpr_id), str(run)) in self._nodes_of_boxes()

    def _nodes_of_boxes(self) -> Mapping[tuple[str, str], Set[str]]:
        if self._boxes_serial != self._nodes.serial:
            self._boxes_serial, self._boxes = self._nodes.serial, defaultdict(set)
            for node in self.nodes():
                for label in (node.metadata.labels or {}).items():
                    if cluster_names.is_box_label(label[0]):
                        self._boxes[label].add(node.metadata.uid)
        return self._boxes

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def nodes(self) -> Iterable[Node]:
        return self._nodes.objects().values()

    def node(self, name: str) -> Node | None:
        return self._nodes.objects().get(("", name))

    def learn_node(self, node: Node) -> NodeState:
        self._nodes.learn(node)
        return self.state(node)

    def states(self) -> dict[str, NodeState]:
        # A node whose GPUs cannot be named counts only while some of them are held.
        taken_in = {node.metadata.name: self.state(node) for node in self.nodes() if has_records(node)}
        states = {name: state for name, state in taken_in.items() if state.view.gpus or has_held_gpus(state)}
        self._states = {name: known for name, known in self._states.items() if name in states}
        return states

    def state(self, node: Node) -> NodeState:
        # Cached by object identity, because each pass reads all nodes.
        name, strange = node.metadata.name, node.metadata.name in self.pods.strange
        known = self._states.get(name)
        if known is None or known[0] is not node or known[1] != strange:
            known = self._states[name] = (node, strange, _state_of(node, strange=strange))
        state = known[2]
        if state.view.ready and self._pods_of_former_node(node, state.records):
            view = msgspec.structs.replace(state.view, ready=False)
            return msgspec.structs.replace(state, view=view, why_unready=("pods of an earlier box still run there",))
        return state


def has_records(node: Node) -> bool:
    return cluster_names.RECORDS in (node.metadata.annotations or {})


def is_managed(node: Node) -> bool:
    return node.metadata.label(cluster_names.MANAGED) == "true"


def has_held_gpus(state: NodeState) -> bool:
    return any(record.phase is not GpuPhase.FREE for record in state.records.values())


def _bare(node: Node) -> NodeView:
    return NodeView(name=node.metadata.name, uid=node.metadata.uid, shape="", node_type="", gpus=(), ready=False)


def _state_of(node: Node, *, strange: bool) -> NodeState:
    # The version is the annotation's text, because writes test that: a heartbeat of the node does not change it.
    text = node.metadata.annotation(cluster_names.RECORDS)
    seen = node_view(node)
    view = _bare(node) if isinstance(seen, NotShown) else seen
    why = [*why_unready(node), *([seen.why] if isinstance(seen, NotShown) else [])]
    records: dict[str, GpuRecord] = {}
    try:
        records = read_records(text)
    except UnreadableRecords as error:
        # The node is still reported, or its assignments would seem gone. Writes to it fail with the reason.
        why.append(str(error))
    why += ["pods with GPUs that EGS did not let in run there"] if strange else []
    why += [] if is_managed(node) else [f"it has no label {cluster_names.MANAGED}=true any more"]
    return NodeState(view=msgspec.structs.replace(view, ready=not why), version=text, records=records, why_unready=tuple(why))
