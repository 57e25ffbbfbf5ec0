"""Loads what the planner needs, and turns it into the planner's dataclasses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from django.conf import settings

from core.written_sql import WrittenQuery
from gpr.allocation.pools import PoolIndex, window_of
from gpr.allocation.rows import (
    LAST_S,
    GprRow,
    HeldRow,
    PromiseRow,
)
from gpr.models import ENDED, PROVISIONED, AfterCondition, Gpr, GprState, PlanRecord, ended_well
from inventory.models import Cluster, MaintenanceWindow, Supply
from planner.causes import Cause
from planner.promises.live_board import LiveBoard
from planner.snapshot import Node as PlannerNode
from planner.snapshot import (
    Place,
    PlanPolicy,
    PolicyName,
    Quota,
    Request,
    Running,
    SlackSettings,
    Slot,
    Snapshot,
    Within,
)
from slices.models import OWNER_ID
from slices.models import Quota as QuotaRow

# Ticks are not exact: a start that is late by no more than this keeps its promise.
PROMISE_TOLERANCE_S = 60
PROMISE_TOLERANCE = timedelta(seconds=PROMISE_TOLERANCE_S)
SLACK = SlackSettings()
CAUSES = frozenset(Cause)
EPOCH, MICROSECOND = datetime.fromtimestamp(0, UTC), timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Loaded:
    """Holds a snapshot, and the rows behind its ids."""

    snapshot: Snapshot
    requests: Mapping[str, GprRow]
    promises: Mapping[str, PromiseRow]
    cluster_ids: dict[str, UUID]
    shares: dict[str, int]
    places: PoolIndex
    clusters_of_slice: Mapping[UUID, Set[UUID]]
    now: datetime
    board: LiveBoard  # the stored slots of this snapshot, or of one made of it
    record: PlanRecord

    @property
    def last_rank(self) -> int:
        """Returns the age of a newcomer: behind all who came by now."""
        return rank_of(self.now) + 1

    def candidate(self, gpr: Gpr, clusters: Iterable[Cluster]) -> Request:
        """Returns an unsaved GPR as if it were submitted now."""
        return self._request(GprRow.of(gpr), clusters, self.last_rank, None)

    def with_newcomers(self, asked: Iterable[tuple[Gpr, Iterable[Cluster]]]) -> Loaded:
        """Adds GPRs that are not stored yet to the queue. `asked`: each GPR with the clusters that it names."""
        rows = {str(gpr.pk): (GprRow.of(gpr), clusters) for gpr, clusters in asked}
        made = (self._request(row, clusters, rank_of(row.turn_at), None) for row, clusters in rows.values())
        requests = {**self.requests, **{id_: row for id_, (row, _) in rows.items()}}
        return replace(self, snapshot=replace(self.snapshot, queue=(*self.snapshot.queue, *made)), requests=requests)

    def queued(self, gpr: Gpr) -> Request | None:
        return next((request for request in self.snapshot.queue if request.id == str(gpr.pk)), None)

    def waiting(self, gpr: Gpr, clusters: Iterable[Cluster]) -> Request | None:
        """Returns a queued GPR as if it asked for what `gpr` asks for. Returns None if the GPR has no promise."""
        queued = self.queued(gpr)
        if queued is None or queued.promise_s is None:
            return None
        return replace(self._request(GprRow.of(gpr), clusters, queued.rank, self.promises.get(queued.id)), slot=queued.slot)

    def _request(self, ask: GprRow, clusters: Iterable[Cluster], rank: int, promise: PromiseRow | None) -> Request:
        known, named = self.places.cluster_names, {cluster.pk for cluster in clusters} or self.clusters_of_slice.get(ask.slice_id, set())
        names = {known[pk] for pk in named if pk in known}
        after = predecessor_of(ask, lambda id_: any(box.id == id_ for box in self.snapshot.running))
        return replace(request_of(ask, names, promise, self.shares, self.places, after), rank=rank)

    def elsewhere(self, candidate: Request, pools: tuple[str, ...]) -> Request:
        """Puts the candidate into other pools, without handicaps."""
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
    """Returns the age in the queue as the planner takes it: microseconds since 1970."""
    return 0 if turn_at is None else (turn_at - EPOCH) // MICROSECOND


def with_newcomer(snapshot: Snapshot, newcomer: Request, queued_at: datetime) -> Snapshot:
    """Adds `newcomer` with this age, in place of any request with its id."""
    others = (request for request in snapshot.queue if request.id != newcomer.id)
    return replace(snapshot, queue=(*others, replace(newcomer, rank=rank_of(queued_at))))


def with_running_end(snapshot: Snapshot, gpr_id: str, end_s: int) -> Snapshot:
    return replace(snapshot, running=tuple(replace(box, end_s=end_s) if box.id == gpr_id else box for box in snapshot.running))


def policy() -> PlanPolicy:
    return PlanPolicy(
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


def second_of(moment: datetime | None) -> int:
    return math.floor(moment.timestamp()) if moment else 0


def _handicaps(ask: GprRow, pools: tuple[str, ...], places: PoolIndex) -> tuple[tuple[str, int], ...]:
    # Seconds by which a start must be sooner: away from the home cluster, and on nodes that were ordered for another request.
    home = places.cluster_names.get(ask.slice__home_id) if ask.slice__home_id else None
    away = {id_ for id_ in pools if home is not None and places.keys[id_].cluster != home}
    burst_s = ask.slice__burst_gain_s if len(away) < len(pools) else 0
    found = ((id_, (burst_s if id_ in away else 0) + places.keys[id_].gain_s) for id_ in pools)
    return tuple((id_, handicap_s) for id_, handicap_s in found if handicap_s)


def length_s(gpr: GprRow | Gpr) -> int:
    """Returns the seconds of the whole box: entry, the rest of the duration, exit."""
    return box_length_s(gpr.remaining_s)


def box_length_s(remaining_s: int) -> int:
    return int(settings.EGS_ENTRY_ALLOWANCE_S + remaining_s + settings.EGS_EXIT_ALLOWANCE_S)


def nodes_free_at(ends_at: datetime) -> datetime:
    """Returns when the nodes of a box that ends at `ends_at` are free again: after the exit."""
    return ends_at + timedelta(seconds=settings.EGS_EXIT_ALLOWANCE_S)


def box_end_for(freed_at: datetime) -> datetime:
    """It is the inverse of `nodes_free_at`."""
    return freed_at - timedelta(seconds=settings.EGS_EXIT_ALLOWANCE_S)


def at(moment_s: int) -> datetime:
    """Returns seconds since 1970 as a datetime, at most LAST_S."""
    return datetime.fromtimestamp(min(moment_s, LAST_S), UTC)


def running_box(rows: tuple[HeldRow, ...], pool_of_node: Mapping[UUID, str]) -> Running:
    """Returns the box that holds these nodes. A box whose nodes are gone counts, too: it still occupies its slice."""
    row, stand_ins = rows[0], _stand_ins(rows)
    return Running(
        id=str(row.gpr_id),
        slice=str(row.slice_id),
        project=str(row.gpr__slice__project_id),
        priority=row.gpr__priority,
        pool=next((pool_of_node[each.node_id] for each in rows if each.node_id in pool_of_node), ""),
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


_QUOTAS: Final = WrittenQuery(QuotaRow.objects.order_by("pk").values_list(OWNER_ID, "shape", "guaranteed_gpus", "most_gpus"))


def quotas_load() -> tuple[Quota, ...]:
    return tuple(Quota(str(owner), shape, guaranteed, most) for owner, shape, guaranteed, most in _QUOTAS())


def predecessor_of(ask: GprRow, is_held: Callable[[str], bool]) -> str:
    """Returns the id of the GPR that it waits for, or "". A predecessor that ended in another way than asked is in no plan, so nothing
    starts after it.
    """
    id_, state = str(ask.after_id), ask.after__state
    if state is None or (state in ENDED and (ask.after_condition == AfterCondition.ANY or ended_well(state, ask.after__job__outcome))):
        return ""
    return "" if state in PROVISIONED and not is_held(id_) else id_  # its nodes are back, and the next tick ends it


def request_of(
    ask: GprRow, clusters: Set[str], promise: PromiseRow | None, shares: Mapping[str, int], places: PoolIndex, after: str
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
        rank=rank_of(ask.turn_at),
        node_count=ask.nodes,
        gpus_per_node=ask.gpus_per_node or 0,
        length_s=length_s(ask),
        pools=pools,
        share=shares.get(str(ask.slice__project_id), 0),
        earliest_start_s=math.ceil(ask.earliest_start_at.timestamp()) if ask.earliest_start_at else 0,
        # The rest of a booking that has run is an ordinary request.
        is_fixed=ask.is_booking and ask.run == 0,
        promise_s=math.floor(promise.promised_start_at.timestamp()) if promise else None,
        promised_at_s=second_of(promise.made_at) if promise else 0,
        slot=slot,
        lost=(promise.lost_cause, promise.lost_cause_id) if promise and promise.lost_cause in CAUSES else None,
        may_evict=ask.may_evict,
        evictable=ask.evictable,
        place=_place_of(ask),
        orders=orders,
        handicaps=_handicaps(ask, pools, places),
        within=Within(ask.within),
        after=after,
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
