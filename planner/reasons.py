"""Finds why a request starts when it does, from the expected schedule."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from itertools import accumulate
from operator import itemgetter
from typing import Final

from planner.board.board import Board
from planner.capacity.profile import FOREVER_S
from planner.plan import Blocker, Explanation, Reason
from planner.promises.silence import silence_cause
from planner.snapshot import Request, Slot, Window

BLOCKERS_MAX: Final = 5


class Reasons:
    """Names the box that left each node last, even if the request needs less room."""

    def __init__(
        self,
        board: Board,
        expected: Mapping[str, Slot],
        asked: Iterable[Request] | None = None,
        ahead: Mapping[str, int] | None = None,
    ) -> None:
        """`asked`: the only requests that will be explained; None: any may be. `ahead`: how many start before each, if that is known."""
        self._board = board
        self._expected = expected
        # (end, id) of all boxes by node, sorted; and ids by slice and end.
        self._ends: dict[str, list[tuple[int, str]]] = defaultdict(list)
        self._slice_ends: dict[tuple[str, int], str] = {}
        self._blockers: dict[str, Blocker] = {}
        self._ahead: Mapping[str, int] | None = None
        self._counted = ahead
        # Boxes matter only in the pools and under the limits of these requests; None: all boxes matter.
        self._asked = None if asked is None else tuple(asked)
        self._owners_asked = {owner for request in self._asked or () for owner in (request.project, request.slice)}
        limits = board.most.items()
        self._ceilings = {key: _Ceiling(most) for key, most in limits if asked is None or key[0] in self._owners_asked}
        self._limited = {owner for owner, _ in self._ceilings}

    def explain(self, request: Request, slot: Slot) -> Explanation:
        if slot.start_s <= self._board.now_s:
            return Explanation(Reason.STARTS_NOW)
        ahead = self._ahead = self._index() if self._ahead is None else self._ahead
        if self._is_at_risk(request, slot):
            return Explanation(Reason.WAITS_FOR_CONTACT, (), ahead.get(request.id, 0))
        reason, ids = self._why(request, slot)
        blockers = sorted((self._blockers[id_] for id_ in ids), key=lambda b: (-b.until_s, not b.is_running, b.id))
        return Explanation(reason, tuple(blockers[:BLOCKERS_MAX]), ahead.get(request.id, 0))

    def _is_at_risk(self, request: Request, slot: Slot) -> bool:
        waiting = self._board.queue.get(request.id)
        if waiting is None or waiting.risk is None or request.slot is None or request.slot.pool != slot.pool:
            return False
        return silence_cause(self._board, request.slot.nodes) is not None

    def _index(self) -> Mapping[str, int]:
        board, expected = self._board, self._expected
        firsts_asked = {request.after for request in self._asked or ()} - {""}
        nodes_asked = {node for request in self._asked or () if (slot := expected.get(request.id)) for node in slot.nodes}
        ids_asked = firsts_asked | board.running_on(nodes_asked)

        def concerns(ids: Set[str], id_: str, project: str, slice_: str) -> bool:
            return self._asked is None or slice_ in self._owners_asked or project in self._limited or id_ in ids

        for box in board.running.values():
            if concerns(ids_asked, box.id, box.project, box.slice):
                nodes = [board.node_ids[node] for node in box.places]
                self._enter(Blocker(box.id, True, box.end_s, box.id in board.overdue, len(nodes), box.demand.gpus), box.slice, nodes)
        for id_, slot in expected.items():
            request = board.queue[id_].request
            if concerns(firsts_asked, id_, request.project, request.slice) or not nodes_asked.isdisjoint(slot.nodes):
                until_s = slot.start_s + request.length_s
                self._enter(Blocker(id_, False, until_s, False, request.node_count, request.gpus_per_node), request.slice, slot.nodes)
        for ends in self._ends.values():
            ends.sort()
        self._fill_ceilings(expected)
        return self._count_ahead(expected) if self._counted is None else self._counted

    def _enter(self, blocker: Blocker, slice_: str, nodes: tuple[str, ...] | list[str]) -> None:
        self._blockers[blocker.id] = blocker
        for node_id in nodes:
            self._ends[node_id].append((blocker.until_s, blocker.id))
        if slice_:
            self._slice_ends[slice_, blocker.until_s] = blocker.id

    def _why(self, request: Request, slot: Slot) -> tuple[Reason, set[str]]:
        if slot.start_s == request.earliest_start_s:
            return Reason.WAITS_FOR_START_TIME, set()
        first = self._blockers.get(request.after) if request.after else None
        if first is not None and slot.start_s == first.until_s:
            return Reason.WAITS_FOR_PREDECESSOR, {first.id}
        own = self._slice_ends.get((request.slice, slot.start_s))
        if own is not None and own != request.id:
            return Reason.WAITS_FOR_SLICE, {own}
        if (of_quota := self._held_by_quota(request, slot)) is not None:
            return Reason.WAITS_FOR_QUOTA, of_quota
        soonest_s = self._board.soonest_s(request) if first is None else max(request.earliest_start_s, first.until_s)
        ids: set[str] = set()
        opened_s, closure = 0, Reason.WAITS_FOR_NODES
        for node_id in slot.nodes:
            ids |= self._last_enders(node_id, soonest_s, slot.start_s, request.id)
            for window in self._board.closed[node_id]:
                if max(soonest_s, opened_s) < min(window.end_s, FOREVER_S) <= slot.start_s:
                    opened_s, closure = window.end_s, _closure(window)
        last_s = max((self._blockers[id_].until_s for id_ in ids), default=0)
        return (closure if opened_s > last_s else Reason.WAITS_FOR_GPUS), ids

    def _fill_ceilings(self, expected: Mapping[str, Slot]) -> None:
        if not self._ceilings:
            return
        board = self._board
        for box in board.running.values():
            if self._limited.isdisjoint((box.project, box.slice)):
                continue
            self._count(box.project, box.slice, board.shape_of(box), board.gpus_of(box), (box.start_s, box.end_s, box.id))
        for id_, slot in expected.items():
            request = board.queue[id_].request
            if not self._limited.isdisjoint((request.project, request.slice)):
                shape, stay = self._shape(slot), (slot.start_s, slot.start_s + request.length_s, request.id)
                self._count(request.project, request.slice, shape, board.gpus_in(slot, request), stay)

    def _count(self, project: str, slice_: str, shape: str, gpus: int, stay: tuple[int, int, str]) -> None:
        for owner in (project, slice_):
            if (owner, shape) in self._ceilings:
                self._ceilings[owner, shape].add(gpus, *stay)

    def _held_by_quota(self, request: Request, slot: Slot) -> set[str] | None:
        """Return the boxes whose end lets it in, or None if no quota held it."""
        shape = self._shape(slot)
        for owner in (request.project, request.slice):
            ceiling = self._ceilings.get((owner, shape))
            if ceiling and ceiling.used(slot.start_s - 1) + self._board.gpus_by_shape(request)[shape] > ceiling.most:
                return ceiling.ends[slot.start_s] - {request.id}
        return None

    def _shape(self, slot: Slot) -> str:
        return self._board.pools[self._board.pool_numbers[slot.pool]].shape

    def _last_enders(self, node_id: str, since_s: int, until_s: int, own_id: str) -> set[str]:
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
        starts = [(slot.start_s, id_) for id_, slot in expected.items() if slot.start_s > self._board.now_s]
        starts.sort(key=itemgetter(0))  # of equals the first in turn stays first
        return {id_: count for count, (_, id_) in enumerate(starts)}


def _closure(window: Window) -> Reason:
    if window.order:
        return Reason.WAITS_FOR_ORDER
    return Reason.WAITS_FOR_MAINTENANCE if window.maintenance else Reason.WAITS_FOR_NODES


class _Ceiling:
    """Add all boxes before asking."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.ends: dict[int, set[str]] = defaultdict(set)
        self._changes: dict[int, int] = defaultdict(int)
        self._steps: tuple[list[int], list[int]] | None = None

    def add(self, gpus: int, start_s: int, end_s: int, id_: str) -> None:
        self._changes[start_s] += gpus
        self._changes[end_s] -= gpus
        self.ends[end_s].add(id_)

    def used(self, at_s: int) -> int:
        if self._steps is None:
            times = sorted(self._changes)
            self._steps = times, [0, *accumulate(self._changes[time_s] for time_s in times)]
        times, used = self._steps
        return used[bisect_right(times, at_s)]
