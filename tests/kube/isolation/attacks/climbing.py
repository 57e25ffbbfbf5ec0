"""Other namespaces, what their own says, and more rights."""

from __future__ import annotations

from typing import Final

from protocol import cluster_names
from tests.kube.callers import DONE, Answer
from tests.kube.cluster import Object
from tests.kube.isolation.attacks.attack import ONLY_BY_ROLE, Act, Attack, Attacker, calling, deleting, eviction, posting
from tests.kube.wire import MERGE
from tests.kube.world import BLUE, NODE_BLUE, RED, pod, pods_path

# --- other namespaces, and what their own says


def namespace(labels: Object) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "try", "labels": labels}}


def labeling(labels: Object, sub: str = "") -> Act:
    def act(by: Attacker) -> Answer:
        path = f"/api/v1/namespaces/{by.namespace}"
        if not sub:
            return by.caller.call("PATCH", path, {"metadata": {"labels": labels}}, kind=MERGE)
        return by.caller.call(
            "PUT", f"{path}/{sub}", {"metadata": {"name": by.namespace, "labels": labels}, "spec": {"finalizers": ["kubernetes"]}}
        )

    return act


OWN_NAMESPACE: Final = {"ua": "RBAC", "ons": "egs-namespace"}
NEW_NAMESPACE: Final = {"uao": "RBAC", "ns": "egs-namespace"}

NAMESPACE_ATTACKS = [
    *(
        Attack(f"a pod in the namespace {name}", posting(pods_path(name), pod()), ONLY_BY_ROLE)
        for name in ("kube-system", "blue", "egs-system")
    ),
    Attack("to delete the victim's pod", deleting(pods_path("blue", "victim")), ONLY_BY_ROLE),
    Attack("to evict the victim's pod", posting(pods_path("blue", "victim", "eviction"), eviction("victim", 5)), ONLY_BY_ROLE),
    Attack(
        "to run a command in the victim's pod",
        calling("POST", pods_path("blue", "victim", "exec"), command="id", stdout="true"),
        ONLY_BY_ROLE,
    ),
    Attack("the victim's workspace for their namespace", labeling({cluster_names.SLICE: BLUE}), OWN_NAMESPACE, opens=True),
    Attack("the same through namespaces/status", labeling({cluster_names.SLICE: BLUE}, "status"), OWN_NAMESPACE, opens=True),
    Attack("the same through namespaces/finalize", labeling({cluster_names.SLICE: BLUE}, "finalize"), OWN_NAMESPACE, opens=True),
    Attack("to enter all workspaces from their namespace", labeling({cluster_names.MAY_ENTER: "true"}), OWN_NAMESPACE, opens=True),
    Attack("to enter the victim's workspace from their namespace", labeling({cluster_names.MAY_ENTER: BLUE}), OWN_NAMESPACE, opens=True),
    Attack("the same through namespaces/status, for all", labeling({cluster_names.MAY_ENTER: "true"}, "status"), OWN_NAMESPACE, opens=True),
    Attack("to exempt their namespace", labeling({cluster_names.EXEMPT: "true"}), OWN_NAMESPACE, opens=True),
    Attack(
        "Pod Security off in their namespace",
        labeling({"pod-security.kubernetes.io/enforce": "privileged"}),
        {"ua": "RBAC", "on": "egs-namespace", "s": DONE},
        opens=True,
    ),
    Attack(
        "a new namespace of the victim's workspace", posting("/api/v1/namespaces", namespace({cluster_names.SLICE: BLUE})), NEW_NAMESPACE
    ),
    Attack(
        "a new namespace that may enter all workspaces",
        posting("/api/v1/namespaces", namespace({cluster_names.MAY_ENTER: "true"})),
        NEW_NAMESPACE,
    ),
    Attack("a new namespace that is exempt", posting("/api/v1/namespaces", namespace({cluster_names.EXEMPT: "true"})), NEW_NAMESPACE),
    Attack(
        "a new namespace in which nothing is ours", posting("/api/v1/namespaces", namespace({"team": "red"})), {"uao": "RBAC", "ns": DONE}
    ),
]

# --- more rights

