"""The roles that EGS gives decide what members of a workspace may do in its namespaces with kubectl."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
import pytest
import yaml

from portal_user.pages.requests.job import ExampleJob
from protocol import cluster_names
from tests.kube.callers import DONE, Caller
from tests.kube.cluster import Object
from tests.kube.requests.test_autogpr import owner_kind
from tests.kube.wire import JSON_PATCH, MERGE
from tests.kube.world import World, is_gated, pod, pods_path
from worker_agent.kube.api.objects import Pod
from worker_agent.kube.pods.lifting import missing_on_shared_node, pod_needs, why_never

RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
NETWORKING: Final = "/apis/networking.k8s.io/v1"
ANY: Final[Object] = {"metadata": {"name": "try"}}
VIEWER: Final = "system:serviceaccount:people:viewer"

# By the path of their group: what members of the role `user` write and those of the role `viewer` read. Kinds of operators that are not
# installed are not found; who has no right is told that before.
WORK: Final[dict[str, list[str]]] = {
    "/api/v1": ["pods", "services", "configmaps", "persistentvolumeclaims"],
    "/apis/apps/v1": ["deployments", "replicasets", "statefulsets", "daemonsets"],
    "/apis/batch/v1": ["jobs", "cronjobs"],
    "/apis/policy/v1": ["poddisruptionbudgets"],
    "/apis/autoscaling/v2": ["horizontalpodautoscalers"],
    "/apis/jobset.x-k8s.io/v1alpha2": ["jobsets"],
    "/apis/leaderworkerset.x-k8s.io/v1": ["leaderworkersets"],
    "/apis/kubeflow.org/v1": ["pytorchjobs", "tfjobs", "mpijobs", "jaxjobs", "xgboostjobs", "paddlejobs"],
    "/apis/kubeflow.org/v2beta1": ["mpijobs"],
    "/apis/trainer.kubeflow.org/v1alpha1": ["trainjobs", "trainingruntimes"],
    "/apis/ray.io/v1": ["rayclusters", "rayjobs", "rayservices"],
}
KINDS: Final = [(group, kind) for group, kinds in WORK.items() for kind in kinds]
LOOK: Final = [
    (NETWORKING, "ingresses"),
    (NETWORKING, "networkpolicies"),
    ("/apis/discovery.k8s.io/v1", "endpointslices"),
    ("/apis/metrics.k8s.io/v1beta1", "pods"),
    ("/apis/apps/v1", "controllerrevisions"),
    ("/api/v1", "limitranges"),
    ("/api/v1", "resourcequotas"),
    ("/api/v1", "events"),
]
# By verb: what would open the fence, give rights, or reach beyond the namespace.
NEVER: Final = [
    *(("POST", f"{NETWORKING}/namespaces/red/{kind}") for kind in ("ingresses", "networkpolicies")),
    *(("PATCH", f"{NETWORKING}/namespaces/red/{kind}/try") for kind in ("ingresses", "networkpolicies")),
    ("DELETE", f"{NETWORKING}/namespaces/red/networkpolicies/egs-slice"),
    ("POST", "/apis/discovery.k8s.io/v1/namespaces/red/endpointslices"),
    *(("POST", f"/api/v1/namespaces/red/{kind}") for kind in ("endpoints", "serviceaccounts", "resourcequotas", "limitranges", "bindings")),
    ("POST", "/api/v1/namespaces/red/serviceaccounts/default/token"),
    ("POST", pods_path("red", "gated", "binding")),
    ("PATCH", pods_path("red", "mine", "status")),
    ("PATCH", "/api/v1/namespaces/red"),
    *(("POST", f"{RBAC}/namespaces/red/{kind}") for kind in ("roles", "rolebindings")),
    ("POST", f"{RBAC}/clusterrolebindings"),
    ("GET", "/api/v1/nodes"),
    ("GET", "/api/v1/namespaces"),
    ("GET", pods_path("blue")),
    ("GET", "/apis/jobset.x-k8s.io/v1alpha2/namespaces/blue/jobsets"),
    ("GET", "/apis/jobset.x-k8s.io/v1alpha2/jobsets"),
    ("POST", "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes"),
    ("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"),
    ("POST", "/apis/scheduling.k8s.io/v1/priorityclasses"),
    ("POST", "/api/v1/persistentvolumes"),
    ("PATCH", cluster_names.GUARD_PATH),
]


def may(caller: Caller, method: str, path: str, *, user: str = "") -> bool:
    body = ANY if method in {"POST", "PATCH"} else None
    return caller.call(method, path, body, user=user, kind=MERGE if method == "PATCH" else "application/json").outcome != "RBAC"


@pytest.fixture(scope="module")
def viewer(world: World) -> Iterator[str]:
    path = f"{RBAC}/namespaces/red/rolebindings"
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "egs-slice-viewer"}
    subject = {"kind": "ServiceAccount", "name": "viewer", "namespace": "people"}
    world.admin.make(path, {"metadata": {"name": "test-viewer"}, "roleRef": role, "subjects": [subject]})
    yield VIEWER
    world.admin.call("DELETE", f"{path}/test-viewer", is_dry=False)


@pytest.mark.parametrize(("group", "kind"), KINDS)
def test_members_make_change_and_delete_what_ml_frameworks_take(group: str, kind: str, world: World) -> None:
    path = f"{group}/namespaces/red/{kind}"

    tried = [("GET", path), ("POST", path), *((method, f"{path}/try") for method in ("GET", "PATCH", "DELETE"))]

    assert [each for each in tried if not may(world.people["u"], *each)] == []


@pytest.mark.parametrize(("group", "kind"), [*KINDS, *LOOK])
def test_viewers_read_what_members_write_and_write_none_of_it(group: str, kind: str, world: World, viewer: str) -> None:
    path = f"{group}/namespaces/red/{kind}"

    assert may(world.admin, "GET", path, user=viewer)
    assert not any(may(world.admin, method, each, user=viewer) for method, each in (("POST", path), ("DELETE", f"{path}/try")))


@pytest.mark.parametrize(("group", "kind"), LOOK)
def test_members_see_what_shapes_their_work(group: str, kind: str, world: World) -> None:
    assert may(world.people["u"], "GET", f"{group}/namespaces/red/{kind}")


@pytest.mark.parametrize(("method", "path"), NEVER)
def test_members_may_not(method: str, path: str, world: World) -> None:
    assert not may(world.people["u"], method, path)


def test_the_pods_that_an_operator_makes_of_their_objects_come_to_the_same_gate(world: World) -> None:
    """Even an operator with all rights in the cluster gets past it with no pod."""
    operator = {"user": "system:serviceaccount:jobset-system:jobset-controller-manager", "group": "system:masters"}

    made = world.admin.call("POST", pods_path("red"), pod("of-jobset", 1), **operator)
    tolerant = world.admin.call("POST", pods_path("red"), pod("of-jobset", 1, tolerations=[{"operator": "Exists"}]), **operator)

    assert (made.outcome, is_gated(made.body)) == (DONE, True)
    assert tolerant.outcome == "egs-pod"


@pytest.mark.parametrize(("nodes", "is_part"), [(1, False), (4, True)])
def test_the_job_that_the_page_of_a_box_shows_is_taken_as_it_is_and_fits_the_box(nodes: int, is_part: bool, world: World) -> None:
    """`no` is no text in YAML, unless it is quoted."""
    job = ExampleJob(name="no", namespace="red", node_count=nodes, gpus_per_node=4, is_part=is_part, grace_s=120)
    *services, made = yaml.safe_load_all(job.manifest)
    its_pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "no-0"}, "spec": made["spec"]["template"]["spec"]}

    told = [world.people["u"].call("POST", "/api/v1/namespaces/red/services", each) for each in services]
    told.append(world.people["u"].call("POST", "/apis/batch/v1/namespaces/red/jobs", made))
    # As it is: `call` would give it the gate where the cluster gives none.
    told.append(world.admin.ask("POST", pods_path("red"), its_pod, user="system:serviceaccount:kube-system:job-controller"))

    assert [(each.outcome, each.message, each.headers.get("Warning")) for each in told] == [(DONE, "", None)] * len(told)
    pod_made = msgspec.convert(told[-1].body, Pod)
    assert is_gated(told[-1].body)
    assert why_never(pod_made) == ""
    assert pod_needs(pod_made)[cluster_names.GPU] == 4
    assert not (is_part and missing_on_shared_node(_own_needs(its_pod)))


def _own_needs(its_pod: Object) -> Object:
    """Returns what it asks for itself, without what the namespace's LimitRange adds."""
    (its_container,) = its_pod["spec"]["containers"]
    return dict(its_container["resources"]["requests"])


