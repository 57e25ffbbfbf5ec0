"""What EGS writes into a cluster: keys of labels, taints and annotations, and names of objects.

The admission policies in deploy/agent keep all of these from everybody but the agent. Must not live here: any call.
"""

from __future__ import annotations

import re
from typing import Final

NAMESPACE: Final = "egs-system"
AGENT: Final = "egs-agent"  # ServiceAccount, Lease and Secret of the agent, in NAMESPACE
FIELD_MANAGER: Final = "egs-agent"
NAME_MAX: Final = 63

# On pods
GATE: Final = "egs.io/gpr"  # the scheduling gate that admission puts on each pod that asks for GPUs
POD_GPR: Final = "egs.io/gpr"  # label of a lifted pod: the id of its GPR
ENDS_AT: Final = "egs.io/ends-at"  # annotation of a lifted pod, for itself: when its box ends (RFC 3339)

# On nodes. Kubelets may not write labels of this prefix.
MANAGED: Final = "egs.io/managed"  # label "true", set by whoever runs the cluster: the agent takes the node in
TAINT: Final = "egs.io/box"
TAINT_EFFECT: Final = "NoSchedule"
FREE, SHARED, DRAINING = "free", "shared", "draining"  # values of the taint, besides box_of()
NODE_PREFIX: Final = "node-restriction.kubernetes.io/"
BOX_PREFIX: Final = f"{NODE_PREFIX}egs-box-"
NODE_SLICE: Final = f"{NODE_PREFIX}egs-slice"
NODE_UID: Final = f"{NODE_PREFIX}egs-node"
RECORDS: Final = "egs.io/records"  # annotation: the record of each GPU, what every write to the node tests
GPU_UUIDS: Final = "egs.io/gpu-uuids"  # annotation, set by whoever runs the cluster: of all its GPUs, comma-separated, by index
GPU_HARDWARE: Final = "egs.io/gpu-hardware"  # annotation: what checks read of its GPUs, see hardware.py
ORDER, SUPPLY = "egs.io/order", "egs.io/supply"  # labels of nodes that were ordered

# On namespaces
SLICE: Final = "egs.io/slice"
BOUND_TO: Final = "egs.io/bound-to"  # the same id, given and taken with it: by this mark it is put back where somebody took it off
EXEMPT: Final = "egs.io/exempt"
MAY_ADOPT: Final = "egs.io/may-adopt"  # "true", set by whoever runs the cluster: the agent may bind it though it was there before
MAY_ENTER: Final = "egs.io/may-enter"  # set by whoever runs the cluster: "true", or the id of the one workspace whose pods it may reach
POD_SECURITY: Final = "pod-security.kubernetes.io/"
ACCOUNTS: Final = "egs-accounts"  # the namespace of the service accounts of kubeconfigs, of all workspaces
OF_CLUSTER: Final = ("default", NAMESPACE, ACCOUNTS)  # never a workspace's, nor those that begin with kube-

# In the namespaces of a workspace; each of these objects has the label SLICE, too
ISOLATION: Final = "egs-slice"  # the NetworkPolicy and the ResourceQuota
KEEP: Final = "egs.io/keep"  # label "true" of a NetworkPolicy, set by whoever runs the cluster: it is left, whatever it lets through
SAID: Final = "egs.io/said"  # annotation: the digest of what the agent said of the object
ACCOUNT: Final = "egs.io/account"  # label of a ServiceAccount and its RoleBindings: the account of the hub

# On requests that are objects, annotations
REQUESTER: Final = "egs.io/requester"  # who made it, by the word of the API server
AUTO: Final = "egs.io/auto"  # "true": we made it, for pods that wait
HUB_TEMPLATE: Final = "egs.io/hub-template"  # the name of the hub's template by which we made it
WORKLOAD: Final = "egs.io/workload"  # label of such: the uid of what these pods belong to

# On Jobs and pods of checks: the assignment, or the attempt of a box, that they are for, and the step
CHECK_OF: Final = "egs.io/check-of"
CHECK_STEP: Final = "egs.io/check-step"
JOB_OF_POD: Final = "batch.kubernetes.io/job-name"  # labels by Kubernetes
INDEX_OF_POD: Final = "batch.kubernetes.io/job-completion-index"
CHECK_SERVICE: Final = "egs-checks"  # by which the pods of one check on several nodes find each other; whoever installs the agent makes it

# The guard, one object for all nodes
GUARD_PATH: Final = "/apis/egs.io/v1alpha1/bindguards/nodes"

GPU: Final = "nvidia.com/gpu"
GPU_PREFIXES: Final = ("nvidia.com/", "amd.com/", "gpu.intel.com/", "habana.ai/", "deviceclass.resource.kubernetes.io/")


# What an object can be called (RFC 1123). People may write any name of an owner into a pod: what none can have is not asked for.
_OBJECT_NAME: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


def is_object_name(text: str) -> bool:
    return _OBJECT_NAME.fullmatch(text) is not None


def is_box_label(key: str) -> bool:
    return key.startswith(BOX_PREFIX)


def box_of(gpr_id: str, run: int) -> str:
    """One run of a GPR: the value of the taint of a whole node, tolerated by the lifted pods."""
    return f"{gpr_id}.{run}"


def box_label(gpr_id: str) -> str:
    """The node's label of one GPR, and the key of its pods' nodeSelector; its value is the run."""
    return f"{BOX_PREFIX}{gpr_id}"


def account_of(account_id: str) -> str:
    """ServiceAccount and RoleBinding of an account."""
    return f"egs-{account_id}"


def role_of(role: str) -> str:
    """The ClusterRole of what a member may do. Whoever installs the agent makes them."""
    return f"egs-slice-{role}"


def object_name(text: str) -> str:
    """A name for an object, as near to the text as one can be (RFC 1123)."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:NAME_MAX].strip("-") or "workspace"


def pointer(*parts: str | int) -> str:
    """A JSON Pointer (RFC 6901)."""
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in parts)


def node_path(name: str) -> str:
    return f"/api/v1/nodes/{name}"
