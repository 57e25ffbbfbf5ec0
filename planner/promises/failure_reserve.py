"""Adds a reserve to new promises, so that slots can shift later without breaking them.

After a recent node failure it covers the next failure; while a cluster is silent, the wait for that cluster.
"""

from __future__ import annotations

from collections.abc import Iterable

from planner.board.board import Board
from planner.promises.silence import silence_s
from planner.snapshot import Failed, PolicyName, Pool, Request, Slot


class FailureReserve:
    """Only the last failure of each cluster counts."""

    def __init__(self, board: Board, failed: Iterable[Failed]) -> None:
        self._board = board
        self._last = {each.cluster: each for each in failed}
        self._silence_s: dict[str, int] = {}

    def note(self, failed: Failed) -> None:
        self._last[failed.cluster] = failed

    def promise_s(self, request: Request, slot: Slot) -> int:
        return slot.start_s + self._after_s(request, slot)

    def _after_s(self, request: Request, slot: Slot) -> int:
        board = self._board
        pool = board.pools[board.pool_numbers[slot.pool]]
        if board.policy.name != PolicyName.GUARDED or request.is_fixed or slot.start_s <= board.now_s or pool.supply is not None:
            return 0
        if pool.cluster not in self._silence_s:
            self._silence_s[pool.cluster] = silence_s(board, pool.cluster)
        return self._failure_s(pool) + self._silence_s[pool.cluster]

    def _failure_s(self, pool: Pool) -> int:
        slack, last = self._board.policy.slack, self._last.get(pool.cluster)
        if last is None or last.at_s < self._board.now_s - slack.reserve_after_s:
            return 0
        return min(slack.reserve_failures * last.away_s // len(pool.nodes), slack.reserve_most_s)
