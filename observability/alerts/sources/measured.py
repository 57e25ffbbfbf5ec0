from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.db.models import FilteredRelation, Q, QuerySet

from gpr.models import GprState
from inventory.models import Gpu, ReservationState
from observability.alerts.models import AlertRule, AlertSubject, SubjectState


@dataclass(frozen=True, slots=True)
class Measured:
    """`box_value`: what the people of `slice_id` may be told of it; None: nothing, or it is not known now."""

    subject_id: UUID
    name: str
    value: float | None
    box_value: float | None = None
    slice_id: UUID | None = None
    gpr_id: UUID | None = None
    cluster_id: UUID | None = None
    node_id: UUID | None = None
    shape: str = ""

    def with_value(self, value: float | None) -> Measured:
        return replace(self, value=value, box_value=value)


Found = Mapping[UUID, Sequence[Measured]]  # by rule
Source = Callable[[Sequence[AlertRule], datetime], Found]


def in_scope(rule: AlertRule, of: Measured) -> bool:
    is_place = rule.cluster_id in (None, of.cluster_id) and rule.shape in ("", of.shape)
    return is_place and rule.slice_id in (None, of.slice_id)


class RulesByWatched:
    """Rules of the platform, and of each workspace its own: what is measured costs no look at the rules of strangers."""

    def __init__(self, rules: Sequence[AlertRule]) -> None:
        self._of: dict[UUID | None, list[AlertRule]] = defaultdict(list)
        for rule in rules:
            self._of[rule.slice_id].append(rule)

    def watching(self, slice_id: UUID | None) -> Iterator[AlertRule]:
        yield from self._of.get(None, ())
        if slice_id is not None:
            yield from self._of.get(slice_id, ())


def open_subjects(rules: Sequence[AlertRule]) -> QuerySet[AlertSubject, Any]:
    rows = AlertSubject.objects.filter(rule__in=[rule.pk for rule in rules]).exclude(state=SubjectState.OVER)
    return rows.order_by().values_list("subject_id", flat=True).distinct()


# -- GPUs, and the boxes that hold them ----------------------------------------------------------------------------------

_PLACE: Final = ("index", "node_id", "node__name", "node__shape", "node__cluster_id")
_BOX: Final = ("box__starts_at", "box__reservation__gpr_id", "box__reservation__slice_id", "box__reservation__gpr__state")


@dataclass(frozen=True, slots=True)
class GpuPlace:
    gpu_id: UUID
    index: int
    node_id: UUID
    node: str
    shape: str
    cluster_id: UUID
    held_since_at: datetime | None
    gpr_id: UUID | None
    slice_id: UUID | None
    box_state: str | None

    def measured(self, value: float | None, *, box_value: float | None) -> Measured:
        name = f"{self.node} GPU {self.index}"
        return Measured(self.gpu_id, name, value, box_value, self.slice_id, self.gpr_id, self.cluster_id, self.node_id, self.shape)

    def held_since(self, at: datetime) -> bool:
        return self.held_since_at is not None and self.held_since_at <= at

    @property
    def is_active(self) -> bool:
        return self.box_state == GprState.ACTIVE


def with_boxes(rows: QuerySet[Any, Any], path: str = "") -> QuerySet[Any, Any]:
    """Returns GPUs that are there, each with the box that holds it, as `box`. `path` leads to the GPU."""
    there = rows.filter(**{f"{path}gone_at": None, f"{path}node__gone_at": None}).order_by()
    held = Q(**{f"{path}reserved__state": ReservationState.HELD})
    found: QuerySet[Any, Any] = there.annotate(box=FilteredRelation(f"{path}reserved", condition=held))
    return found


def place_columns(path: str = "") -> tuple[str, ...]:
    """Returns columns for `values_list`; `GpuPlace` takes them in this order, after the GPU's id."""
    return (*(f"{path}{name}" for name in _PLACE), *_BOX)


def gpu_places(rows: QuerySet[Gpu, Any]) -> dict[UUID, GpuPlace]:
    return {row[0]: GpuPlace(*row) for row in with_boxes(rows).values_list("pk", *place_columns())}