RAY: Final = "/apis/ray.io/v1/namespaces"
OPERATOR: Final = {"user": "system:serviceaccount:ray-system:kuberay-operator"}


@pytest.fixture(scope="module")
def ray(world: World) -> Iterator[None]:
    """KubeRay's operator may write all of its kinds."""
    made = [owner_kind("ray.io", kind) for kind in ("RayCluster", "RayJob", "RayService")]
    world.cluster.make_kinds(*made)
    named = {"metadata": {"name": "test-kuberay"}}
    rule = {"apiGroups": ["ray.io"], "resources": ["*"], "verbs": ["*"]}
    account = {"kind": "ServiceAccount", "name": "kuberay-operator", "namespace": "ray-system"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "test-kuberay"}
    world.admin.make(f"{RBAC}/clusterroles", {**named, "rules": [rule]})
    world.admin.make(f"{RBAC}/clusterrolebindings", {**named, "roleRef": role, "subjects": [account]})
    yield
    for path in ("clusterrolebindings/test-kuberay", "clusterroles/test-kuberay"):
        world.admin.call("DELETE", f"{RBAC}/{path}", is_dry=False)
    world.cluster.delete("crd", *(str(body["metadata"]["name"]) for body in made), waits=True)


def ray_body(kind: str, *, ingress: bool, name: str = "try") -> Object:
    cluster = {"headGroupSpec": {"enableIngress": ingress}}
    specs = {"RayCluster": cluster, "RayJob": {"rayClusterSpec": cluster}, "RayService": {"rayClusterConfig": cluster}}
    return {"apiVersion": "ray.io/v1", "kind": kind, "metadata": {"name": name}, "spec": specs[kind]}


