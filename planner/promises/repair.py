"""Restores the stored slots on the board and repairs those that no longer hold, moving as few as possible.

- Silence (a cluster is not heard): its slots are kept at risk (silence.py).
- Delay (no plan for a while, an overdue box): slots are delayed on their own nodes, by no more than the delay.
- Loss (a node is gone or closed, a box was extended): broken slots move to the latest place that keeps the promise, else to the earliest
  place. After a node failure one other slot may give way; then later slots shift (failure_shift.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice

from planner.board.board import Board
from planner.board.demands import LEVELS
from planner.board.waiting import Turn, Waiting, by_promise
from planner.capacity.placement import OF_SLICE, in_one_domain
from planner.capacity.profile import FOREVER_S, NONE, Ints
from planner.causes import Cause
from planner.promises.failure_shift import shift_later_slots
from planner.promises.silence import hold_late_slots, hold_slots, risk_of, silence_cause_of, was_at_risk
from planner.snapshot import PolicyName, Request, Slot, Snapshot, Window, Within

# Limits the time of a tick when many nodes fail at once, in all and per request.
EXCHANGES_MOST, EXCHANGES_EACH = 2000, 500


def board_of(snapshot: Snapshot) -> tuple[Board, list[Waiting]]:
    """Return the board with stored slots, and the requests without a slot. An edited request is restored in its old form."""
    board = Board(snapshot.pools, now_s=snapshot.now_s, policy=snapshot.policy, quotas=snapshot.quotas)
    board.add_all_running(snapshot.running)
    edited = snapshot.edited
    queue = [edited if edited is not None and request.id == edited.id else request for request in snapshot.queue]
    return board, _restore(board, queue)


def _restore(board: Board, queue: Sequence[Request]) -> list[Waiting]:
    """Return the requests without a stored slot. Running boxes must be on the board already."""
    without_slot: list[Waiting] = []
    at_risk: list[Waiting] = []
    kept: list[_Stored] = []
    lost: list[_Stored] = []
    for waiting in board.enqueue_all(queue):
        request, slot = waiting.request, waiting.request.slot
        if slot is None:
            waiting.displaced = cause_of_lost_slot(waiting)
            without_slot.append(waiting)
            continue
        if waiting.promise_s is None:
            waiting.promise_s = slot.start_s
        waiting.displaced = slot_problem(board, request, slot)
        waiting.risk = risk_of(board, request, slot) if waiting.displaced is None else None
        if waiting.risk is not None:
            at_risk.append(waiting)
        else:
            (lost if waiting.displaced else kept).append(_Stored(waiting, slot))
    hold_slots(board, at_risk)
    lost += _place_stored(board, kept, at_risk)
    board.keep_as_stored()
    hold_late_slots(board, at_risk)
    replace_lost_slots(board, [stored.waiting for stored in lost])
    return without_slot


def replace_lost_slots(board: Board, lost: Sequence[Waiting]) -> None:
    left = EXCHANGES_MOST
    for _, alike in groupby(sorted(lost, key=by_promise), key=lambda waiting: waiting.request.priority):
        late = [waiting for waiting in alike if not _place_in_time(board, waiting)]
        for waiting in late:
            place_again(board, waiting)
            if waiting.promise_s is not None and _is_broken_by_failure(board, waiting, waiting.promise_s):
                left -= _exchange_with_one(board, waiting, waiting.promise_s, most=min(left, EXCHANGES_EACH))
    _shift_each_pool(board, lost)


def _shift_each_pool(board: Board, lost: Sequence[Waiting]) -> None:
    by_pool: dict[int | None, list[Waiting]] = defaultdict(list)
    for waiting in lost:
        slot, displaced = waiting.request.slot, waiting.displaced
        if slot is not None and displaced is not None and displaced[0] == Cause.NODE_FAILURE and board.has_slot(waiting):
            by_pool[board.pool_numbers.get(slot.pool)].append(waiting)
    for pool, alike in by_pool.items():
        broken = [each for each in alike if each.promise_s is not None and _is_broken_by_failure(board, each, each.promise_s)]
        if broken and pool is not None:
            shift_later_slots(board, alike, broken, pool)


def place_again(board: Board, waiting: Waiting) -> None:
    """Move no other slot. A request whose predecessor has no place gets none."""
    since_s = board.soonest_s(waiting.request)
    if since_s >= FOREVER_S or _place_in_time(board, waiting):
        return
    demand = board.demand(waiting.request)
    found = board.earliest(demand, since_s)
    if found is not None:
        board.place_at(waiting, demand, found)


def _place_in_time(board: Board, waiting: Waiting) -> bool:
    """Use the latest place that keeps the promise."""
    if board.policy.name != PolicyName.GUARDED or waiting.promise_s is None:
        return False
    demand = board.demand(waiting.request)
    found = board.latest(demand, board.soonest_s(waiting.request), waiting.promise_s)
    if found is not None:
        board.place_at(waiting, demand, found)
    return found is not None


def _is_broken_by_failure(board: Board, waiting: Waiting, promise_s: int) -> bool:
    if board.policy.name != PolicyName.GUARDED or not board.has_slot(waiting) or waiting.displaced is None:
        return False
    return waiting.displaced[0] == Cause.NODE_FAILURE and board.start_s(waiting) > promise_s + board.policy.promise_tolerance_s


def _exchange_with_one(board: Board, waiting: Waiting, promise_s: int, *, most: int) -> int:
    """Try to keep a promise by moving one other slot to an equally early place. Return the number of tries."""
    old = board.box(waiting)
    board.remove_slot(waiting)
    count = 0
    for count, other in enumerate(islice(_may_give_way(board, waiting, promise_s), most), start=1):
        if _exchange(board, waiting, other):
            return count
    board.place(waiting, old.start_s, old.places)
    return count


def _may_give_way(board: Board, waiting: Waiting, promise_s: int) -> Iterator[Waiting]:
    """Yield slots in reverse turn, except those with a booked time, several nodes, ordered nodes or evicted nodes."""
    pools, priority = set(board.pools_of(waiting.request)), waiting.request.priority
    since_s, until_s = board.soonest_s(waiting.request), promise_s + waiting.request.length_s
    for other in reversed(board.order):
        request = other.request
        if request.priority > priority:
            return
        if (
            request.is_fixed
            or request.node_count > 1
            or not board.has_slot(other)
            or board.may_cause_evictions(request)
            or other.risk is not None
        ):
            continue
        pool, start_s = board.pool_of_slot(other), board.start_s(other)
        if pool in pools and board.pools[pool].supply is None and start_s < until_s and start_s + request.length_s > since_s:
            yield other


def _exchange(board: Board, waiting: Waiting, other: Waiting) -> bool:
    old, pool = board.box(other), board.pool_of_slot(other)
    board.remove_slot(other)
    if _place_in_time(board, waiting):
        demand = board.demand(other.request, [pool])
        refuge = board.latest(demand, board.soonest_s(other.request), old.start_s)
        if refuge is not None:
            board.place_at(other, demand, refuge)
            return True
        board.remove_slot(waiting)
    board.place(other, old.start_s, old.places)
    return False


@dataclass(frozen=True, slots=True)
class _Stored:
    waiting: Waiting
    slot: Slot

    @property
    def by_start(self) -> tuple[int, int, int, Turn]:
        return self.slot.start_s, *by_promise(self.waiting)


def slot_problem(board: Board, request: Request, slot: Slot) -> tuple[Cause, str] | None:
    """Other slots do not matter here."""
    changed = (Cause.CHANGED, request.id)
    if not slot.nodes:
        return Cause.FAULT, ""  # the stored slot could not be read
    if not 0 < len(slot.nodes) == len(set(slot.nodes)) == request.node_count or slot.start_s > FOREVER_S:
        return changed
    # A pool whose last node is gone is gone from the request's pools as well.
    pool = board.pool_numbers.get(slot.pool)
    if slot.pool not in request.pools and pool is not None:
        return Cause.ACCESS, ""
    for node_id in slot.nodes:
        node = board.node_numbers.get(node_id)
        if node is None or pool is None or board.capacity.pool_of.item(node) != pool:
            return _cause_of_loss(board, pool), node_id
        room = board.capacity.gpu_counts.item(node)
        if not 0 < (request.gpus_per_node or room) <= room:
            return Cause.NODE_FAILURE, node_id  # some of its GPUs are gone
    if request.within != Within.ANY and not in_one_domain(board.capacity, board.places(slot.nodes), LEVELS[request.within]):
        return Cause.TOPOLOGY, ""
    return changed if slot.start_s < request.earliest_start_s else None


def cause_of_lost_slot(waiting: Waiting) -> tuple[Cause, str] | None:
    """Return the stored cause; None without a promise."""
    request = waiting.request
    if waiting.promise_s is None:
        return None
    return (Cause.CHANGED, request.id) if request.lost is None else (Cause(request.lost[0]), request.lost[1])


def _cause_of_loss(board: Board, pool: int | None) -> Cause:
    return Cause.NODE_FAILURE if pool is None or board.pools[pool].supply is None else Cause.SUPPLY


def _place_stored(board: Board, kept: list[_Stored], at_risk: Sequence[Waiting]) -> list[_Stored]:
    """Return the slots that fit nowhere on their nodes."""
    late_s = max((board.now_s - stored.slot.start_s for stored in kept), default=0)
    # The longest time without a plan or a contact, plus the grace period of overdue boxes and late nodes.
    delay_s = late_s + (board.policy.overrun_grace_s if board.overdue or _is_any_late(board) else 0)
    in_order = sorted(kept, key=lambda stored: stored.by_start)
    for stored in in_order:
        if stored.slot.start_s < board.now_s:
            stored.waiting.displaced = was_at_risk(stored.waiting.request) or (Cause.LATE_TICK, stored.waiting.request.id)
    waitings = [stored.waiting for stored in in_order]
    blockers = _Blockers(board, waitings, at_risk)
    stopped = board.restore_slots(waitings, [stored.slot for stored in in_order])
    return [in_order[i] for i in stopped if not _delay(board, waitings[i], delay_s, blockers.cause(i))]


def _is_any_late(board: Board) -> bool:
    return any(window.is_late for windows in board.closed.values() for window in windows)


def _delay(board: Board, waiting: Waiting, delay_s: int, cause: tuple[Cause, str]) -> bool:
    waiting.displaced = cause
    places, start_s = board.nodes_of(waiting), board.start_s(waiting)
    found_s = board.earliest_on(places, board.demand(waiting.request), start_s, start_s + delay_s) if delay_s > 0 else None
    if found_s is not None:
        board.place(waiting, found_s, places)
    return found_s is not None


OVERDUE = 0


def _cause_of_closure(window: Window, node_id: str) -> tuple[Cause, str]:
    if window.order:
        return Cause.SUPPLY, window.order
    return (Cause.MAINTENANCE, window.maintenance) if window.maintenance else (Cause.NODE_FAILURE, node_id)


@dataclass(frozen=True, slots=True)
class _Occupancy:
    id: str
    slice: str
    ceilings: tuple[tuple[str, str], ...]
    places: Ints
    start_s: int
    end_s: int

    @classmethod
    def of(cls, board: Board, waiting: Waiting) -> _Occupancy:
        request, places, start_s = waiting.request, board.nodes_of(waiting), board.start_s(waiting)
        ceilings = board.ceilings_over(request.project, request.slice, places)
        return cls(request.id, request.slice, ceilings, places, start_s, start_s + request.length_s)

    @property
    def keys(self) -> list[object]:
        return [*(int(node) for node in self.places), *([self.slice] if self.slice else []), *self.ceilings]


@dataclass(frozen=True, slots=True)
class _Blocker:
    occupancy: _Occupancy
    weight: int  # the lowest is blamed first: overdue, displaced, running, other
    cause: tuple[Cause, str]

    @property
    def blame(self) -> tuple[int, int, str]:
        return self.weight, -self.occupancy.end_s, self.occupancy.id


class _Blockers:
    """Finds what displaced a slot. The index is built on first use, because most plans need none."""

    def __init__(self, board: Board, waitings: Sequence[Waiting], at_risk: Sequence[Waiting]) -> None:
        """`waitings` are in placement order; call `cause` in that order."""
        self._board = board
        self._waitings = waitings
        self._at_risk = at_risk
        self._blockers: dict[object, list[_Blocker]] = {}
        self._count = 0  # how many of the waitings are in the index

    def cause(self, i: int) -> tuple[Cause, str]:
        if not self._blockers:
            self._blockers = self._running()
            for held in self._at_risk:
                self._enter(held)
        for before in self._waitings[self._count : i]:
            if self._board.has_slot(before):
                self._enter(before)
        self._count = i
        return self._cause(self._waitings[i])

    def _cause(self, waiting: Waiting) -> tuple[Cause, str]:
        occupancy = _Occupancy.of(self._board, waiting)
        near = [blocker for key in occupancy.keys for blocker in self._blockers[key]]
        in_way = [
            blocker for blocker in near if blocker.occupancy.start_s < occupancy.end_s and blocker.occupancy.end_s > occupancy.start_s
        ]
        worst = min(in_way, key=lambda blocker: blocker.blame, default=None)
        closures = list(self._closures(occupancy))
        risk = was_at_risk(waiting.request)
        if risk is not None and not closures:
            return risk  # a silent cluster could not report that the box has ended
        # An overdue box holds its node even if that is closed.
        if worst is not None and worst.weight == OVERDUE:
            return worst.cause
        if closures:
            return _cause_of_closure(*closures[0])
        if occupancy.ceilings and self._fits_but_for_ceilings(waiting, occupancy):
            below = [blocker for blocker in in_way if not set(blocker.occupancy.ceilings).isdisjoint(occupancy.ceilings)]
            return Cause.QUOTA, min(below, key=lambda blocker: blocker.blame).occupancy.id if below else ""
        return worst.cause if worst is not None else (Cause.CHANGED, occupancy.id)

    def _closures(self, occupancy: _Occupancy) -> Iterator[tuple[Window, str]]:
        for node in occupancy.places:
            node_id = self._board.node_ids[node]
            yield from ((w, node_id) for w in self._board.closed[node_id] if w.start_s < occupancy.end_s and w.end_s > occupancy.start_s)

    def _fits_but_for_ceilings(self, waiting: Waiting, occupancy: _Occupancy) -> bool:
        demand = self._board.demand(waiting.request)
        limits = demand.limits.copy()
        limits[:, OF_SLICE + 1 :] = NONE
        return self._board.has_room(occupancy.places, demand._replace(limits=limits), occupancy.start_s)

    def _running(self) -> dict[object, list[_Blocker]]:
        blockers: dict[object, list[_Blocker]] = defaultdict(list)
        for box in self._board.running.values():
            is_overdue = box.id in self._board.overdue
            cause = silence_cause_of(self._board, box) or Cause.OVERRUN
            ceilings = self._board.ceilings_over(box.project, box.slice, box.places)
            occupancy = _Occupancy(box.id, box.slice, ceilings, box.places, box.start_s, box.end_s)
            for key in occupancy.keys:
                blockers[key].append(_Blocker(occupancy, OVERDUE if is_overdue else 2, (cause, box.id)))
        return blockers

    def _enter(self, waiting: Waiting) -> None:
        occupancy = _Occupancy.of(self._board, waiting)
        why = waiting.displaced or waiting.risk
        weight, cause = (1, why) if why is not None else (3, (Cause.CHANGED, waiting.request.id))
        for key in occupancy.keys:
            self._blockers[key].append(_Blocker(occupancy, weight, cause))
