"""Selects recent Events of GPRs that concern a cluster, for its agent to publish there.

Every agent reads these often, so only the latest Events are read, and no model instances are made.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple
from uuid import UUID

from django.db.models import Exists, OuterRef, Q

from core.written_sql import IdParam, NumberParam, TimeParam, WrittenQuery
from gpr.models import PROVISIONED, Gpr, GprState
from inventory.models import Reservation
from journal.models import Event
from protocol.tenancy.life_marks import LIFE_MARKS_MAX, LIFE_NODES_MAX, LIFE_TOLD_S, LifeMark
from slices.models import Slice

IDLE: Final = "gpr.idle_warned"
KINDS: Final = ("gpr.created", "gpr.transition", "gpr.mark", IDLE)
EVENTS_READ: Final = 10_000  # the latest Events of all kinds


class _EventRow(NamedTuple):
    """Selects fields of Event."""

    pk: int
    kind: str
    at: datetime
    message: str
    reason: str
    old: str
    new: str
    gpr_id: UUID | None
    slice_id: UUID | None
    cluster_id: UUID | None

    @property
    def has_nodes(self) -> bool:
        return self.kind in {"gpr.mark", IDLE} or self.new in PROVISIONED or self.old == GprState.EXITING


_NEWEST: Final = WrittenQuery(Event.objects.order_by("-pk").values_list("pk", flat=True)[:1])
_CONCERN: Final = Event.objects.filter(
    Q(cluster_id=IdParam("cluster")) | Q(cluster_id=None),
    pk__gt=NumberParam("after"),
    kind__in=KINDS,
    at__gt=TimeParam("since"),
    slice_id__in=Slice.objects.filter(clusters=IdParam("cluster")).values("pk"),
)
_LATEST: Final = WrittenQuery(_CONCERN.order_by("-pk").values_list(*_EventRow._fields)[:LIFE_MARKS_MAX])


class _ReservationRow(NamedTuple):
    """Selects fields of Reservation."""

    pk: UUID
    gpr_id: UUID
    run: int
    starts_at: datetime
    joined_at: datetime | None
    replaces_id: UUID | None
    node__name: str


def life_marks_of(cluster_id: UUID, *, now: datetime) -> tuple[LifeMark, ...]:
    """Returns the earliest first. Runs at most four queries. A waiting GPR concerns every cluster that it allows."""
    events = _events(cluster_id, now)
    if not events:
        return ()
    gpr_ids = {event.gpr_id for event in events if event.gpr_id}
    names: dict[UUID, str] = {}
    allowed: dict[UUID, set[UUID]] = defaultdict(set)  # GPRs that are missing here allow all clusters
    for gpr_id, name, allowed_id in Gpr.objects.filter(pk__in=gpr_ids).order_by().values_list("pk", "name", "clusters"):
        names[gpr_id] = name
        if allowed_id is not None:
            allowed[gpr_id].add(allowed_id)
    held = _held(cluster_id, {event.gpr_id for event in events if event.gpr_id and event.has_nodes}, now)
    return tuple(
        _mark_of(event, event.gpr_id, names[event.gpr_id], held.get(event.gpr_id, ()))
        for event in events
        if event.gpr_id in names and (event.cluster_id or cluster_id in allowed.get(event.gpr_id, {cluster_id}))
    )


def _events(cluster_id: UUID, now: datetime) -> list[_EventRow]:
    newest = _NEWEST()
    if not newest:
        return []
    latest = _LATEST(cluster=cluster_id, after=newest[0] - EVENTS_READ, since=now - timedelta(seconds=LIFE_TOLD_S))
    return [_EventRow(*row) for row in latest][::-1]


def _held(cluster_id: UUID, gpr_ids: Collection[UUID], now: datetime) -> Mapping[UUID, list[_ReservationRow]]:
    # A GPR can have had many runs: leaves out those that a later run had replaced before the reported period.
    found: dict[UUID, list[_ReservationRow]] = defaultdict(list)
    if not gpr_ids:
        return found
    later = Reservation.objects.filter(
        gpr=OuterRef("gpr"), cluster=cluster_id, run__gt=OuterRef("run"), starts_at__lte=now - timedelta(seconds=LIFE_TOLD_S)
    )
    rows = Reservation.objects.filter(~Exists(later), cluster=cluster_id, gpr__in=gpr_ids).order_by("node__name")
    for row in rows.values_list(*_ReservationRow._fields):
        held = _ReservationRow(*row)
        found[held.gpr_id].append(held)
    return found


def _mark_of(event: _EventRow, gpr_id: UUID, gpr_name: str, held: Sequence[_ReservationRow]) -> LifeMark:
    is_share, is_idle = event.kind == "gpr.mark", event.kind == IDLE
    box = _box_at(held, event.at) if event.has_nodes else []
    return LifeMark(
        id=str(event.pk),
        gpr_id=str(gpr_id),
        gpr_name=gpr_name,
        slice=str(event.slice_id),
        at_s=event.at.timestamp(),
        state=GprState.ACTIVE if is_share or is_idle else event.new,
        percent=int(event.reason.rstrip("%")) if is_share else 0,
        reason="Idle" if is_idle else "",
        message=event.message,
        nodes=tuple(row.node__name for row in box[:LIFE_NODES_MAX]),
    )


def _box_at(rows: Sequence[_ReservationRow], at: datetime) -> list[_ReservationRow]:
    """Returns the reservations of the run at that time, with spares that had joined instead of the nodes that they replaced."""
    run = max((row.run for row in rows if row.starts_at <= at), default=0)
    joined = {row.pk: row.replaces_id for row in rows if row.joined_at is not None and row.joined_at <= at}
    replaced = set(joined.values())
    return [row for row in rows if row.run == run and row.pk not in replaced and (row.replaces_id is None or row.pk in joined)]
