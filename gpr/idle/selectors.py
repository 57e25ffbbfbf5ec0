"""Computes when EGS warns of an idle box and releases it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db.models import F

from accounts.models import User
from accounts.policy import Verb, may
from gpr.models import Gpr, GprState, IdleBox
from protocol.agents.sync import IdleRelease

SHORTLY: Final = timedelta(minutes=10)  # before the end; at most a quarter of the time-out


@dataclass(frozen=True, slots=True)
class Idleness:
    since_at: datetime  # or since somebody kept it
    timeout_s: int
    warned_count: int

    @property
    def ends_at(self) -> datetime:
        return self.since_at + timedelta(seconds=self.timeout_s)

    def warnings_due(self, at: datetime) -> int:
        timeout = timedelta(seconds=self.timeout_s)
        return (at >= self.since_at + timeout / 2) + (at >= self.ends_at - min(SHORTLY, timeout / 4))


def timeout_of(gpr: Gpr) -> int:
    """Seconds that it may be idle; 0: for ever."""
    return gpr.slice.idle_timeout_s if gpr.idle_timeout_s is None else gpr.idle_timeout_s


def idleness_of(gpr: Gpr) -> Idleness | None:
    """Returns None if its GPUs work or have no readings, or it has no time-out. It needs the joined `slice` and `idle_box`."""
    box: IdleBox | None = getattr(gpr, "idle_box", None)
    timeout_s = timeout_of(gpr)
    if box is None or not timeout_s or gpr.state != GprState.ACTIVE or box.run != gpr.run:
        return None
    return Idleness(max(box.idle_since_at, box.kept_at or box.idle_since_at), timeout_s, box.warned_count)


def idle_gprs(**where: Any) -> Iterator[tuple[Gpr, Idleness]]:
    """Active boxes that are idle, whatever their time-out. Runs one query."""
    rows = Gpr.objects.filter(state=GprState.ACTIVE, idle_box__run=F("run"), **where)
    for gpr in rows.select_related("slice", "idle_box").order_by("pk"):
        if (idleness := idleness_of(gpr)) is not None:
            yield gpr, idleness


def idle_releases_of(cluster_id: UUID) -> tuple[IdleRelease, ...]:
    """Boxes of which people were warned. Runs one query."""
    return tuple(
        IdleRelease(gpr_id=str(gpr.pk), run=gpr.run, at_s=idleness.ends_at.timestamp())
        for gpr, idleness in idle_gprs(cluster=cluster_id, idle_box__warned_count__gt=0)
    )


def may_keep(actor: User, gpr: Gpr) -> bool:
    return (gpr.slice.may_keep_idle and may(actor, Verb.CHANGE, gpr)) or may(actor, Verb.DECIDE, gpr)
