"""No workspace gets on to another's nodes, holds it up or harms its pods, whatever rights its people have in their own namespace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from protocol import cluster_names
from tests.e2e.processes import wait_for
from tests.kube.callers import DONE, Caller
from tests.kube.cluster import MUTATING, SOON_S, Object
from tests.kube.isolation.attacks import ATTACKS
from tests.kube.isolation.attacks.attack import Attack, Attacker, binding
from tests.kube.isolation.attacks.climbing import NAMESPACE_ATTACKS, RIGHT_ATTACKS, TOKEN_REQUEST
from tests.kube.isolation.attacks.entering import HOST
from tests.kube.isolation.attacks.posing import REQUEST_ATTACKS, request
from tests.kube.policies import MUTATING_BINDINGS, without
from tests.kube.wire import JSON_PATCH, MERGE
from tests.kube.world import BLUE_GPR, NAMESPACES, NODE_BLUE, RED, RED_GPR, RESTRICTED, World, container, is_gated, pod, pods_path
from tests.kube.written import written


@pytest.mark.rotates  # each day: the other attacks, and test_locks.py, which tries all of them as one with all rights
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.tries)
def test_nobody_gets_through_who_tries(attack: Attack, world: World) -> None:
    expected = attack.expected(world.cluster)

    found = {who: attack.outcome(Attacker(world.people[who], NAMESPACES[who])) for who in expected}

    assert {who: found[who] for who in expected if found[who] not in expected[who]} == {}, expected


# --- what others make pods of


SELECTOR = {"matchLabels": {"app": "try"}}


def workload(world: World, kind: str, *, metadata: Object | None = None, **spec: Any) -> tuple[str, Object]:
    """The path for its kind, and a workload that makes such pods."""
    group, more = KINDS[kind]
    template = {"metadata": {"labels": {"app": "try"}, **(metadata or {})}, "spec": {"containers": [container(1)], **spec}}
    path = f"/api{'s' if group != 'v1' else ''}/{group}/namespaces/red/{kind.lower()}s"
    body = {"apiVersion": group, "kind": kind, "metadata": {"name": f"try-{kind.lower()}"}, "spec": {"template": template, **more}}
    return path, written(world.cluster, body)


KINDS: dict[str, tuple[str, Object]] = {
    "Deployment": ("apps/v1", {"selector": SELECTOR}),
    "ReplicaSet": ("apps/v1", {"selector": SELECTOR}),
    "StatefulSet": ("apps/v1", {"selector": SELECTOR, "serviceName": "try"}),
    "DaemonSet": ("apps/v1", {"selector": SELECTOR}),
    "Job": ("batch/v1", {}),
    "ReplicationController": ("v1", {"selector": SELECTOR["matchLabels"]}),
}
TOLERANT, POSING = "that tolerate everything", "that pass for the victim's"
TEMPLATES: dict[str, Object] = {
    TOLERANT: {"tolerations": [{"operator": "Exists"}]},
    POSING: {
        "metadata": {"labels": {"app": "try", cluster_names.POD_GPR: BLUE_GPR}},
        "nodeSelector": {cluster_names.box_label(BLUE_GPR): "1"},
    },
}


# The controller of DaemonSets makes no pods for a node of which it sees that they may not go there.
@pytest.mark.parametrize(("kind", "template"), [*((kind, TOLERANT) for kind in KINDS), ("Deployment", POSING)])
def test_a_workload_makes_no_pods(kind: str, template: str, world: World) -> None:
    """It is accepted; its owner reads in its events why it has no pods."""
    restart: Object = {"restartPolicy": "Never"} if kind == "Job" else {}
    path, body = workload(world, kind, **TEMPLATES[template], **restart)
    made = world.people["u"].make(path, body)

    def refusal() -> str:
        found = world.admin.get("/api/v1/namespaces/red/events", fieldSelector="reason=FailedCreate")["items"]
        of_it = [each["message"] for each in found if each["involvedObject"]["name"].startswith(f"try-{kind.lower()}")]
        return next((message for message in of_it if "egs-pod" in message), "")

    try:
        assert "by EGS alone" in wait_for(f"the refusal of {kind}", refusal, within_s=SOON_S)
        assert world.admin.get(pods_path("red"), labelSelector="app=try")["items"] == []
    finally:
        world.admin.call("DELETE", f"{path}/{made['metadata']['name']}", is_dry=False, propagationPolicy="Background")
        world.admin.call("DELETE", "/api/v1/namespaces/red/events", is_dry=False)


# --- what is accepted, and placed nowhere


def test_gpus_that_nobody_has_heard_of_get_nobody_on_to_a_node(world: World) -> None:
    """A prefix that is missing in the policies is no hole: such pods have no gate, and no toleration either."""
    made = world.people["u"].make(pods_path("red"), pod("odd", containers=[container(1, resource="acme.com/gpu")]))

    assert not is_gated(made)
    assert_has_no_node(world, "red", "odd")


def test_the_systems_own_priority_pushes_nobody_off_a_node(world: World) -> None:
    world.people["s"].make(pods_path("loose"), pod("urgent", priorityClassName="system-node-critical"))

    assert_has_no_node(world, "loose", "urgent")


def test_a_pod_does_not_run_as_another_member(world: World) -> None:
    accounts = "/api/v1/namespaces/red/serviceaccounts"
    world.admin.call("POST", accounts, {"metadata": {"name": "egs-bob"}}, is_dry=False)

    tried = world.people["u"].call("POST", pods_path("red"), pod("as-bob", serviceAccountName="egs-bob"))

    world.admin.call("DELETE", f"{accounts}/egs-bob", is_dry=False)
    assert tried.outcome == "egs-workspace"


def test_the_host_is_out_of_reach_from_a_namespace_without_pod_security(world: World) -> None:
    world.people["s"].make(pods_path("loose"), pod("host", **HOST))

    assert_has_no_node(world, "loose", "host")


def test_affinity_to_the_victims_node_places_nothing_there_once_it_is_lifted(world: World) -> None:
    node = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE_BLUE]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [node]}}}
    world.people["u"].make(pods_path("red"), pod("drawn", 1, affinity=affinity))
    world.lift("red", "drawn", gpr=RED_GPR)

    assert_has_no_node(world, "red", "drawn")


def assert_has_no_node(world: World, namespace: str, name: str) -> None:
    try:
        assert "nodeName" not in world.refused_by_scheduler(namespace, name)["spec"]
        assert world.running("blue", "victim")["spec"]["nodeName"] == NODE_BLUE
    finally:
        world.admin.call("DELETE", pods_path(namespace, name), is_dry=False)


def test_a_scheduler_of_their_own_binds_nothing(world: World) -> None:
    world.people["u"].make(pods_path("red"), pod("own", schedulerName="mine"))
    try:
        bound = world.people["o"].call("POST", pods_path("red", "own", "binding"), binding("own"), is_dry=False)

        assert bound.outcome in {"egs-bind", "egs-binder"}
        assert not world.node_of("red", "own")
    finally:
        world.admin.call("DELETE", pods_path("red", "own"), is_dry=False)


def test_a_daemon_set_on_gpus_gets_no_pods_on_nodes_of_others_and_waits_at_the_gate_elsewhere(world: World) -> None:
    """Elsewhere is a node that EGS does not manage: cordoned, so that nothing else of these tests gets on to it."""
    world.admin.make("/api/v1/nodes", {"metadata": {"name": "elsewhere"}, "spec": {"unschedulable": True}})
    path, body = workload(world, "DaemonSet")
    try:
        world.people["u"].make(path, body)
        (waits,) = wait_for("its pod", lambda: world.admin.get(pods_path("red"), labelSelector="app=try")["items"], within_s=SOON_S)
        wait_for(
            "one and no more", lambda: world.admin.get(f"{path}/try-daemonset")["status"]["desiredNumberScheduled"] == 1, within_s=SOON_S
        )

        assert is_gated(waits)
    finally:
        world.admin.call("DELETE", f"{path}/try-daemonset", is_dry=False, propagationPolicy="Background")
        world.admin.call("DELETE", "/api/v1/nodes/elsewhere", is_dry=False)


def test_nothing_new_begins_in_a_namespace_that_is_going(world: World) -> None:
    """Neither its labels nor an administrator change that."""
    path = "/api/v1/namespaces/going"
    world.bind_namespace("going", RED)
    world.admin.make(f"{path}/configmaps", {"metadata": {"name": "stays", "finalizers": ["example.com/stays"]}})
    world.admin.call("DELETE", path, is_dry=False)
    try:
        refused = world.admin.call("POST", pods_path("going"), pod("late", 1))

        assert refused.status == 403
        assert "because it is being terminated" in refused.message
    finally:
        world.admin.patch(f"{path}/configmaps/stays", [{"op": "remove", "path": "/metadata/finalizers"}])


# --- a pod's own token


def test_the_token_of_a_pod_opens_nothing(world: World) -> None:
    token = world.admin.make("/api/v1/namespaces/red/serviceaccounts/default/token", TOKEN_REQUEST)["status"]["token"]
    caller = Caller(world.cluster, token=token)
    try:
        ends = {attack.tries: attack.outcome(Attacker(caller, "red")) for attack in (*NAMESPACE_ATTACKS, *RIGHT_ATTACKS, *REQUEST_ATTACKS)}
    finally:
        caller.close()

    assert set(ends.values()) == {"RBAC"}, ends


# --- lifts, and pods that change under them


def test_a_pod_made_anew_with_more_gpus_is_not_lifted_in_place_of_the_one_that_was_read(world: World) -> None:
    path = pods_path("red", "swapped")
    lifting = world.lifting(world.people["u"].make(pods_path("red"), pod("swapped", 1)), gpr=RED_GPR)
    world.admin.call("DELETE", path, is_dry=False, gracePeriodSeconds="0")
    world.people["u"].make(pods_path("red"), pod("swapped", 8))

    assert world.agent.call("PATCH", path, lifting, kind=JSON_PATCH).outcome == "422"

    world.admin.call("DELETE", path, is_dry=False)


def test_gpus_that_a_namespace_gives_by_default_are_seen(world: World) -> None:
    """A LimitRange adds them after the pod was written."""
    limits = {"type": "Container", "default": {cluster_names.GPU: "1"}}
    path = "/api/v1/namespaces/loose/limitranges"
    world.people["s"].make(path, {"metadata": {"name": "gpus"}, "spec": {"limits": [limits]}})
    try:
        wait_for("the default", lambda: is_gated(world.people["s"].call("POST", pods_path("loose"), pod()).body), within_s=SOON_S)
    finally:
        world.admin.call("DELETE", f"{path}/gpus", is_dry=False)


def test_pods_of_an_exempt_namespace_are_left_alone(world: World) -> None:
    """GPU operators reach every node with their DaemonSets. Only an administrator exempts a namespace."""
    space = {"metadata": {"name": "operators", "labels": {cluster_names.EXEMPT: "true"}}}
    world.admin.make("/api/v1/namespaces", space)
    wait_for("its account", lambda: world.cluster.get("serviceaccount", "default", namespace="operators"), within_s=SOON_S)

    made = world.admin.make(pods_path("operators"), pod("plugin", 1, tolerations=[{"key": cluster_names.TAINT, "operator": "Exists"}]))

    assert not is_gated(made)
    assert world.running("operators", "plugin")


def test_a_job_with_a_deadline_may_fail_before_it_ever_ran(world: World) -> None:
    """The deadline runs while the pods wait at the gate: owners are told so in the manual."""
    path, job = workload(world, "Job", restartPolicy="Never")
    job["spec"]["activeDeadlineSeconds"] = 1
    world.people["u"].make(path, job)

    def failure() -> str:
        conditions = world.admin.get(f"{path}/try-job")["status"].get("conditions", [])
        return next((str(each["reason"]) for each in conditions if each["type"] == "Failed"), "")

    assert wait_for("its failure", failure, within_s=SOON_S) == "DeadlineExceeded"
    world.admin.call("DELETE", f"{path}/try-job", is_dry=False, propagationPolicy="Background")


def test_the_container_in_which_a_pytorch_worker_waits_for_its_master_gets_the_rights_that_workspaces_want(world: World) -> None:
    """Kubeflow's operator puts it there, and says nothing of its rights. Any other such container is refused."""
    own = {**container(), "name": "own"}
    waits = {"name": "init-pytorch", "image": "none", "command": ["sh", "-c", "until nslookup master; do sleep 2; done"]}

    answer = world.people["u"].call("POST", pods_path("red"), pod(gpus=1, initContainers=[own, waits]))
    other = world.people["u"].call("POST", pods_path("red"), pod(gpus=1, initContainers=[{**waits, "name": "init-other"}]))

    assert other.outcome == "PodSecurity"
    if not world.cluster.has(MUTATING):
        assert answer.outcome == "PodSecurity"
        return
    assert answer.outcome == DONE, answer.message
    assert answer.body["spec"]["initContainers"][1]["securityContext"] == {**RESTRICTED, "runAsUser": 65534}
    assert answer.body["spec"]["initContainers"][0]["securityContext"] == RESTRICTED


