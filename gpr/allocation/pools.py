"""Presents the nodes of all clusters as the planner's pools, with the times when nothing may start there."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from django.conf import settings

from gpr.allocation.rows import GprRow
from gpr.models import Gpr
from gpr.supplies.selectors import SupplyState, pool_id, supply_pools
from inventory.models import Cluster, HubAbsence, MaintenanceWindow, Supply, agent_is_live
from inventory.rows import InventoryNode, WindowRow
from inventory.selectors import cluster_is_open, cluster_is_silent
from planner.causes import Cause
from planner.snapshot import Node, Pool, Window

# It is unknown when a node that is set aside, not ready or unreachable comes back. It is expected after one to two of these periods, on a
# fixed grid, so that promises move once in a period and not every second.
RETURN_S = 4 * 3600
# The pools of at most so many different kinds of requests are remembered.
KINDS_MOST = 10_000


@dataclass(frozen=True, slots=True)
class PoolKey:
    """Holds the properties that nodes of a pool share; its text is the pool's id."""

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

    def makes_same_parts(self, other: PoolIndex) -> bool:
        """Returns whether requests and boxes are the same with both."""
        one, two = ((p.keys, p.pool_of_node, p.cluster_names, p.supply_state.node_of, p.supply_state.refused) for p in (self, other))
        return one == two

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
        if len(self._suiting) > KINDS_MOST:
            self._suiting.clear()
        if alike not in self._suiting:
            suiting = (id_ for id_, key in self.keys.items() if key.cluster in clusters and _suits(ask, key))
            self._suiting[alike] = tuple(id_ for id_ in suiting if may_order or not self.keys[id_].supply)
        return self._suiting[alike]


@dataclass(frozen=True, slots=True)
class Fleet:
    """Holds all that pools are made of. Equal ones make equal pools as long as there are no supplies."""

    nodes: tuple[InventoryNode, ...]
    cluster_names: Mapping[UUID, str]
    closures: Mapping[UUID, tuple[Window, ...]]  # of whole clusters
    announced: Mapping[UUID, tuple[Window, ...]]  # maintenance of a node or a cluster
    supply_state: SupplyState
    period_s: int

    def makes_same_pools(self, other: Fleet) -> bool:
        """Returns whether both make the same pools. It compares nodes by identity."""
        return (
            self.nodes is other.nodes
            and not self.supply_state.supplies
            and not other.supply_state.supplies
            and (self.cluster_names, self.closures, self.announced, self.period_s)
            == (other.cluster_names, other.closures, other.announced, other.period_s)
        )


def fleet_of(
    nodes: tuple[InventoryNode, ...],
    clusters: Mapping[UUID, Cluster],
    windows: Iterable[WindowRow],
    supply_state: SupplyState,
    absence: HubAbsence | None,
    now: datetime,
) -> Fleet:
    now_s = math.floor(now.timestamp())
    names = {cluster.pk: cluster.name for cluster in clusters.values()}
    closures = {cluster.pk: _closure(cluster, absence, now, now_s) for cluster in clusters.values()}
    return Fleet(nodes, names, closures, _announced(windows), supply_state, _period_s(now_s))


