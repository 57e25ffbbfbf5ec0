"""Ends boxes early: entitled requests reclaim borrowed GPUs, and requests that may evict end evictable boxes of lower priority.

Slots of waiting requests give way first. Then the least harm is chosen: the lowest maximum priority, then the least work lost, then the
fewest boxes. If there are many boxes, only the first criterion is exact. A booking has its right at its own time only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from planner.board.board import Board, Box
from planner.board.waiting import Waiting
from planner.capacity.placement import Demand
from planner.capacity.profile import NEVER_S
from planner.causes import Cause, EvictionKind, PlannedEviction, Victim
from planner.sharing.displacement import DisplacedSlots, place_or_restore
from planner.sharing.rights import Rank, Right, Rights
from planner.snapshot import PlanPolicy, Quota, Request

# A plan tries this many requests from the front of the order, then others until OUTCOMES_MOST have failed or succeeded. The next plan
# continues with others.
FRONT_COUNT: Final = 8
OUTCOMES_MOST: Final = 8
# Up to this many boxes all choices are searched.
EXACT_MOST: Final = 8

_HarmKey = tuple[int, int, int]  # highest priority, work lost, number of boxes


@dataclass(frozen=True, slots=True)
class _EvictableBox:
    box: Box
    why: EvictionKind
    frees_s: int  # when its GPUs would be free, instead of `box.end_s`
    lost_gpu_s: int


def evictions_possible(policy: PlanPolicy, quotas: Sequence[Quota], evictor_count: int) -> bool:
    """`evictor_count`: waiting requests that may evict."""
    return bool(quotas) or evictor_count > 0 or policy.break_from is not None


class EvictionPlanner:
    def __init__(self, board: Board, quotas: Sequence[Quota]) -> None:
        self._board = board
        self._policy = board.policy
        self._quotas = quotas
        self.rights = Rights(board, quotas)

    def plan_all(self) -> list[PlannedEviction]:
        made: list[PlannedEviction] = []
        if not evictions_possible(self._policy, self._quotas, self._board.evictor_count):
            return made
        rights = self.rights
        made += self._plan_bookings()
        candidates = [waiting for waiting in self._board.order if self._may_gain(waiting, rights)]
        failed_count = won_count = 0
        for waiting in self._in_order(candidates, rights):
            if max(failed_count, won_count) >= OUTCOMES_MOST:
                break
            if self._would_gain(waiting):
                won = self._make_room(waiting, rights)
                made += [won] if won is not None and won.victims else []
                won_count += won is not None
                failed_count += won is None
        return made

    def book(self, waiting: Waiting) -> PlannedEviction | None:
        """Give a booking without a slot its time if it can have it."""
        rights, project = self.rights, waiting.request.project
        rights.renew(project, booking=waiting)
        won = self._make_room(waiting, rights)
        if won is None:
            rights.renew(project)
        return won

    def clear_for(self, waiting: Waiting, shape: str) -> int:
        """Remove all that could ever give way to a booking in this shape, and return when its right begins."""
        board, rights, request = self._board, self.rights, waiting.request
        rights.renew(request.project, booking=waiting)
        own, pools = rights.of_waiting(request, shape, NEVER_S), board.pools_in(request, shape)
        for each in self._candidates(rights, request, own, pools, board.now_s):
            board.set_end(each.box.id, each.frees_s)
        board.remove_slots(self._giving_way(rights, waiting, own, pools, NEVER_S))
        return rights.since_s(request, shape) if own.beside > Rank.BORROWS else 0

    def _plan_bookings(self) -> list[PlannedEviction]:
        """Bookings come first, because a plan without a place for one refuses it. The soonest is first, to give notice once."""
        lost = [waiting for waiting in self._board.order if self._is_unplaced_booking(waiting)]
        lost.sort(key=lambda waiting: (-waiting.request.priority, waiting.request.earliest_start_s))
        won = [self.book(waiting) for waiting in lost]
        return [each for each in won if each is not None and each.victims]

    def _is_unplaced_booking(self, waiting: Waiting) -> bool:
        request = waiting.request
        return request.is_fixed and request.earliest_start_s >= self._board.now_s and not self._board.has_slot(waiting)

    def _in_order(self, candidates: list[Waiting], rights: Rights) -> list[Waiting]:
        # All but the front rotate over time, because some requests fail in every plan.
        ranked = sorted(candidates, key=lambda waiting: (-self._best_rank(waiting, rights), waiting.turn))
        front, rest = ranked[:FRONT_COUNT], ranked[FRONT_COUNT:]
        place = self._board.now_s * FRONT_COUNT % len(rest) if rest else 0
        return front + rest[place:] + rest[:place]

    def _best_rank(self, waiting: Waiting, rights: Rights) -> int:
        before_s = self._gain_before_s(waiting)
        return max(rights.of_waiting(waiting.request, shape, before_s).beside for shape in self._board.gpus_by_shape(waiting.request))

    def _may_gain(self, waiting: Waiting, rights: Rights) -> bool:
        request = waiting.request
        if not self._would_gain(waiting):
            return False
        if request.may_evict or self._breaks(request):
            return True
        before_s = self._gain_before_s(waiting)
        return any(rights.may_take(request, shape, before_s) for shape in self._board.gpus_by_shape(request))

    def _would_gain(self, waiting: Waiting) -> bool:
        if waiting.risk is not None:
            return False  # it is unknown when its own place comes back, so no box has to end for it
        return self._board.has_slot(waiting) and self._gain_before_s(waiting) > self._board.soonest_s(waiting.request)

    def _gain_before_s(self, waiting: Waiting) -> int:
        if not self._board.has_slot(waiting):
            return waiting.request.earliest_start_s + 1
        return self._board.start_s(waiting) - self._policy.eviction_gain_s

    def _start_without_s(self, waiting: Waiting) -> int:
        board, request = self._board, waiting.request
        if board.has_slot(waiting):
            return board.start_s(waiting)
        found = board.earliest(board.demand(request), request.earliest_start_s + 1)
        return NEVER_S if found is None else found[0]

    def _breaks(self, request: Request) -> bool:
        # Only while it is new, so that promises do not move repeatedly.
        return self._policy.break_from is not None and request.priority >= self._policy.break_from and request.promise_s is None

    def _make_room(self, waiting: Waiting, rights: Rights) -> PlannedEviction | None:
        """Return no victims if moving slots was enough."""
        board, request = self._board, waiting.request
        instead_s = self._start_without_s(waiting)
        for shape in board.gpus_by_shape(request):
            victims = self._make_room_in(waiting, shape, rights)
            if board.has_slot(waiting) and (start_s := board.start_s(waiting)) < instead_s:
                for project in {request.project, *(board.running[victim.id].project for victim in victims)}:
                    rights.renew(project)
                waiting.promise_by(start_s)  # the start that others end for is promised, so that a delay needs a cause
                return PlannedEviction(request.id, victims, start_s, instead_s)
        return None

    def _make_room_in(self, waiting: Waiting, shape: str, rights: Rights) -> tuple[Victim, ...]:
        board, request, before_s = self._board, waiting.request, self._gain_before_s(waiting)
        own = rights.of_waiting(request, shape, before_s)
        since_s = max(board.soonest_s(request), rights.since_s(request, shape) if own.beside > Rank.BORROWS else 0)
        pools = board.pools_in(request, shape)
        old = board.box(waiting) if board.has_slot(waiting) else None
        candidates = self._candidates(rights, request, own, pools, board.now_s if old is not None else request.earliest_start_s)
        end_s = (request.earliest_start_s if old is None else old.start_s) + request.length_s
        giving_way = self._giving_way(rights, waiting, own, pools, end_s)
        if old is not None and not candidates and not giving_way:
            return ()
        demand = board.demand(request, pools)
        if old is not None:
            board.remove_slot(waiting)
        displaced_slots = DisplacedSlots(board, giving_way)
        found = board.earliest(demand, since_s, before_s)
        evicted = self._evict(demand, candidates, since_s, before_s if found is None else found[0] - self._policy.eviction_gain_s)
        found = board.earliest(demand, since_s, before_s) if evicted else found
        place_or_restore(board, waiting, demand, found, old)
        displaced_slots.put_back(partial(self._cause, request))
        return tuple(Victim(each.box.id, each.why, each.frees_s, each.lost_gpu_s) for each in evicted)

    def _candidates(self, rights: Rights, request: Request, own: Right, pools: list[int], at_s: int) -> list[_EvictableBox]:
        """`at_s`: the start of a booking, until which the boxes keep working."""
        board, found = self._board, []
        rank_of = rights.of_running if at_s <= board.now_s else rights.of_running_at(at_s)
        for box in board.running.values():
            if not box.is_open or box.id in board.overdue or board.pool_at(box.places) not in pools:
                continue
            frees_s = max(board.now_s + self._policy.notice_s, box.began_s + self._policy.least_run_s) + self._policy.exit_s
            why = rights.eviction_kind(request, own, box, rank_of(box)) if frees_s < box.end_s else None
            if why is not None:
                lost_gpu_s = board.gpus_of(box) * max(at_s - box.began_s, 0)
                found.append(_EvictableBox(box, why, frees_s, lost_gpu_s))
        return found

    def _giving_way(self, rights: Rights, waiting: Waiting, own: Right, pools: list[int], end_s: int) -> list[Waiting]:
        """Borrowers give way, and by policy lower priorities."""
        board, request, found = self._board, waiting.request, []
        for other in board.order:
            if other is waiting or other.request.is_fixed or not board.has_slot(other) or (start_s := board.start_s(other)) >= end_s:
                continue
            if other.risk is not None:
                continue
            pool = board.pool_of_slot(other)
            if pool not in pools:
                continue
            rank = rights.of_waiting(other.request, board.pools[pool].shape, start_s).beside
            is_broken = self._is_broken(request, other) and rank <= max(own)
            if is_broken or rights.may_reclaim(request, own, other.request.project, other.request.slice, rank):
                found.append(other)
        return found

    def _is_broken(self, request: Request, other: Waiting) -> bool:
        return other.request.priority < request.priority and self._breaks(request)

    def _cause(self, request: Request, other: Waiting) -> tuple[Cause, str]:
        return Cause.PRIORITY if self._is_broken(request, other) else Cause.RECLAIM, request.id

    def _evict(self, demand: Demand, candidates: list[_EvictableBox], since_s: int, before_s: int) -> list[_EvictableBox]:
        """End the boxes of least harm for a start before `before_s`. A start that is slightly later may do less harm."""
        with self._ended_early(candidates):
            found = self._board.earliest(demand, since_s, before_s) if since_s < before_s else None
        if found is None:
            return []
        until_s = min(found[0] + self._policy.eviction_gain_s, before_s)
        good = min((self._shortest_prefix(demand, ranked, since_s, until_s) for ranked in self._rankings(candidates)), key=_harm)
        chosen = self._as_late_as_can_be(demand, self._search_few(demand, candidates, good, since_s, until_s), since_s, until_s)
        for each in chosen:
            self._board.set_end(each.box.id, each.frees_s)
        return chosen

    def _as_late_as_can_be(self, demand: Demand, chosen: list[_EvictableBox], since_s: int, until_s: int) -> list[_EvictableBox]:
        with self._ended_early(chosen):
            found = self._board.earliest(demand, since_s, until_s)
        return chosen if found is None else [replace(each, frees_s=max(each.frees_s, found[0])) for each in chosen]

    def _rankings(self, candidates: list[_EvictableBox]) -> list[list[_EvictableBox]]:
        """Rank by box, and by node, because one node may need all its boxes ended."""
        of_node: dict[int, int] = {}
        for each in candidates:
            for node in each.box.places:
                of_node[int(node)] = of_node.get(int(node), 0) + each.lost_gpu_s // len(each.box.places)
        by_node = {each.box.id: max(of_node[int(node)] for node in each.box.places) for each in candidates}
        keys: list[Callable[[_EvictableBox], tuple[int, int, int, str]]] = [
            lambda each: (each.box.priority, each.lost_gpu_s, 0, each.box.id),
            lambda each: (each.box.priority, by_node[each.box.id], each.lost_gpu_s, each.box.id),
        ]
        return [sorted(candidates, key=key) for key in keys]

    def _shortest_prefix(self, demand: Demand, ranked: list[_EvictableBox], since_s: int, until_s: int) -> list[_EvictableBox]:
        """Return the shortest sufficient prefix of the ranking, minus boxes that can stay.

        No other choice has a lower maximum priority, because room only grows with each box that ends.
        """
        low, high = 0, len(ranked)
        while low < high:
            middle = (low + high) // 2
            if self._starts(demand, ranked[:middle], since_s, until_s):
                high = middle
            else:
                low = middle + 1
        chosen = ranked[:high]
        for each in reversed(ranked[:high]):
            fewer = [other for other in chosen if other is not each]
            if self._starts(demand, fewer, since_s, until_s):
                chosen = fewer
        return chosen

    def _search_few(
        self, demand: Demand, candidates: list[_EvictableBox], good: list[_EvictableBox], since_s: int, until_s: int
    ) -> list[_EvictableBox]:
        """Searches by branch and bound. Source: Land and Doig, 1960."""
        highest, lost_gpu_s, _ = _harm(good)
        few = [each for each in candidates if each.box.priority <= highest and each.lost_gpu_s <= lost_gpu_s]
        if len(few) > EXACT_MOST:
            return good
        with self._ended_early(few):
            fits = partial(self._starts, demand, (), since_s, until_s)
            return self._branch(fits, sorted(few, key=lambda each: (-each.lost_gpu_s, each.box.id)), [], good)

    def _branch(
        self, fits: Callable[[], bool], open_: list[_EvictableBox], ended: list[_EvictableBox], best: list[_EvictableBox]
    ) -> list[_EvictableBox]:
        """Return `best`, or a less harmful choice: all `ended` and some of `open_`."""
        if _harm(ended) >= _harm(best):
            return best
        if not open_:
            return ended
        first, rest = open_[0], open_[1:]
        self._board.set_end(first.box.id, first.box.end_s)
        if fits():
            best = self._branch(fits, rest, ended, best)
        self._board.set_end(first.box.id, first.frees_s)
        return self._branch(fits, rest, [*ended, first], best)

    def _starts(self, demand: Demand, ended: Sequence[_EvictableBox], since_s: int, until_s: int) -> bool:
        with self._ended_early(ended):
            return self._board.earliest(demand, since_s, until_s) is not None

    @contextmanager
    def _ended_early(self, boxes: Sequence[_EvictableBox]) -> Iterator[None]:
        for each in boxes:
            self._board.set_end(each.box.id, each.frees_s)
        yield
        for each in boxes:
            self._board.set_end(each.box.id, each.box.end_s)


def _harm(chosen: list[_EvictableBox]) -> _HarmKey:
    return max((each.box.priority for each in chosen), default=0), sum(each.lost_gpu_s for each in chosen), len(chosen)
