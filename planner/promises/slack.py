"""Computes how much later than its earliest start a new request may be promised.

Without slack the queue is conservative backfill; with some it is nearly shortest-first; too much starves big boxes. Waits in two reference
queues without overtaking bound it.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from copy import copy
from typing import Final

from planner.board.board import Board
from planner.capacity.placement import Demand
from planner.capacity.profile import FOREVER_S, NEVER_S
from planner.promises.reference_queues import ReferenceQueues, reference_queues
from planner.snapshot import Arrival, Memory, Request, Shadow

# Size classes of work per doubling.
CLASSES_PER_DOUBLING: Final = 8
# Factor on the sums of booked and used time at each end of a box.
ENDS_FADING: Final = 0.999
# A new queue's arrivals are averaged over this time at least.
OBSERVED_LEAST_S: Final = 86_400


class SlackTracker:
    """It never changes the board."""

    def __init__(self, board: Board, memory: Memory, queues: ReferenceQueues | None = None) -> None:
        """Takes as `queues` those of this board and memory, if they exist. The tracker changes them."""
        self._board = board
        self._slack = board.policy.slack
        self._gpu_count = int(board.capacity.gpu_counts.sum())
        # The reference queues are built from these on first use: remembered boxes, and ids of requests with slots.
        self._initial = memory.shadows, self._slotted() if queues is None else set[str]()
        self._queues = queues
        self._is_stale = False
        self._promised_s, self._patient_s, self._summed_at_s = memory.promised_s, memory.patient_s, memory.summed_at_s
        self._ran_s, self._booked_s = memory.ran_s, memory.booked_s
        self._arrivals: deque[Arrival] = deque()
        self._work: dict[int, dict[int, int]] = defaultdict(_no_work)
        self._since_s: int | None = None
        for arrival in memory.arrivals:
            self._note(arrival)

    def build_queues(self) -> None:
        """Copies (`copy_for`) then share the work."""
        self._ensure_built()

    def copy_for(self, board: Board) -> SlackTracker:
        twin = copy(self)
        twin._board, twin._arrivals = board, deque(self._arrivals)
        twin._queues = None if self._queues is None else self._queues.copy()
        twin._work = defaultdict(_no_work, {priority: classes.copy() for priority, classes in self._work.items()})
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
        queues = self._ensure_built()
        patient_s, strict_s = queues.put(request, demand, since_s, self._board.now_s)
        if wait_s == 0:
            return earliest_s, queues.shadow(self._board, request.id)
        slack = self._slack
        busy = min(busy, slack.busy_most)
        extra_s = slack.of_wait * wait_s * busy / (1 - busy) + slack.of_length * request.length_s * self._budget()
        is_big = gpu_s >= slack.big_gpus * request.length_s
        most_s = slack.most_of_strict * self._used_share * (strict_s - since_s) if is_big else slack.most_of_patient * (patient_s - since_s)
        return earliest_s + int(max(min(extra_s, most_s - wait_s), 0.0)), queues.shadow(self._board, request.id)

    def record_promise(self, request: Request, promise_s: int) -> None:
        since_s = self._board.soonest_s(request)
        # A clock that is set back must not make the sums grow.
        fading = math.exp(-max(self._board.now_s - self._summed_at_s, 0) / self._slack.remembered_s)
        known = None if self._queues is None else self._queues.boxes.get(request.id)
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
        self._ensure_built().shorten(request_id, ran_s, self._board.now_s)

    @property
    def _used_share(self) -> float:
        return min(self._ran_s / self._booked_s, 1.0) if self._booked_s > 0 else 1.0

    def _ensure_built(self) -> ReferenceQueues:
        if self._is_stale:  # while no request waits, none can be overtaken: the queues equal what runs
            self._queues = reference_queues(self._board, (), self._slotted())
        elif self._queues is None:
            self._queues = reference_queues(self._board, *self._initial)
        self._is_stale = False
        return self._queues

    def _slotted(self) -> set[str]:
        return {waiting.request.id for waiting in self._board.order if self._board.has_slot(waiting)}

    def _budget(self) -> float:
        """Returns a budget from 1 (promises beat conservative backfill by a margin) to 0 (worse)."""
        if self._patient_s <= 0:
            return 0.0
        better = (self._patient_s - self._promised_s) / (self._slack.budget_share * self._patient_s)
        return min(max(better, 0.0), 1.0)

    def _overtaking(self, priority: int, gpu_s: int) -> float:
        """Returns the share of all GPUs that recent overtaking arrivals need: higher priority, or less work at the same."""
        now_s, observed_s = self._board.now_s, self._slack.observed_s
        while self._arrivals and self._arrivals[0].at_s < now_s - observed_s:
            gone = self._arrivals.popleft()
            self._work[gone.priority][size_class(gone.gpu_s)] -= gone.gpu_s + gone.more_gpu_s
        if self._since_s is None or not self._gpu_count:
            return 0.0
        own = size_class(gpu_s)
        higher = sum(sum(classes.values()) for level, classes in self._work.items() if level > priority)
        same = sum(work for class_, work in self._work[priority].items() if class_ < own)
        since_s = min(observed_s, max(now_s - self._since_s, OBSERVED_LEAST_S))
        return (higher + same) / since_s / self._gpu_count

    def _note(self, arrival: Arrival) -> None:
        self._arrivals.append(arrival)
        self._work[arrival.priority][size_class(arrival.gpu_s)] += arrival.gpu_s + arrival.more_gpu_s
        if self._since_s is None:
            self._since_s = arrival.at_s


def find_new_place(board: Board, tracker: SlackTracker | None, request: Request) -> tuple[tuple[int, int] | None, Shadow | None]:
    """Return (start, pool) beside all slots, and the shadow to remember.

    Returns None if it can never fit, or not at its booked time, or its predecessor has no place.
    """
    if board.opens_s(request) >= FOREVER_S:
        return None, None
    demand = board.demand(request)
    before_s = request.earliest_start_s + 1 if request.is_fixed else NEVER_S
    found = board.earliest(demand, board.soonest_s(request), before_s)
    if found is None or tracker is None or request.is_fixed:
        return found, None
    bound_s, shadow = tracker.promise(request, demand, found[0])
    found = board.earliest(demand, bound_s) or found
    tracker.record_promise(request, found[0])
    return found, shadow


def size_class(gpu_s: int) -> int:
    return int(math.log2(max(gpu_s, 1)) * CLASSES_PER_DOUBLING)


def _no_work() -> dict[int, int]:
    return defaultdict(int)
