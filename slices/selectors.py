from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce

from accounts.models import User
from accounts.policy import ObjectKind, Relation, Verb, least_role, may, may_all, visible_rows
from core.errors import Conflict, NotAllowed, NotFound
from core.rest.references import id_of, one_by_id, one_by_reference
from core.written_sql import IdParam, TextParam, WrittenQuery
from inventory.models import Cluster
from protocol.cluster_names import ACCOUNTS, account_of
from slices.models import Budget, Kubeconfig, Life, Membership, Policy, Project, ProjectAdmin, Quota, Role, Slice

# By project; the project's own quota comes before those of its workspaces. Needs the annotations of quotas_visible_to.
QUOTA_ORDER = ("tenant_name", "workspace_name", "shape", "id")
RUN_BY = "Only an administrator of its project or of the platform may do this; the latter with a token of the scope admin."
# Each role includes the smaller ones.
RELATIONS_OF: dict[str, frozenset[Relation]] = {
    Role.VIEWER: frozenset({Relation.VIEWER}),
    Role.EDITOR: frozenset({Relation.VIEWER, Relation.EDITOR}),
    Role.OWNER: frozenset({Relation.VIEWER, Relation.EDITOR, Relation.OWNER}),
}


def relations_to(actor: User, obj: Any) -> frozenset[Relation]:
    """Returns the actor's role in the workspace of `obj`, and whether he administers its project. Runs one query."""
    if isinstance(obj, Project):
        is_run = not actor.bound_to and ProjectAdmin.objects.filter(project=obj, user=actor).exists()
        return frozenset({Relation.PROJECT_ADMIN} if is_run else ())
    slice_id = obj.pk if isinstance(obj, Slice) else getattr(obj, "slice_id", None)
    if slice_id is None:
        return frozenset()
    if actor.bound_to and str(slice_id) not in actor.bound_to:
        return frozenset()
    ((role, is_run),) = _ROLES_IN([slice_id], actor=actor.pk) or [("", False)]
    return RELATIONS_OF.get(role or "", frozenset()) | ({Relation.PROJECT_ADMIN} if is_run else frozenset())


def slices_visible_to(actor: User) -> QuerySet[Slice]:
    return visible_rows(Slice.objects.all(), actor, _own(actor))


def slices_visible_to_members(actor: User) -> QuerySet[Slice]:
    """Returns workspaces in which the actor has a role, also for an administrator of the platform."""
    return Slice.objects.filter(_own(actor))


def projects_visible_to(actor: User) -> QuerySet[Project]:
    own = Q(pk__in=slices_visible_to(actor).values("project"))
    if not actor.bound_to:
        own |= Q(pk__in=ProjectAdmin.objects.filter(user=actor).values("project"))
    return visible_rows(Project.objects.all(), actor, own)


def own_memberships(actor: User) -> list[Membership]:
    """Returns those in open workspaces to which the actor's credential is bound, by name of workspace."""
    return [row for row in _MEMBERSHIPS(actor=actor.pk) if not actor.bound_to or str(row.slice_id) in actor.bound_to]


def own_slice_ids(actor: User) -> QuerySet[Any]:
    return slices_visible_to_members(actor).values("pk")


def _own(actor: User) -> Q:
    own = own_of(actor.pk)
    return own & Q(pk__in=actor.bound_to) if actor.bound_to else own


def own_of(user_id: Any) -> Q:
    """Returns the workspaces in which this person has a role."""
    return Q(Exists(Membership.objects.filter(slice=OuterRef("pk"), user=user_id))) | Q(Exists(_run_by(user_id)))


def _run_by(user_id: Any) -> QuerySet[ProjectAdmin]:
    return ProjectAdmin.objects.filter(project=OuterRef("project"), user=user_id)


_ROLE_OF_ACTOR: Final = Membership.objects.filter(slice=OuterRef("pk"), user=IdParam("actor")).order_by().values("role")
_ROLES_IN: Final = WrittenQuery(
    Slice.objects.order_by().annotate(role=Subquery(_ROLE_OF_ACTOR), is_run=Exists(_run_by(IdParam("actor")))).values_list("role", "is_run")
)
_ALL: Final = Slice.objects.order_by()
_OWN: Final = _ALL.filter(own_of(IdParam("actor")))
_BY_ID, _OWN_BY_ID = WrittenQuery(_ALL), WrittenQuery(_OWN)
_BY_NAME, _OWN_BY_NAME = (WrittenQuery(rows.filter(name=TextParam("name"))) for rows in (_ALL, _OWN))

_MEMBERSHIPS: Final = WrittenQuery(
    Membership.objects.filter(user=IdParam("actor"), slice__life=Life.OPEN)
    .select_related("slice__project")
    .only("role", "slice__name", "slice__project__name")
    .order_by("slice__name")
)


def slice_for(actor: User, reference: str | UUID, *, verb: Verb = Verb.SEE) -> Slice:
    """Raises NotFound when the actor may not see it, NotAllowed when his role is not enough, Conflict for changes of a closed one."""
    slice_ = _slice_seen(actor, reference)
    if slice_ is None:
        raise NotFound("slice")
    if verb != Verb.SEE and not may(actor, verb, slice_):
        role = least_role(verb, ObjectKind.WORKSPACE)
        raise NotAllowed(f"In workspace {slice_.name} this needs the role {role}. Ask one of its owners.")
    if verb != Verb.SEE:
        refuse_closed(slice_)
    return slice_


