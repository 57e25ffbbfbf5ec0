"""What a new promise learns from the past: earlier arrivals with their slots in two simulated queues, and nodes that failed."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from gpr.allocation.pools import RETURN_S
from gpr.allocation.rows import ShadowRow
from gpr.allocation.snapshot import SLACK, second_of
from gpr.models import Witness
from inventory.rows import clusters_failed
from planner.snapshot import Arrival, Failed, Memory, Shadow, Slot


def memory_of(record: Witness, rows: Iterable[ShadowRow], *, now: datetime) -> Memory:
    """`rows`: the oldest first."""
    rows = list(rows)
    return Memory(
        shadows=tuple(_shadow(row) for row in rows if row.stands(now)),
        arrivals=_arrivals(row for row in rows if row.made_at >= observed_since(now)),
        promised_s=record.promised_sum_s,
        patient_s=record.patient_sum_s,
        summed_at_s=second_of(record.summed_at),
        ran_s=record.ran_sum_s,
        booked_s=record.booked_sum_s,
        failed=tuple(Failed(name, second_of(failed_at), RETURN_S) for name, failed_at in clusters_failed()),
    )


def observed_since(now: datetime) -> datetime:
    return now - timedelta(seconds=SLACK.observed_s)


def _arrivals(rows: Iterable[ShadowRow]) -> tuple[Arrival, ...]:
    # Equal arrivals are grouped.
    found: dict[tuple[int, int], list[ShadowRow]] = {}
    for row in rows:
        found.setdefault((row.priority, row.gpu_s), []).append(row)
    alike = sorted((same[0].made_at, *ask, len(same)) for ask, same in found.items())
    return tuple(Arrival(second_of(since_at), priority, gpu_s, count) for since_at, priority, gpu_s, count in alike)


def _shadow(row: ShadowRow) -> Shadow:
    slots = (
        _slot(row.patient, row.patient_starts_at),
        second_of(row.patient_ends_at),
        _slot(row.strict, row.strict_starts_at),
        second_of(row.strict_ends_at),
    )
    return Shadow(str(row.gpr_id), row.gpus_per_node, *slots)


def _slot(data: dict[str, Any], starts_at: datetime | None) -> Slot:
    return Slot(data["pool"], second_of(starts_at), tuple(data["nodes"]))
