from __future__ import annotations

from uuid import UUID

from django import forms
from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from accounts.policy import Verb
from portal_shared.access import PageRequest, needs_write, signed_in
from portal_shared.forms.questions import Question, decide, sent
from portal_shared.forms.workspace_form import WorkspaceForm
from portal_shared.shell import Shell
from slices.workspace_requests.selectors import workspace_request_for
from slices.workspace_requests.services import workspace_request_cancel, workspace_request_create

TOPICS = ("gpr",)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def ask(request: PageRequest) -> HttpResponse:
    form = WorkspaceForm(sent(request))

    def file(**given: object) -> str:
        made = workspace_request_create(terms=form.terms(), actor=request.user, now=request.now)
        return f"You asked for workspace {made.name}. An administrator decides."

    text = "A workspace holds your team's requests, people and namespaces. An administrator sets it up as you write it here, or changes it."
    question = Question(
        "Ask for a workspace",
        text,
        "Ask for it",
        reverse("workspace-ask"),
        reverse("workspaces"),
        form,
        _shell(request),
        keep="Not now",
        is_plain=True,
    )
    return decide(request, question, file, topics=TOPICS)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def cancel(request: PageRequest, pk: UUID) -> HttpResponse:
    row = workspace_request_for(request.user, pk, verb=Verb.CHANGE)

    def withdraw() -> str:
        workspace_request_cancel(request=row, actor=request.user, now=request.now)
        return f"The request for {row.name} is withdrawn"

    title, text = f"Withdraw the request for {row.name}?", "Nobody decides on it then. You can ask again."
    question = Question(title, text, "Withdraw", request.path, reverse("workspaces"), forms.Form(sent(request)), _shell(request))
    return decide(request, question, withdraw, topics=TOPICS)


def _shell(request: PageRequest) -> Shell:
    return Shell.user(request, page="workspaces")
