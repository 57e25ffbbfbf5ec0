"""Move slots up into what came free.

After it no slot can start earlier as long as the others stay: that is the state which "nothing came free" preserves, so a plan
need not look at the queue again until something does.
Source: compression in conservative backfill (Mu'alem and Feitelson, IEEE TPDS 2001), repeated until nothing moves.
"""

from __future__ import annotations

from gpr.planner.board import Board
from gpr.planner.freed import Freed
from gpr.planner.snapshot import Request, Slot
from gpr.planner.waiting import Waiting
from gpr.planner.witness import Witness


def improve(board: Board) -> None:
    """Move every slot up that can, in order of turn, again and again: a slot that moves makes room behind it."""
    while board.freed:
        freed, board.freed = board.freed, Freed(board.witness)
        for waiting in board.order:
            slot = _sooner(board, waiting, freed)
            if slot is not None:
                old = board.move(waiting, slot)
                freed.add(old)
                board.freed.add(old)


def _sooner(board: Board, waiting: Waiting, freed: Freed) -> Slot | None:
    request, slot = waiting.request, waiting.slot
    if slot is None:
        return None
    since_s = board.soonest_s(request)
    if slot.start_s <= since_s or not freed.may_help(request, slot, since_s):
        return None
    witness = board.witness
    if request.node_count == 1 and not _can_slide(witness, request, slot):
        # No new place touches the old one, so it need not be taken out to look.
        return witness.earliest(request, since_s, before_s=slot.start_s, ignoring=request.id)
    witness.give(waiting.box)
    found = witness.earliest(request, since_s, before_s=slot.start_s)
    witness.take(waiting.box)
    return found


def _can_slide(witness: Witness, request: Request, slot: Slot) -> bool:
    node = witness.nodes[slot.nodes[0]]
    return node.free_again_s(witness.level(node.id, request.gpus_per_node), slot.start_s) < slot.start_s
