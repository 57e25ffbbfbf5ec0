"""How a GPR that waits stands in the queue: one account for the API and the pages. Why it waits: gpr.explaining."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from accounts.models import User
from egs.words import utc
from gpr.explaining import Say, Told, explain_gprs
from gpr.models import Gpr
from gpr.selectors import start_places


@dataclass(frozen=True, slots=True)
class Standing:
    """By the last plan. `place`: 1 starts first, of whomever; None where it has no start. `told`: what and whom it waits for; None where
    no plan has told it yet. When it starts and what it is promised stand in the GPR: `planned_start_at`, `standing_promise`.
    """

    place: int | None = None
    told: Told | None = None


NOT_PLANNED = Standing()


def standings_of(gprs: Collection[Gpr], *, actor: User, now: datetime, say: Say = utc) -> dict[UUID, Standing]:
    """Of each. Two queries, however many there are; none where none waits."""
    places, told = start_places(gprs), explain_gprs(gprs, actor=actor, now=now, say=say)
    return {gpr.pk: _standing(places.get(gpr.pk), told.get(gpr.pk)) for gpr in gprs}


def _standing(place: int | None, told: Told | None) -> Standing:
    """Whoever starts before it is ahead of it, whatever his priority: promises may keep him there."""
    return Standing(place, replace(told, ahead_count=place - 1) if told and place else told)