def pools_of(fleet: Fleet, absence: HubAbsence | None, now: datetime) -> tuple[PoolIndex, tuple[Pool, ...]]:
    """Nodes on which nothing may start now count as closed: set aside, not ready, or in a cluster that is disabled or silent."""
    nodes: dict[PoolKey, list[Node]] = defaultdict(list)
    arrived: dict[str, list[Node]] = defaultdict(list)
    pool_of_node: dict[UUID, str] = {}
    supply_state = fleet.supply_state
    for row in fleet.nodes:
        if (cluster := fleet.cluster_names.get(row.cluster_id)) is None:
            continue  # its cluster is gone since the nodes were read
        key = PoolKey(cluster, row.shape, row.node_type, row.gpu_memory_gib, row.rdma)
        closed = _closed_windows(row, fleet)
        node = Node(
            id=str(row.pk),
            gpu_count=row.gpu_count,
            closed=(*closed, *fleet.announced.get(row.cluster_id, ()), *fleet.announced.get(row.pk, ())),
            rack=f"{cluster}/{row.zone}/{row.rack}" if row.rack else "",
            nvlink_domain=f"{cluster}/{row.nvlink_domain}" if row.nvlink_domain else "",
        )
        pool_of_node[row.pk] = supply_state.kept.get(row.pk, key.id)
        (arrived[supply_state.kept[row.pk]] if row.pk in supply_state.kept else nodes[key]).append(node)
    keys = {key.id: key for key in sorted(nodes, key=lambda key: key.id)}
    pools = [Pool(id=id_, cluster=key.cluster, shape=key.shape, nodes=tuple(nodes[key])) for id_, key in keys.items()]
    # Supplies come last, so that of equal starts the planner prefers nodes that exist.
    keys |= {pool_id(supply.pk): _key_of(supply) for supply in supply_state.supplies}
    grown = supply_pools(supply_state, arrived, fleet.announced, fleet.closures, absence=absence, now=now)
    return PoolIndex(keys, pool_of_node, supply_state, fleet.cluster_names), (*pools, *grown)


def _key_of(supply: Supply) -> PoolKey:
    return PoolKey(supply.cluster.name, supply.shape, "", supply.gpu_memory_gib, rdma=False, supply=str(supply.pk), gain_s=supply.gain_s)


def _closed_windows(row: InventoryNode, fleet: Fleet) -> tuple[Window, ...]:
    # Empty when boxes may start on this node. A node that has just come is ready when it was expected.
    if row.is_usable:
        return fleet.closures[row.cluster_id]
    due = fleet.supply_state.due.get(str(row.pk))
    return (due,) if due is not None and not row.is_cordoned else (Window(fleet.period_s, _return_s(fleet.period_s)),)


def window_of(row: MaintenanceWindow | WindowRow) -> Window:
    return Window(math.floor(row.starts_at.timestamp()), math.ceil(row.ends_at.timestamp()), str(row.pk))


def _announced(windows: Iterable[WindowRow]) -> dict[UUID, tuple[Window, ...]]:
    # Keyed by the node, or by the cluster when all of it is closed.
    found: dict[UUID, tuple[Window, ...]] = {}
    for row in windows:
        key = row.node_id or row.cluster_id
        found[key] = (*found.get(key, ()), window_of(row))
    return found


def _closure(cluster: Cluster, absence: HubAbsence | None, now: datetime, now_s: int) -> tuple[Window, ...]:
    # A silent agent is expected at any moment; after a longer silence its return is unknown.
    if not cluster_is_open(cluster, now, absence=absence):
        return (Window(_period_s(now_s), _return_s(now_s), unheard=Cause.SILENCE if cluster_is_silent(cluster, now) else ""),)
    if agent_is_live(cluster.agent, now, within_s=settings.EGS_AGENT_STALE_S):
        return ()
    heard_at = cluster.agent.last_sync_at
    was_away = absence is not None and heard_at is not None and heard_at < absence.ended_at
    return (Window(now_s, now_s + 1, unheard=Cause.LATE_TICK if was_away else Cause.SILENCE),)


def _period_s(now_s: int) -> int:
    return now_s // RETURN_S * RETURN_S


def _return_s(now_s: int) -> int:
    return (now_s // RETURN_S + 2) * RETURN_S


def _suits(ask: GprRow | Gpr, key: PoolKey) -> bool:
    if ask.allowed_shapes and key.shape not in ask.allowed_shapes:
        return False
    return (
        ask.shape in {"", key.shape}
        and (ask.min_gpu_memory_gib or 0) <= key.gpu_memory_gib
        and ask.node_type in {"", key.node_type}
        and (key.rdma or not ask.rdma)
    )
