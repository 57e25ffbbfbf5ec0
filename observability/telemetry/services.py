"""Stores readings and rolls them up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final
from uuid import UUID

from django.db import connection, transaction

from inventory.models import Gpu
from inventory.services.agents import AgentIdentity
from observability.models import LEVELS, LatestReading, Reading, Reading15s, RollUpProgress
from observability.telemetry.partitions import AHEAD, partitions_ensure, readings_prune
from observability.xid_counts import counts_text
from protocol.gpus.telemetry import EVERY_S, METRICS, SERIES, GpuReading, RollUp, TelemetryRequest

# Readings from outside of this time say nothing: the agent's clock is wrong, or they lay somewhere for long.
OLDEST, AHEAD_MOST = timedelta(minutes=5), timedelta(seconds=10)
# An agent that sends more often fills no disk with it.
APART: Final = timedelta(seconds=EVERY_S / 3)
LAG: Final = timedelta(seconds=90)  # readings that come later are not in the coarser courses
ROLL_UPS_AT_ONCE: Final = 60
_NAMES: Final = tuple(metric.name for metric in METRICS)
_SERIES_NAMES: Final = tuple(metric.name for metric in SERIES)
_SQL: Final = {RollUp.MOST: "MAX({0})", RollUp.MEAN: "ROUND(AVG({0}))", RollUp.SUM: "SUM({0})"}


def telemetry_store(*, agent: AgentIdentity, message: TelemetryRequest, now: datetime) -> tuple[int, int]:
    """Returns how many readings were stored and how many refused: of unknown GPUs, of impossible times, and too soon."""
    gpus = _gpus_of(agent, message.gpus)
    oldest_s, ahead_s, now_s = (now - OLDEST).timestamp(), (now + AHEAD_MOST).timestamp(), now.timestamp()
    newest: dict[UUID, LatestReading] = {}
    for reading in message.gpus:
        gpu_id, last_at = gpus.get((reading.node, reading.gpu), (None, None))
        if gpu_id is None or not oldest_s <= reading.at_s <= ahead_s:
            continue
        at = datetime.fromtimestamp(min(reading.at_s, now_s), UTC)
        if last_at is None or last_at > now or at >= last_at + APART:  # the hub's clock may have been set back
            newest[gpu_id] = LatestReading(gpu_id=gpu_id, at=at, xid_counts=counts_text(reading.xids), **_values(message.metrics, reading))
    rows = sorted(newest.values(), key=lambda row: row.gpu_id)  # one order for all, so that none waits for another in a circle
    _store(rows)
    return len(rows), len(message.gpus) - len(rows)


def telemetry_step(*, now: datetime) -> None:
    """Rolls up what is complete, makes the partitions ahead and removes what is old. Correct however often it runs."""
    for model in LEVELS:
        partitions_ensure(model, (now, now + AHEAD))
    for fine, coarse in pairwise(LEVELS):
        _roll_up(fine, coarse, now)
    readings_prune(now=now)


def _gpus_of(agent: AgentIdentity, readings: Sequence[GpuReading]) -> dict[tuple[str, str], tuple[UUID, datetime | None]]:
    """Returns the id of each GPU, and the time of its newest reading."""
    there = Gpu.objects.filter(node__cluster=agent.cluster, node__gone_at=None, gone_at=None)
    rows = there.filter(node__name__in={reading.node for reading in readings})
    found = rows.order_by().values_list("node__name", "uuid", "pk", "latest_reading__at")
    return {(node, uuid): (pk, at) for node, uuid, pk, at in found}


def _values(names: Sequence[str], reading: GpuReading) -> dict[str, int | None]:
    told = dict(zip(names, reading.values, strict=False))
    return {metric.name: _whole(told.get(metric.name), metric.most) for metric in METRICS}


def _whole(value: float | None, most: int) -> int | None:
    return round(value) if value is not None and 0 <= value <= most else None


def _store(rows: Sequence[LatestReading]) -> None:
    if not rows:
        return
    partitions_ensure(Reading15s, (row.at for row in rows))
    with transaction.atomic():
        LatestReading.objects.bulk_create(rows, update_conflicts=True, unique_fields=["gpu"], update_fields=["at", "xid_counts", *_NAMES])
        course = [Reading15s(series_id=row.pk, at=row.at, **{name: getattr(row, name) for name in _SERIES_NAMES}) for row in rows]
        Reading15s._default_manager.bulk_create(course, ignore_conflicts=True)


def _roll_up(fine: type[Reading], coarse: type[Reading], now: datetime) -> None:
    for begin in _due(fine, coarse, now):
        with transaction.atomic(), connection.cursor() as cursor:
            since, until = map(connection.ops.adapt_datetimefield_value, (begin, begin + coarse.STEP))
            cursor.execute(_roll_up_sql(fine, coarse), [since, since, until])
            RollUpProgress.objects.update_or_create(table=coarse._meta.db_table, defaults={"done_at": begin + coarse.STEP})


def _due(fine: type[Reading], coarse: type[Reading], now: datetime) -> Iterator[datetime]:
    done = RollUpProgress.objects.filter(table=coarse._meta.db_table).values_list("done_at", flat=True).first()
    until = step_floor(now - LAG, coarse)
    if done is None:
        first = fine._default_manager.order_by("at").values_list("at", flat=True).first()
        done = step_floor(first, coarse) if first else until
    begin = max(done, step_floor(now - fine.KEPT, coarse))
    for _ in range(ROLL_UPS_AT_ONCE):
        if begin >= until:
            return
        yield begin
        begin += coarse.STEP


def step_floor(moment: datetime, coarse: type[Reading]) -> datetime:
    """Returns the begin of the step in which it lies."""
    step_s = int(coarse.STEP.total_seconds())
    return datetime.fromtimestamp(int(moment.timestamp()) // step_s * step_s, UTC)


def _roll_up_sql(fine: type[Reading], coarse: type[Reading]) -> str:
    names, values = ", ".join(_SERIES_NAMES), ", ".join(_SQL[metric.roll_up].format(metric.name) for metric in SERIES)
    return (
        f"INSERT INTO {coarse._meta.db_table} (series_id, at, {names}) "  # noqa: S608  # names of columns
        f"SELECT series_id, %s, {values} FROM {fine._meta.db_table} WHERE at >= %s AND at < %s GROUP BY series_id ON CONFLICT DO NOTHING"
    )
