"""Owners add users of their own workspaces at once, and invite all others by name or mail address.

The answer must not tell whether the user exists. An invitation by a name holds for whoever had it then, and for nobody who takes it later;
one by an address holds for whoever an identity provider says the address is.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet

from accounts.models import User
from accounts.policy import ObjectKind, Verb, may_all, visible_rows
from core.errors import Conflict, InvalidInput, NotFound
from core.names import mail_fault, name_fault
from core.rest.references import by_reference, id_of, one_by_id
from journal.hints import hint, user_topic
from journal.services import event_record
from slices.models import Invitation, Membership, Role, Slice
from slices.selectors import is_invited, slices_visible_to
from slices.services import member_set

OPEN_MAX: Final = 100  # per workspace


def users_known_to(actor: User) -> QuerySet[User]:
    fellows = Membership.objects.filter(slice__in=slices_visible_to(actor))
    return visible_rows(User.objects.filter(is_active=True, is_service=False), actor, Q(pk=actor.pk) | Q(pk__in=fellows.values("user")))


def invitations_of(user: User) -> QuerySet[Invitation]:
    """A bound token sees none."""
    rows = Invitation.objects.none() if user.bound_to else Invitation.objects.filter(is_invited(user))
    return rows.select_related("slice__project", "invited_by")


def invitation_for(user: User, invitation_id: str | UUID) -> Invitation:
    return one_by_id(invitations_of(user), invitation_id, what="invitation")


def invitee_fault(reference: str) -> str:
    """Return the fault of a name or a mail address as a sentence, or ""."""
    if not _is_address(reference):
        return name_fault(reference) if id_of(reference) is None else ""
    return mail_fault(reference)


@transaction.atomic
def member_add(*, slice_: Slice, reference: str, role: Role, actor: User, now: datetime) -> Membership | Invitation:
    """Raises NotFound for a name unknown to an administrator, who mistyped it; see also member_add_or_invite."""
    if may_all(actor, Verb.SEE, ObjectKind.USER) and not _is_address(reference) and by_reference(users_known_to(actor), reference) is None:
        raise NotFound("user")
    return member_add_or_invite(slice_=slice_, reference=reference, role=role, actor=actor, now=now)


@transaction.atomic
def member_add_or_invite(*, slice_: Slice, reference: str, role: Role, actor: User, now: datetime) -> Membership | Invitation:
    """Add a user whom the actor knows, or invite. Raises Conflict beyond OPEN_MAX, InvalidInput; see also member_set."""
    if fault := invitee_fault(reference):
        raise InvalidInput({"user": [fault]})
    reference = reference.lower() if _is_address(reference) else reference
    user = by_reference(users_known_to(actor), reference)
    if user is not None:
        return member_set(slice_=slice_, user=user, role=role, actor=actor, now=now)
    if slice_.invitations.exclude(name=reference).count() >= OPEN_MAX:
        raise Conflict(f"Workspace {slice_.name} has {OPEN_MAX} invitations open. Withdraw some of them first.")
    invited = by_reference(User.objects.filter(is_service=False), reference)
    had = slice_.invitations.filter(name=reference).first()
    terms = {"role": role, "invited_by": actor, "user": invited, "created_at": now}
    made, _ = Invitation.objects.update_or_create(slice=slice_, name=reference, defaults=terms)
    # Not again for the same role, since that would tell whether somebody has got the name meanwhile.
    if had is None or had.role != role:
        text = f"{_masked(reference)} was invited to workspace {slice_.name} as {Role(role).label.lower()}."
        _record_event(made, "member_invited", text, actor, now)
    if invited is not None:
        hint(user_topic(invited.pk))
    return made


@transaction.atomic
def invitation_accept(*, invitation: Invitation, actor: User, now: datetime) -> None:
    """Raises Conflict when it was withdrawn meanwhile."""
    found = Invitation.objects.select_for_update(of=("self",)).select_related("slice").filter(pk=invitation.pk).first()
    if found is None:
        raise Conflict("This invitation was withdrawn.")
    found.delete()
    member_set(slice_=found.slice, user=actor, role=Role(found.role), actor=actor, now=now)


@transaction.atomic
def invitation_decline(*, invitation: Invitation) -> None:
    """Records no Event, which would tell whether the user exists."""
    Invitation.objects.filter(pk=invitation.pk).delete()


@transaction.atomic
def invitation_withdraw(*, invitation: Invitation, actor: User, now: datetime) -> None:
    Invitation.objects.filter(pk=invitation.pk).delete()
    text = f"The invitation of {_masked(invitation.name)} to workspace {invitation.slice.name} was withdrawn."
    _record_event(invitation, "invitation_withdrawn", text, actor, now)


def _masked(reference: str) -> str:
    """A viewer reads the workspace's Events, and an address is for those who invite."""
    return f"{reference[0]}…{reference[reference.rindex('@') :]}" if _is_address(reference) else reference


def _is_address(reference: str) -> bool:
    return "@" in reference


def _record_event(invitation: Invitation, what: str, text: str, actor: User, now: datetime) -> None:
    data = {"user": _masked(invitation.name), "invitation": str(invitation.pk)}
    event_record(kind=f"slice.{what}", message=text, at=now, actor=actor, slice_id=invitation.slice_id, data=data)
