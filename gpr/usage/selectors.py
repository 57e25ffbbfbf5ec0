"""Reads usage rows, prices and the league."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from itertools import pairwise
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db.models import BigIntegerField, Case, CharField, DateField, F, FloatField, Q, QuerySet, Sum, UUIDField, Value, When
from django.db.models.functions import Cast, TruncMonth

from accounts.models import User
from accounts.policy import ObjectKind, Verb, may_all, visible_rows
from core.rest.references import id_of, one_by_id
from gpr.models import NO_WORKLOAD, ShapePrice, UsageDay
from inventory.models import Node
from inventory.selectors import cluster_ids_of
from slices.models import Project, ProjectAdmin
from slices.selectors import slices_visible_to

HOUR_MS: Final = 3_600_000
LEAGUE_MEASURED_MS: Final = HOUR_MS  # less says nothing of a workspace


class Dimension(NamedTuple):
    key: Any
    name: Any
    of: Any  # what the thing belongs to


_NONE: Final = Value("")
_REST: Final = Q(workload=NO_WORKLOAD)
DIMENSIONS: Final = {
    "project": Dimension(F("slice__project"), F("slice__project__name"), _NONE),
    "slice": Dimension(F("slice"), F("slice__name"), F("slice__project__name")),
    "person": Dimension(F("gpr__owner"), F("gpr__owner__name"), _NONE),
    "gpr": Dimension(F("gpr"), F("gpr__name"), F("slice__name")),
    # One row of a workspace has the time that no workload had.
    "workload": Dimension(
        Case(When(_REST, then=F("slice_id")), default=F("workload"), output_field=UUIDField()),
        Case(When(_REST, then=Value("No workload")), default=F("workload_name"), output_field=CharField()),
        F("slice__name"),
    ),
    "shape": Dimension(F("shape"), F("shape"), _NONE),
    "cluster": Dimension(F("cluster"), F("cluster__name"), _NONE),
}
STEPS: Final = ("total", "day", "month")
USAGE_ORDER: Final = ("since", "-held_ms", "key")  # of usage_by
TOTALS: Final = ("held_ms", "measured_ms", "used_ms", "cost_ms", "unpriced_ms")


@dataclass(frozen=True, slots=True)
class Usage:
    """Counts GPU-hours. Held is used, wasted and unmeasured time: entry, exit, and times without readings."""

    held_hours: float
    measured_hours: float
    used_hours: float
    cost: Decimal
    unpriced_hours: float  # held while the shape had no price

    @classmethod
    def of(cls, row: Any) -> Usage:
        """`row` has TOTALS; they are None where there is nothing."""
        held, measured, used, cost, unpriced = ((getattr(row, name) or 0) / HOUR_MS for name in TOTALS)
        return cls(held, measured, used, Decimal(cost).quantize(Decimal("0.01")), unpriced)

    @property
    def wasted_hours(self) -> float:
        return self.measured_hours - self.used_hours

    @property
    def unmeasured_hours(self) -> float:
        return max(self.held_hours - self.measured_hours, 0.0)

    @property
    def efficiency(self) -> float | None:
        """Returns used of measured; None: nothing was measured."""
        return self.used_hours / self.measured_hours if self.measured_hours else None


def usage_visible_to(actor: User) -> QuerySet[UsageDay]:
    return visible_rows(UsageDay.objects.all(), actor, Q(slice__in=slices_visible_to(actor)))


def of_workload(reference: str) -> Q:
    """Finds it by id, or by kind and name."""
    id_ = id_of(reference)
    return Q(workload=id_) if id_ else Q(workload_name=reference) & ~_REST


def usage_by(rows: QuerySet[UsageDay], *, by: str, since: date, step: str = "total") -> QuerySet[Any, Any]:
    """Returns rows with `key`, `name`, `of`, `since` (the first day of their step) and TOTALS. Runs one query, and one for prices."""
    dimension = DIMENSIONS[by]
    begins: dict[str, Any] = {"total": Cast(Value(since), DateField()), "day": F("day"), "month": TruncMonth("day")}
    named: dict[str, Any] = {
        "key": dimension.key,
        "name": dimension.name,
        "of": dimension.of,
        "since": begins[step],
    }
    kept = rows.filter(day__gte=since).annotate(**named)
    return _summed(kept, *named)


def usage_total(rows: QuerySet[UsageDay]) -> Usage:
    return Usage.of(Sums(**rows.order_by().aggregate(**_sums())))


def usage_days(rows: QuerySet[UsageDay]) -> list[tuple[date, Usage]]:
    return [(row.day, Usage.of(row)) for row in _summed(rows, "day").order_by("day")]


def _summed(rows: QuerySet[UsageDay], *by: str) -> QuerySet[Any, Any]:
    sums = _sums()
    found: QuerySet[Any, Any] = rows.order_by().values_list(*by).annotate(**sums).values_list(*by, *sums, named=True)
    return found


class Sums(NamedTuple):
    held_ms: int | None
    measured_ms: int | None
    used_ms: int | None
    cost_ms: float | None
    unpriced_ms: int | None


def _sums() -> dict[str, Any]:
    priced = _priced()
    cost = Case(*(When(which, then=F("held_gpu_ms") * Value(price)) for which, price in priced), default=0.0, output_field=FloatField())
    unpriced = Case(*(When(which, then=0) for which, _ in priced), default=F("held_gpu_ms"), output_field=BigIntegerField())
    return {
        "held_ms": Sum("held_gpu_ms"),
        "measured_ms": Sum("measured_gpu_ms"),
        "used_ms": Sum("used_gpu_ms"),
        "cost_ms": Sum(cost),
        "unpriced_ms": Sum(unpriced),
    }


def _priced() -> list[tuple[Q, float]]:
    """Yields conditions on usage rows, each with the price of a GPU-hour."""
    by_shape: dict[str, list[tuple[date, Decimal]]] = defaultdict(list)
    for shape, from_day, price in ShapePrice.objects.order_by("from_day").values_list("shape", "from_day", "gpu_hour_price"):
        by_shape[shape].append((from_day, price))
    return [
        (Q(shape=shape, day__gte=from_day, day__lt=until), float(price))
        for shape, prices in by_shape.items()
        for (from_day, price), (until, _) in pairwise([*prices, (date.max, Decimal(0))])
    ]


def prices_visible_to(actor: User) -> QuerySet[ShapePrice]:
    """Members see those of shapes in their clusters and in what they used."""
    there = Node.objects.filter(cluster__in=cluster_ids_of(actor)).values("shape")
    own = Q(shape__in=there) | Q(shape__in=UsageDay.objects.filter(slice__in=slices_visible_to(actor)).values("shape"))
    return visible_rows(ShapePrice.objects.select_related("set_by"), actor, own)


def price_for(actor: User, price_id: str | UUID) -> ShapePrice:
    """Raises NotFound."""
    return one_by_id(prices_visible_to(actor), price_id, what="price")


@dataclass(frozen=True, slots=True)
class LeaguePlace:
    """Tells a workspace's place among those of its project."""

    slice_id: UUID
    slice: str
    project: str
    place: int
    efficiency: float
    measured_hours: float

    @property
    def id(self) -> UUID:
        return self.slice_id

    @property
    def name(self) -> str:
        return self.slice


