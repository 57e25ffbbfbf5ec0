"""The planner's working state: who runs, who waits and where, and what came free since all slots were at their earliest."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import NamedTuple

from gpr.planner.improve import Freed
from gpr.planner.plan import Cause
from gpr.planner.snapshot import Policy, Pool, Request, Running, Slot, Window
from gpr.planner.witness import Box, Witness


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
        assert self.slot is not None
        return box_of(self.request, self.slot)


def box_of(request: Request, slot: Slot) -> Box:
    end_s = slot.start_s + request.length_s
    return Box(request.id, request.slice, slot.nodes, request.gpus_per_node, slot.start_s, end_s)


def turn_of(waiting: Waiting) -> Turn:
    return waiting.turn


class Board:
    """The queue in order, and the witness it stands in."""

    def __init__(self, pools: tuple[Pool, ...], *, now_s: int, policy: Policy) -> None:
        self.now_s = now_s
        self.policy = policy
        self.witness = Witness(pools, now_s=now_s)
        self.closed: dict[str, tuple[Window, ...]] = {node.id: node.closed for pool in pools for node in pool.nodes}
        self.running: dict[str, Box] = {}
        self.overdue: set[str] = set()
        self.order: list[Waiting] = []
        self.unplaced: list[Waiting] = []
        self.freed = Freed(self.witness)

    def hold(self, running: Running) -> None:
        """Enter a box that runs. An overdue one is expected back at the next multiple of the grace after its end."""
        end_s, grace_s = running.end_s, max(self.policy.overrun_grace_s, 1)
        if end_s <= self.now_s:
            end_s += grace_s * ((self.now_s - end_s) // grace_s + 1)
            self.overdue.add(running.id)
        box = Box(running.id, running.slice, running.nodes, running.gpus_per_node, self.now_s, end_s)
        self.running[box.id] = box
        self.witness.take(box)

    def release(self, box_id: str) -> None:
        """Its GPUs are free from now on; when it was booked for longer, others may move up."""
        box = self.running.pop(box_id)
        self.witness.give(box, since_s=self.now_s)
        if box.end_s > self.now_s:
            self.freed.add(box)

    def enroll(self, waiting: Waiting) -> None:
        insort(self.order, waiting, key=turn_of)

    def submit(self, request: Request) -> None:
        """A newcomer: its slot is found when the board is settled."""
        waiting = Waiting(request, request.promise_s)
        self.enroll(waiting)
        self.unplaced.append(waiting)

    def start(self, waiting: Waiting) -> None:
        """From waiting to running, in its slot."""
        del self.order[bisect_left(self.order, waiting.turn, key=turn_of)]
        self.running[waiting.request.id] = waiting.box

    def place(self, waiting: Waiting, slot: Slot) -> None:
        waiting.slot = slot
        box = waiting.box
        self.witness.forget_before(self.now_s, box.nodes)
        self.witness.take(box)

    def move(self, waiting: Waiting, slot: Slot) -> Box:
        """Give it another slot; answers the old one."""
        old = waiting.box
        self.witness.give(old)
        self.place(waiting, slot)
        return old

    def soonest_s(self, request: Request) -> int:
        return max(self.now_s, request.earliest_start_s)
