"""Assigns nodes that can be ordered to requests that start enough sooner with them.

Nodes without an order have no capacity. They are opened briefly for each request in order of turn. An order moves no other slot.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.board.board import Board
from planner.board.empty import close_nodes
from planner.board.waiting import Waiting
from planner.capacity.placement import NO_INTS, members_of
from planner.capacity.profile import FOREVER_S, NEVER_S, Ints
from planner.promises.repair import place_again
from planner.snapshot import Request, Slot, Supply, Window

# Assignments in one plan. After each the queue is simulated again, because others start sooner where the slot was.
ASSIGNMENTS_MOST: Final = 8
SIMULATED_MOST: Final = 8_000  # requests, in all these simulations


def assign_supplies(
    board: Board, expected: Mapping[str, Slot], barred: Set[str] = frozenset(), only: str | None = None
) -> Mapping[str, Slot]:
    """Move slots onto nodes to be ordered where they gain enough, and return the expected starts.

    `expected`: starts without orders. `barred`: boxes end early for these, so they stay. Cost: a simulation of the queue for each
    assignment.
    """
    sources = {pool.id: _Source(board, number, pool.supply) for number, pool in enumerate(board.pools) if pool.supply is not None}
    for _ in range(max(1, min(ASSIGNMENTS_MOST, SIMULATED_MOST // max(len(board.order), 1)))):
        if not any(len(source.left) for source in sources.values()) or not _assign_one(board, expected, barred, sources, only):
            return expected
        _place_the_rest(board)
        expected = board.expected()
    return expected


def _place_the_rest(board: Board) -> None:
    for waiting in board.order:
        if waiting.request.may_order_in and not board.has_slot(waiting):
            place_again(board, waiting)


class _Source:
    """Holds a pool that can grow, with its nodes not yet ordered."""

    def __init__(self, board: Board, number: int, supply: Supply) -> None:
        self.supply = supply
        self.comes_s = board.now_s + supply.lead_s
        members = members_of(board.capacity, number)
        self.left: Ints = np.array([node for node in members if board.node_ids[node] in supply.unordered], np.int64)
        self._gpus = {int(node): size.gpu_count for node, size in zip(members, board.pools[number].nodes, strict=True)}

    def could_hold(self, request: Request) -> bool:
        """Counts nodes already ordered too."""
        gpus = max(self._gpus.values(), default=0)
        return len(self.left) > 0 and request.node_count <= len(self._gpus) and request.gpus_per_node <= gpus

    def open(self, board: Board) -> None:
        board.reserve_steps(len(self.left))
        for node in self.left:
            board.capacity.gpu_counts[node] = self._gpus[int(node)]
            self._set(board, node, self.comes_s, FOREVER_S, -1)

    def shut(self, board: Board, taken: Ints, start_s: int) -> None:
        board.reserve_steps(len(self.left))
        for node in self.left:
            if node in taken:
                id_ = board.node_ids[node]
                self._set(board, node, self.comes_s, start_s, 1)
                board.closed[id_] = (*board.closed[id_], Window(board.now_s, start_s, order=id_))
            else:
                self._set(board, node, self.comes_s, FOREVER_S, 1)
                board.capacity.gpu_counts[node] = 0
        self.left = self.left[~np.isin(self.left, taken)]

    def _set(self, board: Board, node: int, start_s: int, end_s: int, sign: int) -> None:
        close_nodes(board.capacity, np.array([node], np.int64), self._gpus[int(node)], start_s, end_s, sign)


@dataclass(frozen=True, slots=True)
class _SupplyPlace:
    waiting: Waiting
    start_s: int
    places: Ints


def _assign_one(board: Board, expected: Mapping[str, Slot], barred: Set[str], sources: Mapping[str, _Source], only: str | None) -> bool:
    """Requests without any other place come first."""
    least_s = min(source.comes_s + source.supply.gain_s for source in sources.values())
    asked = board.order if only is None else [board.queue[only]]
    may = (waiting for waiting in asked if waiting.request.may_order_in and waiting.request.id not in barred)
    candidates = [waiting for waiting in may if (slot := expected.get(waiting.request.id)) is None or slot.start_s >= least_s]
    if not candidates:
        return False
    for source in sources.values():
        source.open(board)
    in_order = sorted(candidates, key=lambda waiting: waiting.request.id in expected)
    found = next(filter(None, (_place(board, waiting, expected, sources) for waiting in in_order)), None)
    for source in sources.values():
        source.shut(board, found.places if found is not None else NO_INTS, found.start_s if found is not None else NEVER_S)
    if found is None:
        return False
    if board.has_slot(found.waiting):
        board.remove_slot(found.waiting)
    board.place(found.waiting, found.start_s, found.places)
    found.waiting.promise_s = found.start_s
    return True


def _place(board: Board, waiting: Waiting, expected: Mapping[str, Slot], sources: Mapping[str, _Source]) -> _SupplyPlace | None:
    """Does not change the board."""
    request, without = waiting.request, expected.get(waiting.request.id)
    without_s = NEVER_S if without is None else without.start_s
    best: _SupplyPlace | None = None
    for id_ in request.may_order_in:
        source = sources.get(id_)
        if source is None or id_ not in request.pools or not source.could_hold(request):
            continue
        if without is not None and board.soonest_s(request) > source.comes_s:
            continue  # too early to order
        before_s = without_s - max(source.supply.gain_s, 1) + 1
        before_s = before_s if best is None else min(before_s, best.start_s)
        if max(board.soonest_s(request), source.comes_s) < before_s:
            found = _place_in(board, waiting, id_, before_s)
            best = best if found is None else _SupplyPlace(waiting, *found)
    return best


def _place_in(board: Board, waiting: Waiting, pool: str, before_s: int) -> tuple[int, Ints] | None:
    old = board.box(waiting) if board.has_slot(waiting) else None
    if old is not None:
        board.remove_slot(waiting)
    demand = board.demand(waiting.request, [board.pool_numbers[pool]])
    found = board.earliest(demand, board.soonest_s(waiting.request), before_s)
    places = None if found is None else board.choose(demand, found[1], found[0])
    if old is not None:
        board.place(waiting, old.start_s, old.places)
    return None if found is None or places is None else (found[0], places)
