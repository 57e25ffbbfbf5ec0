from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from accounts.models import User
from accounts.policy import Kind, Verb, may_all
from core.errors import Conflict, InvalidInput, NameTaken, NotAllowed, OverPolicy
from core.words import plural, utc
from inventory.models import Cluster, Reservation, ReservationState
from inventory.services.clusters import desired_set_changed
from inventory.services.reservations import reservations_set_namespaces
from journal.hints import TICK, hint, user_topic
from journal.models import Severity
from journal.services import event_record
from protocol.tenancy.workspaces import BindingState
from slices.kubeconfigs.services import kubeconfigs_revoke
from slices.models import (
    LIVE_STATES,
    PENDING,
    Kubeconfig,
    Life,
    Membership,
    Namespace,
    Policy,
    Project,
    ProjectAdmin,
    Role,
    Slice,
    Unbinding,
)
from slices.namespaces.naming import coverage, is_reserved, patterns_of
from slices.policies.services import policies_lock, policy_begin, terms_of_new
from slices.selectors import is_invited, refuse_closed


@transaction.atomic
def project_create(*, name: str, actor: User | None, now: datetime) -> Project:
    try:
        with transaction.atomic():
            project = Project.objects.create(name=name, created_at=now)
            Policy.objects.create(project=project)
    except IntegrityError:
        raise NameTaken(f"There is already a project named {name}. Choose another name.") from None
    event_record(kind="project.created", message=f"Project {name} was made.", at=now, actor=actor)
    return project


@transaction.atomic
def project_admin_add(*, project: Project, user: User, actor: User, now: datetime) -> ProjectAdmin:
    row, is_new = ProjectAdmin.objects.get_or_create(project=project, user=user, defaults={"created_at": now})
    if is_new:
        _project_admin_event(row, "project.admin_added", f"{user.name} administers project {project.name} now.", actor, now)
    return row


@transaction.atomic
def project_admin_remove(*, row: ProjectAdmin, actor: User | None, now: datetime) -> None:
    if ProjectAdmin.objects.filter(pk=row.pk).delete()[0]:
        _project_admin_event(
            row, "project.admin_removed", f"{row.user.name} does not administer project {row.project.name} any more.", actor, now
        )


def _project_admin_event(row: ProjectAdmin, kind: str, text: str, actor: User | None, now: datetime) -> None:
    event_record(kind=kind, message=text, at=now, actor=actor)
    hint(user_topic(row.user_id))


@transaction.atomic
def slice_create(*, name: str, project: Project, clusters: Iterable[Cluster], actor: User | None, now: datetime) -> Slice:
    refuse_closed(Project.objects.select_for_update(no_key=True).get(pk=project.pk))
    policies_lock()
    own = {"namespace_patterns": patterns_of(name)}
    try:
        with transaction.atomic():
            number, terms = Slice.objects.count(), terms_of_new(project, own)
            slice_ = Slice.objects.create(name=name, project=project, created_at=now, number=number, **terms)
    except IntegrityError:
        raise NameTaken(f"There is already a slice named {name}. Choose another name.") from None
    policy_begin(slice_, own, actor=actor, now=now)
    slice_.clusters.set(clusters)
    event_record(kind="slice.created", message=f"Workspace {name} was made.", at=now, actor=actor, slice_id=slice_.pk)
    return slice_


@transaction.atomic
def slice_set_end(*, slice_: Slice, ends_at: datetime | None, actor: User, now: datetime) -> None:
    """At its end a workspace is archived: it takes no requests any more, and what runs goes on to its own end."""
    if slice_.ends_at == ends_at:
        return
    slice_.ends_at, slice_.warned_days = ends_at, None
    slice_.save(update_fields=["ends_at", "warned_days"])
    until = f"takes requests until {utc(ends_at)}" if ends_at is not None else "has no end"
    text = f"Workspace {slice_.name} {until} now."
    event_record(kind="slice.end_changed", message=text, at=now, actor=actor, slice_id=slice_.pk)


