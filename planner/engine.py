"""Plans the queue by guarded shortest-first, or by conservative backfill, with stored slots.

Every request has a slot in one feasible plan. A newcomer takes the earliest place beside all slots after its slack, so it delays no other.
If the policy is guarded, the first in turn that fits beside all slots may start at any time. With slack 0 and slots that move up this is
conservative backfill (Mu'alem and Feitelson, IEEE TPDS 2001).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby

from planner.basis import Basis
from planner.board.board import Board
from planner.board.waiting import Waiting, in_chains, turn_of
from planner.capacity.profile import FOREVER_S
from planner.causes import Cause, PlannedEviction
from planner.feasibility import largest_that_fits
from planner.plan import BarePlacement, Blocker, Explanation, Placement, Plan, PromiseMove, Reason, Remembered
from planner.promises.failure_reserve import FailureReserve
from planner.promises.followers import compress_chains, hold_followers, settle_followers
from planner.promises.live_board import Restore, Restored, restore_anew
from planner.promises.proof import faults_of
from planner.promises.ranges import WaitForecast
from planner.promises.reference_queues import ReferenceQueues
from planner.promises.repair import place_again
from planner.promises.slack import SlackTracker, find_new_place
from planner.reasons import Reasons
from planner.sharing.displacement import apply_move
from planner.sharing.edits import apply_edit
from planner.sharing.evictions import EvictionPlanner, evictions_possible
from planner.sharing.rights import Rights, borrows
from planner.sharing.supplies import assign_supplies
from planner.snapshot import Arrival, Moved, PolicyName, Quota, Request, Shadow, Slot, Snapshot


@contextmanager
def no_collection() -> Iterator[None]:
    """A plan makes no cycles, and the search for them takes a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@no_collection()
def plan(snapshot: Snapshot, *, explained: Set[str] | None = None, since: Basis | None = None, restore: Restore = restore_anew) -> Plan:
    """`explained`: ids of requests that get an explanation; empty means those that start now, None means all. `since`: of the last plan;
    then those get one that start now or whose explanation may have changed since. `restore`: makes the board with the stored slots.

    Shapes: one placement for each explained request, in order of turn, and in `others` those of the rest that are not as stored; pools,
    running and queue may come in any order, with unique ids. Errors: none. A request that can never start has no slot. Cost: about linear
    in the snapshot; a few scans of all nodes for each request that is new or has lost its slot.
    """
    is_whole = can_order_nodes(snapshot)
    if since is not None and not is_whole and since.holds_for(snapshot):
        return Plan(snapshot.now_s, (), basis=since)
    board, newcomers, _, queues = restore(snapshot)
    unpromised = sorted((waiting for waiting in newcomers if waiting.promise_s is None), key=turn_of)
    remembered = place_newcomers(board, newcomers, snapshot, queues=queues)
    reserve = FailureReserve(board, snapshot.memory.failed)
    if snapshot.edited is not None:
        apply_edit(board, snapshot, snapshot.edited.id, reserve)
    evictions, rights = make_evictions(board, snapshot.quotas, snapshot.moved)
    foretold = unpromised if snapshot.edited is None else [*unpromised, board.queue[snapshot.edited.id]]
    asked = None if explained is None or is_whole else explained | {waiting.request.id for waiting in foretold}
    barred = {eviction.id for eviction in evictions} | {waiting.request.id for waiting in board.order if waiting.risk is not None}
    expected = assign_supplies(board, board.expected(asked), barred)
    basis = None if explained is not None else Basis.of(board, expected, rights, snapshot)
    if basis is not None and since is not None:
        explained = basis.differing(since, board)
    elif explained is not None and not explained:
        explained = {id_ for id_, slot in expected.items() if slot.start_s <= snapshot.now_s}
    slots = board.slots()
    to_explain = None if explained is None else [board.queue[id_].request for id_ in explained]
    explainer = _Explainer(board, slots, expected, Reasons(board, expected, to_explain), rights, reserve, snapshot)
    placements = tuple(explainer.placement(waiting) for waiting in board.order if explained is None or waiting.request.id in explained)
    rest = (waiting for waiting in board.order if explained is not None and waiting.request.id not in explained)
    others = tuple(explainer.bare_placement(waiting) for waiting in rest if is_whole or not explainer.is_as_stored(waiting))
    forecasts = tuple(forecast for waiting in foretold if (forecast := explainer.forecast(waiting)) is not None)
    # Slots at risk need no room until their cluster is heard, unless the request starts elsewhere.
    at_risk = {id_ for id_, waiting in board.queue.items() if waiting.risk is not None} - {
        each.id for each in placements if each.starts_now
    }
    faults = tuple(fault for fault in faults_of(board, placements, others) if fault.id not in at_risk)
    return Plan(snapshot.now_s, placements, remembered, forecasts, tuple(evictions), others, faults, basis)


