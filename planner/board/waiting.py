"""Describes a request in the queue, and its turn."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from planner.causes import Cause
from planner.snapshot import Request


class Turn(NamedTuple):
    """It sorts the queue: by higher priority, then by the smaller share, by less work (the policy's key), and by who came first."""

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
    request: Request
    row: int  # in the table of the board
    turn: Turn
    promise_s: int | None
    displaced: tuple[Cause, str] | None = None  # why its slot is not where it was stored, and what caused it
    risk: tuple[Cause, str] | None = None  # why it is unknown whether its slot can be kept

    def copy(self) -> Waiting:
        return Waiting(self.request, self.row, self.turn, self.promise_s, self.displaced, self.risk)

    def promise_by(self, start_s: int) -> None:
        """Sets the promise, unless an earlier one stands."""
        self.promise_s = start_s if self.promise_s is None else min(self.promise_s, start_s)


def turn_of(waiting: Waiting) -> Turn:
    return waiting.turn


def in_chains(waitings: Iterable[Waiting]) -> list[Waiting]:
    """Keeps the order, but puts each request behind its predecessor."""
    left = {waiting.request.id: waiting for waiting in waitings}
    found: list[Waiting] = []
    for waiting in list(left.values()):
        chain, before = [], left.pop(waiting.request.id, None)
        while before is not None:
            chain.append(before)
            before = left.pop(before.request.after, None)
        found += reversed(chain)
    return found


def by_promise(waiting: Waiting) -> tuple[int, int, Turn]:
    return waiting.turn.minus_priority, waiting.promise_s or 0, waiting.turn
