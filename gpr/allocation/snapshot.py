"""Loads what the planner needs, and turns it into the planner's dataclasses."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models.functions import Coalesce

from gpr.allocation.absence import absence_load
from gpr.allocation.rows import (
    HELD,
    LAST_S,
    GprRow,
    HeldRow,
    PromiseRow,
    ShadowRow,
    allowed_clusters,
    arrivals_since,
    held_rows,
    open_shadows,
    queued_promises,
    queued_requests,
)
from gpr.models import Gpr, GprState, Witness
from gpr.quotas.fairness import shares_of, usage_load
from gpr.supplies.selectors import SupplyState, pool_id, supplies_load, supply_pools
from inventory.models import Cluster, HubAbsence, MaintenanceWindow, Supply, agent_is_live
from inventory.rows import InventoryNode, WindowRow, clusters_failed, clusters_there, nodes_there, windows_ahead
from inventory.selectors import cluster_is_open, cluster_is_silent
from planner.plan import Cause
from planner.snapshot import (
    Arrival,
    Failed,
    Memory,
    Place,
    Policy,
    PolicyName,
    Pool,
    Quota,
    Request,
    Running,
    SlackSettings,
    Slot,
    Snapshot,
    Window,
    Within,
)
from planner.snapshot import Node as PlannerNode
from planner.snapshot import Shadow as PlannerShadow
from slices.models import Quota as QuotaRow

# It is unknown when a node that is set aside, not ready or unreachable comes back. It is expected after one to two of these periods, on a
# fixed grid, so that promises move once in a period and not every second.
RETURN_S = 4 * 3600
# Ticks are not exact: a start that is late by no more than this keeps its promise.
PROMISE_TOLERANCE_S = 60
PROMISE_TOLERANCE = timedelta(seconds=PROMISE_TOLERANCE_S)
SLACK = SlackSettings()
CAUSES = frozenset(Cause)
EPOCH, MICROSECOND = datetime.fromtimestamp(0, UTC), timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class PoolKey:
    """The properties that nodes of a pool share; its text is the pool's id."""

    cluster: str
    shape: str
    node_type: str
    gpu_memory_gib: int
    rdma: bool
    supply: str = ""  # the id of the supply, for a pool of ordered nodes
    gain_s: int = 0  # a start there must be sooner by this much

    @property
    def id(self) -> str:
        if self.supply:
            return pool_id(self.supply)
        return f"{self.cluster}/{self.shape}/{self.node_type or '-'}/{self.gpu_memory_gib}{'/rdma' if self.rdma else ''}"


