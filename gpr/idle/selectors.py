"""Computes when EGS warns of an idle box and releases it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db.models import F

from accounts.models import User
from accounts.policy import Verb, may
from core.written_sql import IdParam, WrittenQuery
from gpr.models import Gpr, GprState, IdleBox
from protocol.agents.sync import IdleRelease

SHORTLY: Final = timedelta(minutes=10)  # before the end; at most a quarter of the time-out
_IDLE: Final = Gpr.objects.filter(state=GprState.ACTIVE, idle_box__run=F("run")).select_related("slice", "idle_box").order_by("pk")
_WARNED: Final = WrittenQuery(_IDLE.filter(cluster=IdParam("cluster"), idle_box__warned_count__gt=0))


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
    """Returns the seconds that it may be idle; 0: for ever."""
    return gpr.slice.idle_timeout_s if gpr.idle_timeout_s is None else gpr.idle_timeout_s


def idleness_of(gpr: Gpr) -> Idleness | None:
    """Returns None if its GPUs work or have no readings, or it has no time-out. It needs the joined `slice` and `idle_box`."""
    box: IdleBox | None = getattr(gpr, "idle_box", None)
    timeout_s = timeout_of(gpr)
    if box is None or not timeout_s or gpr.state != GprState.ACTIVE or box.run != gpr.run:
        return None
    return Idleness(max(box.idle_since_at, box.kept_at or box.idle_since_at), timeout_s, box.warned_count)


def idle_gprs() -> Iterator[tuple[Gpr, Idleness]]:
    """Active boxes that are idle, whatever their time-out. Runs one query."""
    return _with_idleness(_IDLE.all())


def idle_releases_of(cluster_id: UUID) -> tuple[IdleRelease, ...]:
    """Boxes of which people were warned. Runs one query."""
    return tuple(
        IdleRelease(gpr_id=str(gpr.pk), run=gpr.run, at_s=idleness.ends_at.timestamp())
        for gpr, idleness in _with_idleness(_WARNED(cluster=cluster_id))
    )


def _with_idleness(rows: Iterable[Gpr]) -> Iterator[tuple[Gpr, Idleness]]:
    return ((gpr, idleness) for gpr in rows if (idleness := idleness_of(gpr)) is not None)


def may_keep(actor: User, gpr: Gpr) -> bool:
    return (gpr.slice.may_keep_idle and may(actor, Verb.CHANGE, gpr)) or may(actor, Verb.DECIDE, gpr)
