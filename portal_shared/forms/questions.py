"""Asks to confirm actions, in a dialog or on a page of its own.

A view builds a `Question` and calls `decide` with the function that actions; `decide_on` is for actions on a GPR.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self
from uuid import UUID

from django import forms
from django.http import HttpResponse, QueryDict
from django.shortcuts import render
from django.urls import reverse

from accounts.policy import Verb
from core.errors import EgsError, NotAllowed, NotFound, StaleState
from core.pages import words
from gpr.lifecycle import alternative_to
from gpr.models import Gpr, GprState
from gpr.requests.selectors import gpr_for
from journal.refusals import error_record
from portal_shared.access import PageRequest
from portal_shared.forms.fields import errors_placed, rebound
from portal_shared.forms.refusals import refusal_of
from portal_shared.shell import Shell
from portal_shared.toasts import done

UNPROCESSABLE = 422
PREVIEW = "preview"
NO_VERSION = "This form has no version. Review it and decide again."


@dataclass(frozen=True, slots=True)
class Question:
    """Takes as `effects` the preview (portal_admin.pages.question.Effects). `closed`: why the action is not possible any more."""

    title: str
    text: str
    verb: str
    url: str
    back_url: str
    form: forms.Form
    shell: Shell
    points: tuple[str, ...] = ()
    keep: str = "Keep as it is"
    is_plain: bool = False
    effects: Any = None
    is_live: bool = False  # the effects follow what is typed
    closed: str = ""
    refused: str = ""
    refused_why: str = ""
    # Alternatives to an action that was refused.
    ways_out: tuple[QuestionLink, ...] = ()

    def refused_by(self, error: EgsError) -> Self:
        told = refusal_of(error)
        return replace(self, refused=told.title, refused_why=told.detail)


@dataclass(frozen=True, slots=True)
class QuestionLink:
    """Shows a link, or with `field` a button that sends the form again."""

    label: str
    url: str = ""
    field: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True)
class GprAction:
    """Describes an action that is possible in these states. `done` is a sentence with the placeholders name and priority."""

    name: str
    states: frozenset[GprState]
    form: type[forms.Form]
    do: Callable[..., Any]
    done: str
    verb: Verb = Verb.CHANGE

    def suits(self, gpr: Gpr) -> bool:
        return gpr.state in self.states


def ask(request: PageRequest, question: Question, *, status: int = 200) -> HttpResponse:
    """A dialog always gets 200: browsers log 4xx of fragments as errors."""
    context = {"question": question, "shell": question.shell, "now": request.now}
    if request.htmx:
        return render(request, "components/questions/question_dialog.html", context)
    return render(request, "components/questions/question.html", context, status=409 if question.closed else status)


def sent(request: PageRequest) -> QueryDict | None:
    """Binds a form on POST only."""
    return request.POST if request.method == "POST" else None


def is_preview(request: PageRequest) -> bool:
    """Previews are posted to keep reason and CSRF token out of logs."""
    return request.POST.get("act") == PREVIEW


def decide(
    request: PageRequest, question: Question, do: Callable[..., str], *, topics: Iterable[str], fields: Mapping[str, str] | None = None
) -> HttpResponse:
    """Ask; on a valid answer call `do` with the form's data and show the sentence it returns. Errors keep what was typed.

    `fields`: see `errors_placed`. Raises NotFound, NotAllowed.
    """
    form = question.form
    if not form.is_bound or question.closed or is_preview(request):
        return ask(request, question)
    if not form.is_valid():
        return ask(request, question, status=UNPROCESSABLE)
    try:
        told = do(**form.cleaned_data)
    except (NotFound, NotAllowed):
        raise
    except EgsError as error:
        return refused(request, question, error, fields=fields)
    return done(request, told, back_url=question.back_url, topics=topics)


def refused(request: PageRequest, question: Question, error: EgsError, *, fields: Mapping[str, str] | None = None) -> HttpResponse:
    error_record(error, actor=request.user, path=request.path, now=request.now)
    if errors_placed(question.form, error, fields):
        return ask(request, question, status=UNPROCESSABLE)
    status = UNPROCESSABLE if error.status == EgsError.status else error.status
    return ask(request, question.refused_by(error), status=status)


def decide_on(
    request: PageRequest,
    pk: UUID,
    action: GprAction,
    question_of: Callable[[Gpr, forms.Form], Question],
    *,
    topics: Iterable[str],
    ways_out: Callable[[Gpr, EgsError], tuple[QuestionLink, ...]] | None = None,
) -> HttpResponse:
    """Does what `decide` does for an action on a GPR, and checks its version.

    After a refusal the question is about the GPR as it is now. `ways_out` returns alternatives.
    """
    gpr = gpr_for(request.user, pk, verb=action.verb)
    form = action.form(sent(request), initial={"version": gpr.version, "priority": gpr.priority})
    question = question_of(gpr, form)
    if not action.suits(gpr):
        return ask(request, replace(question, closed=_closed(gpr, action)))
    if not form.is_bound or is_preview(request):
        return ask(request, question)
    if not form.is_valid():
        return ask(request, question, status=UNPROCESSABLE)
    given = dict(form.cleaned_data)
    version = given.pop("version")
    try:
        if version is None:
            raise StaleState(NO_VERSION)
        action.do(gpr=gpr_for(request.user, pk, verb=action.verb, version=version), actor=request.user, now=request.now, **given)
    except (NotFound, NotAllowed):
        raise
    except EgsError as error:
        gpr = gpr_for(request.user, pk, verb=action.verb)
        again = question_of(gpr, rebound(form, version=gpr.version, until=""))
        if not action.suits(gpr):
            return ask(request, replace(again, closed=_closed(gpr, action)))
        if ways_out is not None:
            again = replace(again, ways_out=ways_out(gpr, error))
        return refused(request, again, error)
    gpr.refresh_from_db()
    text = action.done.format(name=gpr.name, priority=gpr.priority)
    return done(request, text, back_url=question.back_url, topics=topics)


def closed(request: PageRequest, gpr: Gpr, what: str, *, shell: Shell) -> HttpResponse:
    """Says on the page that the GPR's state does not allow the action any more."""
    back_url = reverse("gpr", args=[gpr.pk])
    question = Question(f"{gpr.name} cannot be {what} any more", "", "", "", back_url, forms.Form(), shell)
    return ask(request, replace(question, closed=_by_now(gpr)))


def _closed(gpr: Gpr, action: GprAction) -> str:
    return f"There is nothing to {action.name} any more. {_by_now(gpr)}"


def _by_now(gpr: Gpr) -> str:
    return f"{gpr.name} is “{words.STATE_WORDS[gpr.state]}” by now. {alternative_to(gpr.state)}"
