"""Compute the slack of a new request: how much later than its earliest start it may be promised.

Promising the earliest start would make the queue conservative backfill. Some slack makes it nearly shortest-first; too much would starve
big boxes. It is bounded by the waits in two reference queues that nobody overtakes: conservative backfill ("patient") and strict turn order
("strict").
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence, Set
from copy import copy
from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.board.board import Board
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
from planner.capacity.profile import NEVER_S, Ints, with_unused_steps
from planner.snapshot import Arrival, Memory, Request, Shadow

# Size classes of work per doubling.
CLASSES_PER_DOUBLING: Final = 8
# Factor on the sums of booked and used time at each end of a box.
ENDS_FADING: Final = 0.999
# A new queue's arrivals are averaged over this time at least.
OBSERVED_LEAST_S: Final = 86_400


@dataclass(slots=True)
class _ReferenceQueue:
    """A reference queue: its own capacity profile, no limits."""

    capacity: Capacity

    def put(self, demand: Demand, since_s: int, now_s: int) -> tuple[int, Ints]:
        self._spare(demand.nodes)
        start_s, _, places = place_earliest(self.capacity, demand, since_s, now_s)
        return start_s, places

    def put_back(self, entries: Sequence[_QueuedBox]) -> None:
        times_s = [(entry.start_s, entry.end_s) for entry in entries]
        none = np.empty((len(entries), 0), np.int64)
        boxes = boxes_of([entry.places for entry in entries], [entry.gpus for entry in entries], times_s, none, none)
        self._spare(len(boxes.places))
        take_all(self.capacity, boxes)

    def free(self, entry: _QueuedBox, since_s: int) -> None:
        self._spare(len(entry.places))
        take(self.capacity, entry.places, unlimited_demand(len(entry.places), entry.gpus, entry.end_s - since_s), since_s, entry.end_s, -1)

    def copy(self) -> _ReferenceQueue:
        return _ReferenceQueue(copy_capacity(self.capacity))

    def _spare(self, node_count: int) -> None:
        self.capacity = self.capacity._replace(nodes=with_unused_steps(self.capacity.nodes, 2 * node_count + 2))


@dataclass(frozen=True, slots=True)
class _QueuedBox:
    places: Ints
    gpus: int
    start_s: int
    end_s: int


class SlackTracker:
    """Never changes the board."""

    def __init__(self, board: Board, memory: Memory) -> None:
        self._board = board
        self._slack = board.policy.slack
        self._gpu_count = int(board.capacity.gpu_counts.sum())
        # What the reference queues are built from on first use: remembered boxes, and ids of requests with slots.
        self._initial: tuple[tuple[Shadow, ...], set[str]] | None = memory.shadows, self._slotted()
        self._entries: dict[str, tuple[_QueuedBox, _QueuedBox]] = {}
        self._is_stale = False
        self._promised_s, self._patient_s, self._summed_at_s = memory.promised_s, memory.patient_s, memory.summed_at_s
        self._ran_s, self._booked_s = memory.ran_s, memory.booked_s
        self._arrivals: deque[Arrival] = deque()
        self._work: dict[int, dict[int, int]] = defaultdict(_no_work)
        self._since_s: int | None = None
        for arrival in memory.arrivals:
            self._note(arrival)

    def build_queues(self) -> None:
        """Build the reference queues now, so that copies (`copy_for`) share the work."""
        self._ensure_built()

    def copy_for(self, board: Board) -> SlackTracker:
        twin = copy(self)
        twin._board, twin._entries, twin._arrivals = board, dict(self._entries), deque(self._arrivals)
        twin._work = defaultdict(_no_work, {priority: classes.copy() for priority, classes in self._work.items()})
        twin._patient, twin._strict = self._patient.copy(), self._strict.copy()
        return twin

    def promise(self, request: Request, demand: Demand, earliest_s: int) -> tuple[int, Shadow | None]:
        """Return the latest start to promise, and the shadow to remember. `earliest_s`: the first start beside all slots."""
        gpu_s = self._board.gpu_s(request)
        busy = self._overtaking(request.priority, gpu_s)
        self._note(Arrival(self._board.now_s, request.priority, gpu_s))
        since_s = self._board.soonest_s(request)
        wait_s = earliest_s - since_s
        if self._board.nobody_waits:
            self._is_stale = True
            if wait_s == 0:
                return earliest_s, None
        self._ensure_built()
        patient_s, strict_s = self._put(request, demand, since_s)
        if wait_s == 0:
            return earliest_s, self._shadow(request.id)
        slack = self._slack
        busy = min(busy, slack.busy_most)
        extra_s = slack.of_wait * wait_s * busy / (1 - busy) + slack.of_length * request.length_s * self._budget()
        is_big = gpu_s >= slack.big_gpus * request.length_s
        most_s = slack.most_of_strict * self._used_share * (strict_s - since_s) if is_big else slack.most_of_patient * (patient_s - since_s)
        return earliest_s + int(max(min(extra_s, most_s - wait_s), 0.0)), self._shadow(request.id)

    def record_promise(self, request: Request, promise_s: int) -> None:
        since_s = self._board.soonest_s(request)
        # A clock that is set back must not make the sums grow.
        fading = math.exp(-max(self._board.now_s - self._summed_at_s, 0) / self._slack.remembered_s)
        known = self._entries.get(request.id)
        patient_s = since_s if known is None else known[0].start_s
        self._promised_s = self._promised_s * fading + promise_s - since_s
        self._patient_s = self._patient_s * fading + patient_s - since_s
        self._summed_at_s = self._board.now_s

    @property
    def sums(self) -> tuple[float, float, int]:
        return self._promised_s, self._patient_s, self._summed_at_s

    def box_ended(self, request_id: str, ran_s: int, booked_s: int) -> None:
        self._ran_s = self._ran_s * ENDS_FADING + ran_s
        self._booked_s = self._booked_s * ENDS_FADING + booked_s
        if self._is_stale:
            return  # the queues will be rebuilt without it
        self._ensure_built()
        known = self._entries.pop(request_id, None)
        if known is None:
            return
        for queue, entry in zip((self._patient, self._strict), known, strict=True):
            free_s = max(self._board.now_s, entry.start_s + ran_s)
            if free_s < entry.end_s:
                queue.free(entry, free_s)

    @property
    def _used_share(self) -> float:
        """The fraction of booked time that recent boxes used."""
        return min(self._ran_s / self._booked_s, 1.0) if self._booked_s > 0 else 1.0

    def _build(self, shadows: tuple[Shadow, ...], slotted: Set[str]) -> None:
        self._patient = _ReferenceQueue(capacity_of(self._board.pools, self._board.now_s))
        self._strict = _ReferenceQueue(capacity_of(self._board.pools, self._board.now_s))
        self._strict_s = self._board.now_s
        self._entries = {}
        self._add_remembered(shadows)
        self._add_unknown(slotted)
        self._initial, self._is_stale = None, False

    def _ensure_built(self) -> None:
        if self._is_stale:  # while nobody waits, nobody can be overtaken: the queues are what really runs
            self._build((), self._slotted())
        elif self._initial is not None:
            self._build(*self._initial)

    def _slotted(self) -> set[str]:
        return {waiting.request.id for waiting in self._board.order if self._board.has_slot(waiting)}

    def _add_unknown(self, slotted: Set[str]) -> None:
        """Add boxes that have no shadow, because they came when nobody waited."""
        board, boxes = self._board, [box for box in self._board.running.values() if box.id not in self._entries]
        unknown = slotted - self._entries.keys()
        boxes += [board.box(waiting) for waiting in board.order if waiting.request.id in unknown]
        entries = {box.id: _QueuedBox(box.places, box.demand.gpus, box.start_s, box.end_s) for box in boxes}
        self._enter({id_: (entry, entry) for id_, entry in entries.items()})

    def _enter(self, entries: Mapping[str, tuple[_QueuedBox, _QueuedBox]]) -> None:
        for number, queue in enumerate((self._patient, self._strict)):
            queue.put_back([pair[number] for pair in entries.values()])
        self._entries.update(entries)

    def _put(self, request: Request, demand: Demand, since_s: int) -> tuple[int, int]:
        bare = demand._replace(limits=NO_LIMITS, amounts=NO_LIMITS)
        entries = []
        for queue, from_s in ((self._patient, since_s), (self._strict, max(since_s, self._strict_s))):
            start_s, places = queue.put(bare, from_s, self._board.now_s)
            entries.append(_QueuedBox(places, request.gpus_per_node, start_s, start_s + request.length_s))
        self._entries[request.id] = (entries[0], entries[1])
        self._strict_s = entries[1].start_s
        return entries[0].start_s, entries[1].start_s

    def _budget(self) -> float:
        """From 1 (promises beat conservative backfill by a margin) to 0 (worse)."""
        if self._patient_s <= 0:
            return 0.0
        better = (self._patient_s - self._promised_s) / (self._slack.budget_share * self._patient_s)
        return min(max(better, 0.0), 1.0)

    def _overtaking(self, priority: int, gpu_s: int) -> float:
        """The share of all GPUs that recent overtaking arrivals need: higher priority, or less work at the same."""
        now_s, observed_s = self._board.now_s, self._slack.observed_s
        while self._arrivals and self._arrivals[0].at_s < now_s - observed_s:
            gone = self._arrivals.popleft()
            self._work[gone.priority][_class_of(gone.gpu_s)] -= gone.gpu_s * gone.count
        if self._since_s is None or not self._gpu_count:
            return 0.0
        own = _class_of(gpu_s)
        higher = sum(sum(classes.values()) for level, classes in self._work.items() if level > priority)
        same = sum(work for class_, work in self._work[priority].items() if class_ < own)
        since_s = min(observed_s, max(now_s - self._since_s, OBSERVED_LEAST_S))
        return (higher + same) / since_s / self._gpu_count

    def _note(self, arrival: Arrival) -> None:
        self._arrivals.append(arrival)
        self._work[arrival.priority][_class_of(arrival.gpu_s)] += arrival.gpu_s * arrival.count
        if self._since_s is None:
            self._since_s = arrival.at_s

    def _add_remembered(self, shadows: Iterable[Shadow]) -> None:
        entries = {}
        for shadow in shadows:
            slots = (shadow.patient, shadow.patient_end_s), (shadow.strict, shadow.strict_end_s)
            patient, strict = (_QueuedBox(self._known(slot.nodes), shadow.gpus_per_node, slot.start_s, end_s) for slot, end_s in slots)
            entries[shadow.id] = patient, strict
            self._strict_s = max(self._strict_s, shadow.strict.start_s)
        self._enter(entries)

    def _known(self, nodes: Iterable[str]) -> Ints:
        return self._board.places([node for node in nodes if node in self._board.node_numbers])

    def _shadow(self, request_id: str) -> Shadow:
        patient, strict = self._entries[request_id]
        slots = [self._board.slot_at(entry.places, entry.start_s) for entry in (patient, strict)]
        return Shadow(request_id, patient.gpus, slots[0], patient.end_s, slots[1], strict.end_s)


def find_new_place(board: Board, tracker: SlackTracker | None, request: Request) -> tuple[tuple[int, int] | None, Shadow | None]:
    """Return (start, pool) beside all slots, and the shadow to remember. None: it can never fit, or not at its booked time."""
    demand = board.demand(request)
    before_s = request.earliest_start_s + 1 if request.is_fixed else NEVER_S
    found = board.earliest(demand, board.soonest_s(request), before_s)
    if found is None or tracker is None or request.is_fixed:
        return found, None
    bound_s, shadow = tracker.promise(request, demand, found[0])
    found = board.earliest(demand, bound_s) or found
    tracker.record_promise(request, found[0])
    return found, shadow


def _no_work() -> dict[int, int]:
    return defaultdict(int)


def _class_of(gpu_s: int) -> int:
    return int(math.log2(max(gpu_s, 1)) * CLASSES_PER_DOUBLING)
