"""Defines Kubernetes objects with the fields that the agent needs, by their wire names.

Pods are cut to the most that a real pod needs: thousands of pods of any size would not fit into the agent's memory.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any, Final, Protocol

import msgspec

from protocol import cluster_names
from worker_agent.kube.api import devices

# Labels by operators of workloads, that say what a pod is among its peers; the first one that a pod has counts.
RANK_LABELS: Final = (
    "training.kubeflow.org/replica-index",
    cluster_names.INDEX_OF_POD,
    "leaderworkerset.sigs.k8s.io/worker-index",
    "apps.kubernetes.io/pod-index",
)
ROLE_LABELS: Final = (
    *("training.kubeflow.org/replica-type", "training.kubeflow.org/job-role"),
    *("jobset.sigs.k8s.io/replicatedjob-name", "ray.io/node-type"),
)
SERVED_LABEL: Final = "serving.kserve.io/inferenceservice"  # the name of the InferenceService that the pod belongs to
POD_LABELS: Final = frozenset(
    {
        *(cluster_names.POD_GPR, cluster_names.MODEL, cluster_names.CHECK_OF, cluster_names.JOB_OF_POD, cluster_names.INDEX_OF_POD),
        *(cluster_names.JOB_SET_OF_POD, cluster_names.TRAINING_OF_POD),
        *(*RANK_LABELS, *ROLE_LABELS, SERVED_LABEL),
    }
)
POD_ANNOTATIONS: Final = frozenset({cluster_names.ENDS_AT, cluster_names.IDLE_RELEASE_AT})
WORD_MAX: Final = 256  # longer than any name or label can be
FINALIZERS_MAX: Final = 20
GATES_MAX: Final = 50  # before EGS's own
CONTAINERS_MAX: Final = 100  # of a pod that is let into a box
RESOURCES_MAX: Final = 50  # of a container
ARGUMENTS_MAX: Final = 40  # of a container with GPUs, each of so many characters
ARGUMENT_MAX: Final = 1000
# Variables that say how work is divided, or which model it is about. No others are read.
VARIABLES: Final = frozenset(
    {"WORLD_SIZE", "NNODES", "NPROC_PER_NODE", "TENSOR_PARALLEL_SIZE", "PIPELINE_PARALLEL_SIZE", "MODEL_NAME", "MODEL_ID"}
)
LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)  # stands for a missing time


class Owner(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    apiVersion: str
    kind: str
    name: str
    uid: str
    controller: bool = False  # it makes such objects, and makes a deleted one again


class Meta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""
    creationTimestamp: datetime | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    deletionTimestamp: str = ""
    finalizers: tuple[str, ...] = ()
    ownerReferences: tuple[Owner, ...] = ()

    @property
    def controller(self) -> Owner | None:
        return next((owner for owner in self.ownerReferences if owner.controller), None)

    def label(self, key: str) -> str:
        return (self.labels or {}).get(key, "")

    def annotation(self, key: str) -> str:
        return (self.annotations or {}).get(key, "")


def _lean(meta: Meta) -> Meta:
    # A map or list that is empty afterwards stays, because a JSON Patch depends on whether it exists. The same holds for the spec.
    return msgspec.structs.replace(
        meta,
        labels=_kept(meta.labels, POD_LABELS),
        annotations=_kept(meta.annotations, POD_ANNOTATIONS),
        finalizers=meta.finalizers[:FINALIZERS_MAX],
        ownerReferences=tuple(_cut(owner) for owner in meta.ownerReferences if owner.controller),
    )


def _kept(there: dict[str, str] | None, keys: Collection[str]) -> dict[str, str] | None:
    return None if there is None else {key: there[key][:WORD_MAX] for key in keys if key in there}


def _cut(owner: Owner) -> Owner:
    words = (owner.apiVersion, owner.kind, owner.name, owner.uid)
    if max(map(len, words)) <= WORD_MAX:
        return owner
    version, kind, name, uid = (word[:WORD_MAX] for word in words)
    return Owner(apiVersion=version, kind=kind, name=name, uid=uid, controller=owner.controller)


class Named(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def resourceVersion(self) -> str: ...


class HasMeta(Protocol):
    @property
    def metadata(self) -> Named: ...


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    lastTransitionTime: datetime | None = None


class Taint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    key: str
    effect: str
    value: str = ""


class NodeSpec(msgspec.Struct, frozen=True, kw_only=True):
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True):
    bootID: str = ""


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}
    conditions: tuple[Condition, ...] = ()
    nodeInfo: NodeInfo = NodeInfo()

    @property
    def is_ready(self) -> bool:
        return is_ready(self.conditions)


def is_ready(conditions: tuple[Condition, ...]) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in conditions)


class Node(msgspec.Struct, frozen=True, kw_only=True):
    metadata: Meta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    limits: dict[str, str | int] = {}
    requests: dict[str, str | int] = {}

    @property
    def count(self) -> int:
        return len(self.limits) + len(self.requests)

    @property
    def has_gpus(self) -> bool:
        return any(map(devices.current().is_gpu, (*self.limits, *self.requests)))

    @property
    def cut(self) -> Resources:
        return Resources(limits=_first(self.limits), requests=_first(self.requests))


def _first(amounts: dict[str, str | int]) -> dict[str, str | int]:
    is_gpu = devices.current().is_gpu
    keys = sorted(amounts, key=lambda key: not is_gpu(key))[: RESOURCES_MAX // 2]
    return {key: amounts[key] for key in keys}


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: str = ""


class Container(msgspec.Struct, frozen=True, kw_only=True):
    name: str = ""
    resources: Resources = Resources()
    restartPolicy: str = ""  # "Always" makes an init container a sidecar
    # These are kept of containers with GPUs.
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[Variable, ...] = ()

    def __post_init__(self) -> None:
        is_shown = self.resources.has_gpus
        msgspec.structs.force_setattr(self, "name", self.name[:WORD_MAX])
        msgspec.structs.force_setattr(self, "image", self.image[:WORD_MAX] if is_shown else "")
        for field, words in (("command", self.command), ("args", self.args)):
            msgspec.structs.force_setattr(self, field, tuple(word[:ARGUMENT_MAX] for word in words[:ARGUMENTS_MAX]) if is_shown else ())
        kept = (Variable(name=each.name, value=each.value[:WORD_MAX]) for each in self.env if each.name in VARIABLES) if is_shown else ()
        msgspec.structs.force_setattr(self, "env", tuple(kept)[: len(VARIABLES)])


def _largest(containers: tuple[Container, ...]) -> tuple[Container, ...]:
    if len(containers) <= CONTAINERS_MAX and all(each.resources.count <= RESOURCES_MAX for each in containers):
        return containers
    # GPUs come first, so that the cut loses none.
    ranked = sorted(containers, key=lambda each: not each.resources.has_gpus)
    return tuple(msgspec.structs.replace(each, resources=each.resources.cut) for each in ranked[:CONTAINERS_MAX])


class Gate(msgspec.Struct, frozen=True):
    name: str


class Toleration(msgspec.Struct, frozen=True, kw_only=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class PodSpec(msgspec.Struct, frozen=True, kw_only=True):
    nodeName: str = ""
    schedulingGates: tuple[Gate, ...] = ()
    nodeSelector: dict[str, str] | None = None
    tolerations: tuple[Toleration, ...] | None = None
    containers: tuple[Container, ...] = ()
    initContainers: tuple[Container, ...] = ()
    resourceClaims: tuple[dict[str, Any], ...] = ()
    overhead: dict[str, str] = {}
    resources: Resources | None = None  # of the whole pod, beside those of its containers
    is_cut: bool = False  # it asks for more than can be counted; whether for GPUs, is known all the same

    @property
    def lean(self) -> PodSpec:
        containers, inits, gates = _largest(self.containers), _largest(self.initContainers), _gates_to_ours(self.schedulingGates)
        selector = self.nodeSelector
        return msgspec.structs.replace(
            self,
            schedulingGates=gates if len(gates) <= GATES_MAX else gates[-1:],
            nodeSelector=None if selector is None else {key: value for key, value in selector.items() if _is_ours(key)},
            tolerations=None if self.tolerations is None else (),
            containers=containers,
            initContainers=inits,
            resourceClaims=tuple({} for _ in self.resourceClaims[:1]),
            is_cut=self.is_cut or containers != self.containers or inits != self.initContainers or len(gates) > GATES_MAX,
        )


def _gates_to_ours(gates: tuple[Gate, ...]) -> tuple[Gate, ...]:
    """A JSON Patch that removes EGS's gate needs its index among the gates."""
    place = next((place for place, gate in enumerate(gates) if gate.name == cluster_names.GATE), None)
    return () if place is None else gates[: place + 1]


