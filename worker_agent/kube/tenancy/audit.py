"""A look at what somebody else added in the namespaces whose fence stands, after all that is kept there.

A NetworkPolicy that lets anything through is emptied and deleted, and told, unless an administrator marked it as one that stays; without
repairs, and of RoleBindings in any case, it is only told. The look may fail alone: nothing else of tenancy rests on it. Nor does anything
wait long for it: a look takes away so many, in turn of each namespace, and tells how many are left for the next ones. Must not live here:
what counts as added, and its words (added.py).
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final

import msgspec

from protocol.drift import Drift
from protocol.workspaces import Workspace
from worker_agent.cluster.base import ClusterError, Conflict, Note
from worker_agent.kube.api.client import Api, Missing, Op
from worker_agent.kube.api.paging import Page, listed
from worker_agent.kube.tenancy.additions import (
    Added,
    bindings_drift,
    is_marked,
    is_our_binding,
    is_our_policy,
    left_open,
    opens,
    readable,
    taken_away,
)

NETWORKING: Final = "/apis/networking.k8s.io/v1"
POLICIES: Final = f"{NETWORKING}/networkpolicies"
BINDINGS: Final = "/apis/rbac.authorization.k8s.io/v1/rolebindings"
KEEP_GUARD: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/egs-keep"
TAKEN_MAX: Final = 100  # policies that one look tries to take away, of all namespaces together
TAKING_MAX_S: Final = 5.0  # after so long it begins with no more of them
SPEC_MAX_CHARS: Final = 4000  # of a policy, in the log

Fenced = Mapping[str, Workspace]  # by namespace: whose it is
IsOurs = Callable[[Added, Workspace], bool]
ByNamespace = Mapping[str, list[Added]]


class Patrol:
    """One thread."""

    def __init__(self, api: Api, *, note: Note) -> None:
        self._api, self._note = api, note
        self._standing: dict[str, tuple[Drift, ...]] = {}  # by path: what the last look left as it is
        self._unseen: set[str] = set()
        self.is_unfinished = False  # the last look left some that it did not try to take away
        self._turns = 0  # attempts to take a policy away
        self._turn_of: dict[str, int] = {}  # the last one, by UID of the policy
        self._turn_in: dict[str, int] = {}  # and by namespace

    @property
    def standing(self) -> tuple[Drift, ...]:
        return tuple(drift for drifts in self._standing.values() for drift in drifts)

    def look(self, fenced: Fenced, *, repairs: bool) -> tuple[Drift, ...]:
        """What is added, and what of it was taken away just now. As before where the API server does not answer."""
        policies = self._answer(POLICIES, fenced, is_our_policy, lambda added: self._answer_policies(added, repairs=repairs))
        return policies + self._answer(BINDINGS, fenced, is_our_binding, _answer_bindings)

    def _answer(self, path: str, fenced: Fenced, is_ours: IsOurs, answer: Callable[[ByNamespace], Iterator[Drift]]) -> tuple[Drift, ...]:
        try:
            added = self._added(path, fenced, is_ours)
        except ClusterError as error:
            if path not in self._unseen:
                self._unseen.add(path)
                self._note("added_unseen", {"path": path, "why": str(error)})
            return self._standing.get(path, ())
        self._unseen.discard(path)
        drifts = tuple(answer(added))
        self._standing[path] = tuple(drift for drift in drifts if not drift.is_repaired)
        return drifts

    def _added(self, path: str, fenced: Fenced, is_ours: IsOurs) -> ByNamespace:
        """Page by page: a cluster may have tens of thousands that are nobody's business here."""
        found: dict[str, list[Added]] = defaultdict(list)
        for each in listed(self._api, path, Page[Added]) if fenced else ():
            namespace = each.metadata.namespace
            if namespace in fenced and not is_ours(each, fenced[namespace]):
                found[namespace].append(each)
        return found

    # -- policies ------------------------------------------------------------------------------------------------------

    def _answer_policies(self, added: ByNamespace, *, repairs: bool) -> Iterator[Drift]:
        open_ = {namespace: list(filter(opens, policies)) for namespace, policies in added.items()}
        is_guarded = self._is_guarded() if any(is_marked(policy) for policies in open_.values() for policy in policies) else False
        if is_guarded:
            open_ = {namespace: [each for each in policies if not is_marked(each)] for namespace, policies in open_.items()}
        is_unsure = is_guarded is None  # of those with the mark
        due = {
            namespace: [each for each in policies if repairs and not (is_unsure and is_marked(each))]
            for namespace, policies in open_.items()
        }
        is_away = self._take_away_some(due)
        self.is_unfinished = len(is_away) < sum(map(len, due.values()))
        for namespace, policies in open_.items():
            later = {each.metadata.uid for each in due[namespace]} - is_away.keys()
            gone = [readable(each.metadata.name) for each in policies if is_away.get(each.metadata.uid)]
            left = [each for each in policies if each.metadata.uid not in later and not is_away.get(each.metadata.uid)]
            if gone:
                yield taken_away(namespace, gone, later_count=len(later))
            if left:
                told = [readable(each.metadata.name) + _held(each, repairs=repairs) for each in left]
                yield left_open(namespace, told, later_count=len(later))

    def _take_away_some(self, due: ByNamespace) -> dict[str, bool]:
        """Whether each that was tried is away, by UID."""
        is_away: dict[str, bool] = {}
        until_mono = time.monotonic() + TAKING_MAX_S
        for policy in islice(self._in_turn(due), TAKEN_MAX):
            is_away[policy.metadata.uid] = self._take_away(policy)
            if time.monotonic() >= until_mono:
                break
        return is_away

    def _in_turn(self, due: ByNamespace) -> Iterator[Added]:
        """The namespaces one after the other, also over the looks; of each first what was never tried, then what was long ago."""
        uids = {each.metadata.uid for policies in due.values() for each in policies}
        self._turn_of = {uid: turn for uid, turn in self._turn_of.items() if uid in uids}
        self._turn_in = {namespace: turn for namespace, turn in self._turn_in.items() if namespace in due}
        lines = {
            namespace: deque(sorted(policies, key=lambda each: self._turn_of.get(each.metadata.uid, 0)))
            for namespace, policies in due.items()
            if policies
        }
        turns = [(self._turn_in.get(namespace, 0), namespace) for namespace in lines]
        heapify(turns)
        while turns:
            _, namespace = heappop(turns)
            policy = lines[namespace].popleft()
            self._turns += 1
            self._turn_in[namespace] = self._turn_of[policy.metadata.uid] = self._turns
            yield policy
            if lines[namespace]:
                heappush(turns, (self._turns, namespace))

    def _is_guarded(self) -> bool | None:
        """Whether the mark is an administrator's: by an older install anybody may write it. None: it cannot be seen now."""
        try:
            self._api.get(KEEP_GUARD, Added)
        except Missing:
            return False
        except ClusterError as error:
            self._note("added_unseen", {"path": KEEP_GUARD, "why": str(error)})
            return None
        return True

    def _take_away(self, policy: Added) -> bool:
        """Emptied first: one with a finalizer stays, and holds, long after it was deleted. Whoever made it may need what it said again."""
        path = _path(policy)
        try:
            is_away = self._ends(path, lambda: self._empty(path, policy), is_enough=True)
            # Not while a finalizer holds it.
            is_enough = not policy.metadata.finalizers
            is_away = self._ends(path, lambda: self._api.delete(path, uid=policy.metadata.uid), is_enough=is_enough) or is_away
        except Conflict as error:  # it was written meanwhile: the next look judges what it says then
            self._note("network_policy_kept", {"object": path, "why": str(error)})
            return False
        if is_away:
            spec = msgspec.json.encode(policy.spec).decode()
            self._note("network_policy_deleted", {"object": path, "spec": spec[:SPEC_MAX_CHARS]})
        return is_away

    def _ends(self, path: str, call: Callable[[], object], *, is_enough: bool) -> bool:
        """Whether it lets nothing through after this call; `is_enough`: if the call is taken. Raises Conflict: another has its name, or
        it was written meanwhile.
        """
        try:
            call()
        except Missing:
            return True
        except Conflict:
            raise
        except ClusterError as error:
            self._note("network_policy_kept", {"object": path, "why": str(error)})
            return False
        return is_enough

    def _empty(self, path: str, policy: Added) -> None:
        meta = policy.metadata
        ops: list[Op] = [
            {"op": "test", "path": "/metadata/uid", "value": meta.uid},
            {"op": "test", "path": "/metadata/resourceVersion", "value": meta.resourceVersion},
            *({"op": "remove", "path": f"/spec/{way}"} for way in ("ingress", "egress") if policy.spec.get(way)),
        ]
        self._api.patch(path, ops, Added)


def _answer_bindings(added: ByNamespace) -> Iterator[Drift]:
    for namespace, bindings in added.items():
        yield bindings_drift(namespace, bindings)


def _held(policy: Added, *, repairs: bool) -> str:
    return " (it has a finalizer)" if repairs and policy.metadata.finalizers else ""


def _path(policy: Added) -> str:
    return f"{NETWORKING}/namespaces/{policy.metadata.namespace}/networkpolicies/{policy.metadata.name}"
