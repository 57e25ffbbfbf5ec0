"""Ranks boxes by their quota (within a guarantee or borrowing), which decides which box may take GPUs from which.

A project's boxes fill its guarantee in order: boxes within their own slice's guarantee first, then by priority, then the older first. A box
that does not fit beside those before it borrows. A waiting request is entitled if it fits beside all of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple

from planner.board.board import Board, Box
from planner.board.waiting import Waiting
from planner.causes import EvictionKind
from planner.snapshot import Quota, Request, Slot


class Rank(IntEnum):
    """If a shape has no guarantee, all its boxes are OF_PROJECT."""

    BORROWS = 0  # beyond its project's guarantee
    OF_PROJECT = 1  # within its project's guarantee, beyond its slice's
    OF_SLICE = 2  # within both


class Right(NamedTuple):
    beside: Rank  # beside all that its project holds
    within: Rank  # by the order in its project, where it may take the place of those behind it


@dataclass(frozen=True, slots=True)
class _Share:
    gpus: int
    start_s: int
    end_s: int
    slice: str
    order: tuple[bool, int, bool, int, str]  # beyond its slice's guarantee, minus priority, waits, age, id
    is_fixed: bool = False  # a waiting booking
    has_time: bool = False  # a booking with its slot

    @property
    def rank(self) -> Rank:
        return Rank.OF_PROJECT if self.order[0] else Rank.OF_SLICE


NOTHING_GUARANTEED = Rank.OF_PROJECT, 0
Shares = dict[str, list[_Share]]  # by shape


class Rights:
    """It takes O(n log n) with quotas, else O(1)."""

    def __init__(self, board: Board, quotas: Iterable[Quota]) -> None:
        self._board = board
        self._guaranteed = {(quota.owner, quota.shape): quota.guaranteed for quota in quotas}
        self._shapes = {shape for (_, shape), gpus in self._guaranteed.items() if gpus > 0}
        self._ranks: dict[tuple[str, str], tuple[Rank, int]] = {}
        self._within: dict[tuple[str, str], Rank] = {}
        self._borrowers: dict[str, set[str]] = defaultdict(set)
        self._held: dict[tuple[str, str], list[_Share]] = {}
        self._boxes: dict[str, list[Box]] = defaultdict(list)
        self._queue: dict[str, list[tuple[int, Waiting]]] = defaultdict(list)
        if self._shapes:
            for box in board.running.values():
                self._boxes[box.project].append(box)
            for place, waiting in enumerate(board.order):
                self._queue[waiting.request.project].append((place, waiting))
            for project in {*self._boxes, *self._queue}:
                self.renew(project)

    def renew(self, project: str, *, booking: Waiting | None = None) -> None:
        """`booking` counts as if it had its time."""
        if not self._shapes:
            return
        running, waiting = self._running(project), self._waiting(project, booking)
        for shape in self._shapes:
            self._borrowers[shape].discard(project)
            self._held[project, shape] = running.get(shape, [])
        for shape, shares in running.items():
            self._fill_running((project, shape), shares)
        for shape, shares in waiting.items():
            self._fill_waiting((project, shape), shares, running.get(shape, []))

    def of_running(self, box: Box) -> Rank:
        return self._ranks.get((box.id, self._board.shape_of(box)), NOTHING_GUARANTEED)[0]

    def of_running_at(self, at_s: int) -> Callable[[Box], Rank]:
        """Ended boxes leave their guarantee to others."""

        @cache
        def ranks(project: str, shape: str) -> dict[str, Rank]:
            lasting = [share for share in self._held.get((project, shape), ()) if share.end_s > at_s]
            fitting = self._fitting((project, shape), lasting)
            return {share.order[-1]: share.rank if fits else Rank.BORROWS for share, fits in fitting}

        return lambda box: ranks(box.project, self._board.shape_of(box)).get(box.id, NOTHING_GUARANTEED[0])

    def of_waiting(self, request: Request, shape: str, at_s: int) -> Right:
        rank, since_s = self._ranks.get((request.id, shape), NOTHING_GUARANTEED)
        return Right(rank if since_s <= at_s else Rank.BORROWS, self._within.get((request.id, shape), Rank.OF_PROJECT))

    def since_s(self, request: Request, shape: str) -> int:
        return self._ranks.get((request.id, shape), NOTHING_GUARANTEED)[1]

    def may_take(self, request: Request, shape: str, at_s: int) -> bool:
        """False is certain."""
        own = self.of_waiting(request, shape, at_s)
        if own.beside > Rank.BORROWS and self._borrowers[shape] - {request.project}:
            return True
        return own.within == Rank.OF_SLICE and self._is_of_slice(request.slice, shape, 1)

    def eviction_kind(self, request: Request, own: Right, box: Box, other: Rank) -> EvictionKind | None:
        """The victim's rank and priority are never above the beneficiary's, so two requests cannot evict each other in turn."""
        if self.may_reclaim(request, own, box.project, box.slice, other):
            return EvictionKind.RECLAIM
        rank = own.within if box.project == request.project else own.beside
        if request.may_evict and box.evictable and box.priority < request.priority and other <= rank:
            return EvictionKind.PRIORITY
        return None

    def may_reclaim(self, request: Request, own: Right, project: str, slice_: str, other: Rank) -> bool:
        if project != request.project:
            return own.beside > Rank.BORROWS and other == Rank.BORROWS
        return slice_ != request.slice and own.within == Rank.OF_SLICE and other < Rank.OF_SLICE

    def _running(self, project: str) -> Shares:
        wanted: Shares = defaultdict(list)
        for old in self._boxes[project]:
            box = self._board.running[old.id]
            shape = self._board.shape_of(box)
            if shape in self._shapes:
                gpus = self._board.gpus_of(box)
                order = (not self._is_of_slice(box.slice, shape, gpus), -box.priority, False, box.began_s, box.id)
                wanted[shape].append(_Share(gpus, box.start_s, box.end_s, box.slice or box.id, order))
        return wanted

    def _waiting(self, project: str, booking: Waiting | None) -> Shares:
        wanted: Shares = defaultdict(list)
        for place, waiting in self._queue[project]:
            request = waiting.request
            has_slot = self._board.has_slot(waiting)
            if not has_slot and waiting is not booking:
                continue
            start_s, slice_ = self._board.start_s(waiting) if has_slot else request.earliest_start_s, request.slice or request.id
            for shape, gpus in self._board.gpus_by_shape(request).items():
                if shape in self._shapes:
                    order = (not self._is_of_slice(request.slice, shape, gpus), -request.priority, True, place, request.id)
                    end_s, is_fixed = start_s + request.length_s, request.is_fixed
                    wanted[shape].append(_Share(gpus, start_s, end_s, slice_, order, is_fixed, is_fixed and has_slot))
        return wanted

    def _fill_running(self, key: tuple[str, str], shares: list[_Share]) -> None:
        for share, fits in self._fitting(key, shares):
            self._rank(key, share, share.rank if fits else Rank.BORROWS, 0)

    def _fitting(self, key: tuple[str, str], shares: list[_Share]) -> Iterator[tuple[_Share, bool]]:
        """Each slice counts with its largest box, because it runs one at a time."""
        room = self._guaranteed.get(key, 0)
        largest: dict[str, int] = defaultdict(int)
        for share in sorted(shares, key=lambda share: share.order):
            own = largest[share.slice]
            fits = share.gpus <= room + own
            if fits and share.gpus > own:
                room -= share.gpus - own
                largest[share.slice] = share.gpus
            yield share, fits

    def _fill_waiting(self, key: tuple[str, str], shares: list[_Share], held: list[_Share]) -> None:
        """Rank beside all that the project holds, so that a higher priority cannot reclaim more than the guarantee.

        Waiting requests that start no later count. A booking with its time counts as held then.
        """
        for share, fits in self._fitting(key, [*held, *shares]):
            self._within[share.order[-1], key[1]] = share.rank if fits else Rank.BORROWS
        room = self._guaranteed.get(key, 0)
        granted, ending = _Granted(share.start_s for share in shares), _Ending(held)
        for share in sorted(shares, key=lambda share: (not share.has_time, share.order)):
            since_s = ending.since_s(room - share.gpus - granted.beside(share))
            # A booking whose right begins after its start would only borrow.
            if since_s is not None and (since_s <= share.start_s or not share.is_fixed):
                granted.add(share)
            self._rank(key, share, Rank.BORROWS if since_s is None else share.rank, since_s or 0)

    def _rank(self, key: tuple[str, str], share: _Share, rank: Rank, since_s: int) -> None:
        self._ranks[share.order[-1], key[1]] = rank, since_s
        if rank == Rank.BORROWS:
            self._borrowers[key[1]].add(key[0])

    def _is_of_slice(self, slice_: str, shape: str, gpus: int) -> bool:
        return gpus <= self._guaranteed.get((slice_, shape), 0)


def borrows(board: Board, rights: Rights, request: Request, start: Slot) -> bool:
    shape = board.pools[board.pool_numbers[start.pool]].shape
    # The worse of two ranks: beside what its project holds then, and by the order within the project.
    return max(rights.of_waiting(request, shape, start.start_s)) == Rank.BORROWS


class _Ending:
    def __init__(self, held: Iterable[_Share]) -> None:
        last_first = sorted(held, key=lambda share: -share.end_s)
        self._ends_s = [share.end_s for share in last_first]
        self._gpus = list(accumulate(share.gpus for share in last_first))

    def since_s(self, room: int) -> int | None:
        """Returns the first time at which held GPUs fit in `room`; None if `room` is negative."""
        if room < 0:
            return None
        fitting = bisect_right(self._gpus, room)
        return self._ends_s[fitting] if fitting < len(self._ends_s) else 0


class _Granted:
    """Counts GPUs granted to waiting requests by start time, each slice with its largest box.

    Prefix sums in a binary indexed tree (Fenwick, 1994), O(log n) each; bookings are scanned one by one.
    """

    def __init__(self, starts_s: Iterable[int]) -> None:
        self._times_s = sorted(set(starts_s))
        self._sums = [0] * (len(self._times_s) + 1)
        # By slice: (start, largest box that starts no later), both rising.
        self._steps: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self._all: list[_Share] = []
        self._fixed: list[_Share] = []

    def beside(self, share: _Share) -> int:
        """Returns GPUs of other slices at its start, or with bookings, the most while it lasts."""
        if share.is_fixed:
            return sum(_largest(self._all, share).values())
        before = self._sum(share.start_s) - self._level_at(share.slice, share.start_s)
        later = _largest((each for each in self._fixed if each.start_s > share.start_s), share)
        return before + sum(max(gpus - self._level_at(slice_, share.start_s), 0) for slice_, gpus in later.items())

    def _level_at(self, slice_: str, at_s: int) -> int:
        steps = self._steps[slice_]
        return _level(steps, _behind(steps, at_s))

    def add(self, share: _Share) -> None:
        self._all.append(share)
        if share.is_fixed:
            self._fixed.append(share)
        steps = self._steps[share.slice]
        place = _behind(steps, share.start_s)
        level = _level(steps, place)
        if share.gpus <= level:
            return
        self._raise(share.start_s, share.gpus - level)
        # Later steps of the slice now rise by less, or not at all.
        while place < len(steps) and level < share.gpus:
            at_s, gpus = steps[place]
            self._raise(at_s, max(gpus, share.gpus) - share.gpus - (gpus - level))
            level = gpus
            if gpus <= share.gpus:
                del steps[place]
        steps.insert(place, (share.start_s, share.gpus))

    def _raise(self, at_s: int, by: int) -> None:
        place = bisect_right(self._times_s, at_s)
        while place < len(self._sums):
            self._sums[place] += by
            place += place & -place

    def _sum(self, until_s: int) -> int:
        total, place = 0, bisect_right(self._times_s, until_s)
        while place:
            total += self._sums[place]
            place -= place & -place
        return total


def _largest(shares: Iterable[_Share], beside: _Share) -> dict[str, int]:
    most: dict[str, int] = defaultdict(int)
    for each in shares:
        if each.slice != beside.slice and each.start_s < beside.end_s and each.end_s > beside.start_s:
            most[each.slice] = max(most[each.slice], each.gpus)
    return most


def _behind(steps: list[tuple[int, int]], at_s: int) -> int:
    return bisect_right(steps, at_s, key=itemgetter(0))


def _level(steps: list[tuple[int, int]], place: int) -> int:
    return steps[place - 1][1] if place else 0
