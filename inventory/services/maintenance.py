from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction

from accounts.models import User
from core.errors import Conflict, IllegalTransition, InvalidInput
from core.words import duration_exact, utc
from inventory.models import Cluster, MaintenanceState, MaintenanceWindow, Node
from journal.hints import TICK, hint
from journal.models import Severity
from journal.services import event_record

LENGTH_MAX = timedelta(days=90)
AHEAD_MAX = timedelta(days=366)
CLOCK_SLACK = timedelta(minutes=1)


def window_draft(
    *, cluster: Cluster, node: Node | None, starts_at: datetime, ends_at: datetime, reason: str, now: datetime
) -> MaintenanceWindow:
    """Returns a window that is not saved yet. Raises InvalidInput."""
    errors: dict[str, list[str]] = {}
    if not now - CLOCK_SLACK <= starts_at <= now + AHEAD_MAX:
        errors["starts_at"] = ["Must lie between now and a year from now."]
    if not timedelta(0) < ends_at - starts_at <= LENGTH_MAX:
        errors["ends_at"] = [f"Must lie after the start, by {duration_exact(LENGTH_MAX.total_seconds())} at most."]
    if errors:
        raise InvalidInput(errors)
    return MaintenanceWindow(cluster=cluster, node=node, starts_at=starts_at, ends_at=ends_at, reason=reason[:200], created_at=now)


@transaction.atomic
def window_announce(*, window: MaintenanceWindow, actor: User, now: datetime) -> None:
    """Raises Conflict for an overlap with another window of the same place."""
    # With the nodes locked, a box that starts at the same time either sees the window or is seen by it.
    nodes = Node.objects.filter(cluster=window.cluster)
    list((nodes.filter(pk=window.node_id) if window.node_id else nodes).select_for_update().order_by("pk"))
    _refuse_overlap(window)
    window.save(force_insert=True)
    text = f"{window.place} is closed for maintenance from {utc(window.starts_at)} to {utc(window.ends_at)}: {window.reason}"
    _record_event("maintenance.announced", text, window, actor, now, Severity.WARNING)


@transaction.atomic
def window_cancel(*, window: MaintenanceWindow, actor: User, now: datetime) -> None:
    """Raises IllegalTransition when it is over or canceled."""
    rows = MaintenanceWindow.objects.filter(pk=window.pk, canceled_at=None, ends_at__gt=now)
    if not rows.update(canceled_at=now):
        state = MaintenanceState.CANCELED if window.canceled_at else MaintenanceState.OVER
        raise IllegalTransition(f"This maintenance is {state.label.lower()}; there is nothing left to cancel.")
    window.canceled_at = now
    _record_event(
        "maintenance.canceled", f"The maintenance of {window.place[0].lower()}{window.place[1:]} was canceled.", window, actor, now
    )


def _refuse_overlap(window: MaintenanceWindow) -> None:
    same = MaintenanceWindow.objects.filter(cluster=window.cluster_id, node=window.node_id, canceled_at=None)
    other = same.filter(starts_at__lt=window.ends_at, ends_at__gt=window.starts_at).select_related("cluster", "node").first()
    if other is not None:
        raise Conflict(
            f"{other.place} is closed already from {utc(other.starts_at)} to {utc(other.ends_at)}: {other.reason} "
            "Choose another time, or cancel that one first."
        )


def _record_event(kind: str, text: str, window: MaintenanceWindow, actor: User, now: datetime, severity: Severity = Severity.INFO) -> None:
    event_record(kind=kind, message=text, at=now, actor=actor, severity=severity, node_id=window.node_id, cluster_id=window.cluster_id)
    hint(TICK)
