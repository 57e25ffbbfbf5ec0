"""Decides whether a booking fits at its exact time, and finds the nearest times that do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from planner.board.board import Board
from planner.capacity.placement import Demand
from planner.capacity.profile import NEVER_S
from planner.promises.repair import board_of
from planner.sharing.evictions import EvictionPlanner
from planner.snapshot import Quota, Request, Snapshot

# Other times are searched on whole minutes, because people book by the minute.
GRID_S: Final = 60
# Candidate times tried for an eviction right, in each direction and shape.
TRIES_MOST: Final = 3


@dataclass(frozen=True, slots=True)
class NearestTimes:
    fits: bool  # at the requested time
    before_s: int | None  # the last whole minute before that
    after_s: int | None  # the first whole minute after it


def fitting(snapshot: Snapshot, bookings: Sequence[Request]) -> list[bool]:
    """Check each new booking as if it were the only one."""
    board, _ = board_of(snapshot)
    return [_is_free(board, each) or _has_right(board, snapshot.quotas, each) for each in bookings]


def nearest(snapshot: Snapshot, booking: Request, *, since_s: int) -> NearestTimes:
    """Find times beside all slots, or where others must give way, from `since_s` on.

    A queued request with the same id is ignored. If the booking fits, the other times are beside all slots. Cost: about one new request in
    `plan`, and again for each candidate time.
    """
    board, _ = board_of(replace(snapshot, queue=tuple(request for request in snapshot.queue if request.id != booking.id)))
    demand, asked_s = board.demand(booking), booking.earliest_start_s
    before_s, after_s = _last_before(board, demand, asked_s, since_s), _first_after(board, demand, max(asked_s + 1, since_s))
    if _is_free(board, booking) or _has_right(board, snapshot.quotas, booking):
        return NearestTimes(True, before_s, after_s)
    if not _may_have_right(board, snapshot.quotas, booking):
        return NearestTimes(False, before_s, after_s)
    times = _TimesByRight(board, snapshot.quotas, booking)
    return NearestTimes(False, times.last_before(since_s, before_s), times.first_after(max(asked_s + 1, since_s), after_s))


def _is_free(board: Board, booking: Request) -> bool:
    at_s = booking.earliest_start_s
    return at_s >= board.now_s and board.earliest(board.demand(booking), at_s, at_s + 1) is not None


def _has_right(board: Board, quotas: tuple[Quota, ...], booking: Request) -> bool:
    return _may_have_right(board, quotas, booking) and _TimesByRight(board, quotas, booking).has(booking.earliest_start_s)


def _may_have_right(board: Board, quotas: tuple[Quota, ...], booking: Request) -> bool:
    """False is certain."""
    break_from = board.policy.break_from
    if booking.may_evict or (break_from is not None and booking.priority >= break_from):
        return True
    gpus_by_shape, owners = board.gpus_by_shape(booking), {booking.project, booking.slice}
    mine = (quota for quota in quotas if quota.owner in owners and quota.shape in gpus_by_shape)
    return any(gpus_by_shape[quota.shape] <= quota.guaranteed for quota in mine)


@dataclass(frozen=True, slots=True)
class _TimesByRight:
    board: Board
    quotas: tuple[Quota, ...]
    booking: Request

    def has(self, start_s: int) -> bool:
        board = self.board.copy()
        waiting = board.enqueue(replace(self.booking, earliest_start_s=start_s))
        return start_s >= board.now_s and EvictionPlanner(board, self.quotas).book(waiting) is not None

    def last_before(self, since_s: int, free_s: int | None) -> int | None:
        since_s = since_s if free_s is None else free_s + 1
        found = (self._last_before(shape, since_s) for shape in self.board.gpus_by_shape(self.booking))
        return max((start_s for start_s in found if start_s is not None), default=free_s)

    def first_after(self, since_s: int, free_s: int | None) -> int | None:
        until_s = NEVER_S if free_s is None else free_s
        found = (self._first_after(shape, since_s, until_s) for shape in self.board.gpus_by_shape(self.booking))
        return min((start_s for start_s in found if start_s is not None), default=free_s)

    def _last_before(self, shape: str, since_s: int) -> int | None:
        board, demand, from_s = self._cleared(shape)
        until_s = self.booking.earliest_start_s
        for _ in range(TRIES_MOST):
            found = _last_before(board, demand, until_s, max(since_s, from_s))
            if found is None or self.has(found):
                return found
            until_s = found
        return None

    def _first_after(self, shape: str, since_s: int, until_s: int) -> int | None:
        board, demand, from_s = self._cleared(shape)
        since_s = max(since_s, from_s)
        for _ in range(TRIES_MOST):
            found = _first_after(board, demand, since_s)
            if found is None or found >= until_s:
                return None
            if self.has(found):
                return found
            since_s = found + 1
        return None

    def _cleared(self, shape: str) -> tuple[Board, Demand, int]:
        """Return a copy without all that could give way, and when the right begins."""
        board = self.board.copy()
        waiting = board.enqueue(self.booking)  # before its rights are worked out
        from_s = EvictionPlanner(board, self.quotas).clear_for(waiting, shape)
        return board, board.demand(self.booking, board.pools_in(self.booking, shape)), from_s


def _last_before(board: Board, demand: Demand, asked_s: int, since_s: int) -> int | None:
    until_s = _floor(asked_s - 1)
    while until_s >= since_s and (found := board.latest(demand, since_s, until_s)):
        until_s = _floor(found[0])
        if until_s == found[0]:
            return until_s
    return None


def _first_after(board: Board, demand: Demand, since_s: int) -> int | None:
    since_s = -_floor(-since_s)
    while found := board.earliest(demand, since_s):
        since_s = -_floor(-found[0])
        if since_s == found[0]:
            return since_s
    return None


def _floor(at_s: int) -> int:
    return at_s // GRID_S * GRID_S
