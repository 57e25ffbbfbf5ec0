"""Owners add users of their own workspaces at once, and invite all others by name.

The answer must not tell whether the user exists.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet

from accounts.models import User
from accounts.policy import Kind, Verb, may_all, visible_rows
from core.errors import Conflict, NotFound
from core.rest.references import by_reference, one_by_id
from journal.hints import hint, user_topic
from journal.services import event_record
from slices.models import Invitation, Membership, Role, Slice
from slices.selectors import slices_visible_to
from slices.services import member_set

OPEN_MAX: Final = 100  # per workspace


def users_known_to(actor: User) -> QuerySet[User]:
    fellows = Membership.objects.filter(slice__in=slices_visible_to(actor))
    return visible_rows(User.objects.filter(is_active=True), actor, Q(pk=actor.pk) | Q(pk__in=fellows.values("user")))


def invitations_of(user: User) -> QuerySet[Invitation]:
    """None with a bound token."""
    names = [] if user.bound_to else [user.name, str(user.pk)]
    rows = Invitation.objects.filter(name__in=names)
    return rows.select_related("slice__project", "invited_by")


def invitation_for(user: User, invitation_id: str | UUID) -> Invitation:
    return one_by_id(invitations_of(user), invitation_id, what="invitation")


@transaction.atomic
def member_add(*, slice_: Slice, reference: str, role: Role, actor: User, now: datetime) -> Membership | Invitation:
    """Raises NotFound for a name unknown to an administrator, who mistyped it; see also member_add_or_invite."""
    if may_all(actor, Verb.SEE, Kind.USER) and by_reference(users_known_to(actor), reference) is None:
        raise NotFound("user")
    return member_add_or_invite(slice_=slice_, reference=reference, role=role, actor=actor, now=now)


@transaction.atomic
def member_add_or_invite(*, slice_: Slice, reference: str, role: Role, actor: User, now: datetime) -> Membership | Invitation:
    """Add a user whom the actor knows, or invite by name. Raises Conflict beyond OPEN_MAX; see also member_set."""
    user = by_reference(users_known_to(actor), reference)
    if user is not None:
        return member_set(slice_=slice_, user=user, role=role, actor=actor, now=now)
    if slice_.invitations.exclude(name=reference).count() >= OPEN_MAX:
        raise Conflict(f"Workspace {slice_.name} has {OPEN_MAX} invitations open. Withdraw some of them first.")
    if (had := slice_.invitations.filter(name=reference, role=role).first()) is not None:
        return had
    made, _ = Invitation.objects.update_or_create(
        slice=slice_, name=reference, defaults={"role": role, "invited_by": actor, "created_at": now}
    )
    _record_event(made, "member_invited", f"{reference} was invited to workspace {slice_.name} as {Role(role).label.lower()}.", actor, now)
    if (invited := by_reference(User.objects.all(), reference)) is not None:
        hint(user_topic(invited.pk))
    return made


@transaction.atomic
def invitation_accept(*, invitation: Invitation, actor: User, now: datetime) -> None:
    """Raises Conflict when it was withdrawn meanwhile."""
    if not Invitation.objects.filter(pk=invitation.pk).delete()[0]:
        raise Conflict("This invitation was withdrawn.")
    member_set(slice_=invitation.slice, user=actor, role=Role(invitation.role), actor=actor, now=now)


@transaction.atomic
def invitation_decline(*, invitation: Invitation) -> None:
    """Records no Event, which would tell whether the user exists."""
    Invitation.objects.filter(pk=invitation.pk).delete()


@transaction.atomic
def invitation_withdraw(*, invitation: Invitation, actor: User, now: datetime) -> None:
    Invitation.objects.filter(pk=invitation.pk).delete()
    text = f"The invitation of {invitation.name} to workspace {invitation.slice.name} was withdrawn."
    _record_event(invitation, "invitation_withdrawn", text, actor, now)


def _record_event(invitation: Invitation, what: str, text: str, actor: User, now: datetime) -> None:
    data = {"user": invitation.name}
    event_record(kind=f"slice.{what}", message=text, at=now, actor=actor, slice_id=invitation.slice_id, data=data)