@pytest.mark.parametrize("kind", ["RayCluster", "RayJob", "RayService"])
def test_members_get_no_ingress_by_way_of_ray(kind: str, world: World, ray: None) -> None:
    """KubeRay would make it with its own rights, with whatever annotations they wrote, those that claim host names among them."""
    path = f"{RAY}/red/{kind.lower()}s"
    member, asking = world.people["u"], ray_body(kind, ingress=True)
    made = member.make(path, ray_body(kind, ingress=False))

    tries = [
        member.call("POST", path, {**asking, "metadata": {"name": "other"}}),
        member.call("PATCH", f"{path}/try", {"spec": asking["spec"]}, kind=MERGE),
        member.call("PUT", f"{path}/try", {**asking, "metadata": made["metadata"]}),
        world.admin.call("POST", path, {**asking, "metadata": {"name": "other"}}, **OPERATOR),
    ]

    assert [each.outcome for each in tries] == ["egs-ray"] * 4
    assert "an Ingress is made by an administrator" in tries[0].message
    assert member.call("PATCH", f"{path}/try", {"metadata": {"labels": {"own": "yes"}}}, kind=MERGE).outcome == DONE
    assert world.people["s"].call("POST", f"{RAY}/loose/{kind.lower()}s", asking).outcome == DONE  # in no workspace


def test_what_administrators_let_have_an_ingress_goes_on_and_goes_away(world: World, ray: None) -> None:
    """The operator writes finalizers into it, and takes them off at its end."""
    path = f"{RAY}/red/rayclusters"
    world.admin.make(path, ray_body("RayCluster", ingress=True, name="of-admin"))

    answer = world.admin.call("PATCH", f"{path}/of-admin", {"metadata": {"finalizers": ["ray.io/end"]}}, kind=MERGE, **OPERATOR)

    assert answer.outcome == DONE
    again = [{"op": "replace", "path": "/spec/headGroupSpec/enableIngress", "value": False}]
    assert world.people["u"].call("PATCH", f"{path}/of-admin", again, kind=JSON_PATCH).outcome == DONE
    claiming = {"metadata": {"annotations": {"nginx.ingress.kubernetes.io/server-alias": "bank.example"}}}
    assert world.people["u"].call("PATCH", f"{path}/of-admin", claiming, kind=MERGE).outcome == "egs-ray"
