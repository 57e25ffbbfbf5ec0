"""Proposes to move running part-node boxes so that whole nodes come free together, for a waiting request or a wanted booking.

A moved box is evicted and restarts on other nodes of its pool, beside all slots. An administrator decides.

Cost: GPU-seconds that the moved boxes have run (lost if nothing was saved), plus their idle time from the end of the notice until they run
again. Value: GPUs of the beneficiary times the seconds that it starts sooner.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations, islice
from typing import Final

import numpy as np

from planner.board.board import Board, Box
from planner.board.waiting import Waiting
from planner.capacity.placement import Demand, members_of
from planner.capacity.profile import NEVER_S, Ints
from planner.causes import EvictionKind, PlannedEviction, Victim
from planner.promises.repair import board_of
from planner.snapshot import Request, Running, Slot, Snapshot

# Requests looked at in order of turn, and how many of them get a full search.
CONSIDERED_MOST: Final = 32
SEARCHED_MOST: Final = 8
# With at most EXACT_MOST boxes all subsets are tried, else the cheapest nodes at MOMENTS_MOST moments.
EXACT_MOST: Final = 10
MOMENTS_MOST: Final = 6
# Search rounds; each leaves out boxes for which the last one found no other place.
ROUNDS_MOST: Final = 3
# An administrator would hardly accept more.
RELOCATIONS_MOST: Final = 32


@dataclass(frozen=True, slots=True)
class Relocation:
    id: str
    from_nodes: tuple[str, ...]
    to_nodes: tuple[str, ...]
    frees_s: int
    restarts_s: int
    lost_gpu_s: int  # what the box has run since it began
    idle_gpu_s: int  # between the end of its window and the opening of the next


@dataclass(frozen=True, slots=True)
class Proposal:
    """Moves that let the request `id` start in `slot` instead of at `instead_s`."""

    id: str
    relocations: tuple[Relocation, ...]
    slot: Slot
    freed: tuple[str, ...]  # nodes of the slot that boxes leave
    instead_s: int
    cost_gpu_s: int
    value_gpu_s: int

    @property
    def start_s(self) -> int:
        return self.slot.start_s

    @property
    def eviction(self) -> PlannedEviction:
        victims = tuple(
            Victim(relocation.id, EvictionKind.DEFRAGMENT, relocation.frees_s, relocation.lost_gpu_s) for relocation in self.relocations
        )
        return PlannedEviction(self.id, victims, self.start_s, self.instead_s)


@dataclass(frozen=True, slots=True)
class BookingFit:
    fits: bool  # at its time, without relocations
    instead_s: int | None  # otherwise the next time at which it fits
    proposal: Proposal | None


def proposals(snapshot: Snapshot, *, only: str = "") -> tuple[Proposal, ...]:
    """Propose at most one set of moves for each request that wants whole nodes or at least half of a node, cheapest first.

    Each starts the request sooner by at least `policy.eviction_gain_s` and is worth its cost. The others must be computed again after one
    is carried out. Requests without a slot get none. `only`: just this request.
    """
    board, _ = board_of(snapshot)
    expected = board.expected()
    relocator = _Relocator(board, snapshot.running)
    emptied = relocator.emptied(snapshot)
    found: list[Proposal] = []
    searched_count = 0
    for waiting in list(islice(_large(board, only), CONSIDERED_MOST)):
        request, old = waiting.request, board.box(waiting)
        board.remove_slot(waiting)
        instead_s = _instead_s(board, request, expected[request.id].start_s)
        before_s = instead_s - board.policy.eviction_gain_s + 1
        if _could_start(emptied, request, before_s):
            searched_count += 1
            proposal = _RelocationSearch(relocator, waiting, board.soonest_s(request), before_s, instead_s).best()
            found += [proposal] if proposal is not None else []
        board.place(waiting, old.start_s, old.places)
        if searched_count == SEARCHED_MOST:
            break
    return tuple(sorted(found, key=lambda proposal: (proposal.cost_gpu_s, -proposal.value_gpu_s, proposal.id)))


def fit_booking(snapshot: Snapshot, booking: Request) -> BookingFit:
    board, _ = board_of(snapshot)
    demand, at_s = board.demand(booking), booking.earliest_start_s
    if at_s >= board.now_s and board.earliest(demand, at_s, at_s + 1) is not None:
        return BookingFit(fits=True, instead_s=None, proposal=None)
    later = board.earliest(demand, max(at_s + 1, board.now_s))
    if later is None or at_s < board.now_s:
        return BookingFit(fits=False, instead_s=later[0] if later else None, proposal=None)
    search = _RelocationSearch(_Relocator(board, snapshot.running), board.enqueue(booking), at_s, at_s + 1, later[0])
    return BookingFit(fits=False, instead_s=later[0], proposal=search.best())


def with_proposal(snapshot: Snapshot, proposal: Proposal) -> Snapshot:
    frees_s = {relocation.id: relocation.frees_s for relocation in proposal.relocations}
    running = tuple(replace(box, end_s=frees_s.get(box.id, box.end_s)) for box in snapshot.running)
    queue = tuple(_with_slot(request, proposal) if request.id == proposal.id else request for request in snapshot.queue)
    return replace(snapshot, running=running, queue=queue)


def _with_slot(request: Request, proposal: Proposal) -> Request:
    return replace(request, slot=proposal.slot, promise_s=proposal.start_s)


def _large(board: Board, only: str) -> Iterator[Waiting]:
    largest = {pool.id: max((node.gpu_count for node in pool.nodes), default=0) for pool in board.pools}
    for waiting in [board.queue[only]] if only in board.queue else [] if only else board.order:
        gpus = waiting.request.gpus_per_node
        # A smaller request is hardly blocked by partly used nodes.
        if (
            board.has_slot(waiting)
            and waiting.risk is None
            and (gpus == 0 or 2 * gpus >= max((largest.get(id_, 0) for id_ in waiting.request.pools), default=0))
        ):
            yield waiting


def _instead_s(board: Board, request: Request, expected_s: int) -> int:
    """Returns the start without moves. The request must have no slot now."""
    found = board.earliest(board.demand(request), board.soonest_s(request), expected_s)
    return expected_s if found is None else found[0]


def _could_start(emptied: Board, request: Request, before_s: int) -> bool:
    waiting, soonest_s = emptied.queue[request.id], emptied.soonest_s(request)
    old = emptied.box(waiting)
    emptied.remove_slot(waiting)
    found = emptied.earliest(emptied.demand(request), soonest_s, before_s)
    emptied.place(waiting, old.start_s, old.places)
    return found is not None


@dataclass(frozen=True, slots=True, eq=False)
class _MovableBox:
    box: Box
    frees_s: int
    lost_gpu_s: int
    least_gpu_s: int  # the cost if it restarts at once
    restart: Waiting  # the box as a request for the rest of its time


_Chosen = tuple[_MovableBox, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Solution:
    chosen: _Chosen
    proposal: Proposal

    @property
    def rank(self) -> tuple[int, int, int, int, tuple[str, ...]]:
        made = self.proposal
        ids = tuple(relocation.id for relocation in made.relocations)
        return made.cost_gpu_s - made.value_gpu_s, made.cost_gpu_s, made.start_s, len(ids), ids


class _Relocator:
    def __init__(self, board: Board, running: Iterable[Running]) -> None:
        self.board = board
        made = (self._candidate(each) for each in sorted(running, key=lambda each: each.id))
        self._candidates = [candidate for candidate in made if candidate is not None]

    def emptied(self, snapshot: Snapshot) -> Board:
        frees_s = {each.box.id: each.frees_s for each in self._candidates}
        running = tuple(replace(each, end_s=frees_s.get(each.id, each.end_s)) for each in snapshot.running)
        return board_of(replace(snapshot, running=running))[0]

    def for_request(self, request: Request, before_s: int) -> list[_MovableBox]:
        pools = self.board.pools_of(request)
        return [
            each
            for each in self._candidates
            if self.board.pool_at(each.box.places) in pools
            and each.box.priority <= request.priority
            and not (request.slice and each.box.slice == request.slice)
            and each.frees_s < before_s
        ]

    def _candidate(self, running: Running) -> _MovableBox | None:
        """Returns None if the box may not move or has no time left. An earlier notice stays in force."""
        board, policy, box = self.board, self.board.policy, self.board.running[running.id]
        frees_s = max(board.now_s + policy.notice_s, box.began_s + policy.least_run_s) + policy.exit_s
        is_part = running.gpus_per_node > 0 and len(box.places) == len(running.nodes) > 0
        may = running.evictable and running.is_movable and running.is_open and running.id not in board.overdue
        if not (is_part and may and frees_s < box.end_s):
            return None
        gpus = board.gpus_of(box)
        lost_gpu_s = gpus * max(board.now_s - box.began_s, 0)
        least_gpu_s = lost_gpu_s + gpus * (policy.exit_s + policy.entry_s)
        return _MovableBox(box, frees_s, lost_gpu_s, least_gpu_s, board.enqueue(self._restart(running, frees_s, box.end_s)))

    def _restart(self, running: Running, frees_s: int, end_s: int) -> Request:
        policy, whose = self.board.policy, (running.id, running.slice, running.project, running.priority)
        length_s = end_s - frees_s + policy.entry_s + policy.exit_s
        return Request(*whose, 0, len(running.nodes), running.gpus_per_node, length_s, (running.pool,), frees_s)


class _RelocationSearch:
    """Searches the best moves for one request without a slot, to start in `[since_s, before_s)`."""

    def __init__(self, relocator: _Relocator, waiting: Waiting, since_s: int, before_s: int, instead_s: int) -> None:
        self._board, self._waiting = relocator.board, waiting
        self._demand = relocator.board.demand(waiting.request)
        self._since_s, self._before_s, self._instead_s = since_s, before_s, instead_s
        self._candidates = relocator.for_request(waiting.request, before_s)
        self._stuck: set[str] = set()  # boxes without another place

    def best(self) -> Proposal | None:
        best = self._round()
        for _ in range(ROUNDS_MOST - 1):
            if best is not None or not self._stuck:
                break
            self._candidates = [each for each in self._candidates if each.box.id not in self._stuck]
            best = self._round()
        return best.proposal if best is not None and best.rank[0] <= 0 else None

    def _round(self) -> _Solution | None:
        """Try sets by their least possible cost, until no later set can be better."""
        self._stuck.clear()
        first_s, sets = self._sets()
        value_most, best = self._gpus_most() * (self._instead_s - first_s), None
        for least_gpu_s, chosen in sorted(((_least_gpu_s(chosen), chosen) for chosen in sets), key=lambda pair: pair[0]):
            if least_gpu_s - value_most > (0 if best is None else best.rank[0]):
                break
            best = self._better(best, chosen)
        return best and self._without_needless(best)

    def _sets(self) -> tuple[int, list[_Chosen]]:
        """Return the soonest start possible, and sets of boxes to try."""
        self._end_early(self._candidates)
        found = self._board.earliest(self._demand, self._since_s, self._before_s) if self._candidates else None
        first_s, sets = self._since_s if found is None else found[0], list[_Chosen]()
        if found is not None and len(self._candidates) > EXACT_MOST:
            tried = ((int(pool), at_s) for at_s in self._moments(first_s) for pool in self._demand.pools)
            sets = [chosen for pool, at_s in tried if 0 < len(chosen := self._emptying(pool, at_s)) <= RELOCATIONS_MOST]
        elif found is not None:
            sets = [chosen for count in range(len(self._candidates)) for chosen in combinations(self._candidates, count + 1)]
        self._restore_ends(self._candidates)
        return first_s, sets

    def _gpus_most(self) -> int:
        return max(self._board.gpus_by_shape(self._waiting.request).values(), default=0)

    def _better(self, best: _Solution | None, chosen: _Chosen) -> _Solution | None:
        found = self._try(chosen)
        return min((each for each in (best, found) if each is not None), key=lambda each: each.rank, default=None)

    def _without_needless(self, best: _Solution) -> _Solution:
        for each in sorted(best.chosen, key=lambda each: -each.least_gpu_s):
            fewer = tuple(other for other in best.chosen if other is not each)
            best = (self._better(best, fewer) if fewer else None) or best
        return best

    def _moments(self, first_s: int) -> list[int]:
        boxes = [*self._board.running.values(), *(each.box for each in self._candidates)]
        ends_s = sorted({box.end_s for box in boxes if first_s < box.end_s < self._before_s})
        return [first_s, *ends_s[:: -(-len(ends_s) // (MOMENTS_MOST - 1)) or 1]]

    def _emptying(self, pool: int, at_s: int) -> _Chosen:
        """Returns the boxes on the cheapest nodes of the pool, or none if too few nodes. All candidates must end early on the board now."""
        board, on_node = self._board, self._on_nodes(at_s)
        members = members_of(board.capacity, pool)
        able = [int(node) for node in members if board.has_room(_one(node), self._demand, at_s)]
        needed = {node: self._needed(node, on_node.get(node, []), at_s) for node in able}
        chosen: dict[str, _MovableBox] = {}
        for _ in range(self._demand.nodes):
            if not needed:
                return ()
            cheapest = min(needed, key=lambda node: (_least_gpu_s(each for each in needed[node] if each.box.id not in chosen), node))
            chosen |= {each.box.id: each for each in needed.pop(cheapest)}
        return tuple(chosen.values())

    def _on_nodes(self, at_s: int) -> dict[int, list[_MovableBox]]:
        found: dict[int, list[_MovableBox]] = {}
        for each in self._candidates:
            if each.frees_s <= at_s < each.box.end_s:
                for node in each.box.places:
                    found.setdefault(int(node), []).append(each)
        return found

    def _needed(self, node: int, there: list[_MovableBox], at_s: int) -> list[_MovableBox]:
        """The costliest boxes stay if possible."""
        if self._demand.gpus == 0:
            return there
        needed = []
        for each in sorted(there, key=lambda each: (-each.least_gpu_s, each.box.id)):
            self._restore_ends([each])
            if not self._board.has_room(_one(node), self._demand, at_s):
                self._end_early([each])
                needed.append(each)
        self._end_early([each for each in there if each not in needed])
        return needed

    def _try(self, chosen: _Chosen) -> _Solution | None:
        """Leaves the board unchanged."""
        board, placed = self._board, []
        self._end_early(chosen)
        for waiting, demand, since_s, before_s in self._wanted(chosen):
            found = board.earliest(demand, since_s, before_s)
            if found is None:
                break
            board.place_at(waiting, demand, found)
            placed.append(waiting)
        is_whole = len(placed) == len(chosen) + 1
        stuck = {each.box.id for each in chosen if not self._is_elsewhere(each)} if is_whole else set()
        made = _Solution(chosen, self._proposal(chosen)) if is_whole and not stuck else None
        self._stuck |= stuck
        for waiting in placed:
            board.remove_slot(waiting)
        self._restore_ends(chosen)
        return made

    def _is_elsewhere(self, each: _MovableBox) -> bool:
        return set(each.box.places.tolist()) != set(self._board.box(each.restart).places.tolist())

    def _wanted(self, chosen: _Chosen) -> Iterable[tuple[Waiting, Demand, int, int]]:
        yield self._waiting, self._demand, self._since_s, self._before_s
        for each in sorted(chosen, key=lambda each: each.restart.turn):
            yield each.restart, self._board.demand(each.restart.request), each.frees_s, NEVER_S

    def _proposal(self, chosen: _Chosen) -> Proposal:
        board, box = self._board, self._board.box(self._waiting)
        slot = board.slot_at(box.places, box.start_s)
        relocations = tuple(self._relocation(each) for each in sorted(chosen, key=lambda each: each.restart.turn))
        left = {node for relocation in relocations for node in relocation.from_nodes}
        return Proposal(
            id=box.id,
            relocations=relocations,
            slot=slot,
            freed=tuple(node for node in slot.nodes if node in left),
            instead_s=self._instead_s,
            cost_gpu_s=sum(relocation.lost_gpu_s + relocation.idle_gpu_s for relocation in relocations),
            value_gpu_s=board.gpus_of(box) * (self._instead_s - box.start_s),
        )

    def _relocation(self, each: _MovableBox) -> Relocation:
        board, policy = self._board, self._board.policy
        restarts_s, restart = board.start_s(each.restart), board.box(each.restart)
        idle_s = restarts_s + policy.entry_s - (each.frees_s - policy.exit_s)
        from_nodes, to_nodes = (board.slot_at(box.places, 0).nodes for box in (each.box, restart))
        return Relocation(each.box.id, from_nodes, to_nodes, each.frees_s, restarts_s, each.lost_gpu_s, board.gpus_of(each.box) * idle_s)

    def _end_early(self, moved: Iterable[_MovableBox]) -> None:
        for each in moved:
            self._board.set_end(each.box.id, each.frees_s)

    def _restore_ends(self, moved: Iterable[_MovableBox]) -> None:
        for each in moved:
            self._board.set_end(each.box.id, each.box.end_s)


def _least_gpu_s(chosen: Iterable[_MovableBox]) -> int:
    return sum(each.least_gpu_s for each in chosen)


def _one(node: int) -> Ints:
    return np.array([node], np.int64)
