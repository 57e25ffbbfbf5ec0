"""Previews administrators' decisions: plans a changed queue and compares the starts with the stored ones."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from datetime import datetime

from django.db.models import Q

from gpr.allocation.live import snapshot_load
from gpr.allocation.rows import gprs_by_id, plan_summaries
from gpr.allocation.snapshot import at, with_newcomer
from gpr.evictions.restarts import snapshot_with_requeued
from gpr.models import Gpr, GprState
from gpr.queue.moves import MoveTo, move_target, place_of
from gpr.requests.editing import spec_of
from gpr.requests.selectors import start_positions
from gpr.requests.spec import approval_reasons
from inventory.models import MaintenanceWindow, Reservation
from inventory.selectors import boxes_reaching_into
from planner.causes import Cause, victims_of
from planner.engine import plan
from planner.plan import Plan
from planner.snapshot import Moved, Snapshot

# Smaller changes of a start are not told.
NOTED_S = 60


@dataclass(frozen=True, slots=True)
class StartChange:
    gpr: Gpr
    old_start_at: datetime | None  # None: no planned start
    new_start_at: datetime | None

    @property
    def later_s(self) -> float:
        """Negative when it would start earlier."""
        if self.old_start_at is None or self.new_start_at is None:
            return 0.0
        return (self.new_start_at - self.old_start_at).total_seconds()


@dataclass(frozen=True, slots=True)
class DecisionPreview:
    """Positions count planned starts, from 1; None: no planned start."""

    own: StartChange
    old_position: int | None
    new_position: int | None
    others: tuple[StartChange, ...] = ()  # the greatest change first
    evicted: tuple[Gpr, ...] = ()  # those that would get an eviction notice
    waits: bool = True  # whether the GPR would be in the queue

    @property
    def noted(self) -> tuple[StartChange, ...]:
        return tuple(change for change in self.others if abs(change.later_s) >= NOTED_S)

    @property
    def earlier(self) -> tuple[StartChange, ...]:
        return tuple(change for change in self.noted if change.later_s < 0)

    @property
    def later(self) -> tuple[StartChange, ...]:
        return tuple(change for change in self.noted if change.later_s > 0)


@dataclass(frozen=True, slots=True)
class MaintenancePreview:
    moved: tuple[StartChange, ...]  # promises that would move, the longest delay first
    boxes: tuple[Reservation, ...]  # reservations that last beyond its start


def preview_maintenance(*, window: MaintenanceWindow, now: datetime) -> MaintenancePreview:
    """Previews a window that is not announced yet."""
    loaded = snapshot_load(now=now)
    cause = (Cause.MAINTENANCE, str(window.pk))
    moves = ((p.id, p.moved) for p in plan(loaded.with_maintenance(window)).placements if p.moved is not None)
    due = {id_: m for id_, m in moves if (m.cause, m.cause_id) == cause}
    gprs = gprs_by_id(due)
    moved = [StartChange(gprs[id_], at(m.old_s), at(m.new_s)) for id_, m in due.items() if id_ in gprs]
    return MaintenancePreview(
        moved=tuple(sorted(moved, key=lambda change: (-change.later_s, change.gpr.name))),
        boxes=tuple(boxes_reaching_into([window], now=now)[window.pk]),
    )


def preview_priority(*, gpr: Gpr, priority: int, now: datetime) -> DecisionPreview:
    # `gpr_set_priority` does the same: approval may become unnecessary, and an administrator's move ends.
    changed = copy.copy(gpr)
    changed.priority = priority
    if gpr.state == GprState.PENDING_APPROVAL:
        is_held = priority == gpr.priority or approval_reasons(spec_of(gpr, priority=priority), now=now)
        return _unchanged(gpr) if is_held else preview_approval(gpr=changed, now=now)
    loaded = snapshot_load(now=now)
    if (own := loaded.queued(gpr)) is None:
        return _unchanged(gpr)
    if priority == gpr.priority:
        return _compare(gpr, loaded.snapshot)
    return _compare(gpr, with_newcomer(loaded.snapshot, replace(own, priority=priority, place=None), gpr.queued_at or now))


def preview_move(*, gpr: Gpr, to: MoveTo, now: datetime) -> DecisionPreview:
    """Raises as `gpr_move`."""
    target, loaded = move_target(gpr, to), snapshot_load(now=now)
    queue = loaded.snapshot.queue
    if (stays := target.neighbor) is not None:
        queue = tuple(replace(request, place=place_of(stays)) if request.id == str(stays.pk) else request for request in queue)
    if (own := loaded.queued(gpr)) is None:
        return _unchanged(gpr)
    changed = with_newcomer(replace(loaded.snapshot, queue=queue), replace(own, place=target.place), target.at)
    return _compare(gpr, replace(changed, moved=Moved(str(gpr.pk), target.moved_behind)))


def preview_approval(*, gpr: Gpr, now: datetime) -> DecisionPreview:
    loaded = snapshot_load(now=now, with_memory=True)
    request = loaded.candidate(gpr, gpr.clusters.all())
    return _compare(gpr, with_newcomer(loaded.snapshot, request, gpr.queued_at or now))


def preview_withdrawal(*, gpr: Gpr, now: datetime) -> DecisionPreview:
    """Previews a rejection or a cancellation."""
    if gpr.state != GprState.QUEUED:
        return _unchanged(gpr)
    loaded = snapshot_load(now=now)
    queue = tuple(request for request in loaded.snapshot.queue if request.id != str(gpr.pk))
    return _compare(gpr, replace(loaded.snapshot, queue=queue))


def preview_eviction(*, gpr: Gpr, now: datetime) -> DecisionPreview:
    loaded = snapshot_load(now=now)
    return _compare(gpr, snapshot_with_requeued(loaded.snapshot, loaded, gpr, ends_at=now, now=now))


def _unchanged(gpr: Gpr) -> DecisionPreview:
    return DecisionPreview(StartChange(gpr, None, None), None, None, waits=False)


def _compare(gpr: Gpr, changed: Snapshot) -> DecisionPreview:
    own = StartChange(gpr, gpr.planned_start_at, None)
    others: dict[str, tuple[datetime | None, datetime | None]] = {}
    after, before = plan(changed), plan_summaries()
    for placement in after.placements:
        start_at = at(placement.start_s) if placement.start_s is not None else None
        if placement.id == str(gpr.pk):
            own = replace(own, new_start_at=start_at)
        elif placement.id in before and before[placement.id].planned_start_at != start_at:
            others[placement.id] = before[placement.id].planned_start_at, start_at
    gprs = gprs_by_id(others)
    changes = (StartChange(gprs[id_], *starts) for id_, starts in others.items() if id_ in gprs)
    moved = sorted((change for change in changes if change.later_s), key=lambda change: (-abs(change.later_s), change.gpr.name))
    waits = any(placement.id == str(gpr.pk) for placement in after.placements)
    return DecisionPreview(own, start_positions([gpr]).get(gpr.pk), _position_in(after, gpr), tuple(moved), _evicted(after), waits)


def _position_in(after: Plan, gpr: Gpr) -> int | None:
    # `start_positions` counts in the same order.
    starts = {placement.id: placement.start_s for placement in after.placements if placement.start_s is not None}
    own_s = starts.get(str(gpr.pk))
    if own_s is None:
        return None
    equals = Gpr.objects.filter(pk__in=[id_ for id_, start_s in starts.items() if start_s == own_s])
    filed_first = Q(created_at__lt=gpr.created_at) | Q(created_at=gpr.created_at, pk__lt=gpr.pk)
    return 1 + sum(start_s < own_s for start_s in starts.values()) + equals.filter(filed_first).count()


def _evicted(after: Plan) -> tuple[Gpr, ...]:
    ids = {victim.id for victim in victims_of(after.evictions)}
    return tuple(Gpr.objects.filter(pk__in=ids).select_related("slice").order_by("name", "pk")) if ids else ()
