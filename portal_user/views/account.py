from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from django import forms
from django.db.models import QuerySet
from django.http import HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from accounts.devices.services import device_login_confirm, device_login_find, device_login_refuse
from accounts.models import IMPLIED_BY, ApiToken, DeviceLogin, Login, Scope
from accounts.people.services import identity_unlink
from accounts.permissions import refuse_bound
from accounts.policy import is_overseer
from accounts.sessions import live_logins, logins_end
from accounts.tokens.services import TokenTerms, token_create, token_revoke
from core.errors import EgsError
from core.rest.references import one_by_id
from portal_shared.access import PageRequest, needs_write, signed_in
from portal_shared.forms.questions import UNPROCESSABLE, Question, QuestionLink, ask, decide, refused, sent
from portal_shared.shell import Shell
from portal_shared.toasts import done
from portal_user.forms import DeviceCodeForm, TokenForm
from portal_user.pages.account import AccountPage, asked_by, became_of

TOPICS = ("account",)
REFUSE, KEEP = "refuse", "Keep as it is"
CODE = "The command egs login shows a code of eight letters. Type it here."
CONFIRM = (
    "A terminal asks to act as you. Connect it only if you have just typed egs login there yourself. "
    "If somebody sent you this code, refuse."
)


@require_GET
@signed_in
def account(request: PageRequest) -> HttpResponse:
    return _show(request)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def token_new(request: PageRequest) -> HttpResponse:
    """Answers with a page that shows the secret once."""
    form = TokenForm(sent(request), scopes=_scopes(request))
    text = "Programs sign in with a token. Its secret is shown once, so copy it then."
    question = _question(request, form, "Make a token", text, "Make token", request.path, is_plain=True)
    if not form.is_bound:
        return ask(request, question)
    if not form.is_valid():
        return ask(request, question, status=UNPROCESSABLE)
    terms = _terms(request, **form.cleaned_data)
    return _show(request, made=token_create(user=request.user, terms=terms, actor=request.user, now=request.now).plain)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def connect(request: PageRequest) -> HttpResponse:
    """Takes the code of a terminal, typed or from the link that the terminal shows."""
    given = sent(request) or (request.GET if "code" in request.GET else None)
    form = DeviceCodeForm(given)
    question = _question(request, form, "Connect a terminal", CODE, "Go on", reverse("connect"), keep="Not now", is_plain=True)
    if not form.is_bound:
        return ask(request, question)
    if not form.is_valid():
        return ask(request, question, status=UNPROCESSABLE)
    try:
        found = device_login_find(typed=form.cleaned_data["code"], user=request.user, now=request.now)
    except EgsError as error:
        return refused(request, question, error)
    return HttpResponseRedirect(reverse("connect-answer", args=[found.pk]))


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def connect_answer(request: PageRequest, pk: UUID) -> HttpResponse:
    """Shows what asks, and from where, before anything is granted."""
    asked = one_by_id(DeviceLogin.objects.all(), pk, what="code")
    if told := became_of(asked, request):
        over = _question(request, forms.Form(), "This code is answered or over", "", "", request.path, keep="", is_plain=True)
        return ask(request, replace(over, closed=told))
    scopes = [scope for scope in _scopes(request) if IMPLIED_BY[scope] & set(asked.scopes)]
    form = TokenForm(sent(request), scopes=scopes, initial={"name": asked.name, "scope": scopes[-1]})
    question = _question(request, form, f"Connect {asked.name}?", CONFIRM, "Connect", request.path, keep="Not now", is_plain=True)
    question = replace(question, points=asked_by(asked, request), ways_out=(QuestionLink("Refuse", field="act", value=REFUSE),))

    def confirm(**given: Any) -> str:
        device_login_confirm(device_login=asked, terms=_terms(request, **given), actor=request.user, now=request.now)
        return f"{given['name']} is connected. Go on there; its token is listed here."

    if request.POST.get("act") != REFUSE:
        return decide(request, question, confirm, topics=TOPICS)
    device_login_refuse(device_login=asked, actor=request.user, now=request.now)
    return done(request, f"{asked.name} is refused", back_url=question.back_url, topics=TOPICS)


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


def _scopes(request: PageRequest) -> list[Scope]:
    """Returns the scopes that a token of this session may have, the least first."""
    own = [scope for scope in Scope if IMPLIED_BY[scope] & set(request.login.scopes)]
    return own if is_overseer(request.user) else [scope for scope in own if scope != Scope.ADMIN]


def _terms(request: PageRequest, *, name: str, scope: str, days: int) -> TokenTerms:
    """Bounds of the token that opened this session hold for those that it makes."""
    used = request.user.credential
    return TokenTerms(
        name=name,
        scopes=[Scope(scope)],
        life=timedelta(days=days),
        slices=used.slices if used is not None else (),
        networks=used.networks if used is not None else (),
    )


def _question(
    request: PageRequest, form: forms.Form, title: str, text: str, verb: str, url: str, *, keep: str = KEEP, is_plain: bool = False
) -> Question:
    shell = Shell.user(request, page="account")
    return Question(title, text, verb, url, back_url=reverse("account"), form=form, shell=shell, keep=keep, is_plain=is_plain)


def _show(request: PageRequest, *, made: str = "") -> HttpResponse:
    page = AccountPage.build(request)
    template = "user/account/lists.html" if request.GET.get("part") == "lists" else "user/account/page.html"
    return render(request, template, {"page": page, "shell": page.shell, "now": request.now, "made": made})
