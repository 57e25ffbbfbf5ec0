"""Making room on purpose: which running boxes to move so that whole nodes come free together, for one that waits or for a wanted booking.

A move is an eviction of a part-node box whose place for the rest of its time is known: on other nodes of its pool, beside everybody's
slots and below all limits. Who would only wait for the same nodes is not moved. Nothing is done here: these are proposals for an
administrator, with what they cost and what they are worth.

Cost: GPU-seconds that the moved boxes have run, all lost if they saved nothing, and the time in which their GPUs do not work for them,
from the end of the notice until their window is open again. Value: GPUs of the beneficiary times the seconds that it starts sooner than
it would otherwise: of one that waits the earlier of its expected start and of the first place beside all slots, of a booking the next time
that is free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations, islice
from typing import Final

import numpy as np

from planner.board.board import Board, Box
from planner.board.waiting import Waiting
from planner.capacity.placement import Kind, members_of
from planner.capacity.profile import NEVER_S, Ints
from planner.plan import Eviction, EvictionKind, Victim
from planner.promises.repair import board_of
from planner.snapshot import Request, Running, Slot, Snapshot

# Of those that wait the first so many that want large parts of nodes are looked at, until so many of them were searched for.
CONSIDERED_MOST: Final = 32
SEARCHED_MOST: Final = 8
# With so few boxes all sets of them are tried; else the cheapest nodes at so many moments.
EXACT_MOST: Final = 10
MOMENTS_MOST: Final = 6
# So often without those for whom there turned out to be no other place.
ROUNDS_MOST: Final = 3
# Nobody would agree to more.
MOVES_MOST: Final = 32


@dataclass(frozen=True, slots=True)
class Move:
    """A box that leaves its nodes, which are free at `frees_s`, and has a place on others from `restarts_s` on.

    `lost_gpu_s`: what it has run since it began. `idle_gpu_s`: between the end of its window and the opening of the next.
    """

    id: str
    from_nodes: tuple[str, ...]
    to_nodes: tuple[str, ...]
    frees_s: int
    restarts_s: int
    lost_gpu_s: int
    idle_gpu_s: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """Moves by which the request `id` stands in `slot` instead of starting at `instead_s`. `freed`: nodes of the slot that boxes leave."""

    id: str
    moves: tuple[Move, ...]
    slot: Slot
    freed: tuple[str, ...]
    instead_s: int
    cost_gpu_s: int
    value_gpu_s: int

    @property
    def start_s(self) -> int:
        return self.slot.start_s

    @property
    def eviction(self) -> Eviction:
        """What it takes from whom."""
        victims = tuple(Victim(move.id, EvictionKind.DEFRAGMENT, move.frees_s, move.lost_gpu_s) for move in self.moves)
        return Eviction(self.id, victims, self.start_s, self.instead_s)


@dataclass(frozen=True, slots=True)
class Room:
    """For a wanted booking. `fits`: at its time, as it is. `instead_s`: else the next time at which it would; None: at none."""

    fits: bool
    instead_s: int | None
    proposal: Proposal | None


def proposals(snapshot: Snapshot, *, only: str = "") -> tuple[Proposal, ...]:
    """For those that wait for whole nodes, or for half of a node and more, or `only` for this one: at most one each, least cost first.

    Each starts sooner by `policy.claim_gain_s` at least, and is worth its cost. Of all sets of moves it is the one whose value is the
    furthest above its cost, where there are few boxes to choose from; else the best of those that empty the cheapest nodes. Each
    stands for itself: with one of them done the others have to be asked for anew.
    Units, shapes and errors as for `plan`; requests without a slot have no proposal, and no slot moves but the beneficiary's.
    Cost: `plan` without newcomers; a first place for each of CONSIDERED_MOST requests; for each of SEARCHED_MOST, up to ROUNDS_MOST times,
    a change of each movable box, a look at each node for MOMENTS_MOST moments, and first places for each of at most MOVES_MOST moves, in
    turn without each.
    """
    board, _ = board_of(snapshot)
    expected = board.expected()
    mover = _Mover(board, snapshot.running)
    emptied = mover.emptied(snapshot)
    found: list[Proposal] = []
    searched_count = 0
    for waiting in list(islice(_large(board, only), CONSIDERED_MOST)):
        request, old = waiting.request, board.box(waiting)
        board.lift(waiting)
        instead_s = _instead_s(board, request, expected[request.id].start_s)
        before_s = instead_s - board.policy.claim_gain_s + 1
        if _could_start(emptied, request, before_s):
            searched_count += 1
            proposal = _Search(mover, waiting, board.soonest_s(request), before_s, instead_s).best()
            found += [proposal] if proposal is not None else []
        board.place(waiting, old.start_s, old.places)
        if searched_count == SEARCHED_MOST:
            break
    return tuple(sorted(found, key=lambda proposal: (proposal.cost_gpu_s, -proposal.value_gpu_s, proposal.id)))


def room_for(snapshot: Snapshot, booking: Request) -> Room:
    """Could it have its nodes at its time, `booking.earliest_start_s`, and by which moves? Nothing else needs to wait; cost as for one."""
    board, _ = board_of(snapshot)
    kind, at_s = board.kind(booking), booking.earliest_start_s
    if at_s >= board.now_s and board.earliest(kind, at_s, at_s + 1) is not None:
        return Room(fits=True, instead_s=None, proposal=None)
    later = board.earliest(kind, max(at_s + 1, board.now_s))
    if later is None or at_s < board.now_s:
        return Room(fits=False, instead_s=later[0] if later else None, proposal=None)
    search = _Search(_Mover(board, snapshot.running), board.enroll(booking), at_s, at_s + 1, later[0])
    return Room(fits=False, instead_s=later[0], proposal=search.best())


def agreed(snapshot: Snapshot, proposal: Proposal) -> Snapshot:
    """As it is with this proposal: its boxes end early, and its request is promised its slot."""
    frees_s = {move.id: move.frees_s for move in proposal.moves}
    running = tuple(replace(box, end_s=frees_s.get(box.id, box.end_s)) for box in snapshot.running)
    queue = tuple(_stands(request, proposal) if request.id == proposal.id else request for request in snapshot.queue)
    return replace(snapshot, running=running, queue=queue)


def _stands(request: Request, proposal: Proposal) -> Request:
    return replace(request, slot=proposal.slot, promise_s=proposal.start_s)


def _large(board: Board, only: str) -> Iterator[Waiting]:
    """In order of turn, those in whose way parts of nodes could be that have room elsewhere."""
    largest = {pool.id: max((node.gpu_count for node in pool.nodes), default=0) for pool in board.pools}
    for waiting in [board.queue[only]] if only in board.queue else [] if only else board.order:
        gpus = waiting.request.gpus_per_node
        if (
            board.has_slot(waiting)
            and waiting.risk is None
            and (gpus == 0 or 2 * gpus >= max((largest.get(id_, 0) for id_ in waiting.request.pools), default=0))
        ):
            yield waiting


def _instead_s(board: Board, request: Request, expected_s: int) -> int:
    """It has no slot on the board just now. When it starts if nothing is moved."""
    found = board.earliest(board.kind(request), board.soonest_s(request), expected_s)
    return expected_s if found is None else found[0]


def _could_start(emptied: Board, request: Request, before_s: int) -> bool:
    """If all boxes moved that may be for anybody: a quick look, before all sets of them are."""
    waiting, soonest_s = emptied.queue[request.id], emptied.soonest_s(request)
    old = emptied.box(waiting)
    emptied.lift(waiting)
    found = emptied.earliest(emptied.kind(request), soonest_s, before_s)
    emptied.place(waiting, old.start_s, old.places)
    return found is not None


@dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    """A box that could be moved. `least_gpu_s`: what that costs if it runs again at once. `again`: itself as it would wait."""

    box: Box
    frees_s: int
    lost_gpu_s: int
    least_gpu_s: int
    again: Waiting


_Chosen = tuple[_Candidate, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """A set of moves that does it."""

    chosen: _Chosen
    proposal: Proposal

    @property
    def rank(self) -> tuple[int, int, int, int, tuple[str, ...]]:
        """The least is best: the furthest above its cost, then the cheapest, the soonest, the fewest."""
        made = self.proposal
        ids = tuple(move.id for move in made.moves)
        return made.cost_gpu_s - made.value_gpu_s, made.cost_gpu_s, made.start_s, len(ids), ids


class _Mover:
    """All boxes of a board that could be moved for anybody."""

    def __init__(self, board: Board, running: Iterable[Running]) -> None:
        self.board = board
        made = (self._candidate(each) for each in sorted(running, key=lambda each: each.id))
        self._candidates = [candidate for candidate in made if candidate is not None]

    def emptied(self, snapshot: Snapshot) -> Board:
        """Another board, on which all of them end as early as they can."""
        frees_s = {each.box.id: each.frees_s for each in self._candidates}
        running = tuple(replace(each, end_s=frees_s.get(each.id, each.end_s)) for each in snapshot.running)
        return board_of(replace(snapshot, running=running))[0]

    def for_request(self, request: Request, before_s: int) -> list[_Candidate]:
        """Those that may be moved for it and can be gone by then."""
        pools = self.board.pools_of(request)
        return [
            each
            for each in self._candidates
            if self.board.pool_at(each.box.places) in pools
            and each.box.priority <= request.priority
            and not (request.slice and each.box.slice == request.slice)
            and each.frees_s < before_s
        ]

    def _candidate(self, running: Running) -> _Candidate | None:
        """None: it may not be moved, or nothing would be left of its time. One that has notice already ends no later than by another."""
        board, policy, box = self.board, self.board.policy, self.board.running[running.id]
        frees_s = max(board.now_s + policy.notice_s, box.began_s + policy.least_run_s) + policy.exit_s
        is_part = running.gpus_per_node > 0 and len(box.places) == len(running.nodes) > 0
        may = running.evictable and running.is_movable and running.is_open and running.id not in board.overdue
        if not (is_part and may and frees_s < box.end_s):
            return None
        gpus = board.gpus_of(box)
        lost_gpu_s = gpus * max(board.now_s - box.began_s, 0)
        least_gpu_s = lost_gpu_s + gpus * (policy.exit_s + policy.entry_s)
        return _Candidate(box, frees_s, lost_gpu_s, least_gpu_s, board.enroll(self._again(running, frees_s, box.end_s)))

    def _again(self, running: Running, frees_s: int, end_s: int) -> Request:
        """With the time that is left when its notice is over, and a way in and out as at first."""
        policy, whose = self.board.policy, (running.id, running.slice, running.project, running.priority)
        length_s = end_s - frees_s + policy.entry_s + policy.exit_s
        return Request(*whose, 0, len(running.nodes), running.gpus_per_node, length_s, (running.pool,), frees_s)


class _Search:
    """The best moves for one that is in the queue of the board, without a slot: it is to start in `[since_s, before_s)`."""

    def __init__(self, mover: _Mover, waiting: Waiting, since_s: int, before_s: int, instead_s: int) -> None:
        self._board, self._waiting = mover.board, waiting
        self._kind = mover.board.kind(waiting.request)
        self._since_s, self._before_s, self._instead_s = since_s, before_s, instead_s
        self._candidates = mover.for_request(waiting.request, before_s)
        self._stuck: set[str] = set()  # for whom no other place was found

    def best(self) -> Proposal | None:
        """None when none is worth its cost."""
        best = self._round()
        for _ in range(ROUNDS_MOST - 1):
            if best is not None or not self._stuck:
                break
            self._candidates = [each for each in self._candidates if each.box.id not in self._stuck]
            best = self._round()
        return best.proposal if best is not None and best.rank[0] <= 0 else None

    def _round(self) -> _Found | None:
        """Those that could be cheapest first, until no other can be better."""
        self._stuck.clear()
        first_s, sets = self._sets()
        value_most, best = self._gpus_most() * (self._instead_s - first_s), None
        for least_gpu_s, chosen in sorted(((_least_gpu_s(chosen), chosen) for chosen in sets), key=lambda pair: pair[0]):
            if least_gpu_s - value_most > (0 if best is None else best.rank[0]):
                break
            best = self._better(best, chosen)
        return best and self._spared(best)

    def _sets(self) -> tuple[int, list[_Chosen]]:
        """The soonest start of all, and which boxes to move: all sets of few, of many those on the cheapest nodes at some moments."""
        self._end(self._candidates)
        found = self._board.earliest(self._kind, self._since_s, self._before_s) if self._candidates else None
        first_s, sets = self._since_s if found is None else found[0], list[_Chosen]()
        if found is not None and len(self._candidates) > EXACT_MOST:
            tried = ((int(pool), at_s) for at_s in self._moments(first_s) for pool in self._kind.pools)
            sets = [chosen for pool, at_s in tried if 0 < len(chosen := self._emptying(pool, at_s)) <= MOVES_MOST]
        elif found is not None:
            sets = [chosen for count in range(len(self._candidates)) for chosen in combinations(self._candidates, count + 1)]
        self._end_not(self._candidates)
        return first_s, sets

    def _gpus_most(self) -> int:
        return max(self._board.gpus_by_shape(self._waiting.request).values(), default=0)

    def _better(self, best: _Found | None, chosen: _Chosen) -> _Found | None:
        found = self._try(chosen)
        return min((each for each in (best, found) if each is not None), key=lambda each: each.rank, default=None)

    def _spared(self, best: _Found) -> _Found:
        """Without those that need not be moved, the costliest first."""
        for each in sorted(best.chosen, key=lambda each: -each.least_gpu_s):
            fewer = tuple(other for other in best.chosen if other is not each)
            best = (self._better(best, fewer) if fewer else None) or best
        return best

    def _moments(self, first_s: int) -> list[int]:
        """The soonest start of all; then, spread, when boxes end, moved or by themselves."""
        boxes = [*self._board.running.values(), *(each.box for each in self._candidates)]
        ends_s = sorted({box.end_s for box in boxes if first_s < box.end_s < self._before_s})
        return [first_s, *ends_s[:: -(-len(ends_s) // (MOMENTS_MOST - 1)) or 1]]

    def _emptying(self, pool: int, at_s: int) -> _Chosen:
        """What has to be moved off the nodes of this pool that are cheapest to have room on at that time; none where there are too few.

        All candidates end early just now.
        """
        board, on_node = self._board, self._on_nodes(at_s)
        members = members_of(board.ground, pool)
        able = [int(node) for node in members if board.has_room(_one(node), self._kind, at_s)]
        needed = {node: self._needed(node, on_node.get(node, []), at_s) for node in able}
        chosen: dict[str, _Candidate] = {}
        for _ in range(self._kind.nodes):
            if not needed:
                return ()
            cheapest = min(needed, key=lambda node: (_least_gpu_s(each for each in needed[node] if each.box.id not in chosen), node))
            chosen |= {each.box.id: each for each in needed.pop(cheapest)}
        return tuple(chosen.values())

    def _on_nodes(self, at_s: int) -> dict[int, list[_Candidate]]:
        """Those in the way of a start at that time."""
        found: dict[int, list[_Candidate]] = {}
        for each in self._candidates:
            if each.frees_s <= at_s < each.box.end_s:
                for node in each.box.places:
                    found.setdefault(int(node), []).append(each)
        return found

    def _needed(self, node: int, there: list[_Candidate], at_s: int) -> list[_Candidate]:
        """Of those on the node the ones without which it has no room; the costliest stay if they can."""
        if self._kind.gpus == 0:
            return there
        needed = []
        for each in sorted(there, key=lambda each: (-each.least_gpu_s, each.box.id)):
            self._end_not([each])
            if not self._board.has_room(_one(node), self._kind, at_s):
                self._end([each])
                needed.append(each)
        self._end([each for each in there if each not in needed])
        return needed

    def _try(self, chosen: _Chosen) -> _Found | None:
        """The proposal to move just these; the board is as it was then. None: it does not start by it, or one has no other place."""
        board, placed = self._board, []
        self._end(chosen)
        for waiting, kind, since_s, before_s in self._wanted(chosen):
            found = board.earliest(kind, since_s, before_s)
            if found is None:
                break
            board.place_at(waiting, kind, found)
            placed.append(waiting)
        is_whole = len(placed) == len(chosen) + 1
        stuck = {each.box.id for each in chosen if not self._is_elsewhere(each)} if is_whole else set()
        made = _Found(chosen, self._proposal(chosen)) if is_whole and not stuck else None
        self._stuck |= stuck
        for waiting in placed:
            board.lift(waiting)
        self._end_not(chosen)
        return made

    def _is_elsewhere(self, each: _Candidate) -> bool:
        return set(each.box.places.tolist()) != set(self._board.box(each.again).places.tolist())

    def _wanted(self, chosen: _Chosen) -> Iterable[tuple[Waiting, Kind, int, int]]:
        """The beneficiary first, then in order of turn."""
        yield self._waiting, self._kind, self._since_s, self._before_s
        for each in sorted(chosen, key=lambda each: each.again.turn):
            yield each.again, self._board.kind(each.again.request), each.frees_s, NEVER_S

    def _proposal(self, chosen: _Chosen) -> Proposal:
        """All stand in their places."""
        board, box = self._board, self._board.box(self._waiting)
        slot = board.slot_at(box.places, box.start_s)
        moves = tuple(self._move(each) for each in sorted(chosen, key=lambda each: each.again.turn))
        left = {node for move in moves for node in move.from_nodes}
        return Proposal(
            id=box.id,
            moves=moves,
            slot=slot,
            freed=tuple(node for node in slot.nodes if node in left),
            instead_s=self._instead_s,
            cost_gpu_s=sum(move.lost_gpu_s + move.idle_gpu_s for move in moves),
            value_gpu_s=board.gpus_of(box) * (self._instead_s - box.start_s),
        )

    def _move(self, each: _Candidate) -> Move:
        board, policy = self._board, self._board.policy
        restarts_s, again = board.start_s(each.again), board.box(each.again)
        idle_s = restarts_s + policy.entry_s - (each.frees_s - policy.exit_s)
        from_nodes, to_nodes = (board.slot_at(box.places, 0).nodes for box in (each.box, again))
        return Move(each.box.id, from_nodes, to_nodes, each.frees_s, restarts_s, each.lost_gpu_s, board.gpus_of(each.box) * idle_s)

    def _end(self, moved: Iterable[_Candidate]) -> None:
        for each in moved:
            self._board.set_end(each.box.id, each.frees_s)

    def _end_not(self, moved: Iterable[_Candidate]) -> None:
        for each in moved:
            self._board.set_end(each.box.id, each.box.end_s)


def _least_gpu_s(chosen: Iterable[_Candidate]) -> int:
    return sum(each.least_gpu_s for each in chosen)


def _one(node: int) -> Ints:
    return np.array([node], np.int64)
