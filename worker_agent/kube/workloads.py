"""What GPU pods that wait belong to, and how many nodes all of one workload need.

A pod belongs to what controls it, and that to what controls it in turn: a ReplicaSet to its Deployment, the Jobs of a JobSet to that, the
StatefulSets of a LeaderWorkerSet to that, also by way of the leaders' pods. One without an owner belongs to itself.
Must not live here: any write.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final
from urllib.parse import quote

import msgspec

from worker_agent.kube import names
from worker_agent.kube.client import Api, Missing
from worker_agent.kube.custom import Fields
from worker_agent.kube.lifting import asks_for_gpus, devices_of, needs_of, quantity, why_never
from worker_agent.kube.objects import Meta, Node, Owner, Pod
from worker_agent.kube.view import Unseen, view_of
from worker_agent.protocol import NodeView

SETTLED_S: Final = 2.0  # no new pod of it for so long
SETTLED_MOST_S: Final = 10.0  # or so long since the first
NODES_MAX: Final = 64  # of one request that nobody wrote
OWNERS_KEPT: Final = 5_000
OWNERS_MOST: Final = 6  # one above the other
# What is looked up: others that control pods are the workload themselves.
OWNED: Final = {("apps/v1", "ReplicaSet"): "replicasets", ("apps/v1", "StatefulSet"): "statefulsets", ("batch/v1", "Job"): "jobs"}


class _Owned(msgspec.Struct, frozen=True):
    metadata: Meta


@dataclass(slots=True)
class Workload:
    """`waiting`: its pods behind our gate that may be let in some day; it may have none."""

    owner: Owner
    namespace: str
    waiting: list[Pod] = field(default_factory=list)


class Workloads:
    """Not for several threads at once."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._above_of: dict[str, Owner | None] = {}  # by uid of what is controlled
        self._first_mono: dict[str, float] = {}  # by uid of the workload
        self._grown_mono: dict[str, tuple[frozenset[str], float]] = {}

    def of(self, pods: Iterable[Pod]) -> dict[str, Workload]:
        """By uid. Raises ClusterError."""
        found: dict[str, Workload] = {}
        by_uid = {pod.metadata.uid: pod for pod in pods}
        for pod in by_uid.values():
            if not pod.holds or not asks_for_gpus(pod):
                continue
            owner = self._top(pod, by_uid)
            workload = found.setdefault(owner.uid, Workload(owner, pod.metadata.namespace))
            if is_waiting(pod) and not why_never(pod):
                workload.waiting.append(pod)
        return found

    def settled(self, workload: Workload, now_mono: float) -> bool:
        """All of its pods are there, as far as can be told."""
        uid, pods = workload.owner.uid, frozenset(pod.metadata.uid for pod in workload.waiting)
        first_mono = self._first_mono.setdefault(uid, now_mono)
        known, since_mono = self._grown_mono.get(uid, (frozenset(), now_mono))
        if pods - known:
            since_mono = now_mono
        self._grown_mono[uid] = (pods, since_mono)
        return now_mono - since_mono >= SETTLED_S or now_mono - first_mono >= SETTLED_MOST_S

    def forget_all_but(self, uids: Iterable[str]) -> None:
        kept = set(uids)
        self._first_mono = {uid: mono for uid, mono in self._first_mono.items() if uid in kept}
        self._grown_mono = {uid: grown for uid, grown in self._grown_mono.items() if uid in kept}

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
        """What controls it, if that is part of the same workload. It stays the same as long as it lives."""
        if owner.kind == "Pod":
            return pods[owner.uid].metadata.controller if owner.uid in pods else None
        path = OWNED.get((owner.apiVersion, owner.kind))
        if path is None:
            return None
        if owner.uid not in self._above_of:
            if len(self._above_of) >= OWNERS_KEPT:
                self._above_of.clear()
            self._above_of[owner.uid] = self._read(f"/apis/{owner.apiVersion}/namespaces/{namespace}/{path}", owner)
        return self._above_of[owner.uid]

    def _read(self, path: str, owner: Owner) -> Owner | None:
        try:
            # People may write any name of an owner.
            found = self._api.get(f"{path}/{quote(owner.name, safe='')}", _Owned).metadata
        except Missing:
            return None  # on its way out, and its pods with it
        above = found.controller if found.uid == owner.uid else None
        # Each run of a CronJob is a workload: it asks for nodes when its time has come, and gives them back at its end.
        return None if above is None or above.kind == "CronJob" else above


def is_waiting(pod: Pod) -> bool:
    return not pod.is_leaving and any(gate.name == names.GATE for gate in pod.spec.schedulingGates)


@dataclass(frozen=True, slots=True)
class Size:
    """`gpus_per_node` None: whole nodes. `largest`: the GPUs of the largest pod."""

    nodes: int
    gpus_per_node: int | None


def size_of(pods: Sequence[Pod], *, gpus_per_node: int | None, node: Node | None) -> Size | None:
    """Enough for all of the pods that fit into a node. None: none of them does.

    `gpus_per_node`: as the template says. `node`: one of the shape, where the agent sees any.
    """
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
    seen = view_of(node)
    return 0 if isinstance(seen, Unseen) else len(seen.gpus)


def node_of(shape: str, nodes: Iterable[Node]) -> Node | None:
    """The largest of the shape."""
    seen = ((node, view_of(node)) for node in nodes)
    found = [(len(view.gpus), node.metadata.name, node) for node, view in seen if not isinstance(view, Unseen) and view.shape == shape]
    return max(found, key=lambda each: each[:2])[2] if found else None


def gpus_of_whole(fields: Fields, nodes: Iterable[Node]) -> int:
    """Of the largest node that a request with these words may get; 0 where none is seen. Who asks for as many of each gets whole nodes."""
    seen = (view for node in nodes if not isinstance(view := view_of(node), Unseen))
    return max((len(view.gpus) for view in seen if _suits(fields, view)), default=0)


def _suits(fields: Fields, view: NodeView) -> bool:
    memory_gib = fields.get("minGpuMemoryGiB")
    return (
        fields.get("shape") in (None, "", view.shape)
        and (not isinstance(memory_gib, int) or memory_gib <= min(gpu.memory_gib for gpu in view.gpus))
        and fields.get("nodeType") in (None, "", view.node_type)
        and (view.rdma or not fields.get("rdma"))
    )


def needs_whole_nodes(pod: Pod) -> bool:
    return bool(devices_of(needs_of(pod)))


def largest(pods: Iterable[Pod]) -> int:
    return max((_gpus(pod) for pod in pods), default=0)


def _bins(sizes: Sequence[int], room: int) -> int:
    """The largest first, each into the first that has room."""
    left: list[int] = []
    for size in sizes:
        place = next((index for index, free in enumerate(left) if free >= size), None)
        if place is None:
            left.append(room - size)
        else:
            left[place] -= size
    return len(left)


def _part(pods: Sequence[Pod], node: Node, whole: int) -> int:
    """GPUs of a node with which as much of its CPU and memory goes as the pods ask for."""
    asked = [needs_of(pod) for pod in pods]
    shares = []
    for key in ("cpu", "memory"):
        there = quantity(node.status.allocatable.get(key, "0"))
        wanted = sum((needs.get(key, Decimal(0)) for needs in asked), Decimal(0))
        shares.append(wanted / there if there else Decimal(0))
    return math.ceil(max(shares) * whole)


def _gpus(pod: Pod) -> int:
    return int(needs_of(pod).get(names.GPU, 0))