@no_collection()
def plan_newcomers(snapshot: Snapshot, restored: Restored) -> Plan | None:
    """Plans requests that come to a board whose slots are all as stored: they take room beside these, so nothing else changes.

    Shapes: as `plan`, with the newcomers alone. It leaves them on the board. None if they may change
    more: then `plan` has to decide. Cost: of the search for their places, and of small scans of the queue.
    """
    board, newcomers, courses, queues = restored
    may_change_more = any(waiting.promise_s is not None or board.may_cause_evictions(waiting.request) for waiting in newcomers)
    if may_change_more or _may_move_slots(board, snapshot):
        return None
    remembered = place_newcomers(board, newcomers, snapshot, queues=queues)
    reserve, rights = FailureReserve(board, snapshot.memory.failed), Rights(board, snapshot.quotas)
    expected, ahead = courses.expected_near(board, newcomers)
    slots = {waiting.request.id: slot for waiting in newcomers if (slot := board.slot(waiting)) is not None}
    reasons = Reasons(board, expected, [waiting.request for waiting in newcomers], ahead)
    explainer = _Explainer(board, slots, expected, reasons, rights, reserve, snapshot)
    in_turn = sorted(newcomers, key=turn_of)
    placements = tuple(map(explainer.placement, in_turn))
    forecasts = tuple(forecast for waiting in in_turn if (forecast := explainer.forecast(waiting)) is not None)
    return Plan(snapshot.now_s, placements, remembered, forecasts, faults=faults_of(board, placements, (), in_turn))


@no_collection()
def plan_starts(snapshot: Snapshot, restored: Restored) -> Plan | None:
    """Plans what starts now on a board whose slots are all as stored, and changes nothing there.

    Shapes: as `plan` if nobody is `explained`, without `others`. None if slots may move: then `plan` has to decide.
    """
    board, newcomers, *_ = restored
    if newcomers or _may_move_slots(board, snapshot) or evictions_possible(board.policy, snapshot.quotas, board.evictor_count):
        return None
    expected = board.starting()
    starting = sorted((board.queue[id_] for id_ in expected), key=turn_of)
    slots = {waiting.request.id: slot for waiting in starting if (slot := board.slot(waiting)) is not None}
    reasons, reserve = Reasons(board, expected, ()), FailureReserve(board, snapshot.memory.failed)
    explainer = _Explainer(board, slots, expected, reasons, Rights(board, snapshot.quotas), reserve, snapshot)
    placements = tuple(map(explainer.placement, starting))
    return Plan(snapshot.now_s, placements, faults=faults_of(board, placements, (), starting))


def _may_move_slots(board: Board, snapshot: Snapshot) -> bool:
    """Tells whether a plan may move slots that are as stored."""
    is_plain = snapshot.policy.name == PolicyName.GUARDED and snapshot.policy.break_from is None and not board.followers
    return not is_plain or snapshot.has_freed or snapshot.moved is not None or can_order_nodes(snapshot)


def can_order_nodes(snapshot: Snapshot) -> bool:
    return any(pool.supply is not None for pool in snapshot.pools)


def admit(board: Board, slack: SlackTracker | None, waiting: Waiting) -> Shadow | None:
    """A request that nothing could ever hold, or not at its booked time, gets no slot and no promise."""
    found, shadow = find_new_place(board, slack, waiting.request)
    if found is not None:
        waiting.promise_s = found[0]
        board.place_at(waiting, board.demand(waiting.request), found)
    return shadow


