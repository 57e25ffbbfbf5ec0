from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from uuid import UUID

from django.db import transaction

from accounts.models import User
from accounts.permissions import refuse_bound
from accounts.policy import ObjectKind, Verb, may_all
from core.errors import Conflict, InvalidInput, NotAllowed
from inventory.models import Cluster
from inventory.selectors import clusters_visible_to
from journal.models import Severity
from journal.services import event_record
from slices.invitations.services import member_add_or_invite
from slices.models import Project, RequestState, Role, Slice, WorkspaceRequest
from slices.namespaces.services import namespace_bind
from slices.quotas.services import QuotaChange, quota_create
from slices.services import member_set, project_create, slice_create, slice_set_end

OPEN_MAX = 20  # of one person


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceTerms:
    """Holds names as people write them. `people`: name -> role; `quota`: shape -> guaranteed GPUs."""

    name: str
    project: str
    purpose: str = ""
    clusters: Sequence[str] = ()
    namespaces: Sequence[str] = ()
    people: Mapping[str, str] = field(default_factory=dict)
    quota: Mapping[str, int] = field(default_factory=dict)
    ends_at: datetime | None = None


@transaction.atomic
def workspace_request_create(*, terms: WorkspaceTerms, actor: User, now: datetime) -> WorkspaceRequest:
    """Nothing of it is compared with what there is, since that would tell what others have. Raises NotAllowed, InvalidInput or Conflict."""
    refuse_bound(actor)
    _refuse_past_end(terms, now)
    if WorkspaceRequest.objects.filter(requester=actor, state=RequestState.PENDING).count() >= OPEN_MAX:
        raise Conflict(f"You have asked for {OPEN_MAX} workspaces already. Withdraw a request first.")
    made = WorkspaceRequest(requester=actor, created_at=now)
    _write(made, terms)
    made.save(force_insert=True)
    _record(made, "workspace.requested", f"{actor.name} asks for a workspace named {made.name}.", actor, now)
    return made


@transaction.atomic
def workspace_request_cancel(*, request: WorkspaceRequest, actor: User, now: datetime) -> None:
    """Raises Conflict when it was decided meanwhile."""
    _decide(request, RequestState.CANCELED, actor, "", now)
    _record(request, "workspace.request_canceled", f"The request for workspace {request.name} was withdrawn.", actor, now)


@transaction.atomic
def workspace_request_refuse(*, request: WorkspaceRequest, why: str, actor: User, now: datetime) -> None:
    """Raises NotAllowed, or Conflict when it was decided meanwhile."""
    _refuse_to_decide(actor)
    _decide(request, RequestState.REFUSED, actor, why, now)
    text = f"The request for workspace {request.name} was refused: {why}"
    _record(request, "workspace.request_refused", text, actor, now, severity=Severity.WARNING)


@transaction.atomic
def workspace_request_approve(*, request: WorkspaceRequest, terms: WorkspaceTerms, why: str, actor: User, now: datetime) -> Slice:
    """Sets up all of it, as `terms` say, or nothing. The requester becomes the owner.

    Raises NotAllowed, Conflict when it was decided meanwhile, NameTaken, and InvalidInput for what does not exist or fit.
    """
    _refuse_to_decide(actor)
    _refuse_past_end(terms, now)
    _decide(request, RequestState.APPROVED, actor, why, now)
    slice_ = _set_up(request, terms, actor, now)
    _write(request, terms)
    request.slice = slice_
    request.save()
    text = f"Workspace {slice_.name} was approved, and {request.requester.name} owns it."
    _record(request, "workspace.request_approved", text, actor, now, slice_id=slice_.pk)
    return slice_


def terms_of(request: WorkspaceRequest) -> WorkspaceTerms:
    return WorkspaceTerms(**{each.name: getattr(request, each.name) for each in fields(WorkspaceTerms)})


def _set_up(request: WorkspaceRequest, terms: WorkspaceTerms, actor: User, now: datetime) -> Slice:
    project = Project.objects.filter(name=terms.project).first() or project_create(name=terms.project, actor=actor, now=now)
    clusters = _clusters(terms, actor)
    slice_ = slice_create(name=terms.name, project=project, clusters=clusters, actor=actor, now=now)
    slice_set_end(slice_=slice_, ends_at=terms.ends_at, actor=actor, now=now)
    member_set(slice_=slice_, user=request.requester, role=Role.OWNER, actor=actor, now=now)
    for name, role in terms.people.items():
        if name != request.requester.name:
            member_add_or_invite(slice_=slice_, reference=name, role=Role(role), actor=request.requester, now=now)
    for cluster in clusters:
        for name in terms.namespaces:
            namespace_bind(slice_=slice_, cluster=cluster, name=name, actor=actor, now=now)
    for shape, gpu_count in terms.quota.items():
        _guarantee(slice_, shape, gpu_count, actor, now)
    return slice_


def _guarantee(slice_: Slice, shape: str, gpu_count: int, actor: User, now: datetime) -> None:
    """A workspace's guarantee comes out of its project's, which gets one of the same size if it has none."""
    change: QuotaChange = {"guaranteed_gpus": gpu_count}
    if not slice_.project.quotas.filter(shape=shape).exists():
        quota_create(owner=slice_.project, shape=shape, change=change, actor=actor, now=now)
    quota_create(owner=slice_, shape=shape, change=change, actor=actor, now=now)


def _clusters(terms: WorkspaceTerms, actor: User) -> list[Cluster]:
    found = {cluster.name: cluster for cluster in clusters_visible_to(actor).filter(name__in=terms.clusters)}
    if missing := sorted(set(terms.clusters) - found.keys()):
        raise InvalidInput({"clusters": [f"There is no cluster {', '.join(missing)}."]})
    return [found[name] for name in sorted(found)]


def _write(request: WorkspaceRequest, terms: WorkspaceTerms) -> None:
    request.name, request.project, request.purpose, request.ends_at = terms.name, terms.project, terms.purpose, terms.ends_at
    request.clusters, request.namespaces = list(terms.clusters), list(terms.namespaces)
    request.people, request.quota = dict(terms.people), dict(terms.quota)


def _decide(request: WorkspaceRequest, state: RequestState, actor: User, why: str, now: datetime) -> None:
    decided = {"state": state, "decided_by": actor, "decided_at": now, "why": why}
    if not WorkspaceRequest.objects.filter(pk=request.pk, state=RequestState.PENDING).update(**decided):
        raise Conflict("This request was decided or withdrawn meanwhile.")
    request.refresh_from_db()


def _refuse_to_decide(actor: User) -> None:
    if not may_all(actor, Verb.DECIDE, ObjectKind.WORKSPACE_REQUEST):
        raise NotAllowed("Only an administrator decides on workspaces.")


def _refuse_past_end(terms: WorkspaceTerms, now: datetime) -> None:
    if terms.ends_at is not None and terms.ends_at <= now:
        raise InvalidInput({"ends_at": ["It must be in the future."]})


def _record(
    request: WorkspaceRequest,
    kind: str,
    text: str,
    actor: User,
    now: datetime,
    *,
    severity: Severity = Severity.INFO,
    slice_id: UUID | None = None,
) -> None:
    data = {"request": str(request.pk), "requester": str(request.requester_id)}
    event_record(kind=kind, message=text, at=now, actor=actor, severity=severity, slice_id=slice_id, data=data)
