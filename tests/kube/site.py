"""A cluster of deploy/kube as EGS has it: installed by deploy/agent/install, with managed nodes, workspaces, and the agent's core.

The hub is a test's: it says what it is told to. Everything else is real.
"""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from uuid import uuid4

import msgspec

from protocol import cluster_names
from protocol.agents.events import AgentEvent, InventoryEvent, StepEvent
from protocol.agents.listings import set_digest
from protocol.agents.sync import IdleRelease, SyncReply
from protocol.assignments import Assignment, Desired, Drain, Observed, Phase
from protocol.nodes.drift import Drift
from protocol.nodes.inventory import NodeView
from protocol.tenancy.life_marks import LifeMark
from tests.e2e.processes import ROOT, wait_for
from tests.kube.cluster import SOON_S, Cluster, KubeError, Object
from tests.kube.corner import CornerAccess, CornerApi, state_of
from tests.kube.faults import APIS, CLOCK_IS_SET, SetClock
from tests.kube.fleet_nodes import nodes_of
from tests.kube.wire import STRATEGIC, tls_of, url_of
from tests.kube.written import written
from worker_agent.boxes.core import Core
from worker_agent.clock import Clock, SystemClock
from worker_agent.cluster.base import ClusterError, GpuRecord, NodeState, StepCall, StepProgress, StepStatus
from worker_agent.cluster.fleet import NodeGroup, SimulatedFleet
from worker_agent.kube.api.client import Access, Api
from worker_agent.kube.driver import KubernetesCluster

HUB_ID = "hub-1"
AGENT = "system:serviceaccount:egs-system:egs-agent"
NODE_GPUS = 8


def install(cluster: Cluster) -> None:
    """Once for each cluster: a second time changes nothing. Raises KubeError."""
    command = [str(ROOT / "deploy/agent/install"), "--no-agent"]
    done = subprocess.run(command, env=cluster.settings(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise KubeError(done.stderr)


def access_as_agent(cluster: Cluster, *, key: str = "") -> Access:
    """It has the agent's own rights, and no more. `key`: of the corner that is seen by a CornerApi."""
    token = agent_token(cluster)
    return CornerAccess(
        url=url_of(cluster.kubeconfig),
        tls=tls_of(cluster.folder),
        bearer=lambda: f"Bearer {token}",
        ca=(cluster.folder / "ca.crt").read_text(),
        key=key,
    )


def access_as_admin(cluster: Cluster) -> Access:
    return Access(url=url_of(cluster.kubeconfig), tls=tls_of(cluster.folder, "admin"), bearer=lambda: "")


def member(cluster: Cluster, namespace: str, role: str) -> str:
    """Makes a service account with a role of a workspace there."""
    about = {"name": role, "namespace": namespace}
    group = "rbac.authorization.k8s.io"
    cluster.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": about,
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": cluster_names.role_of(role)},
            "subjects": [{"kind": "ServiceAccount", **about}],
        },
    )
    return f"system:serviceaccount:{namespace}:{role}"


@cache
def agent_token(cluster: Cluster) -> str:
    path = f"/api/v1/namespaces/{cluster_names.NAMESPACE}/serviceaccounts/{cluster_names.AGENT}/token"
    spec = {"expirationSeconds": 8 * 3600}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    return str(cluster.wire.call("POST", path, body)["status"]["token"])


