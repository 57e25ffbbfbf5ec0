"""Finds which explanations may differ from those of the last plan, so that a tick makes only these anew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

from planner.board.board import Board
from planner.board.waiting import Turn
from planner.snapshot import Policy, Pool, Request, Running, Slot, Snapshot


class _Stay(NamedTuple):
    """Where something is or will be. The parts of snapshots keep their objects while they do not change."""

    part: Request | Running
    slot: Slot | None  # of a request: where it is expected to start
    end_s: int  # of a box
    turn: Turn | None  # of a request

    def is_as(self, other: _Stay | None) -> bool:
        return other is not None and self.part is other.part and self[1:] == other[1:]

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.part.nodes if isinstance(self.part, Running) else self.slot.nodes if self.slot is not None else ()


@dataclass(frozen=True, slots=True)
class Basis:
    """All that explanations of one plan rest on, if it has no quotas and can order no nodes."""

    policy: Policy
    pools: tuple[Pool, ...]
    stays: Mapping[str, _Stay]

    @classmethod
    def of(cls, board: Board, expected: Mapping[str, Slot], snapshot: Snapshot) -> Self:
        boxes = {box.id: _Stay(box, None, board.running[box.id].end_s, None) for box in snapshot.running if box.id in board.running}
        waiting = {waiting.request.id: _Stay(waiting.request, expected.get(waiting.request.id), 0, waiting.turn) for waiting in board.order}
        return cls(snapshot.policy, snapshot.pools, boxes | waiting)

    def differing(self, before: Basis, board: Board) -> set[str]:
        """Returns the ids of requests whose explanation, start or turn may differ from those of the plan `before`.

        A request is explained by what was on its nodes before it, and by what else its workspace runs.
        """
        if self.pools is not before.pools or self.policy != before.policy:
            return set(board.queue)
        closed = {node for node, windows in board.closed.items() if windows}
        others = list(self._others(before, board))
        nodes = closed.union(*(stay.nodes for stay in others))
        slices = {stay.part.slice for stay in others} - {""}
        changed = {stay.part.id for stay in others}
        return {id_ for id_, waiting in board.queue.items() if waiting.risk or id_ in changed or self._is_near(id_, nodes, slices, board)}

    def _others(self, before: Basis, board: Board) -> Iterator[_Stay]:
        for id_, stay in self.stays.items():
            was = before.stays.get(id_)
            if id_ in board.overdue or not stay.is_as(was):
                yield from (stay, was) if was is not None else (stay,)
        yield from (was for id_, was in before.stays.items() if id_ not in self.stays)

    def _is_near(self, id_: str, nodes: set[str], slices: set[str], board: Board) -> bool:
        stay = self.stays[id_]
        starts_now = stay.slot is not None and stay.slot.start_s <= board.now_s
        return starts_now or stay.part.slice in slices or not nodes.isdisjoint(stay.nodes)
