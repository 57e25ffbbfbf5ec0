"""The witness: all boxes, running and waiting, in one feasible plan; and the earliest place in it for one more.

Two resources are taken by a box: GPUs of its nodes, and its slice, which holds one box at a time.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gpr.planner.profile import NEVER_S, NodeProfile
from gpr.planner.snapshot import Pool, Request, Slot


@dataclass(frozen=True, slots=True)
class Box:
    """Nodes x GPUs x `[start_s, end_s)`: what a running GPR holds, or the slot of a waiting one. `gpus_per_node` 0: all."""

    id: str
    slice: str
    nodes: tuple[str, ...]
    gpus_per_node: int
    start_s: int
    end_s: int


class Witness:
    """Boxes on nodes and in slices, from `now_s` on. It does what it is told: whoever places a box has asked for room before."""

    def __init__(self, pools: Iterable[Pool], *, now_s: int) -> None:
        self.nodes: dict[str, NodeProfile] = {}
        self.pools: dict[str, tuple[NodeProfile, ...]] = {}
        self._fitting: dict[tuple[str, int], list[tuple[NodeProfile, int]]] = {}
        self._slices: dict[str, list[tuple[int, int, str]]] = {}
        for pool in pools:
            self.pools[pool.id] = tuple(self._profile(node.id, node.gpu_count, now_s) for node in pool.nodes)
            for node in pool.nodes:
                for window in node.closed:
                    self.nodes[node.id].take(window.start_s, window.end_s, node.gpu_count)

    def take(self, box: Box) -> None:
        self._on_nodes(box, box.start_s, -1)
        insort(self._slices.setdefault(box.slice, []), (box.start_s, box.end_s, box.id))

    def give(self, box: Box, *, since_s: int | None = None) -> None:
        """Take the box out again; from `since_s` on only, if it ran until then."""
        self._on_nodes(box, box.start_s if since_s is None else max(since_s, box.start_s), 1)
        rest = self._slices[box.slice]
        rest.remove((box.start_s, box.end_s, box.id))
        if not rest:
            del self._slices[box.slice]

    def forget_before(self, now_s: int, nodes: Iterable[str]) -> None:
        """Drop what is over on these nodes: keeps a long-lived witness short."""
        for node in nodes:
            self.nodes[node].forget_before(now_s)

    def level(self, node_id: str, gpus_per_node: int) -> int:
        """How many GPUs of this node such a box takes."""
        return gpus_per_node or self.nodes[node_id].gpu_count

    def has_room(self, box: Box) -> bool:
        """Is everything that the box needs free throughout? The box itself must not be in the witness."""
        return self._slice_is_free(box) and all(
            self.nodes[node].least_free(box.start_s, box.end_s) >= self.level(node, box.gpus_per_node) for node in box.nodes
        )

    def earliest_there(self, box: Box, *, latest_s: int) -> int | None:
        """The first start from `box.start_s` to `latest_s` at which it has room on its own nodes."""
        length_s, start_s = box.end_s - box.start_s, box.start_s
        while start_s <= latest_s:
            fits = [self.nodes[node].first_fit(self.level(node, box.gpus_per_node), length_s, start_s) for node in box.nodes]
            window = next(self._windows(box.slice, max(fits), length_s, box.id))
            if window[0] == start_s:
                return start_s
            start_s = window[0]
        return None

    def earliest(self, request: Request, since_s: int, *, before_s: int = NEVER_S, ignoring: str | None = None) -> Slot | None:
        """The first place for the request from `since_s` on, if there is one that starts before `before_s`.

        Of several pools the one where it starts soonest, then the one that the request likes better. `ignoring` names a box
        whose hold on the slice does not count: the request's own slot.
        Source: conservative backfill's earliest fit (Mu'alem and Feitelson, IEEE TPDS 2001), on nodes instead of counts.
        Cost: one look at each node of the pools where the queue is long; then also at the gaps that are long enough.
        """
        for from_s, until_s in self._windows(request.slice, since_s, request.length_s, ignoring):
            limit_s = min(before_s, until_s - request.length_s + 1)
            best: Slot | None = None
            for pool in request.pools:
                found = self._earliest_in(pool, request, from_s, limit_s)
                if found is not None:
                    best, limit_s = found, found.start_s
            if best is not None or from_s >= before_s:
                return best
        return None

    def slice_boxes(self, slice_: str) -> Sequence[tuple[int, int, str]]:
        """(start, end, id) of all boxes of the slice, in order."""
        return self._slices.get(slice_, ())

    def fitting(self, pool: str, gpus_per_node: int) -> list[tuple[NodeProfile, int]]:
        """The nodes of a pool that could hold so many GPUs when empty, and how many of theirs that takes."""
        key = (pool, gpus_per_node)
        found = self._fitting.get(key)
        if found is None:
            levels = ((node, gpus_per_node or node.gpu_count) for node in self.pools.get(pool, ()))
            found = self._fitting[key] = [(node, level) for node, level in levels if 0 < level <= node.gpu_count]
        return found

    def _profile(self, node_id: str, gpu_count: int, now_s: int) -> NodeProfile:
        if node_id not in self.nodes:
            self.nodes[node_id] = NodeProfile(node_id, gpu_count, order=len(self.nodes), since_s=now_s)
        return self.nodes[node_id]

    def _on_nodes(self, box: Box, start_s: int, sign: int) -> None:
        for node_id in box.nodes:
            node = self.nodes.get(node_id)
            if node is not None:  # a running box outlives the registration of its node
                node.give(start_s, box.end_s, sign * (box.gpus_per_node or node.gpu_count))

    def _slice_is_free(self, box: Box) -> bool:
        return not any(start_s < box.end_s and end_s > box.start_s for start_s, end_s, _ in self.slice_boxes(box.slice))

    def _windows(self, slice_: str, since_s: int, length_s: int, ignoring: str | None) -> Iterator[tuple[int, int]]:
        """The stretches from `since_s` on, long enough, in which the slice holds no box."""
        at_s = since_s
        for start_s, end_s, box_id in self.slice_boxes(slice_):
            if box_id == ignoring:
                continue
            if start_s - at_s >= length_s:
                yield at_s, start_s
            at_s = max(at_s, end_s)
        yield at_s, NEVER_S

    def _earliest_in(self, pool: str, request: Request, since_s: int, before_s: int) -> Slot | None:
        nodes = self.fitting(pool, request.gpus_per_node)
        if len(nodes) < request.node_count or since_s >= before_s:
            return None
        if request.node_count == 1:
            start_s, free = _first_of_one(nodes, request.length_s, since_s, before_s)
        else:
            start_s, free = _first_of_many(nodes, request, since_s, before_s)
        if not free:
            return None
        return Slot(pool, start_s, _snuggest(free, request.node_count, start_s, start_s + request.length_s))


def _first_of_one(
    nodes: list[tuple[NodeProfile, int]], length_s: int, since_s: int, before_s: int
) -> tuple[int, list[tuple[NodeProfile, int]]]:
    """The first start before `before_s`, and all nodes that could have it then."""
    best_s = before_s - 1
    free: list[tuple[NodeProfile, int]] = []
    for pair in nodes:
        node, level = pair
        start_s = node.first_fit(level, length_s, since_s)
        if start_s > best_s:
            continue
        if start_s < best_s:
            best_s = start_s
            free.clear()
        free.append(pair)
    return best_s, free


def _first_of_many(
    nodes: list[tuple[NodeProfile, int]], request: Request, since_s: int, before_s: int
) -> tuple[int, list[tuple[NodeProfile, int]]]:
    """The same for a gang: sweep over the stretches in which each node could start it.

    A node's stretches never overlap, so as many nodes are ready at a time as stretches hold it, and the first such time is the
    beginning of one of them. O(gaps x log gaps).
    """
    stretches = [
        (first_s, last_s, pair) for pair in nodes for first_s, last_s in _stretches(pair[0], pair[1], request.length_s, since_s, before_s)
    ]
    firsts = sorted(first_s for first_s, _, _ in stretches)
    lasts = sorted(last_s for _, last_s, _ in stretches)
    for start_s in firsts:
        # Begun by then, less those over before.
        if bisect_right(firsts, start_s) - bisect_right(lasts, start_s - 1) >= request.node_count:
            return start_s, [pair for first_s, last_s, pair in stretches if first_s <= start_s <= last_s]
    return before_s, []


def _stretches(node: NodeProfile, level: int, length_s: int, since_s: int, before_s: int) -> Iterator[tuple[int, int]]:
    gaps = node.gaps(level)
    for i in range(bisect_right(gaps.ends, since_s), len(gaps.ends)):
        first_s = max(gaps.starts[i], since_s)
        if first_s >= before_s:
            return
        if gaps.ends[i] - first_s >= length_s:
            yield first_s, gaps.ends[i] - length_s


def _snuggest(free: list[tuple[NodeProfile, int]], count: int, start_s: int, end_s: int) -> tuple[str, ...]:
    """Fewest GPUs left over in the window, then the shortest gap behind it: parts of nodes pack, whole nodes stay whole."""
    if len(free) > count:
        free = sorted(
            free,
            key=lambda pair: (
                pair[0].least_free(start_s, end_s) - pair[1],
                pair[0].free_until_s(pair[1], start_s),
                pair[0].order,
            ),
        )[:count]
        free.sort(key=lambda pair: pair[0].order)
    return tuple(node.id for node, _ in free)
