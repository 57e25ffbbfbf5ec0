from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET, require_http_methods

from accounts.policy import Verb, may
from core.errors import NotAllowed
from portal_shared.access import PageRequest, needs_write, signed_in
from portal_shared.forms.questions import decide, sent
from portal_user.forms import DeputyForm
from portal_user.pages.approvals import ApprovalsPage, name_question, withdraw_question
from slices.deputies.selectors import deputy_for
from slices.deputies.services import deputy_name, deputy_withdraw, may_name_deputies

TOPICS = ("gpr",)


@require_GET
@signed_in
def approvals(request: PageRequest) -> HttpResponse:
    """`?part=list`: the fragment."""
    page = ApprovalsPage.build(request)
    template = "user/approvals/list.html" if request.GET.get("part") == "list" else "user/approvals/page.html"
    return render(request, template, {"page": page, "shell": page.shell, "now": request.now})


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def name_deputy(request: PageRequest) -> HttpResponse:
    if not may_name_deputies(request.user):
        raise NotAllowed("Only those who approve requests name a deputy: administrators of the platform or of a project.")

    def name(user: str, starts_at: datetime | None, ends_at: datetime) -> str:
        times = {"starts_at": starts_at or request.now, "ends_at": ends_at}
        made = deputy_name(approver=request.user, reference=user, **times, now=request.now)
        return f"{made.user.name} is your deputy"

    return decide(request, name_question(request, DeputyForm(sent(request))), name, topics=TOPICS)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def withdraw_deputy(request: PageRequest, pk: UUID) -> HttpResponse:
    row = deputy_for(request.user, pk)
    if not may(request.user, Verb.CHANGE, row):
        raise NotAllowed("Only who named a deputy withdraws him, or an administrator of the platform.")

    def withdraw() -> str:
        deputy_withdraw(deputy=row, actor=request.user, now=request.now)
        return f"{row.user.name} is no deputy any more"

    return decide(request, withdraw_question(request, row), withdraw, topics=TOPICS)
