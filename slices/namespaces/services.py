from __future__ import annotations

from datetime import datetime

from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from accounts.models import User
from accounts.policy import ObjectKind, Verb, may_all
from core.errors import Conflict, InvalidInput, NotAllowed, OverPolicy
from core.words import plural
from inventory.models import Cluster, Reservation, ReservationState
from inventory.services.clusters import desired_set_changed
from inventory.services.reservations import reservations_set_namespaces
from journal.models import Severity
from journal.services import event_record
from protocol.tenancy.workspaces import BindingState
from slices.kubeconfigs.services import kubeconfigs_revoke
from slices.models import (
    PENDING,
    Kubeconfig,
    Life,
    Namespace,
    Slice,
    Unbinding,
)
from slices.namespaces.naming import coverage, is_reserved
from slices.services import slice_lock, slice_lock_open


@transaction.atomic
def namespace_bind(*, slice_: Slice, cluster: Cluster, name: str, actor: User | None, now: datetime, may_adopt: bool = False) -> Namespace:
    """Bind a namespace, or leave it PENDING when its owner may not choose the name.

    Raises InvalidInput for reserved names, OverPolicy, Conflict for a taken name, NotAllowed when `may_adopt` is not an administrator's.
    """
    if may_adopt:
        _refuse_to_adopt(actor)
    if is_reserved(name):
        raise InvalidInput({"name": ["This namespace belongs to the cluster itself. Choose one of your own."]})
    slice_lock_open(slice_)
    _refuse_other_clusters(slice_, cluster)
    _refuse_beyond_count(slice_)
    is_pending = actor is not None and not may_all(actor, Verb.DECIDE, ObjectKind.NAMESPACE) and not _may_choose(slice_, name)
    namespace = Namespace(slice=slice_, cluster=cluster, name=name, created_at=now, may_adopt=may_adopt)
    namespace.state = PENDING if is_pending else BindingState.WAITING.value
    try:
        with transaction.atomic():
            namespace.save(force_insert=True)
    except IntegrityError:
        raise _taken(name) from None
    if is_pending:
        text = f"Workspace {slice_.name} asks for namespace {name} of cluster {cluster.name}. An administrator has to approve this name."
        _namespace_event(namespace, "namespace_asked", text, actor, now)
    else:
        text = f"Namespace {name} of cluster {cluster.name} was bound to workspace {slice_.name}."
        _bound(namespace, "namespace_bound", text, actor, now)
    return namespace


def _may_choose(slice_: Slice, name: str) -> bool:
    """Tell whether a pattern of its own covers the name, and no other workspace's covers it more closely."""
    own = coverage(name, slice_.namespace_patterns)
    others = Slice.objects.exclude(pk=slice_.pk).exclude(life=Life.REMOVED).values_list("namespace_patterns", flat=True)
    return own >= 0 and all(coverage(name, patterns) <= own for patterns in others)


@transaction.atomic
def namespace_approve(*, namespace: Namespace, actor: User, now: datetime) -> None:
    """Raises NotAllowed, InvalidInput when the workspace lost the cluster, Conflict when the name is taken."""
    _refuse_to_decide(actor)
    slice_lock_open(namespace.slice)
    _refuse_other_clusters(namespace.slice, namespace.cluster)
    try:
        with transaction.atomic():
            changed = _pending(namespace).update(state=BindingState.WAITING)
    except IntegrityError:
        raise _taken(namespace.name) from None
    if not changed:
        raise Conflict(f"Namespace {namespace.name} waits for no approval.")
    text = f"Namespace {namespace.name} of cluster {namespace.cluster.name} was approved and bound to workspace {namespace.slice.name}."
    _bound(namespace, "namespace_approved", text, actor, now)


@transaction.atomic
def namespace_refuse(*, namespace: Namespace, actor: User, why: str, now: datetime) -> None:
    """Raises NotAllowed, or Conflict when it waits for no approval."""
    _refuse_to_decide(actor)
    if not _pending(namespace).delete()[0]:
        raise Conflict(f"Namespace {namespace.name} waits for no approval.")
    text = f"Workspace {namespace.slice.name} does not get namespace {namespace.name} of cluster {namespace.cluster.name}: {why}"
    _namespace_event(namespace, "namespace_refused", text, actor, now, severity=Severity.WARNING)


