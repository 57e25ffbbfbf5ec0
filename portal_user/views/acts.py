"""Release, extend, cancel: each asks first, in a dialog, or without script on a page of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from egs.errors import EgsError, InvalidInput, NotAllowed, NotFound, StaleState
from egs.pages.access import PageRequest, needs_write, signed_in
from egs.pages.asking import UNPROCESSABLE, put_question
from egs.pages.toasts import done
from gpr.models import Gpr, GprState
from gpr.selectors import gpr_for
from gpr.services.ending import gpr_extend, gpr_release
from gpr.services.requests import gpr_cancel
from portal_user.forms import ExtendForm, VersionForm
from portal_user.pages.question import Ask, cancel_question, extend_question, question, release_question

S = GprState
TOPICS = ("gpr", "plan")


@dataclass(frozen=True, slots=True)
class Act:
    """`do` takes the fields of the form, but for the version, by name. `done`: what came of it."""

    url_name: str
    ask: Ask
    form: type[VersionForm]
    do: Callable[..., None]
    done: str


RELEASE = Act("gpr-release", release_question, VersionForm, gpr_release, "{name} is released; its nodes are being taken back")
CANCEL = Act("gpr-delete", cancel_question, VersionForm, gpr_cancel, "{name} is canceled")
EXTEND = Act("gpr-extend", extend_question, ExtendForm, gpr_extend, "{name} ends later")
# What a form calls otherwise than the service.
SERVICE_NAMES = {"extra": "extra_s"}


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def release(request: PageRequest, pk: UUID) -> HttpResponse:
    return _asked(request, pk, RELEASE)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def extend(request: PageRequest, pk: UUID) -> HttpResponse:
    return _asked(request, pk, EXTEND)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def delete(request: PageRequest, pk: UUID) -> HttpResponse:
    return _asked(request, pk, CANCEL)


def _asked(request: PageRequest, pk: UUID, act: Act) -> HttpResponse:
    gpr = gpr_for(request.user, pk, write=True)
    if request.method == "GET":
        return _ask(request, gpr, act, act.form(initial={"version": gpr.version}))
    form = act.form(request.POST)
    if not form.is_valid():
        return _ask(request, gpr, act, form, status=UNPROCESSABLE)
    given: dict[str, Any] = {SERVICE_NAMES.get(name, name): value for name, value in form.cleaned_data.items()}
    version = given.pop("version")
    try:
        if version is None:
            raise StaleState("The form does not say which version it is about.")
        gpr = gpr_for(request.user, pk, write=True, version=version)
        act.do(gpr=gpr, actor=request.user, now=request.now, **given)
    except (NotFound, NotAllowed):
        raise
    except EgsError as error:
        return _refused(request, pk, act, form, error)
    return done(request, act.done.format(name=gpr.name), back_url=reverse("gpr", args=[gpr.pk]), topics=TOPICS)


def _ask(
    request: PageRequest, gpr: Gpr, act: Act, form: VersionForm, *, status: int = 200, refused: EgsError | None = None
) -> HttpResponse:
    asked = question(request, gpr, act.ask, form, name=act.url_name)
    asked = asked.refused_by(refused) if refused else asked
    return put_question(request, "user", {"question": asked, "shell": asked.shell, "now": request.now}, status=status)


def _refused(request: PageRequest, pk: UUID, act: Act, form: VersionForm, error: EgsError) -> HttpResponse:
    """The question again, about the GPR as it is now: what was typed stays, and sending it again is a new decision."""
    gpr = gpr_for(request.user, pk, write=True)
    data = request.POST.copy()
    data["version"] = str(gpr.version)
    anew = act.form(data)
    if isinstance(error, InvalidInput):
        anew.is_valid()
        anew.refuse(error)
        return _ask(request, gpr, act, anew, status=UNPROCESSABLE)
    status = UNPROCESSABLE if error.status == EgsError.status else error.status
    return _ask(request, gpr, act, anew, status=status, refused=error)
