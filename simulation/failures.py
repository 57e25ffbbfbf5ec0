"""Draws node failures for a replay."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from planner.snapshot import Pool, Running

DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Failure:
    """Takes the node down over `[at_s, until_s)`."""

    at_s: int
    until_s: int
    node: str

    @property
    def outage(self) -> Running:
        """Returns a box that takes all its GPUs; not open, so that it cannot be evicted."""
        return Running(f"outage of {self.node}", "", "", 0, "", (self.node,), 0, self.until_s, is_open=False)


def draw_failures(pools: Sequence[Pool], *, every_days: float, repair_s: int, seed: int, since_s: int) -> Iterator[Failure]:
    """Generate endless failures in order of time. They depend on nodes and seed only, so every policy meets the same."""
    dice = random.Random(seed)  # noqa: S311 - must be repeatable, not secret

    def next_s(up_s: int) -> int:
        return up_s + 1 + int(dice.expovariate(1 / (every_days * DAY_S)))

    due = [(next_s(since_s), node.id) for pool in pools for node in pool.nodes]
    heapq.heapify(due)
    while True:
        at_s, node = due[0]
        yield Failure(at_s, at_s + repair_s, node)
        heapq.heapreplace(due, (next_s(at_s + repair_s), node))
