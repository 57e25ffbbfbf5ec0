"""Turns the demands of requests into numbers: their pools and the limits that cover them.

Most requests of a long queue ask for one of a few things, so results that depend only on the ask are computed once.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from planner.board.empty import LIMITS_MOST, NO_POOLS, clamp_s, new_table
from planner.capacity.free_now import FreeNow, new_free_now
from planner.capacity.placement import NO_INTS, OF_SLICE, Demand
from planner.capacity.profile import NONE, Ints
from planner.snapshot import Pool, Quota, Request, Running, Within

# Levels of topology domains in `Capacity.domain_of`.
LEVELS: Final = {Within.ANY: NONE, Within.NVLINK: 0, Within.RACK: 1}


Group = tuple[tuple[int, ...], int, int]  # numbers of pools, GPUs per node and nodes


@dataclass(frozen=True, eq=False)
class DemandClass:
    """Holds the part of a demand that does not depend on length, time and, without a quota, the slice."""

    demand: Demand  # with length 1 and without the limit of the slice
    gpu_count: int  # of a box; whole nodes count as the largest that it may use
    gpus_by_shape: dict[str, int]
    columns: dict[str, Any]  # of its row in the table


class Demands:
    def __init__(self, pools: tuple[Pool, ...], quotas: tuple[Quota, ...]) -> None:
        self.pool_numbers = {pool.id: number for number, pool in enumerate(pools)}
        self.most = {(quota.owner, quota.shape): quota.most for quota in quotas if quota.most is not None}
        self.limit_sizes: list[int] = []
        self._pools = pools
        self._node_count = sum(len(pool.nodes) for pool in pools)
        self._largest = [max((node.gpu_count for node in pool.nodes), default=0) for pool in pools]
        self._limited = {owner for owner, _ in self.most}
        self._limits: dict[tuple[str, str], int] = {}
        self._groups: dict[Group, int] = {}
        self._alike: dict[tuple[object, ...], DemandClass] = {}
        self._held: dict[tuple[object, ...], tuple[Ints, Ints, Ints]] = {}

    def copy(self) -> Demands:
        twin = copy(self)
        twin.limit_sizes, twin._limits, twin._groups = list(self.limit_sizes), dict(self._limits), dict(self._groups)
        twin._alike, twin._held = dict(self._alike), dict(self._held)
        return twin

    def demand_class(self, request: Request) -> DemandClass:
        demand = request.pools, request.node_count, request.gpus_per_node, request.within, request.handicaps, request.is_fixed
        ask = *demand, *self._limited_owners(request)
        found = self._alike.get(ask)
        if found is None:
            found = self._alike[ask] = self._new(request)
        return found

    def of(self, request: Request, pools: list[int] | None = None) -> Demand:
        """Returns an empty demand, which finds no place, for a request that is larger than every pool."""
        bare = self.demand_class(request).demand if pools is None else self._bare(request, pools)
        return bare._replace(length_s=max(1, clamp_s(request.length_s)), limits=self._with_slice(bare.limits, request.slice))

    def held(self, running: Running, places: Ints, pool: int | None, gpu_count: int, length_s: int) -> Demand:
        ask = pool, gpu_count, *self._limited_owners(running)
        if ask not in self._held:
            pools = [] if pool is None else [pool]
            self._held[ask] = np.array(pools, np.int64), *self._limits_of(running, pools, [gpu_count])
        own_pools, limits, amounts = self._held[ask]
        limits = self._with_slice(limits, running.slice)
        return Demand(len(places), running.gpus_per_node, length_s, NONE, own_pools, NO_INTS, limits, amounts)

    def pools_of(self, request: Request) -> list[int]:
        return [self.pool_numbers[id_] for id_ in dict.fromkeys(request.pools) if id_ in self.pool_numbers]

    def limit_of_slice(self, slice_: str) -> int:
        return self._limit(slice_, "", 1) if slice_ else NONE

    def empty_free_now(self) -> FreeNow:
        ordered = sorted({(pool, gpus) for pools, gpus, _ in self._groups for pool in pools})
        size_classes = {size_class: number for number, size_class in enumerate(ordered)}
        of_groups = np.full((len(self._groups), max(len(self._pools), 1)), NONE, np.int64)
        for group, (pools, gpus, _) in enumerate(self._groups):
            of_groups[group, : len(pools)] = [size_classes[pool, gpus] for pool in pools]
        first = np.searchsorted([pool for pool, _ in ordered], np.arange(len(self._pools) + 1))
        gpus_of = np.array([gpus for _, gpus in ordered], np.int64)
        nodes_of = np.array([nodes for _, _, nodes in self._groups], np.int64)
        return new_free_now(first, gpus_of, of_groups, nodes_of, node_count=self._node_count)

    @property
    def groups(self) -> tuple[Group, ...]:
        """Returns the groups in the order of their numbers."""
        return tuple(self._groups)

    def group_number(self, group: Group) -> int:
        return self._groups.setdefault(group, len(self._groups))

    def _new(self, request: Request) -> DemandClass:
        pools = self.pools_of(request)
        demand = self._bare(request, pools)
        group = self.group_number((tuple(demand.pools.tolist()), demand.gpus, demand.nodes))
        largest = max((self._largest[pool] for pool in pools), default=0)
        by_shape: dict[str, int] = {}
        for pool in pools:
            shape = self._pools[pool].shape
            by_shape[shape] = max(self._gpus_in(request, pool), by_shape.get(shape, 0))
        gpu_count = request.node_count * (request.gpus_per_node or largest)
        return DemandClass(demand, gpu_count, by_shape, self._columns(demand, group))

    def _columns(self, demand: Demand, group: int) -> dict[str, Any]:
        empty = new_table(1, len(self._pools))
        columns = {name: getattr(empty, name)[0] for name in ("pools", "handicaps_s", "limits", "amounts", "all_limits")}
        limits, count = np.unique(demand.limits[demand.limits != NONE]), len(demand.pools)
        for name, values in (("pools", demand.pools), ("handicaps_s", demand.handicaps_s), ("all_limits", limits)):
            columns[name][: len(values)] = values
        for name, by_pool in (("limits", demand.limits), ("amounts", demand.amounts)):
            columns[name][:count] = by_pool[:count]
        return columns | {"nodes": demand.nodes, "gpus": demand.gpus, "level": demand.level, "group": group}

    def _bare(self, request: Request, pools: list[int]) -> Demand:
        if not (0 < request.node_count <= self._node_count and 0 <= request.gpus_per_node <= max(self._largest)):
            return Demand(0, 0, 1, NONE, NO_INTS, NO_INTS, NO_POOLS, NO_POOLS)
        limits, amounts = self._limits_of(request, pools, [self._gpus_in(request, pool) for pool in pools])
        handicaps_s = [clamp_s(request.handicap_s(self._pools[pool].id)) for pool in pools]
        sizes = request.node_count, request.gpus_per_node, 1, LEVELS[request.within]
        return Demand(*sizes, np.array(pools, np.int64), np.array(handicaps_s, np.int64), limits, amounts)

    def _limits_of(self, box: Request | Running, pools: list[int], gpus: list[int]) -> tuple[Ints, Ints]:
        """Return the quotas by pool, and an unused column for the limit of the slice."""
        limits = np.full((max(len(pools), 1), LIMITS_MOST), NONE, np.int64)
        amounts = np.ones_like(limits)
        for i, pool in enumerate(pools):
            shape = self._pools[pool].shape
            owners = dict.fromkeys(owner for owner in (box.project, box.slice) if (owner, shape) in self.most)
            for k, owner in enumerate(owners, start=OF_SLICE + 1):
                limits[i, k], amounts[i, k] = self._limit(owner, shape, self.most[owner, shape]), gpus[i]
        return limits, amounts

    def _with_slice(self, limits: Ints, slice_: str) -> Ints:
        limits = limits.copy()
        limits[:, OF_SLICE] = self.limit_of_slice(slice_)
        return limits

    def _limited_owners(self, box: Request | Running) -> list[str]:
        return [owner for owner in (box.project, box.slice) if owner in self._limited]

    def _limit(self, owner: str, shape: str, room: int) -> int:
        limit = self._limits.setdefault((owner, shape), len(self.limit_sizes))
        if limit == len(self.limit_sizes):
            self.limit_sizes.append(room)
        return limit

    def _gpus_in(self, request: Request, pool: int) -> int:
        return request.node_count * (request.gpus_per_node or self._largest[pool])
