from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from portal_admin.forms import ReasonForm
from portal_admin.pages.nav import admin_shell
from portal_admin.pages.tenants.workspace_requests import WorkspaceRequestsPage
from portal_admin.views.rendering import show
from portal_shared.access import PageRequest, admin_only, needs_write
from portal_shared.forms.questions import Question, decide, sent
from portal_shared.forms.workspace_form import WorkspaceApprovalForm
from portal_shared.shell import Shell
from slices.workspace_requests.selectors import workspace_request_for
from slices.workspace_requests.services import workspace_request_approve, workspace_request_refuse

TOPICS = ("workspace-requests",)


@require_GET
@admin_only
def requests(request: PageRequest) -> HttpResponse:
    return show(request, WorkspaceRequestsPage.build(request), "workspace_requests/page", rows="workspace_requests/rows")


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def approve(request: PageRequest, pk: UUID) -> HttpResponse:
    row = workspace_request_for(request.user, pk)
    form = WorkspaceApprovalForm(sent(request), initial=WorkspaceApprovalForm.initial_of(row))

    def set_up(why: str, **given: object) -> str:
        made = workspace_request_approve(request=row, terms=form.terms(), why=why, actor=request.user, now=request.now)
        return f"Workspace {made.name} is set up, and {row.requester.name} owns it"

    text = f"{row.requester.name} asks for it: {row.purpose} Change the fields that should differ; EGS sets up all at once, or nothing."
    question = Question(
        f"Approve workspace {row.name}?", text, "Approve and set up", request.path, _back(), form, _shell(request), is_plain=True
    )
    return decide(request, question, set_up, topics=TOPICS)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def refuse(request: PageRequest, pk: UUID) -> HttpResponse:
    row = workspace_request_for(request.user, pk)

    def do(why: str) -> str:
        workspace_request_refuse(request=row, why=why, actor=request.user, now=request.now)
        return f"The request for {row.name} is refused"

    text = f"{row.requester.name} reads the reason."
    question = Question(f"Refuse workspace {row.name}?", text, "Refuse", request.path, _back(), ReasonForm(sent(request)), _shell(request))
    return decide(request, question, do, topics=TOPICS)


def _back() -> str:
    return reverse("admin-workspace-requests")


def _shell(request: PageRequest) -> Shell:
    return admin_shell(request, page="workspace-requests")
