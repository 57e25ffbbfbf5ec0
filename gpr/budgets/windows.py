"""Loads the times in which requests hold GPUs, or will."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import date, datetime, timedelta
from functools import reduce
from operator import or_
from typing import Final, NamedTuple
from uuid import UUID

from django.db.models import Q, Sum

from core.column_checks import LAST
from gpr.budgets.periods import Span
from gpr.models import Gpr, GprState, UsageDay, UsageProgress
from gpr.quotas.selectors import largest_nodes
from gpr.usage.holds import held_since, holds_load
from gpr.usage.services import DAY, MS, day_of, midnight
from slices.models import Budget

DAY_MS: Final = DAY // MS


class GpuWindow(NamedTuple):
    """Holds GPUs from one time to another. `shapes`: what they are, or may be; empty means any."""

    slice_id: UUID
    project_id: UUID
    shapes: Collection[str]
    gpu_count: float  # of a whole day: the mean
    starts_at: datetime
    ends_at: datetime

    def counts_for(self, budget: Budget) -> bool:
        is_owned = budget.slice_id == self.slice_id or budget.project_id == self.project_id
        return is_owned and (not budget.shape or not self.shapes or budget.shape in self.shapes)

    @property
    def gpu_s(self) -> float:
        return self.gpu_count * (self.ends_at - self.starts_at).total_seconds()

    def gpu_s_within(self, span: Span) -> float:
        length_s = (min(self.ends_at, span.ends_at) - max(self.starts_at, span.starts_at)).total_seconds()
        return self.gpu_count * max(length_s, 0.0)


def windows_load(project_ids: Collection[UUID], *, spans: Collection[Span], now: datetime) -> list[GpuWindow]:
    """Loads the GPU time that counts in these spans: held in the past, held now, and booked by queued requests. Four queries, or five.

    Days that are final are read from their usage rows, others and those that a span cuts from reservations.
    """
    since_at = min(span.starts_at for span in spans)
    final_until_at = UsageProgress.objects.values_list("held_until_at", flat=True).first() or since_at
    cut = {edge for span in spans for edge in span if edge != midnight(day_of(edge)) and since_at <= edge < final_until_at}
    cut_days = {day_of(edge) for edge in cut}
    exact = [Span(midnight(day), midnight(day) + DAY) for day in sorted(cut_days)]
    exact.append(Span(max(final_until_at, since_at), LAST))
    return [
        *_final(project_ids, day_of(since_at), day_of(final_until_at), cut_days),
        *_held(project_ids, exact, now),
        *_queued(project_ids, now),
    ]


def _final(project_ids: Collection[UUID], since: date, until: date, without: Collection[date]) -> Iterator[GpuWindow]:
    rows = UsageDay.objects.filter(slice__project__in=project_ids, day__gte=since, day__lt=until, held_gpu_ms__gt=0).exclude(
        day__in=without
    )
    found = rows.order_by().values_list("slice", "slice__project", "shape", "day").annotate(held_ms=Sum("held_gpu_ms"))
    for slice_id, project_id, shape, day, held_ms in found:
        yield GpuWindow(slice_id, project_id, (shape,), held_ms / DAY_MS, midnight(day), midnight(day) + DAY)


def _held(project_ids: Collection[UUID], spans: Sequence[Span], now: datetime) -> Iterator[GpuWindow]:
    overlaps = reduce(or_, (held_since(span.starts_at) & Q(starts_at__lt=span.ends_at) for span in spans))
    for hold in holds_load(Q(overlaps, slice__project__in=project_ids), now=now):
        window = GpuWindow(hold.slice_id, hold.project_id, (hold.shape,), hold.gpu_count, hold.starts_at, hold.ends_at)
        for span in spans:
            starts_at, ends_at = max(window.starts_at, span.starts_at), min(window.ends_at, span.ends_at)
            if starts_at < ends_at:
                yield window._replace(starts_at=starts_at, ends_at=ends_at)


def _queued(project_ids: Collection[UUID], now: datetime) -> Iterator[GpuWindow]:
    rows = Gpr.objects.filter(state=GprState.QUEUED, slice__project__in=project_ids).order_by()
    fields = ("slice", "slice__project", "shape", "allowed_shapes", "nodes", "gpus_per_node", "remaining_s", "earliest_start_at")
    waiting = list(rows.values_list(*fields))
    # Whole nodes count the largest that there is.
    largest = largest_nodes() if any(gpus_per_node is None for *_, gpus_per_node, _, _ in waiting) else {}
    for slice_id, project_id, shape, allowed, nodes, gpus_per_node, remaining_s, earliest_at in waiting:
        shapes = (shape,) if shape else tuple(allowed)
        gpus = gpus_per_node or max((count for name, count in largest.items() if not shapes or name in shapes), default=0)
        # Its start is not known before it is there, so it counts as soon as it may start.
        starts_at = max(now, earliest_at or now)
        yield GpuWindow(slice_id, project_id, shapes, nodes * gpus, starts_at, starts_at + timedelta(seconds=remaining_s))
