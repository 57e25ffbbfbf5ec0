"""What a request would get if it were submitted now: it is tried on a copy of the board, by the code that plans."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from gpr.planner.board import Board
from gpr.planner.engine import borrows, can_grow, claim, forecast_of, no_collection, settle
from gpr.planner.leeway import Leeway
from gpr.planner.limits import most_that_fits
from gpr.planner.pace import Pace
from gpr.planner.plan import Offer
from gpr.planner.reasons import Reasons
from gpr.planner.repair import board_of
from gpr.planner.snapshot import PolicyName, Request, Snapshot
from gpr.planner.supplies import draw
from gpr.planner.waiting import Waiting


def offers(snapshot: Snapshot, candidate: Request) -> tuple[Offer, ...]:
    """What `plan` would give the candidate in each of its pools if it were submitted now, soonest first; nothing is kept.

    See `Desk`. A request in the queue with the candidate's id is left out, so that an edit can be tried.
    """
    return Desk(snapshot, without=candidate.id).offers(candidate)


class Desk:
    """A snapshot that one may ask about candidates. What holds for all of them is worked out once."""

    @no_collection()
    def __init__(self, snapshot: Snapshot, *, without: str = "") -> None:
        """`without`: the id of a request in the queue that is left out."""
        self._snapshot = replace(snapshot, queue=tuple(request for request in snapshot.queue if request.id != without))
        self._board, self._newcomers = board_of(self._snapshot)
        # Whoever moves up first changes what a newcomer finds.
        is_calm = snapshot.policy.name == PolicyName.GUARDED and not snapshot.has_freed
        self._pace = Pace(self._board, snapshot.memory) if is_calm else None
        if self._pace is not None:
            self._pace.begin()

    @no_collection()
    def offers(self, candidate: Request) -> tuple[Offer, ...]:
        """What `plan` would give it in each of its pools, soonest first.

        Each is what it gets in that pool alone; with all its pools it is promised the first start of all, but for its slack; handicaps
        count for the order. Where more nodes can be ordered there is one offer more for a cluster and shape, if something would be
        ordered. Pools that could never hold it have no offer. Units and cost as for `plan`, which shares the code; the board is set up
        once for all.
        """
        found = (self._offer(alone) for alone in _in_each_pool(self._snapshot, candidate))
        made = (offer for offer in found if offer is not None)
        # Where nobody has to end for it, it is put first.
        return tuple(
            sorted(made, key=lambda offer: (offer.start_s + candidate.handicap_s(offer.pool), offer.promise_s, bool(offer.evictions)))
        )

    def most_by(self, by_s: int, sizes: Sequence[int], sized: Callable[[int], Request]) -> int | None:
        """The largest of these sizes whose request has a place by then beside all slots; None if none has. What it gets `offers` knows.

        `sizes` rise, and so does what `sized` makes of them: fewer GPUs for a shorter time fit wherever more fit for longer. Cost: one
        search for a place for each halving; nothing is placed.
        """
        board = self._settled

        def has_no_place(size: int) -> bool:
            request = sized(size)
            return board.earliest(board.kind(request), board.soonest_s(request), by_s + 1) is None

        count = bisect_left(sizes, True, key=has_no_place)
        return sizes[count - 1] if count else None

    @cached_property
    def _settled(self) -> Board:
        """Where all others have their slots."""
        board = self._board.copy()
        newcomers = [board.queue[other.request.id] for other in self._newcomers]
        settle(board, newcomers, self._snapshot, self._pace.on(board) if self._pace is not None else None)
        return board

    def _offer(self, candidate: Request) -> Offer | None:
        """The last of its pools is the one that is asked about."""
        snapshot, board = self._snapshot, self._board.copy()
        waiting = board.enroll(candidate)
        newcomers = [board.queue[other.request.id] for other in self._newcomers]
        settle(board, [*newcomers, waiting], snapshot, self._pace.on(board) if self._pace is not None else None)
        evictions, rights = claim(board, snapshot.quotas)
        # The others had their turn at the last tick.
        asked = None if can_grow(snapshot) else {candidate.id}
        expected = draw(board, board.expected(asked), {eviction.id for eviction in evictions}, only=candidate.id)
        slot = board.slot(waiting)
        if slot is None or not _is_asked_for(board, waiting):
            return None
        promise_s = Leeway(board, snapshot.memory.failed).promise_s(waiting.request, slot)
        start, supply = expected[candidate.id], board.pools[board.pool_of_slot(waiting)].supply
        pool = board.pools[board.pool_numbers[start.pool]]
        return Offer(
            pool=pool.id,
            cluster=pool.cluster,
            shape=pool.shape,
            start_s=start.start_s,
            promise_s=promise_s,
            slot=start,
            explanation=Reasons(board, expected).explain(candidate, start),
            forecast=forecast_of(board, waiting, start.start_s, promise_s),
            evictions=tuple(eviction for eviction in evictions if eviction.id == candidate.id),
            borrows=borrows(board, rights, candidate, start),
            supply=supply.id if supply is not None else "",
        )


def _is_asked_for(board: Board, waiting: Waiting) -> bool:
    """Not where nodes could be ordered and none would be."""
    supply = board.pools[board.pool_of_slot(waiting)].supply
    return supply is not None or board.pools[board.pool_numbers[waiting.request.pools[-1]]].supply is None


def _in_each_pool(snapshot: Snapshot, candidate: Request) -> Iterator[Request]:
    """The candidate in each of its pools alone; and once for each cluster and shape of which more nodes can be ordered, in all that are
    alike, for it is only beside those that are there that the order has to gain something.
    """
    by_id = {pool.id: pool for pool in snapshot.pools}
    known = [by_id[id_] for id_ in dict.fromkeys(candidate.pools) if id_ in by_id]
    pools = [pool for pool in known if pool.supply is None or most_that_fits([pool], candidate).fits]
    for pool in pools:
        if pool.supply is None:
            yield replace(candidate, pools=(pool.id,), orders=())
    for place in dict.fromkeys((pool.cluster, pool.shape) for pool in pools if pool.supply is not None):
        alike = [pool for pool in pools if (pool.cluster, pool.shape) == place]
        growing = tuple(pool.id for pool in alike if pool.supply is not None)
        there = tuple(pool.id for pool in alike if pool.supply is None)
        yield replace(candidate, pools=(*there, *growing), orders=tuple(id_ for id_ in candidate.orders if id_ in growing))
