"""Holds the planner's working state: which boxes run, which requests wait, and their slots.

Lives here: the mapping of ids to numbers, and the memory of the compiled passes. Must not live here: which slots move (scheduling.py,
planner.promises).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from copy import copy
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from sortedcontainers import SortedKeyList

from planner.board import scheduling
from planner.board.course import NO_COURSE, Course
from planner.board.demands import DemandClass, Demands, Group
from planner.board.empty import LIMITS_MOST, capacity_of, clamp_s, new_table
from planner.board.scheduling import Chains
from planner.board.table import EMPTY, HAS_SLOT, NO_SLOT, Table, demand_of, places_of, put_slot, remove_slots, restore_slots
from planner.board.waiting import Turn, Waiting, in_chains, turn_of
from planner.capacity.free_now import FreeNow
from planner.capacity.placement import (
    NO_INTS,
    OF_SLICE,
    Capacity,
    Demand,
    boxes_of,
    choose,
    copy_capacity,
    earliest,
    earliest_on,
    gpus_needed,
    has_room_at,
    latest,
    take,
    take_all,
)
from planner.capacity.profile import (
    FOREVER_S,
    NEVER_S,
    NONE,
    Bools,
    Ints,
    forget_all_before,
    forget_before,
    free_until,
    least_free,
    with_more_profiles,
    with_unused_steps,
)
from planner.snapshot import PlanPolicy, PolicyName, Pool, Quota, Request, Running, Slot, Window

ROWS_AT_FIRST = 64
FEW = 8


@dataclass(frozen=True, slots=True)
class Box:
    """`start_s` is never in the past; `began_s` is the true start of a running box."""

    id: str
    slice: str
    project: str
    priority: int
    places: Ints  # numbers of its nodes
    demand: Demand
    start_s: int
    end_s: int
    began_s: int
    evictable: bool
    is_open: bool
    counted: Ints  # those that quotas count: `places` without stand-ins


@dataclass(frozen=True, slots=True)
class Started:
    request: Request
    slot: Slot
    promise_s: int


class _StoredSlots(NamedTuple):
    state: Ints
    slot_s: Ints
    first_place: Ints
    places: Ints


class Board:
    def __init__(self, pools: tuple[Pool, ...], *, now_s: int, policy: PlanPolicy, quotas: tuple[Quota, ...] = ()) -> None:
        self.now_s = now_s
        self.policy = policy
        self.pools = pools
        self._demands = Demands(pools, quotas)
        self._guaranteed = {quota.owner for quota in quotas if quota.guaranteed > 0}
        self.pool_numbers, self.most = self._demands.pool_numbers, self._demands.most
        self.node_ids = [node.id for pool in pools for node in pool.nodes]
        self.node_numbers = {id_: number for number, id_ in enumerate(self.node_ids)}
        self.closed: dict[str, tuple[Window, ...]] = {node.id: node.closed for pool in pools for node in pool.nodes}
        self.is_heard = not any(window.unheard for closed in self.closed.values() for window in closed)
        self.capacity = capacity_of(pools, now_s)
        self.running: dict[str, Box] = {}
        self._running_on: dict[int, tuple[str, ...]] = {}  # ids of boxes by node
        self.overdue: set[str] = set()
        self.queue: dict[str, Waiting] = {}
        self.order: SortedKeyList[Waiting] = SortedKeyList(key=turn_of)
        self.evictor_count = 0  # waiting requests that may evict
        self._followers: set[str] = set()  # ids of waiting requests that start after another
        self._at_row: dict[int, Waiting] = {}
        self._free_now: FreeNow | None = None
        self._table = new_table(ROWS_AT_FIRST, len(pools))
        self._unused = list(range(ROWS_AT_FIRST - 1, -1, -1))
        self._stored = _StoredSlots(NO_INTS, NO_INTS, NO_INTS, NO_INTS)
        self._place_count = 0
        self._order: Ints | None = NO_INTS

    def copy(self) -> Board:
        twin = copy(self)
        twin._demands = self._demands.copy()
        # A trial gives ordered nodes GPUs and removes their closures.
        twin.capacity, twin.closed = copy_capacity(self.capacity)._replace(gpu_counts=self.capacity.gpu_counts.copy()), dict(self.closed)
        twin.running, twin.overdue, twin._followers = dict(self.running), set(self.overdue), set(self._followers)
        twin._running_on = dict(self._running_on)
        waitings = [waiting.copy() for waiting in self.order]
        twin.order = SortedKeyList(waitings, key=turn_of)
        twin.queue = {waiting.request.id: waiting for waiting in waitings}
        twin._at_row = {waiting.row: waiting for waiting in waitings}
        twin._table, twin._unused, twin._free_now = Table._make(column.copy() for column in self._table), list(self._unused), None
        return twin

    def advance(self, now_s: int) -> None:
        self.now_s = now_s
        forget_all_before(self.capacity.nodes, now_s)
        forget_all_before(self.capacity.limits, now_s)

    # Running boxes.

    def add_running(self, running: Running) -> None:
        """Adds a box. An overdue box is expected to end at the next multiple of the grace after its end."""
        self.add_all_running([running])

    def add_all_running(self, boxes: Sequence[Running]) -> None:
        made = [self._box_of(running) for running in boxes]
        self._add_limits()
        limits = np.array([box.demand.limits[0] for box in made], np.int64).reshape(-1, LIMITS_MOST)
        amounts = np.array([box.demand.amounts[0] for box in made], np.int64).reshape(-1, LIMITS_MOST)
        times_s = [(box.start_s, box.end_s) for box in made]
        taken = boxes_of([box.places for box in made], [box.demand.gpus for box in made], times_s, limits, amounts)
        self.reserve_steps(len(taken.places), len(made))
        take_all(self.capacity, taken)
        for box in made:
            self._run(box)

    def release(self, box_id: str) -> bool:
        """Ends the box and returns whether it was booked for longer."""
        box = self.running.pop(box_id)
        self.overdue.discard(box_id)
        for node in box.places.tolist():
            self._running_on[node] = tuple(id_ for id_ in self._running_on[node] if id_ != box_id)
        self.reserve_steps(len(box.places))
        take(self.capacity, box.places, box.demand, max(self.now_s, box.start_s), box.end_s, -1)
        for node in box.places:
            forget_before(self.capacity.nodes, node, self.now_s)
        return box.end_s > self.now_s

    def set_end(self, box_id: str, end_s: int) -> None:
        box = self.running[box_id]
        self.reserve_steps(len(box.places))
        take(self.capacity, box.places, box.demand, min(end_s, box.end_s), max(end_s, box.end_s), 1 if end_s > box.end_s else -1)
        self.running[box_id] = replace(box, end_s=end_s)

    def running_on(self, nodes: Iterable[str]) -> set[str]:
        """Returns the ids of the boxes there."""
        return {id_ for node in nodes for id_ in self._running_on.get(self.node_numbers[node], ())}

    def pool_at(self, places: Ints) -> int | None:
        return int(self.capacity.pool_of[places[0]]) if len(places) else None

    def shape_of(self, box: Box) -> str:
        return self._shape_at(box.places)

    def gpus_of(self, box: Box) -> int:
        return self._gpus_on(box.counted, box.demand.gpus)

    def gpus_in(self, slot: Slot, request: Request) -> int:
        return self._gpus_on(self.places(slot.nodes), request.gpus_per_node)

    def ceilings_over(self, project: str, slice_: str, places: Ints) -> tuple[tuple[str, str], ...]:
        shape = self._shape_at(places)
        return tuple((owner, shape) for owner in dict.fromkeys((project, slice_)) if (owner, shape) in self.most)

    # The queue and its slots.

    def enqueue(self, request: Request) -> Waiting:
        return self.enqueue_all([request])[0]

    def enqueue_all(self, requests: Sequence[Request]) -> list[Waiting]:
        classes = [self._demands.demand_class(request) for request in requests]
        rows = self._rows(requests, classes)
        turns = [self._turn(*pair) for pair in zip(requests, classes, strict=True)]
        made = [Waiting(request, row, turn, request.promise_s) for request, row, turn in zip(requests, rows, turns, strict=True)]
        self.queue.update((waiting.request.id, waiting) for waiting in made)
        self._at_row.update(zip(rows, made, strict=True))
        self.order.update(made)
        order = self._order if len(made) <= FEW else None
        if order is not None:
            for waiting in sorted(made, key=turn_of):
                order = np.insert(order, self.order.index(waiting), waiting.row)
        self._order = order
        self.evictor_count += sum(request.may_evict for request in requests)
        self._followers.update(request.id for request in requests if request.after)
        return made

    def turn(self, request: Request) -> Turn:
        return self._turn(request, self._demands.demand_class(request))

    def gpu_s(self, request: Request) -> int:
        """A request for whole nodes counts as many GPUs as the largest nodes that it may use have."""
        return self._demands.demand_class(request).gpu_count * request.length_s

    def pools_of(self, request: Request) -> list[int]:
        return self._demands.pools_of(request)

    def pools_in(self, request: Request, shape: str) -> list[int]:
        return [pool for pool in self.pools_of(request) if self.pools[pool].shape == shape]

    def gpus_by_shape(self, request: Request) -> Mapping[str, int]:
        """A request for whole nodes counts as many GPUs as the largest nodes have."""
        return self._demands.demand_class(request).gpus_by_shape

    def may_cause_evictions(self, request: Request) -> bool:
        return request.may_evict or request.project in self._guaranteed or request.slice in self._guaranteed

    def dequeue(self, waiting: Waiting) -> None:
        if self.has_slot(waiting):
            self.remove_slot(waiting)
        self._forget(waiting)

    @property
    def nobody_waits(self) -> bool:
        return not bool(((self._table.state == HAS_SLOT) & (self._table.slot_s > self.now_s)).any())

    def has_slot(self, waiting: Waiting) -> bool:
        return self._table.state.item(waiting.row) == HAS_SLOT

    def without_slots(self) -> list[Waiting]:
        return [self._at_row[row] for row in np.flatnonzero(self._table.state == NO_SLOT).tolist()]

    def start_s(self, waiting: Waiting) -> int:
        return self._table.slot_s.item(waiting.row)

    def pool_of_slot(self, waiting: Waiting) -> int:
        return self.capacity.pool_of.item(self._table.places.item(self._table.first_place.item(waiting.row)))

    def resources_of(self, waitings: Sequence[Waiting]) -> set[int]:
        """Requests that share none of these pools and limits cannot delay each other."""
        rows = [waiting.row for waiting in waitings]
        pools, limits = np.unique(self._table.pools[rows]), np.unique(self._table.all_limits[rows])
        return {*pools[pools != NONE].tolist(), *(len(self.pools) + limits[limits != NONE]).tolist()}

    def slot(self, waiting: Waiting) -> Slot | None:
        return self._slot(waiting) if self.has_slot(waiting) else None

    def keep_as_stored(self) -> None:
        """Record that each slot is where its request says, unless it is displaced or at risk."""
        table = self._table
        self._stored = _StoredSlots(table.state.copy(), table.slot_s.copy(), table.first_place.copy(), table.places.copy())

    def slots(self) -> dict[str, Slot]:
        return self._slots(self._table)

    def stored_plan(self) -> tuple[Capacity, Table]:
        """Returns the board's own arrays, which the caller must not change."""
        return self.capacity, self._table

    def place(self, waiting: Waiting, start_s: int, places: Ints) -> None:
        table = self._table
        table.slot_s[waiting.row] = start_s
        places_of(table, waiting.row)[:] = places
        self.reserve_steps(len(places))
        put_slot(self.capacity, table, waiting.row, 1)
        table.state[waiting.row] = HAS_SLOT

    def nodes_of(self, waiting: Waiting) -> Ints:
        """Returns a view that is valid while the request waits."""
        return places_of(self._table, waiting.row)

    def place_at(self, waiting: Waiting, demand: Demand, found: tuple[int, int]) -> None:
        """Gives the request a slot at the found (start, pool), on the nodes that suit best."""
        start_s, pool = found
        self.place(waiting, start_s, self.choose(demand, pool, start_s))

    def remove_slot(self, waiting: Waiting) -> None:
        self.remove_slots([waiting])

    def remove_slots(self, waitings: Sequence[Waiting]) -> None:
        rows = np.array([waiting.row for waiting in waitings], np.int64)
        self.reserve_steps(int(self._table.nodes[rows].sum()), len(rows))
        remove_slots(self.capacity, self._table, rows)

    def box(self, waiting: Waiting) -> Box:
        demand, places = demand_of(self._table, waiting.row), places_of(self._table, waiting.row).copy()
        # These are copies, since another request gets the row once this one runs.
        demand = Demand(*demand[:4], *(array.copy() for array in demand[4:]))
        start_s, request = self.start_s(waiting), waiting.request
        whose = request.id, request.slice, request.project, request.priority
        end_s = start_s + request.length_s
        return Box(*whose, places, demand, start_s, end_s, start_s, request.evictable, is_open=True, counted=places)

    # The search for room.

    def demand(self, request: Request, pools: list[int] | None = None) -> Demand:
        demand = self._demands.of(request, pools)
        self._add_limits()
        return demand

    def soonest_s(self, request: Request) -> int:
        return max(self.now_s, self.opens_s(request))

    def opens_s(self, request: Request) -> int:
        """Returns when the request may start: after its predecessor's latest end, which is FOREVER_S while that has no place."""
        return max(request.earliest_start_s, self._predecessor_end_s(request.after)) if request.after else request.earliest_start_s

    @property
    def followers(self) -> list[Waiting]:
        """Returns requests that start after another, each behind its predecessor, otherwise in turn."""
        return in_chains(sorted((self.queue[id_] for id_ in self._followers), key=turn_of)) if self._followers else []

    def hold_until(self, waiting: Waiting, at_s: int) -> bool:
        """Sets when the request may start, and returns whether the time changed."""
        was_s = self._table.earliest_s.item(waiting.row)
        self._table.earliest_s[waiting.row] = clamp_s(at_s)
        return was_s != clamp_s(at_s)

    def earliest(self, demand: Demand, since_s: int, before_s: int = NEVER_S) -> tuple[int, int] | None:
        """Return (start, pool); the start is in `[since_s, before_s)`."""
        start_s, pool = earliest(self.capacity, demand, since_s, before_s)
        return None if pool == NONE else (start_s, pool)

    def latest(self, demand: Demand, since_s: int, until_s: int) -> tuple[int, int] | None:
        """Return (start, pool) of the last place in `[since_s, until_s]`."""
        start_s, pool = latest(self.capacity, demand, since_s, until_s)
        return None if pool == NONE else (start_s, pool)

    def choose(self, demand: Demand, pool: int, start_s: int) -> Ints:
        return choose(self.capacity, pool, demand, start_s)

    def has_room(self, places: Ints, demand: Demand, start_s: int) -> bool:
        return has_room_at(self.capacity, places, demand, start_s)

    def fit(self, node: int, demand: Demand, start_s: int) -> tuple[int, int] | None:
        """Return (GPUs left over in the window, end of the gap), or None without room. The least such pair is the best fit."""
        need = gpus_needed(self.capacity, node, demand.gpus)
        left = least_free(self.capacity.nodes, node, start_s, start_s + demand.length_s) - need
        return None if left < 0 else (int(left), int(free_until(self.capacity.nodes, node, need, start_s)))

    def earliest_on(self, places: Ints, demand: Demand, since_s: int, until_s: int) -> int | None:
        start_s = earliest_on(self.capacity, places, demand, since_s, until_s)
        return None if start_s == NEVER_S else start_s

    # Passes over the queue.

    def start(self) -> list[Started]:
        """Start all that are due and, if the policy is guarded, all others that fit."""
        order = self._order_now()
        if len(order) == 0:
            return []
        self._reserve_steps_for_all()
        if self.policy.name == PolicyName.GUARDED:
            rows = scheduling.tick(self.capacity, self.empty_free_now(), self._table, order, self.now_s, NO_COURSE)
        else:
            rows = np.empty(len(order), np.int64)
            rows = rows[: scheduling.start_due(self._table, order, self.now_s, rows)]
        return [self._started(self._at_row[int(row)]) for row in rows]

    def compress(self, waitings: Sequence[Waiting] | None = None) -> None:
        """Move these slots up in this order, as far as all others allow. None means all slots. Slots at risk stay."""
        self._reserve_steps_for_all()
        movable = [waiting.row for waiting in (self.order if waitings is None else waitings) if waiting.risk is None]
        rows = np.array(movable, np.int64)
        scheduling.compress(self.capacity, self._table, rows, self.now_s)

    def restore_slots(self, waitings: Sequence[Waiting], slots: Sequence[Slot]) -> Iterator[int]:
        """Gives these requests these slots, in this order, but lets no slot start before now. Yields as `put_back` does."""
        table, rows = self._table, np.array([waiting.row for waiting in waitings], np.int64)
        counts = table.nodes[rows]
        ends = np.cumsum(counts)
        table.slot_s[rows] = [max(slot.start_s, self.now_s) for slot in slots]
        of_slots = np.repeat(table.first_place[rows] - ends + counts, counts) + np.arange(counts.sum())
        table.places[of_slots] = [self.node_numbers[node] for slot in slots for node in slot.nodes]
        return self.put_back(waitings)

    def put_back(self, waitings: Sequence[Waiting]) -> Iterator[int]:
        """Put removed slots back in this order. Yields the index of each that has no room, for the caller to place."""
        rows, i = np.array([waiting.row for waiting in waitings], np.int64), 0
        while i < len(rows):
            self._reserve_steps_for_all()
            i = restore_slots(self.capacity, self._table, rows, i)
            if i < len(rows):
                yield i
                i += 1

    def expected(self, asked: Set[str] | None = None) -> dict[str, Slot]:
        """Simulate where each request starts if no more come and every box takes its whole length. Changes nothing.

        The simulation plays now at least, and stops when all of `asked` have started; the rest keep their slots. None means all.
        """
        return self._slots(self.played(asked)) if self.order else {}

    def starting(self) -> dict[str, Slot]:
        """Finds what starts now, as the first step of `expected` does. Changes nothing."""
        capacity, table = self.playable_copy()
        rows = scheduling.tick(capacity, self.empty_free_now(), table, self._order_now(), self.now_s, NO_COURSE)
        return {self._at_row[row].request.id: self.slot_at(places_of(table, row), self.now_s) for row in rows.tolist()}

    def starts_near(self, newcomers: Sequence[Waiting], table: Table) -> tuple[dict[str, Slot], dict[str, int]]:
        """Reads a played table: the starts of newcomers and of requests that come before them or share nodes or limits with them.

        Also returns how many requests start before each newcomer.
        """
        rows, is_on_nodes = [each.row for each in newcomers], np.zeros(max(len(self.node_ids), 1), np.bool_)
        for row in rows:
            is_on_nodes[places_of(table, row)] = True
        before = np.concatenate([[0], np.cumsum(is_on_nodes[table.places])])
        first, end = (np.minimum(places, len(table.places)) for places in (table.first_place, table.first_place + table.nodes))
        limits = np.unique(table.all_limits[rows])
        found = (before[end] > before[first]) | np.isin(table.all_limits, limits[limits != NONE]).any(axis=1)
        found[[*rows, *(self.queue[after].row for each in newcomers if (after := each.request.after) in self.queue)]] = True
        near = sorted((self._at_row[row] for row in np.flatnonzero(found & (self._table.state == HAS_SLOT)).tolist()), key=turn_of)
        slots = {each.request.id: self.slot_at(places_of(table, each.row), table.slot_s.item(each.row)) for each in near}
        return slots, {each.request.id: self._ahead_count(each, table) for each in newcomers}

    def next_start_s(self) -> int | None:
        starts_s = self._table.slot_s[self._table.state == HAS_SLOT]
        return int(starts_s.min()) if len(starts_s) else None

    def places(self, nodes: Sequence[str]) -> Ints:
        return np.array([self.node_numbers[node] for node in nodes], np.int64)

    def slot_at(self, places: Ints, start_s: int) -> Slot:
        pool = self.pools[int(self.capacity.pool_of[places[0]])]
        return Slot(pool.id, start_s, tuple(self.node_ids[node] for node in places))

    # For course_cache.py.

    def playable_copy(self) -> tuple[Capacity, Table]:
        """Returns copies that a simulation may change."""
        self._reserve_steps_for_all()
        played = ("state", "slot_s", "places", "earliest_s")
        return copy_capacity(self.capacity), self._table._replace(**{name: getattr(self._table, name).copy() for name in played})

    def play(self, capacity: Capacity, table: Table, times_s: tuple[int, int], asked: Set[str] | None, course: Course) -> None:
        order, chains, free_now = self._order_now(), self._chains(), self.empty_free_now()
        scheduling.play_forward(capacity, free_now, table, order, *times_s, self._asked(asked), chains, course)

    def empty_free_now(self) -> FreeNow:
        if self._free_now is None or len(self._free_now.nodes) < len(self._demands.groups):
            self._free_now = self._demands.empty_free_now()
        return self._free_now

    def places_in_turn(self) -> Ints:
        """Returns the place in turn of each row."""
        places = np.zeros(len(self._table.state), np.int64)
        places[self._order_now()] = np.arange(len(self.order))
        return places

    @property
    def groups(self) -> tuple[Group, ...]:
        """Returns the groups that `empty_free_now` has."""
        return self._demands.groups

    def group_of(self, waiting: Waiting) -> Group:
        return self.groups[self._table.group.item(waiting.row)]

    def know_groups(self, groups: Sequence[Group]) -> None:
        for group in groups:
            self._demands.group_number(group)

    # Internals.

    def played(self, asked: Set[str] | None) -> Table:
        capacity, table = self.playable_copy()
        if self.policy.name == PolicyName.GUARDED:
            self.play(capacity, table, (self.now_s, NEVER_S), asked, NO_COURSE)
        return table

    def _ahead_count(self, waiting: Waiting, played: Table) -> int:
        """Counts the requests that start after now and before this one. Of two that start together, the first in turn counts as before."""
        order = self._order_now()
        has_slot, starts_s, start_s = self._table.state[order] == HAS_SLOT, played.slot_s[order], played.slot_s.item(waiting.row)
        is_before = starts_s < start_s
        is_before[: self.order.index(waiting)] |= starts_s[: self.order.index(waiting)] == start_s
        return int((has_slot & is_before & (starts_s > self.now_s)).sum())

    def newcomers_change_nothing(self) -> bool:
        """Tells whether a newcomer cannot make others start sooner, as its slot can where they wait for a preferred pool."""
        return self.policy.name == PolicyName.GUARDED and not self._followers and not self._table.handicaps_s[self._order_now()].any()

    def _predecessor_end_s(self, id_: str) -> int:
        box, waiting = self.running.get(id_), self.queue.get(id_)
        if box is not None:
            return box.end_s
        if waiting is None or not self.has_slot(waiting):
            return FOREVER_S
        # Where slots do not only move up, a slot may become as late as its promise. A slot at risk may even lie in the past.
        latest_s = waiting.promise_s or 0 if self.policy.name == PolicyName.GUARDED else 0
        end_s = max(self.start_s(waiting), latest_s) + waiting.request.length_s
        return end_s if end_s > self.now_s else self._overrun_s(end_s)

    def _overrun_s(self, end_s: int) -> int:
        """Returns the next multiple of the grace after an end that has passed."""
        grace_s = max(self.policy.overrun_grace_s, 1)
        return end_s + grace_s * ((self.now_s - end_s) // grace_s + 1)

    def _chains(self) -> Chains:
        """Returns the waiting followers whose predecessors wait, too."""
        pairs = [(self.queue[after], self.queue[id_]) for id_ in self._followers if (after := self.queue[id_].request.after) in self.queue]
        first = np.array([before.row for before, _ in pairs], np.int64)
        then = np.array([waiting.row for _, waiting in pairs], np.int64)
        return Chains(first, then, np.array([clamp_s(waiting.request.earliest_start_s) for _, waiting in pairs], np.int64))

    def _shape_at(self, places: Ints) -> str:
        pool = self.pool_at(places)
        return "" if pool is None else self.pools[pool].shape

    def _gpus_on(self, places: Ints, gpus_per_node: int) -> int:
        return len(places) * gpus_per_node or int(self.capacity.gpu_counts[places].sum())

    def _box_of(self, running: Running) -> Box:
        end_s = clamp_s(running.end_s)
        if end_s <= self.now_s:
            end_s = self._overrun_s(end_s)
            self.overdue.add(running.id)
        # A node that is gone takes no capacity; the slice still counts the box.
        places = self.places([node for node in running.nodes if node in self.node_numbers])
        counted = self.places([node for node in running.counted if node in self.node_numbers]) if running.uncounted else places
        gpu_count = self._gpus_on(counted, running.gpus_per_node)
        demand = self._demands.held(running, places, self.pool_at(places), gpu_count, end_s - self.now_s)
        whose = running.id, running.slice, running.project, running.priority
        times_s = self.now_s, end_s, running.started_s
        return Box(*whose, places, demand, *times_s, running.evictable, is_open=running.is_open, counted=counted)

    def _started(self, waiting: Waiting) -> Started:
        slot, request = self._slot(waiting), waiting.request
        self._run(self.box(waiting))
        self._forget(waiting)
        return Started(request, slot, slot.start_s if waiting.promise_s is None else waiting.promise_s)

    def _run(self, box: Box) -> None:
        self.running[box.id] = box
        for node in box.places.tolist():
            self._running_on[node] = (*self._running_on.get(node, ()), box.id)

    def _slot(self, waiting: Waiting) -> Slot:
        return self.slot_at(places_of(self._table, waiting.row), self.start_s(waiting))

    def _slots(self, table: Table) -> dict[str, Slot]:
        places, starts_s = table.places.tolist(), table.slot_s.tolist()
        firsts, counts, has_slot = table.first_place.tolist(), table.nodes.tolist(), (self._table.state == HAS_SLOT).tolist()
        pool_ids = [self.pools[pool].id for pool in self.capacity.pool_of.tolist()]
        is_unmoved, found = self._is_unmoved(table).tolist(), {}
        for waiting in self.order:
            row, stored = waiting.row, waiting.request.slot
            if is_unmoved[row] and stored is not None and waiting.displaced is None and waiting.risk is None:
                found[waiting.request.id] = stored
            elif has_slot[row]:
                nodes = places[firsts[row] : firsts[row] + counts[row]]
                found[waiting.request.id] = Slot(pool_ids[nodes[0]], starts_s[row], tuple(self.node_ids[node] for node in nodes))
        return found

    def _is_unmoved(self, table: Table) -> Bools:
        stored, found = self._stored, np.zeros(len(table.state), np.bool_)
        rows, count = min(len(table.state), len(stored.state)), min(len(table.places), len(stored.places))
        first, end = table.first_place[:rows], table.first_place[:rows] + table.nodes[:rows]
        differs = np.concatenate([[0], np.cumsum(table.places[:count] != stored.places[:count])])
        has_same_nodes = (first == stored.first_place[:rows]) & (end <= count)
        has_same_nodes &= differs[np.minimum(end, count)] == differs[np.minimum(first, count)]
        is_slotted = (self._table.state[:rows] == HAS_SLOT) & (stored.state[:rows] == HAS_SLOT)
        found[:rows] = has_same_nodes & is_slotted & (table.slot_s[:rows] == stored.slot_s[:rows])
        return found

    def _asked(self, asked: Set[str] | None) -> Bools:
        rows = np.full(len(self._table.state), asked is None, np.bool_)
        rows[[self.queue[id_].row for id_ in asked or ()]] = True
        return rows

    def _turn(self, request: Request, demand_class: DemandClass) -> Turn:
        return Turn.of(request, demand_class.gpu_count * request.length_s if self.policy.name == PolicyName.GUARDED else 0)

    def _add_limits(self) -> None:
        if len(self._demands.limit_sizes) > len(self.capacity.limits.head):
            sizes = self._demands.limit_sizes[len(self.capacity.limits.head) :]
            self.capacity = self.capacity._replace(limits=with_more_profiles(self.capacity.limits, sizes, self.now_s))

    def _rows(self, requests: Sequence[Request], classes: Sequence[DemandClass]) -> list[int]:
        while len(self._unused) < len(requests):
            self._grow()
        rows = [self._unused.pop() for _ in requests]
        table, at = self._table, np.array(rows, np.int64)
        rows_of: dict[DemandClass, list[int]] = defaultdict(list)
        for row, demand_class in zip(rows, classes, strict=True):
            rows_of[demand_class].append(row)
        for demand_class, same in rows_of.items():
            where = same if len(same) > 1 else same[0]  # much faster than a list of one
            for name, value in demand_class.columns.items():
                getattr(table, name)[where] = value
        table.state[at] = NO_SLOT
        table.length_s[at] = [max(1, clamp_s(request.length_s)) for request in requests]
        table.earliest_s[at] = [clamp_s(request.earliest_start_s) for request in requests]
        self._limit_slices(requests, at)
        counts = table.nodes[at]
        self._reserve_places(int(counts.sum()))
        self._table.first_place[at] = self._place_count + np.cumsum(counts) - counts
        self._place_count += int(counts.sum())
        return rows

    def _limit_slices(self, requests: Sequence[Request], at: Ints) -> None:
        """Puts the limit of the slice first in each row."""
        table, limits = self._table, np.array([self._demands.limit_of_slice(request.slice) for request in requests], np.int64)
        self._add_limits()
        rows, limits = at[limits != NONE], limits[limits != NONE]
        table.limits[rows, :, OF_SLICE] = limits[:, None]
        table.all_limits[rows, 1:] = table.all_limits[rows, :-1]
        table.all_limits[rows, 0] = limits

    def _forget(self, waiting: Waiting) -> None:
        self._table.state[waiting.row] = EMPTY
        self._unused.append(waiting.row)
        if self._order is not None:
            self._order = np.delete(self._order, self.order.index(waiting))
        self.order.remove(waiting)
        self.evictor_count -= waiting.request.may_evict
        self._followers.discard(waiting.request.id)
        del self.queue[waiting.request.id], self._at_row[waiting.row]

    def _order_now(self) -> Ints:
        if self._order is None:
            self._order = np.fromiter((waiting.row for waiting in self.order), np.int64, len(self.order))
        return self._order

    def _grow(self) -> None:
        old = len(self._table.state)
        empty = new_table(old, len(self.pools))
        columns = (np.concatenate(pair) for pair in zip(self._table[:-1], empty[:-1], strict=True))
        self._table = Table._make([*columns, self._table.places])
        self._unused = [*range(2 * old - 1, old - 1, -1), *self._unused]

    def _reserve_places(self, count: int) -> None:
        if self._place_count + count <= len(self._table.places):
            return
        rows = [waiting.row for waiting in self.order]
        kept = sum(int(self._table.nodes[row]) for row in rows)
        places = np.zeros(2 * (kept + count) + ROWS_AT_FIRST, np.int64)
        self._place_count = 0
        for row in rows:
            moved = places_of(self._table, row)
            places[self._place_count : self._place_count + len(moved)] = moved
            self._table.first_place[row] = self._place_count
            self._place_count += len(moved)
        self._table = self._table._replace(places=places)

    def reserve_steps(self, node_count: int, box_count: int = 1) -> None:
        """Makes room for the steps of more boxes: a box needs at most two for each profile."""
        nodes = with_unused_steps(self.capacity.nodes, 2 * node_count + 2)
        limits = with_unused_steps(self.capacity.limits, 2 * LIMITS_MOST * box_count + 2)
        if nodes is not self.capacity.nodes or limits is not self.capacity.limits:
            self.capacity = self.capacity._replace(nodes=nodes, limits=limits)

    def _reserve_steps_for_all(self) -> None:
        self.reserve_steps(self._place_count)
        self.capacity = self.capacity._replace(limits=with_unused_steps(self.capacity.limits, 2 * LIMITS_MOST * (len(self.order) + 1)))
