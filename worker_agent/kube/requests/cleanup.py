"""Deletes automatic requests some time after they end, because a namespace can hold only isolation.REQUESTS_MAX.

The hub is told nothing: a deleted object matters to it only while its request is open. Must not live here: requests that people made.

Needs, beside other rights: delete of gpuprovisioningrequests.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from operator import itemgetter
from typing import Final

from protocol.tenancy.cluster_requests import ClusterRequestState
from worker_agent.cluster.base import ClusterError, Note, Throttled, Unavailable, WriteConflict
from worker_agent.kube.api.client import Api
from worker_agent.kube.api.custom import FINISHED, GIVEN_BACK, REQUESTS, Custom, path_of
from worker_agent.kube.api.objects import Pod
from worker_agent.kube.pods.workloads import is_waiting
from worker_agent.kube.requests.automatic import has_ended_naturally
from worker_agent.kube.requests.status import ACCEPTED, rfc3339

KEPT_S: Final = 24 * 3600.0
KEPT_MOST: Final = 300  # per namespace, so that there is room for requests of people
EVERY_S: Final = 10.0
AT_ONCE: Final = 50  # deletions per look
REFUSALS_MOST: Final = 5  # refusing namespaces per look


@dataclass(slots=True)
class RequestCleanup:
    """One thread uses it."""

    api: Api
    pods: Callable[[], Iterable[Pod]]
    note: Note
    _not_before_mono: float = float("-inf")
    _refused: set[str] = field(default_factory=set)  # namespaces whose last deletion was refused

    def look(
        self,
        requests: Iterable[Custom],
        states: Mapping[str, ClusterRequestState] | None,
        *,
        is_bound: Callable[[str], bool | None],
        now: datetime,
        now_mono: float,
    ) -> None:
        """Takes `states` as in HubNews. Raises nothing."""
        if states is None or now_mono < self._not_before_mono:
            return
        self._not_before_mono = now_mono + EVERY_S
        goes_on = {uid for uid, state in states.items() if not state.is_ended}
        mine = [gpr for gpr in requests if gpr.is_auto and gpr.metadata.uid not in goes_on and is_bound(gpr.metadata.namespace)]
        due = due_of(mine, now)
        self._refused &= {gpr.metadata.namespace for gpr in due}
        if due:
            waits_since = _first_made(self.pods())
            # Namespaces that refused before come last, so that they delay no other.
            due.sort(key=lambda gpr: gpr.metadata.namespace in self._refused)
            self._delete(gpr for gpr in due if not _holds_back(gpr, waits_since))

    def _delete(self, requests: Iterable[Custom]) -> None:
        counts: Counter[str] = Counter()
        refusing: set[str] = set()
        for gpr in islice((each for each in requests if each.metadata.namespace not in refusing), AT_ONCE):
            meta = gpr.metadata
            try:
                self.api.delete(path_of(REQUESTS, meta.namespace, meta.name), uid=meta.uid)
            except WriteConflict:
                continue  # already gone, or replaced by another of the same name
            except ClusterError as error:
                self._note_refusal(meta.namespace, error)
                refusing.add(meta.namespace)
                if isinstance(error, Throttled | Unavailable) or len(refusing) == REFUSALS_MOST:
                    break
            else:
                self._refused.discard(meta.namespace)
                counts[meta.namespace] += 1
        for namespace, count in counts.items():
            self.note("requests_deleted", {"namespace": namespace, "count": count})

    def _note_refusal(self, namespace: str, error: ClusterError) -> None:
        if not self._refused:
            self.note("requests_not_deleted", {"why": str(error)})
        self._refused.add(namespace)


def due_of(requests: Iterable[Custom], now: datetime) -> list[Custom]:
    """Returns automatic requests that ended long ago, or are too many, with the namespaces in turn."""
    before = rfc3339(now.timestamp() - KEPT_S)
    over: dict[str, list[tuple[str, Custom]]] = defaultdict(list)
    for gpr in requests:
        if since := over_since(gpr):
            over[gpr.metadata.namespace].append((since, gpr))
    due: list[tuple[int, Custom]] = []
    for there in over.values():
        there.sort(key=itemgetter(0))
        too_many = len(there) - KEPT_MOST
        due += [(place, gpr) for place, (since, gpr) in enumerate(there) if place < too_many or since < before]
    return [gpr for _, gpr in sorted(due, key=itemgetter(0))]


def over_since(gpr: Custom) -> str:
    """Returns a timestamp; "" while the request goes on."""
    if gpr.is_finished:
        return str(gpr.condition(FINISHED).get("lastTransitionTime", ""))
    is_heard = gpr.status_fields.get("observedGeneration") == gpr.metadata.generation
    was_refused = not gpr.status_fields.get("gprID") and gpr.condition(ACCEPTED).get("status") == "False"
    # A request that was given back before the hub accepted it will never be accepted.
    if gpr.metadata.annotations.auto == GIVEN_BACK and is_heard and was_refused:
        return str(gpr.condition(ACCEPTED).get("lastTransitionTime", ""))
    return ""


def _first_made(pods: Iterable[Pod]) -> Mapping[str, str]:
    """Returns creation times of the oldest waiting pods, by namespace."""
    first: dict[str, str] = {}
    for pod in pods:
        namespace, made_at = pod.metadata.namespace, pod.metadata.creationTimestamp
        if made_at is not None and is_waiting(pod):
            at = rfc3339(made_at.timestamp())
            first[namespace] = min(at, first.get(namespace, at))
    return first


def _holds_back(gpr: Custom, waits_since: Mapping[str, str]) -> bool:
    # Its pods may still wait and wanted it to go on. Without the ended request as a record, they would get another one.
    since = waits_since.get(gpr.metadata.namespace)
    return since is not None and since <= over_since(gpr) and not has_ended_naturally(gpr)
