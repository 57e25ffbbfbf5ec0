"""The agent has the rights that its calls need, and no other; and who steals its token gets no further than workspaces' namespaces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pytest
import yaml

from protocol import cluster_names
from tests.e2e.processes import ROOT, wait_for
from tests.kube.callers import DONE, Answer, Caller
from tests.kube.cluster import CLAIMS, SOON_S, Object
from tests.kube.isolation.attacks.attack import eviction
from tests.kube.wire import APPLY, JSON_PATCH, MERGE
from tests.kube.world import BLUE, KIND_OF_REQUEST, NODE_BLUE, NODE_RED, RED, World, container, file_request, pod, pods_path
from worker_agent.kube.api.installed import PLURALS
from worker_agent.kube.checks.jobs import CheckJob, manifest

SYSTEM: Final = f"/api/v1/namespaces/{cluster_names.NAMESPACE}"
RED_SPACE: Final = "/api/v1/namespaces/red"
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
LEASE: Final = f"/apis/coordination.k8s.io/v1/namespaces/{cluster_names.NAMESPACE}/leases/egs-agent"
CHECK: Final = CheckJob(
    owner="try", epoch=1, step="gpu_count", attempt=1, nodes=(NODE_RED,), image="none", command=("true",), deadline_s=60
)
JOB: Final = manifest(CHECK)
JOBS: Final = f"/apis/batch/v1/namespaces/{cluster_names.NAMESPACE}/jobs"
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
    return "PUT", path, None, {}


def applied(path: str, kind: str, api: str = "v1", **more: Any) -> Call:
    """Server-side apply of what is not there: it asks for the right to create as well."""
    name = path.rpartition("/")[2]
    return "PATCH", path, {"apiVersion": api, "kind": kind, "metadata": {"name": name}, **more}, {"kind": APPLY}


def role_binding(role: str) -> Object:
    return {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}}


def of_namespace(path: str, kind: str, api: str, **more: Any) -> dict[str, Call]:
    """Returns what the agent does with what it keeps in a workspace's namespace, by verb."""
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
FRESH: Final = {"metadata": {"name": "fresh", "labels": {cluster_names.SLICE: RED, "pod-security.kubernetes.io/enforce": "restricted"}}}
ACCOUNTS: Final = f"/api/v1/namespaces/{cluster_names.ACCOUNTS}/serviceaccounts"
BINDINGS: Final = f"{RBAC}/namespaces/red/rolebindings"
BINDING: Final = role_binding("egs-slice-user")
ITSELF: Final = {"kind": "ServiceAccount", "name": "egs-agent", "namespace": cluster_names.NAMESPACE}

EGS: Final = "/apis/egs.io/v1alpha1"
REQUESTS, TEMPLATES = f"{EGS}/gpuprovisioningrequests", f"{EGS}/gprtemplates"
RED_REQUESTS, RED_TEMPLATES = (f"{EGS}/namespaces/red/{kind}" for kind in ("gpuprovisioningrequests", "gprtemplates"))
SPACES: Final = f"{EGS}/namespaces/red/workspaces"
REQUEST: Final = {**KIND_OF_REQUEST, "metadata": {"name": "egs-try"}, "spec": {"shape": "H100-80GB", "duration": "1h"}}

OF_JOBS: Final = (
    "/api/v1/services",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/statefulsets",
    "/apis/jobset.x-k8s.io/v1alpha2/jobsets",
    "/apis/kubeflow.org/v1/pytorchjobs",
    "/apis/kubeflow.org/v2beta1/mpijobs",
)


def made_and_deleted(path: str) -> dict[str, Call]:
    """Returns what the agent does with an object of a job, of the kind that is listed there."""
    group, _, plural = path.rpartition("/")
    inside = f"{group}/namespaces/red/{plural}"
    return {"list": get(path), "create": post(inside, of_job(plural)), "delete": delete(f"{inside}/egs-try")}


def of_job(plural: str, *, labels: Object | None = None, **spec: Any) -> Object:
    words = {cluster_names.JOB: "try"} if labels is None else labels
    job = {"template": {"spec": {"containers": [container()], "restartPolicy": "Never"}}}
    server = {
        "selector": {"matchLabels": {"of": "try"}},
        "template": {"metadata": {"labels": {"of": "try"}}, "spec": {"containers": [container()]}},
    }
    needed: dict[str, Object] = {"services": {"ports": [{"port": 80}]}, "jobs": job, "deployments": server, "statefulsets": server}
    return {"metadata": {"name": "of-job", "labels": words}, "spec": {**needed.get(plural, {}), **spec}}


INGRESSES: Final = "/apis/networking.k8s.io/v1/namespaces/red/ingresses"


