"""Groups waiting GPU pods by workload, and computes how many nodes a workload needs.

A pod belongs to its topmost controller, e.g. Deployment, JobSet or LeaderWorkerSet, or to itself. Must not live here: any write.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

import msgspec

from protocol import cluster_names
from protocol.nodes import NodeView
from worker_agent.cluster.base import ClusterError, Throttled, Unavailable
from worker_agent.kube.api import devices
from worker_agent.kube.api.client import Api, Missing
from worker_agent.kube.api.custom import Fields
from worker_agent.kube.api.objects import Meta, Node, Owner, Pod
from worker_agent.kube.nodes.view import NotShown, node_view
from worker_agent.kube.pods.lifting import asks_for_gpus, extra_devices, missing_on_shared_node, parse_quantity, pod_needs, why_never

SETTLED_S: Final = 2.0  # without a new pod of the workload
SETTLED_MOST_S: Final = 10.0  # since its first pod
NODES_MAX: Final = 64  # of one automatic request
READS_AT_ONCE: Final = 100  # reads of owners in one look
OWNERS_MOST: Final = 6  # the depth of a chain of owners
# Kinds whose own owner is looked up. Any other controller is itself the workload.
OWNED: Final = {("apps/v1", "ReplicaSet"): "replicasets", ("apps/v1", "StatefulSet"): "statefulsets", ("batch/v1", "Job"): "jobs"}

Key = tuple[str, str]  # namespace and UID; pods may name any owner UID, even one of another namespace


class _NotRead(Exception):  # the owner stays unknown in this look
    pass


class _Owned(msgspec.Struct, frozen=True):
    metadata: Meta


@dataclass(slots=True)
class Workload:
    owner: Owner
    namespace: str
    waiting: list[Pod] = field(default_factory=list)  # pods behind the gate that may enter a box

    @property
    def key(self) -> Key:
        return self.namespace, self.owner.uid


class Workloads:
    """Not thread-safe."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.behind: set[str] = set()  # namespaces with owners left for the next looks
        self.refused: dict[str, ClusterError] = {}  # by namespace: why an owner could not be read
        self._above_of: dict[Key, Owner | None] = {}  # by owner seen in the last look: its own controller
        self._led_to: set[Key] = set()
        self._looks = 0
        self._read_at: dict[str, int] = {}  # by namespace: the number of the last look that read owners there
        self._reads: Counter[str] = Counter()  # by namespace: reads in this look
        self._share = READS_AT_ONCE
        self._first_mono: dict[Key, float] = {}
        self._grown_mono: dict[Key, tuple[frozenset[str], float]] = {}

    def of(self, pods: Iterable[Pod]) -> dict[Key, Workload]:
        """Skips pods with unknown owners. Raises Unavailable, Throttled."""
        there: dict[str, dict[str, Pod]] = defaultdict(dict)
        for pod in pods:
            there[pod.metadata.namespace][pod.metadata.uid] = pod
        self._begin_look(there)
        found: dict[Key, Workload] = {}
        # The namespace read longest ago comes first, so that one with thousands of owners delays no other.
        for namespace in sorted(there, key=lambda name: self._read_at.get(name, 0)):
            for pod in there[namespace].values():
                if pod.holds and asks_for_gpus(pod):
                    self._place(pod, there[namespace], found)
        self._above_of = {key: self._above_of[key] for key in self._led_to}
        return found

    def _begin_look(self, namespaces: Iterable[str]) -> None:
        self._looks += 1
        self._share = max(1, READS_AT_ONCE // max(1, len(self.behind)))
        self._read_at = {name: self._read_at.get(name, 0) for name in namespaces}
        self._reads.clear()
        self._led_to, self.behind, self.refused = set(), set(), {}

    def _place(self, pod: Pod, pods: Mapping[str, Pod], found: dict[Key, Workload]) -> None:
        try:
            owner = self._top(pod, pods)
        except _NotRead:
            return
        namespace = pod.metadata.namespace
        workload = found.setdefault((namespace, owner.uid), Workload(owner, namespace))
        if is_waiting(pod) and not why_never(pod):
            workload.waiting.append(pod)

    def settled(self, workload: Workload, now_mono: float) -> bool:
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

    def _top(self, pod: Pod, pods: Mapping[str, Pod]) -> Owner:
        meta, owner = pod.metadata, pod.metadata.controller
        if owner is None:
            return Owner(apiVersion="v1", kind="Pod", name=meta.name, uid=meta.uid)
        for _ in range(OWNERS_MOST):
            above = self._above(owner, meta.namespace, pods)
            if above is None:
                break
            owner = above
        return owner

    def _above(self, owner: Owner, namespace: str, pods: Mapping[str, Pod]) -> Owner | None:
        """Raises _NotRead."""
        # Returns the controller of the owner if it is part of the same workload; that never changes while the owner lives.
        if owner.kind == "Pod":
            return pods[owner.uid].metadata.controller if owner.uid in pods else None
        kind = OWNED.get((owner.apiVersion, owner.kind))
        if kind is None or not cluster_names.is_object_name(owner.name):
            return None
        key = namespace, owner.uid
        if key not in self._above_of:
            self._above_of[key] = self._read(f"/apis/{owner.apiVersion}/namespaces/{namespace}/{kind}/{owner.name}", namespace, owner)
        self._led_to.add(key)
        return self._above_of[key]

    def _read(self, path: str, namespace: str, owner: Owner) -> Owner | None:
        if namespace in self.refused:
            raise _NotRead
        if self._reads[namespace] >= self._share or self._reads.total() >= READS_AT_ONCE:
            self.behind.add(namespace)
            raise _NotRead
        self._reads[namespace] += 1
        self._read_at[namespace] = self._looks
        try:
            found = self._api.get(path, _Owned).metadata
        except Missing:
            return None  # it is being deleted, and its pods with it
        except (Unavailable, Throttled):
            raise
        except ClusterError as error:
            self.refused[namespace] = error
            raise _NotRead from error
        above = found.controller if found.uid == owner.uid else None
        # Each run of a CronJob is a workload of its own, which requests nodes when it starts and gives them back at its end.
        return None if above is None or above.kind == "CronJob" else above


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
