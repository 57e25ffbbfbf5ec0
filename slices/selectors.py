"""What a user may see of tenants. Every read of a slice comes through here; for others it does not exist."""

from __future__ import annotations

from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Coalesce

from accounts.models import User
from core.errors import NotAllowed, NotFound
from core.rest.references import by_reference, id_of, one_by_id
from inventory.models import Cluster
from protocol.cluster_names import ACCOUNTS, account_of
from slices.models import Kubeconfig, Membership, Project, Quota, Role, Slice

# By project, its own before those of its workspaces; see quotas_visible_to.
QUOTA_ORDER = ("tenant_name", "workspace_name", "shape", "id")
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


def kubeconfig_for(actor: User, slice_: Slice, kubeconfig_id: str | UUID, *, write: bool = False) -> Kubeconfig:
    """Every member sees who has one. `write`: to end it, for who asked for it, the slice's owners and administrators; NotAllowed."""
    row = one_by_id(slice_.kubeconfigs.select_related("slice", "cluster", "user"), kubeconfig_id, what="kubeconfig")
    if write and row.user_id != actor.pk and not has_role(actor, slice_, Role.OWNER):
        raise NotAllowed("Only who asked for a kubeconfig and the owners of the workspace may revoke it.")
    return row


def kubeconfig_behind(slice_: Slice, cluster: Cluster, username: str) -> Kubeconfig | None:
    """Whose account this is by which the cluster knows somebody; None for all who came in by no kubeconfig of the slice."""
    *_, account = username.rpartition(":")
    id_ = id_of(account.removeprefix(account_of("")))
    row = slice_.kubeconfigs.select_related("user").filter(pk=id_, cluster=cluster).first() if id_ else None
    if row is None:
        return None
    # Where an older installation kept them. Of accounts called so in namespaces of workspaces nobody gets a token (policy egs-workspace).
    homes = (ACCOUNTS, row.namespace)
    return row if username in {f"system:serviceaccount:{home}:{account_of(str(row.pk))}" for home in homes} else None


def first_owner(slice_: Slice) -> User | None:
    """Of its owners who may sign in, who has been a member for longest."""
    rows = Membership.objects.filter(slice=slice_, role=Role.OWNER, user__is_active=True).select_related("user")
    membership = rows.order_by("pk").first()
    return membership.user if membership else None


def quotas_visible_to(actor: User) -> QuerySet[Quota]:
    """A member sees those of his slices and of their projects, not of his neighbors in a project."""
    rows = Quota.objects.select_related("project", "slice__project").annotate(
        tenant_name=Coalesce("project__name", "slice__project__name"), workspace_name=Coalesce("slice__name", Value(""))
    )
    if actor.is_admin:
        return rows
    slices = slices_visible_to(actor)
    return rows.filter(Q(slice__in=slices) | Q(project__in=slices.values("project")))


def quota_for(actor: User, quota_id: str | UUID) -> Quota:
    return one_by_id(quotas_visible_to(actor), quota_id, what="quota")


def quotas_of(slice_: Slice) -> QuerySet[Quota]:
    """All that hold for its boxes: its own and its project's."""
    return Quota.objects.filter(Q(slice=slice_) | Q(project=slice_.project_id)).select_related("project", "slice__project")
