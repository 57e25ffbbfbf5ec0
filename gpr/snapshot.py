"""Load what the planner needs: a few queries, then plain dataclasses."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Coalesce

from gpr.fairness import shares_of, usage_load
from gpr.models import PROVISIONED, Gpr, GprState, Promise, Shadow, Witness
from gpr.planner.snapshot import Arrival, Memory, Place, Policy, Pool, Quota, Request, Running, Slack, Slot, Snapshot, Window, Within
from gpr.planner.snapshot import Node as PlannerNode
from gpr.planner.snapshot import Shadow as PlannerShadow
from gpr.supplies import SupplyBooks, pool_id, supplies_load, supply_pools
from inventory.models import Cluster, Gpu, MaintenanceWindow, Node, Reservation, ReservationState, Supply, agent_is_live
from inventory.selectors import cluster_is_open, maintenance_ahead
from inventory.services.reservations import is_usable
from slices.models import Quota as QuotaRow

# Nobody says when a node that is set aside, not ready or unreachable comes back: it is expected so many seconds ahead, or up to twice
# that, and those who wait for it are told anew once in that time, not every second.
RETURN_S = 4 * 3600
# Ticks are not exact: a start this late has kept its promise.
PROMISE_TOLERANCE_S = 60
SLACK = Slack()


@dataclass(frozen=True, slots=True)
class PoolKey:
    """What makes nodes alike. Its text is the pool's id.

    `supply`: the id of that whose nodes these are to be, one pool each; `gain_s`: for less nobody is put there.
    """

    cluster: str
    shape: str
    node_type: str
    gpu_memory_gib: int
    rdma: bool
    supply: str = ""
    gain_s: int = 0

    @property
    def id(self) -> str:
        if self.supply:
            return pool_id(self.supply)
        return f"{self.cluster}/{self.shape}/{self.node_type or '-'}/{self.gpu_memory_gib}{'/rdma' if self.rdma else ''}"


@dataclass(frozen=True, slots=True)
class Places:
    """Where requests may stand, and what is known of nodes that are to come."""

    keys: Mapping[str, PoolKey]
    pool_of_node: Mapping[UUID, str]
    books: SupplyBooks


@dataclass(frozen=True, slots=True)
class Loaded:
    """A snapshot and the way back from its ids to rows."""

    snapshot: Snapshot
    gprs: dict[str, Gpr]
    promises: dict[str, Promise]
    cluster_ids: dict[str, UUID]
    shares: dict[str, int]
    places: Places

    def candidate(self, gpr: Gpr, clusters: Iterable[Cluster]) -> Request:
        """A GPR that is not saved, as the planner would see it were it submitted now."""
        names = {cluster.name for cluster in clusters or gpr.slice.clusters.all()}
        return _request(gpr, len(self.snapshot.queue), pools_for(gpr, names, self.places.keys), None, self.shares, self.places)

    def elsewhere(self, candidate: Request, pools: tuple[str, ...]) -> Request:
        """The candidate in other pools than its own, as if none of them had a handicap."""
        orders = tuple(id_ for id_ in pools if self.places.keys[id_].supply)
        return replace(candidate, pools=pools, orders=orders, handicaps=())

    def supply(self, supply_id: str) -> Supply:
        """That is named in an offer."""
        return next(supply for supply in self.places.books.supplies if str(supply.pk) == supply_id)

    def with_running_end(self, gpr_id: str, end_s: int) -> Snapshot:
        """A copy in which this box ends at another time."""
        running = (replace(box, end_s=end_s) if box.id == gpr_id else box for box in self.snapshot.running)
        return replace(self.snapshot, running=tuple(running))

    def with_maintenance(self, row: MaintenanceWindow) -> Snapshot:
        """A copy in which this is announced, too."""
        cluster, node_id, window = row.cluster.name, str(row.node_id), window_of(row)

        def closed(node: PlannerNode) -> PlannerNode:
            return replace(node, closed=(*node.closed, window)) if row.node_id is None or node.id == node_id else node

        pools = (replace(p, nodes=tuple(map(closed, p.nodes))) if p.cluster == cluster else p for p in self.snapshot.pools)
        return replace(self.snapshot, pools=tuple(pools))


def snapshot_load(*, now: datetime, with_memory: bool = False) -> Loaded:
    """Nodes on which nothing may start now count as closed: set aside, not ready, their cluster disabled or not heard.

    `with_memory`: something new is to be planned. Where the queue itself holds something new it is loaded anyway.
    """
    now_s = math.floor(now.timestamp())
    clusters = {c.pk: c for c in Cluster.objects.select_related("agent")}
    pool_of_node: dict[UUID, str] = {}
    waiting = list(gprs_waiting())
    promises = {str(p.pk): p for p in Promise.objects.filter(gpr__state=GprState.QUEUED)}
    books = supplies_load(promises.values(), now=now, now_s=now_s, grace_s=policy().overrun_grace_s)
    keys, pools = _pools(clusters, pool_of_node, books, now, now_s)
    running, quotas, places = boxes_of(rows_held(), pool_of_node), quotas_load(), Places(keys, pool_of_node, books)
    shares = shares_of(usage_load(now=now), running, pools, quotas, now_s)
    allowed = ((gpr, pools_allowed(gpr, keys), promises.get(str(gpr.pk))) for gpr in waiting)
    queue = tuple(_request(gpr, rank, own, promise, shares, places) for rank, (gpr, own, promise) in enumerate(allowed))
    snapshot = Snapshot(
        now_s=now_s,
        pools=pools,
        running=running,
        queue=queue,
        quotas=quotas,
        policy=policy(),
        memory=memory_load(now=now) if with_memory or len(promises) < len(waiting) else Memory(),
    )
    return Loaded(
        snapshot=snapshot,
        gprs={str(gpr.pk): gpr for gpr in waiting},
        promises=promises,
        cluster_ids={cluster.name: cluster.pk for cluster in clusters.values()},
        shares=shares,
        places=places,
    )


def policy() -> Policy:
    """As the settings say."""
    return Policy(
        promise_tolerance_s=PROMISE_TOLERANCE_S,
        notice_s=settings.EGS_EVICTION_NOTICE_S,
        least_run_s=settings.EGS_EVICTION_LEAST_RUN_S,
        exit_s=settings.EGS_EXIT_ALLOWANCE_S,
        entry_s=settings.EGS_ENTRY_ALLOWANCE_S,
        claim_gain_s=settings.EGS_EVICTION_GAIN_S,
        break_from=settings.EGS_BREAK_PROMISES_FROM or None,
        slack=SLACK,
    )


def memory_load(*, now: datetime) -> Memory:
    """What the pace of newcomers follows from; three queries."""
    since = now - timedelta(seconds=SLACK.observed_s)
    rows = Shadow.objects.filter(Q(made_at__gte=since) | Q(strict_ends_at__gt=now) | Q(patient_ends_at__gt=now)).order_by("made_at", "pk")
    shadows, arrivals = [], []
    for row in rows:
        if row.made_at >= since:
            arrivals.append(Arrival(math.floor(row.made_at.timestamp()), row.priority, row.gpu_s))
        if row.strict_ends_at and row.patient_ends_at and max(row.strict_ends_at, row.patient_ends_at) > now:
            shadows.append(shadow_of(row))
    record = Witness.objects.first() or Witness()
    return Memory(
        shadows=tuple(shadows),
        arrivals=tuple(arrivals),
        promised_s=record.promised_sum_s,
        patient_s=record.patient_sum_s,
        summed_at_s=_second(record.summed_at),
        ran_s=record.ran_sum_s,
        booked_s=record.booked_sum_s,
    )


def shadow_of(row: Shadow) -> PlannerShadow:
    """Of a row that has its times."""
    return PlannerShadow(
        str(row.gpr_id),
        row.gpus_per_node,
        _slot(row.patient, row.patient_starts_at),
        _second(row.patient_ends_at),
        _slot(row.strict, row.strict_starts_at),
        _second(row.strict_ends_at),
    )


def _slot(data: dict[str, Any], starts_at: datetime | None) -> Slot:
    return Slot(data["pool"], _second(starts_at), tuple(data["nodes"]))


def _second(moment: datetime | None) -> int:
    return math.floor(moment.timestamp()) if moment else 0


def gprs_waiting() -> QuerySet[Gpr]:
    """In the order of age, which breaks ties among equals."""
    waiting = Gpr.objects.filter(state=GprState.QUEUED).select_related("slice__home").prefetch_related("clusters", "slice__clusters")
    return waiting.order_by("turn_at", "pk")


def pools_allowed(gpr: Gpr, pools: Mapping[str, PoolKey]) -> tuple[str, ...]:
    clusters = {c.name for c in gpr.clusters.all()} or {c.name for c in gpr.slice.clusters.all()}
    return pools_for(gpr, clusters, pools)


def pools_for(gpr: Gpr, clusters: set[str], pools: Mapping[str, PoolKey]) -> tuple[str, ...]:
    """The pools in these clusters that suit the GPR, which need not be saved yet."""
    return tuple(id_ for id_, key in pools.items() if key.cluster in clusters and _suits(gpr, key))


def handicaps(gpr: Gpr, pools: tuple[str, ...], keys: Mapping[str, PoolKey]) -> tuple[tuple[str, int], ...]:
    """Away from home, where it could be at home as well; and on nodes that were ordered for another, what an own order has to gain."""
    home = gpr.slice.home
    away = {id_ for id_ in pools if home is not None and keys[id_].cluster != home.name}
    burst_s = gpr.slice.burst_gain_s if len(away) < len(pools) else 0
    found = ((id_, (burst_s if id_ in away else 0) + keys[id_].gain_s) for id_ in pools)
    return tuple((id_, handicap_s) for id_, handicap_s in found if handicap_s)


def length_s(gpr: Gpr) -> int:
    """The whole box: entry, what is left of the duration, exit."""
    return int(settings.EGS_ENTRY_ALLOWANCE_S + gpr.remaining_s + settings.EGS_EXIT_ALLOWANCE_S)


def books_end(ends_at: datetime) -> datetime:
    """When the nodes of a box that ends then are free again by the books: its exit has had its time."""
    return ends_at + timedelta(seconds=settings.EGS_EXIT_ALLOWANCE_S)


def end_by_books(freed_at: datetime) -> datetime:
    """When a box is to end whose nodes are to be free then: the other way round."""
    return freed_at - timedelta(seconds=settings.EGS_EXIT_ALLOWANCE_S)


def at(moment_s: int) -> datetime:
    """A planner's second as a time."""
    return datetime.fromtimestamp(moment_s, UTC)


