"""What a user may see of tenants. Every read of a slice comes through here; for others it does not exist."""

from __future__ import annotations

from uuid import UUID

from django.db.models import Exists, OuterRef, QuerySet

from accounts.models import User
from egs.errors import NotAllowed, NotFound
from egs.rest.references import by_reference
from slices.models import Membership, Project, Role, Slice

# What a role includes beside itself.
ROLES_OF = {Role.VIEWER: list(Role), Role.EDITOR: [Role.EDITOR, Role.OWNER], Role.OWNER: [Role.OWNER]}


def slices_visible_to(actor: User) -> QuerySet[Slice]:
    if actor.is_admin:
        return Slice.objects.all()
    return Slice.objects.filter(Exists(Membership.objects.filter(slice=OuterRef("pk"), user=actor)))


def projects_visible_to(actor: User) -> QuerySet[Project]:
    if actor.is_admin:
        return Project.objects.all()
    return Project.objects.filter(slices__in=slices_visible_to(actor)).distinct()


def slice_for(actor: User, reference: str | UUID, *, role: Role = Role.VIEWER) -> Slice:
    """By id or name. NotFound when the actor may not know of it, NotAllowed when his role is too small."""
    slice_ = by_reference(slices_visible_to(actor), reference)
    if slice_ is None:
        raise NotFound("slice")
    # Whoever sees it is a viewer at least.
    if role != Role.VIEWER and not has_role(actor, slice_, role):
        raise NotAllowed(f"In workspace {slice_.name} this needs the role {role}. Ask one of its owners.")
    return slice_


def has_role(actor: User, slice_: Slice, role: Role) -> bool:
    if actor.is_admin:
        return True
    return Membership.objects.filter(slice=slice_, user=actor, role__in=ROLES_OF[role]).exists()
