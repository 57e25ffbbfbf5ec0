"""The cluster of this world has two workspaces that run, one that attacks and one that is attacked, and the people who try.

Namespace `red` belongs to the workspace RED, which holds node-red; `blue`, the victim, to BLUE with node-blue; `loose` is nobody's.
The agent writes here as its service account, in the order and by the JSON Patches that the driver has to keep to.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from protocol import cluster_names
from tests.e2e.processes import ROOT, wait_for
from tests.kube.callers import DONE, Caller
from tests.kube.cluster import CLAIMS, MUTATING, SOON_S, Cluster, Object
from tests.kube.fleet_nodes import nodes_of
from tests.kube.wire import APPLY, JSON_PATCH
from tests.kube.written import gated, written
from worker_agent.cluster.fleet import NodeGroup, SimulatedFleet

RED, BLUE = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
RED_GPR, BLUE_GPR = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa", "bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb"
NODE_RED, NODE_BLUE = "fleet-gpu-01", "fleet-gpu-02"
FLEET = SimulatedFleet(
    name="fleet", groups=(NodeGroup(name="gpu", count=2, node_type="hgx-h100", gpu_model="H100", memory_gib=80, gpus=8),)
)

# u has the role of a workspace's users, a the ClusterRole admin, o everything in the namespace, n also writes namespaces; all these in
# `red`. s is as n, in `loose`.
PEOPLE: Final = ("u", "a", "o", "n", "s")
NAMESPACES: Final = {"u": "red", "a": "red", "o": "red", "n": "red", "s": "loose"}

KIND_OF_REQUEST: Final = {"apiVersion": "egs.io/v1alpha1", "kind": "GPUProvisioningRequest"}
RUNNING: Final = {cluster_names.GPU: "1", "cpu": "1", "memory": "1Gi"}  # what the pods that run ask for
RESTRICTED: Final = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def container(gpus: int | str | None = None, *, resource: str = cluster_names.GPU, **more: Any) -> Object:
    resources = {} if gpus is None else {"resources": {"limits": {resource: str(gpus)}}}
    return {"name": "main", "image": "none", "securityContext": RESTRICTED, **resources, **more}


def pod(name: str = "try", gpus: int | str | None = None, *, metadata: Object | None = None, **spec: Any) -> Object:
    """Returns a pod that Pod Security lets pass."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {"containers": [container(gpus)], **spec},
    }


def pods_path(namespace: str, name: str = "", sub: str = "") -> str:
    return "/".join(part for part in (f"/api/v1/namespaces/{namespace}/pods", name, sub) if part)


def gate_index(found: Object) -> int:
    return [gate["name"] for gate in found["spec"]["schedulingGates"]].index(cluster_names.GATE)


def is_gated(found: Object) -> bool:
    return any(gate["name"] == cluster_names.GATE for gate in found["spec"].get("schedulingGates", []))