def league(actor: User, *, since: date, until: date) -> list[LeaguePlace]:
    """Ranks by project, the most efficient first. Members see the places of their own workspaces, administrators of a project all in it."""
    rows = UsageDay.objects.filter(day__gte=since, day__lt=until, slice__project__in_league=True).order_by()
    sums = rows.values_list("slice__project", "slice", "slice__name", "slice__project__name")
    found = sums.annotate(used=Sum("used_gpu_ms"), measured=Sum("measured_gpu_ms")).filter(measured__gte=LEAGUE_MEASURED_MS)
    seen = _seen_in_league(actor)
    ranked = []
    places: Counter[UUID] = Counter()
    for project_id, slice_id, name, project, used, measured in sorted(found, key=lambda row: (row[3], -row[4] / row[5], row[2])):
        places[project_id] += 1
        if seen is None or project_id in seen or slice_id in seen:
            ranked.append(LeaguePlace(slice_id, name, project, places[project_id], used / measured, measured / HOUR_MS))
    return ranked


def _seen_in_league(actor: User) -> set[UUID] | None:
    """Returns ids of projects and workspaces; None: all."""
    if may_all(actor, Verb.SEE, ObjectKind.USAGE):
        return None
    projects: Iterable[UUID] = [] if actor.bound_to else ProjectAdmin.objects.filter(user=actor).values_list("project", flat=True)
    return {*projects, *slices_visible_to(actor).values_list("pk", flat=True)}


def projects_run_by(actor: User) -> Sequence[Project]:
    """Returns the projects whose league the actor may switch on and off."""
    if may_all(actor, Verb.CHANGE, ObjectKind.PROJECT):
        return list(Project.objects.order_by("name"))
    if actor.bound_to:
        return []
    return list(Project.objects.filter(admins__user=actor).order_by("name"))
