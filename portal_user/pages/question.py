from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from django import forms
from django.conf import settings
from django.urls import reverse

from core.errors import EgsError
from core.pages import words
from gpr.idle.selectors import timeout_of
from gpr.models import Gpr, GprState
from inventory.models import ReservationState, ReservedGpu
from portal_shared.access import PageRequest
from portal_shared.forms.questions import Question, QuestionLink
from portal_shared.parts.gpr_box import ask_of
from portal_shared.shell import Shell


def release_question(gpr: Gpr, request: PageRequest) -> dict[str, object]:
    gpus = words.plural(ReservedGpu.objects.filter(reservation__gpr=gpr, state=ReservationState.HELD).count(), "GPU")
    left = (
        f" {words.duration((gpr.ends_at - request.now).total_seconds())} of the window are given up"
        if gpr.ends_at
        else " The rest of its time is given up"
    )
    exit_time = words.duration(settings.EGS_EXIT_ALLOWANCE_S)
    return {
        "title": f"Release {gpr.name} now?",
        "text": f"{words.plural(gpr.nodes, 'node')} ({gpus}) leave {gpr.slice.name}.{left} and cannot be taken back.",
        "points": (
            "Pods on these nodes are asked to stop, and killed if they do not.",
            f"Exit checks and cleaning take about {exit_time}.",
            "Others may start earlier on the freed nodes.",
        ),
        "verb": f"Release {gpus}",
    }


def keep_question(gpr: Gpr, request: PageRequest) -> dict[str, object]:
    timeout = words.duration_exact(timeout_of(gpr))
    return {
        "title": f"Keep {gpr.name}?",
        "text": f"Its GPUs do nothing. It is released when they still do nothing {timeout} from now.",
        "verb": f"Keep {gpr.name}",
        "keep": "Leave it as it is",
        "is_plain": True,
    }


def cancel_question(gpr: Gpr, request: PageRequest) -> dict[str, object]:
    is_planned = gpr.state == GprState.QUEUED and gpr.planned_start_at
    lost = (
        f" It was to start at {words.moment(gpr.planned_start_at, now=request.now, zone=request.zone)}."
        if is_planned and gpr.planned_start_at
        else ""
    )
    return {
        "title": f"Cancel {gpr.name}?",
        "text": f"The request for {ask_of(gpr)} leaves the queue, and its promised start with it.{lost}",
        "points": ("A new request gets a new place and a new promise.",),
        "verb": "Cancel the request",
        "keep": "Keep waiting",
    }


def approve_question(gpr: Gpr, request: PageRequest) -> dict[str, object]:
    return {
        "title": f"Approve {gpr.name}?",
        "text": f"{gpr.owner.name} asks for {ask_of(gpr)}. It joins the queue, and its promise counts from now.",
        "points": tuple(gpr.approval_reasons),
        "verb": "Approve the request",
        "keep": "Decide later",
        "is_plain": True,
    }


def reject_question(gpr: Gpr, request: PageRequest) -> dict[str, object]:
    return {
        "title": f"Reject {gpr.name}?",
        "text": f"{gpr.owner.name} asks for {ask_of(gpr)}, and reads the reason.",
        "points": tuple(gpr.approval_reasons),
        "verb": "Reject the request",
        "keep": "Decide later",
    }


def extend_question(gpr: Gpr, request: PageRequest) -> dict[str, object]:
    ends = f"It ends at {words.moment(gpr.ends_at, now=request.now, zone=request.zone)}. " if gpr.ends_at else ""
    return {
        "title": f"Extend {gpr.name}?",
        "text": f"{ends}It can end later if nobody else has been promised its GPUs from then on.",
        "verb": "Extend the window",
        "keep": "Keep the end",
        "is_plain": True,
    }


def extension_ways(request: PageRequest, gpr: Gpr, error: EgsError) -> tuple[QuestionLink, ...]:
    """Returns alternatives after a refusal: the latest possible end, and a new request."""
    again = QuestionLink("File another request", f"{reverse('gpr-create', args=[gpr.slice.name])}?from={gpr.pk}")
    max_ends_at: datetime | None = error.extra.get("max_ends_at")
    if max_ends_at is None or max_ends_at == gpr.ends_at:
        return (again,)
    latest = words.moment(max_ends_at, now=request.now, zone=request.zone)
    return (QuestionLink(f"Extend to {latest}", field="until", value=max_ends_at.isoformat()), again)


Ask = Callable[[Gpr, PageRequest], dict[str, object]]


def question(request: PageRequest, gpr: Gpr, ask: Ask, form: forms.Form, *, name: str) -> Question:
    asked: dict[str, object] = {"points": (), "keep": "Keep it", **ask(gpr, request)}
    return Question(
        **asked,  # type: ignore[arg-type]
        url=reverse(name, args=[gpr.pk]),
        back_url=reverse("gpr", args=[gpr.pk]),
        form=form,
        shell=Shell.user(request, page="requests", slice_=gpr.slice),
    )
