"""Describes pods of workspaces for the hub. Must not live here: any write."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from protocol import cluster_names
from protocol.assignments import Desired
from protocol.pods import (
    ARGUMENTS_MAX,
    GPUS_MAX,
    PODS_TOLD_MAX,
    RESOURCES_MAX,
    TEXT_MAX_CHARS,
    Hold,
    PodOwner,
    PodSeen,
)
from protocol.tenancy.workspaces import Workspace
from worker_agent.cluster.base import ClusterError, GpuPhase, NodeState, Note
from worker_agent.kube.api.client import Api
from worker_agent.kube.api.objects import RANK_LABELS, ROLE_LABELS, SERVED_LABEL, Container, Owner, Pod
from worker_agent.kube.pods.hidden_words import hide, without_secrets
from worker_agent.kube.pods.holds import hold_of
from worker_agent.kube.pods.lifting import asks_for_gpus, pod_needs
from worker_agent.kube.pods.owners import SHOWN, NotRead, OwnerChains
from worker_agent.telemetry.pod_devices import PodDevices

COUNT_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class _Facts:
    """Holds facts beside the pod from which its description is made."""

    owners: tuple[PodOwner, ...]
    gpus: tuple[str, ...]
    hold: Hold
    why: str


@dataclass(slots=True)
class PodReporter:
    """One thread uses it. `why` says why a pod waits at the gate."""

    api: Api
    pods: Callable[[], Collection[Pod]]
    workspace_of: Callable[[str], str]
    why: Callable[[Pod], str]
    devices: PodDevices
    note: Note
    _chains: OwnerChains = field(init=False)
    _known: dict[str, tuple[Pod, _Facts, PodSeen]] = field(default_factory=dict)
    _told: str = ""

    def __post_init__(self) -> None:
        self._chains = OwnerChains(self.api, SHOWN)

    def look(self, nodes: Mapping[str, NodeState], workspaces: Sequence[Workspace]) -> Iterable[PodSeen]:
        """Leaves out pods whose owners were not read yet."""
        there = self._by_namespace(workspaces)
        sole = _sole_pods(pod for pods in there.values() for pod in pods.values())
        known, self._known = self._known, {}
        try:
            for namespace in self._chains.begin_look(there):
                for pod in there[namespace].values():
                    self._describe(pod, there[namespace], nodes, sole, known)
            self._chains.end_look()
            self._tell("")
        except ClusterError as error:  # those that were not reached stay as they were
            left = {uid: each for uid, each in known.items() if any(uid in pods for pods in there.values())}
            self._known = {**left, **self._known}
            self._tell(str(error))
        return [seen for _, _, seen in list(self._known.values())[:PODS_TOLD_MAX]]

    def _tell(self, why: str) -> None:
        if why and why != self._told:
            self.note("owners_unread", {"why": why})
        self._told = why

    def _by_namespace(self, workspaces: Sequence[Workspace]) -> dict[str, dict[str, Pod]]:
        slice_of = {each.namespace: space.id for space in workspaces for each in space.bindings if each.desired == Desired.PRESENT}
        there: dict[str, dict[str, Pod]] = defaultdict(dict)
        for pod in self.pods():
            namespace = pod.metadata.namespace
            if namespace in slice_of and asks_for_gpus(pod) and self.workspace_of(namespace) == slice_of[namespace]:
                there[namespace][pod.metadata.uid] = pod
        return there

    def _describe(
        self,
        pod: Pod,
        beside: Mapping[str, Pod],
        nodes: Mapping[str, NodeState],
        sole: Collection[str],
        known: Mapping[str, tuple[Pod, _Facts, PodSeen]],
    ) -> None:
        uid = pod.metadata.uid
        before = known.get(uid)
        try:
            owners = tuple(map(_owner, self._with_service(self._chains.of(pod, beside), pod)))
        except NotRead:
            if before is None:
                return
            owners = before[1].owners
        facts = _Facts(owners, self._gpus(pod, nodes.get(pod.spec.nodeName), is_sole=uid in sole), *hold_of(pod, self.why))
        if before is not None and before[:2] == (pod, facts):
            self._known[uid] = before
        else:
            self._known[uid] = (pod, facts, _described(pod, facts))

    @staticmethod
    def _with_service(chain: list[Owner], pod: Pod) -> list[Owner]:
        """KServe's label names the service above the Deployment, whose other owners would need more rights to read."""
        name = pod.metadata.label(SERVED_LABEL)
        if not name or any(owner.kind == "InferenceService" for owner in chain):
            return chain
        # The service has one Deployment at most for each of its parts, so its name stands for its UID.
        return [*chain[:6], Owner(apiVersion="serving.kserve.io/v1beta1", kind="InferenceService", name=name, uid=f"service/{name}")]

    def _gpus(self, pod: Pod, node: NodeState | None, *, is_sole: bool) -> tuple[str, ...]:
        """Returns the GPUs that the exporter names; else all of the box's GPUs on the node, if the pod asks for all of them. Empty: not
        known.
        """
        gpr_id = pod.metadata.label(cluster_names.POD_GPR)
        if node is None or not gpr_id:
            return ()
        held = [gpu for gpu, record in node.records.items() if record.gpr_id == gpr_id and record.phase is GpuPhase.OPEN]
        told = self.devices.of(pod.metadata.namespace, pod.metadata.name, since=pod.status.startTime)
        if found := sorted(gpu for gpu in told if gpu in held):
            return tuple(found[:GPUS_MAX])
        return tuple(sorted(held)[:GPUS_MAX]) if is_sole and _gpu_count(pod) == len(held) else ()


