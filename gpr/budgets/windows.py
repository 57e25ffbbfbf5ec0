"""Loads the times in which requests hold GPUs, or will."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.db.models import Count, Max

from gpr.budgets.periods import Span
from gpr.models import Gpr, GprState
from inventory.models import Node, Reservation
from protocol.assignments import Desired
from slices.models import Budget


class GpuWindow(NamedTuple):
    """GPUs from one time to another. `shapes`: what they are, or may be; empty means any."""

    slice_id: UUID
    project_id: UUID
    shapes: Collection[str]
    gpu_count: int
    starts_at: datetime
    ends_at: datetime

    def counts_for(self, budget: Budget) -> bool:
        is_owned = budget.slice_id == self.slice_id or budget.project_id == self.project_id
        return is_owned and (not budget.shape or not self.shapes or budget.shape in self.shapes)

    def gpu_s_within(self, span: Span) -> float:
        length_s = (min(self.ends_at, span.ends_at) - max(self.starts_at, span.starts_at)).total_seconds()
        return self.gpu_count * max(length_s, 0.0)


def windows_load(project_ids: Collection[UUID], *, since_at: datetime, now: datetime) -> list[GpuWindow]:
    """What was held since then, is held, and is booked by requests that wait in the queue. Two queries, or three."""
    return [*_held(project_ids, since_at, now), *_queued(project_ids, now)]


def _held(project_ids: Collection[UUID], since_at: datetime, now: datetime) -> Iterator[GpuWindow]:
    rows = Reservation.objects.filter(slice__project__in=project_ids).exclude(released_at__lte=since_at).order_by()
    # A spare counts once the node that it replaces is gone.
    rows = rows.exclude(replaces__isnull=False, replaces__released_at=None)
    fields = ("slice", "slice__project", "node__shape", "starts_at", "replaces__released_at", "ends_at", "released_at", "desired")
    for slice_id, project_id, shape, starts_at, replaced_at, ends_at, released_at, desired, gpu_count in rows.values_list(
        *fields, Count("gpus")
    ):
        booked_end_at = max(ends_at, now) if desired == Desired.PRESENT else now
        held_since_at = max(starts_at, replaced_at or starts_at)
        yield GpuWindow(slice_id, project_id, (shape,), gpu_count, held_since_at, released_at or booked_end_at)


def _queued(project_ids: Collection[UUID], now: datetime) -> Iterator[GpuWindow]:
    rows = Gpr.objects.filter(state=GprState.QUEUED, slice__project__in=project_ids).order_by()
    fields = ("slice", "slice__project", "shape", "allowed_shapes", "nodes", "gpus_per_node", "remaining_s", "earliest_start_at")
    waiting = list(rows.values_list(*fields))
    # Whole nodes count the largest that there is.
    largest = _largest_nodes() if any(gpus_per_node is None for *_, gpus_per_node, _, _ in waiting) else {}
    for slice_id, project_id, shape, allowed, nodes, gpus_per_node, remaining_s, earliest_at in waiting:
        shapes = (shape,) if shape else tuple(allowed)
        gpus = gpus_per_node or max((count for name, count in largest.items() if not shapes or name in shapes), default=0)
        # Its start is not known before it is there, so it counts as soon as it may start.
        starts_at = max(now, earliest_at or now)
        yield GpuWindow(slice_id, project_id, shapes, nodes * gpus, starts_at, starts_at + timedelta(seconds=remaining_s))


def _largest_nodes() -> dict[str, int]:
    return dict(Node.objects.filter(gone_at=None).order_by().values_list("shape").annotate(Max("gpu_count")))