# --- requests


def test_the_name_on_a_request_stays_where_nothing_puts_it_back_and_people_may_write_their_own(world: World) -> None:
    path = "/apis/egs.io/v1alpha1/namespaces/red/gpuprovisioningrequests"
    nameless = {"metadata": {"annotations": {cluster_names.REQUESTER: None}}}
    signed = request(annotations={cluster_names.REQUESTER: "system:serviceaccount:people:u"})

    with without(world, f"{MUTATING_BINDINGS}/egs-requester"):
        refused = world.people["u"].call("PATCH", f"{path}/filed", nameless, kind=MERGE)
        unnamed = world.people["u"].call("POST", path, request())
        accepted = world.people["u"].call("POST", path, signed)

    assert refused.outcome == "egs-request"
    assert unnamed.outcome == accepted.outcome == DONE
    assert cluster_names.REQUESTER not in unnamed.body["metadata"].get("annotations", {})


# --- administrators


@pytest.mark.parametrize(
    "taints", [[], [{"key": "other.io/key", "effect": "NoExecute"}]], ids=["without taints", "with a taint of its own"]
)
def test_a_node_that_joins_as_managed_is_tainted_at_once(taints: list[Object], world: World) -> None:
    """Nothing gets onto it before the agent has seen it."""
    free = {"key": cluster_names.TAINT, "value": cluster_names.FREE, "effect": cluster_names.TAINT_EFFECT}
    joins = {"kind": "Node", "metadata": {"name": "joins", "labels": {cluster_names.MANAGED: "true"}}, "spec": {"taints": taints}}

    made = world.admin.call("POST", "/api/v1/nodes", written(world.cluster, joins)).body

    assert [taint for taint in made["spec"]["taints"] if not taint["key"].startswith("node.kubernetes.io/")] == [*taints, free]