def make_evictions(board: Board, quotas: tuple[Quota, ...], moved: Moved | None = None) -> tuple[list[PlannedEviction], Rights]:
    if moved is not None:
        apply_move(board, moved)
    search = EvictionPlanner(board, quotas)
    evictions = search.plan_all()
    settle_followers(board)
    if board.policy.name == PolicyName.CONSERVATIVE and (evictions or moved):
        compress_chains(board)
    return evictions, search.rights


def forecast_of(board: Board, waiting: Waiting, expected_s: int, promise_s: int) -> WaitForecast:
    request = waiting.request
    promised_wait_s = max(promise_s - board.now_s, 0)
    gpu_count = board.gpu_s(request) // max(request.length_s, 1)
    expected_wait_s = max(expected_s - board.now_s, 0)
    bounds_s = (promised_wait_s, promised_wait_s)  # not known yet
    return WaitForecast(request.id, board.now_s, request.length_s, gpu_count, expected_wait_s, promised_wait_s, bounds_s)


def bring_forward(board: Board) -> None:
    """Moves gangs up after an early end if they have waited long. Otherwise smaller boxes take every node before them."""
    late = {waiting.request.id for waiting in board.order if waiting.request.node_count > 1 and _is_patient(board, waiting)}
    free = list(_movable(board, late)) if late else []
    if free:
        board.compress(sorted(free, key=lambda waiting: (waiting.turn.share, waiting.request.rank)))


def _movable(board: Board, late: set[str]) -> Iterator[Waiting]:
    # A gang takes no room in which a higher priority, or a request that an administrator put before it, could start sooner.
    higher: set[int] = set()
    for _, alike in groupby(board.order, key=lambda waiting: waiting.request.priority):
        same, before = list(alike), set(higher)
        for waiting in same:
            if waiting.request.id in late and before.isdisjoint(board.resources_of([waiting])):
                yield waiting
            elif waiting.request.place is not None and _could_gain(board, waiting):
                before |= board.resources_of([waiting])
        late -= {waiting.request.id for waiting in same}
        if not late:
            return
        higher |= board.resources_of([waiting for waiting in same if _could_gain(board, waiting)])


def _could_gain(board: Board, waiting: Waiting) -> bool:
    request = waiting.request
    if request.is_fixed:
        return False
    soonest_s = board.soonest_s(request)
    if board.has_slot(waiting):
        return board.start_s(waiting) > soonest_s
    return board.earliest(board.demand(request), soonest_s) is not None


def _is_patient(board: Board, waiting: Waiting) -> bool:
    request = waiting.request
    if request.promise_s is None or request.place is not None or request.is_fixed or not board.has_slot(waiting):
        return False
    if board.pools[board.pool_of_slot(waiting)].supply is not None:
        return False
    since_s = max(request.promised_at_s, board.opens_s(request))
    return board.now_s - since_s >= board.policy.gang_patience * (request.promise_s - since_s)


def place_newcomers(
    board: Board,
    newcomers: list[Waiting],
    snapshot: Snapshot,
    slack: SlackTracker | None = None,
    queues: ReferenceQueues | None = None,
) -> Remembered | None:
    """`slack`: of this board, if one has begun; else `queues`: its reference queues, if they are known."""
    is_guarded = board.policy.name == PolicyName.GUARDED
    hold_followers(board)
    if not is_guarded:
        compress_chains(board)
    elif snapshot.has_freed:
        bring_forward(board)
    if slack is None and is_guarded and any(waiting.promise_s is None for waiting in newcomers):
        slack = SlackTracker(board, snapshot.memory, None if snapshot.has_freed else queues)
    shadows: list[Shadow] = []
    arrivals: list[tuple[str, Arrival]] = []
    for waiting in in_chains(sorted(newcomers, key=turn_of)):
        if waiting.promise_s is not None:
            place_again(board, waiting)  # it lost its slot
            continue
        shadow = admit(board, slack, waiting)
        if not board.has_slot(waiting):
            continue  # it can never start, so it overtakes no other
        arrivals.append((waiting.request.id, Arrival(board.now_s, waiting.request.priority, board.gpu_s(waiting.request))))
        shadows += [shadow] if shadow is not None else []
    settle_followers(board)
    return Remembered(tuple(arrivals), tuple(shadows), *slack.sums) if slack is not None and arrivals else None