def install(cluster: Cluster, *options: str, programs: Path | None = None) -> str:
    """Returns what deploy/agent/install says. `programs`: a folder that has another kubectl."""
    command = [str(ROOT / "deploy/agent/install"), *options]
    done = subprocess.run(command, env=cluster.settings(programs), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


@dataclass(slots=True)
class World:
    cluster: Cluster
    admin: Caller
    agent: Caller
    scheduler: Caller
    root: Caller
    people: dict[str, Caller] = field(default_factory=dict)

    # --- what the agent does

    def bind_namespace(self, name: str, slice_id: str) -> None:
        labels = {cluster_names.SLICE: slice_id, "pod-security.kubernetes.io/enforce": "restricted"}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        self.agent.patch(f"/api/v1/namespaces/{name}", body, kind=APPLY)

    def claim(self, node: str, *, gpr: str, slice_id: str) -> None:
        """Run 1 of the GPR gets the whole node: node first, then guard."""
        # A node that has just joined loses a taint of the control plane's at any moment: then it is read anew.
        wait_for(f"the box on {node}", lambda: self._is_marked(node, gpr=gpr, slice_id=slice_id), within_s=SOON_S)
        self.guard(node, f"@1,{slice_id}")

    def _is_marked(self, node: str, *, gpr: str, slice_id: str) -> bool:
        """Marks it, unless its taints have changed since they were read."""
        seen = self.admin.get(f"/api/v1/nodes/{node}")
        labels = {cluster_names.NODE_SLICE: slice_id, cluster_names.box_label(gpr): "1", cluster_names.NODE_UID: seen["metadata"]["uid"]}
        ops = [
            {"op": "test", "path": "/metadata/uid", "value": seen["metadata"]["uid"]},
            *({"op": "add", "path": cluster_names.pointer("metadata", "labels", key), "value": value} for key, value in labels.items()),
            *self._taint(seen, cluster_names.box_of(gpr, 1)),
        ]
        answer = self.agent.call("PATCH", f"/api/v1/nodes/{node}", ops, kind=JSON_PATCH, is_dry=False)
        assert answer.status in {200, 422}, answer.message
        return answer.outcome == DONE

    def guard(self, node: str, value: str) -> None:
        self.agent.patch(cluster_names.GUARD_PATH, [{"op": "add", "path": cluster_names.pointer("spec", "nodes", node), "value": value}])

    def lift(self, namespace: str, name: str, *, gpr: str) -> None:
        self.agent.patch(pods_path(namespace, name), self.lifting(self.admin.get(pods_path(namespace, name)), gpr=gpr))

    @staticmethod
    def lifting(seen: Object, *, gpr: str) -> list[Object]:
        """The one patch that lifts a pod as it was seen."""
        index = gate_index(seen)
        toleration = {
            "key": cluster_names.TAINT,
            "operator": "Equal",
            "value": cluster_names.box_of(gpr, 1),
            "effect": cluster_names.TAINT_EFFECT,
        }
        select = {"op": "add", "path": cluster_names.pointer("spec", "nodeSelector", cluster_names.box_label(gpr)), "value": "1"}
        label = {"op": "add", "path": cluster_names.pointer("metadata", "labels", cluster_names.POD_GPR), "value": gpr}
        return [
            {"op": "test", "path": "/metadata/uid", "value": seen["metadata"]["uid"]},
            {"op": "test", "path": f"/spec/schedulingGates/{index}/name", "value": cluster_names.GATE},
            {"op": "remove", "path": f"/spec/schedulingGates/{index}"},
            {"op": "add", "path": "/spec/tolerations/-", "value": toleration},
            *([] if "nodeSelector" in seen["spec"] else [{"op": "add", "path": "/spec/nodeSelector", "value": {}}]),
            select,
            *([] if "labels" in seen["metadata"] else [{"op": "add", "path": "/metadata/labels", "value": {}}]),
            label,
        ]

    @staticmethod
    def _taint(seen: Object, value: str) -> list[Object]:
        index = [taint["key"] for taint in seen["spec"]["taints"]].index(cluster_names.TAINT)
        taint = {"key": cluster_names.TAINT, "value": value, "effect": cluster_names.TAINT_EFFECT}
        return [
            {"op": "test", "path": f"/spec/taints/{index}/key", "value": cluster_names.TAINT},
            {"op": "replace", "path": f"/spec/taints/{index}", "value": taint},
        ]

    # --- what is seen

    def node_of(self, namespace: str, name: str) -> str:
        """Returns the node that the pod is bound to, or ""."""
        return str(self.admin.get(pods_path(namespace, name))["spec"].get("nodeName", ""))

    def pod_once(self, namespace: str, name: str, what: str, holds: Callable[[Object], bool]) -> Object:
        def look() -> Object | None:
            found = self.admin.get(pods_path(namespace, name))
            return found if holds(found) else None

        return wait_for(f"{namespace}/{name} {what}", look, within_s=SOON_S)

    def running(self, namespace: str, name: str) -> Object:
        return self.pod_once(namespace, name, "runs", lambda found: bool(found["status"]["phase"] == "Running"))

    def refused_by_scheduler(self, namespace: str, name: str) -> Object:
        """The pod, once the scheduler has found no node for it."""
        return self.pod_once(namespace, name, "has no node", lambda found: scheduling_reason(found) == "Unschedulable")


def scheduling_reason(found: Object) -> str:
    conditions = found["status"].get("conditions", [])
    return next((str(each.get("reason", "")) for each in conditions if each["type"] == "PodScheduled"), "")


@contextmanager
def new_world(cluster: Cluster) -> Iterator[World]:
    """Makes the world in a cluster with the isolation: red and blue have a pod that runs on GPUs, red and loose have pods that wait."""
    admin = Caller(cluster)
    people_of(cluster)
    token = partial(_token_of, admin)
    world = World(
        cluster=cluster,
        admin=admin,
        agent=Caller(cluster, token=token(cluster_names.NAMESPACE, cluster_names.AGENT)),
        scheduler=Caller(cluster, who="kube-scheduler"),
        root=Caller(cluster, token=token("people", "root")),
        people={who: Caller(cluster, token=token("people", who)) for who in PEOPLE},
    )
    for name, slice_id in (("red", RED), ("blue", BLUE)):
        world.bind_namespace(name, slice_id)
    cluster.apply(*rights_of_people(), *priority_classes(), *(written(cluster, node) for node in managed_nodes()))
    for name in ("red", "blue", "loose"):
        wait_for("its service account", lambda name=name: cluster.get("serviceaccount", "default", namespace=name), within_s=SOON_S)
    for node, gpr, slice_id, namespace, name in ((NODE_RED, RED_GPR, RED, "red", "mine"), (NODE_BLUE, BLUE_GPR, BLUE, "blue", "victim")):
        world.claim(node, gpr=gpr, slice_id=slice_id)
        world.admin.make(pods_path(namespace), pod(name, containers=[container(resources={"limits": RUNNING, "requests": RUNNING})]))
        world.lift(namespace, name, gpr=gpr)
    for namespace in ("red", "loose"):
        make_targets(world, namespace)
        file_request(world, namespace)
    assert world.running("red", "mine")["spec"]["nodeName"] == NODE_RED
    assert world.running("blue", "victim")["spec"]["nodeName"] == NODE_BLUE
    # As a kubelet says that it can resize.
    resizable = {"op": "add", "path": "/status/containerStatuses/0/resources", "value": {"requests": RUNNING}}
    world.admin.patch(pods_path("red", "mine", "status"), [resizable])
    try:
        yield world
    finally:
        for caller in (world.admin, world.agent, world.scheduler, world.root, *world.people.values()):
            caller.close()


def file_request(world: World, namespace: str) -> None:
    """An administrator's request `filed`, unless it is there; members may delete it."""
    filed = {
        "metadata": {"name": "filed", "annotations": {cluster_names.REQUESTER: "admin"}},
        "spec": {"shape": "H100-80GB", "duration": "1h"},
    }
    path = f"/apis/egs.io/v1alpha1/namespaces/{namespace}/gpuprovisioningrequests"
    world.admin.call("POST", path, {**KIND_OF_REQUEST, **filed}, is_dry=False)


def make_targets(world: World, namespace: str) -> None:
    own_gate, gate = {"name": "own.io/gate"}, {"name": cluster_names.GATE}
    world.admin.make(pods_path(namespace), pod("gated", 1, schedulingGates=[own_gate]))
    world.admin.make(pods_path(namespace), pod("cpu"))
    if not world.cluster.has(MUTATING):
        # Its gate is there without their having applied it, as if it had been added to what they applied.
        world.admin.make(pods_path(namespace), gated(pod("plain", 1)))
    for applied in (pod("applied", 1, schedulingGates=[gate]), pod("plain", 1)):
        world.admin.call("PATCH", pods_path(namespace, applied["metadata"]["name"]), applied, kind=APPLY, is_dry=False)
    if not world.cluster.has(CLAIMS):
        return
    world.admin.make(
        f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims",
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "claim"},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}},
        },
    )


