"""The agent has the rights that its calls need, and no other; and who steals its token gets no further than workspaces' namespaces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml

from tests.e2e.processes import ROOT, wait_for
from tests.kube.attacks.attack import eviction
from tests.kube.callers import APPLY, DONE, JSON_PATCH, MERGE, Answer, Caller
from tests.kube.cluster import SOON_S, Object
from tests.kube.world import KIND_OF_REQUEST, NODE_RED, RED, World, container, pod, pods_path
from worker_agent.kube import names
from worker_agent.kube.installed import PLURALS

SYSTEM: Final = f"/api/v1/namespaces/{names.NAMESPACE}"
RED_SPACE: Final = "/api/v1/namespaces/red"
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
LEASE: Final = f"/apis/coordination.k8s.io/v1/namespaces/{names.NAMESPACE}/leases/egs-agent"
JOBS: Final = f"/apis/batch/v1/namespaces/{names.NAMESPACE}/jobs"
WATCH: Final = {"watch": "true", "timeoutSeconds": "1"}

Call = tuple[str, str, Any, dict[str, Any]]


def get(path: str, **params: str) -> Call:
    return "GET", path, None, params


def post(path: str, body: Object) -> Call:
    return "POST", path, body, {}


def patch(path: str, body: Object) -> Call:
    return "PATCH", path, body, {"kind": MERGE}


def delete(path: str) -> Call:
    return "DELETE", path, None, {}


def put(path: str) -> Call:
    """As it was read."""
    return "PUT", path, None, {}


def applied(path: str, kind: str, api: str = "v1", **more: Any) -> Call:
    """Server-side apply of what is not there: it asks for the right to create as well."""
    name = path.rpartition("/")[2]
    return "PATCH", path, {"apiVersion": api, "kind": kind, "metadata": {"name": name}, **more}, {"kind": APPLY}


def role_binding(role: str) -> Object:
    return {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}}


def of_namespace(path: str, kind: str, api: str, **more: Any) -> dict[str, Call]:
    """What the agent does with what it keeps in a workspace's namespace, by verb."""
    return {
        "list": get(path),
        "create": applied(f"{path}/egs-try", kind, api, **more),
        "patch": applied(f"{path}/egs-try", kind, api, **more),
        "delete": delete(f"{path}/egs-try"),
    }


def keyed(resource: str, calls: dict[str, Call]) -> dict[str, Call]:
    return {f"{verb} {resource}": call for verb, call in calls.items()}


def reading(path: str) -> dict[str, Call]:
    return {"list": get(path), "watch": get(path, **WATCH)}


