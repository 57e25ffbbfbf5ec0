"""Who is within its guarantee and who borrows, and so who may take from whom.

A project's boxes fill its guarantee in order: those within their own slice's guarantee first, then by priority, the older first; what does
not fit beside those before it borrows. So it is always clear which boxes are borrowed.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from gpr.planner.board import Board, Box
from gpr.planner.lines import FOREVER_S
from gpr.planner.plan import EvictionKind
from gpr.planner.snapshot import Quota, Request


class Rank(IntEnum):
    """What a box has a right to. Where nothing of a shape is guaranteed to anybody all are OF_PROJECT."""

    BORROWS = 0  # beyond its project's guarantee
    OF_PROJECT = 1  # within its project's guarantee, beyond its slice's
    OF_SLICE = 2  # within both


@dataclass(frozen=True, slots=True)
class _Share:
    """A box that wants its part of a guarantee, until `end_s`. `order`: not of its slice, minus priority, waits, age, id."""

    gpus: int
    end_s: int
    order: tuple[bool, int, bool, int, str]

    @property
    def rank(self) -> Rank:
        return Rank.OF_PROJECT if self.order[0] else Rank.OF_SLICE


NOTHING_GUARANTEED = Rank.OF_PROJECT, 0
Shares = dict[tuple[str, str], list[_Share]]


class Rights:
    """The ranks of all boxes on a board, as it stands when this is made. O(n log n) where quotas are in force, else O(1)."""

    def __init__(self, board: Board, quotas: Iterable[Quota]) -> None:
        self._board = board
        self._guaranteed = {(quota.owner, quota.shape): quota.guaranteed for quota in quotas}
        self._shapes = {shape for _, shape in self._guaranteed}
        self._ranks: dict[tuple[str, str], tuple[Rank, int]] = {}
        if self._shapes:
            held = {key: self._fill(key, shares) for key, shares in self._running().items()}
            for key, shares in self._waiting().items():
                self._fill(key, shares, held.get(key, ()))

    def of_running(self, box: Box) -> Rank:
        return self._ranks.get((box.id, self._board.shape_of(box)), NOTHING_GUARANTEED)[0]

    def of_waiting(self, request: Request, shape: str, at_s: int) -> Rank:
        """If it started then in this shape, beside those of its project that are before it in turn, and that run and have not ended."""
        rank, since_s = self._ranks.get((request.id, shape), NOTHING_GUARANTEED)
        return rank if since_s <= at_s else Rank.BORROWS

    def since_s(self, request: Request, shape: str) -> int:
        """From when on it has its rank; before it only borrows."""
        return self._ranks.get((request.id, shape), NOTHING_GUARANTEED)[1]

    def claim(self, request: Request, own: Rank, box: Box) -> EvictionKind | None:
        """By what right the request may end this box; None: by none.

        The rank and then the priority of whoever is evicted are lower than those of whom it is evicted for, so nobody is ever evicted
        for one that was evicted for it.
        """
        other = self.of_running(box)
        if self.may_reclaim(request, own, box.project, box.slice, other):
            return EvictionKind.RECLAIM
        if request.may_evict and box.evictable and box.priority < request.priority and other <= own:
            return EvictionKind.PRIORITY
        return None

    def may_reclaim(self, request: Request, own: Rank, project: str, slice_: str, other: Rank) -> bool:
        """Entitled to it, and the other only borrows it: from the project, or within one project from the slice."""
        if project != request.project:
            return own > Rank.BORROWS and other == Rank.BORROWS
        return slice_ != request.slice and own == Rank.OF_SLICE and other < Rank.OF_SLICE

    def _running(self) -> Shares:
        wanted: Shares = defaultdict(list)
        for box in self._board.running.values():
            shape = self._board.shape_of(box)
            if shape in self._shapes:
                gpus = self._board.gpus_of(box)
                order = (not self._is_of_slice(box.slice, shape, gpus), -box.priority, False, box.began_s, box.id)
                wanted[box.project, shape].append(_Share(gpus, box.end_s, order))
        return wanted

    def _waiting(self) -> Shares:
        wanted: Shares = defaultdict(list)
        for place, waiting in enumerate(self._board.order):
            request = waiting.request
            for shape, gpus in self._board.gpus_by_shape(request).items():
                if shape in self._shapes:
                    order = (not self._is_of_slice(request.slice, shape, gpus), -request.priority, True, place, request.id)
                    wanted[request.project, shape].append(_Share(gpus, FOREVER_S, order))
        return wanted

    def _fill(self, key: tuple[str, str], shares: list[_Share], held: Iterable[_Share] = ()) -> list[_Share]:
        """Rank these, beside those of `held` that are before them in order; answers those that are within the guarantee."""
        room, granted = self._guaranteed.get(key, 0), []
        ahead = deque(sorted(held, key=lambda share: share.order))
        before: list[_Share] = []
        for share in sorted(shares, key=lambda share: share.order):
            while ahead and ahead[0].order < share.order:
                before.append(ahead.popleft())
            since_s = _since_s(before, room - share.gpus)
            if since_s is not None:
                granted.append(share)
                room -= share.gpus
            self._ranks[share.order[-1], key[1]] = (Rank.BORROWS, 0) if since_s is None else (share.rank, since_s)
        return granted

    def _is_of_slice(self, slice_: str, shape: str, gpus: int) -> bool:
        return gpus <= self._guaranteed.get((slice_, shape), 0)


def _since_s(held: list[_Share], room: int) -> int | None:
    """From when on those that are still held take no more than this room; None: it is none."""
    if room < 0:
        return None
    if sum(share.gpus for share in held) <= room:
        return 0
    for share in sorted(held, key=lambda share: -share.end_s):
        room -= share.gpus
        if room < 0:
            return share.end_s
    return 0
