"""Finds a spare: a node for a running box that replaces one of its nodes until the box ends.

A spare is free beside all slots: it delays no promise and evicts no box.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from planner.board.board import Board
from planner.board.demands import LEVELS
from planner.capacity.profile import NONE
from planner.engine import place_newcomers, plan
from planner.plan import Harm, harm_of
from planner.promises.repair import board_of
from planner.snapshot import Request, Running, Snapshot, Within

# Nodes tried; each costs a plan.
TRIED_MOST: Final = 4


class NoSpareReason(StrEnum):
    NONE_FREE = "none_free"  # no node of its kind has room until the end of the box
    NOT_NEAR = "not_near"  # none of those that have is near enough to the others
    PROMISED = "promised"  # those that have are promised to others before its end
    WOULD_EVICT = "would_evict"  # with less left for those who are entitled somebody would be evicted


@dataclass(frozen=True, slots=True)
class SpareRequest:
    box: str  # id of the running box
    leaving: str  # the node to replace
    pools: tuple[str, ...]
    gpu_count: int  # the least that the spare must have
    within: Within = Within.ANY  # for all nodes of the box
    barred: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SpareAnswer:
    node: str = ""  # empty: see `why`
    why: NoSpareReason | None = None


def spare_for(snapshot: Snapshot, wanted: SpareRequest) -> SpareAnswer:
    """Choose, of the nodes that harm no other, the one nearest to the others of the box that leaves the fewest parts of nodes.

    Cost: up to 1 + TRIED_MOST plans.
    """
    box = next((running for running in snapshot.running if running.id == wanted.box), None)
    if box is None or box.end_s <= snapshot.now_s:
        return SpareAnswer(why=NoSpareReason.NONE_FREE)
    board, newcomers = board_of(snapshot)
    place_newcomers(board, newcomers, snapshot)
    search = _SpareSearch(board, box, wanted)
    found = search.nodes()
    if not found:
        return SpareAnswer(why=_why_none(snapshot, box, wanted))
    before, harm = plan(snapshot), Harm.LATE
    for node in found[:TRIED_MOST]:
        worst = harm_of(before, plan(with_spare_node(snapshot, box, node)))
        if worst is None:
            return SpareAnswer(node)
        harm = worst
    return SpareAnswer(why=NoSpareReason.PROMISED if harm == Harm.LATE else NoSpareReason.WOULD_EVICT)


def with_spare_node(snapshot: Snapshot, box: Running, node: str) -> Snapshot:
    larger = replace(box, nodes=(*box.nodes, node), uncounted=(*box.uncounted, node))
    return replace(snapshot, running=tuple(larger if running.id == box.id else running for running in snapshot.running))


def _why_none(snapshot: Snapshot, box: Running, wanted: SpareRequest) -> NoSpareReason:
    """Try again without a queue, then without the topology constraint."""
    board, _ = board_of(replace(snapshot, queue=()))
    if _SpareSearch(board, box, wanted).nodes():
        return NoSpareReason.PROMISED
    anywhere = replace(wanted, within=Within.ANY)
    return NoSpareReason.NOT_NEAR if wanted.within and _SpareSearch(board, box, anywhere).nodes() else NoSpareReason.NONE_FREE


class _SpareSearch:
    def __init__(self, board: Board, box: Running, wanted: SpareRequest) -> None:
        self._board, self._wanted = board, wanted
        self._own = {board.node_numbers[node] for node in box.nodes if node in board.node_numbers}
        self._staying = self._own - {board.node_numbers.get(wanted.leaving, NONE)}
        self._demand = board.demand(_request(box, wanted, board.now_s))

    def nodes(self) -> list[str]:
        """The best node is first."""
        fits = ((node, self._board.fit(node, self._demand, self._board.now_s)) for node in self._eligible())
        found = sorted((*self._farness(node), *fit, node) for node, fit in fits if fit is not None)
        return [self._board.node_ids[node] for *_, node in found]

    def _eligible(self) -> Iterator[int]:
        pools = {self._board.pool_numbers[id_] for id_ in self._wanted.pools if id_ in self._board.pool_numbers}
        numbers = self._board.node_numbers
        barred = self._own | {numbers[id_] for id_ in self._wanted.barred if id_ in numbers}
        capacity = self._board.capacity
        for node, pool in enumerate(capacity.pool_of):
            is_large = capacity.gpu_counts[node] >= self._wanted.gpu_count
            if int(pool) in pools and node not in barred and is_large and self._is_near(node):
                yield node

    def _is_near(self, node: int) -> bool:
        level = LEVELS[self._wanted.within]
        return level == NONE or not self._staying or self._shares(level, node)

    def _farness(self, node: int) -> tuple[bool, ...]:
        return tuple(bool(self._staying) and not self._shares(level, node) for level in range(len(self._board.capacity.domain_counts)))

    def _shares(self, level: int, node: int) -> bool:
        domain_of = self._board.capacity.domain_of[level]
        return domain_of[node] != NONE and all(domain_of[other] == domain_of[node] for other in self._staying)


def _request(box: Running, wanted: SpareRequest, now_s: int) -> Request:
    """It has no owner, so that no quota limits it."""
    return Request(
        id=f"spare of {box.id}",
        slice="",
        project="",
        priority=box.priority,
        rank=0,
        node_count=1,
        gpus_per_node=box.gpus_per_node,
        length_s=box.end_s - now_s,
        pools=wanted.pools,
    )