def part_of(kind: str, *, owner: str = "lab", of: Object | None = None, **spec: Any) -> Object:
    """Returns a secret or an ingress of the notebook `lab`."""
    owners = [{"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": "5c4b3a29-1807-4e6d-8c5b-4a3928170f6e"}]
    metadata = {"name": "lab", "labels": {cluster_names.JOB: "try"}, "ownerReferences": owners}
    return {"metadata": metadata, **({"stringData": {"token": "x"}, **(of or {})} if kind == "Secret" else {"spec": spec})}


def leading_to(service: str, *, host: str = "lab.nb.example.org") -> Object:
    backend = {"service": {"name": service, "port": {"number": 8888}}}
    return {"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}


# By verb and resource, as the manifest names them: the call that it is for.
CALLS: Final[dict[str, Call]] = {
    **keyed(
        "nodes", {"get": get(f"/api/v1/nodes/{NODE_RED}"), "patch": patch(f"/api/v1/nodes/{NODE_RED}", {}), **reading("/api/v1/nodes")}
    ),
    **keyed("bindguards", {"get": get(cluster_names.GUARD_PATH), "patch": patch(cluster_names.GUARD_PATH, {})}),
    **keyed("pods", {"patch": patch(pods_path("red", "mine"), {}), **reading("/api/v1/pods")}),
    **keyed("pods", {"delete": delete(pods_path("red", "mine"))}),
    **keyed("pods/eviction", {"create": post(pods_path("red", "mine", "eviction"), eviction("mine", 0))}),
    **keyed("namespaces", {"get": get("/api/v1/namespaces/kube-system"), "patch": patch(RED_SPACE, {}), **reading("/api/v1/namespaces")}),
    **keyed("namespaces", {"create": post("/api/v1/namespaces", FRESH)}),
    **keyed(
        "networkpolicies",
        of_namespace("/apis/networking.k8s.io/v1/namespaces/red/networkpolicies", "NetworkPolicy", "networking.k8s.io/v1"),
    ),
    **keyed("resourcequotas", of_namespace(f"{RED_SPACE}/resourcequotas", "ResourceQuota", "v1", spec={"hard": {"pods": "100"}})),
    **keyed("limitranges", of_namespace(f"{RED_SPACE}/limitranges", "LimitRange", "v1", spec={"limits": [{"type": "Container"}]})),
    **keyed("rolebindings", of_namespace(BINDINGS, "RoleBinding", "rbac.authorization.k8s.io/v1", **BINDING)),
    **keyed("clusterroles", {"bind": applied(f"{BINDINGS}/egs-try", "RoleBinding", "rbac.authorization.k8s.io/v1", **BINDING)}),
    **keyed("serviceaccounts", of_namespace(ACCOUNTS, "ServiceAccount", "v1")),
    **keyed(
        "serviceaccounts/token",
        {"create": post(f"{ACCOUNTS}/egs-try/token", {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"})},
    ),
    **keyed("persistentvolumeclaims", {"list": get("/api/v1/namespaces/red/persistentvolumeclaims")}),
    **keyed("persistentvolumes", {"get": get("/api/v1/persistentvolumes/egs-try"), "list": get("/api/v1/persistentvolumes")}),
    **keyed("clusterrolebindings", {"list": get(f"{RBAC}/clusterrolebindings")}),
    **{f"list {hooks}": get(f"{ADMISSION}/{hooks}") for hooks in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")},
    **keyed("apiservices", {"list": get("/apis/apiregistration.k8s.io/v1/apiservices")}),
    **keyed("customresourcedefinitions", {"list": get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")}),
    **keyed("volumeattachments", {"list": get("/apis/storage.k8s.io/v1/volumeattachments")}),
    **{f"get {plural}": get(f"{ADMISSION}/{plural}/egs-pod") for plural in PLURALS.values() if plural.startswith(("valid", "mutat"))},
    **keyed("clusterroles", {"get": get(f"{RBAC}/clusterroles/egs-slice-user")}),
    **keyed("clusterrolebindings", {"get": get(f"{RBAC}/clusterrolebindings/egs-agent")}),
    **{f"get {plural}": get(f"{RBAC}/namespaces/{cluster_names.NAMESPACE}/{plural}/egs-agent") for plural in ("roles", "rolebindings")},
    **keyed("customresourcedefinitions", {"get": get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/workspaces.egs.io")}),
    **keyed("priorityclasses", {"list": get("/apis/scheduling.k8s.io/v1/priorityclasses")}),
    **keyed("configmaps", {"get": get(f"{SYSTEM}/configmaps/egs-installed")}),
    **keyed("events", {**reading("/api/v1/namespaces/default/events"), "create": post(f"{RED_SPACE}/events", EVENT)}),
    **keyed(
        "gpuprovisioningrequests",
        {"create": post(RED_REQUESTS, REQUEST), "patch": patch(f"{RED_REQUESTS}/filed", {}), **reading(REQUESTS)},
    ),
    **keyed("gpuprovisioningrequests", {"delete": delete(f"{RED_REQUESTS}/egs-try")}),
    **{f"get {plural}": get(f"/apis/apps/v1/namespaces/red/{plural}/egs-try") for plural in ("replicasets", "statefulsets", "deployments")},
    **keyed("jobsets", {"get": get("/apis/jobset.x-k8s.io/v1alpha2/namespaces/red/jobsets/egs-try")}),
    **keyed("rayclusters", {"get": get("/apis/ray.io/v1/namespaces/red/rayclusters/egs-try")}),
    **keyed("jobs", {"get": get("/apis/batch/v1/namespaces/red/jobs/egs-try")}),
    **keyed("gprtemplates", reading(TEMPLATES)),
    **keyed("gpujobs", reading(f"{EGS}/gpujobs")),
    **keyed("gpujobs/status", {"patch": patch(f"{EGS}/namespaces/red/gpujobs/egs-try/status", {})}),
    **keyed("gpuprovisioningrequests/status", {"patch": patch(f"{RED_REQUESTS}/filed/status", {})}),
    **keyed("gprtemplates/status", {"patch": patch(f"{RED_TEMPLATES}/egs-try/status", {})}),
    **keyed("workspaces", of_namespace(SPACES, "Workspace", "egs.io/v1alpha1", spec={"id": RED})),
    **keyed("workspaces/status", {"patch": patch(f"{SPACES}/egs-try/status", {})}),
    **keyed("leases", {"get": get(LEASE), "update": put(LEASE)}),
    **keyed("secrets", {"get": get(f"{SYSTEM}/secrets/egs-agent-state"), "update": put(f"{SYSTEM}/secrets/egs-agent-state")}),
    **keyed("jobs", {"list": get("/apis/batch/v1/jobs"), "create": post(JOBS, JOB), "delete": delete(f"{JOBS}/egs-try")}),
    **keyed("secrets", {"create": post(f"{RED_SPACE}/secrets", part_of("Secret"))}),
    **keyed("ingresses", {"create": post(INGRESSES, part_of("Ingress", rules=[leading_to("lab")]))}),
    **{right: call for each in OF_JOBS for right, call in keyed(each.rpartition("/")[2], made_and_deleted(each)).items()},
    **keyed("pods/log", {"get": get(pods_path(cluster_names.NAMESPACE, "egs-try", "log"))}),
}


def roles() -> list[Object]:
    """Returns the agent's ClusterRole and its Role."""
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


@pytest.mark.rotates  # each day: the other rights, and the agents of all other tests, which have these alone
@pytest.mark.parametrize("right", RIGHTS)
def test_with_all_rights_the_agent_may(right: str, world: World) -> None:
    """The API server checks rights before it looks for the object, so an answer 404 proves the right."""
    assert made(world.agent, world.admin, right).outcome in {DONE, "404"}


def user_without(right: str) -> str:
    """Names a user who has all rights of the agent but one."""
    return "test-" + right.replace(" ", "-").replace("/", "-")


@pytest.fixture(scope="module")
def reduced(world: World, request: pytest.FixtureRequest) -> Iterator[None]:
    """One for each right that is tried today, all made at once: the API server knows of roles a moment later."""
    tried = [item.callspec.params["right"] for item in request.session.items if "reduced" in getattr(item, "fixturenames", ())]  # type: ignore[attr-defined]
    paths = [path for right in tried for role in roles() for path in reduced_role(world.admin, role, right, user_without(right))]
    for right in tried:
        other = "get nodes" if right != "get nodes" else "list nodes"
        for known in (other, "get leases" if right != "get leases" else "update leases"):
            user = user_without(right)
            wait_for("the rights", lambda known=known, user=user: is_allowed(world, known, user), within_s=SOON_S)
    yield
    for path in paths:
        world.admin.call("DELETE", path, is_dry=False)


def is_allowed(world: World, right: str, user: str) -> bool:
    return made(world.admin, world.admin, right, user=user).outcome == DONE


def reduced_role(admin: Caller, role: Object, right: str, user: str) -> Iterator[str]:
    """Paths of what it made."""
    verb, resource = right.split()
    rules = []
    for rule in role["rules"]:
        rules += [
            {**rule, "resources": [each], "verbs": [v for v in rule["verbs"] if (v, each) != (verb, resource)]}
            for each in rule["resources"]
        ]
    base = f"{RBAC}/namespaces/{cluster_names.NAMESPACE}" if role["kind"] == "Role" else RBAC
    kind = role["kind"].lower()
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": role["kind"], "name": user}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    about = {"metadata": {"name": user}}
    admin.make(f"{base}/{kind}s", {**about, "rules": [rule for rule in rules if rule["verbs"]]})
    yield f"{base}/{kind}s/{user}"
    admin.make(f"{base}/{kind}bindings", {**about, "roleRef": reference, "subjects": [subject]})
    yield f"{base}/{kind}bindings/{user}"


@pytest.mark.rotates  # each day: the other rights
@pytest.mark.usefixtures("reduced")
@pytest.mark.parametrize("right", RIGHTS)
def test_without_a_right_the_agent_may_not(right: str, world: World) -> None:
    assert made(world.admin, world.admin, right, user=user_without(right)).outcome == "RBAC"


# --- with a stolen token


def labels(**more: str | None) -> Object:
    return {"metadata": {"labels": {cluster_names.SLICE: RED, "pod-security.kubernetes.io/enforce": "restricted", **more}}}


def check_job(*, name: str = JOB["metadata"]["name"], annotations: Object | None = None, **spec: Any) -> Object:
    """A check's Job, but for what is given of its pod."""
    template = JOB["spec"]["template"]
    about = template["metadata"] | {"annotations": annotations or {}}
    pod_spec = {**template["spec"], "volumes": [], "containers": [container()], **spec}
    return {
        **JOB,
        "metadata": {**JOB["metadata"], "name": name},
        "spec": {**JOB["spec"], "template": {"metadata": about, "spec": pod_spec}},
    }


def check_on(*terms: Object) -> Object:
    """One that may come to the nodes of any of these terms."""
    required = {"nodeSelectorTerms": list(terms)}
    return check_job(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}})


def by_name(node: str, **more: Any) -> Object:
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}], **more}


def labeled(operator: str) -> Object:
    return {"matchExpressions": [{"key": cluster_names.NODE_UID, "operator": operator}]}


TOKEN: Final = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
OWN_SERVICE: Final = "/api/v1/namespaces/red/services/own"
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
    "an account in a workspace's namespace": (post(f"{RED_SPACE}/serviceaccounts", {"metadata": {"name": "egs-try"}}), "egs-agent"),
    "a token of an account in a workspace's namespace": (post(f"{RED_SPACE}/serviceaccounts/default/token", TOKEN), "egs-agent"),
    "a workspace's rights for an account that another namespace has": (
        post(
            BINDINGS,
            {"metadata": {"name": "egs-try"}, "subjects": [{"kind": "ServiceAccount", "name": "egs-try", "namespace": "loose"}], **BINDING},
        ),
        "egs-agent",
    ),
    "the namespace of accounts as a workspace's": (patch(f"/api/v1/namespaces/{cluster_names.ACCOUNTS}", labels()), "egs-agent-namespace"),
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
    "to exempt a workspace's namespace": (patch(RED_SPACE, labels(**{cluster_names.EXEMPT: "true"})), "egs-agent-namespace"),
    "to enter all workspaces from a workspace's namespace": (
        patch(RED_SPACE, labels(**{cluster_names.MAY_ENTER: "true"})),
        "egs-agent-namespace",
    ),
    "to enter all workspaces from a namespace that was there before": (
        patch("/api/v1/namespaces/loose", {"metadata": {"labels": {cluster_names.MAY_ENTER: "true"}}}),
        "egs-agent-namespace",
    ),
    "a new namespace that enters all workspaces": (
        post("/api/v1/namespaces", {"metadata": {"name": "try", **labels(**{cluster_names.MAY_ENTER: "true"})["metadata"]}}),
        "egs-agent-namespace",
    ),
    "an exempt namespace for a workspace": (
        patch("/api/v1/namespaces/spared", labels(**{cluster_names.EXEMPT: None})),
        "egs-agent-namespace",
    ),
    "leave to adopt a namespace that was there before": (
        patch("/api/v1/namespaces/loose", {"metadata": {"labels": {cluster_names.MAY_ADOPT: "true"}}}),
        "egs-agent-namespace",
    ),
    "a namespace that was there before, for a workspace without a name": (
        patch("/api/v1/namespaces/loose", labels(**{cluster_names.SLICE: ""})),
        "egs-agent-namespace",
    ),
    "a mark by which a namespace that was there before could be bound again": (
        patch("/api/v1/namespaces/loose", {"metadata": {"labels": {cluster_names.BOUND_TO: RED}}}),
        "egs-agent-namespace",
    ),
    "both the mark and the label of a workspace": (
        patch("/api/v1/namespaces/loose", labels(**{cluster_names.BOUND_TO: RED})),
        "egs-agent-namespace",
    ),
    "another workspace's mark": (patch(RED_SPACE, labels(**{cluster_names.BOUND_TO: BLUE})), "egs-agent-namespace"),
    "another workspace's label": (patch(RED_SPACE, labels(**{cluster_names.SLICE: BLUE})), "egs-agent-namespace"),
    "a mark that stays when the label goes": (
        patch(RED_SPACE, labels(**{cluster_names.SLICE: None, cluster_names.BOUND_TO: RED})),
        "egs-agent-namespace",
    ),
    "a new namespace with a mark alone": (
        post("/api/v1/namespaces", {"metadata": {"name": "try", "labels": {cluster_names.BOUND_TO: RED}}}),
        "egs-agent-namespace",
    ),
    "privileged pods in a workspace's namespace": (
        patch(RED_SPACE, labels(**{"pod-security.kubernetes.io/enforce": "privileged"})),
        "egs-agent-namespace",
    ),
    "privileged pods once it is no workspace's any more": (
        patch(RED_SPACE, labels(**{cluster_names.SLICE: None, "pod-security.kubernetes.io/enforce": "privileged"})),
        "egs-agent-namespace",
    ),
    "a new namespace for privileged pods": (
        post("/api/v1/namespaces", {"metadata": {"name": "try", "labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}),
        "egs-agent-namespace",
    ),
    "to write a namespace of no workspace": (
        patch("/api/v1/namespaces/loose", {"metadata": {"annotations": {"scheduler.alpha.kubernetes.io/node-selector": "mine=yes"}}}),
        "egs-agent-namespace",
    ),
    "a Job that is no check": (post(JOBS, check_job(name="egs-agent-try")), "egs-agent-job"),
    "a Job of a person in a namespace of no workspace": (
        post("/apis/batch/v1/namespaces/loose/jobs", of_job("jobs")),
        "egs-agent-workload",
    ),
    "a Job in the system's namespace": (post("/apis/batch/v1/namespaces/kube-system/jobs", of_job("jobs")), "egs-agent-workload"),
    "a Deployment beside the agent": (
        post(f"/apis/apps/v1/namespaces/{cluster_names.NAMESPACE}/deployments", of_job("deployments")),
        "egs-agent-workload",
    ),
    "a Job of a workspace without its mark": (post("/apis/batch/v1/namespaces/red/jobs", of_job("jobs", labels={})), "egs-agent-workload"),
    "to take away a workspace's own service": (delete(OWN_SERVICE), "egs-agent-workload"),
    "a service with a door to the outside": (
        post("/api/v1/namespaces/red/services", of_job("services", type="NodePort")),
        "egs-agent-workload",
    ),
    "a service that draws others' traffic": (
        post("/api/v1/namespaces/red/services", of_job("services", externalIPs=["203.0.113.7"])),
        "egs-agent-workload",
    ),
    "a pod of a workspace": (post(pods_path("red"), pod("try")), "RBAC"),
    "a secret outside of workspaces": (post("/api/v1/namespaces/loose/secrets", part_of("Secret")), "egs-agent-workload"),
    "a secret in its own namespace": (post(f"{SYSTEM}/secrets", part_of("Secret")), "egs-agent-workload"),
    "a secret of no notebook": (post(f"{RED_SPACE}/secrets", part_of("Secret", owner="other")), "egs-agent-workload"),
    "a secret that is a credential": (
        post(f"{RED_SPACE}/secrets", part_of("Secret", of={"type": "bootstrap.kubernetes.io/token"})),
        "egs-agent-workload",
    ),
    "an ingress to another service": (post(INGRESSES, part_of("Ingress", rules=[leading_to("other")])), "egs-agent-workload"),
    "an ingress for all hosts": (post(INGRESSES, part_of("Ingress", rules=[leading_to("lab", host="")])), "egs-agent-workload"),
    "an ingress for another host": (
        post(INGRESSES, part_of("Ingress", rules=[leading_to("lab", host="bank.example.org")])),
        "egs-agent-workload",
    ),
    "a check that speaks as the agent": (post(JOBS, check_job(serviceAccountName="egs-agent")), "egs-agent-job"),
    "a check with a token": (post(JOBS, check_job(automountServiceAccountToken=True)), "egs-agent-job"),
    "a check that pushes others out": (post(JOBS, check_job(priorityClassName="system-node-critical")), "egs-agent-job"),
    "another network for a check": (
        post(JOBS, check_job(annotations={"k8s.v1.cni.cncf.io/networks": "fabric"})),
        "egs-agent-job",
    ),
    "the join token as a file of a check": (
        post(JOBS, check_job(volumes=[{"name": "a", "secret": {"secretName": "egs-join-token"}}])),
        "egs-agent-job",
    ),
    "the join token as a variable of a check": (
        post(JOBS, check_job(containers=[container(envFrom=[{"secretRef": {"name": "egs-join-token"}}])])),
        "egs-agent-job",
    ),
    "a word of the join token as a variable of a check": (
        post(JOBS, check_job(containers=[container(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}])])),
        "egs-agent-job",
    ),
    "a check on a node of the control plane": (post(JOBS, check_on(by_name("control"))), "egs-agent-job"),
    "a check on any node": (post(JOBS, check_job(affinity={})), "egs-agent-job"),
    "a check on a managed node, if there is one": (
        post(
            JOBS,
            check_job(
                affinity={
                    "nodeAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": labeled("Exists")}],
                    }
                }
            ),
        ),
        "egs-agent-job",
    ),
    "a check on a managed node or one of the control plane": (
        post(JOBS, check_on(labeled("Exists"), by_name("control"))),
        "egs-agent-job",
    ),
    "a check on a node that is not managed": (post(JOBS, check_on(by_name("control", **labeled("DoesNotExist")))), "egs-agent-job"),
    "a mark by which a node of the control plane were a managed one": (
        patch("/api/v1/nodes/control", {"metadata": {"labels": {cluster_names.NODE_UID: "mine"}}}),
        "egs-agent-node",
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
    "a job of its own": (post(f"{EGS}/namespaces/red/gpujobs", {**REQUEST, "kind": "GPUJob"}), "RBAC"),
    "to delete a request that people made": (delete(f"{RED_REQUESTS}/filed"), "egs-agent"),
    "to mark a request that people made as one that it may delete": (
        patch(f"{RED_REQUESTS}/filed", {"metadata": {"annotations": {cluster_names.AUTO: "true"}}}),
        "egs-agent",
    ),
    "a role for itself": (
        post(BINDINGS, {"metadata": {"name": "egs-try"}, "subjects": [ITSELF], **BINDING}),
        "egs-agent",
    ),
    "a pod": (post(pods_path(cluster_names.NAMESPACE), pod()), "RBAC"),
    "a policy off": (delete("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/egs-agent"), "RBAC"),
    "a pod bound by hand": (post(pods_path("red", "gated", "binding"), {"target": {"kind": "Node", "name": NODE_RED}}), "RBAC"),
}


@pytest.fixture(scope="module")
def bystanders(world: World) -> Iterator[None]:
    """A pod of the system, an exempt namespace, a fence in one of no workspace, and a node that EGS does not manage."""
    fence = "/apis/networking.k8s.io/v1/namespaces/loose/networkpolicies"
    world.admin.make("/api/v1/namespaces", {"metadata": {"name": "spared", "labels": {cluster_names.EXEMPT: "true"}}})
    wait_for("an account", lambda: world.cluster.get("serviceaccount", "default", namespace="kube-system"), within_s=SOON_S)
    world.admin.make(pods_path("kube-system"), pod(GUARDED))
    taint = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
    world.admin.make("/api/v1/nodes", {"metadata": {"name": "control"}, "spec": {"taints": [taint]}})
    world.admin.make(fence, {"metadata": {"name": "fence"}, "spec": {"podSelector": {}}})
    world.admin.make("/api/v1/namespaces/red/services", {"metadata": {"name": "own"}, "spec": {"ports": [{"port": 80}]}})
    file_request(world, "red")
    yield
    for path in (pods_path("kube-system", GUARDED), f"{fence}/fence", "/api/v1/namespaces/spared", "/api/v1/nodes/control", OWN_SERVICE):
        world.admin.call("DELETE", path, is_dry=False)


@pytest.mark.usefixtures("bystanders")
@pytest.mark.parametrize("misuse", MISUSES)
def test_a_thief_of_the_agents_token_does_not_get(misuse: str, world: World) -> None:
    (method, path, body, more), refusal = MISUSES[misuse]

    assert world.agent.call(method, path, body, **more).outcome == refusal


def test_in_a_namespace_that_administrators_mark_for_it_the_agent_deletes_pods_of_the_driver_and_does_no_more(world: World) -> None:
    labels = {cluster_names.EXEMPT: "true", cluster_names.MAY_RESTART: "true"}
    world.admin.make("/api/v1/namespaces", {"metadata": {"name": "driver", "labels": labels}})
    wait_for("an account", lambda: world.cluster.get("serviceaccount", "default", namespace="driver"), within_s=SOON_S)
    world.admin.make(pods_path("driver"), pod("plugin"))
    image: list[Object] = [{"op": "replace", "path": "/spec/containers/0/image", "value": "mine"}]

    path = pods_path("driver", "plugin")
    assert world.agent.call("PATCH", path, image, kind=JSON_PATCH).outcome == "egs-agent"
    assert world.agent.call("POST", f"{path}/eviction", eviction("plugin", 5)).outcome == "egs-agent"
    assert world.agent.call("DELETE", path).outcome == DONE
    world.admin.call("DELETE", "/api/v1/namespaces/driver", is_dry=False)


def test_a_thief_of_the_agents_token_gets_no_check_with_a_claim(world: World) -> None:
    """An API server without claims leaves the field out."""
    job = check_job(resourceClaims=[{"name": "gpu", "resourceClaimName": "claim"}])

    assert world.agent.call("POST", JOBS, job).outcome == ("egs-agent-job" if world.cluster.has(CLAIMS) else DONE)


SECURE: Final = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"], "add": ["SYSLOG"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def of_egs(*, metadata: Object | None = None, spec: Object | None = None, main: Object | None = None, **security: Any) -> Object:
    """Returns a check's pod, but for what is given."""
    secured = container() | {"securityContext": SECURE | security} | (main or {})
    return {"metadata": {"name": "try", **(metadata or {})}, "spec": {"restartPolicy": "Never", "containers": [secured], **(spec or {})}}


def with_claim(**spec: Any) -> Object:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    return of_egs(spec={"volumes": [{"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}]})


def with_security(**security: Any) -> Object:
    return of_egs(spec={"securityContext": security})


UNCONFINED: Final = {"type": "Unconfined"}
APPARMOR: Final = "container.apparmor.security.beta.kubernetes.io/main"
ELSEWHERE: Final = {"host": "10.0.0.1", "port": 80}
TRIED: Final[dict[str, Object]] = {
    "the node's processes": of_egs(spec={"hostPID": True}),
    "the node's network": of_egs(spec={"hostNetwork": True}),
    "a port of the node": of_egs(main={"ports": [{"containerPort": 22, "hostPort": 22}]}),
    "the node's files": of_egs(spec={"volumes": [{"name": "root", "hostPath": {"path": "/"}}]}),
    "a volume of somebody": of_egs(spec={"volumes": [{"name": "data", "nfs": {"server": "nas", "path": "/"}}]}),
    "a volume that is there already, by name": with_claim(volumeName="of-a-node"),
    "a volume that is there already, of no class": with_claim(storageClassName=""),
    "a volume that is there already, by label": with_claim(selector={"matchLabels": {"type": "local"}}),
    "a copy of a volume": with_claim(dataSource={"kind": "PersistentVolumeClaim", "name": "data"}),
    "all devices": of_egs(privileged=True, allowPrivilegeEscalation=True),
    "more than it was given": of_egs(allowPrivilegeEscalation=True),
    "another capability": of_egs(capabilities={"drop": ["ALL"], "add": ["SYS_ADMIN"]}),
    "the usual capabilities": of_egs(capabilities={"add": ["SYSLOG"]}),
    "all system calls": of_egs(seccompProfile=UNCONFINED),
    "all system calls for the pod": with_security(seccompProfile=UNCONFINED),
    "all of it in what runs first": of_egs(spec={"initContainers": [container(securityContext={}) | {"name": "init"}]}),
    "what AppArmor refuses": of_egs(appArmorProfile=UNCONFINED),
    "what AppArmor refuses, for the pod": with_security(appArmorProfile=UNCONFINED),
    "what AppArmor refuses, as it was written before": of_egs(metadata={"annotations": {APPARMOR: "unconfined"}}),
    "what SELinux refuses": of_egs(seLinuxOptions={"type": "spc_t"}),
    "what SELinux refuses, for the pod": with_security(seLinuxOptions={"type": "spc_t"}),
    "a user of SELinux": of_egs(seLinuxOptions={"user": "system_u"}),
    "a role of SELinux": of_egs(seLinuxOptions={"role": "system_r"}),
    "an unsafe sysctl": with_security(sysctls=[{"name": "kernel.msgmax", "value": "1"}]),
    "a safe sysctl": with_security(sysctls=[{"name": "kernel.shm_rmid_forced", "value": "1"}]),
    "a group of the node": with_security(supplementalGroups=[0]),
    "a process of a Windows node": of_egs(spec={"hostNetwork": True, "securityContext": {"windowsOptions": {"hostProcess": True}}}),
    "requests of a node's kubelet": of_egs(main={"livenessProbe": {"httpGet": ELSEWHERE}}),
    "connections of a node's kubelet": of_egs(main={"readinessProbe": {"tcpSocket": ELSEWHERE}}),
    "requests of a node's kubelet at its start": of_egs(main={"lifecycle": {"postStart": {"httpGet": ELSEWHERE}}}),
    "a node by its name": of_egs(spec={"nodeName": "control"}),
    "every node, whatever taint it has": of_egs(spec={"tolerations": [{"operator": "Exists"}]}),
    "the place of others": of_egs(spec={"priorityClassName": "system-node-critical"}),
}


@pytest.mark.parametrize("what", TRIED)
def test_a_pod_in_the_agents_namespace_does_not_get(what: str, world: World) -> None:
    """The agent may make Jobs there, so a thief of its token may; their pods come no further than this."""
    assert world.admin.call("POST", pods_path(cluster_names.NAMESPACE), of_egs()).outcome == DONE
    assert world.admin.call("POST", pods_path(cluster_names.NAMESPACE), TRIED[what]).outcome == "egs-own-pod"


GANG: Final = {"nodes": (NODE_RED, NODE_BLUE), "step": "gang_network"}
# By kind, what it has beyond CHECK.
CHECKS: Final[dict[str, dict[str, Any]]] = {
    "plain": {},
    "with GPUs": {"gpus": 8, "runtime_class": "", "tools": ("nvidia-smi",)},
    "that reads the kernel's log": {"capabilities": ("SYSLOG",)},
    "with a volume of the default class": {"volume": ""},
    "with a volume": {"volume": "fast"},
    "with shared memory": {"shared_memory_mib": 1024},
    "beside others": {"is_guest": True},
    "whose image is a secret": {"pull_secret": "pull"},
    "of several nodes": GANG,
}


@pytest.mark.parametrize("kind", CHECKS)
def test_a_check_is_let_through_with_the_agents_rights(kind: str, world: World) -> None:
    job = manifest(msgspec.structs.replace(CHECK, **CHECKS[kind]))

    assert world.agent.call("POST", JOBS, job).outcome == DONE
    made = {**job["spec"]["template"], "kind": "Pod", "apiVersion": "v1"}
    made["metadata"] = {**made["metadata"], "name": f"{job['metadata']['name']}-0"}
    assert world.admin.call("POST", pods_path(cluster_names.NAMESPACE), made).outcome == DONE


def test_the_agents_own_pod_is_let_through(world: World) -> None:
    (agent,) = yaml.safe_load_all((ROOT / "deploy/agent/agent.yaml").read_text())
    made = {**agent["spec"]["template"], "kind": "Pod", "apiVersion": "v1"}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "egs-agent-1", "uid": RED, "controller": True}
    made["metadata"] = {**made["metadata"], "name": "egs-agent-1-1", "ownerReferences": [owner]}

    assert world.admin.call("POST", pods_path(cluster_names.NAMESPACE), made).outcome == DONE


@pytest.mark.usefixtures("bystanders")
def test_a_check_comes_to_a_managed_node_and_never_to_one_of_the_control_plane(world: World) -> None:
    """Though it tolerates its taint: the API server takes no such binding, not from the scheduler either."""
    jobs = {node: manifest(msgspec.structs.replace(CHECK, owner=node, nodes=(node,))) for node in (NODE_RED, "control")}
    try:
        for job in jobs.values():
            world.agent.make(JOBS, job)
        checked, waiting = (wait_for("the check", lambda job=job: placed(world, job), within_s=SOON_S) for job in jobs.values())
        assert (checked["spec"].get("nodeName"), waiting["spec"].get("nodeName")) == (NODE_RED, None)
        binding = pods_path(cluster_names.NAMESPACE, waiting["metadata"]["name"], "binding")
        outcomes = {
            node: world.scheduler.call(
                "POST", binding, {"metadata": {"name": waiting["metadata"]["name"]}, "target": {"kind": "Node", "name": node}}
            ).outcome
            for node in jobs
        }
        assert outcomes == {NODE_RED: DONE, "control": "egs-check-bind"}
    finally:
        for job in jobs.values():
            world.agent.call("DELETE", f"{JOBS}/{job['metadata']['name']}", is_dry=False, propagationPolicy="Background")


@pytest.mark.usefixtures("bystanders")
def test_who_writes_a_node_of_the_control_plane_into_the_guard_gets_no_check_there(world: World) -> None:
    """A thief of the agent's token may write it; but the scheduler looks for the agent's mark on the node itself."""
    world.guard("control", "@0")
    job = manifest(msgspec.structs.replace(CHECK, owner="thief", nodes=("control",)))
    try:
        assert world.agent.call("POST", JOBS, check_on(by_name("control"))).outcome == "egs-agent-job"
        world.agent.make(JOBS, job)
        assert "nodeName" not in wait_for("the check", lambda: placed(world, job), within_s=SOON_S)["spec"]
    finally:
        world.agent.call("DELETE", f"{JOBS}/{job['metadata']['name']}", is_dry=False, propagationPolicy="Background")
        world.agent.patch(cluster_names.GUARD_PATH, [{"op": "remove", "path": cluster_names.pointer("spec", "nodes", "control")}])


def placed(world: World, job: Object) -> Object | None:
    """The pod of this Job, once the scheduler has had a word on it."""
    found = world.admin.get(pods_path(cluster_names.NAMESPACE), labelSelector=f"{cluster_names.JOB_OF_POD}={job['metadata']['name']}")[
        "items"
    ]
    return next((each for each in found if each["status"].get("conditions")), None)