@transaction.atomic
def slice_set_home(*, slice_: Slice, home: Cluster | None, actor: User, now: datetime) -> None:
    """Raises InvalidInput for a cluster that it may not use."""
    _lock(slice_)
    slice_.refresh_from_db(fields=["home"])
    if home is not None and not slice_.clusters.filter(pk=home.pk).exists():
        raise InvalidInput({"home": [f"Workspace {slice_.name} may not use cluster {home.name}. Give it the cluster first."]})
    if slice_.home == home:
        return
    slice_.home = home
    slice_.save(update_fields=["home"])
    event_record(
        kind="slice.home_changed",
        message=f"Workspace {slice_.name} is at home in cluster {home.name} now." if home else f"Workspace {slice_.name} has no home now.",
        at=now,
        actor=actor,
        slice_id=slice_.pk,
    )
    hint(TICK)


@transaction.atomic
def slice_set_clusters(*, slice_: Slice, clusters: Iterable[Cluster], actor: User, now: datetime) -> None:
    """Raises Conflict for a removed cluster that it still uses."""
    _lock(slice_)
    wanted, had = set(clusters), set(slice_.clusters.all())
    if wanted == had:
        return
    for cluster in had - wanted:
        _refuse_if_used(slice_, cluster)
    slice_.clusters.set(wanted)
    slice_.refresh_from_db(fields=["home"])
    if slice_.home not in wanted:
        slice_set_home(slice_=slice_, home=None, actor=actor, now=now)
    names = ", ".join(sorted(cluster.name for cluster in wanted)) or "none"
    event_record(
        kind="slice.clusters_changed",
        message=f"Workspace {slice_.name} may use these clusters now: {names}.",
        at=now,
        actor=actor,
        slice_id=slice_.pk,
    )
    hint(TICK)


@transaction.atomic
def member_set(*, slice_: Slice, user: User, role: Role, actor: User | None, now: datetime) -> Membership:
    """Add a member or change his role, whatever his groups say. Raises Conflict when no owner would be left, or it is closed."""
    _lock_open(slice_)
    membership = member_put(slice_=slice_, user=user, role=role, is_by_group=False, actor=actor, now=now)
    _keep_an_owner(slice_)
    return membership


def member_put(*, slice_: Slice, user: User, role: Role, is_by_group: bool, actor: User | None, now: datetime) -> Membership:
    """Needs a transaction. It may leave the workspace without an owner, as when the only one leaves his group."""
    had = Membership.objects.filter(slice=slice_, user=user).first()
    if had is not None and had.role == role and had.is_by_group == is_by_group:
        return had
    terms = {"role": role, "is_by_group": is_by_group}
    membership, _ = Membership.objects.update_or_create(slice=slice_, user=user, defaults=terms)
    slice_.invitations.filter(is_invited(user)).delete()
    hint(user_topic(user.pk))
    event_record(
        kind="slice.member_set",
        message=f"{user.name} is {Role(role).label.lower()} of workspace {slice_.name}.",
        at=now,
        actor=actor,
        slice_id=slice_.pk,
        data={"user": user.name},
    )
    # The agent adapts his kubeconfigs to the new role.
    desired_set_changed(Kubeconfig.objects.filter(slice=slice_, user=user, state__in=LIVE_STATES).values_list("cluster", flat=True))
    return membership


@transaction.atomic
def member_remove(*, slice_: Slice, user: User, actor: User, now: datetime) -> None:
    _lock(slice_)
    if Membership.objects.filter(slice=slice_, user=user, is_by_group=True).exists():
        raise Conflict(f"{user.name} is a member by a group. Remove the group from the workspace, or him from the group.")
    if not member_take(slice_=slice_, user=user, actor=actor, now=now):
        raise Conflict(f"{user.name} is not a member of {slice_.name}.")
    _keep_an_owner(slice_)


