"""The planner's working state: who runs, who waits and where.

Lives here: ids of the outside and numbers of the inside, and the room that the compiled passes need. What moves is decided in passes.py
(the policy), pace.py (how long a newcomer is promised to wait at most) and repair.py (what broke).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from sortedcontainers import SortedKeyList

from gpr.planner import passes
from gpr.planner.blank import LIMITS_MOST, NO_POOLS, ground_of, new_table, within
from gpr.planner.ground import NO_INTS, Kind, choose, copy_ground, earliest, earliest_there, latest, room_at, take
from gpr.planner.lines import NEVER_S, NONE, Ints, forget_before, with_line, with_spare
from gpr.planner.passes import EMPTY, LOOSE, WAITING, Now, Table, new_now, places_of
from gpr.planner.snapshot import Policy, PolicyName, Pool, Quota, Request, Running, Slot, Window, Within
from gpr.planner.waiting import Turn, Waiting, turn_of

ROWS_AT_FIRST = 64
# As the ground numbers them.
LEVELS = {Within.ANY: NONE, Within.NVLINK: 0, Within.RACK: 1}


@dataclass(frozen=True, slots=True)
class Box:
    """Nodes x GPUs x `[start_s, end_s)` of a GPR that runs or is to run, in the numbers of the ground.

    What of it is past is not on the ground: `began_s` is when it began. The rest as in `Running`.
    """

    id: str
    slice: str
    project: str
    priority: int
    places: Ints
    kind: Kind
    start_s: int
    end_s: int
    began_s: int
    evictable: bool
    is_open: bool


@dataclass(frozen=True, slots=True)
class Started:
    """A request that starts now, in this slot."""

    request: Request
    slot: Slot
    promise_s: int


class Board:
    """The queue in order, its slots, and all boxes, on one ground."""

    def __init__(self, pools: tuple[Pool, ...], *, now_s: int, policy: Policy, quotas: tuple[Quota, ...] = ()) -> None:
        self.now_s = now_s
        self.policy = policy
        self.pools = pools
        self.pool_numbers = {pool.id: number for number, pool in enumerate(pools)}
        self.node_ids = [node.id for pool in pools for node in pool.nodes]
        self.node_numbers = {id_: number for number, id_ in enumerate(self.node_ids)}
        self.closed: dict[str, tuple[Window, ...]] = {node.id: node.closed for pool in pools for node in pool.nodes}
        self.ground = ground_of(pools, now_s)
        self.running: dict[str, Box] = {}
        self.overdue: set[str] = set()
        self.queue: dict[str, Waiting] = {}
        self.order: SortedKeyList[Waiting] = SortedKeyList(key=turn_of)
        self.evictor_count = 0  # of those that wait, who may evict
        self._at_row: dict[int, Waiting] = {}
        self._largest = [max((node.gpu_count for node in pool.nodes), default=0) for pool in pools]
        self.most = {(quota.owner, quota.shape): quota.most for quota in quotas if quota.most is not None}
        self._limits: dict[tuple[str, str], int] = {}
        self._groups: dict[tuple[tuple[int, ...], int, int], int] = {}
        self._now = self._new_now()
        self._table = new_table(ROWS_AT_FIRST, len(pools))
        self._unused = list(range(ROWS_AT_FIRST - 1, -1, -1))
        self._place_count = 0
        self._order: Ints | None = NO_INTS

    # Who runs.

    def hold(self, running: Running) -> None:
        """Enter a box that runs. An overdue one is expected back at the next multiple of the grace after its end."""
        end_s, grace_s = within(running.end_s), max(self.policy.overrun_grace_s, 1)
        if end_s <= self.now_s:
            end_s += grace_s * ((self.now_s - end_s) // grace_s + 1)
            self.overdue.add(running.id)
        # A node that is gone holds nobody up; the slice is held all the same.
        places = self.places([node for node in running.nodes if node in self.node_numbers])
        kind = self._held(running, places, end_s - self.now_s)
        self.spare(len(places))
        take(self.ground, places, kind, self.now_s, end_s, 1)
        whose = running.id, running.slice, running.project, running.priority
        self.running[running.id] = Box(
            *whose, places, kind, self.now_s, end_s, running.started_s, running.evictable, is_open=running.is_open
        )

    def release(self, box_id: str) -> bool:
        """Its GPUs are free from now on. True when it was booked for longer."""
        box = self.running.pop(box_id)
        self.spare(len(box.places))
        take(self.ground, box.places, box.kind, max(self.now_s, box.start_s), box.end_s, -1)
        for node in box.places:
            forget_before(self.ground.nodes, node, self.now_s)
        return box.end_s > self.now_s

    def set_end(self, box_id: str, end_s: int) -> None:
        """Let a running box end at another time; what else stands there is not asked."""
        box = self.running[box_id]
        self.spare(len(box.places))
        take(self.ground, box.places, box.kind, min(end_s, box.end_s), max(end_s, box.end_s), 1 if end_s > box.end_s else -1)
        self.running[box_id] = replace(box, end_s=end_s)

    def pool_at(self, places: Ints) -> int | None:
        """Of these nodes; None where there are none, as of a box whose nodes are all gone."""
        return int(self.ground.pool_of[places[0]]) if len(places) else None

    def shape_of(self, box: Box) -> str:
        return self._shape_at(box.places)

    def gpus_of(self, box: Box) -> int:
        return self._gpus_on(box.places, box.kind.gpus)

    def ceilings_over(self, project: str, slice_: str, places: Ints) -> tuple[tuple[str, str], ...]:
        """Whose limits hold for a box of these on these nodes: (owner, shape)."""
        shape = self._shape_at(places)
        return tuple((owner, shape) for owner in dict.fromkeys((project, slice_)) if (owner, shape) in self.most)

    # Who waits.

    def enroll(self, request: Request) -> Waiting:
        """Into the queue, without a slot."""
        waiting = Waiting(request, self._row(request), self.turn(request), request.promise_s)
        self.queue[request.id] = self._at_row[waiting.row] = waiting
        self.order.add(waiting)
        self.evictor_count += request.may_evict
        self._order = None
        return waiting

    def turn(self, request: Request) -> Turn:
        """When it would be considered."""
        return Turn.of(request, self.gpu_s(request) if self.policy.name == PolicyName.GUARDED else 0)

    def gpu_s(self, request: Request) -> int:
        """The work of its box in GPU-seconds; for whole nodes on the largest that it may use."""
        largest = max((self._largest[pool] for pool in self.pools_of(request)), default=0)
        return request.node_count * (request.gpus_per_node or largest) * request.length_s

    def pools_of(self, request: Request) -> list[int]:
        """Those of its pools that are there, best liked first."""
        return [self.pool_numbers[id_] for id_ in dict.fromkeys(request.pools) if id_ in self.pool_numbers]

    def gpus_by_shape(self, request: Request) -> dict[str, int]:
        """How many GPUs it would hold; of whole nodes the largest count."""
        found: dict[str, int] = {}
        for pool in self.pools_of(request):
            shape = self.pools[pool].shape
            found[shape] = max(self._gpus_in(request, pool), found.get(shape, 0))
        return found

    def withdraw(self, waiting: Waiting) -> None:
        """Out of the queue; its slot is free."""
        if self.has_slot(waiting):
            self.lift(waiting)
        self._forget(waiting)

    @property
    def nobody_waits(self) -> bool:
        """No slot is on the ground."""
        return not bool((self._table.state == WAITING).any())

    def has_slot(self, waiting: Waiting) -> bool:
        return bool(self._table.state[waiting.row] == WAITING)

    def start_s(self, waiting: Waiting) -> int:
        """Of its slot."""
        return int(self._table.slot_s[waiting.row])

    def pool_of_slot(self, waiting: Waiting) -> int:
        return int(self.ground.pool_of[places_of(self._table, waiting.row)[0]])

    def slot(self, waiting: Waiting) -> Slot | None:
        return self._slot(self._table, waiting) if self.has_slot(waiting) else None

    def place(self, waiting: Waiting, start_s: int, places: Ints) -> None:
        """Give it this slot, for which there is room."""
        table = self._table
        table.slot_s[waiting.row] = start_s
        places_of(table, waiting.row)[:] = places
        self.spare(len(places))
        passes.put(self.ground, table, waiting.row, 1)
        table.state[waiting.row] = WAITING

    def place_at(self, waiting: Waiting, kind: Kind, found: tuple[int, int]) -> None:
        """Give it the slot that was found for this kind, (start, pool), on the nodes that suit best."""
        start_s, pool = found
        self.place(waiting, start_s, self.choose(kind, pool, start_s))

    def lift(self, waiting: Waiting) -> None:
        """Take its slot away."""
        self.spare(int(self._table.nodes[waiting.row]))
        passes.put(self.ground, self._table, waiting.row, -1)
        self._table.state[waiting.row] = LOOSE

    def box(self, waiting: Waiting) -> Box:
        """What stands in its slot."""
        kind, places = passes.kind_of(self._table, waiting.row), places_of(self._table, waiting.row).copy()
        # Its row will be another's when it runs.
        kind = Kind(*kind[:4], *(array.copy() for array in kind[4:]))
        start_s, request = self.start_s(waiting), waiting.request
        whose = request.id, request.slice, request.project, request.priority
        return Box(*whose, places, kind, start_s, start_s + request.length_s, start_s, request.evictable, is_open=True)

    # Where there is room.

    def kind(self, request: Request, pools: list[int] | None = None) -> Kind:
        """As the compiled functions want it, in some of its pools only if these are given.

        What is beyond all pools has none, and no numbers that could not be counted with.
        """
        length_s = max(1, within(request.length_s))
        if not (0 < request.node_count <= len(self.node_ids) and 0 <= request.gpus_per_node <= max(self._largest)):
            return Kind(0, 0, length_s, NONE, NO_INTS, NO_INTS, NO_POOLS, NO_POOLS)
        pools = self.pools_of(request) if pools is None else pools
        limits, amounts = self._limits_of(request, pools, [self._gpus_in(request, pool) for pool in pools])
        handicaps_s = [within(request.handicap_s(self.pools[pool].id)) for pool in pools]
        sizes = request.node_count, request.gpus_per_node, length_s, LEVELS[request.within]
        return Kind(*sizes, np.array(pools, np.int64), np.array(handicaps_s, np.int64), limits, amounts)

    def soonest_s(self, request: Request) -> int:
        return max(self.now_s, request.earliest_start_s)

    def earliest(self, kind: Kind, since_s: int, before_s: int = NEVER_S) -> tuple[int, int] | None:
        """(start, pool) of the first place in `[since_s, before_s)`."""
        start_s, pool = earliest(self.ground, kind, since_s, before_s)
        return None if pool == NONE else (start_s, pool)

    def latest(self, kind: Kind, since_s: int, until_s: int) -> tuple[int, int] | None:
        """(start, pool) of the last place in `[since_s, until_s]`."""
        start_s, pool = latest(self.ground, kind, since_s, until_s)
        return None if pool == NONE else (start_s, pool)

    def choose(self, kind: Kind, pool: int, start_s: int) -> Ints:
        return choose(self.ground, pool, kind, start_s)

    def has_room(self, places: Ints, kind: Kind, start_s: int) -> bool:
        return room_at(self.ground, places, kind, start_s)

    def earliest_there(self, places: Ints, kind: Kind, since_s: int, until_s: int) -> int | None:
        start_s = earliest_there(self.ground, places, kind, since_s, until_s)
        return None if start_s == NEVER_S else start_s

    # The passes.

    def start(self) -> list[Started]:
        """Start all whose slots have come, and by the guarded policy whoever else fits; they run from now on."""
        order = self._order_now()
        if len(order) == 0:
            return []
        self._spare_for_moves()
        if self.policy.name == PolicyName.GUARDED:
            rows = passes.tick(self.ground, self._now, self._table, order, self.now_s)
        else:
            rows = np.empty(len(order), np.int64)
            rows = rows[: passes.start_due(self._table, order, self.now_s, rows)]
        return [self._started(self._at_row[int(row)]) for row in rows]

    def compress(self) -> None:
        """Move slots up as far as the others allow, in order."""
        self._spare_for_moves()
        passes.compress(self.ground, self._table, self._order_now(), self.now_s)

    def stand(self, waitings: Iterable[Waiting], slots: Iterable[Slot]) -> list[Waiting]:
        """Put stored slots on the ground, one after the other; answers those for which there was no room."""
        rows = {}
        for waiting, slot in zip(waitings, slots, strict=True):
            rows[waiting.row] = waiting
            self._table.slot_s[waiting.row] = slot.start_s
            places_of(self._table, waiting.row)[:] = self.places(slot.nodes)
        self._spare_for_moves()
        broken = passes.stand(self.ground, self._table, np.fromiter(rows, np.int64, len(rows)))
        return [rows[int(row)] for row in broken]

    def expected(self) -> dict[str, Slot]:
        """Where and when each would start if nobody came and every box took its whole length. Nothing here changes."""
        order = self._order_now()
        if len(order) == 0:
            return {}
        self._spare_for_moves()
        table = self._table._replace(state=self._table.state.copy(), slot_s=self._table.slot_s.copy(), places=self._table.places.copy())
        if self.policy.name == PolicyName.GUARDED:
            passes.play(copy_ground(self.ground), self._now, table, order, self.now_s)
        return {waiting.request.id: self._slot(table, waiting) for waiting in self.order if self.has_slot(waiting)}

    def next_start_s(self) -> int | None:
        """When the first slot comes due."""
        order = self._order_now()
        rows = order[self._table.state[order] == WAITING]
        return int(self._table.slot_s[rows].min()) if len(rows) else None

    def places(self, nodes: Sequence[str]) -> Ints:
        return np.array([self.node_numbers[node] for node in nodes], np.int64)

    def slot_at(self, places: Ints, start_s: int) -> Slot:
        pool = self.pools[int(self.ground.pool_of[places[0]])]
        return Slot(pool.id, start_s, tuple(self.node_ids[node] for node in places))

    # Inside.

    def _shape_at(self, places: Ints) -> str:
        pool = self.pool_at(places)
        return "" if pool is None else self.pools[pool].shape

    def _gpus_on(self, places: Ints, gpus_per_node: int) -> int:
        return len(places) * gpus_per_node or int(self.ground.rooms[places].sum())

    def _gpus_in(self, request: Request, pool: int) -> int:
        """Of whole nodes as if each were the largest."""
        return request.node_count * (request.gpus_per_node or self._largest[pool])

    def _started(self, waiting: Waiting) -> Started:
        slot, request = self._slot(self._table, waiting), waiting.request
        self.running[request.id] = self.box(waiting)
        self._forget(waiting)
        return Started(request, slot, slot.start_s if waiting.promise_s is None else waiting.promise_s)

    def _slot(self, table: Table, waiting: Waiting) -> Slot:
        return self.slot_at(places_of(table, waiting.row), int(table.slot_s[waiting.row]))

    def _held(self, running: Running, places: Ints, length_s: int) -> Kind:
        pool = self.pool_at(places)
        pools = [] if pool is None else [pool]
        limits, amounts = self._limits_of(running, pools, [self._gpus_on(places, running.gpus_per_node)])
        return Kind(len(places), running.gpus_per_node, length_s, NONE, np.array(pools, np.int64), NO_INTS, limits, amounts)

    def _limits_of(self, box: Request | Running, pools: list[int], gpus: list[int]) -> tuple[Ints, Ints]:
        """By pool: a slice runs one box at a time, and quotas hold; without a slice a request waits for nobody of its own."""
        limits = np.full((max(len(pools), 1), LIMITS_MOST), NONE, np.int64)
        amounts = np.zeros_like(limits)
        for i in range(len(limits)):
            taken = [(self._limit(box.slice, "", 1), 1)] if box.slice else []
            for owner in dict.fromkeys((box.project, box.slice)) if pools else ():
                shape = self.pools[pools[i]].shape
                most = self.most.get((owner, shape))
                taken += [] if most is None else [(self._limit(owner, shape, most), gpus[i])]
            limits[i, : len(taken)], amounts[i, : len(taken)] = [line for line, _ in taken], [amount for _, amount in taken]
        return limits, amounts

    def _limit(self, owner: str, shape: str, room: int) -> int:
        line = self._limits.get((owner, shape))
        if line is None:
            line = self._limits[owner, shape] = len(self._limits)
            self.ground = self.ground._replace(limits=with_line(self.ground.limits, room, self.now_s))
        return line

    def _group(self, kind: Kind) -> int:
        """The number of all that differ in length only."""
        key = (tuple(kind.pools.tolist()), kind.gpus, kind.nodes)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = len(self._groups)
            self._now = self._new_now()
        return group

    def _new_now(self) -> Now:
        levels = {(pool, gpus): 0 for pools, gpus, _ in self._groups for pool in pools}
        levels = {level: number for number, level in enumerate(levels)}
        of_groups = np.full((len(self._groups), max(len(self.pools), 1)), NONE, np.int64)
        for group, (pools, gpus, _) in enumerate(self._groups):
            of_groups[group, : len(pools)] = [levels[pool, gpus] for pool in pools]
        pools_of = np.array([pool for pool, _ in levels], np.int64)
        gpus_of = np.array([gpus for _, gpus in levels], np.int64)
        nodes_of = np.array([nodes for _, _, nodes in self._groups], np.int64)
        return new_now(pools_of, gpus_of, of_groups, nodes_of, node_count=len(self.node_ids))

    def _row(self, request: Request) -> int:
        if not self._unused:
            self._grow()
        row, table, kind = self._unused.pop(), self._table, self.kind(request)
        table.state[row] = LOOSE
        table.nodes[row], table.gpus[row], table.length_s[row] = kind.nodes, kind.gpus, kind.length_s
        table.level[row], table.earliest_s[row] = kind.level, within(request.earliest_start_s)
        lines = np.unique(kind.limits[kind.limits != NONE])
        for array, values in ((table.pools, kind.pools), (table.lines, lines)):
            array[row, :] = NONE
            array[row, : len(values)] = values
        pools = len(kind.pools)
        table.handicaps_s[row, :pools] = kind.handicaps_s
        table.limits[row, :pools], table.amounts[row, :pools] = kind.limits[:pools], kind.amounts[:pools]
        table.group[row] = self._group(kind)
        self._reserve_places(kind.nodes)
        self._table.first_place[row] = self._place_count
        self._place_count += kind.nodes
        return row

    def _forget(self, waiting: Waiting) -> None:
        self._table.state[waiting.row] = EMPTY
        self._unused.append(waiting.row)
        self.order.remove(waiting)
        self.evictor_count -= waiting.request.may_evict
        del self.queue[waiting.request.id], self._at_row[waiting.row]
        self._order = None

    def _order_now(self) -> Ints:
        if self._order is None:
            self._order = np.fromiter((waiting.row for waiting in self.order), np.int64, len(self.order))
        return self._order

    def _grow(self) -> None:
        old = len(self._table.state)
        empty = new_table(old, len(self.pools))
        columns = (np.concatenate(pair) for pair in zip(self._table[:-1], empty[:-1], strict=True))
        self._table = Table._make([*columns, self._table.places])
        self._unused = list(range(2 * old - 1, old - 1, -1))

    def _reserve_places(self, count: int) -> None:
        """Room for so many more nodes of slots; what was left by those who went is used again."""
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

    def spare(self, node_count: int) -> None:
        """Steps for one box more: two on each of its lines at most."""
        nodes, limits = with_spare(self.ground.nodes, 2 * node_count + 2), with_spare(self.ground.limits, 2 * LIMITS_MOST + 2)
        if nodes is not self.ground.nodes or limits is not self.ground.limits:
            self.ground = self.ground._replace(nodes=nodes, limits=limits)

    def _spare_for_moves(self) -> None:
        """Steps for all slots to be somewhere else, where no two of them share one."""
        self.spare(self._place_count)
        self.ground = self.ground._replace(limits=with_spare(self.ground.limits, 2 * LIMITS_MOST * (len(self.order) + 1)))
