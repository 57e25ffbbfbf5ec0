"""Drives a Kubernetes cluster for the agent.

Every write to a node is one JSON Patch that tests the records as read; taint and labels follow from them (marks.py). Four locks reserve a
box for its slice: gate, taint, box label and bind guard. It writes the guard before the node to close it, and after the node to open it.
"""

from __future__ import annotations

import base64
import time
import traceback
import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from threading import Event
from typing import Any, Final

import msgspec

from protocol import cluster_names
from protocol.assignments import Assignment
from protocol.nodes.drift import Drift
from protocol.nodes.inventory import NodeOrder
from protocol.nodes.steps import ExitStep
from protocol.tenancy.life_marks import LifeMark
from worker_agent.boxes.state import StateLost
from worker_agent.cluster.base import (
    BoxEnd,
    ClusterError,
    GpuPhase,
    NodeChange,
    NodeState,
    Note,
    Records,
    StateDoc,
    StepCall,
    StepProgress,
    StepStatus,
    Unavailable,
    WriteConflict,
    WriteKind,
)
from worker_agent.kube.api.client import Api, Missing
from worker_agent.kube.api.events import EventRecorder
from worker_agent.kube.api.mirror import SILENCE_S, Mirror
from worker_agent.kube.api.objects import Namespace, Node, Pod
from worker_agent.kube.nodes.bind_guard import BindGuard, closed_value, slices_in, with_slices
from worker_agent.kube.nodes.box_capacity import BoxCapacities
from worker_agent.kube.nodes.drift_repair import DriftRepair, write_node
from worker_agent.kube.nodes.marks import read_records
from worker_agent.kube.nodes.observation import Observation
from worker_agent.kube.pods.draining import Draining
from worker_agent.kube.pods.end_notices import EndNotices
from worker_agent.kube.pods.full_boxes import FullBoxes
from worker_agent.kube.pods.gate_lifter import LIFTS_OF_BOX, Box, GateLifter
from worker_agent.kube.pods.lifting import Lift, NodeCapacity, lifts
from worker_agent.kube.pods.misfits import Misfits
from worker_agent.kube.pods.needs import PodAssessments
from worker_agent.kube.pods.runs import is_in_run
from worker_agent.kube.pods.unschedulable import UnschedulablePods
from worker_agent.kube.requests.life_events import LifeEventRecorder
from worker_agent.metrics import WritePool

STATE_PATH: Final = f"/api/v1/namespaces/{cluster_names.NAMESPACE}/secrets/egs-agent-state"
# Finished pods use no quota and run nothing. With this selector a watch reports them as deleted.
UNFINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"
LOOK_EVERY_S: Final = 1.0
CALLS_AT_ONCE: Final = 8  # per kind of call
TOLD_AT_ONCE: Final = 2
BOXES_TOLD_KEPT: Final = 1000

Step = Callable[[StepCall], StepProgress]


class _Secret(msgspec.Struct, frozen=True, kw_only=True):
    class Meta(msgspec.Struct, frozen=True, kw_only=True):
        resourceVersion: str = ""

    metadata: Meta
    data: dict[str, str] | None = None


