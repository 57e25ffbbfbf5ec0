"""The table of permissions says which relation to an object allows which verb. The API, pages, sockets and agents' endpoints ask it.

Must not live here: membership (slices), token scopes (accounts.permissions).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Set
from enum import StrEnum
from typing import Any, Final, TypeVar

from django.db.models import Model, Q, QuerySet

from accounts.models import PlatformRole, User


class Verb(StrEnum):
    SEE = "see"
    INSPECT = "inspect"  # see also what is for operators: hardware ids, reasons, exact figures, what a change would end
    REQUEST = "request"  # file requests for GPUs in a workspace
    MANAGE = "manage"  # change a workspace's members, namespaces and templates
    CONNECT = "connect"  # get a kubeconfig of a workspace
    CHANGE = "change"  # edit, cancel, extend, release, delete
    READ_SECRET = "read_secret"  # noqa: S105 - a verb
    APPROVE = "approve"  # approve or reject what breaks a policy
    DECIDE = "decide"  # do what is beyond a workspace's policy, e.g. evict
    ADMINISTER = "administer"


class ObjectKind(StrEnum):
    PLATFORM = "platform"  # all others are model names in lower case
    USER = "user"
    PROJECT = "project"
    WORKSPACE = "slice"
    WORKSPACE_REQUEST = "workspacerequest"
    QUOTA = "quota"
    BUDGET = "budget"
    USAGE = "usageday"
    PRICE = "shapeprice"
    POLICY = "policy"
    DEPUTY = "deputy"
    NAMESPACE = "namespace"
    KUBECONFIG = "kubeconfig"
    GPR = "gpr"
    JOB = "job"
    BOOKING_SERIES = "bookingseries"
    TEMPLATE = "gprtemplate"
    EVENT = "event"
    PROMISE = "promiseoutcome"
    CLUSTER = "cluster"
    NODE = "node"
    GPU = "gpu"
    READING = "latestreading"
    WORKLOAD = "workload"
    ALERT = "alert"
    ALERT_RULE = "alertrule"
    ALERT_SILENCE = "alertsilence"
    RESERVATION = "reservation"
    MAINTENANCE = "maintenancewindow"
    SUPPLY = "supply"
    SUPPLY_ORDER = "supplyorder"
    CHECK_POLICY = "checkpolicy"
    CASE = "remediationcase"
    REMEDIATION_POLICY = "remediationpolicy"
    PROMETHEUS = "prometheussource"


class Relation(StrEnum):
    """A role in a workspace includes the smaller ones. An administrator of a project owns all its workspaces."""

    ADMIN = "admin"  # of the platform
    AUDITOR = "auditor"  # of the platform
    PROJECT_ADMIN = "project_admin"
    OWNER = "owner"
    EDITOR = "editor"
    VIEWER = "viewer"
    CREATOR = "creator"  # the actor filed this very object
    DEPUTY = "deputy"  # an approver of this very object named the actor his deputy, for now


Rule = tuple[frozenset[Relation], ...]
R = Relation
ROLES: Final = (R.VIEWER, R.EDITOR, R.OWNER)  # smallest first


def _any_of(*ways: Relation | frozenset[Relation]) -> Rule:
    return tuple(way if isinstance(way, frozenset) else frozenset({way}) for way in ways)


_ADMIN: Final = _any_of(R.ADMIN)
_ADMINS: Final = _any_of(R.ADMIN, R.PROJECT_ADMIN)
_OVERSEERS: Final = _any_of(R.ADMIN, R.AUDITOR)
_RUNNERS: Final = _any_of(R.ADMIN, R.AUDITOR, R.PROJECT_ADMIN)
_MEMBERS: Final = _any_of(R.ADMIN, R.AUDITOR, R.PROJECT_ADMIN, R.VIEWER)
_EDITORS: Final = _any_of(R.ADMIN, R.PROJECT_ADMIN, R.EDITOR)
_OWNERS: Final = _any_of(R.ADMIN, R.PROJECT_ADMIN, R.OWNER)
_WRITERS: Final = _any_of(R.ADMIN, R.PROJECT_ADMIN, R.OWNER, frozenset({R.CREATOR, R.EDITOR}))

PLATFORM_RELATIONS: Final[Mapping[str, frozenset[Relation]]] = {
    PlatformRole.MEMBER: frozenset(),
    PlatformRole.AUDITOR: frozenset({R.AUDITOR}),
    PlatformRole.ADMIN: frozenset({R.ADMIN}),
}

# Everything not listed is forbidden. A rule allows actors who have all relations of one of its sets.
TABLE: Final[Mapping[tuple[Verb, ObjectKind], Rule]] = {
    (Verb.ADMINISTER, ObjectKind.PLATFORM): _ADMIN,
    (Verb.INSPECT, ObjectKind.PLATFORM): _OVERSEERS,
    (Verb.SEE, ObjectKind.USER): _OVERSEERS,
    (Verb.SEE, ObjectKind.PROJECT): _MEMBERS,
    (Verb.INSPECT, ObjectKind.PROJECT): _RUNNERS,
    (Verb.CHANGE, ObjectKind.PROJECT): _ADMINS,
    (Verb.SEE, ObjectKind.QUOTA): _MEMBERS,
    (Verb.SEE, ObjectKind.BUDGET): _MEMBERS,
    (Verb.CHANGE, ObjectKind.BUDGET): _ADMIN,  # a project's; DECIDE of the workspace for a workspace's, as for policies
    (Verb.SEE, ObjectKind.USAGE): _MEMBERS,
    (Verb.SEE, ObjectKind.PRICE): _MEMBERS,
    (Verb.SEE, ObjectKind.POLICY): _MEMBERS,
    (Verb.CHANGE, ObjectKind.POLICY): _ADMIN,
    (Verb.SEE, ObjectKind.DEPUTY): _any_of(R.ADMIN, R.AUDITOR, R.CREATOR),
    (Verb.CHANGE, ObjectKind.DEPUTY): _any_of(R.ADMIN, R.CREATOR),
    (Verb.SEE, ObjectKind.WORKSPACE): _MEMBERS,
    (Verb.CONNECT, ObjectKind.WORKSPACE): _any_of(R.VIEWER),
    (Verb.REQUEST, ObjectKind.WORKSPACE): _EDITORS,
    (Verb.MANAGE, ObjectKind.WORKSPACE): _OWNERS,
    (Verb.INSPECT, ObjectKind.WORKSPACE): _RUNNERS,
    (Verb.DECIDE, ObjectKind.WORKSPACE): _ADMINS,  # its policy, budgets, home and end, within what its project has
    (Verb.SEE, ObjectKind.WORKSPACE_REQUEST): _any_of(R.ADMIN, R.AUDITOR, R.CREATOR),
    (Verb.CHANGE, ObjectKind.WORKSPACE_REQUEST): _any_of(R.ADMIN, R.CREATOR),
    (Verb.DECIDE, ObjectKind.WORKSPACE_REQUEST): _ADMIN,
    (Verb.DECIDE, ObjectKind.NAMESPACE): _ADMIN,
    (Verb.CHANGE, ObjectKind.KUBECONFIG): _any_of(R.ADMIN, R.PROJECT_ADMIN, R.OWNER, R.CREATOR),
    (Verb.READ_SECRET, ObjectKind.KUBECONFIG): _any_of(R.CREATOR),
    (Verb.SEE, ObjectKind.GPR): _MEMBERS,
    (Verb.CHANGE, ObjectKind.GPR): _WRITERS,
    (Verb.APPROVE, ObjectKind.GPR): _any_of(R.ADMIN, R.PROJECT_ADMIN, R.DEPUTY),
    (Verb.DECIDE, ObjectKind.GPR): _ADMINS,
    (Verb.READ_SECRET, ObjectKind.GPR): _any_of(frozenset({R.CREATOR, R.EDITOR})),  # the token of its notebook
    (Verb.SEE, ObjectKind.JOB): _MEMBERS,
    (Verb.SEE, ObjectKind.BOOKING_SERIES): _MEMBERS,
    (Verb.CHANGE, ObjectKind.BOOKING_SERIES): _WRITERS,
    (Verb.SEE, ObjectKind.TEMPLATE): _MEMBERS,  # those of the platform: everybody
    (Verb.CHANGE, ObjectKind.TEMPLATE): _OWNERS,  # those of the platform, which belong to no workspace: its administrators
    (Verb.SEE, ObjectKind.EVENT): _MEMBERS,
    (Verb.INSPECT, ObjectKind.PROMISE): _OVERSEERS,
    (Verb.SEE, ObjectKind.CLUSTER): _MEMBERS,
    (Verb.INSPECT, ObjectKind.CLUSTER): _OVERSEERS,
    (Verb.SEE, ObjectKind.NODE): _MEMBERS,
    (Verb.INSPECT, ObjectKind.NODE): _OVERSEERS,
    (Verb.INSPECT, ObjectKind.GPU): _OVERSEERS,
    (Verb.SEE, ObjectKind.READING): _MEMBERS,
    (Verb.SEE, ObjectKind.WORKLOAD): _MEMBERS,
    (Verb.SEE, ObjectKind.ALERT): _MEMBERS,
    (Verb.CHANGE, ObjectKind.ALERT): _EDITORS,
    (Verb.SEE, ObjectKind.ALERT_RULE): _MEMBERS,
    (Verb.CHANGE, ObjectKind.ALERT_RULE): _WRITERS,
    (Verb.SEE, ObjectKind.ALERT_SILENCE): _MEMBERS,
    (Verb.CHANGE, ObjectKind.ALERT_SILENCE): _EDITORS,
    (Verb.SEE, ObjectKind.RESERVATION): _MEMBERS,
    (Verb.SEE, ObjectKind.MAINTENANCE): _MEMBERS,
    (Verb.SEE, ObjectKind.SUPPLY): _OVERSEERS,
    (Verb.SEE, ObjectKind.SUPPLY_ORDER): _OVERSEERS,
    (Verb.SEE, ObjectKind.CHECK_POLICY): _OVERSEERS,
    (Verb.SEE, ObjectKind.CASE): _OVERSEERS,
    (Verb.SEE, ObjectKind.REMEDIATION_POLICY): _OVERSEERS,
    (Verb.SEE, ObjectKind.PROMETHEUS): _OVERSEERS,
}

Row = TypeVar("Row", bound=Model)
RelationSource = Callable[[User, Any], Collection[Relation]]
WorkspaceSource = Callable[[User], QuerySet[Any]]
_sources: list[tuple[frozenset[Relation], RelationSource]] = []
_workspace_sources: list[WorkspaceSource] = []


def relations_from(source: RelationSource, *, gives: Iterable[Relation]) -> None:
    """Call it from an app's `ready`."""
    _sources.append((frozenset(gives), source))


