"""Computes how far a running GPR can be extended without harm to others."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from accounts.models import User
from core.errors import Conflict
from core.words import utc
from gpr.allocation.live import snapshot_load
from gpr.allocation.snapshot import at, box_end_for, nodes_free_at, with_running_end
from gpr.followers.selectors import starts_after
from gpr.models import Gpr
from gpr.requests.selectors import names_visible_to
from inventory.models import MaintenanceWindow, Node, ReservationState
from inventory.selectors import maintenance_over
from planner.engine import plan
from planner.plan import Harm, Plan, harms_of
from planner.snapshot import Snapshot

WHY = {
    Harm.LATE: "Others have been promised these GPUs from its end on.",
    Harm.EVICTED: "Others are entitled to these GPUs from its end on, so it would evict a request.",
}
# Each trial makes a whole plan under the plan lock, so one request may cause only a few.
TRIALS_MAX = 6


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Tells the reason why a box cannot end later: harm to the request `next_id`, or a maintenance at `closed_at`."""

    harm: Harm | None
    next_id: str = ""
    closed_at: datetime | None = None


class ExtensionTrial:
    """Plans later ends on a copy of the current state."""

    def __init__(self, gpr: Gpr, *, now: datetime) -> None:
        self.gpr, self.now = gpr, now

    @cached_property
    def _snapshot(self) -> Snapshot:
        return snapshot_load(now=self.now).snapshot

    @cached_property
    def _as_it_is(self) -> Plan:
        return plan(self._snapshot)

    def obstacle(self, ends_at: datetime) -> Obstacle | None:
        """Returns the first request that this end would delay or evict, or a maintenance."""
        window = maintenance_before(self.gpr, nodes_free_at(ends_at), self.now)
        if window is not None:
            return Obstacle(None, closed_at=window.starts_at)
        longer = with_running_end(self._snapshot, str(self.gpr.pk), math.ceil(nodes_free_at(ends_at).timestamp()))
        hurt = [Obstacle(*each) for each in harms_of(self._as_it_is, plan(longer))]
        # A follower of its own comes last: its owner can file that one again.
        return next((each for each in hurt if not starts_after(each.next_id, self.gpr)), hurt[0] if hurt else None)

    def latest_end(self, refused_at: datetime, obstacle: Obstacle) -> tuple[datetime, Obstacle]:
        """Returns the latest end found without an obstacle, and the obstacle of a later one."""
        ends_at = self.gpr.ends_at or refused_at
        can_s, cannot_s = 0, math.floor((refused_at - ends_at).total_seconds())
        # Likely limits first, since two plans confirm one to the second; then bisection.
        for _ in range(TRIALS_MAX):
            if cannot_s - can_s <= 1:
                break
            likely = (math.floor((moment - ends_at).total_seconds()) for moment in self._likely_ends(obstacle))
            trials = (trial_s for limit_s in likely for trial_s in (limit_s, limit_s + 1) if can_s < trial_s < cannot_s)
            trial_s = next(trials, (can_s + cannot_s) // 2)
            found = self.obstacle(ends_at + timedelta(seconds=trial_s))
            if found is None:
                can_s = trial_s
            else:
                cannot_s, obstacle = trial_s, found
        return ends_at + timedelta(seconds=can_s), obstacle

    def _likely_ends(self, obstacle: Obstacle) -> Iterator[datetime]:
        if obstacle.closed_at is not None:
            yield box_end_for(obstacle.closed_at)
        request = next((request for request in self._snapshot.queue if request.id == obstacle.next_id), None)
        if request is not None and request.slot is not None:
            yield box_end_for(at(request.slot.start_s))
        if request is not None and request.promise_s is not None:
            yield box_end_for(at(request.promise_s))


def refuse_harmful_extension(gpr: Gpr, *, ends_at: datetime, actor: User, now: datetime) -> None:
    """Raises Conflict with `max_ends_at` and, if visible to the actor, `next_id`."""
    trial = ExtensionTrial(gpr, now=now)
    obstacle = trial.obstacle(ends_at)
    if obstacle is None:
        return
    max_ends_at, first = trial.latest_end(ends_at, obstacle)
    names = names_visible_to(actor, {first.next_id, obstacle.next_id})
    name = names.get(first.next_id)
    is_followed = [each.harm is not None and starts_after(each.next_id, gpr) for each in (obstacle, first)]
    why = (
        f"{names.get(obstacle.next_id, 'Another request')} starts after it and has been promised a start."
        if is_followed[0]
        else _why(obstacle)
    )
    raise Conflict(
        f"{why} {_room(gpr, max_ends_at, first, name or 'another request', is_followed=is_followed[1])}",
        max_ends_at=max_ends_at,
        next_id=first.next_id if name else None,
    )


def maintenance_before(gpr: Gpr, ends_at: datetime, now: datetime) -> MaintenanceWindow | None:
    """Returns a maintenance of one of its nodes that starts before `ends_at`."""
    held = gpr.reservations.filter(state=ReservationState.HELD)
    return maintenance_over(Node.objects.filter(reservations__in=held).only("cluster"), starts_at=now, ends_at=ends_at).first()


def _why(obstacle: Obstacle) -> str:
    if obstacle.harm is not None:
        return WHY[obstacle.harm]
    return f"A node of it is closed for maintenance from {utc(obstacle.closed_at)} on." if obstacle.closed_at else ""


def _room(gpr: Gpr, max_ends_at: datetime, obstacle: Obstacle, name: str, *, is_followed: bool) -> str:
    is_next = f"{name} is next" if obstacle.next_id else "its nodes are closed"
    way_out = f"cancel {name} and file it again afterwards" if is_followed else "file a new request"
    if max_ends_at == gpr.ends_at:
        return f"It cannot end later: {is_next}. {way_out[0].upper()}{way_out[1:]}."
    return f"It can end at {utc(max_ends_at)} at the latest, then {is_next}. Extend it by less, or {way_out}."
