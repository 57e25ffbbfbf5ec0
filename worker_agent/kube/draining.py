"""The exit step `drain`: every lifted pod of a box off a node that was closed before.

Nothing that a tenant may write decides whether a pod counts: not its owner, not an annotation, not its own grace or
finalizers. A disruption budget delays by the grace of the drain, never beyond.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Executor, Future

import msgspec

from worker_agent.cluster.base import ClusterError, Conflict, StepCall, StepResult, StepStatus
from worker_agent.kube import names
from worker_agent.kube.client import Api
from worker_agent.kube.objects import Pod, Pods
from worker_agent.steps import DrainStage, drain_stage

AGAIN_S = 1.0  # between two tries to evict the same pod
PATIENCE_S = 10.0  # after the force: what is left then is told, with what holds it
SENDS_AT_ONCE = 128  # on their way
LOOKS_WITHIN_S = 0.3  # in one pass, so that an end that comes meanwhile is not kept waiting
LOOK_AGAIN_S = 2.0  # where the watch still shows pods, which it may do for long after they are gone
LOOKED_KEPT_S = 60.0
TRIES_KEPT = 1000
NAMED = 5  # pods, in what is told


class Draining:
    """Not for several threads at once. `pool`: for calls that may be on their way together."""

    def __init__(self, api: Api, pool: Executor) -> None:
        self._api, self._pool = api, pool
        self._tried_mono: dict[tuple[str, DrainStage], float] = {}
        self._refused: dict[str, str] = {}  # by pod UID: what the API server said last
        self._sent: list[Future[None]] = []
        self._listed: dict[str, tuple[Pod, ...]] = {}
        self._looked_mono: dict[str, float] = {}  # by GPR; before the first look, since when it is drained
        self._looks_s = 0.0
        self._sends_left = SENDS_AT_ONCE

    def begin_pass(self) -> None:
        self._sent = [sent for sent in self._sent if not sent.done()]
        self._listed, self._looks_s, self._sends_left = {}, 0.0, SENDS_AT_ONCE - len(self._sent)
        now = time.monotonic()
        self._looked_mono = {gpr_id: at for gpr_id, at in self._looked_mono.items() if now - at < LOOKED_KEPT_S}
        if len(self._tried_mono) > TRIES_KEPT:
            self._tried_mono = {key: at for key, at in self._tried_mono.items() if now - at < AGAIN_S}
            tried = {uid for uid, _ in self._tried_mono}
            self._refused = {uid: said for uid, said in self._refused.items() if uid in tried}

    def run(self, call: StepCall, lifted: Sequence[Pod], strays: Sequence[Pod], *, is_last: bool, is_ready: bool) -> StepResult:
        """`lifted`: pods of the GPR as the watch has them. `strays`: those of the slice on the node that no lift brought there.
        `is_last`: no other node has the box any more.
        """
        gpr_id, here = call.assignment.gpr_id, (call.node.view.name, "") if is_last else (call.node.view.name,)
        if not _inside(lifted, here) or self._is_long_ago(gpr_id):
            self._look(gpr_id)
        left = [*_inside(self._listed.get(gpr_id, lifted), here), *strays]
        stage = drain_stage(call.assignment.drain, call.since_closed_s)
        if left:
            due = [pod for pod in left if self._is_due(pod, stage)]
            self._sent += [self._pool.submit(self._send_away, pod, stage, call) for pod in due]
            return self._unfinished(call, left)
        if gpr_id not in self._listed:
            return StepResult(status=StepStatus.RUNNING)
        if stage is DrainStage.FORCE and not is_ready:
            log = f"node {call.node.view.name} does not answer: whether processes of the workspace still run there is not known"
            return StepResult(status=StepStatus.FAILED, log=log, evidence={"node_ready": False})
        log = f"no pod of workspace {call.assignment.slice} is left {call.since_closed_s:.1f} s after the close ({stage})"
        return StepResult(status=StepStatus.OK, log=log, evidence={"pods_left": 0, "stage": stage.value})

    def send_away(self, pod: Pod, grace_s: float) -> None:
        """A pod that can never be placed any more: its controller makes it anew behind the gate."""
        if not pod.is_leaving and self._is_due(pod, DrainStage.EVICT):
            self._evict(pod, grace_s)

    def _is_long_ago(self, gpr_id: str) -> bool:
        now = time.monotonic()
        return now - self._looked_mono.setdefault(gpr_id, now) >= LOOK_AGAIN_S

    def _look(self, gpr_id: str) -> None:
        """While there is time for it. Without a resourceVersion the answer is as of now, which no watch can promise."""
        if gpr_id in self._listed or self._looks_s >= LOOKS_WITHIN_S:
            return
        began_mono = time.monotonic()
        try:
            self._listed[gpr_id] = self._api.get("/api/v1/pods", Pods, labelSelector=f"{names.POD_GPR}={gpr_id}").items
        finally:
            self._looked_mono[gpr_id] = time.monotonic()
            self._looks_s += self._looked_mono[gpr_id] - began_mono

    def _unfinished(self, call: StepCall, left: Sequence[Pod]) -> StepResult:
        if call.since_closed_s < call.assignment.drain.force_after_s + PATIENCE_S:
            return StepResult(status=StepStatus.RUNNING)
        named = "; ".join(self._said(pod) for pod in left[:NAMED])
        more = f" and {len(left) - NAMED} more" if len(left) > NAMED else ""
        log = f"still there {call.since_closed_s:.0f} s after the close, though deleted by force: {named}{more}"
        return StepResult(status=StepStatus.FAILED, log=log, evidence={"pods_left": len(left)})

    def _said(self, pod: Pod) -> str:
        why = [f"finalizers {', '.join(pod.metadata.finalizers)}"] if pod.metadata.finalizers else []
        return f"pod {pod.label} ({', '.join([*why, self._refused.get(pod.metadata.uid, 'no refusal')])})"

    def _send_away(self, pod: Pod, stage: DrainStage, call: StepCall) -> None:
        grace_s = max(1.0, call.assignment.drain.force_after_s - call.since_closed_s)
        if stage is DrainStage.FORCE:
            self._delete(pod, 0)
            self._take_finalizers_off(pod)
        elif pod.is_leaving:
            return
        elif stage is DrainStage.EVICT:
            self._evict(pod, grace_s)
        else:
            self._delete(pod, int(grace_s))

    def _is_due(self, pod: Pod, stage: DrainStage) -> bool:
        key, now = (pod.metadata.uid, stage), time.monotonic()
        if self._sends_left <= 0 or now - self._tried_mono.get(key, float("-inf")) < AGAIN_S:
            return False
        self._sends_left -= 1
        self._tried_mono[key] = now
        return True

    def _evict(self, pod: Pod, grace_s: float) -> None:
        meta = {"name": pod.metadata.name, "namespace": pod.metadata.namespace}
        options = {"gracePeriodSeconds": int(grace_s), "preconditions": {"uid": pod.metadata.uid}}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta, "deleteOptions": options}
        with _Refusals(self._refused, pod):
            self._api.create(f"{pod.path}/eviction", body, msgspec.Raw)

    def _delete(self, pod: Pod, grace_s: int) -> None:
        with _Refusals(self._refused, pod):
            self._api.delete(pod.path, uid=pod.metadata.uid, grace_s=grace_s)

    def _take_finalizers_off(self, pod: Pod) -> None:
        if pod.metadata.finalizers:
            ops = [
                {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid},
                {"op": "remove", "path": "/metadata/finalizers"},
            ]
            with _Refusals(self._refused, pod):
                self._api.patch(pod.path, ops, msgspec.Raw)


def _inside(pods: Sequence[Pod], here: Sequence[str]) -> list[Pod]:
    return [pod for pod in pods if pod.holds and pod.spec.nodeName in here]


class _Refusals:
    """What the API server says no to is remembered for people, and tried again: a budget, two budgets (500), a loss."""

    def __init__(self, said: dict[str, str], pod: Pod) -> None:
        self._said, self._uid = said, pod.metadata.uid

    def __enter__(self) -> None:
        self._said.pop(self._uid, None)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, Conflict):
            return True  # gone, or another of the same name: the next list tells
        if isinstance(error, ClusterError):
            self._said[self._uid] = str(error)
            return True
        return False
