"""What came free since all slots were at their earliest, and whom that could help."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from gpr.planner.profile import NEVER_S, NodeProfile
from gpr.planner.snapshot import Request, Slot
from gpr.planner.witness import Box, Witness


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
        self._reach: dict[int, _Reach] = {}
        self._is_all = False

    def __bool__(self) -> bool:
        return self._is_all or bool(self._nodes or self._slices)

    def add_all(self) -> None:
        self._is_all = True

    def add(self, box: Box) -> None:
        """The box is gone from its nodes and its slice. So it is itself among those that are tried, if it still waits."""
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

    def may_help(self, request: Request, slot: Slot, since_s: int) -> bool:
        """Could it start in `[since_s, slot.start_s)`, given that before nothing else was free it could not?

        Then one of its new nodes is one that was freed: it has a gap that is long enough, or it is free just before the slot,
        which can slide into that.
        """
        if self._is_all or request.slice in self._slices:
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


def _extend(reach: _Reach, node: NodeProfile, gpus_per_node: int, *, is_new: bool) -> None:
    level = gpus_per_node or node.gpu_count
    if not 0 < level <= node.gpu_count:
        return
    if is_new:
        reach.nodes.append((node, level))
    reach.widen(node, level)