class Site:
    """Some nodes of 8 GPUs in a corner of one cluster; `pass_` is one pass of the agent, which sees nothing else of it."""

    def __init__(self, cluster: Cluster, *, nodes: int = 1) -> None:
        self.cluster, self.key = cluster, uuid4().hex[:8]
        self._count = nodes
        self.access = access_as_agent(cluster, key=self.key)
        self.notes: list[tuple[str, dict[str, object]]] = []
        self.steps: dict[str, StepStatus] = {}  # what a check says that is not OK
        self.trouble, self.rng = "", random.Random(7)  # of APIS, or CLOCK_IS_SET: what the agents that start afterwards suffer from
        self.api_of: Callable[[Access], Api] = CornerApi
        self.clock: Clock = SystemClock()  # the agent's
        self.hub_clock: Clock = SystemClock()
        self.session_epoch = 1
        self._heard_drifts: tuple[Drift, ...] = ()
        self._gprs = 0
        self._generation = time.time_ns() // 1000  # higher than that of any test before: the cluster keeps what it was
        self._slices: list[str] = []
        self.driver: KubernetesCluster
        self.core: Core

    # -- the agent -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """A fresh agent: it has only what the cluster keeps."""
        self.cluster.apply(
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": state_of(self.key), "namespace": cluster_names.NAMESPACE}}
        )
        self.agent_api = self._api()
        self.driver = KubernetesCluster(self.agent_api, check=self.check, note=self.note)
        self.driver.start()
        self.core = wait_for("an agent that has begun", self._begun, within_s=SOON_S)

    def _begun(self) -> Core | None:
        """Returns None if the API server had no time for it: the process ends then, and is started again."""
        clock = SetClock(self.rng) if self.trouble == CLOCK_IS_SET else self.clock
        try:
            return Core(cluster=self.driver, clock=clock, rng=random.Random(7), note=self.note)
        except ClusterError:
            return None

    def _api(self) -> Api:
        return APIS[self.trouble](self.access, self.rng) if self.trouble in APIS else self.api_of(self.access)

    def stop(self) -> None:
        self.driver.stop()
        self.agent_api.close()

    def restart(self, *, api_of: Callable[[Access], Api] = CornerApi, clock: Clock | None = None) -> None:
        """Starts the agent again with other means. The hub uses the same clock."""
        self.api_of, self.clock = api_of, clock or self.clock
        self.hub_clock = self.clock
        self.stop()
        self.start()

    def check(self, call: StepCall) -> StepProgress:
        return StepProgress(status=self.steps.get(call.step, StepStatus.OK), log=call.step)

    def note(self, event: str, fields: dict[str, object]) -> None:
        self.notes.append((event, fields))

    def pass_(self) -> None:
        self.core.reconcile()

    def until(self, what: str, holds: Callable[[], Any], *, within_s: float = SOON_S) -> Any:
        """Pass after pass, as the process does, until it holds."""

        def look() -> Any:
            self.pass_()
            return holds()

        try:
            return wait_for(what, look, within_s=within_s)
        except AssertionError as error:
            error.add_note(f"notes: {self.notes[-5:]}")
            raise

    # -- what is there -------------------------------------------------------------------------------------------------

    @property
    def node_names(self) -> list[str]:
        return [view.name for view in self._fleet.nodes()]

    @property
    def _fleet(self) -> SimulatedFleet:
        group = NodeGroup(name="h100", count=self._count, node_type="hgx-h100", gpu_model="H100", memory_gib=80, gpus=NODE_GPUS)
        return SimulatedFleet(name=f"site-{self.key}", groups=(group,), zone="zone-1")

    def move_in(self) -> None:
        """Nodes with the label that hands them to EGS, taken in by the agent."""
        self.cluster.create(*(self.manifest(number) for number in range(self._count)))
        self.until("nodes taken in", lambda: all(name in self.states and self.states[name].view.ready for name in self.node_names))

    def manifest(self, number: int, *, is_managed: bool = True) -> Object:
        node = nodes_of(self._fleet)[number]
        if is_managed:
            node["metadata"]["labels"]["egs.io/managed"] = "true"
        return written(self.cluster, node)

    def manage(self, number: int) -> None:
        self.cluster.label("node", self.node_names[number], "egs.io/managed=true")

    def move_out(self) -> None:
        self.cluster.delete("node", *self.node_names)
        self.cluster.delete("secret", state_of(self.key), namespace=cluster_names.NAMESPACE)
        self.cluster.clear(*self._slices)

    @property
    def states(self) -> dict[str, NodeState]:
        return self.driver.observe()

    def node(self, number: int = 0) -> Object:
        found = self.cluster.get("node", self.node_names[number])
        assert found is not None
        return found

    def box_taint(self, number: int = 0) -> list[str]:
        return [taint["value"] for taint in self.node(number)["spec"].get("taints", []) if taint["key"] == "egs.io/box"]

    def guard(self, number: int = 0) -> str:
        found = self.cluster.get("bindguard", "nodes")
        assert found is not None
        return str(found["spec"]["nodes"].get(self.node_names[number], ""))

    def records(self, number: int = 0) -> dict[str, GpuRecord]:
        return self.states[self.node_names[number]].records

    # -- workspaces ----------------------------------------------------------------------------------------------------

    def make_slice(self, name: str, *, is_restricted: bool = False) -> str:
        """Makes a namespace that is bound to the slice of the same id; with `is_restricted` it has the pod security of a real workspace."""
        slice_ = f"{name}-{self.key}"
        labels = {f"{cluster_names.POD_SECURITY}enforce": "restricted"} if is_restricted else {}
        self.cluster.make_namespace(slice_, **{cluster_names.SLICE: slice_, **labels})
        self._slices.append(slice_)
        return slice_

    def pods(self, slice_: str) -> list[Object]:
        return self.cluster.list("pods", namespace=slice_)

    def running(self, slice_: str) -> list[Object]:
        return [pod for pod in self.pods(slice_) if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]]

    def gated(self, slice_: str) -> list[Object]:
        return [pod for pod in self.pods(slice_) if pod["spec"].get("schedulingGates")]

    def lifted(self, slice_: str) -> list[Object]:
        return [pod for pod in self.pods(slice_) if "egs.io/gpr" in pod["metadata"].get("labels", {})]

    def placed_count(self, gpr_id: str) -> int:
        """Lifted pods with a node, as the agent sees it: for measuring."""
        return sum(bool(pod.spec.nodeName) for pod in self.driver.lifted(gpr_id))

    def deploy(self, slice_: str, *, replicas: int, gpus: int, name: str = "train", cpu: str = "1", **devices: str) -> None:
        """Makes a Deployment, which makes its pods anew. They also ask for these `devices` of `egs.test`."""
        container = {
            "name": "main",
            "image": "none",
            "resources": {
                "limits": {"nvidia.com/gpu": str(gpus), "cpu": cpu, "memory": "1Gi"}
                | {f"egs.test/{key}": count for key, count in devices.items()}
            },
        }
        pod = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container], "terminationGracePeriodSeconds": 5}}
        spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": pod}
        about = {"name": name, "namespace": slice_}
        self.cluster.apply(written(self.cluster, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": about, "spec": spec}))

    def run_pod(self, slice_: str, name: str, *, gpus: int, labels: dict[str, str] | None = None) -> None:
        limits = {"nvidia.com/gpu": str(gpus), "cpu": "1", "memory": "1Gi"}
        container = {"name": "main", "image": "none", "resources": {"limits": limits}}
        spec = {"restartPolicy": "Never", "containers": [container]}
        about = {"name": name, "namespace": slice_, "labels": labels or {}}
        self.cluster.apply(written(self.cluster, {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec}))

    def run_pod_on(self, slice_: str, name: str, *, number: int) -> None:
        """Runs it as before EGS came: without a gate."""
        self.run_pod(slice_, name, gpus=1)
        ops: list[Object] = [
            {"op": "remove", "path": "/spec/schedulingGates/0"},
            {"op": "add", "path": "/spec/nodeSelector", "value": {"kubernetes.io/hostname": self.node_names[number]}},
        ]
        self.patch_pod(slice_, name, ops)

    # -- the hub -------------------------------------------------------------------------------------------------------

    def box(self, slice_: str, *, nodes: tuple[int, ...] = (0,), gpus: range = range(NODE_GPUS), **changes: Any) -> list[Assignment]:
        """Assignments of one GPR, a node each."""
        self._gprs += 1
        gpr_id = changes.pop("gpr_id", f"gpr-{self.key}-{self._gprs}")
        run = changes.get("run", 1)
        return [self._assignment(slice_, gpr_id, node, gpus, len(nodes), run, changes) for node in nodes]

    def _assignment(self, slice_: str, gpr_id: str, number: int, gpus: range, count: int, run: int, changes: dict[str, Any]) -> Assignment:
        view = self.states[self.node_names[number]].view
        epochs = [record.epoch for record in self.records(number).values()]
        default = Assignment(
            id=f"{gpr_id}-{run}-{number}",
            gpr_id=gpr_id,
            gpr_name="train",
            slice=slice_,
            slice_id=slice_,
            namespaces=(slice_,),
            node=view.name,
            node_uid=view.uid,
            gpus=tuple(view.gpus[index].uuid for index in gpus),
            epoch=max(epochs, default=0) + 1,
            desired=Desired.PRESENT,
            gang_count=count,
            not_before_s=0.0,
            enter_by_s=time.time() + 600,
            duration_s=600.0,
            not_after_s=None,
            entry_steps=("node_ready",),
            exit_steps=("drain", "gpu_idle"),
            drain=Drain(grace_s=5.0, force_after_s=10.0),
        )
        return msgspec.structs.replace(default, **changes)

    def tell(
        self,
        *assignments: Assignment,
        repairs_drift: bool = True,
        life: tuple[LifeMark, ...] | None = None,
        idle_releases: tuple[IdleRelease, ...] = (),
    ) -> None:
        """One sync: this is the whole set now."""
        self._generation += 1
        now = self.hub_clock.wall()
        reply = SyncReply(
            hub_id=HUB_ID,
            session_epoch=self.session_epoch,
            received_s=now,
            sent_s=now,
            lease_ttl_s=45.0,
            generation=self._generation,
            count=len(assignments),
            digest=set_digest(assignments),
            assignments=assignments,
            repairs_drift=repairs_drift,
            life=life,
            idle_releases=idle_releases,
        )
        sent = self.core.sync_request(0.0)
        self._heard_drifts += sent.request.drifts
        self.core.on_reply(sent, reply)

    @property
    def drifts(self) -> tuple[Drift, ...]:
        """All that the hub was told, and what it is to be told."""
        return (*self._heard_drifts, *self.core.link.drifts.untold)

    def observed(self, assignment: Assignment) -> Observed | None:
        return next((seen for seen in self.core.observed if seen.assignment_id == assignment.id), None)

    def is_in(self, phase: Phase, *assignments: Assignment) -> bool:
        return all((seen := self.observed(each)) is not None and seen.phase is phase for each in assignments)

    def take_events(self) -> list[StepEvent]:
        """All that wait, also those of a test before, which the cluster keeps."""
        return [event for event in self._take() if isinstance(event, StepEvent)]

    def take_views(self) -> list[NodeView]:
        """Returns views of nodes as the hub is told of them, the newest last."""
        return [view for event in self._take() if isinstance(event, InventoryEvent) for view in event.nodes]

    def _take(self) -> Iterator[AgentEvent]:
        while events := self.core.pending_events():
            self.core.acknowledge(session_epoch=self.session_epoch, stored_seq=events[-1].seq)
            yield from events

    # -- what goes wrong -----------------------------------------------------------------------------------------------

    def break_node(self, number: int = 0) -> None:
        """It is not ready, and its kubelet says nothing more."""
        self.patch_node({"metadata": {"annotations": {"kwok.x-k8s.io/node": None}}}, number)
        self.patch_node({"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}}, number)

    def mend_node(self, number: int = 0) -> None:
        self.patch_node({"metadata": {"annotations": {"kwok.x-k8s.io/node": "fake"}}}, number)

    def patch_node(self, patch: Object, number: int = 0) -> None:
        self.cluster.patch("node", self.node_names[number], patch, sub="status" if "status" in patch else "", type_=STRATEGIC)

    def patch_pod(self, slice_: str, name: str, ops: list[Object]) -> None:
        """Patches as the agent, since the policies take it from nobody else."""
        api = Api(self.access)
        api.patch(f"/api/v1/namespaces/{slice_}/pods/{name}", ops, msgspec.Raw)
        api.close()


def ended(*assignments: Assignment) -> list[Assignment]:
    return [msgspec.structs.replace(each, desired=Desired.ABSENT) for each in assignments]


@contextmanager
def moved_in(cluster: Cluster, *, nodes: int = 1) -> Iterator[Site]:
    """One that an agent has taken in; afterwards nothing of it is left."""
    site = Site(cluster, nodes=nodes)
    site.start()
    site.move_in()
    yield site
    site.stop()
    site.move_out()
