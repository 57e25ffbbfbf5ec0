"""How long after its slot a newcomer is promised to start: where nodes fail, time within which all can shift when the next one does; and
where a cluster is not heard, time within which all there can shift when it is heard again.
"""

from __future__ import annotations

from collections.abc import Iterable

from planner.board.board import Board
from planner.promises.silence import silence_s
from planner.snapshot import Failed, PolicyName, Pool, Request, Slot


class Leeway:
    """For one board. Of each cluster the last failure counts."""

    def __init__(self, board: Board, failed: Iterable[Failed]) -> None:
        self._board = board
        self._last = {each.cluster: each for each in failed}
        self._silence_s: dict[str, int] = {}

    def note(self, failed: Failed) -> None:
        """A node failed just now."""
        self._last[failed.cluster] = failed

    def promise_s(self, request: Request, slot: Slot) -> int:
        """Of a newcomer in this slot."""
        return slot.start_s + self._after_s(request, slot)

    def _after_s(self, request: Request, slot: Slot) -> int:
        """0 for a booking, for who starts now, and on nodes that are ordered."""
        board = self._board
        pool = board.pools[board.pool_numbers[slot.pool]]
        if board.policy.name != PolicyName.GUARDED or request.is_fixed or slot.start_s <= board.now_s or pool.supply is not None:
            return 0
        if pool.cluster not in self._silence_s:
            self._silence_s[pool.cluster] = silence_s(board, pool.cluster)
        return self._failure_s(pool) + self._silence_s[pool.cluster]

    def _failure_s(self, pool: Pool) -> int:
        """0 where no node has failed of late."""
        slack, last = self._board.policy.slack, self._last.get(pool.cluster)
        if last is None or last.at_s < self._board.now_s - slack.leeway_after_s:
            return 0
        return min(slack.leeway_failures * last.away_s // len(pool.nodes), slack.leeway_most_s)
