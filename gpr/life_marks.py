"""What happened lately to the GPRs that concern a cluster, for its agent to tell there: each mark is an Event, in the Event's words.

Read at every word of the agent, so it looks at the latest Events alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db.models import Q

from gpr.models import PROVISIONED, Gpr, GprState
from inventory.models import Reservation
from journal.models import Event
from slices.models import Slice
from worker_agent.protocol import LIFE_MARKS_MAX, LIFE_TOLD_S, LifeMark

KINDS: Final = ("gpr.created", "gpr.transition", "gpr.mark")
LOOKED_AT: Final = 10_000  # the latest Events, whatever they are of


def life_told(cluster_id: UUID, *, now: datetime) -> tuple[LifeMark, ...]:
    """The earliest first. Two queries where nothing happened, four at most.

    What waits in the queue may start in each cluster that it allows: there its workspace is told.
    """
    events = _events(cluster_id, now)
    if not events:
        return ()
    gpr_ids = {event.gpr_id for event in events if event.gpr_id}
    names: dict[UUID, str] = {}
    allowed: dict[UUID, set[UUID]] = defaultdict(set)  # where it does not allow all
    for gpr_id, name, allowed_id in Gpr.objects.filter(pk__in=gpr_ids).order_by().values_list("pk", "name", "clusters"):
        names[gpr_id] = name
        if allowed_id is not None:
            allowed[gpr_id].add(allowed_id)
    reservations = _reservations(cluster_id, gpr_ids)
    return tuple(
        _mark(event, event.gpr_id, names[event.gpr_id], reservations.get(event.gpr_id, ()))
        for event in events
        if event.gpr_id in names and (event.cluster_id or cluster_id in allowed.get(event.gpr_id, {cluster_id}))
    )


def _events(cluster_id: UUID, now: datetime) -> list[Event]:
    newest = Event.objects.order_by("-pk").values_list("pk", flat=True).first()
    if newest is None:
        return []
    rows = Event.objects.filter(
        Q(cluster_id=cluster_id) | Q(cluster_id=None),
        pk__gt=newest - LOOKED_AT,
        kind__in=KINDS,
        at__gt=now - timedelta(seconds=LIFE_TOLD_S),
        slice_id__in=Slice.objects.filter(clusters=cluster_id).values("pk"),
    )
    return list(rows.order_by("-pk")[:LIFE_MARKS_MAX])[::-1]


def _reservations(cluster_id: UUID, gpr_ids: Collection[UUID]) -> Mapping[UUID, list[Reservation]]:
    found: dict[UUID, list[Reservation]] = defaultdict(list)
    rows = Reservation.objects.filter(cluster=cluster_id, gpr__in=gpr_ids).select_related("node")
    for row in rows.order_by("node__name"):
        found[row.gpr_id].append(row)
    return found


def _mark(event: Event, gpr_id: UUID, gpr_name: str, reservations: Sequence[Reservation]) -> LifeMark:
    is_share = event.kind == "gpr.mark"
    state = GprState.ACTIVE if is_share else event.new
    has_nodes = state in PROVISIONED or event.old == GprState.EXITING
    return LifeMark(
        id=str(event.pk),
        gpr_id=str(gpr_id),
        gpr_name=gpr_name,
        slice=str(event.slice_id),
        at_s=event.at.timestamp(),
        state=state,
        percent=int(event.reason.rstrip("%")) if is_share else 0,
        message=event.message,
        nodes=tuple(row.node.name for row in _box_at(reservations, event.at)) if has_nodes else (),
    )


def _box_at(rows: Sequence[Reservation], at: datetime) -> list[Reservation]:
    """What made up the box of its latest run then."""
    run = max((row.run for row in rows if row.starts_at <= at), default=0)
    joined = {row.pk: row.replaces_id for row in rows if row.joined_at is not None and row.joined_at <= at}
    replaced = set(joined.values())
    return [row for row in rows if row.run == run and row.pk not in replaced and (row.replaces_id is None or row.pk in joined)]
