"""Whoever has notice for nothing is spared: the beneficiary was canceled or changed, or starts elsewhere, before the notice is over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import F

from egs.errors import Conflict
from egs.readable import readable
from egs.words import utc
from gpr.models import EvictionVictim, Gpr, GprState, VictimOutcome
from gpr.rows import are_ids
from gpr.services.ending import EXTENSION_ACK_S, refuse_if_it_hurts, refuse_into_maintenance
from gpr.snapshot import books_end
from gpr.witness import witness_lock
from inventory.models import Reservation, ReservationState
from inventory.services.reservations import Window, reservations_set_windows
from journal.hints import TICK, hint
from journal.services import event_record

log = structlog.get_logger(__name__)

REVIEWS_MOST: Final = 4  # in a tick
HELD = Reservation.objects.filter(state=ReservationState.HELD)


def notices_review(*, now: datetime) -> None:
    """Give back their windows to those that need not end any more. Two queries where all is well.

    Each is planned for, so some at a time; one that cannot be reviewed, or read, must not stop the others, nor the tick.
    """
    noticed = EvictionVictim.objects.filter(outcome=VictimOutcome.NOTICED, is_final=False)
    victims, _ = readable(noticed.select_related("gpr__slice", "eviction__gpr__promise"))
    nodes: dict[UUID, set[str]] = defaultdict(set)
    for gpr_id, node_id in HELD.filter(gpr__in=[victim.gpr_id for victim in victims]).values_list("gpr", "node"):
        nodes[gpr_id].add(str(node_id))
    for victim in [victim for victim in victims if not _is_needed(victim, nodes[victim.gpr_id])][:REVIEWS_MOST]:
        try:
            _review(victim, now)
        except Exception:
            log.exception("review_failed", gpr_id=str(victim.gpr_id))


def _is_needed(victim: EvictionVictim, nodes: Set[str]) -> bool:
    """Does the beneficiary still wait for these nodes, to start about when it was to?"""
    beneficiary = victim.eviction.gpr
    promise = getattr(beneficiary, "promise", None)
    if beneficiary.state != GprState.QUEUED or promise is None:
        return False
    is_later = promise.slot_start_at > victim.eviction.start_at + timedelta(seconds=settings.EGS_EVICTION_GAIN_S)
    # A slot that cannot be read is found anew by the next plan.
    return not is_later and (not are_ids(promise.slot_nodes) or not nodes.isdisjoint(promise.slot_nodes))


@transaction.atomic
def _review(victim: EvictionVictim, now: datetime) -> None:
    """Once: when others have been promised its GPUs meanwhile it ends for them, and when its agent may not hear of it in time."""
    witness_lock()
    gpr = Gpr.objects.get(pk=victim.gpr_id)
    if gpr.state != GprState.ACTIVE or gpr.active_at is None:
        return
    # The first as it was before all notices, the others by those that it had for a later end.
    full_at = gpr.active_at + timedelta(seconds=gpr.remaining_s)
    earlier = EvictionVictim.objects.filter(gpr=gpr, outcome=VictimOutcome.SOONER, ends_at__gt=victim.ends_at).order_by("-ends_at", "-pk")
    for ends_at, before in [(full_at, None), *((row.ends_at, row) for row in earlier)]:
        if not _is_refused(victim, gpr, ends_at, now):
            _give_back(victim, gpr, ends_at, before, now)
            return
    EvictionVictim.objects.filter(pk=victim.pk).update(is_final=True)


def _is_refused(victim: EvictionVictim, gpr: Gpr, ends_at: datetime, now: datetime) -> bool:
    """May it not end then instead?"""
    if (victim.ends_at - now).total_seconds() < EXTENSION_ACK_S:
        return True
    try:
        refuse_into_maintenance(gpr, books_end(ends_at), now)
        refuse_if_it_hurts(gpr, books_end(ends_at), now)
    except Conflict:
        return True
    return False


def _give_back(victim: EvictionVictim, gpr: Gpr, ends_at: datetime, before: EvictionVictim | None, now: datetime) -> None:
    """`before`: the notice that it has again."""
    if not Gpr.objects.filter(pk=gpr.pk, state=GprState.ACTIVE, version=gpr.version).update(ends_at=ends_at, version=F("version") + 1):
        return
    reservations_set_windows([Window(gpr.pk, ends_at, books_end(ends_at))])
    EvictionVictim.objects.filter(pk=victim.pk).update(outcome=VictimOutcome.SPARED, outcome_at=now)
    if before is not None:
        EvictionVictim.objects.filter(pk=before.pk).update(outcome=VictimOutcome.NOTICED, outcome_at=None)
    instead = "will not be evicted: its GPUs are not needed any more" if before is None else "will be evicted later than told last"
    event_record(
        kind="gpr.eviction_withdrawn",
        message=f"{gpr.name} {instead}. It runs until {utc(ends_at)}.",
        at=now,
        gpr_id=gpr.pk,
        slice_id=gpr.slice_id,
    )
    hint(TICK)