AGENT_USER: Final = f"system:serviceaccount:{cluster_names.NAMESPACE}:{cluster_names.AGENT}"
TOKEN_REQUEST: Final = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
AGENT_PATH: Final = f"/api/v1/namespaces/{cluster_names.NAMESPACE}/serviceaccounts/{cluster_names.AGENT}"
RBAC_PATH: Final = "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
POLICIES_PATH: Final = "/apis/admissionregistration.k8s.io/v1"

RIGHT_ATTACKS = [
    Attack("to pass for the agent", calling("GET", "/api/v1/nodes", user=AGENT_USER), ONLY_BY_ROLE),
    Attack("to pass for an administrator", calling("GET", "/api/v1/nodes", user="admin"), ONLY_BY_ROLE),
    Attack("to pass for one of the administrators' group", calling("GET", "/api/v1/nodes", user="u", group="system:masters"), ONLY_BY_ROLE),
    Attack("a token of the agent", posting(f"{AGENT_PATH}/token", TOKEN_REQUEST), ONLY_BY_ROLE),
    Attack(
        "a token of their pods' own account, which is good for nothing more",
        posting("/api/v1/namespaces/{namespace}/serviceaccounts/default/token", TOKEN_REQUEST),
        {"u": "RBAC", "aons": DONE},
    ),
    Attack("to delete the agent's account", deleting(AGENT_PATH), ONLY_BY_ROLE),
    Attack("the agent's document", calling("GET", f"/api/v1/namespaces/{cluster_names.NAMESPACE}/secrets/egs-agent-state"), ONLY_BY_ROLE),
    Attack(
        "a role that binds pods, under which the same policies hold",
        posting(
            f"{RBAC_PATH}/roles",
            {"metadata": {"name": "try"}, "rules": [{"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]}]},
        ),
        {"ua": "RBAC", "ons": DONE},
    ),
    Attack(
        "to be administrators of their namespace, under which the same policies hold",
        posting(
            f"{RBAC_PATH}/rolebindings",
            {
                "metadata": {"name": "try"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            },
        ),
        {"ua": "RBAC", "ons": "RBAC|done"},
    ),
    Attack(
        "the taint off the victim's node",
        calling("PATCH", f"/api/v1/nodes/{NODE_BLUE}", {"spec": {"taints": None}}, kind=MERGE),
        ONLY_BY_ROLE,
    ),
    Attack(
        "to report the victim's node",
        calling("PATCH", f"/api/v1/nodes/{NODE_BLUE}/status", {"status": {"capacity": {"cpu": "1"}}}, kind=MERGE),
        ONLY_BY_ROLE,
    ),
    Attack("to reach the victim's kubelet", calling("GET", f"/api/v1/nodes/{NODE_BLUE}/proxy/pods"), ONLY_BY_ROLE),
    Attack("a node of their own", posting("/api/v1/nodes", {"metadata": {"name": "try"}}), ONLY_BY_ROLE),
    Attack(
        "to become a node",
        posting(
            "/apis/certificates.k8s.io/v1/certificatesigningrequests",
            {
                "metadata": {"name": "try"},
                "spec": {"signerName": "kubernetes.io/kube-apiserver-client-kubelet", "request": "eA==", "usages": ["client auth"]},
            },
        ),
        ONLY_BY_ROLE,
    ),
    Attack("a policy's binding off", deleting(f"{POLICIES_PATH}/validatingadmissionpolicybindings/egs-pod"), ONLY_BY_ROLE),
    Attack("the gate's policy off", deleting(f"{POLICIES_PATH}/mutatingadmissionpolicies/egs-gate"), ONLY_BY_ROLE),
    Attack(
        "the guard open",
        calling("PATCH", cluster_names.GUARD_PATH, {"spec": {"nodes": {NODE_BLUE: f"@1,{RED}"}}}, kind=MERGE),
        ONLY_BY_ROLE,
    ),
    Attack(
        "a volume on the host",
        posting("/api/v1/persistentvolumes", {"metadata": {"name": "try"}, "spec": {"hostPath": {"path": "/"}}}),
        ONLY_BY_ROLE,
    ),
]
