"""The planner's working state: who runs, who waits and where, and what came free since all slots were at their earliest."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort

from gpr.planner.freed import Freed
from gpr.planner.snapshot import Policy, Pool, Request, Running, Slot, Window
from gpr.planner.waiting import Turn, Waiting, turn_of
from gpr.planner.witness import Box, Witness


class Board:
    """The queue in order, and the witness it stands in."""

    def __init__(self, pools: tuple[Pool, ...], *, now_s: int, policy: Policy) -> None:
        self.now_s = now_s
        self.policy = policy
        self.witness = Witness(pools, now_s=now_s)
        self.closed: dict[str, tuple[Window, ...]] = {node.id: node.closed for pool in pools for node in pool.nodes}
        self.members = {pool.id: frozenset(node.id for node in pool.nodes) for pool in pools}
        self.running: dict[str, Box] = {}
        self.overdue: set[str] = set()
        self.order: list[Waiting] = []
        self.unplaced: list[Waiting] = []
        self.freed = Freed(self.witness)
        self._waiting: dict[str, Waiting] = {}
        # (start, turn) of every slot that was ever given; those that no longer hold are dropped when they come up.
        self._starts: list[tuple[int, Turn]] = []

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
        self._waiting[waiting.request.id] = waiting

    def submit(self, request: Request) -> None:
        """A newcomer: its slot is found when the board is settled."""
        waiting = Waiting(request, request.promise_s)
        self.enroll(waiting)
        self.unplaced.append(waiting)

    def next_start_s(self) -> int | None:
        """When the first slot comes due."""
        while self._starts:
            start_s, turn = self._starts[0]
            waiting = self._waiting.get(turn.id)
            if waiting is not None and waiting.slot is not None and waiting.slot.start_s == start_s:
                return start_s
            heapq.heappop(self._starts)
        return None

    def start_due(self) -> list[Waiting]:
        """Those whose slots have come, from waiting to running, each in its slot."""
        due = []
        while (start_s := self.next_start_s()) is not None and start_s <= self.now_s:
            waiting = self._waiting.pop(self._starts[0][1].id)
            del self.order[bisect_left(self.order, waiting.turn, key=turn_of)]
            self.running[waiting.request.id] = waiting.box
            due.append(waiting)
        return due

    def place(self, waiting: Waiting, slot: Slot) -> None:
        waiting.slot = slot
        box = waiting.box
        self.witness.forget_before(self.now_s, box.nodes)
        self.witness.take(box)
        heapq.heappush(self._starts, (slot.start_s, waiting.turn))

    def move(self, waiting: Waiting, slot: Slot) -> Box:
        """Give it another slot; answers the old one."""
        old = waiting.box
        self.witness.give(old)
        self.place(waiting, slot)
        return old

    def soonest_s(self, request: Request) -> int:
        return max(self.now_s, request.earliest_start_s)
