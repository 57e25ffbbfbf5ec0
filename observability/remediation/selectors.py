"""Reads of cases, for administrators and auditors."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db.models import Count, Prefetch, QuerySet

from accounts.models import User
from accounts.policy import visible_rows
from core.rest.references import one_by_id
from inventory.models import Node, Repair, Reservation, ReservationState, StepResult
from inventory.selectors import with_holders
from inventory.services.repairs import repair_steps, why_no_repair
from journal.models import Event
from observability.models import FaultCount, RemediationCase
from observability.remediation.faults import COUNTS, Action
from protocol.agents.events import Outcome
from protocol.nodes.steps import EXIT_CHECKS, EntryStep, step_name

LOG_BACK: Final = timedelta(days=7)
LOG_EVENTS_MAX, LOG_COUNTS_MAX, LOG_STEPS_MAX, LOG_STEP_CHARS = 200, 200, 20, 4000
CHECKS: Final = (*EntryStep, *EXIT_CHECKS)


def cases_visible_to(actor: User) -> QuerySet[RemediationCase]:
    """Adds `repair_count`."""
    rows: QuerySet[Any] = RemediationCase.objects.select_related("node__cluster", "closed_by", "approved_by")
    return visible_rows(rows.annotate(repair_count=Count("repairs")), actor)


def case_for(actor: User, case_id: str | UUID) -> RemediationCase:
    """Loads the case with its repairs and their steps. Raises NotFound."""
    steps = Prefetch("steps", queryset=StepResult.objects.prefetch_related("results").order_by("started_at", "pk"))
    repairs = Prefetch("repairs", queryset=Repair.objects.select_related("begun_by").prefetch_related(steps).order_by("begun_at", "pk"))
    return one_by_id(cases_visible_to(actor).prefetch_related(repairs), case_id, what="case")


@dataclass(frozen=True, slots=True)
class RepairPreview:
    """Says what an approval would do."""

    steps: list[str]
    boxes: list[Reservation]  # which still hold the node
    why_not_now: str  # "": it begins at once


def preview_of(case: RemediationCase, action: str) -> RepairPreview:
    held = with_holders(Reservation.objects.filter(node=case.node_id, state=ReservationState.HELD)).order_by("ends_at", "pk")
    step = "" if action in (Action.CHECK, Action.SUPPORT) else action
    return RepairPreview([step_name(each) for each in repair_steps(case.node, step)], list(held), why_no_repair(case.node))


def log_text(case: RemediationCase, *, now: datetime) -> str:
    """Writes the log for the vendor. It names no tenant."""
    node = case.node
    return "\n".join(
        [
            f"Node {node.name} ({node.node_type or 'no type'}, {node.gpu_count} × {node.shape}), UID {node.uid}",
            f"Written at {_utc(now)}",
            "",
            f"Set aside at {_utc(case.opened_at)}: {case.why}",
            *_gpus(node),
            "",
            "Bad conditions of the node at present",
            *([_condition(each) for each in node.conditions] or ["none"]),
            "",
            "Faults",
            *([_fault(each) for each in case.evidence] or ["none"]),
            "",
            f"Counts since {_utc(case.opened_at - LOG_BACK)}, when one changed",
            *(_counts(case) or ["none"]),
            "",
            "Failed checks",
            *(_failed_checks(case) or ["none"]),
            "",
            "Repairs and checks after them",
            *(_repairs(case) or ["none"]),
            "",
            "Events of the node",
            *(_events(case) or ["none"]),
            "",
        ]
    )


def _condition(told: dict[str, Any]) -> str:
    why = ": ".join(text for text in (told["reason"], told["message"]) if text)
    return f"{told['since_at'] or 'unknown time'} {told['type']} is {told['status']}" + (f" ({why})" if why else "")


def _fault(told: dict[str, Any]) -> str:
    return f"{told['at']} GPU {told['gpu']} {told['uuid']}: {told['text']} (before: {told['before']})"


def _gpus(node: Node) -> list[str]:
    rows = node.gpus.filter(gone_at=None).order_by("index")
    return [f"GPU {gpu.index}: {gpu.model}, {gpu.memory_gib} GiB, {gpu.hardware_uuid or 'UUID not read yet'}" for gpu in rows]


def _counts(case: RemediationCase) -> list[str]:
    rows = FaultCount.objects.filter(gpu__node=case.node_id, at__gte=case.opened_at - LOG_BACK).select_related("gpu").order_by("-at")
    told = [
        f"{_utc(row.at)} GPU {row.gpu.index}: " + ", ".join(f"{name} {getattr(row, name)}" for name in COUNTS)
        for row in rows[:LOG_COUNTS_MAX]
        if any(getattr(row, name) for name in COUNTS)
    ]
    return told[::-1]


def _failed_checks(case: RemediationCase) -> list[str]:
    rows = StepResult.objects.filter(reservation__node=case.node_id, step__in=CHECKS, ended_at__gte=case.opened_at - LOG_BACK)
    failed = rows.filter(outcome=Outcome.FAILED, blames_node=True).order_by("-ended_at")[:LOG_STEPS_MAX]
    return [line for step in list(failed)[::-1] for line in _step(step)]


def _step(step: StepResult) -> list[str]:
    head = f"{_utc(step.ended_at)} {step_name(step.step)}, attempt {step.attempt}: {step.outcome}"
    return [head, *(f"  {line}" for line in step.log[:LOG_STEP_CHARS].splitlines())]


def _repairs(case: RemediationCase) -> list[str]:
    lines = []
    for repair in case.repairs.all():
        what = step_name(repair.action) if repair.action else "Checks"
        end = "passed" if repair.passed_at else repair.failure or ("given up" if repair.released_at else "not over yet")
        lines.append(f"{_utc(repair.begun_at)} {what}: {end}")
        for step in repair.steps.all():
            lines += [f"  {line}" for line in _step(step)]
    return lines


def _events(case: RemediationCase) -> list[str]:
    """Returns Events of no request, since the others name tenants."""
    rows = Event.objects.filter(node_id=case.node_id, gpr_id=None, slice_id=None, at__gte=case.opened_at - LOG_BACK)
    rows = rows.exclude(kind="node.cordoned")  # a replacement's reason names its request; the case has its own words
    return [f"{_utc(event.at)} {event.kind}: {event.message}" for event in rows.order_by("-id")[:LOG_EVENTS_MAX]][::-1]


def _utc(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