class KubernetesCluster:
    """`check` runs each step except the drain. It is not thread-safe, except where a method says so."""

    def __init__(self, api: Api, *, check: Step, note: Note) -> None:
        self._api, self._check, self._note = api, check, note
        self._nodes = Mirror(api=api, path="/api/v1/nodes", type_=Node, note=note)
        self._pods = Mirror(api=api, path="/api/v1/pods", type_=Pod, note=note, params={"fieldSelector": UNFINISHED})
        self._namespaces = Mirror(api=api, path="/api/v1/namespaces", type_=Namespace, note=note)
        self._observation = Observation(self._nodes, self._pods, self._namespaces)
        self._guard = BindGuard(api)
        # One pool per kind, so that hanging calls of one kind do not delay others.
        urgent = dict.fromkeys(("nodes", "lifts", "evictions", "force"), CALLS_AT_ONCE)
        kinds = {**urgent, "tell": TOLD_AT_ONCE, "ends": TOLD_AT_ONCE}
        self._pools = [WritePool(kind, count) for kind, count in kinds.items()]
        self._writers, lifters, evictions, force, tellers, announcers = self._pools
        self._gate_lifter = GateLifter(api, lifters, note)
        self._full, self._capacities, self._unschedulable = FullBoxes(), BoxCapacities(), UnschedulablePods()
        self._assessments = PodAssessments()
        self._misfits = Misfits()
        self._draining = Draining(api, evictions=evictions, force=force)
        self._moves = 0  # counts calls of `serial` while calls are in flight
        self._opening: dict[str, str] = {}  # by node: the guard's value as read before the node was opened
        self._observed_mono = float("-inf")
        # By node: its version, and the slices to which the guard was closed at that version.
        self._fenced: dict[str, tuple[str, frozenset[str]]] = {}
        self._recorder = EventRecorder(api, tellers)
        self._life_events = LifeEventRecorder(self._recorder, self._observation)
        self._end_notices = EndNotices(api, pool=announcers, recorder=self._recorder, observation=self._observation)
        self._boxes_told: deque[tuple[str, int, str]] = deque(maxlen=BOXES_TOLD_KEPT)
        self.waited_for: Callable[[Pod], str] = lambda _: ""  # returns the name of the request that a pod waits for
        self.unasked: Callable[[Pod], str] = lambda _: ""  # returns why no request could be made for a pod
        self._drift_repair = DriftRepair(api, observation=self._observation, guard=self._guard, draining=self._draining, note=note)

    def start(self, stop: Event | None = None) -> None:
        """Starts the watches and waits until all objects are read or `stop` is set."""
        mirrors = (self._nodes, self._pods, self._namespaces)
        for mirror in mirrors:
            mirror.start()
        while not all(mirror.wait_whole(LOOK_EVERY_S) for mirror in mirrors):
            if stop is not None and stop.is_set():
                return
        self._observed_mono = time.monotonic()

    def pods(self) -> Collection[Pod]:
        """It is thread-safe."""
        return self._pods.objects().values()

    def nodes(self) -> Collection[Node]:
        """It is thread-safe."""
        return self._nodes.objects().values()

    def namespace_uid(self, name: str) -> str:
        """Returns "" if there is none. It is thread-safe."""
        found = self._namespaces.objects().get(("", name))
        return found.metadata.uid if found else ""

    def workspace_of(self, namespace: str) -> str:
        """Reads the namespace's label, or returns "" if it is bound to no workspace. It is thread-safe."""
        found = self._namespaces.objects().get(("", namespace))
        return found.metadata.label(cluster_names.SLICE) if found else ""

    def why_watches_lag(self) -> str:
        """Says which watch is behind; "" if none is. It is thread-safe."""
        mirrors: dict[str, Mirror[Any]] = {"nodes": self._nodes, "pods": self._pods, "namespaces": self._namespaces}
        unread = [kind for kind, mirror in mirrors.items() if not mirror.is_whole]
        if unread:
            return f"{', '.join(unread)} have not been read yet"
        silent = [kind for kind, mirror in mirrors.items() if mirror.silent_for_s > SILENCE_S]
        return f"the API server has said nothing of {', '.join(silent)} for more than {SILENCE_S:g} s" if silent else ""

    @property
    def idle_s(self) -> float:
        """Returns seconds since the last pass began."""
        return time.monotonic() - self._observed_mono

    def stop(self) -> None:
        """Cancels pending calls and waits for running ones."""
        for pool in self._pools:
            pool.shutdown(wait=False, cancel_futures=True)
        for mirror in (self._nodes, self._pods, self._namespaces):
            mirror.stop()
        for pool in self._pools:
            pool.shutdown()

    def uid(self) -> str:
        return self._api.get("/api/v1/namespaces/kube-system", Namespace).metadata.uid

    # -- the agent's own document --------------------------------------------------------------------------------------

    def load_state(self) -> StateDoc | None:
        secret = self._api.get(STATE_PATH, _Secret)
        body = (secret.data or {}).get("state")
        if not body:
            return None
        try:
            return StateDoc(body=zlib.decompress(base64.b64decode(body)), version=secret.metadata.resourceVersion)
        except (ValueError, zlib.error) as error:
            raise StateLost(f"the agent's state document, Secret egs-agent-state, is damaged: {error}") from error

    def save_state(self, body: bytes, version: str) -> str:
        """Stores the state compressed, since an object holds at most 1 MiB."""
        if not version:  # the installation created the Secret empty
            secret = self._api.get(STATE_PATH, _Secret)
            if secret.data:
                raise WriteConflict("the state document is there already")
            version = secret.metadata.resourceVersion
        new = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": STATE_PATH.rsplit("/", 1)[1], "namespace": cluster_names.NAMESPACE, "resourceVersion": version},
            "data": {"state": base64.b64encode(zlib.compress(body)).decode()},
        }
        return self._api.replace(STATE_PATH, new, _Secret).metadata.resourceVersion

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def observe(self) -> dict[str, NodeState]:
        if not self._observation.is_whole:
            raise Unavailable("nodes, pods and namespaces have not been read yet")
        self._observed_mono = time.monotonic()
        for pod in self._gate_lifter.take():
            self._observation.learn_pod(pod)
        self._observation.look()
        self._draining.begin_pass()
        return self._observation.states()

    def serial(self) -> int:
        self._moves += self._gate_lifter.is_any_busy or bool(self._opening)
        return self._moves + self._observation.serial

    def write(self, kind: WriteKind, changes: Sequence[NodeChange]) -> list[NodeState | ClusterError]:
        match kind:
            case WriteKind.OPEN:
                return self._open(changes)
            case WriteKind.CLOSE:
                return self._close(changes)
            case _:
                return self._write(changes)

    def _open(self, changes: Sequence[NodeChange]) -> list[NodeState | ClusterError]:
        """`lift_gates` then opens the guard in one patch that tests its value from before the nodes were written."""
        try:
            before = {seen.view.name: self._guard.value(seen.view.name) for seen, _ in changes}
        except ClusterError as error:
            return [error for _ in changes]
        answers = self._write(changes)
        self._opening |= {name: before[name] for name in _names_written(answers)}
        return answers

    def _close(self, changes: Sequence[NodeChange]) -> list[NodeState | ClusterError]:
        """Closes the guard first; a node whose guard could not be closed is not written."""
        for seen, _ in changes:
            self._opening.pop(seen.view.name, None)
        faults = self._try_fence(changes)
        written = iter(self._write([change for change in changes if change[0].view.name not in faults]))
        answers = [faults.get(seen.view.name) or next(written) for seen, _ in changes]
        for name in _names_written(answers):
            self._fenced.pop(name, None)
        return answers

    def _try_fence(self, changes: Sequence[NodeChange]) -> dict[str, ClusterError]:
        try:
            self.prepare_close(changes)
        except WriteConflict as error:
            # One node differs from what was expected: patch them one by one.
            if len(changes) == 1:
                return {changes[0][0].view.name: error}
            return {name: fault for change in changes for name, fault in self._try_fence([change]).items()}
        except ClusterError as error:
            return {seen.view.name: error for seen, _ in changes}
        return {}

    def _write(self, changes: Sequence[NodeChange]) -> list[NodeState | ClusterError]:
        answers = list(self._writers.map(self._try_write, changes))
        return [self._observation.learn_node(answer) if isinstance(answer, Node) else answer for answer in answers]

    def _try_write(self, change: NodeChange) -> Node | ClusterError:
        seen, records = change
        node = self._observation.node(seen.view.name)
        if node is None or node.metadata.uid != seen.view.uid or node.metadata.annotation(cluster_names.RECORDS) != seen.version:
            return WriteConflict(f"node {seen.view.name} was written in between")
        try:
            return write_node(self._api, node, seen, {**read_records(seen.version), **records})
        except ClusterError as error:
            return error

    def prepare_close(self, closing: Sequence[NodeChange]) -> None:
        # Once per version of a node, however often the write of the node itself fails.
        due = [(seen, records) for seen, records in closing if not _slices_of(records) <= self._fenced_slices(seen)]
        for box in {(record.gpr_id, record.run) for _, records in due for record in records.values()}:
            self._gate_lifter.end(box)
        try:
            self._close_guard(due)
        except Missing:
            # Then it lists no slice. The other locks hold, and the box must still end.
            self._note("guard_missing", {"nodes": len(due)})
        except WriteConflict:
            self._close_guard(due)  # once more with its present values, still in one patch
        for seen, records in due:
            self._fenced[seen.view.name] = (seen.version, self._fenced_slices(seen) | _slices_of(records))

    def _fenced_slices(self, seen: NodeState) -> frozenset[str]:
        version, slices = self._fenced.get(seen.view.name, ("", frozenset()))
        return slices if version == seen.version else frozenset()

    def _close_guard(self, due: Sequence[NodeChange]) -> None:
        changes: dict[str, tuple[str, str | None]] = {}
        for seen, records in due:
            value = self._guard.value(seen.view.name)
            changes[seen.view.name] = (value, closed_value(value, _slices_of(records)))
        self._guard.write(changes)

    # -- pods ----------------------------------------------------------------------------------------------------------

    def lift_gates(self, boxes: Sequence[Sequence[Assignment]]) -> None:
        served = {box[0].gpr_id for box in boxes}
        self._gate_lifter.keep({_box(box[0]) for box in boxes})
        self._full.keep(served)
        self._misfits.keep(served)
        self._capacities.keep(each for box in boxes for each in box)
        try:
            self._open_guard([each for box in boxes for each in box])
        finally:
            self._lift_into(boxes)

    def _is_listed(self, each: Assignment) -> bool:
        return each.slice_key in slices_in(self._guard.value(each.node))

    def _lift_into(self, boxes: Iterable[Sequence[Assignment]]) -> None:
        for lift, box in islice(self._lifts(boxes), self._gate_lifter.free_count):
            self._gate_lifter.send(lift, _box(box), ends_at=self._end_notices.ends_at(_box(box)))

    def _lifts(self, boxes: Iterable[Sequence[Assignment]]) -> Iterator[tuple[Lift, Assignment]]:
        # A pod is lifted into one box at most.
        chosen = self._gate_lifter.unavailable_uids()
        for box in (box for box in boxes if not self._gate_lifter.is_busy(_box(box[0]))):
            gpr_id, waiting = (
                box[0].gpr_id,
                self._gate_lifter.in_turn([pod for pod in self._observation.waiting(box[0].slice_key) if pod.metadata.uid not in chosen]),
            )
            listed = [each for each in box if self._is_listed(each)] if waiting else []
            inside = [pod for pod in self.lifted(gpr_id) if is_in_run(box[0], pod)] if listed else []
            stranded = self._unschedulable.among(inside)
            seen = (self._observation.pods, *map(self._observation.node, (each.node for each in listed)), *listed, *waiting, *stranded)
            if not listed or self._full.is_full(gpr_id, seen):
                continue
            fitting = self._fitting(box, waiting, inside, stranded)
            if not fitting:
                self._full.remember(gpr_id, seen)
            for lift in fitting:
                chosen.add(lift.pod.metadata.uid)
                yield lift, box[0]

    def _fitting(self, box: Sequence[Assignment], waiting: Sequence[Pod], inside: Sequence[Pod], stranded: Sequence[Pod]) -> list[Lift]:
        try:
            capacities, able = self._box_capacity(box), [pod for pod in waiting if not self._assessments.of(pod).why_never]
            uids = {pod.metadata.uid for pod in stranded}
            found = list(islice(lifts(capacities, able, inside, stranded=uids, needs=self._assessments.needs), LIFTS_OF_BOX))
            # Only when all nodes of the box are ready and open is it known that a pod fits nowhere.
            is_whole = len(capacities) == len(box) >= box[0].gang_count
            self._misfits.see(box[0], capacities if is_whole else (), map(self._assessments.of, able))
            return found
        except Exception:  # the other boxes are still served
            self._note("lifts_broke", {"gpr": box[0].gpr_id, "trace": traceback.format_exc()})
            return []

    def lifted(self, gpr_id: str) -> list[Pod]:
        """Lists pods let into boxes of the GPR, of any run, that may run."""
        return [pod for pod in self._observation.pods.lifted.get(gpr_id, ()) if pod.holds]

    def _box_capacity(self, box: Sequence[Assignment]) -> list[NodeCapacity]:
        capacities = []
        for assignment in filter(self._is_listed, box):
            node, others = self._observation.node(assignment.node), self._observation.pods.others.get(assignment.node, ())
            capacity = None if node is None else self._capacities.of(assignment, node, self._observation.state(node).view, others)
            if capacity is not None:
                capacities.append(capacity)
        return capacities

    def _open_guard(self, opened: Iterable[Assignment]) -> None:
        closed = [each for each in opened if not self._is_listed(each)]
        unsure = [each for each in closed if each.node not in self._opening]
        sure = [each for each in closed if each.node in self._opening]
        slices: dict[str, set[str]] = {}
        for each in (*sure, *self._reread_open(unsure)):
            slices.setdefault(each.node, set()).add(each.slice_key)
        before = {node: self._opening.pop(node) for node in slices}
        self._guard.write({node: (before[node], with_slices(before[node], slices_in(before[node]) | slices[node])) for node in slices})

    def _reread_open(self, unsure: Sequence[Assignment]) -> list[Assignment]:
        """Finds nodes that are open after a restart or an unexpected guard value; reads the guard before the nodes."""
        if unsure:
            self._guard.forget()
        before = {each.node: self._guard.value(each.node) for each in unsure}
        is_open = list(self._writers.map(self._is_open_now, unsure))
        found = [each for each, is_ in zip(unsure, is_open, strict=True) if is_]
        self._opening |= {each.node: before[each.node] for each in found}
        return found

    def _is_open_now(self, each: Assignment) -> bool:
        try:
            node = self._api.get(cluster_names.node_path(each.node), Node)
            records = read_records(node.metadata.annotation(cluster_names.RECORDS))
        except ClusterError as error:
            self._note("node_unseen", {"node": each.node, "error": str(error)})
            return False
        own = [records.get(gpu) for gpu in each.gpus]
        is_open = all(record and record.phase is GpuPhase.OPEN and record.assignment_id == each.id for record in own)
        return node.metadata.uid == each.node_uid and is_open

    # -- steps ---------------------------------------------------------------------------------------------------------

    def run(self, call: StepCall) -> StepProgress:
        if call.step != ExitStep.DRAIN:
            return self._check(call)
        assignment, view = call.assignment, call.node.view
        node = self._observation.node(view.name)
        is_last = not self._observation.has_box(assignment.gpr_id, assignment.run)
        are_lifts_over = not is_last or self._gate_lifter.end(_box(assignment))
        result = self._draining.run(
            call,
            self._observation.pods.lifted.get(assignment.gpr_id, ()),
            self._observation.strays(view.name, assignment.slice_key),
            is_last=is_last,
            is_ready=node is not None and node.status.is_ready,
        )
        return result if are_lifts_over or result.status is not StepStatus.OK else StepProgress(status=StepStatus.RUNNING)

    def order_nodes(self, orders: Sequence[NodeOrder]) -> None:
        """Does nothing: no node provider is supported yet."""

    def repair_drift(self, *, repairs: bool) -> Sequence[Drift] | None:
        found = self._drift_repair.repair_drift(repairs=repairs)
        if found is not None:
            waiting = list(self._observation.all_waiting())
            self._gate_lifter.see({pod.metadata.uid for pod in waiting})
            self._recorder.record_waiting(waiting, self.why_it_waits, is_refused=lambda pod: bool(self._gate_lifter.why_refused(pod)))
            lifted = [pod for pods in self._observation.pods.lifted.values() for pod in pods]
            self._assessments.keep([*waiting, *lifted])
            self._unschedulable.keep(lifted)
        return found

    def why_it_waits(self, pod: Pod) -> str:
        """It is thread-safe."""
        if not self._observation.slice_of(pod.metadata.namespace):
            return f"Namespace {pod.metadata.namespace} is bound to no workspace: bind it in EGS, or take the GPUs out of the pod."
        judgement = self._assessments.of(pod)
        if judgement.why_never:
            return f"This pod will not start: {judgement.why_never}."
        if refusal := self._gate_lifter.why_refused(pod):
            return f"The cluster refuses to let this pod into its box, and is asked again, less and less often: {refusal}"
        name, misfit = self.waited_for(pod), self._misfits.of(pod.metadata.uid)
        if misfit and name in ("", misfit.gpr_name):
            return f"This pod will not start in the box of the request {misfit.gpr_name}: {misfit.why}."
        if name:
            elsewhere = f". In the box of {misfit.gpr_name} it will not start: {misfit.why}." if misfit else ""
            return f"Waits for GPUs that the request {name} is to get: kubectl describe gpr {name}{elsewhere}"
        if why := self.unasked(pod):
            return f"No request could be made for this pod: {why}"
        gpus = f"whole nodes, since it asks for {', '.join(judgement.devices)}," if judgement.devices else "GPUs"
        return f"Waits for {gpus} that a GPU Provision Request of its workspace gets, and that no other pod of it takes: see EGS for when."

    def record_life_marks(self, life: Sequence[LifeMark]) -> None:
        self._life_events.look(life)

    def publish_ends(self, ends: Sequence[BoxEnd]) -> None:
        self._end_notices.look(ends)

    def record_event(self, assignment: Assignment, what: str, message: str, *, is_bad: bool) -> None:
        """Records an event on each node, and once per box in the slice's namespaces."""
        reason = f"Egs{what.title().replace('_', '')}{'Failed' if is_bad else ''}"
        told = message if assignment.is_repair else f"GPR {assignment.gpr_name}: {message}"
        if (node := self._observation.node(assignment.node)) is not None:
            self._recorder.record("Node", node.metadata, reason, told, is_bad=is_bad)
        box = (assignment.gpr_id, assignment.run, reason)
        if box in self._boxes_told:
            return
        self._boxes_told.append(box)
        for about in self._observation.about_namespaces(assignment.slice_key):
            self._recorder.record("Namespace", about, reason, told, is_bad=is_bad)


def _box(assignment: Assignment) -> Box:
    return assignment.gpr_id, assignment.run


def _names_written(answers: Iterable[NodeState | ClusterError]) -> list[str]:
    return [answer.view.name for answer in answers if isinstance(answer, NodeState)]


def _slices_of(records: Records) -> frozenset[str]:
    return frozenset(record.slice for record in records.values())
