from __future__ import annotations

from uuid import UUID

from django.db.models import Q, QuerySet

from accounts.models import User
from accounts.policy import Verb, may, visible_rows
from core.errors import NotAllowed
from core.rest.references import one_by_id
from slices.models import WorkspaceRequest


def workspace_requests_visible_to(actor: User) -> QuerySet[WorkspaceRequest]:
    """People see their own, but not with a bound token."""
    rows = WorkspaceRequest.objects.select_related("requester", "decided_by", "slice")
    return visible_rows(rows, actor, None if actor.bound_to else Q(requester=actor))


def workspace_request_for(actor: User, request_id: str | UUID, *, verb: Verb = Verb.SEE) -> WorkspaceRequest:
    """Raises NotFound or NotAllowed."""
    row = one_by_id(workspace_requests_visible_to(actor), request_id, what="workspace request")
    if verb != Verb.SEE and not may(actor, verb, row):
        raise NotAllowed("Only an administrator decides on workspaces.")
    return row
