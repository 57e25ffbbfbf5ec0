"""Alternatives that would start sooner: a smaller or shorter request, other GPUs or another cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import takewhile
from typing import Any, Final

from gpr.allocation.snapshot import Loaded, at
from gpr.requests.planning import pools_of_spec
from gpr.requests.spec import GprSpec
from planner.offers import OfferFinder
from planner.plan import Offer
from planner.snapshot import Request

ALTERNATIVES_MAX: Final = 5
HOUR_S: Final = 3600
# Round durations: (up to this many seconds, in steps of this many).
STEPS_S: Final = ((600, 60), (HOUR_S, 300), (6 * HOUR_S, 900), (48 * HOUR_S, HOUR_S), (366 * 24 * HOUR_S, 6 * HOUR_S))


@dataclass(frozen=True, slots=True)
class Order:
    name: str
    lead_time_s: int

    @classmethod
    def of(cls, offer: Offer, loaded: Loaded) -> Order | None:
        if not offer.supply:
            return None
        supply = loaded.supply(offer.supply)
        return cls(supply.name, supply.lead_time_s)


@dataclass(frozen=True, slots=True)
class Alternative:
    differs: tuple[str, ...]  # the changed fields
    cluster: str
    shape: str
    node_type: str
    nodes: int
    gpus_per_node: int | None  # None: all
    duration_s: int
    start_at: datetime
    wait_s: int
    sooner_s: int  # before the offer that it replaces
    order: Order | None = None


@dataclass(frozen=True, slots=True)
class Alternatives:
    """Finds the alternatives to `found`, the offers for `spec`: one for each cluster and shape."""

    spec: GprSpec
    candidate: Request
    finder: OfferFinder
    loaded: Loaded
    found: Sequence[Offer]

    def per_offer(self) -> list[list[Alternative]]:
        """Returns for each offer at most one smaller request per field, then other places, soonest first."""
        if self.spec.is_booking:
            return [[] for _ in self.found]
        elsewhere = self._elsewhere()
        return [
            [*self._smaller(offer), *(self._alternative(offer, self.spec, other) for other in elsewhere)][:ALTERNATIVES_MAX]
            for offer in self.found
        ]

    @property
    def _soonest_s(self) -> int:
        return max(self.loaded.snapshot.now_s, self.candidate.earliest_start_s)

    def _smaller(self, offer: Offer) -> Iterator[Alternative]:
        if offer.start_s <= self._soonest_s:
            return
        for field, values in self._sizes().items():
            value = self._best_value(offer, field, values) if values else None
            if value is not None:
                asked = self._spec_with(field, value)
                got = soonest_by_place(self.finder.offers(self._request(asked, self._pools(offer)))).get((offer.cluster, offer.shape))
                if got is not None and got.start_s < offer.start_s:
                    yield self._alternative(offer, asked, got)

    def _sizes(self) -> Mapping[str, Sequence[int]]:
        # Time already used by an edited request that has run; below 0 for others, whose length includes the turnaround.
        spent_s = self.spec.duration_s - self.candidate.length_s
        return {
            "nodes": range(1, self.spec.nodes),
            "gpus_per_node": range(1, self.spec.gpus_per_node or 1),
            "duration_s": [s for s in takewhile(lambda s: s < self.spec.duration_s, durations()) if s > spent_s],
        }

    def _best_value(self, offer: Offer, field: str, values: Sequence[int]) -> int:
        # A full offer is expensive, so bisection over free capacity first finds the largest that fits now or within half of the wait.
        # If none fits, the middle value is offered: it may need evictions or ordered nodes.

        def sized(value: int) -> Request:
            return self._request(self._spec_with(field, value), there)

        there = tuple(id_ for id_ in self._pools(offer) if id_ not in self._orderable)
        limits_s = (self._soonest_s, (self._soonest_s + offer.start_s) // 2)
        found = (self.finder.most_by(limit_s, values, sized) for limit_s in limits_s)
        return next((value for value in found if value is not None), values[len(values) // 2])

    def _spec_with(self, field: str, value: int) -> GprSpec:
        change: dict[str, Any] = {field: value}
        return replace(self.spec, **change)

    @property
    def _orderable(self) -> set[str]:
        return {pool.id for pool in self.loaded.snapshot.pools if pool.supply is not None}

    def _pools(self, offer: Offer) -> tuple[str, ...]:
        place = offer.cluster, offer.shape
        alike = {pool.id for pool in self.loaded.snapshot.pools if (pool.cluster, pool.shape) == place}
        return tuple(id_ for id_ in self.candidate.pools if id_ in alike)

    def _request(self, asked: GprSpec, pools: tuple[str, ...]) -> Request:
        length_s = self.candidate.length_s - self.spec.duration_s + asked.duration_s
        sizes: dict[str, Any] = {"node_count": asked.nodes, "gpus_per_node": asked.gpus_per_node or 0, "length_s": length_s}
        return replace(self.candidate, pools=pools, **sizes)

    def _elsewhere(self) -> list[Offer]:
        # Other GPUs must have as much memory, and the start must be before all of `found`.
        spec, loaded = self.spec, self.loaded
        soonest_s = min((offer.start_s for offer in self.found), default=0)
        if soonest_s <= self._soonest_s:
            return []
        memory_gib = max([loaded.places.keys[offer.pool].gpu_memory_gib for offer in self.found] + [spec.min_gpu_memory_gib or 0])
        anywhere = replace(spec, shape="", min_gpu_memory_gib=memory_gib, node_type="", clusters=())
        pools = tuple(id_ for id_ in pools_of_spec(anywhere, loaded) if id_ not in self.candidate.pools)
        found = soonest_by_place(self.finder.offers(loaded.elsewhere(self.candidate, pools))).values()
        return sorted((offer for offer in found if offer.start_s < soonest_s), key=lambda offer: offer.start_s)

    def _alternative(self, instead_of: Offer, asked: GprSpec, got: Offer) -> Alternative:
        node_type = self.loaded.places.keys[got.pool].node_type
        return Alternative(
            differs=tuple(self._differs(asked, got, node_type)),
            cluster=got.cluster,
            shape=got.shape,
            node_type=node_type,
            nodes=asked.nodes,
            gpus_per_node=asked.gpus_per_node,
            duration_s=asked.duration_s,
            start_at=at(got.start_s),
            wait_s=max(got.start_s - self.loaded.snapshot.now_s, 0),
            sooner_s=instead_of.start_s - got.start_s,
            order=Order.of(got, self.loaded),
        )

    def _differs(self, asked: GprSpec, got: Offer, node_type: str) -> Iterator[str]:
        yield from (field for field in ("nodes", "gpus_per_node", "duration_s") if getattr(asked, field) != getattr(self.spec, field))
        if got.shape != self.spec.shape and self.spec.shape:
            yield "shape"
        if self.spec.clusters and got.cluster not in {cluster.name for cluster in self.spec.clusters}:
            yield "clusters"
        if self.spec.node_type not in {"", node_type}:
            yield "node_type"


def soonest_by_place(found: Sequence[Offer]) -> dict[tuple[str, str], Offer]:
    """The soonest offer by cluster and shape; their pools can differ in node type or network."""
    best: dict[tuple[str, str], Offer] = {}
    for offer in found:
        best.setdefault((offer.cluster, offer.shape), offer)
    return best


def durations() -> Iterator[int]:
    begin_s = 0
    for until_s, step_s in STEPS_S:
        yield from range(begin_s + step_s, until_s + 1, step_s)
        begin_s = until_s
