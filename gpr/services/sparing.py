"""Whoever has notice for nothing is spared: the beneficiary was canceled, or started elsewhere, before the notice was over."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import F

from egs.errors import Conflict
from egs.words import utc
from gpr.models import EvictionVictim, Gpr, GprState, VictimOutcome
from gpr.services.ending import refuse_if_it_hurts, refuse_into_maintenance
from gpr.witness import witness_lock
from inventory.services.reservations import reservations_set_window
from journal.hints import TICK, hint
from journal.services import event_record


def notices_review(*, now: datetime) -> None:
    """Give back their windows to those that need not end any more. One query where there are none."""
    noticed = EvictionVictim.objects.filter(outcome=VictimOutcome.NOTICED, is_final=False)
    for victim in noticed.exclude(eviction__gpr__state=GprState.QUEUED).select_related("gpr__slice"):
        _review(victim, now)


@transaction.atomic
def _review(victim: EvictionVictim, now: datetime) -> None:
    """Once: when others have been promised its GPUs meanwhile it ends for them."""
    witness_lock()
    gpr = Gpr.objects.get(pk=victim.gpr_id)
    if gpr.state != GprState.ACTIVE or gpr.active_at is None:
        return
    ends_at = gpr.active_at + timedelta(seconds=gpr.remaining_s)
    books_end_at = ends_at + timedelta(seconds=settings.EGS_EXIT_ALLOWANCE_S)
    try:
        refuse_into_maintenance(gpr, books_end_at, now)
        refuse_if_it_hurts(gpr, books_end_at, now)
    except Conflict:
        EvictionVictim.objects.filter(pk=victim.pk).update(is_final=True)
        return
    if not Gpr.objects.filter(pk=gpr.pk, state=GprState.ACTIVE, version=gpr.version).update(ends_at=ends_at, version=F("version") + 1):
        return
    reservations_set_window(gpr_id=gpr.pk, not_after_at=ends_at, ends_at=books_end_at)
    EvictionVictim.objects.filter(pk=victim.pk).update(outcome=VictimOutcome.SPARED, outcome_at=now)
    event_record(
        kind="gpr.eviction_withdrawn",
        message=f"{gpr.name} will not be evicted: its GPUs are not needed any more. It runs until {utc(ends_at)}.",
        at=now,
        gpr_id=gpr.pk,
        slice_id=gpr.slice_id,
    )
    hint(TICK)
