"""Measures the agent's view of a large cluster on a real API server beside the official client's.

It measures the time to all of it, the memory, and the cost of keeping it.

`python -m bench.kubernetes.kube_view CLIENT URL FOLDER` is the process that is measured: it prints its figures once all is there, and
again for what came between the lines `begin` and `end` on its input. FOLDER has the certificates of an administrator.
"""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path
from typing import IO, Any, Final
from uuid import uuid4

from bench.figures import Figure, NotRun

NODES, PODS = 1_000, 5_000
LABELS, IMAGES = 25, 30
UPDATES_PER_S, STEADY_S = 20, 60.0
RUNS = 3  # of the beginning; the median counts
PASS_S = 0.2  # as often as the agent's core looks
WRITERS = 8
NAMESPACE: Final = "bench"
OURS, PEER = "ours", "kubernetes"


def run(traces: Path | None) -> list[Figure]:
    from tests.kube.cluster import KubeError, clusters

    try:
        with clusters("bench") as (cluster,):
            return _measured(cluster)
    except KubeError as error:
        raise NotRun(str(error)) from error


def _measured(cluster: Any) -> list[Figure]:
    from tests.kube.api.outage import without

    cluster.make_namespace(NAMESPACE)
    # They would have opinions on nodes that no kubelet speaks for.
    with without(cluster, "kube-controller-manager", "kube-scheduler", "kwok"):
        url = re.findall(r'https://[^"]+', cluster.kubeconfig.read_text())[0]
        _fill(_api(url, cluster.kubeconfig.parent))
        ours, theirs = (_client(client, url, cluster.kubeconfig.parent) for client in (OURS, PEER))
    return _figures(ours, theirs)


def _figures(ours: Mapping[str, float], theirs: Mapping[str, float]) -> list[Figure]:
    case, peer = f"{NODES:,} nodes, {PODS:,} pods", "official Python client, typed, same run"
    steady = f"{UPDATES_PER_S} node updates/s"
    rows = (
        ("to the first whole view", "s", "whole_s", "<= 2 s"),
        ("the same, CPU time", "s", "whole_cpu_s", ""),
        ("memory above imports", "MiB", "above_mib", ""),
        ("memory of the process", "MiB", "process_mib", "<= 120 MiB"),
        ("the same, peak", "MiB", "peak_mib", ""),
        (f"{steady}, CPU", "cores", "steady_cores", "<= 0.05"),
    )
    return [Figure("kube-view", f"{case}: {what}", unit, ours[key], peer, theirs[key], goal) for what, unit, key, goal in rows]


# -- the cluster -------------------------------------------------------------------------------------------------------


def _api(url: str, folder: Path) -> Any:
    from worker_agent.kube.api.client import Access, Api

    tls = ssl.create_default_context(cafile=folder / "ca.crt")
    tls.load_cert_chain(folder / "admin.crt", folder / "admin.key")
    return Api(Access(url=url, tls=tls, bearer=lambda: ""))


def _fill(api: Any) -> None:
    from worker_agent.kube.api.objects import Namespace  # of which only the name is read

    def make(path: str, body: dict[str, Any]) -> None:
        api.create(path, body, Namespace)

    with ThreadPoolExecutor(WRITERS) as writers:
        list(writers.map(lambda number: make("/api/v1/nodes", node(number)), range(NODES)))
        list(
            writers.map(
                lambda number: make(f"/api/v1/namespaces/{NAMESPACE}/pods", pod(f"train-{number:05}", number % NODES, gpr=str(uuid4()))),
                range(PODS),
            )
        )


