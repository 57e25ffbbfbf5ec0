"""Runs KAI itself: its scheduler, and the controllers without which it binds nothing, as processes beside a control plane.

`KAI_SRC` names its checkout: the kinds of objects are read there, and the programs are built from it, unless `KAI_BIN` names a folder
with them. Its webhooks are off: they serve what people mistype, and would only cost it time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.peers.checkout import built, folder_of

if TYPE_CHECKING:
    from tests.kube.cluster import Cluster

CRDS: Final = Path("deployments/kai-scheduler/crds")
PROGRAMS: Final = {name: f"cmd/{name}" for name in ("scheduler", "binder", "podgrouper", "podgroupcontroller", "queuecontroller")}
# This limit of its client is far above what it can use: by default it asks 50 times a second.
RATE: Final = ("--qps=1000", "--burst=2000")
UNSERVED: Final = "127.0.0.1:0"
QUEUE: Final = "bench"
# What makes a pod KAI's.
LABELS: Final = {"kai.scheduler/queue": QUEUE}
SCHEDULER: Final = "kai-scheduler"

# It gives it to whoever names none.
PRIORITY: Final = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "train"}, "value": 50}


def source() -> Path:
    """Raises NotRun where `KAI_SRC` names no checkout of it."""
    return folder_of("KAI_SRC", (str(CRDS),))


@contextmanager
def running(cluster: Cluster, folder: Path) -> Iterator[None]:
    """Runs KAI in the cluster, with one queue without limits. Raises NotRun where it can not be built.

    `folder`: for programs and logs.
    """
    from tests.e2e.processes import Running, wait_for
    from tests.kube.cluster import SOON_S

    kai = source()
    programs = folder_of("KAI_BIN", PROGRAMS) if os.environ.get("KAI_BIN") else built("KAI", kai, PROGRAMS, folder)
    cluster.kubectl("apply", "--server-side", "-f", str(kai / CRDS))
    wait_for("KAI's queues are known", lambda: _is_established(cluster, "queues.scheduling.run.ai"), within_s=SOON_S)
    cluster.apply(PRIORITY, _queue("all"), _queue(QUEUE, "all"))
    with ExitStack() as stack:
        for name, options in _options().items():
            env = os.environ | {"KUBECONFIG": str(cluster.kubeconfig)}
            process = Running([str(programs / name), *options, *RATE], env=env, log=folder / f"{name}.log")
            process.start()
            stack.callback(process.kill)
        yield


def _is_established(cluster: Cluster, kind: str) -> bool:
    found = cluster.get("crd", kind) or {}
    conditions = found.get("status", {}).get("conditions") or []
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def _options() -> dict[str, tuple[str, ...]]:
    from tests.e2e.processes import free_port

    addresses = f"--metrics-bind-address={UNSERVED}", f"--health-probe-bind-address={UNSERVED}"
    return {
        "scheduler": (f"--listen-address={UNSERVED}", f"--plugin-server-port={free_port()}"),
        "binder": addresses,
        "podgrouper": addresses,
        "podgroupcontroller": (*addresses, "--enable-podgroup-webhook=false"),
        "queuecontroller": (f"--metrics-listen-address={UNSERVED}", "--enable-webhook=false"),
    }


def _queue(name: str, parent: str = "") -> dict[str, Any]:
    room = {"quota": 0, "limit": -1, "overQuotaWeight": 1}
    spec: dict[str, Any] = {"resources": {"cpu": room, "gpu": room, "memory": room}}
    if parent:
        spec["parentQueue"] = parent
    return {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}, "spec": spec}
