"""Withdraws eviction notices whose beneficiary no longer needs the nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q

from core.words import utc
from core.written_sql import TimeParam, WrittenQuery
from gpr.allocation.snapshot import box_end_for, nodes_free_at
from gpr.allocation.stored_plan import plan_lock
from gpr.events import gpr_event_record
from gpr.models import Eviction, EvictionVictim, Gpr, GprState, Promise, VictimOutcome
from gpr.requests.ending import EXTENSION_ACK_S
from gpr.requests.extensions import ExtensionTrial
from inventory.models import Reservation, ReservationState
from inventory.services.reservations import BoxWindow, reservations_set_windows
from journal.guard import set_aside_on_error
from journal.hints import TICK, hint

REVIEWS_MOST: Final = 4  # per tick, since each costs a plan
REVIEWED_AGAIN: Final = timedelta(minutes=5)
HELD = Reservation.objects.filter(state=ReservationState.HELD)
_NODES_OF: Final = WrittenQuery(HELD.order_by().values_list("gpr", "node"), key="gpr__id")
_IS_DUE: Final = Q(reviewed_at=None) | Q(reviewed_at__lt=TimeParam("again")) | Q(reviewed_at__gt=TimeParam("now"))  # clocks may be set back
_DUE: Final = WrittenQuery(
    EvictionVictim.objects.filter(_IS_DUE, outcome=VictimOutcome.NOTICED, is_final=False)
    .select_related("gpr__slice", "eviction__gpr__promise")
    .order_by(F("reviewed_at").asc(nulls_first=True), "pk")
)


def notices_review(*, now: datetime) -> None:
    """Withdraw or postpone notices that are not needed. Runs one query when there is none, three when all are needed."""
    victims = _DUE(now=now, again=now - REVIEWED_AGAIN)
    nodes: dict[UUID, set[str]] = defaultdict(set)
    for gpr_id, node_id in _NODES_OF([victim.gpr_id for victim in victims]):
        nodes[gpr_id].add(str(node_id))
    for victim in [victim for victim in victims if not _is_needed(victim, nodes[victim.gpr_id])][:REVIEWS_MOST]:
        with set_aside_on_error("notice_review", "The eviction notice of this box could not be reviewed", now=now, gpr_id=victim.gpr_id):
            _review(victim, now)


def _is_needed(victim: EvictionVictim, nodes: Set[str]) -> bool:
    # The beneficiary still waits for these nodes and starts about as planned.
    promise = _beneficiary_promise(victim)
    if promise is None:
        return False
    start_at = victim.eviction.start_at
    is_later = start_at is not None and promise.slot_start_at > start_at + timedelta(seconds=settings.EGS_EVICTION_GAIN_S)
    return not is_later and not nodes.isdisjoint(promise.slot_nodes)


def _beneficiary_promise(victim: EvictionVictim) -> Promise | None:
    beneficiary = victim.eviction.gpr
    return getattr(beneficiary, "promise", None) if beneficiary is not None and beneficiary.state == GprState.QUEUED else None


@transaction.atomic
def _review(victim: EvictionVictim, now: datetime) -> None:
    plan_lock()
    gpr = Gpr.objects.get(pk=victim.gpr_id)
    if gpr.state != GprState.ACTIVE or gpr.active_at is None:
        return
    # The notice stays if the GPUs are promised to others by now, or if the agent may not hear of the change in time.
    is_too_late = (victim.ends_at - now).total_seconds() < EXTENSION_ACK_S
    ends = () if is_too_late else _later_ends(victim, gpr, gpr.active_at + timedelta(seconds=gpr.remaining_s))
    trial = ExtensionTrial(gpr, now=now)
    end = next((end for end in ends if trial.obstacle(end.at) is None), None)
    if end is None:
        EvictionVictim.objects.filter(pk=victim.pk).update(is_final=is_too_late, reviewed_at=now)
    else:
        _withdraw(victim, gpr, end, now)


@dataclass(frozen=True, slots=True)
class _LaterEnd:
    """It is a possible later end, with the notice that holds then; None: there is no notice."""

    at: datetime
    notice: EvictionVictim | None = None


def _later_ends(victim: EvictionVictim, gpr: Gpr, full_at: datetime) -> Iterator[_LaterEnd]:
    """Returns the latest first: the full time, the beneficiary's present start, ends of earlier notices."""
    yield _LaterEnd(full_at)
    promise = _beneficiary_promise(victim)
    if promise is not None and victim.ends_at < (own_at := box_end_for(promise.slot_start_at)) < full_at:
        yield _LaterEnd(own_at, victim)
    told = EvictionVictim.objects.filter(gpr=gpr, outcome=VictimOutcome.SOONER, outcome_at__gte=gpr.active_at)
    for before in told.filter(ends_at__gt=victim.ends_at, ends_at__lt=full_at).order_by("-ends_at", "-pk"):
        yield _LaterEnd(before.ends_at, before)


def _withdraw(victim: EvictionVictim, gpr: Gpr, end: _LaterEnd, now: datetime) -> None:
    if not Gpr.objects.filter(pk=gpr.pk, state=GprState.ACTIVE, version=gpr.version).update(ends_at=end.at, version=F("version") + 1):
        return
    reservations_set_windows([BoxWindow(gpr.pk, end.at, nodes_free_at(end.at))])
    notice = end.notice
    if notice is None or notice.pk != victim.pk:
        EvictionVictim.objects.filter(pk=victim.pk).update(outcome=VictimOutcome.SPARED, outcome_at=now)
    if notice is not None:
        EvictionVictim.objects.filter(pk=notice.pk).update(outcome=VictimOutcome.NOTICED, outcome_at=None, ends_at=end.at)
        Eviction.objects.filter(pk=notice.eviction_id).update(start_at=nodes_free_at(end.at))
        kind, instead = "gpr.eviction_put_off", "will be evicted later than it was told last"
    else:
        kind, instead = "gpr.eviction_withdrawn", "will not be evicted: its GPUs are not needed any more"
    gpr_event_record(kind, gpr, f"{gpr.name} {instead}. It runs until {utc(end.at)}.", now)
    hint(TICK)
