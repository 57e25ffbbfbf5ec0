"""Implements the slices' part of EGS Sync v1."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec
from django.db import transaction
from django.db.models import OuterRef, Subquery

from core.rest.references import id_of
from inventory.models import Cluster
from inventory.services.clusters import desired_set_changed
from journal.hints import hint, slice_topic
from journal.models import Severity
from journal.services import event_record
from protocol.agents.listings import set_digest
from protocol.agents.sync import SyncRequest
from protocol.assignments import Desired
from protocol.tenancy.waiting_pods import PodsWaiting
from protocol.tenancy.workspaces import AccessRole, Account, Binding, BindingSeen, BindingState, Workspace
from slices.kubeconfigs.services import kubeconfig_take, kubeconfigs_close, kubeconfigs_open
from slices.models import (
    DETAIL_MAX_CHARS,
    LIVE_STATES,
    Kubeconfig,
    KubeconfigState,
    Membership,
    Namespace,
    Role,
    Slice,
    Unbinding,
)

ACCESS_OF = {Role.OWNER: AccessRole.USER, Role.EDITOR: AccessRole.USER, Role.VIEWER: AccessRole.VIEWER}


class SliceTenants:
    def workspaces(self, cluster_id: UUID) -> tuple[Workspace, ...]:
        """Needs four queries."""
        bindings: dict[UUID, list[Binding]] = defaultdict(list)
        for slice_id, name, may_adopt in Namespace.objects.filter(cluster=cluster_id).values_list("slice", "name", "may_adopt"):
            bindings[slice_id].append(Binding(namespace=name, may_adopt=may_adopt))
        for slice_id, name in Unbinding.objects.filter(cluster=cluster_id).values_list("slice", "name"):
            bindings[slice_id].append(Binding(namespace=name, desired=Desired.ABSENT))
        accounts = _accounts(cluster_id)
        slices = Slice.objects.filter(pk__in=bindings).only("name", "pods_max", "may_reach_out").order_by("pk")
        workspaces = [
            Workspace(
                id=str(slice_.pk),
                name=slice_.name,
                bindings=tuple(sorted(bindings[slice_.pk], key=lambda binding: binding.namespace)),
                accounts=tuple(accounts[slice_.pk]),
                pods_max=slice_.pods_max,
                may_reach_out=slice_.may_reach_out,
            )
            for slice_ in slices
        ]
        return tuple(workspaces)

    def take_report(self, cluster: Cluster, message: SyncRequest, now: datetime) -> None:
        for seen in message.bindings:
            binding_observe(cluster=cluster, seen=seen, now=now)
        for issued in message.tokens:
            kubeconfig_take(cluster=cluster, issued=issued, now=now)
        if message.waiting is not None:
            waiting_observe(cluster=cluster, waiting=message.waiting)
        if message.accounts_left is not None:
            self._close(cluster, message, frozenset(message.accounts_left), now)

    def _close(self, cluster: Cluster, message: SyncRequest, left: frozenset[str], now: datetime) -> None:
        """Close ended kubeconfigs whose accounts the agent no longer lists.

        It closes only kubeconfigs that had ended in the generation that the agent knew. It reads them before it computes the list again, so
        that one that ends in between stays open.
        """
        ended = [pk for pk in kubeconfigs_open(cluster, generation=message.known_generation) if str(pk) not in left]
        if ended and message.have_workspaces == set_digest(self.workspaces(cluster.pk)):
            kubeconfigs_close(ended, now=now)


@transaction.atomic
def binding_observe(*, cluster: Cluster, seen: BindingSeen, now: datetime) -> None:
    """Ignores namespaces that are not bound here."""
    slice_id, detail = id_of(seen.slice), seen.detail[:DETAIL_MAX_CHARS]
    if slice_id is None:
        return
    given_up = Unbinding.objects.select_for_update(of=("self",)).select_related("slice")
    left = given_up.filter(slice=slice_id, cluster=cluster, name=seen.namespace).first()
    if left is not None:
        _observe_unbinding(left, seen, detail, now)
        return
    bound = Namespace.objects.select_for_update(of=("self",)).select_related("slice")
    namespace = bound.filter(slice=slice_id, cluster=cluster, name=seen.namespace).first()
    if namespace is not None and seen.state != BindingState.UNBOUND:
        _observe_namespace(namespace, seen, detail, now)


@transaction.atomic
def waiting_observe(*, cluster: Cluster, waiting: Sequence[PodsWaiting]) -> None:
    """`waiting` is the whole list."""
    told = {each.namespace: msgspec.json.decode(msgspec.json.encode(each)) for each in waiting}  # as it is read back
    changed = []
    for row in Namespace.objects.filter(cluster=cluster).only("pk", "name", "waiting", "slice"):
        if row.waiting != (new := told.get(row.name)):
            row.waiting = new
            changed.append(row)
    Namespace.objects.bulk_update(changed, ["waiting"])
    for slice_id in {row.slice_id for row in changed}:
        hint(slice_topic(slice_id))


def _observe_unbinding(row: Unbinding, seen: BindingSeen, detail: str, now: datetime) -> None:
    if seen.state != BindingState.UNBOUND:
        if seen.state == BindingState.WAITING and row.detail != detail:
            Unbinding.objects.filter(pk=row.pk).update(detail=detail)
        return
    row.delete()
    _record_event(row, "namespace_left", f"Namespace {row.name} is not workspace {row.slice.name}'s any more in the cluster.", now)
    desired_set_changed([row.cluster_id])


def _observe_namespace(row: Namespace, seen: BindingSeen, detail: str, now: datetime) -> None:
    if seen.repaired:
        what = ", ".join(seen.repaired)
        _record_event(row, "namespace_repaired", f"Namespace {row.name} was changed by hand, and was put right: {what}.", now)
    if seen.left:
        what = ", ".join(seen.left)
        text = f"Namespace {row.name} was changed by hand, and is left so, as the cluster's policy says: {what}."
        _record_event(row, "namespace_changed", text, now, severity=Severity.WARNING)
    if (row.state, row.detail) == (seen.state, detail):
        return
    Namespace.objects.filter(pk=row.pk).update(state=seen.state, detail=detail)
    severity = Severity.WARNING if seen.state == BindingState.CONFLICT else Severity.INFO
    text = f"Namespace {row.name} is {seen.state.lower() if seen.state != BindingState.CONFLICT else 'in conflict'}. {detail}".strip()
    _record_event(row, "namespace_state", text, now, severity=severity)


def _record_event(row: Namespace | Unbinding, what: str, message: str, now: datetime, *, severity: Severity = Severity.INFO) -> None:
    event_record(kind=f"slice.{what}", message=message, at=now, severity=severity, slice_id=row.slice_id, cluster_id=row.cluster_id)


def _accounts(cluster_id: UUID) -> dict[UUID, list[Account]]:
    """Only current, active members have accounts."""
    role = Membership.objects.filter(slice=OuterRef("slice"), user=OuterRef("user"), user__is_active=True).values("role")[:1]
    rows = Kubeconfig.objects.filter(cluster=cluster_id, state__in=LIVE_STATES).annotate(role=Subquery(role)).order_by("pk")
    found: dict[UUID, list[Account]] = defaultdict(list)
    for row in rows.filter(role__in=Role.values).values_list("pk", "slice", "namespace", "role", "state", "duration_s"):
        pk, slice_id, namespace, role_, state, duration_s = row
        token_s = duration_s if state == KubeconfigState.ASKED else 0
        found[slice_id].append(Account(id=str(pk), role=ACCESS_OF[Role(role_)], namespace=namespace, token_s=token_s))
    return found
