"""The oracle checks the planner's promises second by second. It is slow and obvious, and uses no line of the planner's own code."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

from planner.plan import Placement, Plan
from planner.snapshot import Pool, Request, Running, Slot, Snapshot, Within


@dataclass(frozen=True)
class Taken:
    """It has the seconds of a box. `gpus` 0 means all of each node."""

    id: str
    slice: str
    nodes: tuple[str, ...]
    gpus: int
    seconds: range


def of_running(box: Running, now_s: int, grace_s: int) -> Taken:
    end_s = box.end_s
    while end_s <= now_s:
        end_s += grace_s
    return Taken(box.id, box.slice, box.nodes, box.gpus_per_node, range(now_s, end_s))


def of_slot(request: Request, slot: Slot) -> Taken:
    seconds = range(slot.start_s, slot.start_s + request.length_s)
    return Taken(request.id, request.slice, slot.nodes, request.gpus_per_node, seconds)


class Oracle:
    """All seconds from now on in which anything happens, one by one."""

    def __init__(self, snapshot: Snapshot, boxes: Iterable[Taken] = ()) -> None:
        self.pools = {pool.id: pool for pool in snapshot.pools}
        self.sizes = {node.id: node.gpu_count for pool in snapshot.pools for node in pool.nodes}
        self.closed = {node.id: node.closed for pool in snapshot.pools for node in pool.nodes}
        self.now_s = snapshot.now_s
        grace_s = snapshot.policy.overrun_grace_s
        self.boxes = [of_running(box, self.now_s, grace_s) for box in snapshot.running] + list(boxes)

    def free(self, node: str, at_s: int) -> int:
        if any(window.start_s <= at_s < window.end_s for window in self.closed[node]):
            return 0
        used = (box.gpus or self.sizes[node] for box in self.boxes if node in box.nodes and at_s in box.seconds)
        return self.sizes[node] - sum(used)

    def slice_is_free(self, slice_: str, at_s: int) -> bool:
        return not slice_ or not any(box.slice == slice_ and at_s in box.seconds for box in self.boxes)

    def fits(self, request: Request, nodes: Iterable[str], start_s: int) -> bool:
        seconds = range(start_s, start_s + request.length_s)
        return all(self.slice_is_free(request.slice, at_s) for at_s in seconds) and all(
            self.least(node, seconds) >= (request.gpus_per_node or self.sizes[node]) for node in nodes
        )

    def least(self, node: str, seconds: range) -> int:
        return min(self.free(node, at_s) for at_s in seconds)

    def earliest(self, request: Request, slack_s: int = 0) -> Slot | None:
        """Every second from so long after its soonest start on, every pool, every set of nodes."""
        able = {id_: _able(self.pools[id_], request) for id_ in request.pools if id_ in self.pools}
        if all(len(nodes) < request.node_count for nodes in able.values()):
            return None
        start_s = max(self.now_s, request.earliest_start_s) + slack_s
        while (slot := self.at(request, start_s)) is None:
            start_s += 1
        return slot

    def at(self, request: Request, start_s: int) -> Slot | None:
        """Returns the first of its pools that has room, with the best nodes; None before its earliest start."""
        if start_s < request.earliest_start_s:
            return None
        for pool_id in request.pools:
            able = _able(self.pools[pool_id], request) if pool_id in self.pools else []
            nodes = [node for node in able if self.fits(request, [node], start_s)]
            if len(nodes) >= request.node_count:
                best = min(combinations(nodes, request.node_count), key=lambda c: self._cost(c, nodes, request, start_s))
                return Slot(pool_id, start_s, best)
        return None

    def _cost(self, chosen: tuple[str, ...], order: list[str], request: Request, start_s: int) -> list[tuple[int, int, int]]:
        """Returns for the nodes, worst last: GPUs left over, seconds until they no longer suffice, place in the pool."""
        return sorted(self._cost_of(node, order, request, start_s) for node in chosen)

    def _cost_of(self, node: str, order: list[str], request: Request, start_s: int) -> tuple[int, int, int]:
        level = request.gpus_per_node or self.sizes[node]
        end_s = start_s + request.length_s
        behind_s = 0
        while behind_s < 500 and self.free(node, end_s + behind_s) >= level:
            behind_s += 1
        return self.least(node, range(start_s, end_s)) - level, behind_s, order.index(node)


def _able(pool: Pool, request: Request) -> list[str]:
    return [node.id for node in pool.nodes if node.gpu_count >= max(request.gpus_per_node, 1)]


def _are_near(pool: Pool, request: Request, slot: Slot) -> bool:
    if request.within == Within.ANY or request.node_count == 1:
        return True
    parts = {node.rack if request.within == Within.RACK else node.nvlink_domain for node in pool.nodes if node.id in slot.nodes}
    return len(parts) == 1 and "" not in parts


def problems(snapshot: Snapshot, made: Plan) -> list[str]:
    """Returns what is wrong with the record that the plan leaves: W1, W2 and the serial slices."""
    requests = {request.id: request for request in snapshot.queue}
    oracle = Oracle(snapshot)
    found = [f"{fault.id}: by the planner's own word it is {fault.flaw}" for fault in made.faults]
    for placement in sorted(made.placements, key=lambda p: p.slot.start_s if p.slot else 0):
        request, slot = requests[placement.id], placement.slot
        if slot is None:
            continue
        if placement.lost is not None and not placement.starts_now:
            found += _risk_problems(snapshot, request, placement)
            if slot.start_s > snapshot.now_s:  # nobody else may take its nodes
                oracle.boxes.append(of_slot(request, slot))
            continue
        if not oracle.fits(request, slot.nodes, slot.start_s):
            found.append(f"{request.id} has no room at {slot.start_s} on {slot.nodes}")
        if len(set(slot.nodes)) != request.node_count or slot.pool not in request.pools:
            found.append(f"{request.id} has the wrong nodes {slot}")
        if not _are_near(oracle.pools[slot.pool], request, slot):
            found.append(f"{request.id} is spread {slot}")
        if not set(slot.nodes) <= {node.id for node in oracle.pools[slot.pool].nodes}:
            found.append(f"{request.id} has nodes of another pool")
        if slot.start_s < max(snapshot.now_s, request.earliest_start_s):
            found.append(f"{request.id} starts too early")
        late_s = snapshot.policy.promise_tolerance_s
        if placement.promise_s is None or slot.start_s > placement.promise_s + late_s:
            found.append(f"{request.id} starts at {slot.start_s}, later than promised: {placement.promise_s}")
        if placement.starts_now is not (slot.start_s == snapshot.now_s) or placement.starts_now is not (
            placement.start_s == snapshot.now_s
        ):
            found.append(f"{request.id} starts now: {placement.starts_now}, with {placement.start_s} and a slot at {slot.start_s}")
        if placement.start_s is None or not max(snapshot.now_s, request.earliest_start_s) <= placement.start_s <= slot.start_s:
            found.append(f"{request.id} is expected at {placement.start_s}, with a slot at {slot.start_s}")
        found += _chain_problems(snapshot, request, placement, made)
        is_edited = snapshot.edited is not None and snapshot.edited.id == request.id
        found += _promise_problems(request, placement.promise_s, placement.moved is not None, may_gain=is_edited)
        oracle.boxes.append(of_slot(request, slot))
    return found


def _chain_problems(snapshot: Snapshot, request: Request, placement: Placement, made: Plan) -> list[str]:
    """It starts when the one that it starts after has ended: by the slots, and as it is expected."""
    boxes, lengths = {box.id: box for box in snapshot.running}, {each.id: each.length_s for each in snapshot.queue}
    stands = {each.id: each for each in made.placements}
    if not request.after:
        return []
    if request.after in boxes:
        end_s = of_running(boxes[request.after], snapshot.now_s, snapshot.policy.overrun_grace_s).seconds.stop
        ends = [(placement.slot, end_s), (placement.start_s, end_s)]
    elif (before := stands.get(request.after)) is None or before.slot is None or before.start_s is None:
        return [f"{request.id} has a place, and {request.after} has none"]
    else:
        length_s = lengths[request.after]
        ends = [(placement.slot, before.slot.start_s + length_s), (placement.start_s, before.start_s + length_s)]
    starts_s = [(start.start_s if isinstance(start, Slot) else start, end_s) for start, end_s in ends]
    return [f"{request.id} starts at {at_s}, {request.after} ends at {end_s}" for at_s, end_s in starts_s if at_s is None or at_s < end_s]


def _risk_problems(snapshot: Snapshot, request: Request, placement: Placement) -> list[str]:
    """Returns what is wrong with one at risk: its cluster is not heard, and all has to stand as it was."""
    found = []
    if (placement.slot, placement.promise_s, placement.moved) != (request.slot, request.promise_s, None):
        found.append(f"{request.id} is at risk, and moved from {request.slot} to {placement.slot}: {placement.moved}")
    own = {box.id: box.nodes for box in snapshot.running if box.slice == request.slice and box.end_s <= snapshot.now_s}
    nodes = {*(request.slot.nodes if request.slot else ()), *(node for nodes in own.values() for node in nodes)}
    if not any(window.unheard for pool in snapshot.pools for node in pool.nodes if node.id in nodes for window in node.closed):
        found.append(f"{request.id} is at risk, and all its nodes are heard")
    return found


def _promise_problems(request: Request, promise_s: int | None, was_moved: bool, *, may_gain: bool) -> list[str]:
    if request.promise_s is None:
        return []
    if was_moved is not (promise_s is not None and promise_s > request.promise_s):
        return [f"{request.id}: promise {request.promise_s} -> {promise_s}, recorded as moved: {was_moved}"]
    if promise_s is not None and promise_s < request.promise_s and not may_gain:
        return [f"{request.id}: its promise was tightened from {request.promise_s} to {promise_s}"]
    return []
