"""Says in one sentence how a GPR ended or why its promise moved."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from django.db.models import Q

from core.pages import words
from gpr.models import ENDED, Gpr, GprState
from journal.models import Event
from planner.causes import Cause
from portal_shared.parts.gpr_box import late_s
from portal_shared.parts.promises import CAUSE_WORDS

S = GprState


def events_for(gprs: Iterable[Gpr]) -> dict[UUID, Event]:
    """Loads how each GPR ended, or why its promise moved. Runs one query."""
    ids = [gpr.pk for gpr in gprs if gpr.state in ENDED or late_s(gpr) >= words.MINUTE_S]
    if not ids:
        return {}
    told = Q(kind="promise.moved") | Q(kind="gpr.transition", new__in=[S.EXITING, S.CANCELED, S.REJECTED])
    return {
        event.gpr_id: event for event in Event.objects.filter(told, gpr_id__in=ids).select_related("actor").order_by("id") if event.gpr_id
    }


def lateness(gpr: Gpr, event: Event | None) -> str:
    """Returns e.g. `12 min late: a request before it gave its nodes back late.`"""
    late = words.late(late_s(gpr)).removeprefix("+")
    if not late:
        return ""
    cause = CAUSE_WORDS.get(Cause(event.reason)) if event and event.kind == "promise.moved" and event.reason in set(Cause) else None
    return f"{late} late: {cause}." if cause else f"{late} late."
