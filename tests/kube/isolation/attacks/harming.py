"""GPUs that nobody counts, others pushed out, and pods that do not go, or go only from the books."""

from __future__ import annotations

from typing import Any, Final

from protocol import cluster_names
from tests.kube.callers import DONE
from tests.kube.cluster import CLAIMS, POD_RESOURCES, Object
from tests.kube.isolation.attacks.attack import (
    ALL,
    EVERYONE_BY_POD,
    NO_RESIZE,
    ONLY_BY_ROLE,
    WITH_BOX,
    Attack,
    creating,
    deleting,
    eviction,
    gated,
    patching,
    posting,
)
from tests.kube.isolation.attacks.entering import ephemeral
from tests.kube.wire import APPLY, MERGE, STRATEGIC
from tests.kube.world import BLUE_GPR, NODE_BLUE, container

# --- GPUs that nobody counts


def resized(resources: Object) -> Object:
    return {"spec": {"containers": [{"name": "main", "resources": {"limits": resources, "requests": resources}}]}}


def with_gpus(seen: Object) -> None:
    seen["spec"]["containers"][0]["resources"] = {"limits": {cluster_names.GPU: "8"}, "requests": {cluster_names.GPU: "8"}}


def init(**more: Any) -> Object:
    return {"initContainers": [container(1) | {"name": "first", **more}]}


GPU_ATTACKS = [
    Attack("a GPU in an init container", creating(**init()), {ALL: "gated"}, reads=gated),
    Attack("a GPU in a sidecar", creating(**init(restartPolicy="Always")), {ALL: "gated"}, reads=gated),
    *(
        Attack(f"a GPU as {resource}", creating(containers=[container(1, resource=resource)]), {ALL: "gated"}, reads=gated)
        for resource in (
            "nvidia.com/mig-1g.10gb",
            "nvidia.com/gpu.shared",
            "amd.com/gpu",
            "deviceclass.resource.kubernetes.io/gpu.nvidia.com",
        )
    ),
    Attack("none of a GPU, which is no GPU pod", creating(gpus="0"), {ALL: DONE}),
    Attack("GPUs in requests alone", creating(containers=[container(resources={"requests": {cluster_names.GPU: "1"}})]), {ALL: "422"}),
    Attack(
        "GPUs for the pod as a whole",
        creating(resources={"limits": {cluster_names.GPU: "1"}}),
        {ALL: "422"},
        without=(POD_RESOURCES, {ALL: DONE}),
    ),
    Attack("GPUs as overhead", creating(overhead={cluster_names.GPU: "1"}), {ALL: "403"}),
    Attack(
        "GPUs by a claim",
        creating(resourceClaims=[{"name": "gpus", "resourceClaimName": "claim"}]),
        {ALL: "gated"},
        reads=gated,
        without=(CLAIMS, {ALL: DONE}),  # it drops what it does not know
    ),
    Attack("GPUs for a CPU pod that is pending, by PUT", lambda by: by.put("cpu", with_gpus), {ALL: "422"}),
    Attack(
        "to resize a CPU pod to GPUs",
        patching("cpu", resized({cluster_names.GPU: "1"}), sub="resize", kind=STRATEGIC),
        {"a": "RBAC", "uons": "422|egs-pod"},
        without=NO_RESIZE,
    ),
    Attack(
        "to resize a pod to more GPUs",
        patching("mine", resized({cluster_names.GPU: "8"}), sub="resize", kind=STRATEGIC),
        {"a": "RBAC", "uon": "422"},
        without=NO_RESIZE,
    ),
    Attack(
        "to resize a GPU pod to all CPUs of its node",
        patching("mine", resized({"cpu": "100", cluster_names.GPU: "1"}), sub="resize", kind=STRATEGIC),
        {"a": "RBAC", "uon": "egs-pod"},
        without=NO_RESIZE,
    ),
    Attack(
        "a GPU in an ephemeral container",
        patching("mine", ephemeral(resources={"limits": {cluster_names.GPU: "1"}}), sub="ephemeralcontainers", kind=STRATEGIC),
        {"a": "RBAC", "uon": "422"},
    ),
    Attack(
        "a privileged ephemeral container",
        patching("mine", ephemeral(securityContext={"privileged": True}), sub="ephemeralcontainers", kind=STRATEGIC),
        {"a": "RBAC", "uon": "PodSecurity"},
    ),
    Attack(
        "a claim as a device's administrator",
        posting(
            "/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims",
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": "try"},
                "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "adminAccess": True}}]}},
            },
        ),
        {ALL: "422"},
        without=(CLAIMS, {"a": "RBAC", "uons": "404"}),
    ),
    Attack(
        "a device of others for their claim",
        lambda by: by.caller.call(
            "PATCH",
            f"/apis/resource.k8s.io/v1/namespaces/{by.namespace}/resourceclaims/claim/status",
            {
                "status": {
                    "allocation": {
                        "devices": {"results": [{"request": "gpu", "driver": "gpu.nvidia.com", "pool": NODE_BLUE, "device": "gpu-0"}]}
                    }
                }
            },
            kind=MERGE,
        ),
        {"ua": "RBAC", "ons": "422|egs-status"},
        without=(CLAIMS, {"ua": "RBAC", "ons": "404"}),
    ),
]

