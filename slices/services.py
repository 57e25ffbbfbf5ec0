from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from django.db import IntegrityError, transaction
from django.db.models import Q

from accounts.models import User
from accounts.policy import Verb, may
from core.errors import Conflict, InvalidInput, NameTaken, NotAllowed
from core.words import utc
from inventory.models import Cluster, Reservation, ReservationState
from inventory.services.clusters import desired_set_changed
from journal.changes import difference, values_of
from journal.hints import TICK, hint, user_topic
from journal.services import event_record
from slices.kubeconfigs.services import kubeconfigs_revoke
from slices.models import (
    LIVE_STATES,
    Kubeconfig,
    Life,
    Membership,
    Policy,
    Project,
    ProjectAdmin,
    Role,
    Slice,
)
from slices.namespaces.naming import patterns_of
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
def project_set_league(*, project: Project, in_league: bool, actor: User, now: datetime) -> None:
    """Raises NotAllowed."""
    if not may(actor, Verb.CHANGE, project):
        raise NotAllowed(f"Only administrators of project {project.name} may do this.")
    if Project.objects.filter(pk=project.pk).exclude(in_league=in_league).update(in_league=in_league):
        text = f"The workspaces of project {project.name} are {'in' if in_league else 'left out of'} the efficiency league now."
        data = difference({"in_league": not in_league}, {"in_league": in_league})
        event_record(kind="project.league_changed", message=text, at=now, actor=actor, data=data)
    project.in_league = in_league


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
    project = Project.objects.select_for_update(no_key=True).get(pk=project.pk)
    refuse_closed(project)
    policies_lock()
    own = {"namespace_patterns": patterns_of(name)}
    try:
        with transaction.atomic():
            number, terms = Slice.objects.count(), terms_of_new(project, own)
            slice_ = Slice.objects.create(name=name, project=project, created_at=now, number=number, ends_at=project.ends_at, **terms)
    except IntegrityError:
        raise NameTaken(f"There is already a workspace named {name}. Choose another name.") from None
    policy_begin(slice_, own, actor=actor, now=now)
    slice_.clusters.set(clusters)
    event_record(kind="slice.created", message=f"Workspace {name} was made.", at=now, actor=actor, slice_id=slice_.pk)
    return slice_


@transaction.atomic
def slice_set_end(*, slice_: Slice, ends_at: datetime | None, actor: User, now: datetime) -> None:
    """EGS archives a workspace at its end: it takes no requests any more, and boxes run to their own end. None means the end of its
    project.

    Raises InvalidInput, or Conflict for one that is closed.
    """
    project = Project.objects.select_for_update(no_key=True).get(pk=slice_.project_id)
    slice_lock_open(slice_)
    _refuse_past(ends_at, now)
    last_at = project.ends_at
    if last_at is not None and ends_at is not None and last_at < ends_at:
        raise InvalidInput({"ends_at": [f"Project {project.name} ends at {utc(last_at)}, and its workspaces with it."]})
    if slice_.ends_at != (ends_at or last_at):
        _slice_end(slice_, ends_at or last_at, actor, now)


@transaction.atomic
def project_set_end(*, project: Project, ends_at: datetime | None, actor: User, now: datetime) -> None:
    """Its workspaces that have no earlier end of their own end with it. Raises InvalidInput, or Conflict for one that is closed."""
    found = Project.objects.select_for_update(no_key=True).get(pk=project.pk)
    refuse_closed(found)
    if found.ends_at == ends_at:
        return
    _refuse_past(ends_at, now)
    with_it = Q(ends_at=found.ends_at) | (Q(ends_at=None) | Q(ends_at__gt=ends_at) if ends_at is not None else Q(ends_at=None))
    data = difference({"ends_at": found.ends_at}, {"ends_at": ends_at})
    found.ends_at = project.ends_at = ends_at
    found.save(update_fields=["ends_at"])
    event_record(kind="project.end_changed", message=f"Project {found.name} {_until(ends_at)} now.", at=now, actor=actor, data=data)
    for slice_ in found.slices.select_for_update(no_key=True).filter(with_it, life=Life.OPEN).exclude(ends_at=ends_at).order_by("pk"):
        _slice_end(slice_, ends_at, actor, now)


def _slice_end(slice_: Slice, ends_at: datetime | None, actor: User, now: datetime) -> None:
    data = difference({"ends_at": slice_.ends_at}, {"ends_at": ends_at})
    slice_.ends_at, slice_.warned_days = ends_at, None
    slice_.save(update_fields=["ends_at", "warned_days"])
    text = f"Workspace {slice_.name} {_until(ends_at)} now."
    event_record(kind="slice.end_changed", message=text, at=now, actor=actor, slice_id=slice_.pk, data=data)


