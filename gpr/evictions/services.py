"""Carries out evictions: shortens windows and gives notice."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from django.db.models import F

from core.words import duration_exact, utc
from gpr.allocation.rows import gprs_by_id
from gpr.allocation.snapshot import at, box_end_for
from gpr.events import gpr_event_record
from gpr.models import EndReason, Eviction, EvictionVictim, Gpr, GprState, VictimKind, VictimOutcome
from inventory.models import ReservationState, ReservedGpu
from inventory.services.reservations import BoxWindow, reservations_set_windows
from journal.hints import TICK, hint
from journal.models import Severity
from planner.causes import PlannedEviction, Victim

WHY = {
    VictimKind.RECLAIM: "its GPUs are borrowed, and the tenant they are guaranteed to needs them",
    VictimKind.PRIORITY: "a request of higher priority that may evict needs its GPUs",
    VictimKind.DEFRAGMENT: "an administrator moves it to other nodes, so that whole nodes come free",
    VictimKind.ADMIN: "an administrator takes its nodes back",
}


NOTICES: Final = EvictionVictim.objects.filter(outcome=VictimOutcome.NOTICED)


def evictions_store(planned: Sequence[PlannedEviction], *, now: datetime) -> None:
    """Call it in the transaction that stores the plan, under the plan lock."""
    beneficiaries = gprs_by_id(one.id for one in planned)
    windows: list[BoxWindow] = []
    for one in planned:
        beneficiary = beneficiaries[one.id]
        made = Eviction.objects.create(gpr=beneficiary, made_at=now, start_at=at(one.start_s), instead_at=at(one.instead_s))
        for victim in one.victims:
            windows += _notice(made, victim, now)
        text = f"Others end early for {beneficiary.name}: it can start at {utc(at(one.start_s))}{_without(beneficiary, one)}."
        gpr_event_record("gpr.eviction_planned", beneficiary, text, now)
        hint(TICK)
    if windows:
        reservations_set_windows(windows)  # in one call, for the lock order: nodes first, then clusters


def eviction_by_administrator(gpr: Gpr, *, now: datetime) -> None:
    """Record it; the caller begins the exit."""
    EvictionVictim.objects.filter(gpr=gpr, outcome=VictimOutcome.NOTICED).update(outcome=VictimOutcome.SOONER, outcome_at=now)
    ran_s = max((now - gpr.provisioning_at).total_seconds(), 0.0) if gpr.provisioning_at else 0.0
    gpu_count = ReservedGpu.objects.filter(reservation__gpr=gpr, reservation__state=ReservationState.HELD).count()
    EvictionVictim.objects.create(
        eviction=Eviction.objects.create(made_at=now),
        gpr=gpr,
        kind=VictimKind.ADMIN,
        priority=gpr.priority,
        ends_at=now,
        lost_gpu_s=math.floor(gpu_count * ran_s),
        outcome=VictimOutcome.EVICTED,
        outcome_at=now,
    )


def _without(beneficiary: Gpr, planned: PlannedEviction) -> str:
    # A booking starts at its time or not at all.
    return ", as it is booked" if beneficiary.is_booking else f" instead of {utc(at(planned.instead_s))}"


def notice_of(gpr: Gpr) -> EvictionVictim | None:
    return EvictionVictim.objects.filter(gpr=gpr, outcome=VictimOutcome.NOTICED).first()


def notices_of(gprs: Iterable[Gpr]) -> dict[UUID, EvictionVictim]:
    """Returns notices by GPR id. One query; none if no GPR is active."""
    active = [gpr.pk for gpr in gprs if gpr.state == GprState.ACTIVE]
    if not active:
        return {}
    return {row.gpr_id: row for row in EvictionVictim.objects.filter(gpr__in=active, outcome=VictimOutcome.NOTICED)}


def notices_settle(gprs: Iterable[Gpr], *, reason: EndReason, now: datetime) -> None:
    outcome = VictimOutcome.EVICTED if reason == EndReason.EVICTED else VictimOutcome.LEFT
    EvictionVictim.objects.filter(gpr__in=gprs, outcome=VictimOutcome.NOTICED).update(outcome=outcome, outcome_at=now)


def _notice(made: Eviction, victim: Victim, now: datetime) -> list[BoxWindow]:
    # A box that is already leaving needs no notice.
    books_end_at = at(victim.frees_s)
    ends_at = box_end_for(books_end_at)
    if not Gpr.objects.filter(pk=victim.id, state=GprState.ACTIVE).update(ends_at=ends_at, version=F("version") + 1):
        return []
    gpr = Gpr.objects.get(pk=victim.id)
    kind = VictimKind(victim.kind.value)
    # This notice replaces one for a later end.
    EvictionVictim.objects.filter(gpr=gpr, outcome=VictimOutcome.NOTICED).update(outcome=VictimOutcome.SOONER, outcome_at=now)
    EvictionVictim.objects.create(eviction=made, gpr=gpr, kind=kind, priority=gpr.priority, ends_at=ends_at, lost_gpu_s=victim.lost_gpu_s)
    notice_s = int((ends_at - now).total_seconds())
    then = "It waits again for the rest of its time." if gpr.requeue_on_failure else "It is not queued again, as its owner wished."
    text = f"{gpr.name} will be evicted at {utc(ends_at)}, in {duration_exact(notice_s)}: {WHY[kind]}. Save its work. {then}"
    gpr_event_record("gpr.eviction_noticed", gpr, text, now, severity=Severity.WARNING, reason=kind)
    return [BoxWindow(gpr.pk, ends_at, books_end_at)]