@dataclass(frozen=True, slots=True)
class PoolIndex:
    keys: Mapping[str, PoolKey]
    pool_of_node: Mapping[UUID, str]
    supply_state: SupplyState
    cluster_names: Mapping[UUID, str]
    _suiting: dict[tuple[object, ...], tuple[str, ...]] = field(default_factory=dict)  # cache: many requests are alike

    def pools_for(self, ask: GprRow | Gpr, clusters: Set[str], *, may_order: bool) -> tuple[str, ...]:
        alike = (
            ask.shape,
            ask.min_gpu_memory_gib,
            ask.node_type,
            ask.rdma,
            tuple(ask.allowed_shapes or ()),
            frozenset(clusters),
            may_order,
        )
        if alike not in self._suiting:
            suiting = (id_ for id_, key in self.keys.items() if key.cluster in clusters and _suits(ask, key))
            self._suiting[alike] = tuple(id_ for id_ in suiting if may_order or not self.keys[id_].supply)
        return self._suiting[alike]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A snapshot, and the rows behind its ids."""

    snapshot: Snapshot
    requests: Mapping[str, GprRow]
    promises: Mapping[str, PromiseRow]
    cluster_ids: dict[str, UUID]
    shares: dict[str, int]
    places: PoolIndex
    now: datetime

    @property
    def last_rank(self) -> int:
        """The age of a newcomer: behind all who came by now."""
        return rank_of(self.now) + 1

    def candidate(self, gpr: Gpr, clusters: Iterable[Cluster]) -> Request:
        """An unsaved GPR as if it were submitted now."""
        return self._request(gpr, clusters, self.last_rank, None)

    def queued(self, gpr: Gpr) -> Request | None:
        return next((request for request in self.snapshot.queue if request.id == str(gpr.pk)), None)

    def waiting(self, gpr: Gpr, clusters: Iterable[Cluster]) -> Request | None:
        """A queued GPR as if it asked for what `gpr` asks for. None when nothing is promised to it."""
        queued = self.queued(gpr)
        if queued is None or queued.promise_s is None:
            return None
        return replace(self._request(gpr, clusters, queued.rank, self.promises.get(queued.id)), slot=queued.slot)

    def _request(self, gpr: Gpr, clusters: Iterable[Cluster], rank: int, promise: PromiseRow | None) -> Request:
        names = {cluster.name for cluster in clusters or gpr.slice.clusters.only("name")}
        return _request(GprRow.of(gpr), rank, names, promise, self.shares, self.places)

    def elsewhere(self, candidate: Request, pools: tuple[str, ...]) -> Request:
        """The candidate in other pools, without handicaps."""
        orders = tuple(id_ for id_ in pools if self.places.keys[id_].supply)
        return replace(candidate, pools=pools, orders=orders, handicaps=())

    def supply(self, supply_id: str) -> Supply:
        return next(supply for supply in self.places.supply_state.supplies if str(supply.pk) == supply_id)

    def with_maintenance(self, row: MaintenanceWindow) -> Snapshot:
        cluster, node_id, window = row.cluster.name, str(row.node_id), window_of(row)

        def closed(node: PlannerNode) -> PlannerNode:
            return replace(node, closed=(*node.closed, window)) if row.node_id is None or node.id == node_id else node

        pools = (replace(p, nodes=tuple(map(closed, p.nodes))) if p.cluster == cluster else p for p in self.snapshot.pools)
        return replace(self.snapshot, pools=tuple(pools))


def rank_of(turn_at: datetime | None) -> int:
    """The age in the queue as the planner takes it: microseconds since 1970."""
    return 0 if turn_at is None else (turn_at - EPOCH) // MICROSECOND


def with_newcomer(snapshot: Snapshot, newcomer: Request, queued_at: datetime) -> Snapshot:
    """Adds `newcomer` with this age, in place of any request with its id."""
    others = (request for request in snapshot.queue if request.id != newcomer.id)
    return replace(snapshot, queue=(*others, replace(newcomer, rank=rank_of(queued_at))))


def with_running_end(snapshot: Snapshot, gpr_id: str, end_s: int) -> Snapshot:
    return replace(snapshot, running=tuple(replace(box, end_s=end_s) if box.id == gpr_id else box for box in snapshot.running))


def snapshot_load(*, now: datetime, with_memory: bool = False) -> Loaded:
    """Nodes on which nothing may start now count as closed: set aside, not ready, or in a cluster that is disabled or silent.

    `with_memory`: load what a new promise needs. It is loaded anyway when the queue holds an unpromised request.
    """
    now_s = math.floor(now.timestamp())
    clusters = clusters_there()
    names = {cluster.pk: cluster.name for cluster in clusters.values()}
    pool_of_node: dict[UUID, str] = {}
    requests, promises = queued_requests(), queued_promises()
    supply_state = supplies_load(promises.values(), clusters, now=now, now_s=now_s, grace_s=policy().overrun_grace_s)
    keys, pools = _pools(clusters, nodes_there(clusters), pool_of_node, supply_state, _announced(windows_ahead(now)), now)
    running, quotas, places = boxes_of(held_rows(HELD), pool_of_node), quotas_load(), PoolIndex(keys, pool_of_node, supply_state, names)
    record = Witness.objects.first() or Witness()
    shares = shares_of(usage_load(now=now), running, pools, quotas, now_s)
    snapshot = Snapshot(
        now_s=now_s,
        pools=pools,
        running=running,
        queue=_queue(requests, promises, shares, places),
        quotas=quotas,
        policy=policy(),
        memory=planner_memory_load(record, now=now) if with_memory or len(promises) < len(requests) else Memory(),
        has_freed=record.has_freed,
    )
    return Loaded(
        snapshot=snapshot,
        requests={str(ask.pk): ask for ask in requests},
        promises=promises,
        cluster_ids={name: pk for pk, name in names.items()},
        shares=shares,
        places=places,
        now=now,
    )


def policy() -> Policy:
    return Policy(
        name=PolicyName(settings.EGS_POLICY),
        promise_tolerance_s=PROMISE_TOLERANCE_S,
        notice_s=settings.EGS_EVICTION_NOTICE_S,
        least_run_s=settings.EGS_EVICTION_LEAST_RUN_S,
        exit_s=settings.EGS_EXIT_ALLOWANCE_S,
        entry_s=settings.EGS_ENTRY_ALLOWANCE_S,
        eviction_gain_s=settings.EGS_EVICTION_GAIN_S,
        break_from=settings.EGS_BREAK_PROMISES_FROM or None,
        gang_patience=settings.EGS_GANG_PATIENCE_PERCENT / 100,
        slack=SLACK,
    )


def planner_memory_load(record: Witness, *, now: datetime) -> Memory:
    """The data for slack and failure reserve; three queries."""
    since = now - timedelta(seconds=SLACK.observed_s)
    return Memory(
        shadows=tuple(_shadow_of(row) for row in open_shadows(now)),
        arrivals=tuple(Arrival(since_s, priority, gpu_s, count) for priority, gpu_s, since_s, count in arrivals_since(since)),
        promised_s=record.promised_sum_s,
        patient_s=record.patient_sum_s,
        summed_at_s=_second(record.summed_at),
        ran_s=record.ran_sum_s,
        booked_s=record.booked_sum_s,
        failed=tuple(Failed(name, _second(failed_at), RETURN_S) for name, failed_at in clusters_failed()),
    )


def _shadow_of(row: ShadowRow) -> PlannerShadow:
    return PlannerShadow(
        str(row.gpr_id),
        row.gpus_per_node,
        _slot(row.patient, row.patient_start_s),
        row.patient_end_s,
        _slot(row.strict, row.strict_start_s),
        row.strict_end_s,
    )


def _slot(data: dict[str, Any], start_s: int) -> Slot:
    return Slot(data["pool"], start_s, tuple(data["nodes"]))


def _second(moment: datetime | None) -> int:
    return math.floor(moment.timestamp()) if moment else 0


def _queue(
    requests: Sequence[GprRow], promises: Mapping[str, PromiseRow], shares: Mapping[str, int], places: PoolIndex
) -> tuple[Request, ...]:
    own, of_slice = allowed_clusters() if requests else ({}, {})
    queue = []
    for ask in requests:
        wanted = own.get(ask.pk) or of_slice.get(ask.slice_id, set())
        clusters = {places.cluster_names[pk] for pk in wanted if pk in places.cluster_names}
        queue.append(_request(ask, rank_of(ask.turn_at), clusters, promises.get(str(ask.pk)), shares, places))
    return tuple(queue)


def _handicaps(ask: GprRow, pools: tuple[str, ...], places: PoolIndex) -> tuple[tuple[str, int], ...]:
    # Seconds by which a start must be sooner: away from the home cluster, and on nodes that were ordered for another request.
    home = places.cluster_names.get(ask.slice__home_id) if ask.slice__home_id else None
    away = {id_ for id_ in pools if home is not None and places.keys[id_].cluster != home}
    burst_s = ask.slice__burst_gain_s if len(away) < len(pools) else 0
    found = ((id_, (burst_s if id_ in away else 0) + places.keys[id_].gain_s) for id_ in pools)
    return tuple((id_, handicap_s) for id_, handicap_s in found if handicap_s)


def length_s(gpr: GprRow | Gpr) -> int:
    """Seconds of the whole box: entry, the rest of the duration, exit."""
    return box_length_s(gpr.remaining_s)


def box_length_s(remaining_s: int) -> int:
    return int(settings.EGS_ENTRY_ALLOWANCE_S + remaining_s + settings.EGS_EXIT_ALLOWANCE_S)


def nodes_free_at(ends_at: datetime) -> datetime:
    """Returns when the nodes of a box that ends at `ends_at` are free again: after the exit."""
    return ends_at + timedelta(seconds=settings.EGS_EXIT_ALLOWANCE_S)


def box_end_for(freed_at: datetime) -> datetime:
    """The inverse of `nodes_free_at`."""
    return freed_at - timedelta(seconds=settings.EGS_EXIT_ALLOWANCE_S)


def at(moment_s: int) -> datetime:
    """Seconds since 1970 as a datetime, at most LAST_S."""
    return datetime.fromtimestamp(min(moment_s, LAST_S), UTC)


def _suits(ask: GprRow | Gpr, key: PoolKey) -> bool:
    if ask.allowed_shapes and key.shape not in ask.allowed_shapes:
        return False
    return (
        ask.shape in {"", key.shape}
        and (ask.min_gpu_memory_gib or 0) <= key.gpu_memory_gib
        and ask.node_type in {"", key.node_type}
        and (key.rdma or not ask.rdma)
    )


def _pools(
    clusters: dict[UUID, Cluster],
    rows: Iterable[InventoryNode],
    pool_of_node: dict[UUID, str],
    supply_state: SupplyState,
    announced: Mapping[UUID, list[Window]],
    now: datetime,
) -> tuple[dict[str, PoolKey], tuple[Pool, ...]]:
    nodes: dict[PoolKey, list[PlannerNode]] = defaultdict(list)
    arrived: dict[str, list[PlannerNode]] = defaultdict(list)
    absence, now_s = absence_load(now=now), math.floor(now.timestamp())
    closures = {cluster.pk: _closure(cluster, absence, now, now_s) for cluster in clusters.values()}
    for row in rows:
        cluster = clusters[row.cluster_id]
        key = PoolKey(cluster.name, row.shape, row.node_type, row.gpu_memory_gib, row.rdma)
        closed = _closed_windows(row, closures[row.cluster_id], supply_state, now_s)
        node = PlannerNode(
            id=str(row.pk),
            gpu_count=row.gpu_count,
            closed=(*closed, *announced[row.cluster_id], *announced[row.pk]),
            rack=f"{cluster.name}/{row.zone}/{row.rack}" if row.rack else "",
            nvlink_domain=f"{cluster.name}/{row.nvlink_domain}" if row.nvlink_domain else "",
        )
        pool_of_node[row.pk] = supply_state.kept.get(row.pk, key.id)
        (arrived[supply_state.kept[row.pk]] if row.pk in supply_state.kept else nodes[key]).append(node)
    keys = {key.id: key for key in sorted(nodes, key=lambda key: key.id)}
    pools = [Pool(id=id_, cluster=key.cluster, shape=key.shape, nodes=tuple(nodes[key])) for id_, key in keys.items()]
    # Supplies come last, so that of equal starts the planner prefers nodes that exist.
    keys |= {pool_id(supply.pk): _key_of(supply) for supply in supply_state.supplies}
    return keys, (*pools, *supply_pools(supply_state, arrived, announced, closures, absence=absence, now=now))


def _key_of(supply: Supply) -> PoolKey:
    return PoolKey(supply.cluster.name, supply.shape, "", supply.gpu_memory_gib, rdma=False, supply=str(supply.pk), gain_s=supply.gain_s)


def _closed_windows(row: InventoryNode, closure: tuple[Window, ...], supply_state: SupplyState, now_s: int) -> tuple[Window, ...]:
    # Empty when boxes may start on this node. A node that has just come is ready when it was expected.
    if row.is_usable:
        return closure
    due = supply_state.due.get(str(row.pk))
    return (due,) if due is not None and not row.is_cordoned else (Window(now_s, _return_s(now_s)),)


def window_of(row: MaintenanceWindow | WindowRow) -> Window:
    return Window(math.floor(row.starts_at.timestamp()), math.ceil(row.ends_at.timestamp()), str(row.pk))


def _announced(windows: Iterable[WindowRow]) -> defaultdict[UUID, list[Window]]:
    # Keyed by the node, or by the cluster when all of it is closed.
    found: defaultdict[UUID, list[Window]] = defaultdict(list)
    for row in windows:
        found[row.node_id or row.cluster_id].append(window_of(row))
    return found


def _closure(cluster: Cluster, absence: HubAbsence | None, now: datetime, now_s: int) -> tuple[Window, ...]:
    # A silent agent is expected at any moment; after a longer silence its return is unknown.
    if not cluster_is_open(cluster, now, absence=absence):
        return (Window(now_s, _return_s(now_s), unheard=Cause.SILENCE if cluster_is_silent(cluster, now) else ""),)
    if agent_is_live(cluster.agent, now, within_s=settings.EGS_AGENT_STALE_S):
        return ()
    heard_at = cluster.agent.last_sync_at
    was_away = absence is not None and heard_at is not None and heard_at < absence.ended_at
    return (Window(now_s, now_s + 1, unheard=Cause.LATE_TICK if was_away else Cause.SILENCE),)


def _return_s(now_s: int) -> int:
    return (now_s // RETURN_S + 2) * RETURN_S


def boxes_of(held: Iterable[HeldRow], pool_of_node: Mapping[UUID, str]) -> tuple[Running, ...]:
    # A box whose nodes are gone counts, too: it still occupies its slice.
    boxes: dict[UUID, list[HeldRow]] = defaultdict(list)
    for row in held:
        boxes[row.gpr_id].append(row)
    return tuple(_running_box(tuple(rows), _pool_of(rows, pool_of_node)) for rows in boxes.values())


def _pool_of(rows: Sequence[HeldRow], pool_of_node: Mapping[UUID, str]) -> str:
    return next((pool_of_node[row.node_id] for row in rows if row.node_id in pool_of_node), "")


@lru_cache(maxsize=65_536)  # few boxes change from one plan to the next
def _running_box(rows: tuple[HeldRow, ...], pool: str) -> Running:
    row, stand_ins = rows[0], _stand_ins(rows)
    return Running(
        id=str(row.gpr_id),
        slice=str(row.slice_id),
        project=str(row.gpr__slice__project_id),
        priority=row.gpr__priority,
        pool=pool,
        nodes=tuple(str(each.node_id) for each in rows),
        gpus_per_node=row.gpr__gpus_per_node or 0,
        end_s=max(each.end_s for each in rows),
        started_s=row.started_s or 0,
        evictable=row.gpr__evictable,
        is_open=row.gpr__state == GprState.ACTIVE,
        is_movable=row.gpr__requeue_on_failure and not row.gpr__is_booking and not stand_ins,
        uncounted=stand_ins,
    )


def _stand_ins(rows: Sequence[HeldRow]) -> tuple[str, ...]:
    # Nodes of spares whose place still has another node; of several spares for one place, all but one.
    taken, found = {row.pk for row in rows}, []
    for row in rows:
        if row.replaces_id in taken:
            found.append(str(row.node_id))
        elif row.replaces_id is not None:
            taken.add(row.replaces_id)
    return tuple(found)


def quotas_load() -> tuple[Quota, ...]:
    rows = QuotaRow.objects.order_by("pk").values_list(Coalesce("slice", "project"), "shape", "guaranteed_gpus", "most_gpus")
    return tuple(Quota(str(owner), shape, guaranteed, most) for owner, shape, guaranteed, most in rows)


def _request(
    ask: GprRow, rank: int, clusters: Set[str], promise: PromiseRow | None, shares: Mapping[str, int], places: PoolIndex
) -> Request:
    slot = _stored_slot(promise, places) if promise is not None and promise.slot_nodes else None
    pools = places.pools_for(ask, clusters, may_order=ask.slice__may_order)
    orders = _orders(ask, pools, places)
    # A slot on ordered nodes that suit the request stays, even if its policy does not allow orders any more.
    if slot is not None and slot.pool not in pools and slot.pool in places.pools_for(ask, clusters, may_order=True):
        pools = (*pools, slot.pool)
    return Request(
        id=str(ask.pk),
        slice=str(ask.slice_id),
        project=str(ask.slice__project_id),
        priority=ask.priority,
        rank=rank,
        node_count=ask.nodes,
        gpus_per_node=ask.gpus_per_node or 0,
        length_s=length_s(ask),
        pools=pools,
        share=shares.get(str(ask.slice__project_id), 0),
        earliest_start_s=math.ceil(ask.earliest_start_at.timestamp()) if ask.earliest_start_at else 0,
        # The rest of a booking that has run is an ordinary request.
        is_fixed=ask.is_booking and ask.run == 0,
        promise_s=math.floor(promise.promised_start_at.timestamp()) if promise else None,
        promised_at_s=_second(promise.made_at) if promise else 0,
        slot=slot,
        lost=(promise.lost_cause, promise.lost_cause_id) if promise and promise.lost_cause in CAUSES else None,
        may_evict=ask.may_evict,
        evictable=ask.evictable,
        place=_place_of(ask),
        orders=orders,
        handicaps=_handicaps(ask, pools, places),
        within=Within(ask.within),
    )


def _stored_slot(promise: PromiseRow, places: PoolIndex) -> Slot:
    # Nodes that have arrived leave the pool of their supply once all slots there can move.
    nodes, pool = places.supply_state.nodes_of(promise.slot_nodes), promise.slot_pool
    if pool not in places.keys or places.keys[pool].supply:
        pool = places.pool_of_node.get(UUID(nodes[0]), pool)
    return Slot(pool=pool, start_s=math.floor(promise.slot_start_at.timestamp()), nodes=nodes)


def _orders(ask: GprRow, pools: tuple[str, ...], places: PoolIndex) -> tuple[str, ...]:
    # An administrator may have canceled an order for it: then nothing more is ordered there for it.
    growing = ((id_, places.keys[id_].supply) for id_ in pools if places.keys[id_].supply)
    return tuple(id_ for id_, supply in growing if (ask.pk, UUID(supply)) not in places.supply_state.refused)


def _place_of(ask: GprRow) -> Place | None:
    return None if ask.place_share is None or ask.place_key is None else Place(ask.place_share, ask.place_key)
