"""Finds running, waiting and booked requests that break a policy.

A policy applies to later requests, so these go on; the sentences of `follows` say how.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db.models import Max

from core.words import duration_exact
from gpr.models import Gpr, GprState
from gpr.requests.spec import Breach, Measures, breaches_of, idle_measure
from inventory.models import Node
from slices.models import Policy, Slice
from slices.policies.services import effects_of, merged, slices_under

S = GprState
WAITING: Final = (S.QUEUED, S.PENDING_APPROVAL)
LIVE: Final = (S.PROVISIONING, S.ACTIVE, *WAITING)
# The columns of a workspace that are compared with its requests.
JUDGED: Final = frozenset(
    {
        *("nodes_approval", "gpus_approval", "duration_approval_s", "duration_max_s", "priority_approval"),
        *("may_evict", "may_skip_checks", "shapes", "queued_max", "idle_timeout_s"),
    }
)
Found = dict[UUID, list[Breach]]


class _LiveGpr(NamedTuple):
    pk: UUID
    slice_id: UUID
    state: str
    created_at: datetime
    nodes: int
    gpus_per_node: int | None
    duration_s: int
    priority: int
    may_evict: bool
    run_checks: bool
    idle_timeout_s: int | None
    shape: str
    min_gpu_memory_gib: int | None
    allowed_shapes: Sequence[str]


class _NodeKind(NamedTuple):
    cluster_id: UUID
    shape: str
    memory_gib: int
    gpu_count: int


@dataclass(frozen=True, slots=True)
class _Live:
    """Loads the live requests of some workspaces, with what counts their GPUs. Runs three queries."""

    asks: list[_LiveGpr]
    named: Mapping[UUID, set[UUID]]  # clusters that a request names
    kinds: Mapping[UUID, list[_NodeKind]]  # of a workspace's nodes

    @classmethod
    def load(cls, slice_ids: Iterable[UUID]) -> _Live:
        ids = list(slice_ids)
        rows = Gpr.objects.filter(slice__in=ids, state__in=LIVE).order_by()
        fields = ("pk", *(name for name in _LiveGpr._fields if name != "pk"))
        named: dict[UUID, set[UUID]] = defaultdict(set)
        for gpr_id, cluster_id in rows.filter(gpus_per_node=None, clusters__isnull=False).values_list("pk", "clusters"):
            named[gpr_id].add(cluster_id)
        kinds: dict[UUID, list[_NodeKind]] = defaultdict(list)
        nodes = Node.objects.filter(gone_at=None, cluster__slices__in=ids).order_by()
        for slice_id, *kind in nodes.values_list("cluster__slices", "cluster", "shape", "gpu_memory_gib").annotate(Max("gpu_count")):
            kinds[slice_id].append(_NodeKind(*kind))
        return cls([_LiveGpr(*row) for row in rows.values_list(*fields)], named, kinds)

    def breaches(self, policies: Mapping[UUID, Slice]) -> Found:
        found = {ask.pk: self._breaches(ask, policies[ask.slice_id]) for ask in self.asks}
        waiting: dict[UUID, int] = Counter()
        for ask in sorted(self.asks, key=lambda ask: (ask.created_at, ask.pk)):
            most = policies[ask.slice_id].queued_max
            waiting[ask.slice_id] += ask.state in WAITING
            if ask.state in WAITING and waiting[ask.slice_id] > most:
                text = f"Number {waiting[ask.slice_id]} of those that wait; more than {most} are refused."
                found[ask.pk].append(Breach("queued_max", text, most))
        return {pk: breaches for pk, breaches in found.items() if breaches}

    def _breaches(self, ask: _LiveGpr, policy: Slice) -> list[Breach]:
        gpus = ask.nodes * (ask.gpus_per_node or self._largest(ask))
        asked = Measures(ask.nodes, gpus, ask.duration_s, ask.priority, ask.may_evict, not ask.run_checks, idle_measure(ask.idle_timeout_s))
        found = breaches_of(policy, asked)
        if ask.duration_s > policy.duration_max_s:
            text = f"{duration_exact(ask.duration_s)}; more than {duration_exact(policy.duration_max_s)} is refused."
            found = [*(breach for breach in found if breach.field != "duration_s"), Breach("duration_max_s", text, policy.duration_max_s)]
        allowed = {ask.shape} if ask.shape else set(ask.allowed_shapes)
        if policy.shapes and not (allowed and allowed <= set(policy.shapes)):
            which = ", ".join(sorted(allowed - set(policy.shapes))) or "Any shape"
            found.append(Breach("shapes", f"{which}; only {', '.join(policy.shapes)} may be asked for.", 0))
        return found

    def _largest(self, ask: _LiveGpr) -> int:
        # gpr.requests.spec counts a request for whole nodes in the same way.
        clusters, memory_gib = self.named.get(ask.pk), ask.min_gpu_memory_gib or 0
        there = (kind for kind in self.kinds.get(ask.slice_id, ()) if not clusters or kind.cluster_id in clusters)
        fitting = (kind.gpu_count for kind in there if (kind.shape == ask.shape if ask.shape else kind.memory_gib >= memory_gib))
        return max(fitting, default=1)


def breaches_now(policy: Policy) -> Found:
    """Returns the requests that break the policy that holds for each workspace under this one."""
    slices = {slice_.pk: slice_ for slice_ in slices_under(policy)}
    return _Live.load(slices).breaches(slices)


def breaches_after(policy: Policy, terms: Mapping[str, Any]) -> Found:
    """Returns the requests that would newly break a rule if the policy set these terms. Raises InvalidInput."""
    old: dict[UUID, Slice] = {}
    new: dict[UUID, Slice] = {}
    for slice_, changes in effects_of(policy, merged(policy.terms, terms)):
        if JUDGED & changes.keys():
            old[slice_.pk], new[slice_.pk] = slice_, copy(slice_)
            for name, value in changes.items():
                setattr(new[slice_.pk], name, value)
    live = _Live.load(old)
    before = live.breaches(old)
    known = {pk: {breach.field for breach in found} for pk, found in before.items()}
    fresh = {pk: [each for each in found if each.field not in known.get(pk, ())] for pk, found in live.breaches(new).items()}
    return {pk: found for pk, found in fresh.items() if found}


def follows(gpr: Gpr) -> str:
    """Says what happens to a request that breaks a policy."""
    match gpr.state:
        case S.PENDING_APPROVAL:
            return "It goes on waiting for approval."
        case S.QUEUED if gpr.is_booking:
            return "It keeps its booked time; a change of it is judged by the new policy."
        case S.QUEUED:
            return "It keeps its place and its promise; a change of it is judged by the new policy."
    return "It runs to its end; an extension is judged by the new policy."


def why_it_stands(gpr: Gpr) -> str:
    """Says why a request exists although it breaks the policy in force."""
    if gpr.state == S.PENDING_APPROVAL:
        return "It waits for approval."
    if gpr.approval_reasons:
        return "It was approved."
    if gpr.policy_version != gpr.slice.policy_version:
        return f"It was judged by version {gpr.policy_version} of the policies; the workspace has version {gpr.slice.policy_version} now."
    if gpr.state == S.QUEUED and gpr.run:
        return "It was evicted and waits again."
    return "It was changed or extended by an administrator."
