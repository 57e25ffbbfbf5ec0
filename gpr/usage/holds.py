"""Says in which times boxes hold GPUs: this is the one definition that budgets, showback and the league count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import Count, Q

from inventory.models import Reservation
from protocol.assignments import Desired


class HeldSpan(NamedTuple):
    """GPUs of one shape that one reservation holds from its start to its release; if it is not released yet, to its booked end."""

    gpr_id: UUID
    slice_id: UUID
    project_id: UUID
    cluster_id: UUID
    shape: str
    gpu_count: int
    starts_at: datetime
    ends_at: datetime


def holds_load(within: Q, *, now: datetime) -> Iterator[HeldSpan]:
    """Holds of the reservations that `within` selects. Runs one query."""
    # A spare counts once the node that it replaces is gone.
    rows = Reservation.objects.filter(within).exclude(replaces__isnull=False, replaces__released_at=None).order_by()
    owner = ("gpr", "slice", "slice__project", "cluster", "node__shape")
    times = ("starts_at", "replaces__released_at", "ends_at", "released_at", "desired")
    found: Iterable[Any] = rows.values_list(*owner, *times, Count("gpus"))
    for gpr, slice_, project, cluster, shape, starts_at, replaced_at, ends_at, released_at, desired, gpu_count in found:
        held_until_at = released_at or (max(ends_at, now) if desired == Desired.PRESENT else now)
        yield HeldSpan(gpr, slice_, project, cluster, shape, gpu_count, max(starts_at, replaced_at or starts_at), held_until_at)


def held_since(since_at: datetime) -> Q:
    """Selects reservations that were not released before."""
    return Q(released_at=None) | Q(released_at__gt=since_at)