def member_take(*, slice_: Slice, user: User, actor: User | None, now: datetime) -> bool:
    """Needs a transaction. Returns whether the person was a member."""
    if not Membership.objects.filter(slice=slice_, user=user).delete()[0]:
        return False
    hint(user_topic(user.pk))
    event_record(
        kind="slice.member_removed",
        message=f"{user.name} left workspace {slice_.name}.",
        at=now,
        actor=actor,
        slice_id=slice_.pk,
    )
    own = Kubeconfig.objects.filter(slice=slice_, user=user)
    kubeconfigs_revoke(own, why=f"{user.name} left the workspace.", actor=actor, now=now)
    return True


@transaction.atomic
def namespace_bind(*, slice_: Slice, cluster: Cluster, name: str, actor: User | None, now: datetime, may_adopt: bool = False) -> Namespace:
    """Bind a namespace, or leave it PENDING when its owner may not choose the name.

    Raises InvalidInput for reserved names, OverPolicy, Conflict for a taken name, NotAllowed when `may_adopt` is not an administrator's.
    """
    if may_adopt:
        _refuse_to_adopt(actor)
    if is_reserved(name):
        raise InvalidInput({"name": ["This namespace belongs to the cluster itself. Choose one of your own."]})
    _lock_open(slice_)
    _refuse_other_clusters(slice_, cluster)
    _refuse_beyond_count(slice_)
    is_pending = actor is not None and not may_all(actor, Verb.DECIDE, Kind.NAMESPACE) and not _may_choose(slice_, name)
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
    """Whether a pattern of its own covers the name, and no other workspace's covers it more closely."""
    own = coverage(name, slice_.namespace_patterns)
    others = Slice.objects.exclude(pk=slice_.pk).exclude(life=Life.REMOVED).values_list("namespace_patterns", flat=True)
    return own >= 0 and all(coverage(name, patterns) <= own for patterns in others)


@transaction.atomic
def namespace_approve(*, namespace: Namespace, actor: User, now: datetime) -> None:
    """Raises NotAllowed, InvalidInput when the workspace lost the cluster, Conflict when the name is taken."""
    _refuse_to_decide(actor)
    _lock_open(namespace.slice)
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
    _lock(slice_)
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


def _refuse_if_used(slice_: Slice, cluster: Cluster) -> None:
    if slice_.namespaces.filter(cluster=cluster).exists():
        raise Conflict(f"Workspace {slice_.name} has namespaces in cluster {cluster.name}. Unbind them first.")
    if Reservation.objects.filter(slice=slice_, cluster=cluster, state=ReservationState.HELD).exists():
        raise Conflict(f"Workspace {slice_.name} holds nodes in cluster {cluster.name}. Wait until its GPR has ended.")


def _lock(slice_: Slice) -> Slice:
    """Serializes changes of owners, and of namespaces with starts."""
    return Slice.objects.select_for_update(no_key=True).get(pk=slice_.pk)


def _lock_open(slice_: Slice) -> None:
    """Raises Conflict."""
    refuse_closed(_lock(slice_))


def _refuse_other_clusters(slice_: Slice, cluster: Cluster) -> None:
    if not slice_.clusters.filter(pk=cluster.pk).exists():
        raise InvalidInput({"cluster": [f"Workspace {slice_.name} may not use it. Add the cluster to the workspace first."]})


def _refuse_beyond_count(slice_: Slice) -> None:
    most = slice_.namespaces_max
    if Namespace.with_pending.filter(slice=slice_).count() >= most:
        text = f"Workspace {slice_.name} may have {plural(most, 'namespace')}, those included that wait for approval. Give one up first."
        raise OverPolicy(text, limit="namespaces_max", most=most)


def _refuse_to_decide(actor: User) -> None:
    if not may_all(actor, Verb.DECIDE, Kind.NAMESPACE):
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
    if actor is not None and not may_all(actor, Verb.DECIDE, Kind.NAMESPACE):
        raise NotAllowed("Only an administrator lets a workspace adopt a namespace that was there before.")


def _keep_an_owner(slice_: Slice) -> None:
    if not Membership.objects.filter(slice=slice_, role=Role.OWNER).exists():
        raise Conflict(f"Workspace {slice_.name} needs an owner. Make another member its owner first.")