def _is_ours(key: str) -> bool:
    return key == cluster_names.NODE_UID or cluster_names.is_box_label(key)


class WaitingState(msgspec.Struct, frozen=True, kw_only=True):
    reason: str = ""
    message: str = ""


class TerminatedState(msgspec.Struct, frozen=True, kw_only=True):
    exitCode: int
    reason: str = ""
    message: str = ""  # at most 4096 bytes


class ContainerState(msgspec.Struct, frozen=True, kw_only=True):
    waiting: WaitingState | None = None
    terminated: TerminatedState | None = None


class ContainerStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    state: ContainerState = ContainerState()
    restartCount: int = 0


class PodStatus(msgspec.Struct, frozen=True, kw_only=True):
    phase: str = ""
    podIP: str = ""
    startTime: datetime | None = None
    conditions: tuple[Condition, ...] = ()
    initContainerStatuses: tuple[ContainerStatus, ...] = ()
    containerStatuses: tuple[ContainerStatus, ...] = ()


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    metadata: Meta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "metadata", _lean(self.metadata))
        msgspec.structs.force_setattr(self, "spec", self.spec.lean)

    @property
    def is_over(self) -> bool:
        """Its node has reported that nothing of it runs any more."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def is_leaving(self) -> bool:
        return bool(self.metadata.deletionTimestamp)

    @property
    def is_ready(self) -> bool:
        return not self.is_leaving and is_ready(self.status.conditions)

    @property
    def holds(self) -> bool:
        """It runs or may still run."""
        # A pod that is deleted before it had a node can get none any more.
        return not self.is_over and not (self.is_leaving and not self.spec.nodeName)

    def run_of(self, gpr_id: str) -> str:
        """Returns the run of the GPR that its node selector names, or ""."""
        return (self.spec.nodeSelector or {}).get(cluster_names.box_label(gpr_id), "")

    @property
    def placed_at(self) -> datetime | None:
        return next(
            (each.lastTransitionTime for each in self.status.conditions if each.type == "PodScheduled" and each.status == "True"), None
        )

    @property
    def is_unschedulable(self) -> bool:
        return any(each.type == "PodScheduled" and each.reason == "Unschedulable" for each in self.status.conditions)

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.metadata.namespace}/pods/{self.metadata.name}"

    @property
    def label(self) -> str:
        """People read it."""
        return f"{self.metadata.namespace}/{self.metadata.name}"


class PodList(msgspec.Struct, frozen=True):
    items: tuple[Pod, ...]


class VolumeClaimSpec(msgspec.Struct, frozen=True):
    volumeName: str = ""


class VolumeClaimStatus(msgspec.Struct, frozen=True):
    phase: str = ""


class VolumeClaim(msgspec.Struct, frozen=True, kw_only=True):
    metadata: Meta
    spec: VolumeClaimSpec = VolumeClaimSpec()
    status: VolumeClaimStatus = VolumeClaimStatus()


class AttachmentSource(msgspec.Struct, frozen=True):
    persistentVolumeName: str = ""


class AttachmentSpec(msgspec.Struct, frozen=True):
    nodeName: str
    source: AttachmentSource


class VolumeAttachment(msgspec.Struct, frozen=True):
    spec: AttachmentSpec


class BatchJobStatus(msgspec.Struct, frozen=True, kw_only=True):
    conditions: tuple[Condition, ...] = ()


class BatchJob(msgspec.Struct, frozen=True, kw_only=True):
    metadata: Meta
    status: BatchJobStatus = BatchJobStatus()

    @property
    def ended(self) -> Condition | None:
        return self._true("Complete", "Failed")

    @property
    def failing(self) -> Condition | None:
        """It will be Failed once its pods have ended (Kubernetes 1.31 and newer)."""
        return self._true("FailureTarget")

    def _true(self, *types: str) -> Condition | None:
        return next((each for each in self.status.conditions if each.type in types and each.status == "True"), None)


class BatchJobList(msgspec.Struct, frozen=True):
    items: tuple[BatchJob, ...]


class Namespace(msgspec.Struct, frozen=True, kw_only=True):
    metadata: Meta


class ConfigMap(msgspec.Struct, frozen=True, kw_only=True):
    data: dict[str, str] = {}


class GuardSpec(msgspec.Struct, frozen=True, kw_only=True):
    nodes: dict[str, str] = {}  # comma-separated slices by node name, after the node's fence as the first word


class Guard(msgspec.Struct, frozen=True, kw_only=True):
    """Lists the workspaces that may bind pods to a node now."""

    metadata: Meta
    spec: GuardSpec = GuardSpec()