@dataclass(frozen=True, slots=True)
class _Explainer:
    board: Board
    slots: Mapping[str, Slot]
    expected: Mapping[str, Slot]
    reasons: Reasons
    rights: Rights
    reserve: FailureReserve
    snapshot: Snapshot

    def placement(self, waiting: Waiting) -> Placement:
        request, turn, start = waiting.request, waiting.turn, self.expected.get(waiting.request.id)
        if start is None:
            lost, explanation = waiting.displaced, self._never(request)
            return Placement(request.id, None, None, waiting.promise_s, False, explanation, None, turn.share, turn.key, lost=lost)
        starts_now = start.start_s <= self.snapshot.now_s
        bare_placement = self._in_slot(waiting, start) if starts_now and waiting.risk is not None else self.bare_placement(waiting)
        slot, explanation = start if starts_now else bare_placement.slot, self.reasons.explain(request, start)
        borrowing = borrows(self.board, self.rights, request, start)
        shown = starts_now, explanation, bare_placement.moved, turn.share, turn.key, borrowing, bare_placement.lost
        return Placement(request.id, slot, start.start_s, bare_placement.promise_s, *shown)

    def is_as_stored(self, waiting: Waiting) -> bool:
        request, slot = waiting.request, self.slots.get(waiting.request.id)
        if slot is None or slot is not request.slot or request.promise_s is None or request.promise_s != waiting.promise_s:
            return False
        return request.lost is None and slot.start_s <= request.promise_s + self.snapshot.policy.promise_tolerance_s

    def bare_placement(self, waiting: Waiting) -> BarePlacement:
        slot = self.slots.get(waiting.request.id)
        if slot is None:
            return BarePlacement(waiting.request.id, None, waiting.promise_s, lost=waiting.displaced)
        if waiting.risk is not None:
            return BarePlacement(waiting.request.id, waiting.request.slot, waiting.promise_s, lost=waiting.risk)
        return self._in_slot(waiting, slot)

    def _in_slot(self, waiting: Waiting, slot: Slot) -> BarePlacement:
        moved, promise_s = promise_of(waiting, slot, self.reserve, self.snapshot.policy.promise_tolerance_s)
        return BarePlacement(waiting.request.id, slot, promise_s, moved)

    def forecast(self, waiting: Waiting) -> WaitForecast | None:
        start, promise_s = self.expected.get(waiting.request.id), self.bare_placement(waiting).promise_s
        if start is None or start.start_s <= self.snapshot.now_s or waiting.request.is_fixed or promise_s is None:
            return None
        return forecast_of(self.board, waiting, start.start_s, promise_s)

    def _never(self, request: Request) -> Explanation:
        if self.board.opens_s(request) >= FOREVER_S:
            return Explanation(Reason.PREDECESSOR_HAS_NO_PLACE, (Blocker(request.after, False, FOREVER_S),))
        most = largest_that_fits(self.snapshot.pools, request, self.snapshot.quotas)
        reason = Reason.DOES_NOT_FIT_THEN if request.is_fixed and most.fits else Reason.NEVER_FITS
        return Explanation(reason, (), 0, most.node_count, most.gpus_per_node)


def promise_of(waiting: Waiting, slot: Slot, reserve: FailureReserve, tolerance_s: int) -> tuple[PromiseMove | None, int]:
    """Return the move of the promise, if any, and the promise. A newcomer's is its slot plus the reserve; an old one only gets earlier."""
    old_s, start_s = waiting.request.promise_s, slot.start_s
    if old_s is None:
        return None, reserve.promise_s(waiting.request, slot)
    moved = _move_of(waiting, start_s, tolerance_s)
    return moved, min(old_s, max(waiting.promise_s or start_s, start_s)) if moved is None else moved.new_s


def _move_of(waiting: Waiting, start_s: int, tolerance_s: int) -> PromiseMove | None:
    promise_s = waiting.request.promise_s
    if promise_s is None or start_s <= promise_s + tolerance_s:
        return None
    cause, cause_id = waiting.displaced or (Cause.FAULT, "")
    return PromiseMove(promise_s, start_s, cause, cause_id)
