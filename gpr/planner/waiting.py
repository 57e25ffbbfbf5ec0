"""A request in the queue, its turn and its box."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from gpr.planner.plan import Cause
from gpr.planner.snapshot import Request, Slot
from gpr.planner.witness import Box


class Turn(NamedTuple):
    """The order in which requests are considered: higher priority first, then who was queued first."""

    minus_priority: int
    rank: int
    id: str

    @classmethod
    def of(cls, request: Request) -> Turn:
        return cls(-request.priority, request.rank, request.id)


@dataclass(slots=True)
class Waiting:
    """A request in the queue, and its slot once it has one. `displaced`: why the slot is not where it was stored."""

    request: Request
    promise_s: int | None
    slot: Slot | None = None
    displaced: tuple[Cause, str] | None = None
    turn: Turn = field(init=False)

    def __post_init__(self) -> None:
        self.turn = Turn.of(self.request)

    @property
    def box(self) -> Box:
        if self.slot is None:
            raise ValueError(f"{self.request.id} has no slot")
        return box_of(self.request, self.slot)


def box_of(request: Request, slot: Slot) -> Box:
    end_s = slot.start_s + request.length_s
    return Box(request.id, request.slice, slot.nodes, request.gpus_per_node, slot.start_s, end_s)


def turn_of(waiting: Waiting) -> Turn:
    return waiting.turn
