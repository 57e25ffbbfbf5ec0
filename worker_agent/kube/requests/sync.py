"""Sends request objects to the hub and writes their status.

Lives here: one look at all of them, and the calls. Must not live here: the text of a status (status.py), what is requested (spec.py).

The namespace alone decides whose a request is, as the agent bound it. The hub is told that an object is gone only if the API server no
longer lists it and still serves the same kind: deleting or reinstalling the kind withdraws no request.

Needs, beside other rights: list and watch of gpuprovisioningrequests, gpujobs and gprtemplates, patch of the status of both,
get of jobs and of the kinds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Final

from protocol.assignments import Desired
from protocol.tenancy.cluster_requests import ClusterRequest, ClusterRequestState, ClusterRequestVerdict
from protocol.tenancy.waiting_pods import JobFailed, PodsWaiting
from worker_agent.cluster.base import ClusterError, Note, WriteConflict
from worker_agent.hub.requests import AnsweredRequest, HubNews
from worker_agent.kube.api.client import Api, Missing, Op
from worker_agent.kube.api.custom import (
    API,
    JOB_KIND,
    JOBS,
    JOBS_PATH,
    REQUEST_KIND,
    REQUESTS,
    REQUESTS_PATH,
    TEMPLATES_PATH,
    Custom,
    Definition,
    Fields,
    ListedObject,
    ServedKinds,
)
from worker_agent.kube.api.events import EventRecorder
from worker_agent.kube.api.mirror import Mirror
from worker_agent.kube.api.objects import Node, Pod
from worker_agent.kube.api.paging import ObjectPage, listed
from worker_agent.kube.api.replica import Key
from worker_agent.kube.pods.waiting import WaitingPodsReporter
from worker_agent.kube.requests.automatic import AutomaticInputs, AutomaticRequests, boxes_in_use, template_of_hub
from worker_agent.kube.requests.cleanup import RequestCleanup
from worker_agent.kube.requests.messages import mark_event, mark_of, status_events
from worker_agent.kube.requests.spec import SpecFault, cluster_request_of, template_fields
from worker_agent.kube.requests.status import LATER_S, RequestFacts, is_minor_change, request_due, status_of

WRITES_AT_ONCE: Final = 50  # per look
WRITE_EVERY_S: Final = 1.0  # per object
MINOR_EVERY_S: Final = 3.0  # per object, for fields that change often
REFUSED_WRITE_S: Final = 5.0  # after a rejected status
GONE_AFTER_S: Final = 1.0  # how long an object is unseen before the API server is asked
ASK_GONE_EVERY_S: Final = 5.0
NEW_S: Final = 2.0  # delay of a first status, since the hub usually answers before

Bound = Callable[[str], str]  # returns the workspace to which the agent bound a namespace, or ""


@dataclass(slots=True)
class KnownRequest:
    """Describes a request object that the agent follows, with its last answer and write."""

    namespace: str
    name: str
    since_mono: float
    answered: AnsweredRequest | None = None
    case: RequestFacts | None = None  # of the last look that had nothing to write
    # The object and its template as last read, the template's fields, and what they request.
    read: tuple[Custom, Custom | None, Fields, ClusterRequest | SpecFault] | None = None
    write_not_before_mono: float = float("-inf")
    written_mono: float = float("-inf")
    missing_since_mono: float | None = None
    is_gone: bool = False
    is_kept: bool = False  # it was deleted with its kind, which withdraws no request
    mark: int | None = None  # the last percentage of its window that was told

    def is_unsure(self, now_mono: float) -> bool:
        # True: the agent asks the API server whether the object is gone.
        if self.is_gone or self.is_kept or self.missing_since_mono is None:
            return False
        return now_mono - self.missing_since_mono >= GONE_AFTER_S


@dataclass(slots=True)
class SyncPass:
    """Holds the inputs of one pass over all requests, and what it sends to the hub."""

    news: HubNews
    now_mono: float
    slices: Mapping[str, str]  # by namespace: the workspace that the hub wants it bound to
    templates: Mapping[Key, Custom]
    wanted: list[tuple[Custom, Fields]] = field(default_factory=list)
    to_send: list[ClusterRequest] = field(default_factory=list)


class KubernetesRequests:
    """One thread uses it."""

    def __init__(
        self,
        *,
        api: Api,
        bound: Bound,
        pods: Callable[[], Iterable[Pod]],
        nodes: Callable[[], Iterable[Node]],
        why: Callable[[Pod], str],
        note: Note,
    ) -> None:
        self._api, self._bound, self._pods, self._note = api, bound, pods, note
        self._automatic = AutomaticRequests(api=api, pods=pods, nodes=nodes, learn=self._learn, note=note)
        self._cleanup = RequestCleanup(api=api, pods=pods, note=note)
        self._waiting_pods = WaitingPodsReporter(api=api, bound=bound, pods=pods, why=why, note=note)
        self._tellers = ThreadPoolExecutor(1, thread_name_prefix="egs-tell-requests")
        self._recorder = EventRecorder(api, self._tellers)
        self._known: dict[str, KnownRequest] = {}
        self._begun_mono = time.monotonic()
        self._writes_not_before_mono = self._ask_gone_not_before_mono = float("-inf")
        self._unwritable: set[str] = set()
        self._requests: Mirror[Custom] | None = None
        self._jobs: Mirror[Custom] | None = None
        self._templates: Mirror[Custom] | None = None

    def watch(self, on_change: Callable[[], None]) -> None:
        self._requests = Mirror(api=self._api, path=REQUESTS_PATH, type_=Custom, note=self._note, on_change=on_change)
        self._jobs = Mirror(api=self._api, path=JOBS_PATH, type_=Custom, note=self._note, on_change=on_change)
        self._templates = Mirror(api=self._api, path=TEMPLATES_PATH, type_=Custom, note=self._note, on_change=on_change)
        for mirror in (self._requests, self._jobs, self._templates):
            mirror.start()

    def stop(self) -> None:
        for mirror in (self._requests, self._jobs, self._templates):
            if mirror is not None:
                mirror.stop()
        self._tellers.shutdown(cancel_futures=True)

    def waited_for(self, pod: Pod) -> str:
        """Returns the name of the request that the pod waits for, or "". It is thread-safe."""
        return self._automatic.waits_for.get(pod.metadata.uid, "")

    def unasked(self, pod: Pod) -> str:
        """Returns why no request could be made, or "". It is thread-safe."""
        return self._automatic.unasked.get(pod.metadata.uid, "")

    def waiting(self) -> tuple[PodsWaiting, ...] | None:
        return self._waiting_pods.look()

    def jobs_failed(self) -> tuple[JobFailed, ...]:
        return self._waiting_pods.take_failed()

    def look(self, news: HubNews) -> list[ClusterRequest]:
        self._take_answers(news)
        # Nothing more is done while the kinds are not installed. An older installation has no GPUJob.
        if self._requests is None or self._templates is None or not (self._requests.is_whole and self._templates.is_whole):
            return []
        wanted = {
            binding.namespace: workspace.id
            for workspace in news.workspaces or ()
            for binding in workspace.bindings
            if binding.desired == Desired.PRESENT
        }
        current = SyncPass(news, time.monotonic(), wanted, self._templates.objects())
        jobs = self._jobs.objects().values() if self._jobs is not None and self._jobs.is_whole else ()
        seen = [*self._requests.objects().values(), *jobs]
        there = {gpr.metadata.uid: gpr for gpr in seen if not gpr.is_going}
        for gpr in there.values():
            self._look_at(gpr, current)
        self._write_all(current)
        if news.workspaces is not None:
            slice_of: Bound = lambda namespace: current.slices.get(namespace, "") if self._is_bound(namespace, current) else ""  # noqa: E731
            autos = {name: template_of_hub(news.autos[id_]) for name, id_ in wanted.items() if id_ in news.autos and slice_of(name)}
            going = tuple(gpr for gpr in seen if gpr.is_going)
            self._automatic.look(
                AutomaticInputs(current.now_mono, tuple(there.values()), tuple(current.templates.values()), slice_of, autos, going)
            )
        self._cleanup.look(
            there.values(),
            news.states,
            is_bound=lambda namespace: self._is_bound(namespace, current),
            now=datetime.now(UTC),
            now_mono=current.now_mono,
        )
        gone = list(self._gone(there, current))
        self._forget(there, news)
        # The oldest first, so that they queue in the order of their creation.
        current.to_send.sort(key=lambda each: (there[each.uid].metadata.creationTimestamp or datetime.min.replace(tzinfo=UTC), each.name))
        return in_turns([*current.to_send, *gone])

    def _take_answers(self, news: HubNews) -> None:
        for answered in news.answers:
            known = self._known.get(answered.answer.uid)
            if known is not None:
                known.answered = answered

    def _forget(self, there: Mapping[str, Custom], news: HubNews) -> None:
        listed = news.states or {}
        self._known = {uid: known for uid, known in self._known.items() if uid in there or uid in listed}
        self._unwritable &= {"", *self._known}

    # -- one object ----------------------------------------------------------------------------------------------------

    def _look_at(self, gpr: Custom, current: SyncPass) -> None:
        meta, now = gpr.metadata, current.now_mono
        known = self._known.setdefault(meta.uid, KnownRequest(meta.namespace, meta.name, now))
        known.missing_since_mono = None
        case = self._case(gpr, known, current)
        answered_mono = known.answered.at_mono if known.answered and case.answer else self._begun_mono
        is_listed = current.news.states is not None
        if request := request_due(case, answered_s=now - answered_mono, is_listed=is_listed):
            current.to_send.append(request)
        self._tell_mark(gpr, known)
        if case == known.case:
            return
        status = status_of(case, now=datetime.now(UTC))
        if status == gpr.status_fields:
            known.case = case
        elif gpr.status_fields or case.answer or case.state or case.fault or now - known.since_mono >= NEW_S:
            current.wanted.append((gpr, status))

    def _case(self, gpr: Custom, known: KnownRequest, current: SyncPass) -> RequestFacts:
        meta = gpr.metadata
        words, asked = _read(gpr, current.templates.get((meta.namespace, str(gpr.fields.get("template") or ""))), known)
        answered = known.answered
        is_for_this = answered is not None and not answered.is_gone and answered.answer.generation == meta.generation
        return RequestFacts(
            gpr=gpr,
            is_bound=self._is_bound(meta.namespace, current),
            words=words,
            asked=asked,
            answer=answered.answer if answered and is_for_this else None,
            is_listed_since=answered is not None and current.news.asked_mono > answered.at_mono,
            state=(current.news.states or {}).get(meta.uid),
        )

    def _is_bound(self, namespace: str, current: SyncPass) -> bool | None:
        wanted = current.slices.get(namespace)
        if wanted is not None and self._bound(namespace) == wanted:
            return True
        return None if current.news.workspaces is None else False

    # -- what is written -----------------------------------------------------------------------------------------------

    def _write_all(self, current: SyncPass) -> None:
        if current.now_mono < self._writes_not_before_mono:
            return
        # Fields that change often come last; then the object that waited longest comes first.
        due = []
        for gpr, status in current.wanted:
            known, minor = self._known[gpr.metadata.uid], is_minor_change(gpr.status_fields, status)
            pause_s = MINOR_EVERY_S if minor else WRITE_EVERY_S
            if current.now_mono >= max(known.written_mono + pause_s, known.write_not_before_mono):
                due.append((minor, known.written_mono, gpr, status))
        due.sort(key=lambda each: each[:2])
        for _, _, gpr, status in due[:WRITES_AT_ONCE]:
            if not self._write(gpr, status):
                return

    def _write(self, gpr: Custom, status: Fields) -> bool:
        """Returns False if the API server has trouble."""
        known = self._known[gpr.metadata.uid]
        known.written_mono = time.monotonic()
        ops: list[Op] = [
            {"op": "test", "path": "/metadata/uid", "value": gpr.metadata.uid},
            {"op": "add", "path": "/status", "value": status},
        ]
        try:
            written = self._api.patch(f"{gpr.path}/status", ops, Custom)
        except WriteConflict as error:
            # The object is gone or re-created, which the watch will show; or the schema rejects the status, and will again.
            known.write_not_before_mono = known.written_mono + REFUSED_WRITE_S
            if not isinstance(error, Missing):
                self._note_once(gpr.metadata.uid, str(error))
            return True
        except ClusterError as error:
            self._writes_not_before_mono = time.monotonic() + WRITE_EVERY_S
            self._note_once("", str(error))
            return False
        self._learn(written)
        self._unwritable -= {gpr.metadata.uid, ""}
        for each in status_events(gpr.status_fields, status):
            self._recorder.record(
                "GPUJob" if gpr.is_job else "GPUProvisioningRequest", gpr.metadata.plain, each.reason, each.message, is_bad=each.is_bad
            )
        return True

    def _learn(self, written: Custom) -> None:
        mirror = self._jobs if written.is_job else self._requests
        if mirror is not None:
            mirror.learn(written)

    def _tell_mark(self, gpr: Custom, known: KnownRequest) -> None:
        # Each mark is told once. Marks that passed before this agent began were told by an earlier one.
        mark = mark_of(gpr.status_fields, datetime.now(UTC))
        if known.mark is not None and mark > known.mark:
            each = mark_event(mark, gpr.status_fields)
            self._recorder.record("GPUJob" if gpr.is_job else "GPUProvisioningRequest", gpr.metadata.plain, each.reason, each.message)
        known.mark = mark

    def _note_once(self, what: str, why: str) -> None:
        if what not in self._unwritable:
            self._unwritable.add(what)
            self._note("request_status_refused", {"why": why})

    # -- what is gone --------------------------------------------------------------------------------------------------

    def _gone(self, there: Mapping[str, Custom], current: SyncPass) -> Iterator[ClusterRequest]:
        missing = [state for uid, state in (current.news.states or {}).items() if uid not in there and not state.is_ended]
        if any(state.is_auto for state in missing):
            # An automatic request is deleted with its workload. It stays while pods of another workload use its box.
            in_use = boxes_in_use(self._pods())
            missing = [state for state in missing if not (state.is_auto and state.gpr_id in in_use)]
        for state in missing:
            known = self._known.setdefault(state.id, KnownRequest("", "", current.now_mono))
            if known.missing_since_mono is None:
                known.missing_since_mono = current.now_mono
        self._confirm_gone([self._known[state.id] for state in missing], missing, current.now_mono)
        for state in missing:
            if request := self._gone_due(state, current.now_mono):
                yield request

    def _confirm_gone(self, known: list[KnownRequest], missing: list[ClusterRequestState], now_mono: float) -> None:
        # One list call serves all of a kind.
        unsure = [(state, each) for state, each in zip(missing, known, strict=True) if each.is_unsure(now_mono)]
        if not unsure or now_mono < self._ask_gone_not_before_mono:
            return
        for kind in (REQUESTS, JOBS):
            self._confirm_gone_of(kind, [each for each in unsure if _kind_of(each[0]) == kind], now_mono)

    def _confirm_gone_of(self, kind: str, unsure: list[tuple[ClusterRequestState, KnownRequest]], now_mono: float) -> None:
        if not unsure:
            return
        try:
            path, definition = (REQUESTS_PATH, REQUEST_KIND) if kind == REQUESTS else (JOBS_PATH, JOB_KIND)
            uids = self._listed(path)
            is_served = self._api.get(f"/apis/{API}", ServedKinds).may_create(kind)
            kind_s = self._api.get(definition, Definition).metadata.creationTimestamp.timestamp() if is_served else 0.0
        except ClusterError as error:
            self._ask_gone_not_before_mono = now_mono + ASK_GONE_EVERY_S
            self._note("requests_unlisted", {"why": str(error)})
            return
        if not is_served or any(state.id in uids for state, _ in unsure):
            self._ask_gone_not_before_mono = now_mono + ASK_GONE_EVERY_S
        for state, each in unsure:
            is_missing = is_served and state.id not in uids
            each.is_kept = is_missing and state.filed_s is not None and state.filed_s < kind_s
            each.is_gone = is_missing and not each.is_kept

    def _listed(self, path: str) -> set[str]:
        # Read from the API server, not from the mirror.
        items = listed(self._api, path, ObjectPage[ListedObject])
        return {item.metadata.uid for item in items if not item.metadata.deletionTimestamp}

    def _gone_due(self, state: ClusterRequestState, now_mono: float) -> ClusterRequest | None:
        known = self._known[state.id]
        if not known.is_gone:
            return None
        if known.answered is not None and known.answered.is_gone:
            is_done = known.answered.answer.verdict is ClusterRequestVerdict.TAKEN
            if is_done or now_mono - known.answered.at_mono < LATER_S:
                return None
        return ClusterRequest(uid=state.id, namespace=known.namespace, name=known.name, is_gone=True)


def _kind_of(state: ClusterRequestState) -> str:
    return REQUESTS if state.job is None else JOBS


def _read(gpr: Custom, template: Custom | None, known: KnownRequest) -> tuple[Fields, ClusterRequest | SpecFault]:
    # The template's fields, and what the request asks for; computed once for each version of both.
    if known.read is None or known.read[0] is not gpr or known.read[1] is not template:
        if known.read is not None and known.read[1] is not template and known.answered is not None and not known.answered.answer.gpr_id:
            known.answered = None  # it asks for something else now, also when its status was read anew in the same look
        words = template_fields(gpr, template)
        known.read = (gpr, template, words, cluster_request_of(gpr, words))
    return known.read[2:]


def in_turns(requests: Iterable[ClusterRequest]) -> list[ClusterRequest]:
    """Interleaves namespaces, so that one with thousands of requests delays no other."""
    waiting: dict[str, list[ClusterRequest]] = {}
    for request in requests:
        waiting.setdefault(request.namespace, []).append(request)
    rounds = zip_longest(*waiting.values())
    return [request for each in rounds for request in each if request is not None]
