"""Narrow rows that a plan reads: model instances would be slow for a queue of ten thousand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Final, NamedTuple, Self
from uuid import UUID

from django.db.models import BigIntegerField, Exists, Func, OuterRef

from core.written_sql import WrittenQuery
from gpr.models import PROVISIONED, Gpr, GprState, Shadow
from inventory.models import Reservation, ReservationState
from slices.models import Slice


class GprRow(NamedTuple):
    # A GPR's demand, its place in the queue, and its slice's settings. Names are those of the models.
    pk: UUID
    version: int
    priority: int
    nodes: int
    gpus_per_node: int | None
    remaining_s: int
    shape: str
    min_gpu_memory_gib: int | None
    node_type: str
    rdma: bool
    within: str
    allowed_shapes: list[str] | None
    earliest_start_at: datetime | None
    is_booking: bool
    run: int
    may_evict: bool
    evictable: bool
    place_share: int | None
    place_key: int | None
    turn_at: datetime | None
    slice_id: UUID
    slice__project_id: UUID
    slice__home_id: UUID | None
    slice__burst_gain_s: int
    slice__may_order: bool
    after_id: UUID | None
    after_condition: str
    after__state: str | None
    after__job__outcome: str | None  # None: no job

    @classmethod
    def of(cls, gpr: Gpr) -> Self:
        job = getattr(gpr.after, "job", None)
        return cls._make((*_fields_of(gpr), gpr.after.state if gpr.after else None, job.outcome if job else None))


_fields_of = attrgetter(*(name.replace("__", ".") for name in GprRow._fields[:-2]))


class PlanSummary(NamedTuple):
    """Holds the fields of a queued GPR's plan that pages show."""

    planned_start_at: datetime | None
    explanation: dict[str, Any]
    turn_share: int
    turn_key: int


class PromiseRow(NamedTuple):
    gpr_id: UUID
    made_at: datetime
    promised_start_at: datetime
    slot_pool: str
    slot_start_at: datetime
    slot_nodes: list[str]
    lost_cause: str
    lost_cause_id: str


class ShadowRow(NamedTuple):
    """Holds an arrival and its slots in the two simulated queues, which are null for one that waited for nobody."""

    gpr_id: UUID
    made_at: datetime
    priority: int
    gpu_s: int
    gpus_per_node: int
    patient: dict[str, Any]
    patient_starts_at: datetime | None
    patient_ends_at: datetime | None
    strict: dict[str, Any]
    strict_starts_at: datetime | None
    strict_ends_at: datetime | None


class HeldRow(NamedTuple):
    """Describes a node that a GPR holds. `replaces_id`: the reservation that it replaces or will replace."""

    pk: UUID
    replaces_id: UUID | None
    gpr_id: UUID
    node_id: UUID
    end_s: int  # seconds since 1970, rounded up
    slice_id: UUID
    gpr__slice__project_id: UUID
    gpr__priority: int
    gpr__gpus_per_node: int | None
    started_s: int | None
    gpr__evictable: bool
    gpr__state: str
    gpr__requeue_on_failure: bool
    gpr__is_booking: bool


# Years of five digits are in no calendar, and a time zone must not push a time into one.
LAST_S: Final = int(datetime(9000, 1, 1, tzinfo=UTC).timestamp())


def queued_parts(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[GprRow, PromiseRow | None, bool]]:
    """Parts rows of `queued_rows` into the GPR, its promise, and whether it names clusters."""
    width = len(GprRow._fields)
    for *row, names_clusters in rows:
        yield GprRow._make(row[:width]), None if row[width] is None else PromiseRow._make(row[width:]), names_clusters


def plan_summaries(ids: Collection[UUID] | None = None) -> dict[str, PlanSummary]:
    """Returns summaries of these queued GPRs by id; for None, those of all."""
    return {str(pk): PlanSummary._make(rest) for pk, *rest in _SUMMARIES(ids)}


def gprs_by_id(ids: Iterable[str | UUID]) -> dict[str, Gpr]:
    """Loads GPRs with their slices. Runs no query for no ids."""
    return {str(gpr.pk): gpr for gpr in _WITH_SLICE({UUID(str(id_)) for id_ in ids})}


def held_by_gpr(rows: Iterable[tuple[Any, ...]]) -> dict[str, tuple[HeldRow, ...]]:
    found: dict[str, list[HeldRow]] = defaultdict(list)
    for row in map(HeldRow._make, rows):
        found[str(row.gpr_id)].append(row)
    return {gpr_id: tuple(held) for gpr_id, held in found.items()}


class EpochSeconds(Func):
    # Seconds since 1970, rounded down. The database computes them faster than Django parses a datetime.
    output_field = BigIntegerField()
    postgresql = "FLOOR(EXTRACT(EPOCH FROM %(expressions)s))::bigint"
    sqlite = "CAST(strftime('%%%%s', substr(%(expressions)s, 1, 19)) AS INTEGER)"

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        return self.as_sql(compiler, connection, template=self.postgresql, **context)

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        return self.as_sql(compiler, connection, template=self.sqlite, **context)


class _EpochSecondsUp(EpochSeconds):
    # Rounded up: in SQLite a time without a fraction has 19 characters.
    postgresql = "CEIL(EXTRACT(EPOCH FROM %(expressions)s))::bigint"
    sqlite = f"{EpochSeconds.sqlite} + (length(%(expressions)s) > 19)"


def sets_of(pairs: Iterable[tuple[UUID, UUID]]) -> dict[UUID, set[UUID]]:
    found: dict[UUID, set[UUID]] = defaultdict(set)
    for key, value in pairs:
        found[key].add(value)
    return found


HELD: Final = (
    Reservation.objects.filter(state=ReservationState.HELD, gpr__state__in=PROVISIONED)
    .annotate(end_s=_EpochSecondsUp("ends_at"), started_s=EpochSeconds("gpr__provisioning_at"))
    .order_by("gpr", "node")
    .values_list(*HeldRow._fields)
)
_WITH_SLICE: Final = WrittenQuery(Gpr.objects.select_related("slice"))
_WAITING: Final = Gpr.objects.filter(state=GprState.QUEUED).order_by()
_SUMMARIES: Final = WrittenQuery(_WAITING.values_list("pk", *PlanSummary._fields))
_NAMED: Final = Gpr.clusters.through.objects
named_clusters: Final = WrittenQuery(_NAMED.filter(gpr__state=GprState.QUEUED).values_list("gpr_id", "cluster_id"), key="gpr__id")
queued_rows: Final = WrittenQuery(
    _WAITING.values_list(*GprRow._fields, *(f"promise__{name}" for name in PromiseRow._fields), Exists(_NAMED.filter(gpr=OuterRef("pk"))))
)
allowed_clusters: Final = WrittenQuery(Slice.clusters.through.objects.values_list("slice_id", "cluster_id"), key="slice__id")
shadow_rows: Final = WrittenQuery(Shadow.objects.values_list(*ShadowRow._fields), key="gpr__id")
held_rows: Final = WrittenQuery(HELD, key="gpr__id")