def _suits(gpr: Gpr, key: PoolKey) -> bool:
    if gpr.allowed_shapes and key.shape not in gpr.allowed_shapes:
        return False
    return (
        gpr.shape in {"", key.shape}
        and (gpr.min_gpu_memory_gib or 0) <= key.gpu_memory_gib
        and gpr.node_type in {"", key.node_type}
        and (key.rdma or not gpr.rdma)
        and (not key.supply or gpr.slice.may_order)
    )


def _pools(
    clusters: dict[UUID, Cluster], pool_of_node: dict[UUID, str], books: SupplyBooks, now: datetime, now_s: int
) -> tuple[dict[str, PoolKey], tuple[Pool, ...]]:
    sick = Gpu.objects.filter(node=OuterRef("pk"), gone_at=None, is_healthy=False)
    rows = Node.objects.filter(gone_at=None, gpu_count__gt=0, cluster__in=clusters).annotate(has_sick_gpu=Exists(sick))
    nodes: dict[PoolKey, list[PlannerNode]] = defaultdict(list)
    arrived: dict[str, list[PlannerNode]] = defaultdict(list)
    announced = _announced(now)
    cluster_back_s = {cluster.pk: _cluster_back_s(cluster, now, now_s) for cluster in clusters.values()}
    for row in rows.order_by("name", "pk"):
        cluster = clusters[row.cluster_id]
        key = PoolKey(cluster.name, row.shape, row.node_type, row.gpu_memory_gib, row.rdma)
        away = _away(row, cluster_back_s[row.cluster_id], books, now_s)
        node = PlannerNode(
            id=str(row.pk),
            gpu_count=row.gpu_count,
            closed=(*away, *announced[row.cluster_id], *announced[row.pk]),
            rack=f"{cluster.name}/{row.zone}/{row.rack}" if row.rack else "",
            nvlink_domain=f"{cluster.name}/{row.nvlink_domain}" if row.nvlink_domain else "",
        )
        pool_of_node[row.pk] = books.kept.get(row.pk, key.id)
        (arrived[books.kept[row.pk]] if row.pk in books.kept else nodes[key]).append(node)
    keys = {key.id: key for key in sorted(nodes, key=lambda key: key.id)}
    pools = [Pool(id=id_, cluster=key.cluster, shape=key.shape, nodes=tuple(nodes[key])) for id_, key in keys.items()]
    # Last: of equal starts that on a node that is there is liked better.
    keys |= {pool_id(supply.pk): _key_of(supply) for supply in books.supplies}
    return keys, (*pools, *supply_pools(books, arrived, announced, now))