def _refuse_past(ends_at: datetime | None, now: datetime) -> None:
    if ends_at is not None and ends_at <= now:
        raise InvalidInput({"ends_at": ["It must be in the future. To end it now, archive it."]})


def _until(ends_at: datetime | None) -> str:
    return f"takes requests until {utc(ends_at)}" if ends_at is not None else "has no end"


@transaction.atomic
def slice_set_home(*, slice_: Slice, home: Cluster | None, actor: User, now: datetime) -> None:
    """Raises InvalidInput for a cluster that it may not use."""
    slice_lock(slice_)
    slice_.refresh_from_db(fields=["home"])
    if home is not None and not slice_.clusters.filter(pk=home.pk).exists():
        raise InvalidInput({"home": [f"Workspace {slice_.name} may not use cluster {home.name}. Give it the cluster first."]})
    if slice_.home == home:
        return
    data = difference({"home": slice_.home and slice_.home.name}, {"home": home and home.name})
    slice_.home = home
    slice_.save(update_fields=["home"])
    event_record(
        kind="slice.home_changed",
        message=f"Workspace {slice_.name} is at home in cluster {home.name} now." if home else f"Workspace {slice_.name} has no home now.",
        at=now,
        actor=actor,
        slice_id=slice_.pk,
        data=data,
    )
    hint(TICK)


@transaction.atomic
def slice_set_clusters(*, slice_: Slice, clusters: Iterable[Cluster], actor: User, now: datetime) -> None:
    """Raises Conflict for a removed cluster that it still uses."""
    slice_lock(slice_)
    wanted, had = set(clusters), set(slice_.clusters.all())
    if wanted == had:
        return
    for cluster in had - wanted:
        _refuse_if_used(slice_, cluster)
    slice_.clusters.set(wanted)
    slice_.refresh_from_db(fields=["home"])
    if slice_.home not in wanted:
        slice_set_home(slice_=slice_, home=None, actor=actor, now=now)
    old, new = (sorted(cluster.name for cluster in clusters) for clusters in (had, wanted))
    event_record(
        kind="slice.clusters_changed",
        message=f"Workspace {slice_.name} may use these clusters now: {', '.join(new) or 'none'}.",
        at=now,
        actor=actor,
        slice_id=slice_.pk,
        data=difference({"clusters": old}, {"clusters": new}),
    )
    hint(TICK)


@transaction.atomic
def member_set(*, slice_: Slice, user: User, role: Role, actor: User | None, now: datetime) -> Membership:
    """Add a member or change his role, whatever his groups say. Raises Conflict when no owner would be left, or it is closed."""
    slice_lock_open(slice_)
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
        data={"user": user.name, **difference(values_of(had, terms) if had is not None else {}, terms)},
    )
    # The agent adapts his kubeconfigs to the new role.
    desired_set_changed(Kubeconfig.objects.filter(slice=slice_, user=user, state__in=LIVE_STATES).values_list("cluster", flat=True))
    return membership


@transaction.atomic
def member_remove(*, slice_: Slice, user: User, actor: User, now: datetime) -> None:
    slice_lock(slice_)
    if Membership.objects.filter(slice=slice_, user=user, is_by_group=True).exists():
        raise Conflict(f"{user.name} is a member by a group. Remove the group from the workspace, or the person from the group.")
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


def _refuse_if_used(slice_: Slice, cluster: Cluster) -> None:
    if slice_.namespaces.filter(cluster=cluster).exists():
        raise Conflict(f"Workspace {slice_.name} has namespaces in cluster {cluster.name}. Unbind them first.")
    if Reservation.objects.filter(slice=slice_, cluster=cluster, state=ReservationState.HELD).exists():
        raise Conflict(f"Workspace {slice_.name} holds nodes in cluster {cluster.name}. Wait until its GPR has ended.")


def slice_lock(slice_: Slice) -> Slice:
    """Serializes changes of owners, and of namespaces with starts."""
    return Slice.objects.select_for_update(no_key=True).get(pk=slice_.pk)


def slice_lock_open(slice_: Slice) -> None:
    """Raises Conflict."""
    refuse_closed(slice_lock(slice_))


def _keep_an_owner(slice_: Slice) -> None:
    if not Membership.objects.filter(slice=slice_, role=Role.OWNER).exists():
        raise Conflict(f"Workspace {slice_.name} needs an owner. Make another member its owner first.")
