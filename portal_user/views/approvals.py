from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET, require_http_methods

from accounts.policy import Verb, may
from core.errors import EgsError, NotAllowed
from core.pages import words
from gpr.approvals.services import gpr_approve, gpr_reject
from gpr.requests.selectors import approvals_visible_to, gpr_for
from journal.refusals import error_record
from portal_shared.access import PageRequest, needs_write, signed_in
from portal_shared.forms.questions import decide, sent
from portal_shared.shell import NavCount
from portal_user.forms import DeputyForm, ManyForm, RejectManyForm
from portal_user.pages.approvals import ApprovalsPage, many_question, name_question, offered_to, withdraw_question
from slices.deputies.selectors import deputy_for
from slices.deputies.services import deputy_name, deputy_withdraw, may_name_deputies

TOPICS = ("gpr",)


@require_GET
@signed_in
def approvals(request: PageRequest) -> HttpResponse:
    """`?part=list` asks for the fragment."""
    page = ApprovalsPage.build(request)
    template = "user/approvals/list.html" if request.GET.get("part") == "list" else "user/approvals/page.html"
    return render(request, template, {"page": page, "shell": page.shell, "now": request.now})


@require_GET
@signed_in
def count(request: PageRequest) -> HttpResponse:
    """Returns the count in the navigation."""
    number = approvals_visible_to(request.user, now=request.now).order_by().count()
    return render(request, "components/shell/nav_count.html", {"count": NavCount.of_approvals(number)})


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def approve_many(request: PageRequest) -> HttpResponse:
    form = ManyForm(sent(request), offered=offered_to(request, approval=True))
    do = partial(_each, request, gpr_approve, "is in the queue", "are in the queue")
    return decide(request, many_question(request, form, approval=True), do, topics=TOPICS)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def reject_many(request: PageRequest) -> HttpResponse:
    form = RejectManyForm(sent(request), offered=offered_to(request, approval=False))
    do = partial(_each, request, gpr_reject, "is rejected", "are rejected")
    return decide(request, many_question(request, form, approval=False), do, topics=TOPICS)


def _each(request: PageRequest, service: Callable[..., None], one: str, many: str, gprs: Sequence[str], **given: str) -> str:
    """A refused one stops none of the others."""
    refused = []
    for value in gprs:
        pk, _, version = value.partition(".")
        try:
            gpr = gpr_for(request.user, pk, verb=Verb.APPROVE, version=int(version))
            service(gpr=gpr, actor=request.user, now=request.now, **given)
        except EgsError as error:
            error_record(error, actor=request.user, path=request.path, now=request.now)
            refused.append(error.detail)
    count = len(gprs) - len(refused)
    told = f"{words.plural(count, 'request')} {one if count == 1 else many}."
    return f"{told} {words.plural(len(refused), 'other')} not: {' '.join(dict.fromkeys(refused))}" if refused else told


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
        raise NotAllowed("Only the approver who named a deputy, or an administrator of the platform, can withdraw the deputy.")

    def withdraw() -> str:
        deputy_withdraw(deputy=row, actor=request.user, now=request.now)
        return f"{row.user.name} is no deputy any more"

    return decide(request, withdraw_question(request, row), withdraw, topics=TOPICS)