def test_a_node_that_nobody_manages_is_not_tainted(world: World) -> None:
    made = world.admin.call("POST", "/api/v1/nodes", {"metadata": {"name": "joins"}}).body

    assert cluster_names.TAINT not in [taint["key"] for taint in made["spec"].get("taints", [])]


def test_administrators_exempt_namespaces_and_delete_by_force(world: World) -> None:
    """Their rights count, not a name or a group: they may write the guard. `root` has only the ClusterRole cluster-admin."""
    exempt = {"metadata": {"name": "spared", "labels": {cluster_names.EXEMPT: "true"}}}
    forced = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "dryRun": ["All"]}

    assert world.root.call("POST", "/api/v1/namespaces", exempt).outcome == DONE
    assert world.root.call("DELETE", pods_path("red", "mine"), forced).outcome == DONE


@pytest.mark.parametrize("whom", ["true", RED], ids=["all workspaces", "one workspace"])
def test_administrators_let_a_namespace_of_theirs_enter_workspaces(whom: str, world: World) -> None:
    """An ingress controller or monitoring lives in such a namespace."""
    entering = {"metadata": {"labels": {cluster_names.MAY_ENTER: whom}}}

    assert world.root.call("PATCH", "/api/v1/namespaces/loose", entering, kind=MERGE).outcome == DONE


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"taints": []}},
        {"metadata": {"labels": {cluster_names.NODE_SLICE: RED}}},
        {"metadata": {"labels": {cluster_names.box_label(BLUE_GPR): None}}},
        {"metadata": {"annotations": {cluster_names.RECORDS: "{}"}}},
    ],
    ids=["the taint off", "another workspace", "the box off", "other records"],
)
def test_administrators_too_leave_what_is_ours_on_a_node_alone(change: Object, world: World) -> None:
    """A slip of theirs would open a node. They take the policy off first where they have to."""
    assert world.admin.call("PATCH", f"/api/v1/nodes/{NODE_BLUE}", change, kind=MERGE).outcome == "egs-node"


