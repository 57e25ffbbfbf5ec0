"""Makes automatic requests for waiting GPU pods in namespaces whose template, or else the hub's, says auto.

Lives here: which workload gets one, when it is given back, which template applies. Must not live here: what follows once the request exists
(sync.py).

A workload has at most one open request: names follow from the workload, so the API server rejects a second one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from protocol import cluster_names
from protocol.cluster_names import pointer
from protocol.tenancy.cluster_requests import AutoTemplate
from worker_agent.cluster.base import ClusterError, Note, Throttled, Unavailable, WriteConflict
from worker_agent.kube.api.client import Api, Op
from worker_agent.kube.api.custom import API, FINISHED, GIVEN_BACK, REQUESTS, TEMPLATES, Custom, Fields, path_of
from worker_agent.kube.api.objects import Node, Pod
from worker_agent.kube.pods.lifting import asks_for_gpus
from worker_agent.kube.pods.owners import Key
from worker_agent.kube.pods.workloads import (
    WaitingWorkload,
    Workloads,
    largest,
    needs_whole_nodes,
    node_gpus,
    node_of,
    size_of,
    whole_node_gpus,
)
from worker_agent.kube.requests.spec import FROM_TEMPLATE, fields_of_spec
from worker_agent.kube.requests.status import ACCEPTED, condition_of

IDLE_S: Final = 60.0  # how long a request stays unneeded before it is given back
AGAIN_S: Final = 30.0  # after a failed call
NAME_CHARS: Final = 40  # of the workload's name, in the name of its request
AUTO: Final = "Auto"  # a condition of templates
# Ends after which pods that already waited get another request. After any other end only newer pods do, since people or checks decided it.
NATURAL_ENDS: Final = ("COMPLETED", "EVICTED")
IDLE_END: Final = "IDLE"
WAITS: Final = ("QUEUED", "PENDING_APPROVAL")


@dataclass(frozen=True, slots=True)
class ChosenTemplate:
    fields: Fields
    hub_name: str = ""  # the name of the hub's template; "": a template of the namespace


@dataclass(slots=True)
class AutomaticInputs:
    now_mono: float
    requests: Sequence[Custom]
    templates: Iterable[Custom]
    slice_of: Callable[[str], str]  # returns the workspace of a namespace, or ""
    autos: Mapping[str, ChosenTemplate] = field(default_factory=dict)  # by bound namespace: the hub's template for its workspace
    going: Sequence[Custom] = ()  # requests being deleted that a finalizer keeps: their names are taken


@dataclass(slots=True)
class AutomaticRequests:
    """One thread uses it."""

    api: Api
    pods: Callable[[], Iterable[Pod]]
    nodes: Callable[[], Iterable[Node]]
    learn: Callable[[Custom], None]  # takes the API server's answer to a write of a request
    note: Note
    waits_for: Mapping[str, str] = field(default_factory=dict)  # by UID of a waiting pod: the name of its request
    unasked: Mapping[str, str] = field(default_factory=dict)  # by UID of a waiting pod: why the API server refused a request
    _workloads: Workloads = field(init=False)
    _idle_mono: dict[str, float] = field(default_factory=dict)  # by UID of a request: since when it is not needed
    # By key of a workload, UID of a request or template, or namespace.
    _not_before_mono: dict[str | Key, float] = field(default_factory=dict)
    _refused: dict[Key, str] = field(default_factory=dict)  # by key of workload
    # By requested fields: the result for this look, since reading all nodes is slow.
    _whole_gpus: dict[tuple[str, ...], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._workloads = Workloads(self.api)

    def look(self, inputs: AutomaticInputs) -> None:
        self._whole_gpus.clear()
        templates = {**inputs.autos, **self._elect(inputs)}
        made = [gpr for gpr in inputs.requests if gpr.is_auto]
        is_open = [gpr for gpr in made if not gpr.is_finished]
        namespaces = {*templates, *(gpr.metadata.namespace for gpr in is_open)}
        if not namespaces:
            self.waits_for = self.unasked = {}
            return
        pods = list(self.pods())
        # Any pod of the workspace may enter a box, so a box with pods of another workload is not given back.
        in_use = boxes_in_use(pods)
        try:
            workloads = self._workloads.of(pod for pod in pods if pod.metadata.namespace in namespaces)
        except ClusterError as error:
            self._trouble("", inputs.now_mono, error)
            return
        for namespace, refusal in self._workloads.refused.items():
            self._trouble(namespace, inputs.now_mono, refusal)
        unsure = {*self._workloads.behind, *self._workloads.refused}  # here a request may have pods not yet known to belong to it
        idle = [gpr for gpr in is_open if gpr.status_fields.get("gprID") not in in_use and gpr.metadata.namespace not in unsure]
        self._give_back(idle, workloads, inputs.now_mono)
        made_for: dict[Key, list[Custom]] = defaultdict(list)
        for gpr in made:
            made_for[_workload_of(gpr)].append(gpr)
        waiting = [workload for workload in workloads.values() if workload.waiting]
        waits_for: dict[str, str] = {}
        for workload in waiting:
            if name := self._serve(workload, templates.get(workload.namespace), made_for.get(workload.key, ()), inputs):
                self._refused.pop(workload.key, None)
                waits_for |= {pod.metadata.uid: name for pod in workload.waiting}
        self.waits_for = waits_for
        self._refused = {workload.key: self._refused[workload.key] for workload in waiting if workload.key in self._refused}
        self.unasked = {pod.metadata.uid: self._refused[each.key] for each in waiting if each.key in self._refused for pod in each.waiting}
        self._workloads.forget_all_but(workload.key for workload in waiting)
        self._not_before_mono = {key: mono for key, mono in self._not_before_mono.items() if mono > inputs.now_mono}

    # -- templates -----------------------------------------------------------------------------------------------------

    def _elect(self, inputs: AutomaticInputs) -> dict[str, ChosenTemplate]:
        # The first by name counts in each bound namespace. Each template that says auto has a condition that says whether it counts.
        first: dict[str, Custom] = {}
        for template in sorted(inputs.templates, key=lambda each: each.metadata.name):
            namespace = template.metadata.namespace
            if template.fields.get("auto") is not True:
                self._tell(template, None, inputs.now_mono)
            elif not inputs.slice_of(namespace):
                self._tell(template, ("False", "NamespaceNotBound", "This namespace is bound to no workspace."), inputs.now_mono)
            elif namespace in first:
                said = f"GPRTemplate {first[namespace].metadata.name} says auto as well, and is the first by name."
                self._tell(template, ("False", "NotFirst", said), inputs.now_mono)
            else:
                first[namespace] = template
                self._tell(template, ("True", "First", ""), inputs.now_mono)
        return {namespace: ChosenTemplate(template.fields) for namespace, template in first.items()}

    def _tell(self, template: Custom, said: tuple[str, str, str] | None, now_mono: float) -> None:
        """`said` None: the template does not say auto."""
        wanted: Fields = {"conditions": [condition_of(template, AUTO, *said, datetime.now(UTC))]} if said else {}
        if wanted == template.status_fields or now_mono < self._not_before_mono.get(template.metadata.uid, float("-inf")):
            return
        # The mirror shows a write only a moment later.
        self._not_before_mono[template.metadata.uid] = now_mono + 1.0
        meta = template.metadata
        ops: list[Op] = [{"op": "test", "path": "/metadata/uid", "value": meta.uid}, {"op": "add", "path": "/status", "value": wanted}]
        try:
            self.api.patch(f"{path_of(TEMPLATES, meta.namespace, meta.name)}/status", ops, Custom)
        except ClusterError as error:
            self._trouble(meta.uid, now_mono, error)

    # -- making one ----------------------------------------------------------------------------------------------------

    def _serve(self, workload: WaitingWorkload, template: ChosenTemplate | None, own: Sequence[Custom], inputs: AutomaticInputs) -> str:
        """Returns the name of the request that the pods wait for, or "". `own`: requests made for the workload."""
        if there := next((gpr for gpr in own if not gpr.is_finished), None):
            return there.metadata.name
        if by_hand := self._by_hand(workload, inputs):
            return by_hand
        if template is None or not self._workloads.settled(workload, inputs.now_mono) or not self._may_have_another(workload, own):
            return ""
        if inputs.now_mono < self._not_before_mono.get(workload.key, float("-inf")):
            return ""
        going = [gpr for gpr in inputs.going if _workload_of(gpr) == workload.key]
        return self._make(workload, template, request_name(workload, [*own, *going]), inputs.now_mono)

    def _by_hand(self, workload: WaitingWorkload, inputs: AutomaticInputs) -> str:
        """Finds a request made by people in the same workspace that can hold each pod."""
        slice_ = inputs.slice_of(workload.namespace)
        for gpr in inputs.requests:
            if gpr.is_auto or gpr.is_finished or gpr.condition(ACCEPTED).get("status") == "False" or gpr.fields.get("earlyRelease"):
                continue
            if inputs.slice_of(gpr.metadata.namespace) == slice_ and self._fit_into(gpr, workload.waiting):
                return gpr.metadata.name
        return ""

    def _fit_into(self, gpr: Custom, pods: Sequence[Pod]) -> bool:
        filed = gpr.status_fields.get("templateSpec")
        fields = {**(filed if isinstance(filed, dict) else {}), **gpr.fields}
        gpus_per_node = fields.get("gpusPerNode")
        if not isinstance(gpus_per_node, int):
            return True
        if gpus_per_node < largest(pods):
            return False
        return not any(map(needs_whole_nodes, pods)) or self._gets_whole_nodes(gpr, fields, gpus_per_node)

    def _gets_whole_nodes(self, gpr: Custom, fields: Fields, gpus_per_node: int) -> bool:
        # Judged by the nodes that it has. Before that, it must ask for as many GPUs as any node it may get.
        named = gpr.status_fields.get("nodes")
        has = [node_gpus(node) for node in self.nodes() if node.metadata.name in named] if isinstance(named, list) else []
        return all(gpus == gpus_per_node for gpus in has) if has else gpus_per_node == self._whole_node_gpus(fields)

    def _whole_node_gpus(self, fields: Fields) -> int:
        words = tuple(str(fields.get(word) or "") for word in ("shape", "minGpuMemoryGiB", "nodeType", "rdma"))
        if words not in self._whole_gpus:
            self._whole_gpus[words] = whole_node_gpus(fields, self.nodes())
        return self._whole_gpus[words]

    @staticmethod
    def _may_have_another(workload: WaitingWorkload, own: Sequence[Custom]) -> bool:
        ends = [str(gpr.condition(FINISHED).get("lastTransitionTime", "")) for gpr in own if not has_ended_naturally(gpr)]
        last = max(ends, default="")
        stamps = (pod.metadata.creationTimestamp for pod in workload.waiting)
        return not last or any(rfc3339 is not None and rfc3339.strftime("%Y-%m-%dT%H:%M:%SZ") > last for rfc3339 in stamps)

    def _make(self, workload: WaitingWorkload, template: ChosenTemplate, name: str, now_mono: float) -> str:
        spec = spec_for(workload, template.fields, self.nodes)
        if spec is None:
            return ""
        owner = workload.owner
        body: dict[str, Any] = {
            "apiVersion": API,
            "kind": "GPUProvisioningRequest",
            "metadata": {
                "name": name,
                "namespace": workload.namespace,
                "annotations": {
                    cluster_names.AUTO: "true",
                    **({cluster_names.HUB_TEMPLATE: template.hub_name} if template.hub_name else {}),
                },
                "labels": {cluster_names.WORKLOAD: owner.uid},
                "ownerReferences": [{"apiVersion": owner.apiVersion, "kind": owner.kind, "name": owner.name, "uid": owner.uid}],
            },
            "spec": spec,
        }
        try:
            self.learn(self.api.create(path_of(REQUESTS, workload.namespace), body, Custom))
        except ClusterError as error:
            self._trouble(workload.key, now_mono, error)
            if not isinstance(error, WriteConflict | Throttled | Unavailable):  # after these the request may exist now or soon
                self._refused[workload.key] = str(error)
            return ""
        # If its owner is gone, the request is garbage-collected at once and must not be created again and again.
        self._not_before_mono[workload.key] = now_mono + AGAIN_S
        self.note("request_made", {"namespace": workload.namespace, "name": name, "pods": len(workload.waiting)})
        return name

    # -- giving it back ------------------------------------------------------------------------------------------------

    def _give_back(self, is_open: Sequence[Custom], workloads: Mapping[Key, WaitingWorkload], now_mono: float) -> None:
        idle = {
            gpr.metadata.uid: gpr
            for gpr in is_open
            if gpr.metadata.labels.workload and not _is_needed(gpr, workloads.get(_workload_of(gpr))) and not gpr.fields.get("earlyRelease")
        }
        self._idle_mono = {uid: self._idle_mono.get(uid, now_mono) for uid in idle}
        for uid, gpr in idle.items():
            if now_mono - self._idle_mono[uid] >= IDLE_S and now_mono >= self._not_before_mono.get(uid, float("-inf")):
                self._release(gpr, now_mono)

    def _release(self, gpr: Custom, now_mono: float) -> None:
        meta = gpr.metadata
        ops: list[Op] = [
            {"op": "test", "path": "/metadata/uid", "value": meta.uid},
            {"op": "add", "path": "/spec/earlyRelease", "value": True},
            {"op": "add", "path": pointer("metadata", "annotations", cluster_names.AUTO), "value": GIVEN_BACK},
        ]
        try:
            self.learn(self.api.patch(path_of(REQUESTS, meta.namespace, meta.name), ops, Custom))
        except ClusterError as error:
            self._trouble(meta.uid, now_mono, error)
            return
        self.note("request_given_back", {"namespace": meta.namespace, "name": meta.name})

    def _trouble(self, what: str | Key, now_mono: float, error: ClusterError) -> None:
        is_new = what not in self._not_before_mono
        self._not_before_mono[what] = now_mono + AGAIN_S
        if is_new and not (isinstance(error, WriteConflict) and "AlreadyExists" in str(error)):
            self.note("auto_request_failed", {"why": str(error)})


def template_of_hub(template: AutoTemplate) -> ChosenTemplate:
    return ChosenTemplate(fields_of_spec(template.spec), template.name)


def has_ended_naturally(gpr: Custom) -> bool:
    """Returns whether its time was over, others needed its nodes, or its GPUs were unused."""
    is_unused = gpr.metadata.annotations.auto == GIVEN_BACK or gpr.status_fields.get("endReason") == IDLE_END
    return is_unused or gpr.status_fields.get("state") in NATURAL_ENDS


def boxes_in_use(pods: Iterable[Pod]) -> frozenset[str]:
    """Returns IDs of GPRs that have GPU pods."""
    return frozenset(pod.metadata.label(cluster_names.POD_GPR) for pod in pods if pod.holds and asks_for_gpus(pod))


def spec_for(workload: WaitingWorkload, template: Fields, nodes: Callable[[], Iterable[Node]]) -> Fields | None:
    """Returns None if no pod fits."""
    # The node count follows from the pods unless the template says it.
    spec = {key: value for key, value in template.items() if key in FROM_TEMPLATE}
    gpus_per_node = spec.get("gpusPerNode")
    pods = workload.waiting
    if gpus_per_node and any(map(needs_whole_nodes, pods)) and gpus_per_node != whole_node_gpus(spec, nodes()):
        pods = [pod for pod in pods if not needs_whole_nodes(pod)]
    size = size_of(pods, gpus_per_node=gpus_per_node, node=node_of(str(spec.get("shape", "")), nodes()))
    if size is None:
        return None
    if "nodes" in spec:
        return spec
    return {**spec, "nodes": size.nodes, **({"gpusPerNode": size.gpus_per_node} if size.gpus_per_node else {})}


def _is_needed(gpr: Custom, workload: WaitingWorkload | None) -> bool:
    if workload is None:
        return False
    # A request without nodes serves waiting pods only: pods that run got their nodes from another one.
    return bool(workload.waiting) or gpr.status_fields.get("state") not in WAITS


def _workload_of(gpr: Custom) -> Key:
    return gpr.metadata.namespace, gpr.metadata.labels.workload


def request_name(workload: WaitingWorkload, own: Iterable[Custom]) -> str:
    # The same state gives the same name, so that the API server rejects a second request.
    base = f"{cluster_names.object_name(workload.owner.name)[:NAME_CHARS].rstrip('-')}-{workload.owner.uid[:8]}"
    numbers = [int(match[1]) for gpr in own if (match := re.search(r"-(\d{1,9})\Z", gpr.metadata.name.removeprefix(base)))]
    taken = [*numbers, *(1 for gpr in own if gpr.metadata.name == base)]
    return f"{base}-{max(taken) + 1}" if taken else base