def people_of(cluster: Cluster) -> None:
    """Makes service accounts in a namespace of their own."""
    spaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in ("people", "loose")]
    accounts = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": who, "namespace": "people"}} for who in (*PEOPLE, "root")
    ]
    cluster.apply(*spaces, *accounts)


def rights_of_people() -> list[Object]:
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    spaces = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "create", "update", "patch"]}
    roles = [_role("Role", "everything", everything, namespace=name) for name in ("red", "loose")]
    bound = {"u": ("ClusterRole", "egs-slice-user"), "a": ("ClusterRole", "admin")} | dict.fromkeys("ons", ("Role", "everything"))
    bindings = [_bound("RoleBinding", who, *bound[who], namespace=NAMESPACES[who]) for who in PEOPLE]
    writers = [_bound("ClusterRoleBinding", who, "ClusterRole", "test-namespaces") for who in ("n", "s")]
    root = _bound("ClusterRoleBinding", "root", "ClusterRole", "cluster-admin")
    return [*roles, _role("ClusterRole", "test-namespaces", spaces), *bindings, *writers, root]


def priority_classes() -> list[Object]:
    def made(name: str, value: int, policy: str) -> Object:
        return {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "preemptionPolicy": policy,
        }

    return [made("pushes", 1000, "PreemptLowerPriority"), made("waits", 1000, "Never"), made("below", -10, "PreemptLowerPriority")]


def managed_nodes() -> list[Object]:
    """They join with the label alone: the taint is admission's, where it gives any."""
    nodes = nodes_of(FLEET)
    for node in nodes:
        node["metadata"]["labels"][cluster_names.MANAGED] = "true"
    return nodes


def _token_of(admin: Caller, namespace: str, account: str) -> str:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    return str(admin.make(path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})["status"]["token"])


def _role(kind: str, name: str, rule: Object, *, namespace: str = "") -> Object:
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": _named(name, namespace), "rules": [rule]}


def _bound(kind: str, who: str, role_kind: str, role: str, *, namespace: str = "") -> Object:
    subject = {"kind": "ServiceAccount", "name": who, "namespace": "people"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": _named(f"test-{who}", namespace),
        "roleRef": reference,
        "subjects": [subject],
    }


def _named(name: str, namespace: str) -> Object:
    return {"name": name, "namespace": namespace} if namespace else {"name": name}