def _key_of(supply: Supply) -> PoolKey:
    return PoolKey(supply.cluster.name, supply.shape, "", supply.gpu_memory_gib, rdma=False, supply=str(supply.pk), gain_s=supply.gain_s)


def _away(row: Any, cluster_back_s: int, books: SupplyBooks, now_s: int) -> tuple[Window, ...]:
    """How long nothing may start on this node, if so. One that has just come is ready when it was expected."""
    if is_usable(row) and not row.has_sick_gpu:
        return () if cluster_back_s <= now_s else (Window(now_s, cluster_back_s),)
    due = books.due.get(str(row.pk))
    return (due,) if due is not None and row.cordoned_at is None else (Window(now_s, _return_s(now_s)),)


def window_of(row: MaintenanceWindow) -> Window:
    return Window(math.floor(row.starts_at.timestamp()), math.ceil(row.ends_at.timestamp()), str(row.pk))


def _announced(now: datetime) -> defaultdict[UUID, list[Window]]:
    """Maintenance by the id of what it closes: a node, or a whole cluster."""
    found: defaultdict[UUID, list[Window]] = defaultdict(list)
    for row in maintenance_ahead(now):
        found[row.node_id or row.cluster_id].append(window_of(row))
    return found


def _cluster_back_s(cluster: Cluster, now: datetime, now_s: int) -> int:
    """From when on boxes may start there, in whole seconds. A silent agent is expected any moment, until it counts as away."""
    if not cluster_is_open(cluster, now):
        return _return_s(now_s)
    return now_s if agent_is_live(cluster.agent, now, within_s=settings.EGS_AGENT_STALE_S) else now_s + 1


