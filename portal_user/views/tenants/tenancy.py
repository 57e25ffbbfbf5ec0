from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse
from django.views.decorators.http import require_http_methods

from accounts.policy import ObjectKind, Verb, may_all
from core.errors import NotFound
from core.rest.references import one_by_id
from portal_shared.access import PageRequest, needs_write, signed_in
from portal_shared.forms.questions import decide, sent
from portal_user.forms import RefusalForm
from portal_user.pages.tenants.tenancy import accept_question, approve_question, decline_question, refuse_question
from slices.invitations.services import invitation_accept, invitation_decline, invitation_for
from slices.models import Namespace
from slices.namespaces.services import namespace_approve, namespace_refuse
from slices.selectors import slice_for

TOPICS = ("gpr",)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def approve(request: PageRequest, slice: str, pk: UUID) -> HttpResponse:
    row = _asked(request, slice, pk)

    def action() -> str:
        namespace_approve(namespace=row, actor=request.user, now=request.now)
        return f"{row.slice.name} gets {row.name}"

    return decide(request, approve_question(request, row), action, topics=TOPICS)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def refuse(request: PageRequest, slice: str, pk: UUID) -> HttpResponse:
    row = _asked(request, slice, pk)

    def action(why: str) -> str:
        namespace_refuse(namespace=row, actor=request.user, why=why, now=request.now)
        return f"{row.slice.name} does not get {row.name}"

    return decide(request, refuse_question(request, row, RefusalForm(sent(request))), action, topics=TOPICS)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def accept(request: PageRequest, pk: UUID) -> HttpResponse:
    row = invitation_for(request.user, pk)

    def action() -> str:
        invitation_accept(invitation=row, actor=request.user, now=request.now)
        return f"You are a member of {row.slice.name}"

    return decide(request, accept_question(request, row), action, topics=TOPICS)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def decline(request: PageRequest, pk: UUID) -> HttpResponse:
    row = invitation_for(request.user, pk)

    def action() -> str:
        invitation_decline(invitation=row)
        return f"The invitation to {row.slice.name} is declined"

    return decide(request, decline_question(request, row), action, topics=TOPICS)


def _asked(request: PageRequest, slice: str, pk: UUID) -> Namespace:
    """Raises NotFound for all but administrators."""
    if not may_all(request.user, Verb.DECIDE, ObjectKind.NAMESPACE):
        raise NotFound("page")
    rows = Namespace.with_pending.filter(slice=slice_for(request.user, slice)).select_related("slice", "cluster")
    return one_by_id(rows, pk, what="namespace")