def test_administrators_cordon_and_label_nodes_as_ever(world: World) -> None:
    change = {"metadata": {"labels": {"team": "red"}}, "spec": {"unschedulable": True}}

    assert world.admin.call("PATCH", f"/api/v1/nodes/{NODE_BLUE}", change, kind=MERGE).outcome == DONE


# --- NetworkPolicies that an administrator spares


FENCES = "/apis/networking.k8s.io/v1/namespaces/red/networkpolicies"
OUT = {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.1/32"}}]}]}


@pytest.fixture
def kept(world: World) -> Iterator[str]:
    """One that an administrator marked, and one that nobody did."""
    for name, labels in (("kept", {cluster_names.KEEP: "true"}), ("plain", {"team": "red"})):
        world.root.make(FENCES, {"metadata": {"name": name, "labels": labels}, "spec": OUT})
    yield FENCES
    for name in ("kept", "plain"):
        world.admin.call("DELETE", f"{FENCES}/{name}", is_dry=False)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("plain", {"metadata": {"labels": {cluster_names.KEEP: "true"}}}),
        ("kept", {"metadata": {"labels": {cluster_names.KEEP: None}}}),
        ("kept", {"spec": {"egress": [{}]}}),
        ("kept", {"spec": {"policyTypes": ["Ingress", "Egress"], "ingress": [{}]}}),
    ],
)
@pytest.mark.parametrize("who", ["a", "o", "agent"])
def test_only_administrators_spare_a_network_policy_or_change_what_such_a_one_says(
    who: str, name: str, change: Object, world: World, kept: str
) -> None:
    caller = world.agent if who == "agent" else world.people[who]

    assert caller.call("PATCH", f"{kept}/{name}", change, kind=MERGE).outcome == "egs-keep"
    assert world.root.call("PATCH", f"{kept}/{name}", change, kind=MERGE).outcome == DONE


