"""How a GPR that waits stands in the queue: one account for the API and the pages. Why it waits: gpr.queue.explanations."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from accounts.models import User
from core.words import utc
from gpr.models import Gpr
from gpr.queue.explanations import Say, Told, explain_gprs
from gpr.requests.selectors import start_places


@dataclass(frozen=True, slots=True)
class Standing:
    """What the last plan says of a GPR. `place` counts all requests: 1 starts first, and None has no planned start. `told` says what and
    whom it waits for; it is None before the first plan. The GPR itself has its `planned_start_at` and its `standing_promise`.
    """

    place: int | None = None
    told: Told | None = None


NOT_PLANNED = Standing()


def standings_of(gprs: Collection[Gpr], *, actor: User, now: datetime, say: Say = utc) -> dict[UUID, Standing]:
    """The standing of each GPR, by id. It takes two queries, however many GPRs there are, and none where no GPR waits."""
    places, told = start_places(gprs), explain_gprs(gprs, actor=actor, now=now, say=say)
    return {gpr.pk: _standing(places.get(gpr.pk), told.get(gpr.pk)) for gpr in gprs}


def _standing(place: int | None, told: Told | None) -> Standing:
    """A request that starts earlier is ahead, whatever its priority: a promise may keep it there."""
    return Standing(place, replace(told, ahead_count=place - 1) if told and place else told)