def slice_run_by(actor: User, reference: str | UUID, *, verb: Verb = Verb.DECIDE) -> Slice:
    """Raises NotFound when the actor may not see it, NotAllowed for who does not run its project."""
    slice_ = slice_for(actor, reference)
    refuse_others(actor, slice_, verb)
    return slice_


def project_run_by(actor: User, reference: str | UUID) -> Project:
    """Raises NotFound, or NotAllowed for who does not run it."""
    project = one_by_reference(projects_visible_to(actor), reference, what="project")
    refuse_others(actor, project, Verb.INSPECT)
    return project


def refuse_others(actor: User, owner: Project | Slice, verb: Verb) -> None:
    """Raises NotAllowed."""
    if not may(actor, verb, owner):
        raise NotAllowed(RUN_BY)


def _slice_seen(actor: User, reference: str | UUID) -> Slice | None:
    by_id, by_name = (_BY_ID, _BY_NAME) if may_all(actor, Verb.SEE, ObjectKind.WORKSPACE) else (_OWN_BY_ID, _OWN_BY_NAME)
    if id_ := id_of(reference):
        found = by_id([id_], actor=actor.pk)
    else:
        found = by_name(name=str(reference), actor=actor.pk) if "\x00" not in str(reference) else []
    return next((slice_ for slice_ in found if not actor.bound_to or str(slice_.pk) in actor.bound_to), None)


def refuse_closed(owner: Project | Slice) -> None:
    """Raises Conflict."""
    if not owner.is_open:
        what = "Workspace" if isinstance(owner, Slice) else "Project"
        raise Conflict(f"{what} {owner.name} is {owner.get_life_display().lower()}. Ask an administrator.")


def kubeconfig_for(actor: User, slice_: Slice, kubeconfig_id: str | UUID, *, write: bool = False) -> Kubeconfig:
    """Every member may read. `write` (to revoke) is for its user, owners and administrators; raises NotAllowed."""
    row = one_by_id(slice_.kubeconfigs.select_related("slice", "cluster", "user"), kubeconfig_id, what="kubeconfig")
    if write and not may(actor, Verb.CHANGE, row):
        raise NotAllowed("Only the member who asked for a kubeconfig and the owners of the workspace may revoke it.")
    return row


def kubeconfig_behind(cluster: Cluster, username: str) -> Kubeconfig | None:
    """Returns the kubeconfig of this Kubernetes user name, of whatever workspace."""
    *_, account = username.rpartition(":")
    id_ = id_of(account.removeprefix(account_of("")))
    row = Kubeconfig.objects.select_related("user").filter(pk=id_, cluster=cluster).first() if id_ else None
    if row is None:
        return None
    # Older installations kept accounts in the workspace's namespace. The policy egs-workspace refuses tokens for such names there.
    homes = (ACCOUNTS, row.namespace)
    return row if username in {f"system:serviceaccount:{home}:{account_of(str(row.pk))}" for home in homes} else None


def first_owner(slice_: Slice) -> User | None:
    """Returns the active owner who joined first."""
    rows = Membership.objects.filter(slice=slice_, role=Role.OWNER, user__is_active=True).select_related("user")
    membership = rows.order_by("pk").first()
    return membership.user if membership else None


def is_invited(user: User) -> Q:
    """Finds the invitations for this person."""
    return Q(user=user) | Q(name__in=user.identities.exclude(email="").values("email"))


def quotas_visible_to(actor: User) -> QuerySet[Quota]:
    """Members see the quotas of their slices and projects."""
    rows = Quota.objects.select_related("project", "slice__project").annotate(
        tenant_name=Coalesce("project__name", "slice__project__name"), workspace_name=Coalesce("slice__name", Value(""))
    )
    slices = slices_visible_to(actor)
    return visible_rows(rows, actor, Q(slice__in=slices) | Q(project__in=slices.values("project")))


def quota_for(actor: User, quota_id: str | UUID) -> Quota:
    return one_by_id(quotas_visible_to(actor), quota_id, what="quota")


def quotas_of(slice_: Slice) -> QuerySet[Quota]:
    return Quota.objects.filter(Q(slice=slice_) | Q(project=slice_.project_id)).select_related("project", "slice__project")


def budgets_visible_to(actor: User) -> QuerySet[Budget]:
    """Members see the budgets of their slices and projects. The annotations are those of quotas_visible_to."""
    rows = Budget.objects.select_related("project", "slice__project").annotate(
        tenant_name=Coalesce("project__name", "slice__project__name"), workspace_name=Coalesce("slice__name", Value(""))
    )
    slices = slices_visible_to(actor)
    return visible_rows(rows, actor, Q(slice__in=slices) | Q(project__in=slices.values("project")))


def budget_for(actor: User, budget_id: str | UUID) -> Budget:
    return one_by_id(budgets_visible_to(actor), budget_id, what="budget")


def budget_decided_by(actor: User, budget_id: str | UUID) -> Budget:
    """Raises NotFound or NotAllowed."""
    budget = budget_for(actor, budget_id)
    refuse_undecided(actor, budget)
    return budget


def refuse_undecided(actor: User, limits: Budget | Policy) -> None:
    """A workspace's limits are for who runs its project, all others for administrators of the platform. Raises NotAllowed."""
    if limits.slice is not None:
        refuse_others(actor, limits.slice, Verb.DECIDE)
    elif not may(actor, Verb.CHANGE, limits):
        raise NotAllowed("Only an administrator of the platform may do this, with a token of the scope admin.")


def budgets_of(slice_: Slice) -> QuerySet[Budget]:
    return Budget.objects.filter(Q(slice=slice_) | Q(project=slice_.project_id)).select_related("project", "slice__project")
