"""Audits isolated namespaces for what others added (additions.py), after everything of EGS is in place.

A NetworkPolicy that allows traffic is emptied, deleted and reported, unless it is marked to stay. RoleBindings are only reported.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final

import msgspec

from protocol.nodes.drift import Drift
from protocol.tenancy.workspaces import Workspace
from worker_agent.cluster.base import ClusterError, Note, WriteConflict
from worker_agent.kube.api.client import Api, Missing, Op
from worker_agent.kube.api.paging import ObjectPage, listed
from worker_agent.kube.tenancy.additions import (
    AddedObject,
    allows_traffic,
    bindings_drift,
    is_marked,
    is_our_binding,
    is_our_policy,
    readable,
    remaining_drift,
    removed_drift,
)

NETWORKING: Final = "/apis/networking.k8s.io/v1"
POLICIES: Final = f"{NETWORKING}/networkpolicies"
BINDINGS: Final = "/apis/rbac.authorization.k8s.io/v1/rolebindings"
KEEP_GUARD: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/egs-keep"
REMOVED_MAX: Final = 100  # removals that one audit tries, in all namespaces together
REMOVING_MAX_S: Final = 5.0  # after so long an audit begins no further removal
SPEC_MAX_CHARS: Final = 4000  # of a policy, in the log

Isolated = Mapping[str, Workspace]  # the workspace by namespace
IsOurs = Callable[[AddedObject, Workspace], bool]
ByNamespace = Mapping[str, list[AddedObject]]


class NamespaceAudit:
    """One thread uses it."""

    def __init__(self, api: Api, *, note: Note) -> None:
        self._api, self._note = api, note
        self._remaining: dict[str, tuple[Drift, ...]] = {}  # by path: what the last audit found and left
        self._unseen: set[str] = set()
        self.is_unfinished = False  # the last audit did not try all removals
        self._turns = 0  # removals tried so far
        self._turn_of: dict[str, int] = {}  # the number of the last attempt by UID of the policy
        self._turn_in: dict[str, int] = {}  # and by namespace

    @property
    def remaining(self) -> tuple[Drift, ...]:
        return tuple(drift for drifts in self._remaining.values() for drift in drifts)

    def look(self, isolated: Isolated, *, repairs: bool) -> tuple[Drift, ...]:
        """Repeats the last result when the API server does not answer."""
        policies = self._answer(POLICIES, isolated, is_our_policy, lambda added: self._answer_policies(added, repairs=repairs))
        return policies + self._answer(BINDINGS, isolated, is_our_binding, _answer_bindings)

    def _answer(
        self, path: str, isolated: Isolated, is_ours: IsOurs, answer: Callable[[ByNamespace], Iterator[Drift]]
    ) -> tuple[Drift, ...]:
        try:
            added = self._added(path, isolated, is_ours)
        except ClusterError as error:
            if path not in self._unseen:
                self._unseen.add(path)
                self._note("added_unseen", {"path": path, "why": str(error)})
            return self._remaining.get(path, ())
        self._unseen.discard(path)
        drifts = tuple(answer(added))
        self._remaining[path] = tuple(drift for drift in drifts if not drift.is_repaired)
        return drifts

    def _added(self, path: str, isolated: Isolated, is_ours: IsOurs) -> ByNamespace:
        found: dict[str, list[AddedObject]] = defaultdict(list)
        # Other namespaces may have tens of thousands.
        for each in listed(self._api, path, ObjectPage[AddedObject]) if isolated else ():
            namespace = each.metadata.namespace
            if namespace in isolated and not is_ours(each, isolated[namespace]):
                found[namespace].append(each)
        return found

    # -- policies ------------------------------------------------------------------------------------------------------

    def _answer_policies(self, added: ByNamespace, *, repairs: bool) -> Iterator[Drift]:
        open_ = {namespace: list(filter(allows_traffic, policies)) for namespace, policies in added.items()}
        is_guarded = self._is_guarded() if any(is_marked(policy) for policies in open_.values() for policy in policies) else False
        if is_guarded:
            open_ = {namespace: [each for each in policies if not is_marked(each)] for namespace, policies in open_.items()}
        is_unsure = is_guarded is None  # marked policies are left alone then
        due = {
            namespace: [each for each in policies if repairs and not (is_unsure and is_marked(each))]
            for namespace, policies in open_.items()
        }
        is_removed = self._remove_some(due)
        self.is_unfinished = len(is_removed) < sum(map(len, due.values()))
        for namespace, policies in open_.items():
            later = {each.metadata.uid for each in due[namespace]} - is_removed.keys()
            gone = [readable(each.metadata.name) for each in policies if is_removed.get(each.metadata.uid)]
            left = [each for each in policies if each.metadata.uid not in later and not is_removed.get(each.metadata.uid)]
            if gone:
                yield removed_drift(namespace, gone, later_count=len(later))
            if left:
                told = [readable(each.metadata.name) + _held(each, repairs=repairs) for each in left]
                yield remaining_drift(namespace, told, later_count=len(later))

    def _remove_some(self, due: ByNamespace) -> dict[str, bool]:
        """Removes some policies; returns by UID whether each is gone."""
        is_removed: dict[str, bool] = {}
        until_mono = time.monotonic() + REMOVING_MAX_S
        for policy in islice(self._in_turn(due), REMOVED_MAX):
            is_removed[policy.metadata.uid] = self._remove(policy)
            if time.monotonic() >= until_mono:
                break
        return is_removed

    def _in_turn(self, due: ByNamespace) -> Iterator[AddedObject]:
        """Alternates between namespaces, also across audits; policies that were tried longest ago come first."""
        uids = {each.metadata.uid for policies in due.values() for each in policies}
        self._turn_of = {uid: turn for uid, turn in self._turn_of.items() if uid in uids}
        self._turn_in = {namespace: turn for namespace, turn in self._turn_in.items() if namespace in due}
        queues = {
            namespace: deque(sorted(policies, key=lambda each: self._turn_of.get(each.metadata.uid, 0)))
            for namespace, policies in due.items()
            if policies
        }
        turns = [(self._turn_in.get(namespace, 0), namespace) for namespace in queues]
        heapify(turns)
        while turns:
            _, namespace = heappop(turns)
            policy = queues[namespace].popleft()
            self._turns += 1
            self._turn_in[namespace] = self._turn_of[policy.metadata.uid] = self._turns
            yield policy
            if queues[namespace]:
                heappush(turns, (self._turns, namespace))

    def _is_guarded(self) -> bool | None:
        """Tell whether the policy egs-keep is installed; None if it cannot be read now."""
        try:
            self._api.get(KEEP_GUARD, AddedObject)
        except Missing:
            return False
        except ClusterError as error:
            self._note("added_unseen", {"path": KEEP_GUARD, "why": str(error)})
            return None
        return True  # only administrators can write the mark

    def _remove(self, policy: AddedObject) -> bool:
        path = _path(policy)
        # It is emptied first, because a finalizer may keep a deleted policy in force for long.
        try:
            is_removed = self._is_harmless_after(path, lambda: self._empty(path, policy), is_enough=True)
            is_enough = not policy.metadata.finalizers
            is_removed = (
                self._is_harmless_after(path, lambda: self._api.delete(path, uid=policy.metadata.uid), is_enough=is_enough) or is_removed
            )
        except WriteConflict as error:  # it was written meanwhile: the next audit reads it again
            self._note("network_policy_kept", {"object": path, "why": str(error)})
            return False
        if is_removed:
            spec = msgspec.json.encode(policy.spec).decode()  # its author may need it again
            self._note("network_policy_deleted", {"object": path, "spec": spec[:SPEC_MAX_CHARS]})
        return is_removed

    def _is_harmless_after(self, path: str, call: Callable[[], object], *, is_enough: bool) -> bool:
        """Tell whether the policy allows nothing after this call. Raises WriteConflict when it was replaced or written meanwhile."""
        try:
            call()
        except Missing:
            return True
        except WriteConflict:
            raise
        except ClusterError as error:
            self._note("network_policy_kept", {"object": path, "why": str(error)})
            return False
        return is_enough

    def _empty(self, path: str, policy: AddedObject) -> None:
        meta = policy.metadata
        ops: list[Op] = [
            {"op": "test", "path": "/metadata/uid", "value": meta.uid},
            {"op": "test", "path": "/metadata/resourceVersion", "value": meta.resourceVersion},
            *({"op": "remove", "path": f"/spec/{way}"} for way in ("ingress", "egress") if policy.spec.get(way)),
        ]
        self._api.patch(path, ops, AddedObject)


def _answer_bindings(added: ByNamespace) -> Iterator[Drift]:
    for namespace, bindings in added.items():
        yield bindings_drift(namespace, bindings)


def _held(policy: AddedObject, *, repairs: bool) -> str:
    return " (it has a finalizer)" if repairs and policy.metadata.finalizers else ""


def _path(policy: AddedObject) -> str:
    return f"{NETWORKING}/namespaces/{policy.metadata.namespace}/networkpolicies/{policy.metadata.name}"
