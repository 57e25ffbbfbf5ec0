"""Carries out the exit step `drain`: removes all lifted pods of a box from a closed node.

Nothing that a tenant can write keeps a pod: owner, annotations, grace period, finalizers. A disruption budget only delays removal.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator, Sequence, Set
from concurrent.futures import Executor, Future

import msgspec

from protocol import cluster_names
from protocol.nodes.steps import DrainStage, drain_stage
from worker_agent.cluster.base import ClusterError, StepCall, StepProgress, StepStatus, Unavailable
from worker_agent.kube.api.client import Api, Missing
from worker_agent.kube.api.objects import Pod
from worker_agent.kube.api.paging import PAGE_COUNT, ObjectPage, listed
from worker_agent.kube.pods.runs import pods_to_drain

AGAIN_S = 1.0  # between two tries to evict the same pod
PATIENCE_S = 10.0  # after deletion by force; pods left then are reported, with the reason
SENDS_AT_ONCE = 256  # in flight or waiting in the pool
SENDS_OF_BOX = 64  # of these per box, so that a box whose pods do not leave keeps no other waiting
CONFIRMED_WITHIN_S = 0.3  # time per pass for confirming that no pod is left, so that other ends are not delayed
KEPT_S = 60.0  # how long a refusal is kept
FORGET_S = 60.0  # a box without a call of `run` for so long is no longer drained
LIST_AGAIN_S = 2.0  # while the watch shows pods: it may be far behind
LIST_WITHIN_S = 1.0  # for all pages of a list but the first
LISTS_PER_PASS = 2  # per pass, the longest waiting first
NAMED = 5  # pods named in a log
WITHOUT_BOX = ""
UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"


# Concurrent calls that remove pods. What the API server refuses is kept for people and tried again.
class RemovalCalls:
    def __init__(self, pool: Executor) -> None:
        self._pool = pool
        self._going: dict[str, tuple[str, Future[str]]] = {}  # by pod UID: its GPR, and the call
        self._ended: dict[str, tuple[float, str]] = {}  # by pod UID: when the last call was answered, and what was refused

    def begin_pass(self) -> None:
        now = time.monotonic()
        over = {uid: going for uid, (_, going) in self._going.items() if going.done()}
        self._going = {uid: going for uid, going in self._going.items() if uid not in over}
        self._ended = {uid: ended for uid, ended in self._ended.items() if uid in self._going or now - ended[0] < KEPT_S}
        self._ended |= {uid: (now, str(going.exception() or going.result())) for uid, going in over.items()}

    def send(self, pod: Pod, gpr_id: str, call: Callable[[], str]) -> None:
        """`call` returns what was refused."""
        uid = pod.metadata.uid
        answered_mono, _ = self._ended.get(uid, (float("-inf"), ""))
        if uid in self._going or time.monotonic() - answered_mono < AGAIN_S or len(self._going) >= SENDS_AT_ONCE:
            return
        if sum(of == gpr_id for of, _ in self._going.values()) < SENDS_OF_BOX:
            self._going[uid] = gpr_id, self._pool.submit(call)

    def said(self, pod: Pod) -> str:
        # The outcome of the last answered call, even while the next one is in flight.
        if pod.metadata.uid not in self._ended:
            return "no answer yet"
        return self._ended[pod.metadata.uid][1] or "no refusal"


class Draining:
    """It is not thread-safe."""

    # Two pools, so that hanging evictions do not delay deletion by force.
    def __init__(self, api: Api, *, evictions: Executor, force: Executor) -> None:
        self._api = api
        self._evictions, self._force = RemovalCalls(evictions), RemovalCalls(force)
        self._listed: dict[str, tuple[Pod, ...]] = {}
        self._list_errors: dict[str, ClusterError] = {}  # by GPR: why this pass could not list its pods
        self._confirmed_s = 0.0
        self._listed_mono: dict[str, float] = {}  # by GPR: its last list, or when its drain began
        self._asked_mono: dict[str, float] = {}  # by GPR: the last call of `run`, which need not come in each pass
        self._oldest: Set[str] = frozenset()

    def begin_pass(self) -> None:
        self._evictions.begin_pass()
        self._force.begin_pass()
        now = time.monotonic()
        self._asked_mono = {gpr_id: mono for gpr_id, mono in self._asked_mono.items() if now - mono < FORGET_S}
        self._listed_mono = {gpr_id: self._listed_mono.get(gpr_id, now) for gpr_id in self._asked_mono}
        due = [gpr_id for gpr_id, mono in self._listed_mono.items() if now - mono >= LIST_AGAIN_S]
        self._oldest = frozenset(heapq.nsmallest(LISTS_PER_PASS, due, key=self._listed_mono.__getitem__))
        self._listed, self._list_errors, self._confirmed_s = {}, {}, 0.0

    def run(self, call: StepCall, lifted: Sequence[Pod], strays: Sequence[Pod], *, is_last: bool, is_ready: bool) -> StepProgress:
        """`lifted`: pods of the GPR, of any run. `strays`: pods of the slice on the node that EGS did not let in. `is_last`: no other node
        has the box.

        Raises ClusterError if it is unknown whether pods are left.
        """
        gpr_id = call.assignment.gpr_id
        self._asked_mono[gpr_id] = time.monotonic()
        if gpr_id in self._oldest:
            self._list(gpr_id)
        elif not pods_to_drain(lifted, call, is_last=is_last):
            self._confirm(gpr_id)
        left = [*pods_to_drain(self._listed.get(gpr_id, lifted), call, is_last=is_last), *strays]
        stage = drain_stage(call.assignment.drain, call.since_closed_s)
        if left:
            for pod in left:
                self._remove(pod, stage, call)
            return self._unfinished(call, left)
        if gpr_id not in self._listed:
            return self._unknown(call)
        if stage is DrainStage.FORCE and not is_ready:
            log = f"node {call.node.view.name} does not answer: whether processes of the workspace still run there is not known"
            return StepProgress(status=StepStatus.FAILED, log=log, evidence={"node_ready": False})
        log = f"no pod of workspace {call.assignment.slice} is left {call.since_closed_s:.1f} s after the close ({stage})"
        return StepProgress(status=StepStatus.OK, log=log, evidence={"pods_left": 0, "stage": stage.value})

    def evict_unplaced(self, pod: Pod, grace_s: float) -> None:
        # The pod can never be placed. Its controller creates a new one behind the gate.
        if not pod.is_leaving:
            self._evictions.send(pod, WITHOUT_BOX, lambda: self._evict(pod, grace_s))

    def end(self, pod: Pod, grace_s: float) -> None:
        # Deleted, not evicted: no disruption budget may delay it.
        if not pod.is_leaving:
            self._evictions.send(pod, WITHOUT_BOX, lambda: self._delete(pod, int(grace_s)))

    def _confirm(self, gpr_id: str) -> None:
        if self._confirmed_s < CONFIRMED_WITHIN_S:
            began_mono = time.monotonic()
            self._list(gpr_id)
            self._confirmed_s += time.monotonic() - began_mono

    def _list(self, gpr_id: str) -> None:
        # Without a resourceVersion the list is current, which no watch guarantees.
        if gpr_id in self._listed or gpr_id in self._list_errors:
            return
        self._listed_mono[gpr_id] = time.monotonic()
        try:
            self._listed[gpr_id] = tuple(self._pods_of(gpr_id))
        except ClusterError as error:
            self._list_errors[gpr_id] = error

    def _pods_of(self, gpr_id: str) -> Iterator[Pod]:
        """Raises Unavailable if listing takes too long."""
        until_mono = time.monotonic() + LIST_WITHIN_S
        pods = listed(
            self._api, "/api/v1/pods", ObjectPage[Pod], labelSelector=f"{cluster_names.POD_GPR}={gpr_id}", fieldSelector=UNFINISHED
        )
        for number, pod in enumerate(pods):
            if number >= PAGE_COUNT and time.monotonic() >= until_mono:
                # Until there are fewer, pods are removed as the watch shows them.
                raise Unavailable(f"the pods of the box are too many to be listed within {LIST_WITHIN_S:g} s")
            yield pod

    def _unknown(self, call: StepCall) -> StepProgress:
        error = self._list_errors.get(call.assignment.gpr_id)
        if error is None:  # the watch shows no pod, and the confirming list is yet to come
            return StepProgress(status=StepStatus.RUNNING)
        if not _is_overdue(call):
            raise error
        log = f"{call.since_closed_s:.0f} s after the close it cannot be seen whether pods of {call.assignment.slice} are left: {error}"
        return StepProgress(status=StepStatus.FAILED, log=log, blames_node=False)

    def _unfinished(self, call: StepCall, left: Sequence[Pod]) -> StepProgress:
        if not _is_overdue(call):
            return StepProgress(status=StepStatus.RUNNING)
        named = "; ".join(self._said(pod) for pod in left[:NAMED])
        more = f" and {len(left) - NAMED} more" if len(left) > NAMED else ""
        log = f"still there {call.since_closed_s:.0f} s after the close, though deleted by force: {named}{more}"
        return StepProgress(status=StepStatus.FAILED, log=log, evidence={"pods_left": len(left)})

    def _said(self, pod: Pod) -> str:
        why = [f"finalizers {', '.join(pod.metadata.finalizers)}"] if pod.metadata.finalizers else []
        return f"pod {pod.label} ({', '.join([*why, self._force.said(pod)])})"

    def _remove(self, pod: Pod, stage: DrainStage, call: StepCall) -> None:
        gpr_id, grace_s = call.assignment.gpr_id, max(1.0, call.assignment.drain.force_after_s - call.since_closed_s)
        if stage is DrainStage.FORCE:
            self._force.send(pod, gpr_id, lambda: self._force_away(pod))
        elif pod.is_leaving:
            return
        elif stage is DrainStage.EVICT:
            self._evictions.send(pod, gpr_id, lambda: self._evict(pod, grace_s))
        else:
            self._evictions.send(pod, gpr_id, lambda: self._delete(pod, int(grace_s)))

    # Each call returns what was refused: by one budget, by two budgets (status 500), or lost in transit.

    def _force_away(self, pod: Pod) -> str:
        return "; ".join(filter(None, [self._delete(pod, 0), self._take_finalizers_off(pod)]))

    def _evict(self, pod: Pod, grace_s: float) -> str:
        meta = {"name": pod.metadata.name, "namespace": pod.metadata.namespace}
        options = {"gracePeriodSeconds": int(grace_s), "preconditions": {"uid": pod.metadata.uid}}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta, "deleteOptions": options}
        return _refusal(lambda: self._api.create(f"{pod.path}/eviction", body, msgspec.Raw))

    def _delete(self, pod: Pod, grace_s: int) -> str:
        return _refusal(lambda: self._api.delete(pod.path, uid=pod.metadata.uid, grace_s=grace_s))

    def _take_finalizers_off(self, pod: Pod) -> str:
        if not pod.metadata.finalizers:
            return ""
        ops = [
            {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid},
            {"op": "remove", "path": "/metadata/finalizers"},
        ]
        return _refusal(lambda: self._api.patch(pod.path, ops, msgspec.Raw))


def _refusal(call: Callable[[], object]) -> str:
    try:
        call()
    except Missing:
        return ""
    except ClusterError as error:
        return str(error)
    return ""


def _is_overdue(call: StepCall) -> bool:
    return call.since_closed_s >= call.assignment.drain.force_after_s + PATIENCE_S
