"""Builds the objects that EGS keeps in a namespace of a workspace. It makes no calls."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from protocol.assignments import Desired
from protocol.cluster_names import ACCOUNT, BOUND_TO, ISOLATION, MAY_ENTER, POD_SECURITY, SLICE, account_of, object_name, role_of
from protocol.cluster_names import ACCOUNTS as ACCOUNTS_HOME
from protocol.tenancy.workspaces import Account, Workspace
from worker_agent.kube.api.custom import JOBS, REQUESTS, TEMPLATES

Object = dict[str, Any]

# The default limits of each namespace (settings.py may change them). Ports on all nodes and load balancers cost the whole cluster, so an
# administrator has to allow them.
QUOTA: Final[Mapping[str, str]] = {
    "services": "200",
    "services.nodeports": "0",
    "services.loadbalancers": "0",
    "configmaps": "1000",
    "secrets": "1000",
    "persistentvolumeclaims": "200",
    "replicationcontrollers": "200",
    "count/jobs.batch": "2000",
    "count/cronjobs.batch": "200",
    "count/deployments.apps": "500",
    "count/replicasets.apps": "5000",
    "count/statefulsets.apps": "500",
    "count/daemonsets.apps": "50",
    "count/poddisruptionbudgets.policy": "500",
    "count/horizontalpodautoscalers.autoscaling": "500",
    "count/resourceclaims.resource.k8s.io": "2000",
    "count/resourceclaimtemplates.resource.k8s.io": "500",
}
# Limits in each namespace: the agent reads all of these to find accounts whose access ended.
ACCOUNTS: Final = {"count/serviceaccounts": "1000", "count/rolebindings.rbac.authorization.k8s.io": "1000"}
# Limits in each namespace: the agent keeps all of these in memory.
REQUESTS_MAX: Final = 1_000
JOBS_MAX: Final = 200  # what they say may be long
TEMPLATES_MAX: Final = 100
KINDS: Final = {
    f"count/{kind}.egs.io": str(most) for kind, most in ((REQUESTS, REQUESTS_MAX), (JOBS, JOBS_MAX), (TEMPLATES, TEMPLATES_MAX))
}
QUOTA_KEPT: Final = frozenset({"pods", *ACCOUNTS, *KINDS})  # settings cannot change these
# A definition must be this old before its objects are counted: until Kubernetes' quota controller has discovered it, the API server
# refuses all of its objects.
KINDS_COUNTED_S: Final = 120.0
REQUESTED: Final = {"cpu": "100m", "memory": "256Mi"}
DNS_PORTS: Final = [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]
# Addresses beyond the workspace, but not the link-local ones where clouds hand out the node's own credentials.
OUTSIDE: Final = [
    {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}},
    {"ipBlock": {"cidr": "::/0", "except": ["fe80::/10", "fd00:ec2::254/128"]}},
]
# Clusters answer DNS in pods of their own, or in a cache on each node.
DNS: Final = [
    {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}},
    {"ipBlock": {"cidr": "169.254.20.10/32"}},
]


def namespace_labels(workspace: Workspace) -> dict[str, str]:
    return {SLICE: workspace.id, BOUND_TO: workspace.id, **{f"{POD_SECURITY}{mode}": "restricted" for mode in ("enforce", "audit", "warn")}}


def network_policy(workspace: Workspace, namespace: str) -> Object:
    """Allows traffic within the workspace, and DNS."""
    slice_ = {"namespaceSelector": {"matchLabels": {SLICE: workspace.id}}}
    # Namespaces that a cluster administrator lets in, such as an ingress controller's, but never those of another workspace.
    guests = {
        "namespaceSelector": {
            "matchExpressions": [
                {"key": MAY_ENTER, "operator": "In", "values": ["true", workspace.id]},
                {"key": SLICE, "operator": "DoesNotExist"},
            ]
        }
    }
    outside = [{"to": OUTSIDE}] if workspace.may_reach_out else []
    spec = {
        "podSelector": {},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": [slice_, guests]}],
        "egress": [{"to": [slice_]}, {"to": DNS, "ports": DNS_PORTS}, *outside],
    }
    return {**_named("networking.k8s.io/v1", "NetworkPolicy", ISOLATION, namespace, workspace), "spec": spec}


def quota_of(workspace: Workspace, namespace: str, *, limits: Mapping[str, str] = QUOTA, counts_kinds: bool = False) -> Object:
    """It counts objects only: a quota of GPUs would refuse pods that are to wait."""
    spec = {"hard": {**limits, "pods": str(workspace.pods_max), **ACCOUNTS, **(KINDS if counts_kinds else {})}}
    return {**_named("v1", "ResourceQuota", ISOLATION, namespace, workspace), "spec": spec}


def default_requests(workspace: Workspace, namespace: str) -> Object:
    """Sets requests of containers that have none: on a shared node each pod counts by what it requests."""
    spec = {"limits": [{"type": "Container", "defaultRequest": dict(REQUESTED)}]}
    return {**_named("v1", "LimitRange", ISOLATION, namespace, workspace), "spec": spec}


def service_account(workspace: Workspace, account: Account, home: str) -> Object:
    made = _named("v1", "ServiceAccount", account_of(account.id), home, workspace, account)
    return {**made, "automountServiceAccountToken": False}


def role_binding(workspace: Workspace, account: Account, namespace: str, *, home: str = ACCOUNTS_HOME) -> Object:
    name = account_of(account.id)
    return {
        **_named("rbac.authorization.k8s.io/v1", "RoleBinding", name, namespace, workspace, account),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role_of(account.role)},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": home}],
    }


def about_workspace(workspace: Workspace, namespace: str) -> Object:
    spec = {"id": workspace.id, "podsMax": workspace.pods_max, "mayReachOut": workspace.may_reach_out}
    return {**_named("egs.io/v1alpha1", "Workspace", object_name(workspace.name), namespace, workspace), "spec": spec}


def about_status(workspace: Workspace, before: Object, detail: str, *, now: datetime) -> Object:
    """`detail`: why the namespace is not ready, or "". `before`: the present status."""
    namespaces = sorted(binding.namespace for binding in workspace.bindings if binding.desired == Desired.PRESENT)
    ready: Object = {"type": "Ready", "status": "False" if detail else "True", "reason": "Unfinished" if detail else "Bound"}
    if detail:
        ready["message"] = detail
    known: Object = next((each for each in before.get("conditions", []) if each.get("type") == "Ready"), {})
    since = known.get("lastTransitionTime") if known.get("status") == ready["status"] else None
    return {"namespaces": namespaces, "conditions": [ready | {"lastTransitionTime": since or now.strftime("%Y-%m-%dT%H:%M:%SZ")}]}


def _named(version: str, kind: str, name: str, namespace: str, workspace: Workspace, account: Account | None = None) -> Object:
    labels = {SLICE: workspace.id, **({ACCOUNT: account.id} if account else {})}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace, "labels": labels}}
