from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet

from accounts.models import PlatformRole, User
from accounts.policy import ObjectKind, Relation, Verb, may_all, visible_rows
from core.clock import db_now
from core.rest.references import one_by_id
from slices.models import Deputy, Project, ProjectAdmin


def deputies_visible_to(actor: User) -> QuerySet[Deputy]:
    """A person sees whom he named, and who named him."""
    own = None if actor.bound_to else _involves(actor)
    return visible_rows(Deputy.objects.select_related("approver", "user"), actor, own)


def deputies_involving(actor: User) -> QuerySet[Deputy]:
    """Returns deputies whom the actor named, and approvers who named the actor, also for an administrator."""
    return deputies_visible_to(actor).filter(_involves(actor))


def deputy_for(actor: User, deputy_id: str | UUID) -> Deputy:
    """Raises NotFound."""
    return one_by_id(deputies_visible_to(actor), deputy_id, what="deputy")


def deputies_of(actor: User, now: datetime) -> QuerySet[Deputy]:
    """Returns approvers for whom the actor decides now. A bound token gives no deputy's rights."""
    if actor.bound_to:
        return Deputy.objects.none()
    return _in_force(now).filter(user=actor).select_related("approver").order_by("approver__name", "pk")


def deputized_projects(actor: User, now: datetime) -> QuerySet[Project]:
    """Returns the projects in which the actor decides as a deputy."""
    own = deputies_of(actor, now).order_by()
    for_platform = Exists(own.filter(approver__role=PlatformRole.ADMIN))
    return Project.objects.filter(
        for_platform | Exists(ProjectAdmin.objects.filter(project=OuterRef("pk"), user__in=own.values("approver")))
    )


def deputy_relations(actor: User, obj: Any) -> frozenset[Relation]:
    """Runs one query."""
    slice_ = getattr(obj, "slice", None)
    if slice_ is None or not deputized_projects(actor, db_now()).filter(pk=slice_.project_id).exists():
        return frozenset()
    return frozenset({Relation.DEPUTY})


def is_approver(actor: User, *, now: datetime) -> bool:
    """Tell whether anything may ever wait for the actor's decision. Runs one query at most."""
    if may_all(actor, Verb.APPROVE, ObjectKind.GPR):
        return True
    runs = Exists(ProjectAdmin.objects.filter(user=actor))
    return User.objects.filter(runs | Exists(deputies_of(actor, now).order_by()), pk=actor.pk).exists()


def approvers_of(project_ids: Iterable[UUID], now: datetime) -> dict[UUID, set[UUID]]:
    """Returns the people who decide on requests of each project: administrators, and their deputies. Runs three queries."""
    ids = set(project_ids)
    everywhere = set(User.objects.filter(role=PlatformRole.ADMIN, is_active=True).values_list("pk", flat=True))
    found = {project_id: set(everywhere) for project_id in ids}
    for project_id, user_id in ProjectAdmin.objects.filter(project__in=ids).values_list("project", "user"):
        found[project_id].add(user_id)
    for approver_id, user_id in _in_force(now).values_list("approver", "user"):
        for people in found.values():
            if approver_id in people:
                people.add(user_id)
    return found


def _involves(actor: User) -> Q:
    return Q(approver=actor) | Q(user=actor)


def _in_force(now: datetime) -> QuerySet[Deputy]:
    rows = Deputy.objects.filter(starts_at__lte=now, ends_at__gt=now, approver__is_active=True)
    return rows.exclude(user__role=PlatformRole.AUDITOR)  # an auditor changes nothing