def _return_s(now_s: int) -> int:
    return (now_s // RETURN_S + 2) * RETURN_S


def rows_held() -> QuerySet[Reservation]:
    """Of every GPR in the states that hold nodes."""
    held = Reservation.objects.filter(state=ReservationState.HELD, gpr__state__in=PROVISIONED)
    return held.select_related("gpr__slice").order_by("gpr", "node")


def boxes_of(held: Iterable[Reservation], pool_of_node: Mapping[UUID, str]) -> tuple[Running, ...]:
    """One for each GPR; also where its nodes are gone, for its slice is held all the same."""
    boxes: dict[UUID, list[Reservation]] = defaultdict(list)
    for row in held:
        boxes[row.gpr_id].append(row)
    return tuple(_running_box(rows, pool_of_node) for rows in boxes.values())


def _running_box(rows: list[Reservation], pool_of_node: Mapping[UUID, str]) -> Running:
    gpr = rows[0].gpr
    return Running(
        id=str(gpr.pk),
        slice=str(gpr.slice_id),
        project=str(gpr.slice.project_id),
        priority=gpr.priority,
        pool=next((pool_of_node[row.node_id] for row in rows if row.node_id in pool_of_node), ""),
        nodes=tuple(str(row.node_id) for row in rows),
        gpus_per_node=gpr.gpus_per_node or 0,
        end_s=math.ceil(max(row.ends_at for row in rows).timestamp()),
        started_s=_second(gpr.provisioning_at),
        evictable=gpr.evictable,
        is_open=gpr.state == GprState.ACTIVE,
        is_movable=gpr.requeue_on_failure and not gpr.is_booking,
    )


def quotas_load() -> tuple[Quota, ...]:
    rows = QuotaRow.objects.order_by("pk").values_list(Coalesce("slice", "project"), "shape", "guaranteed_gpus", "most_gpus")
    return tuple(Quota(str(owner), shape, guaranteed, most) for owner, shape, guaranteed, most in rows)


def _request(gpr: Gpr, rank: int, pools: tuple[str, ...], promise: Promise | None, shares: Mapping[str, int], places: Places) -> Request:
    slot = _stored_slot(promise, places) if promise is not None and promise.slot_nodes else None
    # A booking is met by what is there, and whoever stands on ordered nodes stays there whatever its policy says now.
    orders = () if gpr.is_booking and gpr.run == 0 else _orders(gpr, pools, places)
    if slot is not None and slot.pool not in pools and slot.pool in places.keys and places.keys[slot.pool].supply:
        pools = (*pools, slot.pool)
    return Request(
        id=str(gpr.pk),
        slice=str(gpr.slice_id),
        project=str(gpr.slice.project_id),
        priority=gpr.priority,
        rank=rank,
        node_count=gpr.nodes,
        gpus_per_node=gpr.gpus_per_node or 0,
        length_s=length_s(gpr),
        pools=pools,
        share=shares.get(str(gpr.slice.project_id), 0),
        earliest_start_s=math.ceil(gpr.earliest_start_at.timestamp()) if gpr.earliest_start_at else 0,
        # What is left of one that has run is a request as any other.
        is_fixed=gpr.is_booking and gpr.run == 0,
        promise_s=math.floor(promise.promised_start_at.timestamp()) if promise else None,
        slot=slot,
        may_evict=gpr.may_evict,
        evictable=gpr.evictable,
        place=place_of(gpr),
        orders=orders,
        handicaps=handicaps(gpr, pools, places.keys),
        within=Within(gpr.within),
    )


def _stored_slot(promise: Promise, places: Places) -> Slot:
    """Nodes that have come are in another pool than that of their supply, if all of its slots can move there."""
    nodes, pool = places.books.nodes_of(promise.slot_nodes), promise.slot_pool
    if pool not in places.keys or places.keys[pool].supply:
        pool = places.pool_of_node.get(UUID(nodes[0]), pool)
    return Slot(pool=pool, start_s=math.floor(promise.slot_start_at.timestamp()), nodes=nodes)


def _orders(gpr: Gpr, pools: tuple[str, ...], places: Places) -> tuple[str, ...]:
    """Those in which more may be ordered for it."""
    growing = ((id_, places.keys[id_].supply) for id_ in pools if places.keys[id_].supply)
    return tuple(id_ for id_, supply in growing if (gpr.pk, UUID(supply)) not in places.books.refused)


def place_of(gpr: Gpr) -> Place | None:
    return None if gpr.place_share is None or gpr.place_key is None else Place(gpr.place_share, gpr.place_key)
