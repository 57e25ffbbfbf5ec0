"""Computes what a request would get if it were submitted now, on a copy of the board."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property

from planner.board.board import Board
from planner.board.waiting import Waiting
from planner.engine import can_order_nodes, forecast_of, make_evictions, no_collection, place_newcomers, promise_of
from planner.feasibility import largest_that_fits
from planner.plan import Explanation, Offer
from planner.promises.failure_reserve import FailureReserve
from planner.promises.live_board import Restore, restore_anew
from planner.promises.slack import SlackTracker
from planner.reasons import Reasons
from planner.sharing.edits import BeforeEdit, put_back, slack_without, take_out
from planner.sharing.evictions import evictions_possible
from planner.sharing.rights import borrows
from planner.sharing.supplies import assign_supplies
from planner.snapshot import PolicyName, Pool, Request, Slot, Snapshot


def offers(snapshot: Snapshot, candidate: Request) -> tuple[Offer, ...]:
    """See `OfferFinder.offers`. A queued request with the candidate's id is replaced."""
    others = tuple(request for request in snapshot.queue if request.id != candidate.id)
    return OfferFinder(snapshot if snapshot.edited is not None else replace(snapshot, queue=others)).offers(candidate)


class OfferFinder:
    """Finds offers for many candidates on one snapshot. If it has an edited request, the candidates are its new forms."""

    @no_collection()
    def __init__(self, snapshot: Snapshot, *, restore: Restore = restore_anew) -> None:
        self._snapshot = snapshot
        self._board, self._newcomers, self._courses, queues = restore(snapshot)
        self._before_edit = self._let_go(snapshot.edited.id) if snapshot.edited is not None else None
        # Slots that move up first change what a newcomer finds.
        is_calm = snapshot.policy.name == PolicyName.GUARDED and not snapshot.has_freed
        if self._before_edit is not None:
            self._slack = slack_without(self._board, snapshot.memory, self._before_edit.request.id)
        else:
            self._slack = SlackTracker(self._board, snapshot.memory, queues) if is_calm else None
        if self._slack is not None:
            self._slack.build_queues()

    def _let_go(self, edited: str) -> BeforeEdit:
        place_newcomers(self._board, self._newcomers, self._snapshot)
        self._newcomers = []
        return take_out(self._board, edited)

    @no_collection()
    def offers(self, candidate: Request) -> tuple[Offer, ...]:
        """Return what `plan` would give it in each pool alone, soonest first counting handicaps; none for pools that could never hold it.

        If more nodes of a cluster and shape would be ordered, there is one more offer. Units and cost as for `plan`.
        """
        if self._before_edit is not None:
            return self.beside(self.best(candidate), candidate)
        found = (self._offer(alone) for alone in _in_each_pool(self._snapshot, candidate))
        return _soonest_first(candidate, found)

    @no_collection()
    def best(self, candidate: Request) -> Offer | None:
        return self._offer(candidate)

    @no_collection()
    def beside(self, best: Offer | None, candidate: Request) -> tuple[Offer, ...]:
        """Return the best offer for an edit, then one for each other cluster and shape, soonest first."""
        there = None if best is None else (best.cluster, best.shape)
        others = (alike for place, alike in _places(self._snapshot, candidate).items() if place != there)
        found = _soonest_first(candidate, (self._offer(_only_in(candidate, alike)) for alike in others))
        return found if best is None else (best, *found)

    def most_by(self, by_s: int, sizes: Sequence[int], sized: Callable[[int], Request]) -> int | None:
        """Return the largest size whose request has a place by then beside all slots.

        `sizes` rise, and so must the requests that `sized` makes. Cost: one search for each halving.
        """
        board = self._settled

        def has_no_place(size: int) -> bool:
            request = sized(size)
            return board.earliest(board.demand(request), board.soonest_s(request), by_s + 1) is None

        count = bisect_left(sizes, True, key=has_no_place)
        return sizes[count - 1] if count else None

    @cached_property
    def _settled(self) -> Board:
        if self._before_edit is not None:
            return self._board
        board = self._board.copy()
        newcomers = [board.queue[other.request.id] for other in self._newcomers]
        place_newcomers(board, newcomers, self._snapshot, self._slack.copy_for(board) if self._slack is not None else None)
        return board

    def _offer(self, candidate: Request) -> Offer | None:
        if not self._moves_nothing(candidate):
            return self._offer_on(self._board.copy(), candidate)
        offer = self._offer_on(self._board, candidate)
        self._board.dequeue(self._board.queue[candidate.id])
        return offer

    def _moves_nothing(self, candidate: Request) -> bool:
        """Tells whether the board is as before once the candidate has left it."""
        board, snapshot = self._board, self._snapshot
        if self._slack is None or self._before_edit is not None or self._newcomers or board.followers or candidate.after:
            return False
        evictor_count = board.evictor_count + candidate.may_evict
        return not can_order_nodes(snapshot) and not evictions_possible(board.policy, snapshot.quotas, evictor_count)

    def _offer_on(self, board: Board, candidate: Request) -> Offer | None:
        snapshot = self._snapshot
        reserve = FailureReserve(board, snapshot.memory.failed)
        waiting = self._taken_in(board, candidate, reserve)
        evictions, rights = make_evictions(board, snapshot.quotas)
        expected, ahead = self._expected(board, waiting, {eviction.id for eviction in evictions})
        slot = board.slot(waiting)
        if slot is None or (self._before_edit is None and not _is_asked_for(board, waiting)):
            return None
        _, promise_s = promise_of(waiting, slot, reserve, snapshot.policy.promise_tolerance_s)
        start, supply = expected[candidate.id], board.pools[board.pool_of_slot(waiting)].supply
        pool = board.pools[board.pool_numbers[start.pool]]
        return Offer(
            pool=pool.id,
            cluster=pool.cluster,
            shape=pool.shape,
            start_s=start.start_s,
            promise_s=promise_s,
            slot=start,
            explain=lambda: _explained(board, expected, candidate, ahead),
            forecast=forecast_of(board, waiting, start.start_s, promise_s),
            evictions=tuple(eviction for eviction in evictions if eviction.id == candidate.id),
            borrows=borrows(board, rights, candidate, start),
            supply=supply.id if supply is not None else "",
        )

    def _expected(self, board: Board, waiting: Waiting, barred: Set[str]) -> tuple[Mapping[str, Slot], Mapping[str, int] | None]:
        """Returns expected starts and, if they are not those of all, how many are ahead."""
        if board is self._board and self._before_edit is None:
            return self._courses.expected_near(board, [waiting], is_trial=True) if board.has_slot(waiting) else ({}, None)
        # The others had their turn at the last tick.
        asked = None if can_order_nodes(self._snapshot) else {waiting.request.id}
        return assign_supplies(board, board.expected(asked), barred, only=waiting.request.id), None

    def _taken_in(self, board: Board, candidate: Request, reserve: FailureReserve) -> Waiting:
        slack = self._slack.copy_for(board) if self._slack is not None else None
        if self._before_edit is not None:
            return put_back(board, candidate, self._before_edit, slack, reserve)
        waiting = board.enqueue(candidate)
        newcomers = [board.queue[other.request.id] for other in self._newcomers]
        place_newcomers(board, [*newcomers, waiting], self._snapshot, slack)
        return waiting


