"""How every act is asked before it is done, in both portals: in a dialog where htmx asks, on a page of its own without a script.

A view makes a `Question` and gives it to `decide`, with what does the act; for an act on a GPR, `decide_on` also guards its version.
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

from core.errors import EgsError, NotAllowed, NotFound, StaleState
from core.pages import words
from gpr.lifecycle import way_out
from gpr.models import Gpr, GprState
from gpr.requests.selectors import gpr_for
from portal_shared.access import PageRequest
from portal_shared.fields import errors_placed, rebound
from portal_shared.refusals import refusal_of
from portal_shared.shell import Shell
from portal_shared.toasts import done

UNPROCESSABLE = 422
PREVIEW = "preview"
NO_VERSION = "This form did not say which version it was about. Look at it again and decide anew."


@dataclass(frozen=True, slots=True)
class Question:
    """`effects`: the preview of the act (portal_admin.pages.question.Effects), or None.

    `closed`: why there is nothing to decide any more; the question is then shown without a button that sends it.
    """

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
    # Acts that would do instead of one that is refused: a name, an address, and the fields that it posts there.
    ways_out: tuple[WayOut, ...] = ()

    def refused_by(self, error: EgsError) -> Self:
        told = refusal_of(error)
        return replace(self, refused=told.title, refused_why=told.detail)


@dataclass(frozen=True, slots=True)
class WayOut:
    """A link, or with `field` a button that sends the form again with that value in that field."""

    label: str
    url: str = ""
    field: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True)
class GprAct:
    """What may be decided about a GPR in these states. `do` takes the fields of the form by name.

    `done` is a sentence, with the name and the priority of the GPR as they are then.
    """

    name: str
    states: frozenset[GprState]
    form: type[forms.Form]
    do: Callable[..., Any]
    done: str

    def suits(self, gpr: Gpr) -> bool:
        return gpr.state in self.states


def ask(request: PageRequest, question: Question, *, status: int = 200) -> HttpResponse:
    """`status`: of what was refused, for a page.

    A dialog says itself what was refused, and is what was asked for: 200. To a browser any 4xx of a fragment is an error for its console.
    """
    context = {"question": question, "shell": question.shell, "now": request.now}
    if request.htmx:
        return render(request, "components/question_dialog.html", context)
    return render(request, "components/question.html", context, status=409 if question.closed else status)


def sent(request: PageRequest) -> QueryDict | None:
    """What a form is bound to: nothing while the question is only put."""
    return request.POST if request.method == "POST" else None


def is_preview(request: PageRequest) -> bool:
    """A preview is posted too: an address would keep the reason and the token against forgery in logs and in the browser's history."""
    return request.POST.get("act") == PREVIEW


def decide(
    request: PageRequest, question: Question, do: Callable[..., str], *, topics: Iterable[str], fields: Mapping[str, str] | None = None
) -> HttpResponse:
    """Put the question; once it is answered, call `do` with what was typed, and say what it says. A refusal keeps what was typed.

    `fields`: as of `errors_placed`. Raises NotFound and NotAllowed as `do` does.
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
    """Put the question again: the error stands beside its field, or above all of them."""
    if errors_placed(question.form, error, fields):
        return ask(request, question, status=UNPROCESSABLE)
    status = UNPROCESSABLE if error.status == EgsError.status else error.status
    return ask(request, question.refused_by(error), status=status)


def decide_on(
    request: PageRequest,
    pk: UUID,
    act: GprAct,
    question_of: Callable[[Gpr, forms.Form], Question],
    *,
    topics: Iterable[str],
    ways_out: Callable[[Gpr, EgsError], tuple[WayOut, ...]] | None = None,
) -> HttpResponse:
    """An act on a GPR as its reader saw it: the form says which version that was.

    What is refused is asked again about the GPR as it is now, so sending it again is a new decision. `ways_out` says what would do instead.
    """
    gpr = gpr_for(request.user, pk, write=True)
    form = act.form(sent(request), initial={"version": gpr.version, "priority": gpr.priority})
    question = question_of(gpr, form)
    if not act.suits(gpr):
        return ask(request, replace(question, closed=_closed(gpr, act)))
    if not form.is_bound or is_preview(request):
        return ask(request, question)
    if not form.is_valid():
        return ask(request, question, status=UNPROCESSABLE)
    given = dict(form.cleaned_data)
    version = given.pop("version")
    try:
        if version is None:
            raise StaleState(NO_VERSION)
        act.do(gpr=gpr_for(request.user, pk, write=True, version=version), actor=request.user, now=request.now, **given)
    except (NotFound, NotAllowed):
        raise
    except EgsError as error:
        gpr = gpr_for(request.user, pk, write=True)
        again = question_of(gpr, rebound(form, version=gpr.version, until=""))
        if not act.suits(gpr):
            return ask(request, replace(again, closed=_closed(gpr, act)))
        if ways_out is not None:
            again = replace(again, ways_out=ways_out(gpr, error))
        return refused(request, again, error)
    gpr.refresh_from_db()
    text = act.done.format(name=gpr.name, priority=gpr.priority)
    return done(request, text, back_url=question.back_url, topics=topics)


def closed(request: PageRequest, gpr: Gpr, what: str, *, shell: Shell) -> HttpResponse:
    """The answer of a page that is no question, where its GPR has moved on."""
    back_url = reverse("gpr", args=[gpr.pk])
    question = Question(f"{gpr.name} cannot be {what} any more", "", "", "", back_url, forms.Form(), shell)
    return ask(request, replace(question, closed=_by_now(gpr)))


def _closed(gpr: Gpr, act: GprAct) -> str:
    return f"There is nothing to {act.name} any more. {_by_now(gpr)}"


def _by_now(gpr: Gpr) -> str:
    return f"{gpr.name} is “{words.STATE_WORDS[gpr.state]}” by now. {way_out(gpr.state)}"
