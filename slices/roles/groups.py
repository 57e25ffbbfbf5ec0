"""Keeps the groups of identity providers that give roles in workspaces."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Coalesce

from accounts.models import Identity, User
from accounts.people.services import groups_apply, groups_of, identity_set_groups, people_in
from accounts.policy import is_platform_admin
from core.errors import NameTaken, NotAllowed
from core.locks import transaction_lock
from core.words import plural
from journal.guard import set_aside_on_error
from journal.notices.periodic import Throttle
from journal.services import event_record
from slices.models import Membership, Role, Slice, SliceGroup
from slices.services import member_put, member_take

_THROTTLE: Final = Throttle(timedelta(seconds=30))
_AT_ONCE: Final = 100
ROLES_BIGGEST_FIRST = (Role.OWNER, Role.EDITOR, Role.VIEWER)


@transaction.atomic
def group_add(*, slice_: Slice, provider: str, group: str, role: Role, actor: User, now: datetime) -> SliceGroup:
    """People who are in the group already become members at once, so that an owner gets to know them.

    Raises NameTaken, and NotAllowed for a group that the actor is not in.
    """
    transaction_lock("roles")
    if not is_platform_admin(actor) and (provider, group) not in groups_of(actor):
        raise NotAllowed(f"You are not in the group {group}. Only its own people and administrators of the platform give it a role.")
    if slice_.groups.filter(provider=provider, group=group).exists():
        raise NameTaken(f"Group {group} has a role in workspace {slice_.name} already. Remove it first.")
    made = SliceGroup.objects.create(slice=slice_, provider=provider, group=group, role=role, created_at=now)
    text = f"Group {group} has the role {Role(role).label.lower()} in workspace {slice_.name} now."
    event_record(kind="slice.group_added", message=text, at=now, actor=actor, slice_id=slice_.pk)
    _apply_to_people(made, actor, now)
    return made


@transaction.atomic
def group_remove(*, group: SliceGroup, actor: User, now: datetime) -> None:
    """People who are members by this group alone lose their role at once."""
    transaction_lock("roles")
    SliceGroup.objects.filter(pk=group.pk).delete()
    text = f"Group {group.group} has no role in workspace {group.slice.name} any more."
    event_record(kind="slice.group_removed", message=text, at=now, actor=actor, slice_id=group.slice_id)
    _apply_to_people(group, actor, now)


def groups_watch(*, now: datetime) -> None:
    """Does nothing within half a minute of the last time."""
    if settings.EGS_GROUPS_MAX_AGE_H and _THROTTLE.is_due(now):
        for identity in _outdated(now).select_related("user")[:_AT_ONCE]:
            with set_aside_on_error("groups_rest", f"Roles of {identity.user.name} by groups could not rest", now=now):
                _let_rest(identity, now)


@transaction.atomic
def _let_rest(identity: Identity, now: datetime) -> None:
    transaction_lock("roles")
    if not _outdated(now).filter(pk=identity.pk).exists():
        return  # the person has just signed in
    user = identity.user
    identity_set_groups(identity=identity, groups=[], actor=None, now=now)
    hours = plural(settings.EGS_GROUPS_MAX_AGE_H, "hour")
    text = f"{user.name} has not signed in through {identity.provider} for {hours}, so roles that its groups gave rest. "
    text += f"Signing in through {identity.provider} brings them back."
    event_record(kind="identity.groups_rest", message=text, at=now, data={"user": user.name})


def _outdated(now: datetime) -> QuerySet[Identity]:
    told_at = Coalesce("groups_at", "last_login_at")
    limit = now - timedelta(hours=settings.EGS_GROUPS_MAX_AGE_H)
    return Identity.objects.alias(told_at=told_at).filter(told_at__lte=limit).exclude(groups=[])


def memberships_apply(user: User, actor: User | None, now: datetime) -> None:
    """Gives and takes the roles that the person's groups decide on. Roles that people gave stay. Needs a transaction."""
    groups = groups_of(user)
    wanted: dict[Slice, Role] = {}
    for row in SliceGroup.objects.filter(group__in=[group for _, group in groups]).select_related("slice"):
        if (row.provider, row.group) in groups:
            wanted[row.slice] = min(wanted.get(row.slice, Role.VIEWER), Role(row.role), key=ROLES_BIGGEST_FIRST.index)
    for had in Membership.objects.filter(user=user, is_by_group=True).exclude(slice__in=wanted).select_related("slice"):
        member_take(slice_=had.slice, user=user, actor=actor, now=now)
    by_people = set(Membership.objects.filter(user=user, is_by_group=False).values_list("slice", flat=True))
    for slice_, role in wanted.items():
        if slice_.pk not in by_people:
            member_put(slice_=slice_, user=user, role=role, is_by_group=True, actor=actor, now=now)


def _apply_to_people(group: SliceGroup, actor: User, now: datetime) -> None:
    for user in people_in(group.provider, group.group):
        groups_apply(user=user, actor=actor, now=now)
