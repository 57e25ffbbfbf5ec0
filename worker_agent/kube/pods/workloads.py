"""Groups waiting GPU pods by workload, and computes how many nodes a workload needs.

A pod belongs to its topmost controller, e.g. Deployment, JobSet or LeaderWorkerSet, or to itself. Must not live here: any write.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from protocol import cluster_names
from protocol.nodes.inventory import NodeView
from worker_agent.cluster.base import ClusterError
from worker_agent.kube.api import devices
from worker_agent.kube.api.client import Api
from worker_agent.kube.api.custom import Fields
from worker_agent.kube.api.objects import Node, Owner, Pod
from worker_agent.kube.nodes.view import NotShown, node_view
from worker_agent.kube.pods.lifting import asks_for_gpus, extra_devices, missing_on_shared_node, parse_quantity, pod_needs, why_never
from worker_agent.kube.pods.owners import OWNED, Key, NotRead, OwnerChains

SETTLED_S: Final = 2.0  # without a new pod of the workload
SETTLED_MOST_S: Final = 10.0  # since its first pod
NODES_MAX: Final = 64  # of one automatic request


@dataclass(slots=True)
class WaitingWorkload:
    owner: Owner
    namespace: str
    waiting: list[Pod] = field(default_factory=list)  # pods behind the gate that may enter a box

    @property
    def key(self) -> Key:
        return self.namespace, self.owner.uid


class Workloads:
    """It is not thread-safe."""

    def __init__(self, api: Api) -> None:
        self._chains = OwnerChains(api, OWNED)
        self._first_mono: dict[Key, float] = {}
        self._grown_mono: dict[Key, tuple[frozenset[str], float]] = {}

    @property
    def behind(self) -> set[str]:
        """Holds namespaces with owners left for the next looks."""
        return self._chains.behind

    @property
    def refused(self) -> Mapping[str, ClusterError]:
        """Says for each namespace why an owner could not be read."""
        return self._chains.refused

    def of(self, pods: Iterable[Pod]) -> dict[Key, WaitingWorkload]:
        """Skips pods with unknown owners. Raises Unavailable, Throttled."""
        there: dict[str, dict[str, Pod]] = defaultdict(dict)
        for pod in pods:
            there[pod.metadata.namespace][pod.metadata.uid] = pod
        found: dict[Key, WaitingWorkload] = {}
        for namespace in self._chains.begin_look(there):
            for pod in there[namespace].values():
                if pod.holds and asks_for_gpus(pod):
                    self._place(pod, there[namespace], found)
        self._chains.end_look()
        return found

    def _place(self, pod: Pod, pods: Mapping[str, Pod], found: dict[Key, WaitingWorkload]) -> None:
        try:
            chain = self._chains.of(pod, pods)
        except NotRead:
            return
        owner = chain[-1] if chain else _of_itself(pod)
        namespace = pod.metadata.namespace
        workload = found.setdefault((namespace, owner.uid), WaitingWorkload(owner, namespace))
        if is_waiting(pod) and not why_never(pod):
            workload.waiting.append(pod)

    def settled(self, workload: WaitingWorkload, now_mono: float) -> bool:
        """Tell whether all its pods seem to have been created."""
        if workload.namespace in self.behind:
            return False
        key, pods = workload.key, frozenset(pod.metadata.uid for pod in workload.waiting)
        first_mono = self._first_mono.setdefault(key, now_mono)
        known, since_mono = self._grown_mono.get(key, (frozenset(), now_mono))
        if pods - known:
            since_mono = now_mono
        self._grown_mono[key] = (pods, since_mono)
        return now_mono - since_mono >= SETTLED_S or now_mono - first_mono >= SETTLED_MOST_S

    def forget_all_but(self, keys: Iterable[Key]) -> None:
        kept = set(keys)
        self._first_mono = {key: mono for key, mono in self._first_mono.items() if key in kept}
        self._grown_mono = {key: grown for key, grown in self._grown_mono.items() if key in kept}


def _of_itself(pod: Pod) -> Owner:
    return Owner(apiVersion="v1", kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid)


def is_waiting(pod: Pod) -> bool:
    return not pod.is_leaving and any(gate.name == cluster_names.GATE for gate in pod.spec.schedulingGates)


@dataclass(frozen=True, slots=True)
class Size:
    nodes: int
    gpus_per_node: int | None  # None: whole nodes


def size_of(pods: Sequence[Pod], *, gpus_per_node: int | None, node: Node | None) -> Size | None:
    """Returns None if no pod fits a node. `node`: a sample of the shape, if any."""
    whole = node_gpus(node) if node else 0
    room = gpus_per_node or whole or max((_gpus(pod) for pod in pods), default=0)
    fitting = sorted((gpus for pod in pods if 0 < (gpus := _gpus(pod)) <= room), reverse=True)
    if not fitting:
        return None
    nodes = min(NODES_MAX, _bins(fitting, room))
    if gpus_per_node or nodes > 1 or node is None or not whole or any(map(needs_whole_nodes, pods)):
        return Size(nodes, gpus_per_node)
    part = max(sum(fitting), _part(pods, node, whole))
    return Size(1, part if part < whole else None)


def node_gpus(node: Node) -> int:
    seen = node_view(node)
    return 0 if isinstance(seen, NotShown) else len(seen.gpus)


def node_of(shape: str, nodes: Iterable[Node]) -> Node | None:
    """Returns the largest node of the shape."""
    seen = ((node, node_view(node)) for node in nodes)
    found = [(len(view.gpus), node.metadata.name, node) for node, view in seen if not isinstance(view, NotShown) and view.shape == shape]
    return max(found, key=lambda each: each[:2])[2] if found else None


def whole_node_gpus(fields: Fields, nodes: Iterable[Node]) -> int:
    """Returns the GPUs of the largest node that these fields allow; 0 if none."""
    seen = (view for node in nodes if not isinstance(view := node_view(node), NotShown))
    return max((len(view.gpus) for view in seen if _suits(fields, view)), default=0)


def _suits(fields: Fields, view: NodeView) -> bool:
    memory_gib = fields.get("minGpuMemoryGiB")
    return (
        fields.get("shape") in (None, "", view.shape)
        and (not isinstance(memory_gib, int) or memory_gib <= min((gpu.memory_gib for gpu in view.gpus), default=0))
        and fields.get("nodeType") in (None, "", view.node_type)
        and (view.rdma or not fields.get("rdma"))
    )


def needs_whole_nodes(pod: Pod) -> bool:
    # Because of its devices, or because it lacks the requests that are mandatory on a shared node.
    needs = pod_needs(pod)
    return bool(extra_devices(needs) or missing_on_shared_node(needs))


def largest(pods: Iterable[Pod]) -> int:
    return max((_gpus(pod) for pod in pods), default=0)


def _bins(sizes: Sequence[int], room: int) -> int:
    # First-fit decreasing: `sizes` are sorted, the largest first.
    left: list[int] = []
    for size in sizes:
        place = next((index for index, free in enumerate(left) if free >= size), None)
        if place is None:
            left.append(room - size)
        else:
            left[place] -= size
    return len(left)


def _part(pods: Sequence[Pod], node: Node, whole: int) -> int:
    # GPUs whose share of the node's CPU, memory and other divided resources covers what the pods request.
    asked = [pod_needs(pod) for pod in pods]
    shares = []
    for key in sorted({key for needs in asked for key in needs if devices.current().comes_in_parts(key)}):
        there = parse_quantity(node.status.allocatable.get(key, "0"))
        wanted = sum((needs.get(key, Decimal(0)) for needs in asked), Decimal(0))
        shares.append(wanted / there if there else Decimal(0))
    return math.ceil(max(shares, default=0) * whole)


def _gpus(pod: Pod) -> int:
    return int(pod_needs(pod).get(cluster_names.GPU, 0))
