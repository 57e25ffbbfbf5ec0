"""How long after its slot a newcomer is promised to start, where nodes fail: time within which all can shift when the next one does."""

from __future__ import annotations

from collections.abc import Iterable

from gpr.planner.board import Board
from gpr.planner.snapshot import Failed, PolicyName, Request, Slot


class Leeway:
    """For one board. Of each cluster the last failure counts."""

    def __init__(self, board: Board, failed: Iterable[Failed]) -> None:
        self._board = board
        self._last = {each.cluster: each for each in failed}

    def note(self, failed: Failed) -> None:
        """A node failed just now."""
        self._last[failed.cluster] = failed

    def promise_s(self, request: Request, slot: Slot) -> int:
        """Of a newcomer in this slot."""
        return slot.start_s + self._after_s(request, slot)

    def _after_s(self, request: Request, slot: Slot) -> int:
        """0 for a booking, for who starts now, on nodes that are ordered, and where no node has failed of late."""
        board, slack = self._board, self._board.policy.slack
        pool = board.pools[board.pool_numbers[slot.pool]]
        last = self._last.get(pool.cluster)
        if board.policy.name != PolicyName.GUARDED or last is None or last.at_s < board.now_s - slack.leeway_after_s:
            return 0
        if request.is_fixed or slot.start_s <= board.now_s or pool.supply is not None:
            return 0
        return min(slack.leeway_failures * last.away_s // len(pool.nodes), slack.leeway_most_s)
