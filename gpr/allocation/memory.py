"""Keeps the past from which a new promise learns: earlier arrivals with their slots in two simulated queues, and nodes that failed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import UUID

from gpr.allocation.pools import RETURN_S
from gpr.allocation.rows import ShadowRow
from gpr.allocation.snapshot import SLACK, second_of
from gpr.models import PlanRecord
from inventory.models import Cluster
from planner.snapshot import Arrival, Failed, Memory, Shadow, Slot


class PastArrival(NamedTuple):
    """`shadow`: its slots in both queues, until the later of them is over; None for one that waited for nobody."""

    made_at: datetime
    gpr_id: UUID
    priority: int
    gpu_s: int
    stands_until: datetime | None
    shadow: Shadow | None

    def stands(self, now: datetime) -> bool:
        return self.stands_until is not None and self.stands_until > now


class Arrivals:
    """Those that a process knows, by GPR. They are sorted and grouped anew only when they have changed."""

    def __init__(self) -> None:
        self._of_gpr: dict[UUID, PastArrival] = {}
        self._in_order: list[PastArrival] | None = None  # the oldest first
        self._grouped: tuple[int, tuple[Arrival, ...]] | None = None  # those from this place on

    def replace(self, gone: Iterable[UUID], come: Iterable[PastArrival]) -> None:
        for gpr_id in gone:
            self._of_gpr.pop(gpr_id, None)
        self._of_gpr.update((arrival.gpr_id, arrival) for arrival in come)
        self._in_order = self._grouped = None

    def shadows(self, now: datetime) -> tuple[Shadow, ...]:
        return tuple(arrival.shadow for arrival in self._all() if arrival.shadow is not None and arrival.stands(now))

    def since(self, since_at: datetime) -> tuple[Arrival, ...]:
        first = bisect_left(self._all(), since_at, key=attrgetter("made_at"))
        if self._grouped is None or self._grouped[0] != first:
            self._grouped = first, _grouped(self._all()[first:])
        return self._grouped[1]

    def _all(self) -> list[PastArrival]:
        if self._in_order is None:
            self._in_order = sorted(self._of_gpr.values())
        return self._in_order


def past_arrivals(rows: Iterable[tuple[Any, ...]]) -> Iterator[PastArrival]:
    """Makes arrivals from the rows of `shadow_rows`."""
    for row in map(ShadowRow._make, rows):
        patient_ends_at, strict_ends_at = row.patient_ends_at, row.strict_ends_at
        if patient_ends_at is None or strict_ends_at is None:
            yield PastArrival(row.made_at, row.gpr_id, row.priority, row.gpu_s, None, None)
            continue
        patient, strict = _slot(row.patient, row.patient_starts_at), _slot(row.strict, row.strict_starts_at)
        shadow = Shadow(str(row.gpr_id), row.gpus_per_node, patient, second_of(patient_ends_at), strict, second_of(strict_ends_at))
        yield PastArrival(row.made_at, row.gpr_id, row.priority, row.gpu_s, max(patient_ends_at, strict_ends_at), shadow)


def memory_of(record: PlanRecord, arrivals: Arrivals, clusters: Iterable[Cluster], *, now: datetime) -> Memory:
    return Memory(
        shadows=arrivals.shadows(now),
        arrivals=arrivals.since(now - timedelta(seconds=SLACK.observed_s)),
        promised_s=record.promised_sum_s,
        patient_s=record.patient_sum_s,
        summed_at_s=second_of(record.summed_at),
        ran_s=record.ran_sum_s,
        booked_s=record.booked_sum_s,
        failed=tuple(
            Failed(cluster.name, second_of(cluster.node_failed_at), RETURN_S)
            for cluster in sorted(clusters, key=attrgetter("name"))
            if cluster.node_failed_at is not None
        ),
    )


def _grouped(arrivals: Iterable[PastArrival]) -> tuple[Arrival, ...]:
    # Equal ones count together from the first on.
    found: dict[tuple[int, int], list[PastArrival]] = {}
    for arrival in arrivals:
        found.setdefault((arrival.priority, arrival.gpu_s), []).append(arrival)
    alike = sorted((same[0].made_at, *ask, len(same)) for ask, same in found.items())
    return tuple(Arrival(second_of(since_at), priority, gpu_s, count) for since_at, priority, gpu_s, count in alike)


def _slot(data: dict[str, Any], starts_at: datetime | None) -> Slot:
    return Slot(data["pool"], second_of(starts_at), tuple(data["nodes"]))
