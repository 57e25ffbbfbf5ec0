"""A request in the queue, and its turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from planner.plan import Cause
from planner.snapshot import Request


class Turn(NamedTuple):
    """The order in which requests are considered.

    Higher priority first; then who is furthest below its share; then the policy's key, the least work first; then who came first.
    """

    minus_priority: int
    share: int
    key: int
    rank: int
    id: str

    @classmethod
    def of(cls, request: Request, key: int = 0) -> Turn:
        share, key = (request.share, key) if request.place is None else (request.place.share, request.place.key)
        return cls(-request.priority, share, key, request.rank, request.id)


@dataclass(slots=True, eq=False)
class Waiting:
    """A request in the queue. `row` is its number on the board, `displaced` why its slot is not where it was stored.

    `risk`: why nobody knows whether its slot can be kept. The slot stays as it was stored until that is known.
    """

    request: Request
    row: int
    turn: Turn
    promise_s: int | None
    displaced: tuple[Cause, str] | None = None
    risk: tuple[Cause, str] | None = None

    def promise_by(self, start_s: int) -> None:
        """A start by then, unless it was promised an earlier one."""
        self.promise_s = start_s if self.promise_s is None else min(self.promise_s, start_s)


def turn_of(waiting: Waiting) -> Turn:
    return waiting.turn


def by_promise(waiting: Waiting) -> tuple[int, int, Turn]:
    """The order in which slots that were lost are found anew: the best promise first."""
    return waiting.turn.minus_priority, waiting.promise_s or 0, waiting.turn