def node(number: int) -> dict[str, Any]:
    labels = {
        "kubernetes.io/hostname": _name(number),
        "node.kubernetes.io/instance-type": "hgx-h100",
        "topology.kubernetes.io/zone": f"zone-{number % 3}",
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "nvidia.com/gpu.memory": "81559",
        "nvidia.com/gpu.count": "8",
    }
    labels |= {f"feature.node.kubernetes.io/cpu-cpuid.{index:02}": "true" for index in range(LABELS - len(labels))}
    capacity = {"cpu": "128", "memory": "2Ti", "pods": "110", "ephemeral-storage": "8Ti", "nvidia.com/gpu": "8"}
    images = [{"names": [f"registry.example/team/image-{index}@sha256:{uuid4().hex * 2}"], "sizeBytes": 10**9} for index in range(IMAGES)]
    kinds = {"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"}
    status = {
        "capacity": capacity,
        "allocatable": capacity,
        "images": images,
        "conditions": [
            {"type": kind, "status": status, "reason": "Kubelet", "message": "as it should be"} for kind, status in kinds.items()
        ],
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": _name(number), "labels": labels}, "status": status}


def pod(name: str, on: int, *, gpr: str = "") -> dict[str, Any]:
    """The pod is on this node; for a box the agent has let it in."""
    container = {
        "name": "main",
        "image": "registry.example/team/train:latest",
        "command": ["python", "-m", "train"],
        "env": [{"name": f"SETTING_{index}", "value": f"value-{index}"} for index in range(10)],
        "resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "8", "memory": "64Gi"}},
    }
    labels = {"app": "train", "job-name": f"train-{on}", **({"egs.io/gpr": gpr} if gpr else {})}
    spec = {"nodeName": _name(on), "restartPolicy": "Never", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


def _name(number: int) -> str:
    return f"node-{number:04}"


def update(api: Any, until: float) -> None:
    """Updates nodes as kubelets do: each update changes when the node was last heard of. `until` is by time.monotonic()."""
    from worker_agent.kube.api.objects import Namespace

    due = time.monotonic()
    for number in cycle(range(NODES)):
        if due >= until:
            return
        heard = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        ops = [{"op": "add", "path": "/status/conditions/0/lastHeartbeatTime", "value": heard}]
        api.patch(f"/api/v1/nodes/{_name(number)}/status", ops, Namespace)
        due += 1 / UPDATES_PER_S
        time.sleep(max(0.0, due - time.monotonic()))


# -- the process that is measured, from outside ------------------------------------------------------------------------


def _client(client: str, url: str, folder: Path) -> dict[str, float]:
    """Starts it RUNS times; the last one goes on while nodes are updated."""
    begun = [_begun(client, url, folder, steady=number == RUNS - 1) for number in range(RUNS)]
    median = sorted(begun, key=lambda figures: figures["whole_s"])[RUNS // 2]
    return {**begun[-1], **{key: median[key] for key in ("whole_s", "whole_cpu_s")}}


def _begun(client: str, url: str, folder: Path, *, steady: bool) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.kubernetes.kube_view", client, url, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018  # for mypy
        figures = _line(process.stdout)
        if steady:
            process.stdin.write("begin\n")
            process.stdin.flush()
            update(_api(url, folder), time.monotonic() + STEADY_S)
        process.stdin.write("end\n")
        process.stdin.close()
        return figures | _line(process.stdout)


def _line(out: IO[str]) -> dict[str, float]:
    line = out.readline()
    if not line:
        raise NotRun("the measured process failed, see above")
    return dict(json.loads(line))


# -- the process that is measured, from inside -------------------------------------------------------------------------


def main(client: str, url: str, folder: str) -> None:
    """`view` makes all of it, tells when it is whole, and goes on by itself."""
    view = (_our_view if client == OURS else _their_view)(url, Path(folder))
    imported_mib, began, began_cpu_s = memory_mib(), time.monotonic(), time.process_time()
    look = view()
    whole = {"whole_s": time.monotonic() - began, "whole_cpu_s": time.process_time() - began_cpu_s}
    sys.stdout.write(json.dumps(whole) + "\n")
    sys.stdout.flush()
    threading.Thread(target=_look_on, args=(look,), daemon=True).start()
    sys.stdin.readline()  # "begin", or "end" at once
    began, began_cpu_s = time.monotonic(), time.process_time()
    sys.stdin.readline()
    figures = {
        "steady_cores": (time.process_time() - began_cpu_s) / (time.monotonic() - began),
        "above_mib": memory_mib() - imported_mib,
        "process_mib": memory_mib(),
        "peak_mib": memory_mib("VmHWM"),
    }
    sys.stdout.write(json.dumps(figures) + "\n")


def _look_on(look: Callable[[], None]) -> None:
    while True:
        look()
        time.sleep(PASS_S)


def _our_view(url: str, folder: Path) -> Callable[[], Callable[[], None]]:
    from protocol.nodes.inventory import NodeView
    from worker_agent.kube.api.mirror import Mirror
    from worker_agent.kube.api.objects import Namespace, Node, Pod
    from worker_agent.kube.nodes.view import NotShown, node_view

    api = _api(url, folder)
    nodes = Mirror(api=api, path="/api/v1/nodes", type_=Node, note=_note)
    pods = Mirror(api=api, path="/api/v1/pods", type_=Pod, note=_note)
    namespaces = Mirror(api=api, path="/api/v1/namespaces", type_=Namespace, note=_note)
    views: dict[str, tuple[Node, NodeView | NotShown]] = {}

    def look() -> None:
        """A node is looked into where it changed."""
        pods.objects()
        for (_, name), node in nodes.objects().items():
            if name not in views or views[name][0] is not node:
                views[name] = node, node_view(node)

    def begin() -> Callable[[], None]:
        for mirror in (nodes, pods, namespaces):
            mirror.start()
        for mirror in (nodes, pods, namespaces):
            mirror.wait_whole(600.0)
        look()
        _check(sum(isinstance(view, NodeView) for _, view in views.values()), len(pods.objects()))
        return look

    return begin


def _their_view(url: str, folder: Path) -> Callable[[], Callable[[], None]]:
    """Follows the client's documentation: list, then watch, each object typed and kept whole."""
    from kubernetes import client, watch

    configuration = client.Configuration()
    configuration.host, configuration.ssl_ca_cert = url, str(folder / "ca.crt")
    configuration.cert_file, configuration.key_file = str(folder / "admin.crt"), str(folder / "admin.key")
    core = client.CoreV1Api(client.ApiClient(configuration))
    kept: dict[tuple[str, str, str], Any] = {}

    def keep(kind: str, obj: Any) -> None:
        kept[kind, obj.metadata.namespace or "", obj.metadata.name] = obj

    def follow(kind: str, listing: Any, version: str) -> None:
        for event in watch.Watch().stream(listing, resource_version=version):
            keep(kind, event["object"])

    def begin() -> Callable[[], None]:
        for kind in ("node", "pod_for_all_namespaces", "namespace"):
            listing = getattr(core, f"list_{kind}")
            listed = listing()
            for obj in listed.items:
                keep(kind, obj)
            threading.Thread(target=follow, args=(kind, listing, listed.metadata.resource_version), daemon=True).start()
        _check(*(sum(kind == wanted for kind, _, _ in kept) for wanted in ("node", "pod_for_all_namespaces")))
        return lambda: None

    return begin


def _check(node_count: int, pod_count: int) -> None:
    if (node_count, pod_count) != (NODES, PODS):
        raise RuntimeError(f"{node_count} nodes and {pod_count} pods are seen")


def _note(event: str, fields: dict[str, object]) -> None:
    sys.stderr.write(f"{event} {fields}\n")


def memory_mib(kind: str = "VmRSS", of: int | str = "self") -> float:
    """Not by getrusage, whose peak begins with what the parent had."""
    (kib,) = re.findall(rf"{kind}:\s+(\d+) kB", Path(f"/proc/{of}/status").read_text())
    return int(kib) / 1024


if __name__ == "__main__":
    main(*sys.argv[1:])
