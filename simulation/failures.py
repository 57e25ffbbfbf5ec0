"""Nodes that fail in a replay: when, for how long, and what stands on the board meanwhile."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from planner.snapshot import Pool, Running

DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Failure:
    """The node is gone over `[at_s, until_s)`."""

    at_s: int
    until_s: int
    node: str

    @property
    def outage(self) -> Running:
        """As a box of all its GPUs, so that nothing else can stand there; not open, so nobody takes them from it."""
        return Running(f"outage of {self.node}", "", "", 0, "", (self.node,), 0, self.until_s, is_open=False)


def draw_failures(pools: Sequence[Pool], *, every_days: float, repair_s: int, seed: int, since_s: int) -> Iterator[Failure]:
    """Failures without end, in order of time. A node is up for an exponential time with a mean of `every_days`, then away for `repair_s`.

    They hang on the nodes and the seed alone, so every policy meets the same ones.
    """
    dice = random.Random(seed)  # noqa: S311 - to be drawn again, not to be secret

    def next_s(up_s: int) -> int:
        return up_s + 1 + int(dice.expovariate(1 / (every_days * DAY_S)))

    due = [(next_s(since_s), node.id) for pool in pools for node in pool.nodes]
    heapq.heapify(due)
    while True:
        at_s, node = due[0]
        yield Failure(at_s, at_s + repair_s, node)
        heapq.heapreplace(due, (next_s(at_s + repair_s), node))
