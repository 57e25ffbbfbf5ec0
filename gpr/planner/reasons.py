"""Why a request starts when it does, read off the finished witness."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from typing import Final

from gpr.planner.board import Board
from gpr.planner.plan import Blocker, Explanation, Reason
from gpr.planner.snapshot import Request, Slot
from gpr.planner.waiting import Turn
from gpr.planner.witness import Box

BLOCKERS_MAX: Final = 5


class Reasons:
    """Explanations for one settled board. Made in one pass over the boxes; each explanation then looks at its own nodes only.

    A box that slipped in later and ends just where a request starts is named as well: the board does not tell who came first.
    """

    def __init__(self, board: Board) -> None:
        self._board = board
        # Who gives GPUs of a node back at a time.
        self._enders: dict[tuple[str, int], list[Blocker]] = defaultdict(list)
        self._blockers: dict[str, Blocker] = {}
        for box in board.running.values():
            self._enter(box, is_running=True)
        for waiting in board.order:
            if waiting.slot is not None:
                self._enter(waiting.box, is_running=False)
        self._ahead = self._count_ahead()

    def explain(self, request: Request, slot: Slot) -> Explanation:
        """`slot` is where the request stands, or would stand if it were submitted now."""
        if slot.start_s <= self._board.now_s:
            return Explanation(Reason.STARTS_NOW)
        reason, blockers = self._why(request, slot)
        chosen = sorted(blockers, key=lambda blocker: (-blocker.until_s, not blocker.is_running, blocker.id))
        return Explanation(reason, tuple(chosen[:BLOCKERS_MAX]), self._ahead_count(request, slot))

    def _enter(self, box: Box, *, is_running: bool) -> None:
        blocker = self._blockers[box.id] = Blocker(box.id, is_running, box.end_s, box.id in self._board.overdue)
        for node_id in box.nodes:
            self._enders[node_id, box.end_s].append(blocker)

    def _why(self, request: Request, slot: Slot) -> tuple[Reason, set[Blocker]]:
        if slot.start_s == request.earliest_start_s:
            return Reason.WAITS_FOR_START_TIME, set()
        for _, end_s, box_id in self._board.witness.slice_boxes(request.slice):
            if end_s == slot.start_s and box_id != request.id:
                return Reason.WAITS_FOR_SLICE, {self._blockers[box_id]}
        return self._why_on_nodes(request, slot)

    def _why_on_nodes(self, request: Request, slot: Slot) -> tuple[Reason, set[Blocker]]:
        """On each node whoever made room in it last; the node that was last of all decides whether boxes or closures hold it."""
        soonest_s = self._board.soonest_s(request)
        freed = [(node_id, self._free_again_s(node_id, request, slot)) for node_id in slot.nodes]
        freed = [(node_id, at_s) for node_id, at_s in freed if at_s > soonest_s]
        blockers = {blocker for key in freed for blocker in self._enders.get(key, ()) if blocker.id != request.id}
        last_s = max((at_s for _, at_s in freed), default=0)
        is_closed = bool(freed) and all(blocker.until_s < last_s for blocker in blockers)
        return (Reason.WAITS_FOR_NODES if is_closed else Reason.WAITS_FOR_GPUS), blockers

    def _free_again_s(self, node_id: str, request: Request, slot: Slot) -> int:
        witness = self._board.witness
        return witness.nodes[node_id].free_again_s(witness.level(node_id, request.gpus_per_node), slot.start_s)

    def _count_ahead(self) -> dict[str, int]:
        """For each waiting request: who is before it in turn and stands in the same pool no later. Who starts now is gone."""
        starts: dict[str, list[int]] = defaultdict(list)
        ahead: dict[str, int] = {}
        for waiting in self._board.order:
            slot = waiting.slot
            if slot is not None and slot.start_s > self._board.now_s:
                ahead[waiting.request.id] = bisect_right(starts[slot.pool], slot.start_s)
                insort(starts[slot.pool], slot.start_s)
        return ahead

    def _ahead_count(self, request: Request, slot: Slot) -> int:
        known = self._ahead.get(request.id)
        if known is not None:
            return known
        turn = Turn.of(request)
        ahead = (other.slot for other in self._board.order if other.turn < turn and other.slot is not None)
        return sum(other.pool == slot.pool and self._board.now_s < other.start_s <= slot.start_s for other in ahead)
