"""The load tests of Kueue's own performance runner, as data for both sides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Kind:
    """Describes workloads of a queue that are alike, made one after the other. `published_s`: Kueue's mean time to admission."""

    name: str
    count: int
    every_ms: int
    length_ms: int
    priority: int
    cpus: int
    published_s: float


@dataclass(frozen=True, slots=True)
class Scenario:
    """Cohorts of queues that are each guaranteed `quota` CPUs, lend what they leave idle, and take it back."""

    name: str
    cohort_count: int
    queue_count: int
    quota: int
    kinds: tuple[Kind, ...]
    published_wall_s: float

    @property
    def cohort_cpus(self) -> int:
        return self.queue_count * self.quota

    @property
    def workload_count(self) -> int:
        return self.cohort_count * self.queue_count * sum(kind.count for kind in self.kinds)

    @property
    def work_s(self) -> float:
        """How long all CPUs are busy with it."""
        return sum(kind.count * kind.length_ms * kind.cpus for kind in self.kinds) / 1000 / self.quota

    @property
    def ideal_wall_s(self) -> float:
        """Returns the shortest possible time: all work on all CPUs, and not before the last workload is made and has run."""
        last_s = max(kind.count * kind.every_ms + kind.length_ms for kind in self.kinds) / 1000
        return max(self.work_s, last_s)

    def generator(self) -> dict[str, Any]:
        """Returns the scenario as Kueue's runner reads it, so that both sides have the same."""
        workloads = [
            {
                "count": kind.count,
                "creationIntervalMs": kind.every_ms,
                "workloads": [
                    {"className": kind.name, "runtimeMs": kind.length_ms, "priority": kind.priority, "request": str(kind.cpus)},
                ],
            }
            for kind in self.kinds
        ]
        queues = {
            "className": "cq",
            "count": self.queue_count,
            "nominalQuota": str(self.quota),
            "borrowingLimit": str(BORROWED_MOST),
            "reclaimWithinCohort": "Any",
            "withinClusterQueue": "LowerPriority",
            "workloadsSets": workloads,
        }
        return {"cohorts": [{"className": "cohort", "count": self.cohort_count, "queuesSets": [queues]}]}


@dataclass(frozen=True, slots=True)
class Arrival:
    at_ms: int
    cohort: int
    queue: int
    kind: Kind


def arrivals(scenario: Scenario) -> Iterator[Arrival]:
    """Yields them in order of time; the first of each kind comes after one interval."""
    made = (
        Arrival((number + 1) * kind.every_ms, cohort, queue, kind)
        for kind in scenario.kinds
        for number in range(kind.count)
        for cohort in range(scenario.cohort_count)
        for queue in range(scenario.queue_count)
    )
    yield from sorted(made, key=lambda arrival: (arrival.at_ms, arrival.cohort, arrival.queue))


# Figures of kubernetes-sigs/kueue, test/performance/scheduler/configs, generator.yaml and rangespec.yaml of each, 2026-08.
BORROWED_MOST: Final = 100
BASELINE: Final = Scenario(
    "baseline",
    cohort_count=5,
    queue_count=6,
    quota=20,
    kinds=(
        Kind("small", 350, every_ms=100, length_ms=200, priority=50, cpus=1, published_s=215.5),
        Kind("medium", 100, every_ms=500, length_ms=500, priority=100, cpus=5, published_s=76.8),
        Kind("large", 50, every_ms=1200, length_ms=1000, priority=200, cpus=20, published_s=16.5),
    ),
    published_wall_s=351.1,
)
LARGE_SCALE: Final = Scenario(
    "large-scale",
    cohort_count=10,
    queue_count=100,
    quota=20,
    kinds=(
        Kind("small", 35, every_ms=60, length_ms=150, priority=50, cpus=1, published_s=700.4),
        Kind("medium", 11, every_ms=300, length_ms=350, priority=100, cpus=5, published_s=256.4),
        Kind("large", 4, every_ms=700, length_ms=700, priority=200, cpus=20, published_s=105.6),
    ),
    published_wall_s=1179.4,
)