EVENT: Final = {"metadata": {"name": "egs-try"}, "involvedObject": {"kind": "Pod", "namespace": "red", "name": "mine"}, "reason": "Try"}
JOB: Final = {"metadata": {"name": "egs-try"}, "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container(8)]}}}}
ACCOUNTS: Final = f"{RED_SPACE}/serviceaccounts"
BINDINGS: Final = f"{RBAC}/namespaces/red/rolebindings"
BINDING: Final = role_binding("egs-slice-user")
ITSELF: Final = {"kind": "ServiceAccount", "name": "egs-agent", "namespace": names.NAMESPACE}

EGS: Final = "/apis/egs.io/v1alpha1"
REQUESTS, TEMPLATES = f"{EGS}/gpuprovisioningrequests", f"{EGS}/gprtemplates"
RED_REQUESTS, RED_TEMPLATES = (f"{EGS}/namespaces/red/{kind}" for kind in ("gpuprovisioningrequests", "gprtemplates"))
SPACES: Final = f"{EGS}/namespaces/red/workspaces"
REQUEST: Final = {**KIND_OF_REQUEST, "metadata": {"name": "egs-try"}, "spec": {"shape": "H100-80GB", "duration": "1h"}}

# By verb and resource, as the manifest names them: the call that it is for.
CALLS: Final[dict[str, Call]] = {
    **keyed(
        "nodes", {"get": get(f"/api/v1/nodes/{NODE_RED}"), "patch": patch(f"/api/v1/nodes/{NODE_RED}", {}), **reading("/api/v1/nodes")}
    ),
    **keyed("bindguards", {"get": get(names.GUARD_PATH), "patch": patch(names.GUARD_PATH, {})}),
    **keyed("pods", {"patch": patch(pods_path("red", "mine"), {}), **reading("/api/v1/pods")}),
    **keyed("pods", {"delete": delete(pods_path("red", "mine"))}),
    **keyed("pods/eviction", {"create": post(pods_path("red", "mine", "eviction"), eviction("mine", 0))}),
    **keyed("namespaces", {"get": get("/api/v1/namespaces/kube-system"), "patch": patch(RED_SPACE, {}), **reading("/api/v1/namespaces")}),
    **keyed("namespaces", {"create": applied("/api/v1/namespaces/fresh", "Namespace")}),
    **keyed(
        "networkpolicies",
        of_namespace("/apis/networking.k8s.io/v1/namespaces/red/networkpolicies", "NetworkPolicy", "networking.k8s.io/v1"),
    ),
    **keyed("resourcequotas", of_namespace(f"{RED_SPACE}/resourcequotas", "ResourceQuota", "v1", spec={"hard": {"pods": "100"}})),
    **keyed("rolebindings", of_namespace(BINDINGS, "RoleBinding", "rbac.authorization.k8s.io/v1", **BINDING)),
    **keyed("clusterroles", {"bind": applied(f"{BINDINGS}/egs-try", "RoleBinding", "rbac.authorization.k8s.io/v1", **BINDING)}),
    **keyed("serviceaccounts", of_namespace(ACCOUNTS, "ServiceAccount", "v1")),
    **keyed(
        "serviceaccounts/token",
        {"create": post(f"{ACCOUNTS}/egs-try/token", {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"})},
    ),
    **keyed("persistentvolumeclaims", {"list": get("/api/v1/namespaces/red/persistentvolumeclaims")}),
    **keyed("persistentvolumes", {"get": get("/api/v1/persistentvolumes/egs-try")}),
    **keyed("volumeattachments", {"list": get("/apis/storage.k8s.io/v1/volumeattachments")}),
    **{f"get {plural}": get(f"{ADMISSION}/{plural}/egs-pod") for plural in PLURALS.values() if plural.startswith(("valid", "mutat"))},
    **keyed("clusterroles", {"get": get(f"{RBAC}/clusterroles/egs-slice-user")}),
    **keyed("clusterrolebindings", {"get": get(f"{RBAC}/clusterrolebindings/egs-agent")}),
    **{f"get {plural}": get(f"{RBAC}/namespaces/{names.NAMESPACE}/{plural}/egs-agent") for plural in ("roles", "rolebindings")},
    **keyed("customresourcedefinitions", {"get": get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/workspaces.egs.io")}),
    **keyed("priorityclasses", {"list": get("/apis/scheduling.k8s.io/v1/priorityclasses")}),
    **keyed("configmaps", {"get": get(f"{SYSTEM}/configmaps/egs-installed")}),
    **keyed("events", {"create": post(f"{RED_SPACE}/events", EVENT)}),
    **keyed(
        "gpuprovisioningrequests",
        {"create": post(RED_REQUESTS, REQUEST), "patch": patch(f"{RED_REQUESTS}/filed", {}), **reading(REQUESTS)},
    ),
    **{f"get {plural}": get(f"/apis/apps/v1/namespaces/red/{plural}/egs-try") for plural in ("replicasets", "statefulsets")},
    **keyed("jobs", {"get": get("/apis/batch/v1/namespaces/red/jobs/egs-try")}),
    **keyed("gprtemplates", reading(TEMPLATES)),
    **keyed("gpuprovisioningrequests/status", {"patch": patch(f"{RED_REQUESTS}/filed/status", {})}),
    **keyed("gprtemplates/status", {"patch": patch(f"{RED_TEMPLATES}/egs-try/status", {})}),
    **keyed("workspaces", of_namespace(SPACES, "Workspace", "egs.io/v1alpha1", spec={"id": RED})),
    **keyed("workspaces/status", {"patch": patch(f"{SPACES}/egs-try/status", {})}),
    **keyed("leases", {"get": get(LEASE), "update": put(LEASE)}),
    **keyed("secrets", {"get": get(f"{SYSTEM}/secrets/egs-agent-state"), "update": put(f"{SYSTEM}/secrets/egs-agent-state")}),
    **keyed("jobs", {"list": get(JOBS), "create": post(JOBS, JOB), "delete": delete(f"{JOBS}/egs-try")}),
    **keyed("pods/log", {"get": get(pods_path(names.NAMESPACE, "egs-try", "log"))}),
}


def roles() -> list[Object]:
    """The agent's ClusterRole, and its Role."""
    found = yaml.safe_load_all((ROOT / "deploy/agent/system.yaml").read_text())
    return [each for each in found if each["kind"] in {"ClusterRole", "Role"} and each["metadata"]["name"] == "egs-agent"]


RIGHTS: Final = [
    f"{verb} {resource}" for role in roles() for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]
]


def made(caller: Caller, admin: Caller, right: str, *, user: str = "") -> Answer:
    method, path, body, more = CALLS[right]
    given = admin.get(path) if method == "PUT" else body
    return caller.call(method, path, given, user=user, **more)


def test_each_right_has_a_call_that_it_is_for() -> None:
    assert sorted(RIGHTS) == sorted(CALLS)


@pytest.mark.parametrize("right", RIGHTS)
def test_with_all_rights_the_agent_may(right: str, world: World) -> None:
    """What is not there is not found: who has no right is told that before."""
    assert made(world.agent, world.admin, right).outcome in {DONE, "404"}


@pytest.fixture
def reduced(request: pytest.FixtureRequest, world: World) -> Iterator[str]:
    """Somebody with all rights of the agent but one."""
    right = str(request.param)
    user = "test-" + right.replace(" ", "-").replace("/", "-")
    paths = [path for role in roles() for path in reduced_role(world.admin, role, right, user)]
    # The API server knows of roles a moment later.
    other = "get nodes" if right != "get nodes" else "list nodes"
    for known in (other, "get leases" if right != "get leases" else "update leases"):
        wait_for("the rights", lambda known=known: made(world.admin, world.admin, known, user=user).outcome == DONE, within_s=SOON_S)
    yield user
    for path in paths:
        world.admin.call("DELETE", path, is_dry=False)


def reduced_role(admin: Caller, role: Object, right: str, user: str) -> Iterator[str]:
    """Paths of what it made."""
    verb, resource = right.split()
    rules = []
    for rule in role["rules"]:
        rules += [
            {**rule, "resources": [each], "verbs": [v for v in rule["verbs"] if (v, each) != (verb, resource)]}
            for each in rule["resources"]
        ]
    base = f"{RBAC}/namespaces/{names.NAMESPACE}" if role["kind"] == "Role" else RBAC
    kind = role["kind"].lower()
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": role["kind"], "name": user}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    about = {"metadata": {"name": user}}
    admin.make(f"{base}/{kind}s", {**about, "rules": [rule for rule in rules if rule["verbs"]]})
    yield f"{base}/{kind}s/{user}"
    admin.make(f"{base}/{kind}bindings", {**about, "roleRef": reference, "subjects": [subject]})
    yield f"{base}/{kind}bindings/{user}"


@pytest.mark.parametrize(("reduced", "right"), [(right, right) for right in RIGHTS], indirect=["reduced"], ids=RIGHTS)
def test_without_a_right_the_agent_may_not(reduced: str, right: str, world: World) -> None:
    assert made(world.admin, world.admin, right, user=reduced).outcome == "RBAC"


# --- with a stolen token


def labels(**more: str | None) -> Object:
    return {"metadata": {"labels": {names.SLICE: RED, "pod-security.kubernetes.io/enforce": "restricted", **more}}}


TOKEN: Final = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
GUARDED: Final = "system-pod"  # in kube-system

# What a thief tries, the call, and who refuses.
MISUSES: Final[dict[str, tuple[Call, str]]] = {
    "another image for a pod of the system": (
        (
            "PATCH",
            pods_path("kube-system", GUARDED),
            [{"op": "replace", "path": "/spec/containers/0/image", "value": "mine"}],
            {"kind": JSON_PATCH},
        ),
        "egs-agent",
    ),
    "to delete a pod of the system": (delete(pods_path("kube-system", GUARDED)), "egs-agent"),
    "to evict a pod of the system": (post(pods_path("kube-system", GUARDED, "eviction"), eviction(GUARDED, 5)), "egs-agent"),
    "a token of the system's controllers": (
        post("/api/v1/namespaces/kube-system/serviceaccounts/clusterrole-aggregation-controller/token", TOKEN),
        "egs-agent",
    ),
    "a token of an account that EGS did not make": (post(f"{ACCOUNTS}/default/token", TOKEN), "egs-agent"),
    "a token in a namespace of no workspace": (post("/api/v1/namespaces/loose/serviceaccounts/default/token", TOKEN), "egs-agent"),
    "an account that poses as another's": (post(ACCOUNTS, {"metadata": {"name": "deployer"}}), "egs-agent"),
    "a workspace's rights in kube-system": (
        post(f"{RBAC}/namespaces/kube-system/rolebindings", {"metadata": {"name": "egs-try"}, **BINDING}),
        "egs-agent",
    ),
    "an administrator's rights in a workspace": (
        post(BINDINGS, {"metadata": {"name": "egs-try"}, **role_binding("cluster-admin")}),
        "RBAC",
    ),
    "kube-system as a workspace's namespace": (patch("/api/v1/namespaces/kube-system", labels()), "egs-agent-namespace"),
    "the namespace default as a workspace's": (patch("/api/v1/namespaces/default", labels()), "egs-agent-namespace"),
    "egs-system as a workspace's namespace": (patch(SYSTEM, labels()), "egs-agent-namespace"),
    "to exempt a workspace's namespace": (patch(RED_SPACE, labels(**{names.EXEMPT: "true"})), "egs-agent-namespace"),
    "to enter all workspaces from a workspace's namespace": (patch(RED_SPACE, labels(**{names.MAY_ENTER: "true"})), "egs-agent-namespace"),
    "to enter all workspaces from a namespace that was there before": (
        patch("/api/v1/namespaces/loose", {"metadata": {"labels": {names.MAY_ENTER: "true"}}}),
        "egs-agent-namespace",
    ),
    "a new namespace that enters all workspaces": (
        post("/api/v1/namespaces", {"metadata": {"name": "try", **labels(**{names.MAY_ENTER: "true"})["metadata"]}}),
        "egs-agent-namespace",
    ),
    "an exempt namespace for a workspace": (patch("/api/v1/namespaces/spared", labels(**{names.EXEMPT: None})), "egs-agent-namespace"),
    "privileged pods in a workspace's namespace": (
        patch(RED_SPACE, labels(**{"pod-security.kubernetes.io/enforce": "privileged"})),
        "egs-agent-namespace",
    ),
    "privileged pods once it is no workspace's any more": (
        patch(RED_SPACE, labels(**{names.SLICE: None, "pod-security.kubernetes.io/enforce": "privileged"})),
        "egs-agent-namespace",
    ),
    "a new namespace for privileged pods": (
        post("/api/v1/namespaces", {"metadata": {"name": "try", "labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}),
        "egs-agent-namespace",
    ),
    "the taints off a node of the control plane": (patch("/api/v1/nodes/control", {"spec": {"taints": None}}), "egs-agent-node"),
    "no fence around a namespace of no workspace": (
        delete("/apis/networking.k8s.io/v1/namespaces/loose/networkpolicies/fence"),
        "egs-agent",
    ),
    "the secrets of the system": (get("/api/v1/namespaces/kube-system/secrets"), "RBAC"),
    "the secrets of a workspace": (get(f"{RED_SPACE}/secrets"), "RBAC"),
    "a namespace that was there before": (patch("/api/v1/namespaces/loose", labels()), "egs-agent-namespace"),
    "a workspace object in a namespace of no workspace": (
        post(
            f"{EGS}/namespaces/loose/workspaces",
            {"apiVersion": "egs.io/v1alpha1", "kind": "Workspace", "metadata": {"name": "egs-try"}, "spec": {"id": RED}},
        ),
        "egs-agent",
    ),
    "a request in a namespace of no workspace": (post(f"{EGS}/namespaces/loose/gpuprovisioningrequests", REQUEST), "egs-agent"),
    "a role for itself": (
        post(BINDINGS, {"metadata": {"name": "egs-try"}, "subjects": [ITSELF], **BINDING}),
        "egs-agent",
    ),
    "a pod": (post(pods_path(names.NAMESPACE), pod()), "RBAC"),
    "a policy off": (delete("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/egs-agent"), "RBAC"),
    "a pod bound by hand": (post(pods_path("red", "gated", "binding"), {"target": {"kind": "Node", "name": NODE_RED}}), "RBAC"),
}


@pytest.fixture(scope="module")
def bystanders(world: World) -> Iterator[None]:
    """A pod of the system, an exempt namespace, a fence in one of no workspace, and a node that EGS does not manage."""
    fence = "/apis/networking.k8s.io/v1/namespaces/loose/networkpolicies"
    world.admin.make("/api/v1/namespaces", {"metadata": {"name": "spared", "labels": {names.EXEMPT: "true"}}})
    wait_for("an account", lambda: world.cluster.get("serviceaccount", "default", namespace="kube-system"), within_s=SOON_S)
    world.admin.make(pods_path("kube-system"), pod(GUARDED))
    taint = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
    world.admin.make("/api/v1/nodes", {"metadata": {"name": "control"}, "spec": {"taints": [taint]}})
    world.admin.make(fence, {"metadata": {"name": "fence"}, "spec": {"podSelector": {}}})
    yield
    for path in (pods_path("kube-system", GUARDED), f"{fence}/fence", "/api/v1/namespaces/spared", "/api/v1/nodes/control"):
        world.admin.call("DELETE", path, is_dry=False)


@pytest.mark.usefixtures("bystanders")
@pytest.mark.parametrize("misuse", MISUSES)
def test_a_thief_of_the_agents_token_does_not_get(misuse: str, world: World) -> None:
    (method, path, body, more), refusal = MISUSES[misuse]

    assert world.agent.call(method, path, body, **more).outcome == refusal


SECURE: Final = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"], "add": ["SYSLOG"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def of_egs(*, spec: Object | None = None, **security: Any) -> Object:
    """As a check's pod is, but for what is given."""
    secured = container() | {"securityContext": SECURE | security}
    return {"metadata": {"name": "try"}, "spec": {"restartPolicy": "Never", "containers": [secured], **(spec or {})}}


@pytest.mark.parametrize(
    ("what", "tried"),
    [
        ("the node's processes", of_egs(spec={"hostPID": True})),
        ("the node's network", of_egs(spec={"hostNetwork": True})),
        ("the node's files", of_egs(spec={"volumes": [{"name": "root", "hostPath": {"path": "/"}}]})),
        ("a volume of somebody", of_egs(spec={"volumes": [{"name": "data", "nfs": {"server": "nas", "path": "/"}}]})),
        ("all devices", of_egs(privileged=True, allowPrivilegeEscalation=True)),
        ("more than it was given", of_egs(allowPrivilegeEscalation=True)),
        ("another capability", of_egs(capabilities={"drop": ["ALL"], "add": ["SYS_ADMIN"]})),
        ("the usual capabilities", of_egs(capabilities={"add": ["SYSLOG"]})),
        ("all system calls", of_egs(seccompProfile={"type": "Unconfined"})),
        ("all of it in what runs first", of_egs(spec={"initContainers": [container(securityContext={}) | {"name": "init"}]})),
    ],
)
def test_a_pod_in_the_agents_namespace_does_not_get(what: str, tried: Object, world: World) -> None:
    """The agent may make Jobs there, so a thief of its token may; their pods come no further than this."""
    assert world.admin.call("POST", pods_path(names.NAMESPACE), of_egs()).outcome == DONE
    assert world.admin.call("POST", pods_path(names.NAMESPACE), tried).outcome == "egs-own-pod"
