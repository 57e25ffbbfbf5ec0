"""Put the stored slots back on the board, and mend what no longer holds.

Three kinds of harm, three cures, so that as little as possible moves:
- A silence (a cluster is not heard): its slots are at risk, and stay as they are until it is heard. See silence.py.
- A delay (nobody planned for a while, a box is overdue): who cannot start in time is shoved back on its own nodes, by no more than
  the delay, and so are those behind it. Otherwise a second's delay would send a request behind all others of its nodes.
- A loss (a node is gone or closed, a running box was extended): only the broken slots move, best promise first: to the latest place that
  keeps the promise, else to the earliest place there is. Where a node failed one other may give way, and where that is not enough those
  whose slots come later in its pool (shift.py).
What its owner has just changed is put back as it was; then it changes its place (edits.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice

from planner.board.board import Board
from planner.board.kinds import LEVELS
from planner.board.waiting import Turn, Waiting, by_promise
from planner.capacity.placement import OF_SLICE, is_near
from planner.capacity.profile import FOREVER_S, NONE, Ints
from planner.plan import Cause
from planner.promises.failure_shift import shift
from planner.promises.silence import hold, hold_late, risk_of, unheard_box, was_at_risk
from planner.snapshot import PolicyName, Request, Slot, Snapshot, Window, Within

# A failure of many nodes at once breaks many promises: no tick may hang on it, and none take all tries from the others.
EXCHANGES_MOST, EXCHANGES_EACH = 2000, 500


def board_of(snapshot: Snapshot) -> tuple[Board, list[Waiting]]:
    """All that is known on a board, as it is planned on; and those that have no slot yet. What was edited is there as it was."""
    board = Board(snapshot.pools, now_s=snapshot.now_s, policy=snapshot.policy, quotas=snapshot.quotas)
    board.hold_all(snapshot.running)
    edited = snapshot.edited
    queue = [edited if edited is not None and request.id == edited.id else request for request in snapshot.queue]
    return board, _restore(board, queue)


def _restore(board: Board, queue: Sequence[Request]) -> list[Waiting]:
    """Enroll all, and place those that have a stored slot, there if it is possible. Running boxes must be on the board already.

    Answers those that have no slot yet. Source: `force` in the policy's design, with a shove for delays. O(n log n) while nothing is
    broken.
    """
    loose: list[Waiting] = []
    at_risk: list[Waiting] = []
    standing: list[_Stored] = []
    lost: list[_Stored] = []
    for waiting in board.enroll_all(queue):
        request, slot = waiting.request, waiting.request.slot
        if slot is None:
            waiting.displaced = _cause_of_old(request) if waiting.promise_s is not None else None
            loose.append(waiting)
            continue
        if waiting.promise_s is None:
            waiting.promise_s = slot.start_s
        waiting.displaced = misfit(board, request, slot)
        waiting.risk = risk_of(board, request, slot) if waiting.displaced is None else None
        if waiting.risk is not None:
            at_risk.append(waiting)
        else:
            (lost if waiting.displaced else standing).append(_Stored(waiting, slot))
    hold(board, at_risk)
    lost += _stand(board, standing, at_risk)
    hold_late(board, at_risk)
    mend(board, [stored.waiting for stored in lost])
    return loose


def mend(board: Board, lost: Sequence[Waiting]) -> None:
    """Requests that were promised and have lost their slots get others, the best promise first; of a priority those that can be in time."""
    left = EXCHANGES_MOST
    for _, alike in groupby(sorted(lost, key=by_promise), key=lambda waiting: waiting.request.priority):
        late = [waiting for waiting in alike if not _place_in_time(board, waiting)]
        for waiting in late:
            place_anew(board, waiting)
            if waiting.promise_s is not None and _is_broken_by_failure(board, waiting, waiting.promise_s):
                left -= _exchange_one(board, waiting, waiting.promise_s, most=min(left, EXCHANGES_EACH))
    _shift_each_pool(board, lost)


def _shift_each_pool(board: Board, lost: Sequence[Waiting]) -> None:
    """Where nodes failed, and promises are still broken by that."""
    by_pool: dict[int | None, list[Waiting]] = defaultdict(list)
    for waiting in lost:
        slot, displaced = waiting.request.slot, waiting.displaced
        if slot is not None and displaced is not None and displaced[0] == Cause.NODE_FAILURE and board.has_slot(waiting):
            by_pool[board.pool_numbers.get(slot.pool)].append(waiting)
    for pool, alike in by_pool.items():
        broken = [each for each in alike if each.promise_s is not None and _is_broken_by_failure(board, each, each.promise_s)]
        if broken and pool is not None:
            shift(board, alike, broken, pool)


def place_anew(board: Board, waiting: Waiting) -> None:
    """A request that was promised, and has lost its slot: nobody else moves."""
    if _place_in_time(board, waiting):
        return
    kind = board.kind(waiting.request)
    found = board.earliest(kind, board.soonest_s(waiting.request))
    if found is not None:
        board.place_at(waiting, kind, found)


def _place_in_time(board: Board, waiting: Waiting) -> bool:
    """At the latest place that keeps its promise, if there is any."""
    if board.policy.name != PolicyName.GUARDED or waiting.promise_s is None:
        return False
    kind = board.kind(waiting.request)
    found = board.latest(kind, board.soonest_s(waiting.request), waiting.promise_s)
    if found is not None:
        board.place_at(waiting, kind, found)
    return found is not None


def _is_broken_by_failure(board: Board, waiting: Waiting, promise_s: int) -> bool:
    """Is its slot too late, because a node failed? For what somebody asked for nobody gives way."""
    if board.policy.name != PolicyName.GUARDED or not board.has_slot(waiting) or waiting.displaced is None:
        return False
    return waiting.displaced[0] == Cause.NODE_FAILURE and board.start_s(waiting) > promise_s + board.policy.promise_tolerance_s


def _exchange_one(board: Board, waiting: Waiting, promise_s: int, *, most: int) -> int:
    """Keep its promise by moving one other slot to a place in its pool that is as early, if that can be. Answers how many were tried."""
    old = board.box(waiting)
    board.lift(waiting)
    count = 0
    for count, other in enumerate(islice(_may_give_way(board, waiting, promise_s), most), start=1):
        if _exchange(board, waiting, other):
            return count
    board.place(waiting, old.start_s, old.places)
    return count


def _may_give_way(board: Board, waiting: Waiting, promise_s: int) -> Iterator[Waiting]:
    """Last in turn first, as it may lose a chance to start before its slot. Of no higher priority, and nobody who loses what it was given:
    a time of its own, nodes side by side or ordered for it, or those on which others end for it.
    """
    pools, priority = set(board.pools_of(waiting.request)), waiting.request.priority
    since_s, until_s = board.soonest_s(waiting.request), promise_s + waiting.request.length_s
    for other in reversed(board.order):
        request = other.request
        if request.priority > priority:
            return
        if request.is_fixed or request.node_count > 1 or not board.has_slot(other) or board.may_claim(request) or other.risk is not None:
            continue
        pool, start_s = board.pool_of_slot(other), board.start_s(other)
        if pool in pools and board.pools[pool].supply is None and start_s < until_s and start_s + request.length_s > since_s:
            yield other


def _exchange(board: Board, waiting: Waiting, other: Waiting) -> bool:
    """False leaves all as it was."""
    old, pool = board.box(other), board.pool_of_slot(other)
    board.lift(other)
    if _place_in_time(board, waiting):
        kind = board.kind(other.request, [pool])
        refuge = board.latest(kind, board.soonest_s(other.request), old.start_s)
        if refuge is not None:
            board.place_at(other, kind, refuge)
            return True
        board.lift(waiting)
    board.place(other, old.start_s, old.places)
    return False


@dataclass(frozen=True, slots=True)
class _Stored:
    waiting: Waiting
    slot: Slot

    @property
    def by_start(self) -> tuple[int, int, int, Turn]:
        return self.slot.start_s, *by_promise(self.waiting)


def misfit(board: Board, request: Request, slot: Slot) -> tuple[Cause, str] | None:
    """Why the slot is no place for the request, whoever else is there."""
    changed = (Cause.CHANGED, request.id)
    if not slot.nodes:
        return Cause.FAULT, ""  # what was stored of it could not be read
    if not 0 < len(slot.nodes) == len(set(slot.nodes)) == request.node_count or slot.start_s > FOREVER_S:
        return changed
    # A pool whose last node is gone is gone from the request's pools as well.
    pool = board.pool_numbers.get(slot.pool)
    if slot.pool not in request.pools and pool is not None:
        return Cause.ACCESS, ""
    for node_id in slot.nodes:
        node = board.node_numbers.get(node_id)
        if node is None or pool is None or board.ground.pool_of.item(node) != pool:
            return _cause_of_loss(board, pool), node_id
        room = board.ground.rooms.item(node)
        if not 0 < (request.gpus_per_node or room) <= room:
            return Cause.NODE_FAILURE, node_id  # some of its GPUs are gone
    if request.within != Within.ANY and not is_near(board.ground, board.places(slot.nodes), LEVELS[request.within]):
        return Cause.TOPOLOGY, ""
    return changed if slot.start_s < request.earliest_start_s else None


def _cause_of_old(request: Request) -> tuple[Cause, str]:
    """Of a slot that was lost some time ago, and there was no other."""
    if request.lost is None:
        return Cause.CHANGED, request.id
    return Cause(request.lost[0]), request.lost[1]


def _cause_of_loss(board: Board, pool: int | None) -> Cause:
    """Of a node that is not there: it failed, or it was ordered and will not come."""
    return Cause.NODE_FAILURE if pool is None or board.pools[pool].supply is None else Cause.SUPPLY


def _stand(board: Board, standing: list[_Stored], at_risk: Sequence[Waiting]) -> list[_Stored]:
    """Place these where they were stored, or shove them back; answers those that are lost."""
    late_s = max((board.now_s - stored.slot.start_s for stored in standing), default=0)
    # So long nobody planned, or was heard, and then there is the grace of what is late itself.
    shove_s = late_s + (board.policy.overrun_grace_s if board.overdue or _is_any_late(board) else 0)
    in_order = sorted(standing, key=lambda stored: stored.by_start)
    for stored in in_order:
        if stored.slot.start_s < board.now_s:
            stored.waiting.displaced = was_at_risk(stored.waiting.request) or (Cause.LATE_TICK, stored.waiting.request.id)
    waitings = [stored.waiting for stored in in_order]
    obstacles = _Obstacles(board, waitings, at_risk)
    stopped = board.stand(waitings, [stored.slot for stored in in_order])
    return [in_order[i] for i in stopped if not _shove(board, waitings[i], shove_s, obstacles.cause(i))]


def _is_any_late(board: Board) -> bool:
    """Was a node to have come by now?"""
    return any(window.is_late for windows in board.closed.values() for window in windows)


def _shove(board: Board, waiting: Waiting, shove_s: int, cause: tuple[Cause, str]) -> bool:
    """By no more than this; False when there is no place."""
    waiting.displaced = cause
    places, start_s = board.nodes_of(waiting), board.start_s(waiting)
    found_s = board.earliest_there(places, board.kind(waiting.request), start_s, start_s + shove_s) if shove_s > 0 else None
    if found_s is not None:
        board.place(waiting, found_s, places)
    return found_s is not None


OVERDUE = 0


def _cause_of_closure(window: Window, node_id: str) -> tuple[Cause, str]:
    if window.order:
        return Cause.SUPPLY, window.order
    return (Cause.MAINTENANCE, window.maintenance) if window.maintenance else (Cause.NODE_FAILURE, node_id)


@dataclass(frozen=True, slots=True)
class _Stay:
    """A box on nodes, in its slice and below ceilings over time."""

    id: str
    slice: str
    ceilings: tuple[tuple[str, str], ...]
    places: Ints
    start_s: int
    end_s: int

    @classmethod
    def of(cls, board: Board, waiting: Waiting) -> _Stay:
        """In its slot, or where that was to be."""
        request, places, start_s = waiting.request, board.nodes_of(waiting), board.start_s(waiting)
        ceilings = board.ceilings_over(request.project, request.slice, places)
        return cls(request.id, request.slice, ceilings, places, start_s, start_s + request.length_s)

    @property
    def keys(self) -> list[object]:
        """Where it can be in the way."""
        return [*(int(node) for node in self.places), *([self.slice] if self.slice else []), *self.ceilings]


@dataclass(frozen=True, slots=True)
class _Rival:
    """A box on the board. `weight` ranks whom to blame: overdue, displaced, running, any other."""

    stay: _Stay
    weight: int
    cause: tuple[Cause, str]

    @property
    def blame(self) -> tuple[int, int, str]:
        return self.weight, -self.stay.end_s, self.stay.id


class _Obstacles:
    """Who stands in the way of a slot, to be named as the cause. The index is made when first asked for: mostly nobody does."""

    def __init__(self, board: Board, waitings: Sequence[Waiting], at_risk: Sequence[Waiting]) -> None:
        """`waitings`: in the order in which they are placed; ask of them in this order. `at_risk`: those that have their places already."""
        self._board = board
        self._waitings = waitings
        self._at_risk = at_risk
        self._rivals: dict[object, list[_Rival]] = {}
        self._count = 0  # of these have been entered, if they have a place

    def cause(self, i: int) -> tuple[Cause, str]:
        """Who is in the way of the one at this place of the order: of those before it, and the boxes that run."""
        if not self._rivals:
            self._rivals = self._running()
            for held in self._at_risk:
                self._enter(held)
        for before in self._waitings[self._count : i]:
            if self._board.has_slot(before):
                self._enter(before)
        self._count = i
        return self._cause(self._waitings[i])

    def _cause(self, waiting: Waiting) -> tuple[Cause, str]:
        stay = _Stay.of(self._board, waiting)
        near = [rival for key in stay.keys for rival in self._rivals[key]]
        in_way = [rival for rival in near if rival.stay.start_s < stay.end_s and rival.stay.end_s > stay.start_s]
        worst = min(in_way, key=lambda rival: rival.blame, default=None)
        closures = list(self._closures(stay))
        risk = was_at_risk(waiting.request)
        if risk is not None and not closures:
            return risk  # nor could it be heard that the box there has ended
        # A box that is overdue holds the node, open or closed.
        if worst is not None and worst.weight == OVERDUE:
            return worst.cause
        if closures:
            return _cause_of_closure(*closures[0])
        if stay.ceilings and self._fits_but_for_ceilings(waiting, stay):
            below = [rival for rival in in_way if not set(rival.stay.ceilings).isdisjoint(stay.ceilings)]
            return Cause.QUOTA, min(below, key=lambda rival: rival.blame).stay.id if below else ""
        return worst.cause if worst is not None else (Cause.CHANGED, stay.id)

    def _closures(self, stay: _Stay) -> Iterator[tuple[Window, str]]:
        for node in stay.places:
            node_id = self._board.node_ids[node]
            yield from ((w, node_id) for w in self._board.closed[node_id] if w.start_s < stay.end_s and w.end_s > stay.start_s)

    def _fits_but_for_ceilings(self, waiting: Waiting, stay: _Stay) -> bool:
        """Is there room on its nodes and in its slice?"""
        kind = self._board.kind(waiting.request)
        limits = kind.limits.copy()
        limits[:, OF_SLICE + 1 :] = NONE
        return self._board.has_room(stay.places, kind._replace(limits=limits), stay.start_s)

    def _running(self) -> dict[object, list[_Rival]]:
        rivals: dict[object, list[_Rival]] = defaultdict(list)
        for box in self._board.running.values():
            is_overdue = box.id in self._board.overdue
            cause = unheard_box(self._board, box) or Cause.OVERRUN
            ceilings = self._board.ceilings_over(box.project, box.slice, box.places)
            stay = _Stay(box.id, box.slice, ceilings, box.places, box.start_s, box.end_s)
            for key in stay.keys:
                rivals[key].append(_Rival(stay, OVERDUE if is_overdue else 2, (cause, box.id)))
        return rivals

    def _enter(self, waiting: Waiting) -> None:
        stay = _Stay.of(self._board, waiting)
        why = waiting.displaced or waiting.risk
        weight, cause = (1, why) if why is not None else (3, (Cause.CHANGED, waiting.request.id))
        for key in stay.keys:
            self._rivals[key].append(_Rival(stay, weight, cause))
