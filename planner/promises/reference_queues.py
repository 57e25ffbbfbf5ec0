"""Keeps two queues without overtaking: conservative backfill ("patient") and strict order of turn ("strict").

Each has its own capacity profile without limits, which holds all boxes of the board. slack.py uses them to bound how long a new request may
wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass

import numpy as np

from planner.board.board import Board, Box
from planner.board.empty import capacity_of
from planner.capacity.placement import (
    NO_LIMITS,
    Capacity,
    Demand,
    boxes_of,
    copy_capacity,
    place_earliest,
    take,
    take_all,
    unlimited_demand,
)
from planner.capacity.profile import Ints, forget_all_before, with_unused_steps
from planner.snapshot import Request, Shadow


@dataclass(frozen=True, slots=True)
class QueuedBox:
    places: Ints
    gpus: int
    start_s: int
    end_s: int


BoxPair = tuple[QueuedBox, QueuedBox]  # in the patient and in the strict queue


class ReferenceQueues:
    def __init__(self, board: Board) -> None:
        self.boxes: dict[str, BoxPair] = {}
        self._capacities = [capacity_of(board.pools, board.now_s) for _ in range(2)]
        self._strict_s = board.now_s  # no newcomer starts earlier in the strict queue

    def copy(self) -> ReferenceQueues:
        twin = object.__new__(ReferenceQueues)
        twin.boxes, twin._strict_s = dict(self.boxes), self._strict_s
        twin._capacities = [copy_capacity(capacity) for capacity in self._capacities]
        return twin

    def add(self, boxes: Mapping[str, BoxPair]) -> None:
        for number in range(2):
            added = [pair[number] for pair in boxes.values()]
            none = np.empty((len(added), 0), np.int64)
            times_s = [(box.start_s, box.end_s) for box in added]
            taken = boxes_of([box.places for box in added], [box.gpus for box in added], times_s, none, none)
            take_all(self._with_unused_steps(number, len(taken.places)), taken)
        self.boxes.update(boxes)

    def remove(self, ids: Iterable[str]) -> None:
        for id_ in ids:
            for number, box in enumerate(self.boxes.pop(id_)):
                self._free(number, box, box.start_s)

    def shorten(self, id_: str, ran_s: int, now_s: int) -> None:
        for number, box in enumerate(self.boxes.pop(id_, ())):
            free_s = max(now_s, box.start_s + ran_s)
            if free_s < box.end_s:
                self._free(number, box, free_s)

    def put(self, request: Request, demand: Demand, since_s: int, now_s: int) -> tuple[int, int]:
        """Return its starts in both queues."""
        bare = demand._replace(limits=NO_LIMITS, amounts=NO_LIMITS)
        made = []
        for number, from_s in enumerate((since_s, max(since_s, self._strict_s))):
            start_s, _, places = place_earliest(self._with_unused_steps(number, bare.nodes), bare, from_s, now_s)
            made.append(QueuedBox(places, request.gpus_per_node, start_s, start_s + request.length_s))
        self.boxes[request.id] = (made[0], made[1])
        self._strict_s = made[1].start_s
        return made[0].start_s, made[1].start_s

    def advance(self, now_s: int, last_s: int) -> None:
        """`last_s`: see `last_strict_s`; newcomers start no earlier in the strict queue."""
        for capacity in self._capacities:
            forget_all_before(capacity.nodes, now_s)
        self._strict_s = max(last_s, now_s)

    def shadow(self, board: Board, id_: str) -> Shadow:
        patient, strict = self.boxes[id_]
        slots = [board.slot_at(box.places, box.start_s) for box in (patient, strict)]
        return Shadow(id_, patient.gpus, slots[0], patient.end_s, slots[1], strict.end_s)

    def _free(self, number: int, box: QueuedBox, since_s: int) -> None:
        capacity = self._with_unused_steps(number, len(box.places))
        take(capacity, box.places, unlimited_demand(len(box.places), box.gpus, box.end_s - since_s), since_s, box.end_s, -1)

    def _with_unused_steps(self, number: int, node_count: int) -> Capacity:
        capacity = self._capacities[number]
        capacity = self._capacities[number] = capacity._replace(nodes=with_unused_steps(capacity.nodes, 2 * node_count + 2))
        return capacity


def reference_queues(board: Board, shadows: Iterable[Shadow], slotted: Set[str]) -> ReferenceQueues:
    """Boxes and `slotted` requests without a shadow, which came when no other waited, are added as they are."""
    queues, shadows = ReferenceQueues(board), tuple(shadows)
    queues.add({shadow.id: remembered_box(board, shadow) for shadow in shadows})
    queues.advance(board.now_s, last_strict_s(shadows))
    unknown = {id_: box for id_, box in _boxes(board, slotted) if id_ not in queues.boxes}
    queues.add({id_: box_of_board(box) for id_, box in unknown.items()})
    return queues


def last_strict_s(shadows: Iterable[Shadow]) -> int:
    """Returns their last start in the strict queue; 0 for none."""
    return max((shadow.strict.start_s for shadow in shadows), default=0)


def remembered_box(board: Board, shadow: Shadow) -> BoxPair:
    return (
        QueuedBox(_known(board, shadow.patient.nodes), shadow.gpus_per_node, shadow.patient.start_s, shadow.patient_end_s),
        QueuedBox(_known(board, shadow.strict.nodes), shadow.gpus_per_node, shadow.strict.start_s, shadow.strict_end_s),
    )


def box_of_board(box: Box) -> BoxPair:
    made = QueuedBox(box.places, box.demand.gpus, box.start_s, box.end_s)
    return made, made


def _boxes(board: Board, slotted: Set[str]) -> Iterator[tuple[str, Box]]:
    yield from board.running.items()
    yield from ((waiting.request.id, board.box(waiting)) for waiting in board.order if waiting.request.id in slotted)


def _known(board: Board, nodes: Iterable[str]) -> Ints:
    return board.places([node for node in nodes if node in board.node_numbers])
