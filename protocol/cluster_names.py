"""Names labels, taints, annotations and names of EGS's objects in a cluster.

The admission policies in deploy/agent let only the agent write them.
"""

from __future__ import annotations

import re
from typing import Final

NAMESPACE: Final = "egs-system"
AGENT: Final = "egs-agent"  # ServiceAccount, Lease and Secret of the agent, in NAMESPACE
FIELD_MANAGER: Final = "egs-agent"
NAME_MAX: Final = 63

# On pods
GATE: Final = "egs.io/gpr"  # the scheduling gate that admission adds to each pod that requests GPUs
POD_GPR: Final = "egs.io/gpr"  # label of a lifted pod: the id of its GPR
MODEL: Final = "model"  # label by people, who may write none of egs.io/: which model the pod trains or serves
ENDS_AT: Final = "egs.io/ends-at"  # annotation of a lifted pod: when its box ends (RFC 3339), for the pod to read
IDLE_RELEASE_AT: Final = "egs.io/idle-release-at"  # the same: when its box is released if its GPUs go on doing nothing

# On nodes. Kubelets may not write labels of this prefix.
MANAGED: Final = "egs.io/managed"  # label "true", set by the cluster's operator: EGS manages the node
TAINT: Final = "egs.io/box"
TAINT_EFFECT: Final = "NoSchedule"
FREE, SHARED, DRAINING = "free", "shared", "draining"  # values of the taint, besides box_of()
NODE_PREFIX: Final = "node-restriction.kubernetes.io/"
BOX_PREFIX: Final = f"{NODE_PREFIX}egs-box-"
NODE_SLICE: Final = f"{NODE_PREFIX}egs-slice"
NODE_UID: Final = f"{NODE_PREFIX}egs-node"
RECORDS: Final = "egs.io/records"  # annotation: the record of each GPU; every write to the node tests it
GPU_UUIDS: Final = "egs.io/gpu-uuids"  # annotation, set by the cluster's operator: UUIDs of all GPUs, comma-separated, by index
GPU_HARDWARE: Final = "egs.io/gpu-hardware"  # annotation: what checks read from its GPUs, see hardware.py
REPAIR: Final = "egs.io/repair"  # annotation: what the agent asks a tool of the cluster's operator to do to the node, as JSON
REPAIR_DONE: Final = "egs.io/repair-done"  # annotation by which that tool answers: the id of what was asked, and "ok" or what went wrong
ORDER, SUPPLY = "egs.io/order", "egs.io/supply"  # labels of nodes that were ordered

# On namespaces
SLICE: Final = "egs.io/slice"
BOUND_TO: Final = "egs.io/bound-to"  # the same id, from which the agent restores a SLICE that somebody removed
EXEMPT: Final = "egs.io/exempt"
MAY_ADOPT: Final = "egs.io/may-adopt"  # "true", set by the cluster's operator: the agent may bind the namespace although it existed before
# Set by the cluster's operator: "true", or the id of the one workspace whose pods this namespace may reach
MAY_ENTER: Final = "egs.io/may-enter"
POD_SECURITY: Final = "pod-security.kubernetes.io/"
ACCOUNTS: Final = "egs-accounts"  # the namespace of all kubeconfigs' service accounts, for all workspaces
OF_CLUSTER: Final = ("default", NAMESPACE, ACCOUNTS)  # no workspace can have these, nor those that begin with kube-

MAY_RESTART: Final = "egs.io/may-restart"  # "true", set by the cluster's operator: the agent may delete pods of the GPU driver in it

# In the namespaces of a workspace; each of these objects has the label SLICE too
ISOLATION: Final = "egs-slice"  # the NetworkPolicy and the ResourceQuota
KEEP: Final = "egs.io/keep"  # label "true" of a NetworkPolicy, set by the cluster's operator: the agent leaves it, whatever it allows
SAID: Final = "egs.io/said"  # annotation: the digest of the object as the agent wrote it
ACCOUNT: Final = "egs.io/account"  # label of a ServiceAccount and its RoleBindings: the account of the hub

# On requests that are objects, annotations
REQUESTER: Final = "egs.io/requester"  # who created it, according to the API server
AUTO: Final = "egs.io/auto"  # "true": the agent created it for waiting pods
HUB_TEMPLATE: Final = "egs.io/hub-template"  # the name of the hub's template from which the agent created it
WORKLOAD: Final = "egs.io/workload"  # label of automatic ones: the uid of the owner of these pods

# On Jobs and pods of checks: the assignment or the attempt of a box, and the step
CHECK_OF: Final = "egs.io/check-of"
CHECK_STEP: Final = "egs.io/check-step"
JOB_SET_OF_POD: Final = "jobset.sigs.k8s.io/jobset-name"  # labels by operators
TRAINING_OF_POD: Final = "training.kubeflow.org/job-name"
JOB_OF_POD: Final = "batch.kubernetes.io/job-name"  # labels by Kubernetes
INDEX_OF_POD: Final = "batch.kubernetes.io/job-completion-index"
CHECK_SERVICE: Final = "egs-checks"  # pods of a check on several nodes find each other by it; the installation creates it

# On the objects of jobs, labels: the job, and its run as box_of()
JOB: Final = "egs.io/job"
JOB_BOX: Final = "egs.io/job-box"
JOB_FIELD_MANAGER: Final = "egs-jobs"

# The bind guard: one object for all nodes
GUARD_PATH: Final = "/apis/egs.io/v1alpha1/bindguards/nodes"

GPU: Final = "nvidia.com/gpu"
GPU_PREFIXES: Final = ("nvidia.com/", "amd.com/", "gpu.intel.com/", "habana.ai/", "deviceclass.resource.kubernetes.io/")


# Names that an object can have (RFC 1123). People may write any owner name into a pod: the agent does not ask for impossible ones.
_OBJECT_NAME: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


def is_object_name(text: str) -> bool:
    return _OBJECT_NAME.fullmatch(text) is not None


def is_box_label(key: str) -> bool:
    return key.startswith(BOX_PREFIX)


def box_of(gpr_id: str, run: int) -> str:
    """Names one run of a GPR: the value of the taint that its pods tolerate."""
    return f"{gpr_id}.{run}"


def box_label(gpr_id: str) -> str:
    """Returns the key of a node's label, for the nodeSelector of the GPR's pods. Its value is the run."""
    return f"{BOX_PREFIX}{gpr_id}"


def account_of(account_id: str) -> str:
    """Returns the name of an account's ServiceAccount and RoleBindings."""
    return f"egs-{account_id}"


def role_of(role: str) -> str:
    return f"egs-slice-{role}"


def object_name(text: str) -> str:
    """Follows RFC 1123."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:NAME_MAX].strip("-") or "workspace"


def pointer(*parts: str | int) -> str:
    """Follows RFC 6901 (JSON Pointer)."""
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in parts)


def node_path(name: str) -> str:
    return f"/api/v1/nodes/{name}"
