from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET, require_http_methods

from accounts.models import IMPLIED_BY, ApiToken, Scope
from accounts.policy import Verb
from accounts.tokens.services import TokenTerms, token_revoke
from core.errors import EgsError
from core.rest.references import one_by_id
from portal_shared.access import PageRequest, needs_write, signed_in
from portal_shared.forms.questions import UNPROCESSABLE, ask, decide, refused, sent
from portal_user.forms import ProgramForm, RoleForm, TokenForm
from portal_user.pages.tenants.people import ProgramPage, people_question
from portal_user.views.tenants.people import TOPICS, confirm, decide_role
from slices.models import ROLES_OF_SERVICES, Role, ServiceAccount, Slice
from slices.selectors import slice_for
from slices.service_accounts.selectors import service_account_of
from slices.service_accounts.services import (
    SCOPES,
    service_account_change,
    service_account_create,
    service_account_delete,
    service_token_create,
)


@require_GET
@signed_in
def service_account(request: PageRequest, slice: str, pk: UUID) -> HttpResponse:
    """`?part=list` asks for the fragment."""
    return _show(request, *_managed(request, slice, pk))


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def add(request: PageRequest, slice: str) -> HttpResponse:
    slice_ = slice_for(request.user, slice, verb=Verb.MANAGE)

    def do(name: str, role: str) -> str:
        made = service_account_create(slice_=slice_, name=name, role=Role(role), actor=request.user, now=request.now)
        return f"{made.user.name} is a service account. Make its token on its page."

    text = (
        "A pipeline or a controller acts under this name, and its requests count as its own. "
        "Service accounts of a cluster that file objects come here by themselves."
    )
    question = people_question(
        request, slice_, ProgramForm(sent(request), roles=ROLES_OF_SERVICES), title="Add a service account", text=text, verb="Add account"
    )
    return decide(request, question, do, topics=TOPICS)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def role(request: PageRequest, slice: str, pk: UUID) -> HttpResponse:
    slice_, account = _managed(request, slice, pk)

    def set_role(role: Role) -> None:
        service_account_change(account=account, role=role, actor=request.user, now=request.now)

    form = RoleForm(sent(request), roles=ROLES_OF_SERVICES, initial={"role": getattr(account, "role", None)})
    text = "Editors file requests and manage their own. Viewers look."
    return decide_role(request, slice_, account.user.name, form, text, set_role)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def disable(request: PageRequest, slice: str, pk: UUID) -> HttpResponse:
    text = "Its tokens end to work at once, and objects that it makes are refused. Its requests stay."
    return _switch(request, slice, pk, is_active=False, text=text)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def enable(request: PageRequest, slice: str, pk: UUID) -> HttpResponse:
    return _switch(request, slice, pk, is_active=True, text="Its tokens that are not revoked work again.")


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def delete(request: PageRequest, slice: str, pk: UUID) -> HttpResponse:
    slice_, account = _managed(request, slice, pk)

    def do() -> str:
        service_account_delete(account=account, actor=request.user, now=request.now)
        return f"{account.user.name} is deleted"

    text = "Its tokens end to work at once, for good. Requests and records keep its name."
    if account.cluster:
        text += " If it files again in its cluster, it comes back as an editor: disable it to keep it out."
    return confirm(request, slice_, f"Delete {account.user.name}?", text, "Delete account", do)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def token_new(request: PageRequest, slice: str, pk: UUID) -> HttpResponse:
    """Answers with a page that shows the secret once."""
    slice_, account = _managed(request, slice, pk)
    scopes = [scope for scope in SCOPES if IMPLIED_BY[scope] & set(request.login.scopes)]
    form = TokenForm(sent(request), scopes=scopes, initial={"scope": Scope.GPR_WRITE})
    text = "The program signs in with it. Its secret is shown once, so copy it then."
    question = people_question(request, slice_, form, title=f"Make a token of {account.user.name}", text=text, verb="Make token")
    if not form.is_bound:
        return ask(request, question)
    if not form.is_valid():
        return ask(request, question, status=UNPROCESSABLE)
    given, used = form.cleaned_data, request.user.credential
    terms = TokenTerms(
        name=given["name"],
        scopes=[Scope(given["scope"])],
        life=timedelta(days=given["days"]),
        networks=used.networks if used is not None else (),
    )
    try:
        made = service_token_create(account=account, terms=terms, actor=request.user, now=request.now)
    except EgsError as error:
        return refused(request, question, error)
    return _show(request, slice_, account, made=made.plain)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def token_end(request: PageRequest, slice: str, pk: UUID, token: UUID) -> HttpResponse:
    slice_, account = _managed(request, slice, pk)
    row = one_by_id(ApiToken.objects.filter(user=account.pk), token, what="token")

    def revoke() -> str:
        token_revoke(token=row, actor=request.user, now=request.now)
        return f"Token {row.name} is revoked"

    text = f"{account.user.name} is refused with it at once."
    return confirm(request, slice_, f"Revoke token {row.name}?", text, "Revoke token", revoke)


def _switch(request: PageRequest, slice: str, pk: UUID, *, is_active: bool, text: str) -> HttpResponse:
    slice_, account = _managed(request, slice, pk)
    verb = "Enable" if is_active else "Disable"

    def do() -> str:
        service_account_change(account=account, is_active=is_active, actor=request.user, now=request.now)
        return f"{account.user.name} is {verb.lower()}d"

    return confirm(request, slice_, f"{verb} {account.user.name}?", text, f"{verb} account", do, is_plain=is_active)


def _managed(request: PageRequest, slice: str, pk: UUID) -> tuple[Slice, ServiceAccount]:
    slice_ = slice_for(request.user, slice, verb=Verb.MANAGE)
    return slice_, service_account_of(slice_, str(pk))


def _show(request: PageRequest, slice_: Slice, account: ServiceAccount, *, made: str = "") -> HttpResponse:
    page = ProgramPage.build(request, slice_, account)
    template = "user/people/program_tokens.html" if request.GET.get("part") == "list" else "user/people/program.html"
    return render(request, template, {"page": page, "shell": page.shell, "now": request.now, "made": made})