# --- to push others out, or keep them out


def anti_affinity(**term: Any) -> Object:
    required = {"labelSelector": {}, "topologyKey": "topology.kubernetes.io/zone", **term}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [required]}}}


SERVICE: Final = {"ports": [{"port": 80}], "externalIPs": ["203.0.113.7"]}
TOKEN_SECRET: Final = {
    "metadata": {"name": "try", "annotations": {"kubernetes.io/service-account.name": "egs-bob"}},
    "type": "kubernetes.io/service-account-token",
}

PUSH_ATTACKS = [
    Attack("GPUs with a priority that preempts", creating(gpus=1, priorityClassName="pushes"), EVERYONE_BY_POD, opens=True),
    Attack(
        "all CPUs of a shared node with such a priority",
        creating(containers=[container(resources={"limits": {cluster_names.GPU: "1", "cpu": "120"}})], priorityClassName="pushes"),
        EVERYONE_BY_POD,
        opens=True,
    ),
    Attack("GPUs with a priority that waits", creating(gpus=1, priorityClassName="waits"), {ALL: "gated"}, reads=gated),
    Attack("GPUs with a priority below all", creating(gpus=1, priorityClassName="below"), EVERYONE_BY_POD),
    Attack("GPUs with the system's priority", creating(gpus=1, priorityClassName="system-node-critical"), EVERYONE_BY_POD),
    Attack(
        "the system's priority without GPUs",
        creating(priorityClassName="system-node-critical"),
        {WITH_BOX: "egs-pod", "s": DONE},
        opens=True,
    ),
    Attack(
        "others' traffic by a service",
        posting("/api/v1/namespaces/{namespace}/services", {"metadata": {"name": "try"}, "spec": SERVICE}),
        {WITH_BOX: "egs-workspace", "s": DONE},
        opens=True,
    ),
    Attack(
        "another member's token in a secret",
        posting("/api/v1/namespaces/{namespace}/secrets", TOKEN_SECRET),
        {WITH_BOX: "egs-workspace", "s": DONE},
        opens=True,
    ),
    Attack(
        "a PriorityClass",
        posting("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "try"}, "value": 10**6}),
        ONLY_BY_ROLE,
    ),
    Attack(
        "to keep all other namespaces' pods out of the zone", creating(**anti_affinity(namespaceSelector={})), EVERYONE_BY_POD, opens=True
    ),
    Attack("to keep the victim's pods out of the zone", creating(**anti_affinity(namespaces=["blue"])), EVERYONE_BY_POD, opens=True),
    Attack("to keep their own pods apart, which is their right", creating(**anti_affinity()), {ALL: DONE}),
]

# --- our label, and a pod that does not go


def finalized(name: str) -> Object:
    return {"metadata": {"finalizers": [name]}}


def own_label(value: str | None) -> Object:
    return {"metadata": {"labels": {cluster_names.POD_GPR: value}}}


def labeled(body: Object) -> str:
    return "no effect" if cluster_names.POD_GPR in body["metadata"].get("labels", {}) else DONE


def unlabeled(seen: Object) -> None:
    del seen["metadata"]["labels"]


def succeeded(seen: Object) -> None:
    seen["status"]["phase"] = "Succeeded"


END_ATTACKS = [
    Attack("our label on a new pod", creating(metadata=own_label(BLUE_GPR)["metadata"]), EVERYONE_BY_POD),
    Attack("our label off", patching("mine", own_label(None), kind=MERGE), {WITH_BOX: "egs-pod"}, opens=True),
    Attack(
        "another value of our label, by apply with force",
        patching("mine", {"apiVersion": "v1", "kind": "Pod", **own_label("x")}, kind=APPLY),
        {WITH_BOX: "egs-pod"},
    ),
    Attack(
        "our label off through pods/status",
        lambda by: by.put("mine", unlabeled, sub="status"),
        {"ua": "RBAC", "on": "egs-pod|egs-status"},
        opens=True,
    ),
    Attack(
        "our label off through pods/ephemeralcontainers",
        lambda by: by.put("mine", unlabeled, sub="ephemeralcontainers"),
        {"a": "RBAC", "uon": "no effect"},
        reads=labeled,
    ),
    Attack(
        "our label off through pods/resize",
        lambda by: by.put("mine", unlabeled, sub="resize"),
        {"a": "RBAC", "uon": "egs-pod"},
        without=NO_RESIZE,
    ),
    Attack(
        "a pod that is owned by the victim's node",
        creating(gpus=1, metadata={"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": NODE_BLUE, "uid": "x"}]}),
        {ALL: "gated"},
        reads=gated,
    ),
    Attack("a GPU pod with a finalizer", creating(gpus=1, metadata=finalized("own.io/stay")["metadata"]), EVERYONE_BY_POD),
    Attack("a finalizer on a pod that runs on GPUs", patching("mine", finalized("own.io/stay"), kind=MERGE), {WITH_BOX: "egs-pod"}),
    Attack(
        "a grace of ten years, which the exit overrides",
        creating(gpus=1, terminationGracePeriodSeconds=10 * 365 * 86400),
        {ALL: "gated"},
        reads=gated,
    ),
    Attack("no grace at all", creating(gpus=1, terminationGracePeriodSeconds=0), EVERYONE_BY_POD, opens=True),
    Attack(
        "to delete a pod on GPUs by force",
        deleting("/api/v1/namespaces/{namespace}/pods/mine", gracePeriodSeconds=0),
        {WITH_BOX: "egs-delete"},
        opens=True,
    ),
    Attack(
        "to delete all pods by force",
        deleting("/api/v1/namespaces/{namespace}/pods", gracePeriodSeconds=0),
        {WITH_BOX: "egs-delete", "s": DONE},
    ),
    Attack(
        "to delete a pod on GPUs in good order, which is their right",
        deleting("/api/v1/namespaces/{namespace}/pods/mine"),
        {WITH_BOX: DONE},
    ),
    Attack(
        "to evict a pod on GPUs by force",
        lambda by: by.make(by.pod("mine", "eviction"), eviction("mine", 0)),
        {WITH_BOX: "egs-evict"},
        opens=True,
    ),
    Attack("to evict a pod on GPUs in good order", lambda by: by.make(by.pod("mine", "eviction"), eviction("mine", 5)), {WITH_BOX: DONE}),
    Attack(
        "to report a pod on GPUs as succeeded",
        lambda by: by.put("mine", succeeded, sub="status"),
        {"ua": "RBAC", "on": "egs-status"},
        opens=True,
    ),
]
