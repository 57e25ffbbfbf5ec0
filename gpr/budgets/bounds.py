"""Says in one query what budgets can have given at most: a request that is far below a budget needs no exact count of it.

A bound is never less than what `windows.py` counts: it counts whole days where a period begins within one, whole nodes, GPUs of all shapes,
and all that is queued.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db.models import (
    BigIntegerField,
    Case,
    DateField,
    DateTimeField,
    DurationField,
    ExpressionWrapper,
    F,
    Field,
    Func,
    IntegerField,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    When,
)
from django.db.models.functions import Cast, Coalesce, Greatest

from core.written_sql import TimeParam, WrittenQuery
from gpr.budgets.periods import period_at
from gpr.models import Gpr, GprState, UsageDay, UsageProgress
from gpr.usage.holds import held_since
from gpr.usage.services import MS
from inventory.models import Node, Reservation
from slices.models import OWNER_ID, Budget, Period


class Bounded(NamedTuple):
    budget: Budget
    given_most_s: float  # GPU-seconds of its present period and of all that is booked ahead

    @classmethod
    def of(cls, row: Any) -> Bounded:
        final_s, held_s = (row.final_ms or 0) * MS.total_seconds(), row.held.total_seconds() if row.held else 0.0
        return cls(row, final_s + held_s + (row.queued_s or 0))


def budgets_send(owners: Collection[UUID], *, now: datetime) -> Callable[[], list[Bounded]]:
    """Asks for the budgets of projects and workspaces; what it returns waits for them."""
    week_at, month_at = (period_at(Budget(period=period), now).starts_at for period in (Period.WEEK, Period.MONTH))
    sent = _BUDGETS.send(owners, now=now, week_at=week_at, month_at=month_at)
    return lambda: [Bounded.of(row) for row in sent()]


def _sum_of_own(rows: QuerySet[Any], what: Any, field: Field[Any, Any]) -> Subquery:
    own = rows.filter(Q(slice=OuterRef("slice")) | Q(slice__project=OuterRef("project"))).order_by()
    return Subquery(own.values(sum=Func(what, function="SUM", output_field=field)), output_field=field)


_WHOLE: Final = BigIntegerField()
_SINCE: Final = Case(
    When(period=Period.WEEK, then=TimeParam("week_at")),
    When(period=Period.MONTH, then=TimeParam("month_at")),
    default=F("starts_at"),
    output_field=DateTimeField(),
)
# Days before are final, and counted by their usage rows alone.
_FINAL_AT: Final = Coalesce(Subquery(UsageProgress.objects.values("held_until_at")[:1]), F("since"))
_FINAL: Final = UsageDay.objects.filter(day__gte=Cast(OuterRef("since"), DateField()), day__lt=Cast(OuterRef("final_at"), DateField()))
_HELD: Final = Reservation.objects.filter(held_since(OuterRef("final_at")))  # type: ignore[arg-type]
_HELD_FOR: Final = ExpressionWrapper(
    Coalesce("released_at", Greatest("ends_at", TimeParam("now"))) - Greatest("starts_at", OuterRef("final_at")), DurationField()
)
_LARGEST: Final = Subquery(Node.objects.filter(gone_at=None).order_by("-gpu_count").values("gpu_count")[:1])
_QUEUED_S: Final = Cast("nodes", _WHOLE) * Coalesce("gpus_per_node", _LARGEST, 0, output_field=_WHOLE) * Cast("remaining_s", _WHOLE)
_BUDGETS: Final = WrittenQuery(
    Budget.objects.annotate(owned_by=OWNER_ID, since=_SINCE)
    .annotate(final_at=_FINAL_AT)
    .annotate(
        final_ms=_sum_of_own(_FINAL, F("held_gpu_ms"), _WHOLE),
        held=_sum_of_own(_HELD, ExpressionWrapper(Cast("node__gpu_count", IntegerField()) * _HELD_FOR, DurationField()), DurationField()),
        queued_s=_sum_of_own(Gpr.objects.filter(state=GprState.QUEUED), _QUEUED_S, _WHOLE),
    ),
    key="owned_by",
)