def _sole_pods(pods: Iterable[Pod]) -> set[str]:
    """UIDs of pods that are the only ones of their box on a node."""
    here: dict[tuple[str, str], list[str]] = defaultdict(list)
    for pod in pods:
        if pod.spec.nodeName and pod.holds:
            here[pod.spec.nodeName, pod.metadata.label(cluster_names.POD_GPR)].append(pod.metadata.uid)
    return {uids[0] for uids in here.values() if len(uids) == 1}


def _owner(owner: Owner) -> PodOwner:
    return PodOwner(api=owner.apiVersion, kind=owner.kind, name=owner.name, uid=owner.uid)


def _described(pod: Pod, facts: _Facts) -> PodSeen:
    meta, main = pod.metadata, _main(pod)
    words = [word[:TEXT_MAX_CHARS] for word in without_secrets((*main.command, *main.args))]
    return PodSeen(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        owners=facts.owners,
        phase="Terminating" if pod.is_leaving else pod.status.phase or "Pending",
        hold=facts.hold,
        why=facts.why,
        gpr_id=meta.label(cluster_names.POD_GPR)[:63],
        node=pod.spec.nodeName or None,
        gpu_count=_gpu_count(pod),
        gpus=facts.gpus,
        requests=dict(_requests(pod)),
        image=main.image[:TEXT_MAX_CHARS],
        arguments=tuple(words[:ARGUMENTS_MAX]),
        variables={each.name: hide(each.value) for each in main.env},
        model=meta.label(cluster_names.MODEL),
        role=next((found for key in ROLE_LABELS if (found := meta.label(key))), ""),
        rank=_rank(pod),
        restarts=min(sum(status.restartCount for status in pod.status.containerStatuses), COUNT_MAX),
        created_s=_seconds(meta.creationTimestamp),
        started_s=_seconds(pod.status.startTime),
    )


def _main(pod: Pod) -> Container:
    return next((each for each in pod.spec.containers if each.resources.has_gpus), Container())


def _gpu_count(pod: Pod) -> int:
    try:
        return min(int(pod_needs(pod).get(cluster_names.GPU, 0)), COUNT_MAX)
    except ValueError:
        return 0


def _requests(pod: Pod) -> Iterator[tuple[str, str]]:
    asked: dict[str, str] = {}
    for each in pod.spec.containers:
        for key, value in {**each.resources.limits, **each.resources.requests}.items():
            asked.setdefault(key, str(value))
    for key in sorted(asked)[:RESOURCES_MAX]:
        yield key[:256], asked[key][:256]


def _rank(pod: Pod) -> int | None:
    text = next((found for key in RANK_LABELS if (found := pod.metadata.label(key))), "")
    return int(text) if text.isascii() and text.isdecimal() and int(text) <= COUNT_MAX else None


def _seconds(moment: datetime | None) -> float | None:
    return max(0.0, moment.timestamp()) if moment else None