@transaction.atomic
def namespace_adopt(*, namespace: Namespace, actor: User, now: datetime) -> None:
    """Allow the agent to take over a namespace that existed before. Raises NotAllowed, Conflict when it is ready already."""
    _refuse_to_adopt(actor)
    if not Namespace.with_pending.filter(pk=namespace.pk).exclude(state=BindingState.READY).update(may_adopt=True):
        raise Conflict(f"Namespace {namespace.name} is the workspace's already.")
    text = f"Workspace {namespace.slice.name} may adopt namespace {namespace.name} of cluster {namespace.cluster.name}."
    _namespace_event(namespace, "namespace_adopted", text, actor, now)
    desired_set_changed([namespace.cluster_id])


@transaction.atomic
def namespace_unbind(*, namespace: Namespace, actor: User | None, now: datetime) -> None:
    """The agent removes access; contents and network limits stay. Raises Conflict while the slice holds nodes there."""
    slice_, cluster = namespace.slice, namespace.cluster
    slice_lock(slice_)
    if _pending(namespace).delete()[0]:
        text = f"Workspace {slice_.name} does not ask for namespace {namespace.name} of cluster {cluster.name} any more."
        _namespace_event(namespace, "namespace_withdrawn", text, actor, now)
        return
    if Reservation.objects.filter(slice=slice_, cluster=cluster, state=ReservationState.HELD).exists():
        raise Conflict(f"Workspace {slice_.name} holds nodes in cluster {cluster.name}. Unbind it when its GPR has ended.")
    namespace.delete()
    Unbinding.objects.create(slice=slice_, cluster=cluster, name=namespace.name, created_at=now)
    own = Kubeconfig.objects.filter(slice=slice_, cluster=cluster, namespace=namespace.name)
    kubeconfigs_revoke(own, why=f"Namespace {namespace.name}, where its account was, was unbound.", actor=actor, now=now)
    _namespaces_changed(slice_, cluster)
    text = f"Namespace {namespace.name} of cluster {cluster.name} was unbound from workspace {slice_.name}."
    _namespace_event(namespace, "namespace_unbound", text, actor, now)


def _refuse_other_clusters(slice_: Slice, cluster: Cluster) -> None:
    if not slice_.clusters.filter(pk=cluster.pk).exists():
        raise InvalidInput({"cluster": [f"Workspace {slice_.name} may not use it. Add the cluster to the workspace first."]})


def _refuse_beyond_count(slice_: Slice) -> None:
    most = slice_.namespaces_max
    if Namespace.with_pending.filter(slice=slice_).count() >= most:
        text = f"Workspace {slice_.name} may have {plural(most, 'namespace')}, those included that wait for approval. Give one up first."
        raise OverPolicy(text, limit="namespaces_max", most=most)


def _refuse_to_decide(actor: User) -> None:
    if not may_all(actor, Verb.DECIDE, ObjectKind.NAMESPACE):
        raise NotAllowed("Only an administrator decides on the names of namespaces.")


def _taken(name: str) -> Conflict:
    """Gives the same answer for names of this workspace and of others."""
    return Conflict(f"The name {name} is taken in this cluster. Choose another one.")


def _pending(namespace: Namespace) -> QuerySet[Namespace]:
    return Namespace.with_pending.filter(pk=namespace.pk, state=PENDING)


def _bound(namespace: Namespace, what: str, text: str, actor: User | None, now: datetime) -> None:
    Unbinding.objects.filter(slice=namespace.slice, cluster=namespace.cluster, name=namespace.name).delete()
    _namespaces_changed(namespace.slice, namespace.cluster)
    _namespace_event(namespace, what, text, actor, now)


def _namespace_event(
    namespace: Namespace, what: str, text: str, actor: User | None, now: datetime, *, severity: Severity = Severity.INFO
) -> None:
    event_record(
        kind=f"slice.{what}",
        message=text,
        at=now,
        actor=actor,
        severity=severity,
        slice_id=namespace.slice_id,
        cluster_id=namespace.cluster_id,
    )


def _namespaces_changed(slice_: Slice, cluster: Cluster) -> None:
    names = list(slice_.namespaces.filter(cluster=cluster).order_by("name").values_list("name", flat=True))
    reservations_set_namespaces(slice_id=slice_.pk, cluster_id=cluster.pk, namespaces=names)
    desired_set_changed([cluster.pk])


def _refuse_to_adopt(actor: User | None) -> None:
    if actor is not None and not may_all(actor, Verb.DECIDE, ObjectKind.NAMESPACE):
        raise NotAllowed("Only an administrator lets a workspace adopt a namespace that was there before.")