@pytest.mark.parametrize("who", ["a", "o", "agent"])
def test_nobody_but_an_administrator_makes_a_network_policy_that_is_spared(who: str, world: World) -> None:
    caller = world.agent if who == "agent" else world.people[who]
    body = {"metadata": {"name": "try", "labels": {cluster_names.KEEP: "true"}}, "spec": OUT}

    assert caller.call("POST", FENCES, body).outcome == "egs-keep"
    assert world.root.call("POST", FENCES, body).outcome == DONE


def test_a_spared_network_policy_may_be_written_and_deleted_by_who_may_delete_others(world: World, kept: str) -> None:
    by = world.people["o"]

    assert by.call("PATCH", f"{kept}/kept", {"metadata": {"labels": {"team": "red"}}}, kind=MERGE).outcome == DONE
    assert by.call("DELETE", f"{kept}/kept").outcome == DONE


# --- what EGS keeps in a namespace

OURS = {cluster_names.SLICE: RED}
KEPT_THERE: dict[str, Object] = {
    FENCES: {"metadata": {"name": cluster_names.ISOLATION, "labels": OURS}, "spec": OUT},
    "/api/v1/namespaces/red/resourcequotas": {
        "metadata": {"name": cluster_names.ISOLATION, "labels": OURS},
        "spec": {"hard": {"pods": "1k"}},
    },
    "/api/v1/namespaces/red/serviceaccounts": {"metadata": {"name": "egs-try", "labels": OURS}},
}


@pytest.fixture
def ours(world: World) -> Iterator[None]:
    for path, body in KEPT_THERE.items():
        world.root.make(path, body)
    yield
    for path, body in KEPT_THERE.items():
        world.admin.call("DELETE", f"{path}/{body['metadata']['name']}", is_dry=False)


@pytest.mark.parametrize("folder", KEPT_THERE)
def test_who_administers_a_namespace_neither_changes_nor_deletes_what_egs_keeps_there(folder: str, world: World, ours: None) -> None:
    path, unlabeled = f"{folder}/{KEPT_THERE[folder]['metadata']['name']}", {"metadata": {"labels": {cluster_names.SLICE: None}}}

    for caller, outcome in ((world.people["o"], "egs-fence"), (world.root, DONE)):
        assert caller.call("PATCH", path, unlabeled, kind=MERGE).outcome == outcome
        assert caller.call("DELETE", path).outcome == outcome


def test_who_administers_a_namespace_writes_and_deletes_what_is_not_of_egs(world: World, kept: str) -> None:
    by = world.people["o"]

    assert by.call("PATCH", f"{kept}/plain", {"metadata": {"labels": {"team": "blue"}}}, kind=MERGE).outcome == DONE
    assert by.call("DELETE", f"{kept}/plain").outcome == DONE
