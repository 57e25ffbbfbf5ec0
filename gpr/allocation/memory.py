"""Keeps the past from which a new promise learns: earlier arrivals with their slots in two simulated queues, and nodes that failed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from operator import attrgetter
from typing import Any, Final, NamedTuple
from uuid import UUID

from sortedcontainers import SortedList

from gpr.allocation.pools import RETURN_S
from gpr.allocation.rows import ShadowRow
from gpr.allocation.snapshot import SLACK, second_of
from gpr.models import PlanRecord
from inventory.models import Cluster
from planner.promises.slack import size_class
from planner.snapshot import Arrival, Failed, Memory, Shadow, Slot

FAR: Final = datetime.max.replace(tzinfo=UTC)


class PastArrival(NamedTuple):
    """`shadow`: its slots in both queues, until the later of them is over; None for one that waited for nobody."""

    made_at: datetime
    gpr_id: UUID
    priority: int
    gpu_s: int
    stands_until: datetime | None
    shadow: Shadow | None

    @property
    def kind(self) -> tuple[int, int]:
        return self.priority, size_class(self.gpu_s)

    def stands(self, now: datetime) -> bool:
        return self.stands_until is not None and self.stands_until > now


class Arrivals:
    """Keeps the past arrivals that this process knows, and the counts that a newcomer's plan needs, so that each change costs little."""

    def __init__(self) -> None:
        self._of_gpr: dict[UUID, PastArrival] = {}
        self._in_order: SortedList[PastArrival] = SortedList()  # the oldest first
        # Arrivals since `_since_at`, by kind; shadows that stand at `_stood_at`, and the times at which they end.
        self._since_at, self._alike = FAR, dict[tuple[int, int], SortedList[PastArrival]]()
        self._work: dict[tuple[int, int], int] = defaultdict(int)
        self._stood_at, self._shadows = FAR, dict[UUID, Shadow]()
        self._ends: list[tuple[datetime, UUID]] = []

    def replace(self, gone: Iterable[UUID], come: Iterable[PastArrival]) -> None:
        for gpr_id in gone:
            if (old := self._of_gpr.pop(gpr_id, None)) is not None:
                self._in_order.remove(old)
                self._shadows.pop(gpr_id, None)
                if old.made_at >= self._since_at:
                    self._uncount(old)
        new = {arrival.gpr_id: arrival for arrival in come}
        self._of_gpr.update(new)
        self._in_order.update(new.values())
        for arrival in new.values():
            self._stand(arrival)
            if arrival.made_at >= self._since_at:
                self._count(arrival)

    def shadows(self, now: datetime) -> tuple[Shadow, ...]:
        if now < self._stood_at:  # at first, or the clock was set back
            self._stood_at, self._shadows, self._ends = now, {}, []
            for arrival in self._in_order:
                self._stand(arrival)
        self._stood_at = now
        while self._ends and self._ends[0][0] <= now:
            _, gpr_id = heappop(self._ends)
            known = self._of_gpr.get(gpr_id)
            if known is None or not known.stands(now):  # else its end has moved
                self._shadows.pop(gpr_id, None)
        return tuple(self._shadows.values())

    def since(self, since_at: datetime) -> tuple[Arrival, ...]:
        """Return the arrivals since then; arrivals of one kind are one entry, dated by the first."""
        if since_at < self._since_at:  # at first, or the clock was set back
            self._alike.clear()
            self._work.clear()
            for arrival in self._in_order.irange((since_at,)):
                self._count(arrival)
        else:
            for arrival in self._in_order.irange((self._since_at,), (since_at,)):
                self._uncount(arrival)
        self._since_at = since_at
        firsts = sorted((alike[0], self._work[kind]) for kind, alike in self._alike.items())
        return tuple(Arrival(second_of(first.made_at), first.priority, first.gpu_s, gpu_s - first.gpu_s) for first, gpu_s in firsts)

    def _stand(self, arrival: PastArrival) -> None:
        if arrival.shadow is not None and arrival.stands_until is not None and arrival.stands(self._stood_at):
            self._shadows[arrival.gpr_id] = arrival.shadow
            heappush(self._ends, (arrival.stands_until, arrival.gpr_id))

    def _count(self, arrival: PastArrival) -> None:
        self._alike.setdefault(arrival.kind, SortedList()).add(arrival)
        self._work[arrival.kind] += arrival.gpu_s

    def _uncount(self, arrival: PastArrival) -> None:
        alike = self._alike[arrival.kind]
        alike.remove(arrival)
        self._work[arrival.kind] -= arrival.gpu_s
        if not alike:
            del self._alike[arrival.kind], self._work[arrival.kind]


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


def _slot(data: dict[str, Any], starts_at: datetime | None) -> Slot:
    return Slot(data["pool"], second_of(starts_at), tuple(data["nodes"]))
