"""Keeps this process's snapshot: it reads and makes anew what has changed since the last one.

A new `LiveSnapshot` reads everything. Both must give the same: `live_check` and tests/lifecycle/allocation/test_live.py compare them.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Set
from dataclasses import replace
from datetime import datetime
from threading import RLock
from typing import Any, Final, TypeVar

import structlog
from django.db import connection, transaction

from core.written_sql import WrittenQuery, load_together
from gpr.allocation.absence import ALLOCATOR_RECORD, absence_of
from gpr.allocation.change_log import ChangeLog, Changes
from gpr.allocation.live_rows import LiveRows
from gpr.allocation.memory import memory_of
from gpr.allocation.pools import Fleet, PoolIndex, fleet_of, pools_of
from gpr.allocation.snapshot import Loaded, policy, predecessor_of, request_of, running_box
from gpr.models import PlanRecord
from gpr.quotas.fairness import held_gpus, shares_of, usage_at
from gpr.supplies.selectors import SupplyState, supplies_load
from inventory.models import HubAbsence
from inventory.rows import CLUSTERS_THERE
from journal.guard import fault_report
from planner.promises.live_board import LiveBoard, contents_of
from planner.snapshot import Memory, PlanPolicy, Pool, Request, Running, Snapshot

log = structlog.get_logger(__name__)

MEMORY: Final = "planner.memory"
CHECK_EVERY_S: Final = 600.0
LOCK_MOST_S: Final = 2.0
PLAN_RECORD: Final = WrittenQuery(PlanRecord.objects.all())
Part = TypeVar("Part", Request, Running)


class LiveSnapshot:
    def __init__(self) -> None:
        self._lock = RLock()
        self._log, self._rows = ChangeLog(), LiveRows()
        self._stale: set[str] | None = None  # ids of GPRs that were read since they were last made; None: all
        self._fleet: Fleet | None = None
        self._places: PoolIndex | None = None
        self._pools: tuple[Pool, ...] = ()
        self._policy: PlanPolicy | None = None
        self._shares: dict[str, int] = {}
        self._running: dict[str, Running] = {}
        self._held: Counter[tuple[str, int]] = Counter()  # GPUs of `_running`
        self._gpu_counts: dict[str, int] = {}  # by node, of `_pools`
        self._queue: dict[str, Request] = {}
        self._board = LiveBoard()

    @property
    def is_empty(self) -> bool:
        return self._places is None

    def load(self, *, now: datetime, with_memory: bool = False) -> Loaded:
        # The thread that holds the lock may wait for the database, which may wait for our transaction. PostgreSQL does not see such a
        # deadlock, so after a while this thread reads everything for itself.
        if not self._lock.acquire(timeout=LOCK_MOST_S):
            return LiveSnapshot().load(now=now, with_memory=with_memory)
        try:
            self._log.catch_up(self._read)
            return self._make(now, with_memory=with_memory)
        except BaseException:
            self._stale = None  # some of it was made, and some was not
            raise
        finally:
            self._lock.release()

    def _read(self, changes: Changes) -> None:
        read = self._rows.read(changes)
        self._stale = None if read is None or self._stale is None else self._stale | read

    def _make(self, now: datetime, *, with_memory: bool) -> Loaded:
        rows, now_s, rules = self._rows, math.floor(now.timestamp()), policy()
        found, allocator, records = load_together((CLUSTERS_THERE, None), (ALLOCATOR_RECORD, None), (PLAN_RECORD, None))
        clusters, absence = {cluster.pk: cluster for cluster in found}, absence_of(next(iter(allocator), None), now)
        record, memory = next(iter(records), PlanRecord()), Memory()
        supply_state = SupplyState()
        if rows.has_supplies:
            supply_state = supplies_load(rows.promises.values(), clusters, now=now, now_s=now_s, grace_s=rules.overrun_grace_s)
        arrived = set().union(*supply_state.there.values())
        if arrived and not arrived <= {node.pk for node in rows.nodes}:
            self._log.catch_up(self._read)  # an ordered node has arrived since
        places = self._make_pools(fleet_of(rows.nodes, clusters, rows.windows_ahead(now), supply_state, absence, now), absence, now)
        if rules != self._policy:
            self._policy, self._stale = rules, None
        self._make_running(places)
        shares = shares_of(usage_at(rows.usage, now), self._held, rows.quotas, now_s)
        self._make_queue(places, shares)
        self._stale = set()
        if with_memory or len(rows.promises) < len(rows.requests):
            memory = memory_of(record, rows.arrivals, clusters.values(), now=now)
        snapshot = Snapshot(
            now_s=now_s,
            pools=self._pools,
            running=tuple(self._running.values()),
            queue=tuple(self._queue.values()),
            quotas=rows.quotas,
            policy=rules,
            memory=memory,
            has_freed=record.has_freed,
        )
        cluster_ids = {name: pk for pk, name in places.cluster_names.items()}
        return Loaded(
            snapshot,
            dict(rows.requests),
            dict(rows.promises),
            cluster_ids,
            shares,
            places,
            dict(rows.clusters_of_slice),
            now,
            self._board,
            record,
        )

    def _make_pools(self, fleet: Fleet, absence: HubAbsence | None, now: datetime) -> PoolIndex:
        if self._places is None or self._fleet is None or not fleet.makes_same_pools(self._fleet):
            before, (self._places, pools) = self._places, pools_of(fleet, absence, now)
            if before is None or pools != self._pools or not self._places.makes_same_parts(before):
                self._pools, self._stale = pools, None  # the board knows them by identity
                self._gpu_counts = {node.id: node.gpu_count for pool in pools for node in pool.nodes}
        self._fleet = fleet
        return self._places

    def _make_running(self, places: PoolIndex) -> None:
        held, stale = self._rows.held, self._stale
        running = _brought_up_to_date(self._running, held, stale, lambda id_: running_box(held[id_], places.pool_of_node))
        if stale is None:
            self._held = held_gpus(running.values(), self._gpu_counts)
        elif running is not self._running:
            for boxes, count in ((running, self._held.update), (self._running, self._held.subtract)):
                count(held_gpus((boxes[id_] for id_ in stale if id_ in boxes), self._gpu_counts))
            self._held = +self._held  # without those that hold none any more
        self._running = running

    def _make_queue(self, places: PoolIndex, shares: dict[str, int]) -> None:
        requests, stale = self._rows.requests, self._stale
        if stale is not None and shares != self._shares:
            other = {project for project in shares.keys() | self._shares.keys() if shares.get(project) != self._shares.get(project)}
            stale = stale | {id_ for id_, request in self._queue.items() if request.project in other}
        self._shares = shares
        self._queue = _brought_up_to_date(self._queue, requests, stale, lambda id_: self._request(id_, places))

    def _request(self, id_: str, places: PoolIndex) -> Request:
        rows = self._rows
        ask = rows.requests[id_]
        wanted = rows.clusters_of_gpr.get(ask.pk) or rows.clusters_of_slice.get(ask.slice_id, set())
        clusters = {places.cluster_names[pk] for pk in wanted if pk in places.cluster_names}
        after = predecessor_of(ask, rows.held.__contains__)
        return request_of(ask, clusters, rows.promises.get(id_), self._shares, places, after)


def _brought_up_to_date(
    known: dict[str, Part], there: Collection[str], stale: Set[str] | None, make: Callable[[str], Part]
) -> dict[str, Part]:
    """Makes the parts anew that are `stale` (None: all) and still `there`. Equal ones keep their objects: the board knows them by these."""
    if stale is not None and not any(id_ in known or id_ in there for id_ in stale):
        return known
    made = {id_: make(id_) for id_ in (there if stale is None else stale) if id_ in there}
    kept = {id_: was if (was := known.get(id_)) == part else part for id_, part in made.items()}
    if stale is None:
        return kept
    found = known | kept
    for id_ in stale - kept.keys():
        found.pop(id_, None)
    return found


class _Process:
    live = LiveSnapshot()
    checked_mono = time.monotonic()


def snapshot_load(*, now: datetime, with_memory: bool = False) -> Loaded:
    """Returns what is now. `with_memory` adds what a new promise needs; it is there anyway when a queued request has no promise."""
    return _Process.live.load(now=now, with_memory=with_memory)


def live_forget() -> None:
    """The next snapshot reads everything."""
    _Process.live = LiveSnapshot()


def live_check(*, now: datetime) -> None:
    """Compare the memory of this process with the database, every CHECK_EVERY_S; where it is wrong, forget it and alert."""
    if _Process.live.is_empty or connection.in_atomic_block or time.monotonic() < _Process.checked_mono + CHECK_EVERY_S:
        return
    _Process.checked_mono = time.monotonic()
    with transaction.atomic():
        if connection.vendor == "postgresql":  # else another process might write between the two
            connection.cursor().execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        wrong = differences(snapshot_load(now=now, with_memory=True), LiveSnapshot().load(now=now, with_memory=True))
    if wrong:
        live_forget()
        text = f"The memory of a process differed from the database in {', '.join(wrong)}. It was read anew. Please report it."
        log.error(MEMORY, wrong=wrong)
        with transaction.atomic():
            fault_report(MEMORY, text, reason="differs", now=now)


def differences(one: Loaded, other: Loaded) -> list[str]:
    """Returns the names of the parts that differ. Queue and boxes have no order."""
    parts = _parts(other)
    return [name for name, value in _parts(one).items() if value != parts[name]]


def _parts(loaded: Loaded) -> dict[str, Any]:
    snapshot, places = loaded.snapshot, loaded.places
    return {
        "queue": {request.id: request for request in snapshot.queue},
        "boxes": {box.id: box for box in snapshot.running},
        "pools": (snapshot.pools, places.keys, places.pool_of_node, loaded.cluster_ids),
        "quotas": (snapshot.quotas, loaded.shares),
        "memory": (replace(snapshot.memory, shadows=()), set(snapshot.memory.shadows), snapshot.has_freed),
        "rows": (loaded.requests, loaded.promises),
        "board": contents_of(loaded.board.restore(snapshot).board),
    }
