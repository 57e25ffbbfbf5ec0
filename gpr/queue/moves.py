"""Moves by administrators: a GPR gets a fixed place among those of its priority, whatever its project uses later."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import models, transaction
from django.db.models import QuerySet

from accounts.models import User
from core.errors import Conflict, IllegalTransition
from gpr.allocation.stored_plan import plan_lock, plan_turn, replan
from gpr.events import gpr_event_record
from gpr.models import Gpr, GprState
from gpr.requests.editing import gpr_update
from gpr.requests.selectors import QUEUE_ORDER, TURN, before, behind
from journal.hints import TICK, hint
from planner.snapshot import Moved, Place

# Beyond every fair share, so that a GPR at the front or back stays there.
FAR_SHARE: Final = 1000
# Leaves room between two neighbors for later moves.
GAP: Final = timedelta(seconds=1)


class MoveTo(models.TextChoices):
    UP = "up", "One place up"
    DOWN = "down", "One place down"
    FIRST = "first", "To the front"
    LAST = "last", "To the back"


MOVED_WORDS = {MoveTo.UP: "moved up", MoveTo.DOWN: "moved down", MoveTo.FIRST: "moved to the front", MoveTo.LAST: "moved to the back"}


@dataclass(frozen=True, slots=True)
class MoveTarget:
    place: Place
    at: datetime
    behind: Gpr | None = None  # the GPR just before it, for a move back
    neighbor: Gpr | None = None  # passed by one place; it gets a fixed place too, or new fair shares could reverse their order

    @property
    def changes(self) -> dict[str, Any]:
        share, key = self.place.share, self.place.key
        return {"place_share": share, "place_key": key, "turn_share": share, "turn_key": key, "turn_at": self.at}

    @property
    def moved_behind(self) -> str:
        return str(self.behind.pk) if self.behind else ""


@plan_turn()
@transaction.atomic
def gpr_move(*, gpr: Gpr, to: MoveTo, actor: User, now: datetime, why: str = "") -> None:
    """Slots that give way get new promises. Raises IllegalTransition, Conflict when there is nobody to pass, or StaleState."""
    plan_lock()
    gpr.refresh_from_db(fields=["turn_share", "turn_key", "turn_at"])  # plans change these without the version
    target = move_target(gpr, MoveTo(to))
    gpr_update(gpr, target.changes)
    if target.neighbor is not None:
        _fix_place(target.neighbor, actor, now)
    replan(now=now, moved=Moved(str(gpr.pk), target.moved_behind))
    text = f"{gpr.name} was {MOVED_WORDS[MoveTo(to)]} of its priority in the queue. {why}".strip()
    gpr_event_record("gpr.moved", gpr, text, now, actor=actor, reason=to)
    hint(TICK)


def move_target(gpr: Gpr, to: MoveTo) -> MoveTarget:
    """Raises as `gpr_move`."""
    if gpr.state != GprState.QUEUED:
        raise IllegalTransition(
            f"Only a GPR in the queue has a place there; this one is {gpr.get_state_display().lower()}.", state=gpr.state
        )
    passed = _same_priority(gpr).filter(before(gpr) if to in {MoveTo.UP, MoveTo.FIRST} else behind(gpr))
    neighbor = passed.first() if to in {MoveTo.FIRST, MoveTo.DOWN} else passed.last()
    if neighbor is None:
        which = "first" if to in {MoveTo.UP, MoveTo.FIRST} else "last"
        raise Conflict(f"It is the {which} of its priority already. To pass those of another, change its priority.")
    match to:
        case MoveTo.FIRST:
            return MoveTarget(Place(-FAR_SHARE, 0), _turn_at(neighbor) - GAP)
        case MoveTo.LAST:
            key = neighbor.turn_key if neighbor.turn_share == FAR_SHARE else 0
            return MoveTarget(Place(FAR_SHARE, key), _turn_at(neighbor) + GAP, neighbor)
        case MoveTo.UP:
            last = _same_priority(gpr).filter(before(neighbor)).last()
            at = _turn_at(neighbor) - GAP if last is None or place_of(last) != place_of(neighbor) else _between(last, neighbor)
            return MoveTarget(place_of(neighbor), at, neighbor=neighbor)
        case MoveTo.DOWN:
            following = _same_priority(gpr).filter(behind(neighbor)).first()
            at = (
                _turn_at(neighbor) + GAP
                if following is None or place_of(following) != place_of(neighbor)
                else _between(neighbor, following)
            )
            return MoveTarget(place_of(neighbor), at, neighbor, neighbor)


def place_of(gpr: Gpr) -> Place:
    return Place(gpr.turn_share, gpr.turn_key)


def _fix_place(gpr: Gpr, actor: User, now: datetime) -> None:
    # A place given by an administrator stays. The version does not change, since the request itself does not.
    place, by_itself = place_of(gpr), Gpr.objects.filter(pk=gpr.pk, place_share=None)
    if not by_itself.update(place_share=place.share, place_key=place.key):
        return
    gpr.refresh_from_db(fields=["name", "slice"])
    text = f"{gpr.name} keeps its place in the queue: an administrator moved another past it."
    gpr_event_record("gpr.kept_place", gpr, text, now, actor=actor)


def _same_priority(gpr: Gpr) -> QuerySet[Gpr]:
    # Without bookings: they wait for their time, not for their turn.
    rows = Gpr.objects.filter(state=GprState.QUEUED, priority=gpr.priority, is_booking=False).exclude(pk=gpr.pk).order_by(*QUEUE_ORDER)
    return rows.only(*TURN)


def _between(one: Gpr, other: Gpr) -> datetime:
    """Raises Conflict when they are a microsecond apart."""
    middle = _turn_at(one) + (_turn_at(other) - _turn_at(one)) / 2
    if not _turn_at(one) < middle < _turn_at(other):
        raise Conflict("There is no room between those two any more. Move one of them first, or this one to the front or the back.")
    return middle


def _turn_at(gpr: Gpr) -> datetime:
    return gpr.turn_at or gpr.created_at
