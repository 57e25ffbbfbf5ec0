"""The Kubernetes driver over objects in memory, for faults that a real API server does not produce on demand: calls that hang or fail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import msgspec

from protocol import cluster_names
from protocol.assignments import Assignment, Desired, Drain
from worker_agent.cluster.base import GpuRecord, NodeState, Records, StepProgress, StepStatus, WriteConflict
from worker_agent.kube.api.client import Missing
from worker_agent.kube.api.objects import Meta, Namespace, Node, Pod
from worker_agent.kube.driver import KubernetesCluster
from worker_agent.kube.nodes.marks import marks_for_records, records_text

Object = dict[str, Any]
VERSION = 50


def free_calls(verb: str, path: str) -> None:
    """Nothing goes wrong."""


class FakeApi:
    """`hook`: is called with verb and path before each call, `after` once it was done; they may raise, or hang. Lists of pods are as
    `pods` says.
    """

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.pods: Callable[[str], list[Object]] = lambda gpr_id: []
        self.calls: list[tuple[str, str]] = []
        self.made: list[Object] = []  # by create
        self.hook: Callable[[str, str], None] = free_calls
        self.after: Callable[[str, str], None] = free_calls
        self._version, self._lock = VERSION, threading.Lock()

    def get(self, path: str, type_: Any, **params: Any) -> Any:
        self._called("GET", path)
        if path == "/api/v1/pods":
            return msgspec.convert({"items": self.pods(params["labelSelector"].split("=")[1])}, type_)
        found = self._named(path, params["fieldSelector"]) if path.endswith("/pods") else self._there(path)
        self.after("GET", path)
        return msgspec.convert(found, type_)

    def create(self, path: str, body: Any, type_: Any, **params: Any) -> Any:
        self._called("POST", path)
        self.made.append(body)
        return msgspec.Raw(b"{}")

    def delete(self, path: str, **params: Any) -> None:
        self._called("DELETE", path)

    def patch(self, path: str, ops: Sequence[Object], type_: Any, **params: Any) -> Any:
        self._called("PATCH", path)
        with self._lock:
            new = deepcopy(self._there(path))
            for op in ops:
                _apply(new, op)
            self._version += 1
            new["metadata"]["resourceVersion"] = str(self._version)
            self.objects[path] = new
        self.after("PATCH", path)
        return msgspec.convert(new, type_)

    def close(self) -> None:
        """There is nothing to close."""

    def guard(self) -> dict[str, str]:
        return dict(self.objects[cluster_names.GUARD_PATH]["spec"]["nodes"])

    def _named(self, path: str, selector: str) -> Object:
        one = f"{path}/{selector.removeprefix('metadata.name=')}"
        return {"items": [self.objects[one]] if one in self.objects else []}

    def _there(self, path: str) -> Object:
        if path not in self.objects:
            raise Missing(f"404 {path}")
        return self.objects[path]

    def _called(self, verb: str, path: str) -> None:
        self.calls.append((verb, path))
        self.hook(verb, path)


def _apply(document: Object, op: Object) -> None:
    """Applies one operation of a JSON Patch."""
    *way, last = (part.replace("~1", "/").replace("~0", "~") for part in op["path"].split("/")[1:])
    at: Any = document
    for part in way:
        at = at[int(part)] if isinstance(at, list) else at.setdefault(part, {})
    key: Any = len(at) if last == "-" else int(last) if isinstance(at, list) else last
    there = (at[key] if key < len(at) else None) if isinstance(at, list) else at.get(key)
    match op["op"]:
        case "test" if there != op.get("value"):
            raise WriteConflict(f"{op} was {there}")
        case "remove":
            del at[key]
        case "add" | "replace" if isinstance(at, list) and key == len(at):
            at.append(op["value"])
        case "add" | "replace":
            at[key] = op["value"]


def assignment(id_: str, node: str, gpu: str, *, slice_: str = "red") -> Assignment:
    """Returns an assignment of one GPU."""
    return Assignment(
        id=id_,
        gpr_id=f"gpr-{id_}",
        gpr_name="train",
        slice=slice_,
        namespaces=(slice_,),
        node=node,
        node_uid=f"uid-{node}",
        gpus=(gpu,),
        epoch=1,
        desired=Desired.PRESENT,
        gang_count=1,
        not_before_s=0.0,
        enter_by_s=9e9,
        duration_s=60.0,
        not_after_s=None,
        entry_steps=(),
        exit_steps=("drain",),
        drain=Drain(grace_s=60.0, force_after_s=120.0),
    )


def waiting_pod(name: str, namespace: str = "red") -> Object:
    spec = {"schedulingGates": [{"name": cluster_names.GATE}], "nodeSelector": {}, "tolerations": [], "containers": [_container()]}
    return {"metadata": _about(name, namespace, {}), "spec": spec}


def running_pod(name: str, box: Assignment) -> Object:
    selector = {cluster_names.box_label(box.gpr_id): str(box.run)}
    spec = {"nodeName": box.node, "nodeSelector": selector, "containers": [_container()]}
    return {"metadata": _about(name, box.slice, {cluster_names.POD_GPR: box.gpr_id}), "spec": spec}


def _about(name: str, namespace: str, labels: dict[str, str]) -> Object:
    about = {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}", "labels": labels}
    return {**about, "resourceVersion": str(VERSION)}


def _container() -> Object:
    return {"resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "1", "memory": "1Gi"}}}


def made(
    nodes: Mapping[str, Mapping[str, GpuRecord | None]], *, guard: Mapping[str, str], pods: Sequence[Object] = ()
) -> tuple[FakeApi, KubernetesCluster]:
    """`nodes` gives GPUs with their records by node. Each slice has the namespace of its name."""
    api = FakeApi()
    driver = KubernetesCluster(api, check=lambda _: StepProgress(status=StepStatus.OK), note=lambda *_: None)  # type: ignore[arg-type]
    api.objects[cluster_names.GUARD_PATH] = {"metadata": {"name": "nodes"}, "spec": {"nodes": dict(guard)}}
    api.objects |= {cluster_names.node_path(name): _node(name, gpus) for name, gpus in nodes.items()}
    api.objects |= {msgspec.convert(pod, Pod).path: pod for pod in pods}
    seen = {("", name): msgspec.convert(api.objects[cluster_names.node_path(name)], Node) for name in nodes}
    slices = {pod["metadata"]["namespace"] for pod in pods}
    fill(driver._nodes, seen)
    fill(driver._pods, {(pod["metadata"]["namespace"], pod["metadata"]["name"]): msgspec.convert(pod, Pod) for pod in pods})
    fill(driver._namespaces, {("", name): Namespace(metadata=Meta(name=name, labels={cluster_names.SLICE: name})) for name in slices})
    return api, driver


def fill(mirror: Any, objects: Mapping[tuple[str, str], Any]) -> None:
    mirror._replica.replace(dict(objects), VERSION)
    mirror._is_whole.set()


def _node(name: str, gpus: Mapping[str, GpuRecord | None]) -> Object:
    records: Records = {gpu: record for gpu, record in gpus.items() if record is not None}
    marks = marks_for_records(f"uid-{name}", records, gpus)
    found = {"nvidia.com/gpu.product": "H100", "nvidia.com/gpu.memory": "81920", "nvidia.com/gpu.count": str(len(gpus))}
    room = {"nvidia.com/gpu": str(len(gpus)), "cpu": "64", "memory": "512Gi", "pods": "110"}
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": str(VERSION),
            "labels": {cluster_names.MANAGED: "true", **found, **marks.labels},
            "annotations": {cluster_names.RECORDS: records_text(records), cluster_names.GPU_UUIDS: ",".join(gpus)},
        },
        "spec": {"taints": [{"key": cluster_names.TAINT, "value": marks.taint, "effect": "NoSchedule"}]},
        "status": {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def state(driver: KubernetesCluster, node: str) -> NodeState:
    return driver.observe()[node]