def _explained(board: Board, expected: Mapping[str, Slot], candidate: Request, ahead: Mapping[str, int] | None) -> Explanation:
    has_left = candidate.id not in board.queue
    if has_left:
        board.enqueue(candidate)
    found = Reasons(board, expected, [candidate], ahead).explain(candidate, expected[candidate.id])
    if has_left:
        board.dequeue(board.queue[candidate.id])
    return found


def _soonest_first(candidate: Request, found: Iterable[Offer | None]) -> tuple[Offer, ...]:
    made = (offer for offer in found if offer is not None)
    return tuple(sorted(made, key=lambda offer: (offer.start_s + candidate.handicap_s(offer.pool), offer.promise_s, bool(offer.evictions))))


def _is_asked_for(board: Board, waiting: Waiting) -> bool:
    # The last pool is the one that is asked about: no offer if nodes there could be ordered and none would be.
    supply = board.pools[board.pool_of_slot(waiting)].supply
    return supply is not None or board.pools[board.pool_numbers[waiting.request.pools[-1]]].supply is None


def _in_each_pool(snapshot: Snapshot, candidate: Request) -> Iterator[Request]:
    """Yield a request for each pool that cannot grow, and for each cluster and shape that can: an order must gain time over all pools
    there.
    """
    pools = [pool for pool in _known(snapshot, candidate) if pool.supply is None or largest_that_fits([pool], candidate).fits]
    for pool in pools:
        if pool.supply is None:
            yield replace(candidate, pools=(pool.id,), orders=())
    for place in dict.fromkeys((pool.cluster, pool.shape) for pool in pools if pool.supply is not None):
        alike = [pool for pool in pools if (pool.cluster, pool.shape) == place]
        growing = [pool for pool in alike if pool.supply is not None]
        yield _only_in(candidate, [*(pool for pool in alike if pool.supply is None), *growing])


def _places(snapshot: Snapshot, candidate: Request) -> dict[tuple[str, str], list[Pool]]:
    found: dict[tuple[str, str], list[Pool]] = defaultdict(list)
    for pool in _known(snapshot, candidate):
        found[pool.cluster, pool.shape].append(pool)
    return found


def _known(snapshot: Snapshot, candidate: Request) -> list[Pool]:
    by_id = {pool.id: pool for pool in snapshot.pools}
    return [by_id[id_] for id_ in dict.fromkeys(candidate.pools) if id_ in by_id]


def _only_in(candidate: Request, pools: Sequence[Pool]) -> Request:
    ids = tuple(pool.id for pool in pools)
    return replace(candidate, pools=ids, orders=tuple(id_ for id_ in candidate.orders if id_ in ids))
