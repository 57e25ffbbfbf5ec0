from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from django.db import transaction
from django.db.models import Q, QuerySet

from accounts.models import PlatformRole, User
from accounts.policy import is_platform_admin
from core.errors import InvalidInput, NotAllowed, NotFound
from core.rest.references import is_object
from core.words import utc
from journal.hints import hint, user_topic
from journal.services import event_record
from slices.models import Deputy, ProjectAdmin

LONGEST: Final = timedelta(days=366)


@transaction.atomic
def deputy_name(*, approver: User, reference: str, starts_at: datetime, ends_at: datetime, now: datetime) -> Deputy:
    """Takes as `reference` the id or name of the deputy. Raises NotAllowed, InvalidInput."""
    if not may_name_deputies(approver):
        raise NotAllowed("Only those who approve requests name a deputy: administrators of the platform or of a project.")
    faults = {}
    if ends_at <= max(starts_at, now):
        faults["ends_at"] = ["Must be later than the start, and than now."]
    elif ends_at - starts_at > LONGEST:
        faults["ends_at"] = [f"Must be within {LONGEST.days} days of the start."]
    user = people_to_name(approver).filter(is_object(reference)).first()
    if user is None:
        faults["user"] = ["You may name nobody of this name. Auditors change nothing, so they decide on nothing."]
    if faults or user is None:
        raise InvalidInput(faults)
    made = Deputy.objects.create(approver=approver, user=user, starts_at=starts_at, ends_at=ends_at, created_at=now)
    _record(made, "named", f"{user.name} decides for {approver.name} from {utc(starts_at)} to {utc(ends_at)}.", approver, now)
    return made


@transaction.atomic
def deputy_withdraw(*, deputy: Deputy, actor: User, now: datetime) -> None:
    """Raises NotFound when it is gone."""
    if not Deputy.objects.filter(pk=deputy.pk).delete()[0]:
        raise NotFound("deputy")
    _record(deputy, "withdrawn", f"{deputy.user.name} does not decide for {deputy.approver.name} any more.", actor, now)


def may_name_deputies(actor: User) -> bool:
    return is_platform_admin(actor) or ProjectAdmin.objects.filter(user=actor).exists()


def people_to_name(approver: User) -> QuerySet[User]:
    """Returns everybody for an administrator of the platform; for one of a project those who work there."""
    rows = User.objects.filter(is_active=True, is_service=False).exclude(pk=approver.pk).exclude(role=PlatformRole.AUDITOR).order_by("name")
    if is_platform_admin(approver):
        return rows
    run = ProjectAdmin.objects.filter(user=approver).values("project")
    return rows.filter(Q(memberships__slice__project__in=run) | Q(administered_projects__project__in=run)).distinct()


def _record(deputy: Deputy, what: str, message: str, actor: User, now: datetime) -> None:
    data = {"user": deputy.user.name, "approver": deputy.approver.name}
    event_record(kind=f"deputy.{what}", message=message, at=now, actor=actor, data=data)
    hint(user_topic(deputy.user_id))