def workspaces_from(source: WorkspaceSource) -> None:
    """Call it from the `ready` of the app that knows workspaces."""
    _workspace_sources.append(source)


def own_workspace_ids(actor: User) -> QuerySet[Any]:
    """Returns ids of the workspaces in which the actor has a role."""
    (source,) = _workspace_sources
    return source(actor)


def may(actor: User, verb: Verb, obj: Any) -> bool:
    """`obj` is a row of a model in ObjectKind. Runs a query where a role in a workspace decides, and one more for deputies."""
    kind = ObjectKind(obj._meta.model_name)
    known = _known_relations(actor, obj)
    if _allows(verb, kind, known):
        return True
    asked = frozenset().union(*TABLE.get((verb, kind), ()))
    for gives, source in _sources:
        if gives & asked:
            known = known.union(source(actor, obj))
            if _allows(verb, kind, known):
                return True
    return False


def may_all(actor: User, verb: Verb, kind: ObjectKind) -> bool:
    """Tell whether the actor may do it with every object of the kind, whatever their roles are. Runs no query."""
    return _allows(verb, kind, PLATFORM_RELATIONS[actor.role])


def visible_rows(rows: QuerySet[Row], actor: User, own: Q | None = None) -> QuerySet[Row]:
    """Returns all rows for those who may see every row of this model; for others the rows that match `own`, or none without it. Runs no
    query.
    """
    if may_all(actor, Verb.SEE, ObjectKind(str(rows.model._meta.model_name))):
        return rows
    return rows.none() if own is None else rows.filter(own)


def is_platform_admin(actor: User) -> bool:
    return may_all(actor, Verb.ADMINISTER, ObjectKind.PLATFORM)


def is_overseer(actor: User) -> bool:
    """Tell whether the actor may see what is for operators: an administrator or an auditor of the platform."""
    return may_all(actor, Verb.INSPECT, ObjectKind.PLATFORM)


def least_role(verb: Verb, kind: ObjectKind) -> Relation:
    """Returns the smallest sufficient role in a workspace."""
    roles = [role for role in ROLES if frozenset({role}) in TABLE[verb, kind]]
    return roles[0]


def _allows(verb: Verb, kind: ObjectKind, relations: Set[Relation]) -> bool:
    return any(way <= relations for way in TABLE.get((verb, kind), ()))


def _known_relations(actor: User, obj: Any) -> set[Relation]:
    relations = set(PLATFORM_RELATIONS[actor.role])
    creator_id = getattr(obj, "owner_id", None) or getattr(obj, "user_id", None)
    return relations | ({Relation.CREATOR} if creator_id == actor.pk else set())
