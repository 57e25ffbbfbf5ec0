"""Releases, extends and cancels a GPR, or decides on it, each after a question."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from uuid import UUID

from django import forms
from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from accounts.models import User
from accounts.policy import Verb, may
from gpr.approvals.services import gpr_approve, gpr_reject
from gpr.idle.services import gpr_keep
from gpr.models import Gpr, GprState
from gpr.requests.editing import gpr_cancel
from gpr.requests.ending import gpr_extend, gpr_release
from portal_shared.access import PageRequest, needs_write, signed_in
from portal_shared.forms.questions import GprAction, Question, decide_on
from portal_user.forms import ExtendForm, RejectionForm, VersionForm
from portal_user.pages.question import (
    Ask,
    approve_question,
    cancel_question,
    extend_question,
    extension_ways,
    keep_question,
    question,
    reject_question,
    release_question,
)

S = GprState
TOPICS = ("gpr", "plan")
WAITS, HOLDS = frozenset({S.QUEUED, S.PENDING_APPROVAL}), frozenset({S.PROVISIONING, S.ACTIVE})


def _extend(*, gpr: Gpr, extra: int, until: datetime | None, actor: User, now: datetime) -> None:
    extra_s = math.floor((until - gpr.ends_at).total_seconds()) if until and gpr.ends_at else extra
    gpr_extend(gpr=gpr, extra_s=extra_s, actor=actor, now=now)


@dataclass(frozen=True, slots=True)
class UserAction:
    of: GprAction
    url_name: str
    ask: Ask


AWAITS = frozenset({S.PENDING_APPROVAL})
APPROVED, REJECTED = "{name} is in the queue", "{name} is rejected"
APPROVE = UserAction(GprAction("approve", AWAITS, VersionForm, gpr_approve, APPROVED, Verb.APPROVE), "gpr-approve", approve_question)
REJECT = UserAction(GprAction("reject", AWAITS, RejectionForm, gpr_reject, REJECTED, Verb.APPROVE), "gpr-reject", reject_question)
RELEASED = "{name} is released; its nodes are being taken back"
RELEASE = UserAction(GprAction("release", HOLDS, VersionForm, gpr_release, RELEASED), "gpr-release", release_question)
KEEP = UserAction(GprAction("keep", frozenset({S.ACTIVE}), VersionForm, gpr_keep, "{name} is kept"), "gpr-keep", keep_question)
CANCEL = UserAction(GprAction("cancel", WAITS, VersionForm, gpr_cancel, "{name} is canceled"), "gpr-delete", cancel_question)
EXTEND = UserAction(GprAction("extend", frozenset({S.ACTIVE}), ExtendForm, _extend, "{name} ends later"), "gpr-extend", extend_question)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def release(request: PageRequest, pk: UUID) -> HttpResponse:
    return _asked(request, pk, RELEASE)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def keep(request: PageRequest, pk: UUID) -> HttpResponse:
    return _asked(request, pk, KEEP)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def extend(request: PageRequest, pk: UUID) -> HttpResponse:
    return _asked(request, pk, EXTEND)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def approve(request: PageRequest, pk: UUID) -> HttpResponse:
    return _asked(request, pk, APPROVE)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def reject(request: PageRequest, pk: UUID) -> HttpResponse:
    return _asked(request, pk, REJECT)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def delete(request: PageRequest, pk: UUID) -> HttpResponse:
    return _asked(request, pk, CANCEL)


def _asked(request: PageRequest, pk: UUID, action: UserAction) -> HttpResponse:
    def question_of(gpr: Gpr, form: forms.Form) -> Question:
        asked = question(request, gpr, action.ask, form, name=action.url_name)
        # A deputy need not see the request's page.
        return asked if may(request.user, Verb.SEE, gpr) else replace(asked, back_url=reverse("approvals"))

    ways_out = partial(extension_ways, request) if action is EXTEND else None
    return decide_on(request, pk, action.of, question_of, topics=TOPICS, ways_out=ways_out)
