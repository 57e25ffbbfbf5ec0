"""Move slots up into what came free.

After it no slot can start earlier as long as the others stay: that is the state which "nothing came free" preserves, so a plan
need not look at the queue again until something does.
Source: compression in conservative backfill (Mu'alem and Feitelson, IEEE TPDS 2001), repeated until nothing moves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpr.planner.profile import NEVER_S, NodeProfile
from gpr.planner.snapshot import Request, Slot
from gpr.planner.witness import Box, Witness

if TYPE_CHECKING:
    from gpr.planner.board import Board, Waiting


@dataclass(slots=True)
class _Reach:
    """What the freed nodes offer to requests for so many GPUs a node: bounds that turn most of them away at once."""

    nodes: list[tuple[NodeProfile, int]] = field(default_factory=list)
    longest_s: int = 0
    endless_since_s: int = NEVER_S  # from when on the first of the nodes is free for ever

    def widen(self, node: NodeProfile, level: int) -> None:
        gaps = node.gaps(level)
        self.longest_s = max(self.longest_s, gaps.longest_s)
        self.endless_since_s = min(self.endless_since_s, gaps.starts[-1])


class Freed:
    """Where something became free. `may_help` never says no to a slot that could move up; it may say yes for nothing."""

    def __init__(self, witness: Witness) -> None:
        self._witness = witness
        self._nodes: dict[str, NodeProfile] = {}
        self._slices: set[str] = set()
        self._loose: set[str] = set()
        self._reach: dict[int, _Reach] = {}
        self._is_all = False

    def __bool__(self) -> bool:
        return self._is_all or bool(self._nodes or self._slices or self._loose)

    def add_all(self) -> None:
        self._is_all = True

    def add(self, box: Box) -> None:
        """The box is gone from its nodes and its slice."""
        self.add_nodes(box.nodes)
        self.add_slices((box.slice,))

    def add_nodes(self, nodes: Iterable[str]) -> None:
        for node_id in nodes:
            node = self._witness.nodes.get(node_id)
            if node is None:
                continue
            is_new = node_id not in self._nodes
            self._nodes[node_id] = node
            for gpus_per_node, reach in self._reach.items():
                _extend(reach, node, gpus_per_node, is_new=is_new)

    def add_slices(self, slices: Iterable[str]) -> None:
        self._slices.update(slices)

    def add_loose(self, request_id: str) -> None:
        """This one's slot is not at its earliest, whatever came free."""
        self._loose.add(request_id)

    def may_help(self, request: Request, slot: Slot, since_s: int) -> bool:
        """Could it start in `[since_s, slot.start_s)`, given that before nothing else was free it could not?

        Then one of its new nodes is one that was freed: it has a gap that is long enough, or it is free just before the slot,
        which can slide into that.
        """
        if self._is_all or request.id in self._loose or request.slice in self._slices:
            return True
        reach = self._reach_of(request.gpus_per_node)
        is_far = request.length_s > reach.longest_s and slot.start_s <= reach.endless_since_s
        if is_far and self._nodes.keys().isdisjoint(slot.nodes):
            return False
        return any(
            node.first_fit(level, request.length_s, since_s) < slot.start_s
            or (node.id in slot.nodes and node.free_again_s(level, slot.start_s) < slot.start_s)
            for node, level in reach.nodes
        )

    def _reach_of(self, gpus_per_node: int) -> _Reach:
        reach = self._reach.get(gpus_per_node)
        if reach is None:
            reach = self._reach[gpus_per_node] = _Reach()
            for node in self._nodes.values():
                _extend(reach, node, gpus_per_node, is_new=True)
        return reach


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


def _extend(reach: _Reach, node: NodeProfile, gpus_per_node: int, *, is_new: bool) -> None:
    level = gpus_per_node or node.gpu_count
    if not 0 < level <= node.gpu_count:
        return
    if is_new:
        reach.nodes.append((node, level))
    reach.widen(node, level)
