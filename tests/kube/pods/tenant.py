"""Somebody who runs pods on a node of their own, with what deploy/kube's kwok makes of labels (tests/kube/stages.yaml)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from protocol import cluster_names
from tests.e2e.processes import wait_for
from tests.kube.cluster import SOON_S, Cluster, Object
from tests.kube.fleet_nodes import nodes_of
from worker_agent.cluster.fleet import NodeGroup, SimulatedFleet

NODE_GPUS = 8


@dataclass(frozen=True, slots=True)
class Tenant:
    cluster: Cluster
    name: str

    @property
    def node_name(self) -> str:
        (view,) = self._fleet.nodes()
        return view.name

    def move_in(self) -> None:
        self.cluster.create(*nodes_of(self._fleet))
        # Exempt: its GPU pods wait for no box.
        self.cluster.make_namespace(self.name, **{cluster_names.EXEMPT: "true"})

    def move_out(self) -> None:
        self.cluster.clear(self.name)
        self.cluster.delete("node", self.node_name)

    def run(
        self,
        name: str,
        *,
        gpus: int = 1,
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        tolerations: list[Object] | None = None,
    ) -> None:
        about = {"name": name, "namespace": self.name, "labels": labels or {}, "annotations": annotations or {}}
        spec = self._spec(gpus) | {"tolerations": tolerations or []}
        self.cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec})

    def run_job(self, name: str, *, labels: dict[str, str], deadline_s: int | None = None) -> None:
        template = {"metadata": {"labels": labels}, "spec": self._spec(1)}
        spec: Object = {"template": template, "backoffLimit": 0}
        if deadline_s is not None:
            spec["activeDeadlineSeconds"] = deadline_s
        self.cluster.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": self.name}, "spec": spec})

    def end(self, name: str) -> None:
        self.cluster.delete("pod", name, namespace=self.name)

    def pod(self, name: str) -> Object | None:
        return self.cluster.get("pod", name, namespace=self.name)

    def pod_once(self, name: str, what: str, holds: Callable[[Object], bool]) -> Object:
        """The pod, as soon as `holds` is true of it."""

        def look() -> Object | None:
            found = self.pod(name)
            return found if found and holds(found) else None

        return wait_for(f"{name} {what}", look, within_s=SOON_S)

    def pod_in(self, name: str, phase: str) -> Object:
        return self.pod_once(name, phase, lambda pod: bool(pod["status"]["phase"] == phase))

    def job_once(self, name: str, condition: str) -> Object:
        """The condition of the Job, as soon as it is true."""

        def look() -> Object | None:
            job = self.cluster.get("job", name, namespace=self.name) or {}
            conditions = job.get("status", {}).get("conditions", [])
            return next((each for each in conditions if each["type"] == condition and each["status"] == "True"), None)

        return wait_for(f"{name} {condition}", look, within_s=SOON_S)

    @property
    def _fleet(self) -> SimulatedFleet:
        group = NodeGroup(name="h100", count=1, node_type="hgx-h100", gpu_model="H100", memory_gib=80, gpus=NODE_GPUS)
        return SimulatedFleet(name=self.name, groups=(group,), zone="zone-1")

    def _spec(self, gpus: int) -> Object:
        container = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
        return {"restartPolicy": "Never", "nodeSelector": {"kubernetes.io/hostname": self.node_name}, "containers": [container]}
