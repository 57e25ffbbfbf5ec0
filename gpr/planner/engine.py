"""The planner: conservative backfill with stored slots.

Every request owns a slot in one feasible plan, the witness, and its promise is that slot's start. A newcomer takes the earliest
place that all slots leave, so it delays nobody, whatever its priority; slots move up when something comes free, higher priority
first; they move back only by what nobody could help, and then the promise moves with its cause.
Source: conservative backfill (Mu'alem and Feitelson, IEEE TPDS 2001), with reservations stored instead of made anew.
"""

from __future__ import annotations

from dataclasses import replace

from gpr.planner.board import Board
from gpr.planner.improve import improve
from gpr.planner.limits import most_that_fits
from gpr.planner.plan import Cause, Explanation, Offer, Placement, Plan, PromiseMove, Reason
from gpr.planner.reasons import Reasons
from gpr.planner.repair import restore
from gpr.planner.snapshot import Request, Snapshot
from gpr.planner.waiting import Turn, Waiting


def plan(snapshot: Snapshot) -> Plan:
    """Where and when each waiting request starts, and which start now.

    Units: seconds since the Unix epoch, counts of GPUs and nodes. Ids of requests, nodes and pools must be unique each.
    Shapes: one placement a request, in order of turn; pools, running and queue may come in any order.
    Errors: none. What can never start is a placement without a slot.
    Cost: about linear in the snapshot while nothing is new, broken or free; else one or more fits for each that is.
    """
    board = _board_of(snapshot)
    settle(board)
    reasons = Reasons(board)
    return Plan(snapshot.now_s, tuple(_placement(waiting, reasons, snapshot) for waiting in board.order))


def offers(snapshot: Snapshot, candidate: Request) -> tuple[Offer, ...]:
    """What `plan` would give the candidate in each of its pools if it were submitted now, soonest first; nothing is kept.

    The first one is what it gets when it may use all its pools. A request in the queue with the candidate's id is left out, so
    that an edit can be tried. Pools that could never hold it have no offer. Units and cost as for `plan`, which shares the code.
    """
    others = tuple(request for request in snapshot.queue if request.id != candidate.id)
    board = _board_of(replace(snapshot, queue=others))
    # Those whose turn is later come after it, as they would if it were in the queue.
    settle(board, until=Turn.of(candidate))
    reasons = Reasons(board)
    found = [_offer(board, reasons, candidate, pool, snapshot) for pool in dict.fromkeys(candidate.pools)]
    return tuple(sorted((offer for offer in found if offer is not None), key=lambda offer: offer.start_s))


def settle(board: Board, *, until: Turn | None = None) -> None:
    """Move slots up where something came free, then give each newcomer (up to a turn) the earliest place left."""
    improve(board)
    for waiting in sorted(board.unplaced, key=lambda waiting: waiting.turn):
        if until is None or waiting.turn < until:
            _insert(board, waiting)
    board.unplaced.clear()


def _board_of(snapshot: Snapshot) -> Board:
    board = Board(snapshot.pools, now_s=snapshot.now_s, policy=snapshot.policy)
    for running in snapshot.running:
        board.hold(running)
    restore(board, [Waiting(request, request.promise_s) for request in snapshot.queue])
    if snapshot.policy.may_improve and snapshot.freed_nodes is None:
        board.freed.add_all()
    elif snapshot.policy.may_improve:
        board.freed.add_nodes(snapshot.freed_nodes or ())
        board.freed.add_slices(snapshot.freed_slices)
    return board


def _insert(board: Board, waiting: Waiting) -> None:
    slot = board.witness.earliest(waiting.request, board.soonest_s(waiting.request))
    if slot is None:
        return
    board.place(waiting, slot)
    if waiting.promise_s is None:
        waiting.promise_s = slot.start_s
    elif waiting.displaced is None:
        # Promised, but it came without a slot: whoever took that away changed the request.
        waiting.displaced = Cause.CHANGED, waiting.request.id


def _placement(waiting: Waiting, reasons: Reasons, snapshot: Snapshot) -> Placement:
    request, slot = waiting.request, waiting.slot
    if slot is None:
        most = most_that_fits(snapshot.pools, request)
        never = Explanation(Reason.NEVER_FITS, (), 0, most.node_count, most.gpus_per_node)
        return Placement(request.id, None, waiting.promise_s, False, never)
    explanation = reasons.explain(request, slot)
    moved = _move_of(waiting, slot.start_s, snapshot.policy.promise_tolerance_s)
    promise_s = moved.new_s if moved is not None else waiting.promise_s
    return Placement(request.id, slot, promise_s, slot.start_s <= snapshot.now_s, explanation, moved)


def _move_of(waiting: Waiting, start_s: int, tolerance_s: int) -> PromiseMove | None:
    promise_s = waiting.promise_s
    if promise_s is None or start_s <= promise_s + tolerance_s:
        return None
    cause, cause_id = waiting.displaced or (Cause.CHANGED, waiting.request.id)
    return PromiseMove(promise_s, start_s, cause, cause_id)


def _offer(board: Board, reasons: Reasons, candidate: Request, pool: str, snapshot: Snapshot) -> Offer | None:
    slot = board.witness.earliest(replace(candidate, pools=(pool,)), board.soonest_s(candidate))
    if slot is None:
        return None
    where = next(p for p in snapshot.pools if p.id == pool)
    explanation = reasons.explain(candidate, slot)
    return Offer(pool, where.cluster, where.shape, slot.start_s, slot.start_s, slot, explanation)
