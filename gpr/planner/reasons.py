"""Why a request starts when it does, read off the schedule that the plan leads to."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from gpr.planner.board import Board
from gpr.planner.lines import FOREVER_S
from gpr.planner.plan import Blocker, Explanation, Reason
from gpr.planner.snapshot import Request, Slot

BLOCKERS_MAX: Final = 5


class Reasons:
    """Explanations for one settled board, and the starts that are expected on it. Made in one pass over the boxes.

    Whoever made room last on a node is named, also where that was more room than the request needs.
    """

    def __init__(self, board: Board, expected: Mapping[str, Slot]) -> None:
        self._board = board
        # By node and by slice: (end, id) of all boxes, in order.
        self._ends: dict[str, list[tuple[int, str]]] = defaultdict(list)
        self._slice_ends: dict[tuple[str, int], str] = {}
        self._blockers: dict[str, Blocker] = {}
        for box in board.running.values():
            nodes = [board.node_ids[node] for node in box.places]
            self._enter(Blocker(box.id, True, box.end_s, box.id in board.overdue), box.slice, nodes)
        for waiting in board.order:
            slot = expected.get(waiting.request.id)
            if slot is not None:
                request = waiting.request
                self._enter(Blocker(request.id, False, slot.start_s + request.length_s), request.slice, slot.nodes)
        for ends in self._ends.values():
            ends.sort()
        self._starts: dict[str, list[int]] = defaultdict(list)
        self._ahead = self._count_ahead(expected)

    def explain(self, request: Request, slot: Slot) -> Explanation:
        """`slot` is where the request is expected to start."""
        if slot.start_s <= self._board.now_s:
            return Explanation(Reason.STARTS_NOW)
        reason, ids = self._why(request, slot)
        blockers = sorted((self._blockers[id_] for id_ in ids), key=lambda b: (-b.until_s, not b.is_running, b.id))
        return Explanation(reason, tuple(blockers[:BLOCKERS_MAX]), self._ahead_count(request, slot))

    def _enter(self, blocker: Blocker, slice_: str, nodes: tuple[str, ...] | list[str]) -> None:
        self._blockers[blocker.id] = blocker
        for node_id in nodes:
            self._ends[node_id].append((blocker.until_s, blocker.id))
        if slice_:
            self._slice_ends[slice_, blocker.until_s] = blocker.id

    def _why(self, request: Request, slot: Slot) -> tuple[Reason, set[str]]:
        if slot.start_s == request.earliest_start_s:
            return Reason.WAITS_FOR_START_TIME, set()
        own = self._slice_ends.get((request.slice, slot.start_s))
        if own is not None and own != request.id:
            return Reason.WAITS_FOR_SLICE, {own}
        soonest_s = self._board.soonest_s(request)
        ids: set[str] = set()
        opened_s, closure = 0, Reason.WAITS_FOR_NODES
        for node_id in slot.nodes:
            ids |= self._last_enders(node_id, soonest_s, slot.start_s, request.id)
            for window in self._board.closed[node_id]:
                if max(soonest_s, opened_s) < min(window.end_s, FOREVER_S) <= slot.start_s:
                    opened_s, closure = window.end_s, Reason.WAITS_FOR_MAINTENANCE if window.maintenance else Reason.WAITS_FOR_NODES
        last_s = max((self._blockers[id_].until_s for id_ in ids), default=0)
        return (closure if opened_s > last_s else Reason.WAITS_FOR_GPUS), ids

    def _last_enders(self, node_id: str, since_s: int, until_s: int, own_id: str) -> set[str]:
        """Those that end last on the node before the request starts, after it could have."""
        ends = self._ends.get(node_id, [])
        found: set[str] = set()
        last_s = since_s + 1
        for end_s, id_ in reversed(ends[: bisect_right(ends, (until_s, "\x7f"))]):
            if end_s < last_s:
                break
            if id_ != own_id:
                last_s = end_s
                found.add(id_)
        return found

    def _count_ahead(self, expected: Mapping[str, Slot]) -> dict[str, int]:
        """For each waiting request: who is before it in turn and starts in the same pool no later. Who starts now is gone."""
        ahead: dict[str, int] = {}
        for waiting in self._board.order:
            slot = expected.get(waiting.request.id)
            if slot is not None and slot.start_s > self._board.now_s:
                starts = self._starts[slot.pool]
                ahead[waiting.request.id] = bisect_right(starts, slot.start_s)
                insort(starts, slot.start_s)
        return ahead

    def _ahead_count(self, request: Request, slot: Slot) -> int:
        return self._ahead.get(request.id, 0)
