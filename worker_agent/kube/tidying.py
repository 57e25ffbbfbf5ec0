"""Requests that the agent made itself, deleted some time after they are over: a namespace may have so many (isolation.REQUESTS_MAX), and
one with many short jobs would be full one day.

Lives here: which ones, and the calls. People's own are theirs to delete. The hub keeps what it knows of a request that is over, and is
told nothing: an object that is gone means something to it only while its request is open (requests.py).

Needs, beside other rights: delete of gpuprovisioningrequests.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final

from worker_agent.cluster.base import ClusterError, Conflict, Note
from worker_agent.kube.autogpr import has_ended_by_itself
from worker_agent.kube.client import Api
from worker_agent.kube.custom import FINISHED, GIVEN_BACK, REQUESTS, Custom, path_of
from worker_agent.kube.objects import Pod
from worker_agent.kube.standing import ACCEPTED
from worker_agent.kube.workloads import is_waiting
from worker_agent.protocol import ClaimState

KEPT_S: Final = 24 * 3600.0
KEPT_MOST: Final = 300  # of a namespace, so that there is room for those that people make
EVERY_S: Final = 10.0
AT_ONCE: Final = 50  # in one look


@dataclass(slots=True)
class Tidying:
    """One thread."""

    api: Api
    pods: Callable[[], Iterable[Pod]]
    note: Note
    _not_before_mono: float = float("-inf")
    _has_noted: bool = False

    def look(
        self,
        requests: Iterable[Custom],
        states: Mapping[str, ClaimState] | None,
        *,
        is_bound: Callable[[str], bool | None],
        now: datetime,
        now_mono: float,
    ) -> None:
        """`requests`: all there are. `states`: as in Heard. Raises nothing."""
        if states is None or now_mono < self._not_before_mono:
            return
        self._not_before_mono = now_mono + EVERY_S
        goes_on = {uid for uid, state in states.items() if not state.is_ended}
        mine = [gpr for gpr in requests if gpr.is_auto and gpr.metadata.uid not in goes_on and is_bound(gpr.metadata.namespace)]
        due = list(due_of(mine, now))
        if due:
            waits_since = _first_made(self.pods())
            self._delete(islice((gpr for gpr in due if not _holds_back(gpr, waits_since)), AT_ONCE))

    def _delete(self, requests: Iterable[Custom]) -> None:
        counts: Counter[str] = Counter()
        for gpr in requests:
            meta = gpr.metadata
            try:
                self.api.delete(path_of(REQUESTS, meta.namespace, meta.name), uid=meta.uid)
            except Conflict:
                continue  # gone already, or another of its name
            except ClusterError as error:
                if not self._has_noted:
                    self.note("requests_not_deleted", {"why": str(error)})
                self._has_noted = True
                break
            self._has_noted = False
            counts[meta.namespace] += 1
        for namespace, count in counts.items():
            self.note("requests_deleted", {"namespace": namespace, "count": count})


def due_of(requests: Iterable[Custom], now: datetime) -> Iterator[Custom]:
    """Of each namespace those that are over for so long, and the oldest where they are too many. `requests`: automatic ones."""
    before = (now - timedelta(seconds=KEPT_S)).strftime("%Y-%m-%dT%H:%M:%SZ")
    over: dict[str, list[tuple[str, Custom]]] = defaultdict(list)
    for gpr in requests:
        if since := over_since(gpr):
            over[gpr.metadata.namespace].append((since, gpr))
    for there in over.values():
        there.sort(key=lambda each: each[0])
        too_many = len(there) - KEPT_MOST
        yield from (gpr for place, (since, gpr) in enumerate(there) if place < too_many or since < before)


def over_since(gpr: Custom) -> str:
    """As the status says; "" while it goes on, or may yet. One that was given back before the hub took it never will be more."""
    if gpr.is_finished:
        return str(gpr.condition(FINISHED).get("lastTransitionTime", ""))
    is_heard = gpr.said.get("observedGeneration") == gpr.metadata.generation
    was_refused = not gpr.said.get("gprID") and gpr.condition(ACCEPTED).get("status") == "False"
    if gpr.metadata.annotations.auto == GIVEN_BACK and is_heard and was_refused:
        return str(gpr.condition(ACCEPTED).get("lastTransitionTime", ""))
    return ""


def _first_made(pods: Iterable[Pod]) -> Mapping[str, str]:
    """By namespace when the oldest pod that waits was made."""
    first: dict[str, str] = {}
    for pod in pods:
        namespace, made_at = pod.metadata.namespace, pod.metadata.creationTimestamp
        if made_at is not None and is_waiting(pod):
            at = made_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            first[namespace] = min(at, first.get(namespace, at))
    return first


def _holds_back(gpr: Custom, waits_since: Mapping[str, str]) -> bool:
    """It ended against the wish of its pods, and some that may be its own still wait: without it these would get another."""
    since = waits_since.get(gpr.metadata.namespace)
    return since is not None and since <= over_since(gpr) and not has_ended_by_itself(gpr)
