from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import cast
from uuid import UUID

from csp.decorators import csp_update
from django import forms
from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from accounts.models import IMPLIED_BY, ApiToken, Login, Scope
from accounts.people.services import identity_unlink
from accounts.permissions import refuse_bound
from accounts.policy import is_overseer
from accounts.sessions import live_logins, logins_end
from accounts.tokens.services import TokenTerms, token_create, token_revoke
from core.rest.references import one_by_id
from portal_shared.access import PageRequest, needs_write, signed_in
from portal_shared.forms.questions import UNPROCESSABLE, Question, ask, decide, sent
from portal_shared.shell import Shell
from portal_user.forms import TokenForm
from portal_user.pages.account import AccountPage, Terminal

TOPICS = ("account",)
TO_TERMINAL = "The command egs on this computer waits for it. Go on only if you have just typed egs login."


@require_GET
@signed_in
def account(request: PageRequest) -> HttpResponse:
    return _show(request)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def token_new(request: PageRequest) -> HttpResponse:
    """The page that answers shows the secret, once."""
    scopes = [
        scope for scope in Scope if (scope != Scope.ADMIN or is_overseer(request.user)) and IMPLIED_BY[scope] & set(request.login.scopes)
    ]
    terminal = Terminal.of(request)
    initial = {"name": request.GET.get("name", ""), "scope": Scope.WRITE} if terminal else {}
    form = TokenForm(sent(request), scopes=scopes, initial=initial)
    text = TO_TERMINAL if terminal else "Programs sign in with a token. Its secret is shown once, so copy it then."
    question = _question(request, form, "Make a token", text, "Make token", request.get_full_path(), is_plain=True)
    if not form.is_bound:
        return ask(request, question)
    if not form.is_valid():
        return ask(request, question, status=UNPROCESSABLE)
    given, used = form.cleaned_data, request.user.credential  # bounds of the token that opened this session hold for those that it makes
    terms = TokenTerms(
        name=given["name"],
        scopes=[Scope(given["scope"])],
        life=timedelta(days=given["days"]),
        slices=used.slices if used is not None else (),
        networks=used.networks if used is not None else (),
    )
    made = token_create(user=request.user, terms=terms, now=request.now).plain
    if terminal is None:
        return _show(request, made=made)
    # The one address that this page, and no other, may post to.
    show = csp_update({"form-action": [terminal.url]})(partial(_show, made=made, terminal=terminal))
    return cast(HttpResponse, show(request))


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def token_end(request: PageRequest, pk: UUID) -> HttpResponse:
    token = one_by_id(ApiToken.objects.filter(user=request.user), pk, what="token")

    def revoke() -> str:
        token_revoke(token=token, actor=request.user, now=request.now)
        return f"Token {token.name} is revoked"

    text = "Programs that use it are refused at once, and browsers that signed in with it are signed out."
    question = _question(request, forms.Form(sent(request)), f"Revoke token {token.name}?", text, "Revoke token", request.path)
    return decide(request, question, revoke, topics=TOPICS)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def unlink(request: PageRequest, pk: UUID) -> HttpResponse:
    identity = one_by_id(request.user.identities.all(), pk, what="identity")

    def do() -> str:
        identity_unlink(identity=identity, actor=request.user, now=request.now)
        return f"{identity.provider} is unlinked"

    text = "Its sessions end, and roles that only its groups gave are lost. Keep a token, or you cannot sign in any more."
    question = _question(request, forms.Form(sent(request)), f"Unlink {identity.provider}?", text, "Unlink", request.path)
    return decide(request, question, do, topics=TOPICS)


@require_http_methods(["GET", "POST"])
@signed_in
def login_end(request: PageRequest, pk: UUID) -> HttpResponse:
    login = one_by_id(live_logins(now=request.now).filter(user=request.user), pk, what="session")
    return _end(request, Login.objects.filter(pk=login.pk), "End this session?", "Its browser is signed out at once.", "End session")


@require_http_methods(["GET", "POST"])
@signed_in
def others_end(request: PageRequest) -> HttpResponse:
    others = Login.objects.filter(user=request.user).exclude(pk=request.login.pk)
    text = "All your other browsers are signed out at once. Tokens of programs stay."
    return _end(request, others, "End all other sessions?", text, "End other sessions")


def _end(request: PageRequest, logins: QuerySet[Login], title: str, text: str, verb: str) -> HttpResponse:
    refuse_bound(request.user)

    def end() -> str:
        count = logins_end(logins, why="ended sessions of his own", actor=request.user, now=request.now)
        return "The session is ended" if count == 1 else f"{count} sessions are ended"

    return decide(request, _question(request, forms.Form(sent(request)), title, text, verb, request.path), end, topics=TOPICS)


def _question(request: PageRequest, form: forms.Form, title: str, text: str, verb: str, url: str, *, is_plain: bool = False) -> Question:
    shell = Shell.user(request, page="account")
    return Question(title, text, verb, url, back_url=reverse("account"), form=form, shell=shell, is_plain=is_plain)


def _show(request: PageRequest, *, made: str = "", terminal: Terminal | None = None) -> HttpResponse:
    page = AccountPage.build(request)
    template = "user/account/lists.html" if request.GET.get("part") == "lists" else "user/account/page.html"
    return render(request, template, {"page": page, "shell": page.shell, "now": request.now, "made": made, "terminal": terminal})
