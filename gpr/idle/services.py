"""Makes every write to idle boxes but their release (ending.py)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from django.db import transaction

from accounts.models import User
from core.errors import Conflict, IllegalTransition, NotAllowed
from core.words import duration_exact, utc
from gpr.events import gpr_event_record
from gpr.idle.selectors import Idleness, idle_gprs, idleness_of, may_keep
from gpr.models import Gpr, GprState, IdleBox
from journal.hints import hint, slice_topic
from journal.models import Severity

WARNED, KEPT = "gpr.idle_warned", "gpr.idle_kept"


class Seen(NamedTuple):
    """Holds the work of a box in some whole minutes."""

    begin_at: datetime
    idle_since_at: datetime  # the end of the last minute in which a GPU worked or was not measured, or `begin_at`


def idle_observe(seen: Mapping[Gpr, Seen], *, until: datetime) -> None:
    """Stores which of these boxes did nothing; others have no time-out. It must run in a transaction."""
    IdleBox.objects.exclude(gpr__in=seen).delete()
    there = {box.gpr_id: box for box in IdleBox.objects.filter(gpr__in=seen)}
    for gpr, (begin_at, idle_since_at) in seen.items():
        box = there.get(gpr.pk)
        if box is not None and box.run == gpr.run and idle_since_at == begin_at:
            continue
        if box is not None:
            box.delete()
        if idle_since_at < until:
            IdleBox.objects.create(gpr=gpr, run=gpr.run, idle_since_at=idle_since_at)
        if (box is None) == (idle_since_at < until):
            hint(slice_topic(gpr.slice_id))


def idle_forget() -> None:
    """Forgets idle time after an interval without readings."""
    IdleBox.objects.all().delete()


def idle_warn(*, known_at: datetime, now: datetime) -> None:
    """Warns once at half of the time-out and once shortly before its end; `known_at`: readings until then were counted."""
    for gpr, idleness in idle_gprs():
        due = idleness.warnings_due(known_at)
        if due > idleness.warned_count and known_at < idleness.ends_at:
            _warn(gpr, idleness, due, now)


@transaction.atomic
def _warn(gpr: Gpr, idleness: Idleness, count: int, now: datetime) -> None:
    # Another process may be about to warn of the same, and somebody to keep it.
    is_mine = IdleBox.objects.filter(gpr=gpr, idle_since_at=gpr.idle_box.idle_since_at, kept_at=gpr.idle_box.kept_at)
    if not is_mine.filter(warned_count=idleness.warned_count).update(warned_count=count):
        return
    keep = " or keep it" if gpr.slice.may_keep_idle else ""
    end = f"It is released at {utc(idleness.ends_at)}, {duration_exact(idleness.timeout_s)} later. Use them{keep}."
    text = f"The GPUs of {gpr.name} have done nothing since {utc(idleness.since_at)}. {end}"
    gpr_event_record(WARNED, gpr, text, now, severity=Severity.WARNING, reason="IDLE", cluster_id=gpr.cluster_id)


@transaction.atomic
def gpr_keep(*, gpr: Gpr, actor: User, now: datetime) -> None:
    """Begins the idle time-out anew. Raises IllegalTransition for a box that is over, NotAllowed, or Conflict for one that is not idle."""
    if not may_keep(actor, gpr):
        raise NotAllowed(f"The policy of workspace {gpr.slice.name} lets nobody keep an idle box. Use its GPUs, or ask an administrator.")
    found = Gpr.objects.select_for_update().get(pk=gpr.pk)  # a release waits, or was first
    if found.state != GprState.ACTIVE:
        raise IllegalTransition(f"Only an active GPR can be kept; this one is {found.get_state_display().lower()}.", state=found.state)
    box = IdleBox.objects.select_for_update().filter(gpr=found, run=found.run).first()
    if box is None or idleness_of(gpr) is None:
        raise Conflict("Its GPUs are not idle: there is nothing to keep it from.")
    box.kept_at, box.warned_count = now, 0
    box.save(update_fields=["kept_at", "warned_count"])
    gpr.idle_box = box
    idleness = idleness_of(gpr)
    until = f" until {utc(idleness.ends_at)}" if idleness else ""
    gpr_event_record(KEPT, gpr, f"{gpr.name} is kept{until}, though its GPUs do nothing.", now, actor=actor)
