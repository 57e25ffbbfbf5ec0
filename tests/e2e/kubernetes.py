"""A hub with agents on real Kubernetes clusters, whose nodes kwok plays, tools included."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import yaml

from protocol.nodes.steps import EntryStep
from tests.e2e.processes import START_S, Api, Running, Stage, wait_for
from tests.kube.checks.healthy import gang_words, gpu_lines, last_words
from tests.kube.cluster import Cluster, Object
from tests.kube.fleet_nodes import nodes_of
from tests.kube.site import agent_token, install
from worker_agent.cluster.fleet import NodeGroup, SimulatedFleet

NODE_GPUS = 8
WATCH_S = 2


class KubernetesStage(Stage):
    sick: set[str]  # nodes with a GPU that fails its checks

    def join_cluster(self, api: Api, name: str, cluster: Cluster, *, nodes: int) -> Running:
        """Install EGS in it, add it to the hub, and start its agent, which takes the nodes in."""
        self.installed_cluster(api, name, cluster)
        cluster.apply(*managed_nodes(name, nodes), *volumes())
        agent = self.start_replica(name, name)
        wait_for("the nodes", lambda: len(api.get(f"/nodes/?cluster={name}")["results"]) == nodes, within_s=2 * START_S)
        return agent

    def installed_cluster(self, api: Api, name: str, cluster: Cluster) -> None:
        """It is on the hub, and all is there for an agent of it."""
        install(cluster)
        api.post("/clusters/", {"name": name})
        token = self.folder / f"{name}.token"
        token.write_text(api.post(f"/clusters/{name}/join-token/")["token"])
        self._kubeconfig(name, cluster)

    def start_replica(self, cluster_name: str, name: str) -> Running:
        """One more agent of a cluster that was joined."""
        token, kubeconfig = self.folder / f"{cluster_name}.token", self.folder / f"{cluster_name}.kubeconfig"
        agent = self.process(
            name, "-m", "worker_agent", "--hub", self.url, "--join-token-file", str(token), "--kubeconfig", str(kubeconfig)
        )
        self.agents[name] = agent
        agent.start()
        return agent

    def leader(self, cluster: Cluster) -> Running | None:
        """The replica that holds the Lease."""
        lease = cluster.get("lease", "egs-agent", namespace="egs-system")
        holder = lease["spec"].get("holderIdentity") if lease else None
        return next((agent for agent in self.agents.values() if holder and holder in agent.log.read_text()), None)

    def _kubeconfig(self, name: str, cluster: Cluster) -> None:
        config: dict[str, Any] = yaml.safe_load(cluster.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": agent_token(cluster)}
        file = self.folder / f"{name}.kubeconfig"
        file.write_text(yaml.safe_dump(config))


def managed_nodes(name: str, count: int) -> list[Object]:
    group = NodeGroup(name="gpu", count=count, node_type="hgx-h100", gpu_model="H100", memory_gib=80, gpus=NODE_GPUS)
    nodes = nodes_of(SimulatedFleet(name=name, groups=(group,), zone="zone-1"))
    for node in nodes:
        node["metadata"]["labels"]["egs.io/managed"] = "true"
    return nodes


def volumes() -> list[Object]:
    """A default class with some volumes more, for the check of storage: nobody makes any here, and none is used twice."""
    kind = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "disks", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "disks",
        "hostPath": {"path": "/none"},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    disks = [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"disk-{uuid4().hex[:8]}"}, "spec": spec} for _ in range(16)
    ]
    return [kind, *disks]


@contextmanager
def healthy_nodes(*clusters: Cluster) -> Iterator[set[str]]:
    """Checks print what they print on healthy nodes, but for nodes whose names are put into this set."""
    stop, sick = threading.Event(), set[str]()
    threads = [threading.Thread(target=_play, args=(cluster, sick, stop), daemon=True) for cluster in clusters]
    for thread in threads:
        thread.start()
    try:
        yield sick
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _play(cluster: Cluster, sick: set[str], stop: threading.Event) -> None:
    """Ends each pod of a check as soon as it runs."""
    waiting = {"labelSelector": "egs.io/check-step,!egs.test/outcome", "fieldSelector": "status.phase=Running"}
    while not stop.is_set():
        for pod in cluster.wire.appearing("/api/v1/namespaces/egs-system/pods", for_s=WATCH_S, **waiting):
            step = pod["metadata"]["labels"]["egs.io/check-step"]
            _end(cluster, pod, _words(pod, step, is_sick=pod["spec"]["nodeName"] in sick))


def _words(pod: Object, step: str, *, is_sick: bool) -> str:
    """Returns the words of the tools on its node. A GPU of a sick one has had ECC errors."""
    (container,) = pod["spec"]["containers"]
    if step == EntryStep.GANG_NETWORK:
        index = pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]
        return gang_words(int(index), json.loads(container["command"][-1])["gang"]["count"])
    gpus = [f"GPU-{number}" for number in range(int(container["resources"].get("limits", {}).get("nvidia.com/gpu", 0)))]
    if step == EntryStep.GPU_HEALTH and is_sick:
        told = json.loads(last_words(step, gpus))
        told["commands"]["gpus"] = {"text": gpu_lines(gpus, ecc_uncorrected=2)}
        return json.dumps(told)
    return last_words(step, gpus)


def _end(cluster: Cluster, pod: Object, said: str) -> None:
    words = {"egs.test/message": said, "egs.test/runs-for": "1ms"}
    patch = {"metadata": {"annotations": words, "labels": {"egs.test/outcome": "pass"}}}
    cluster.patch("pod", pod["metadata"]["name"], patch, namespace="egs-system")
