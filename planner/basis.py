"""Finds which explanations may differ from those of the last plan, so that a tick makes only these anew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

from planner.board.board import Board
from planner.board.waiting import Turn
from planner.capacity.profile import FOREVER_S
from planner.sharing.evictions import evictions_possible
from planner.sharing.rights import Rights, borrows
from planner.snapshot import PlanPolicy, Pool, Quota, Request, Running, Slot, Snapshot, Window


class _Stay(NamedTuple):
    """Holds the nodes and the time that something takes. The parts of snapshots keep their objects while they do not change."""

    part: Request | Running
    slot: Slot | None  # of a request: where it is expected to start
    end_s: int  # of a box
    turn: Turn | None  # of a request
    borrows: bool

    def is_as(self, other: _Stay | None) -> bool:
        return other is not None and self.part is other.part and self[1:] == other[1:]

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.part.nodes if isinstance(self.part, Running) else self.slot.nodes if self.slot is not None else ()


@dataclass(frozen=True, slots=True)
class Basis:
    """Holds all that explanations of one plan rest on."""

    now_s: int
    until_s: int  # while nothing changes, no plan before then is another
    is_settled: bool  # nothing starts now or is at risk
    policy: PlanPolicy
    pools: tuple[Pool, ...]
    quotas: tuple[Quota, ...]
    parts: tuple[tuple[Running, ...], tuple[Request, ...]]
    closed: Mapping[str, tuple[Window, ...]]  # by node
    stays: Mapping[str, _Stay]

    @classmethod
    def of(cls, board: Board, expected: Mapping[str, Slot], rights: Rights, snapshot: Snapshot) -> Self:
        boxes = {box.id: _Stay(box, None, board.running[box.id].end_s, None, False) for box in snapshot.running if box.id in board.running}
        slots = ((waiting, expected.get(waiting.request.id)) for waiting in board.order)
        waiting = {
            each.request.id: _Stay(each.request, slot, 0, each.turn, slot is not None and borrows(board, rights, each.request, slot))
            for each, slot in slots
        }
        closed = {node: windows for node, windows in board.closed.items() if windows}
        is_settled = not any(each.risk for each in board.order) and all(slot.start_s > snapshot.now_s for slot in expected.values())
        bounds = snapshot.now_s, _until_s(board, expected, snapshot), is_settled
        parts = snapshot.running, snapshot.queue
        return cls(*bounds, snapshot.policy, snapshot.pools, snapshot.quotas, parts, closed, boxes | waiting)

    def holds_for(self, snapshot: Snapshot) -> bool:
        """Returns whether nothing has changed since that plan, and nothing was due."""
        is_same = self.is_settled and self.now_s <= snapshot.now_s < self.until_s and self.pools is snapshot.pools
        if not is_same or (self.policy, self.quotas) != (snapshot.policy, snapshot.quotas):
            return False
        if snapshot.has_freed or snapshot.moved is not None or snapshot.edited is not None:
            return False
        return self.parts == (snapshot.running, snapshot.queue)  # quick: what has not changed is the same object

    def differing(self, before: Basis, board: Board) -> set[str]:
        """Returns the ids of requests whose explanation, start or turn may differ from those of the plan `before`.

        A request is explained by what was on its nodes before it, by its predecessor, by what else its workspace runs, and where a limit
        holds for its workspace or project, by all that this one has.
        """
        if self.pools is not before.pools or (self.policy, self.quotas) != (before.policy, before.quotas):
            return set(board.queue)
        others = list(self._others(before))
        nodes = self._closed_otherwise(before).union(*(stay.nodes for stay in others))
        owners = {stay.part.slice for stay in others} - {""}
        owners |= {stay.part.project for stay in others} & {owner for owner, _ in board.most}
        changed = {stay.part.id for stay in others}
        return {
            id_
            for id_, waiting in board.queue.items()
            if waiting.risk or not changed.isdisjoint((id_, waiting.request.after)) or self._is_near(id_, nodes, owners, board)
        }

    def _closed_otherwise(self, before: Basis) -> set[str]:
        """Returns nodes whose windows are others now, or have ended since."""
        since_s, until_s = sorted((before.now_s, self.now_s))
        both = self.closed.keys() | before.closed.keys()
        return {
            node
            for node in both
            if (windows := self.closed.get(node)) is None
            or windows != before.closed.get(node)
            or any(since_s < window.end_s <= until_s for window in windows)
        }

    def _others(self, before: Basis) -> Iterator[_Stay]:
        for id_, stay in self.stays.items():
            was = before.stays.get(id_)
            if not stay.is_as(was):
                yield from (stay, was) if was is not None else (stay,)
        yield from (was for id_, was in before.stays.items() if id_ not in self.stays)

    def _is_near(self, id_: str, nodes: set[str], owners: set[str], board: Board) -> bool:
        stay = self.stays[id_]
        starts_now = stay.slot is not None and stay.slot.start_s <= board.now_s
        return starts_now or stay.part.slice in owners or stay.part.project in owners or not nodes.isdisjoint(stay.nodes)


def _until_s(board: Board, expected: Mapping[str, Slot], snapshot: Snapshot) -> int:
    # Time alone changes the plan when a start or an end is due or nodes close or open. While requests may take capacity from others, each
    # plan considers only some of them.
    now_s = snapshot.now_s
    if board.queue and evictions_possible(snapshot.policy, snapshot.quotas, board.evictor_count):
        return now_s
    times_s = [slot.start_s for slot in expected.values()] + [box.end_s for box in board.running.values()]
    times_s += [at_s for windows in board.closed.values() for window in windows for at_s in (window.start_s, window.end_s)]
    return min((at_s for at_s in times_s if at_s > now_s), default=FOREVER_S)
