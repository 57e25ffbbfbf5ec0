"""What a request would get if it were submitted now. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from accounts.models import User
from egs.words import duration_exact, utc
from gpr.borrowing import WOULD_BORROW
from gpr.explaining import Say, Told, explain
from gpr.forecasts import BOOKED, NO_HISTORY_BORROWED, Range, bands_load, range_of
from gpr.models import Gpr
from gpr.planner.bands import Bands
from gpr.planner.offering import Desk
from gpr.planner.plan import EvictionKind, Offer, victims_of
from gpr.planner.snapshot import Request, Snapshot
from gpr.services.requests import candidate_of, pools_of_spec
from gpr.snapshot import Loaded, at
from gpr.spec import GprSpec

NODES, RECLAIM, ORDER = "nodes", "reclaim", "order"  # where the GPUs of an offer come from
# Nobody is offered what only an administrator may do.
AFTER = {
    EvictionKind.RECLAIM: "It starts after others' borrowed GPUs come back.",
    EvictionKind.PRIORITY: "It starts after requests of lower priority have made way.",
}
AWAY = "It is not in {home}, the home of its workspace: unless you choose it, it is used only where that saves more than {gain}."


@dataclass(frozen=True, slots=True)
class Order:
    """The supply of ordered nodes."""

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
    """A request that would start sooner: a smaller one in the same place, or the same on other GPUs or in another cluster.

    `order`: what would be ordered for it.
    """

    cluster: str
    shape: str
    nodes: int
    duration_s: int
    start_at: datetime
    wait_s: int
    order: Order | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """A start that can be had now. Waits are seconds from now. `borrows`: it may be evicted for whom the GPUs are guaranteed to.

    `order`: the supply that nodes would be ordered from, or have been; None where it starts on what is there.
    """

    cluster: str
    shape: str
    node_type: str
    supply: str
    order: Order | None
    borrows: bool
    start_at: datetime
    wait_s: int
    promised_start_at: datetime
    p50_s: int
    p90_s: int
    basis: str
    explanation: Told
    alternatives: list[Alternative]


@dataclass(frozen=True, slots=True)
class _Variant:
    """A smaller request, and what it would get, by cluster and shape."""

    nodes: int
    duration_s: int
    offers: Mapping[tuple[str, str], Offer]


def gpr_estimate(*, actor: User, spec: GprSpec, now: datetime, edited: Gpr | None = None, say: Say = utc) -> list[Estimate]:
    """One offer for each cluster and shape, soonest first. `edited`: for a change of a waiting GPR. Raises as `gpr_submit` does."""
    candidate, loaded = candidate_of(spec, actor=actor, now=now, edited=edited)
    desk = Desk(loaded.snapshot, without=candidate.id)
    found = _best_of_each(desk.offers(candidate))
    told = explain([offer.explanation for offer in found], actor=actor, now=now, say=say)
    variants = _variants(spec, candidate, desk, loaded.snapshot, found)
    elsewhere = _elsewhere(spec, candidate, desk, loaded, found)
    bands = bands_load()
    return [
        _estimate(
            offer,
            loaded,
            _told_more(text, [*_rights(offer), *_away(spec, candidate, offer)]),
            _alternatives(spec, offer, variants, elsewhere, loaded),
            _range(spec, offer, bands),
        )
        for offer, text in zip(found, told, strict=True)
    ]


def _range(spec: GprSpec, offer: Offer, bands: Bands) -> Range:
    """A booking is early for nobody and late for nobody."""
    if spec.is_booking:
        wait_s = offer.forecast.promised_wait_s
        return Range(wait_s, wait_s, BOOKED, is_learned=False)
    found = range_of(bands, offer.forecast)
    return replace(found, basis=NO_HISTORY_BORROWED) if offer.borrows and not found.is_learned else found


def _best_of_each(found: Sequence[Offer]) -> list[Offer]:
    """Pools of one cluster and shape differ in node type or network; whoever does not ask for one gets the soonest."""
    return list(_by_place(found).values())


def _by_place(found: Sequence[Offer]) -> dict[tuple[str, str], Offer]:
    best: dict[tuple[str, str], Offer] = {}
    for offer in found:
        best.setdefault((offer.cluster, offer.shape), offer)
    return best


def _variants(spec: GprSpec, candidate: Request, desk: Desk, snapshot: Snapshot, found: Sequence[Offer]) -> list[_Variant]:
    """Half the nodes, and half the time, wherever the request itself would wait; a booking waits for its time alone."""
    if spec.is_booking:
        return []
    late = {(offer.cluster, offer.shape) for offer in found if offer.start_s > snapshot.now_s}
    pools = tuple(pool.id for pool in snapshot.pools if pool.id in candidate.pools and (pool.cluster, pool.shape) in late)
    sizes = [(spec.nodes // 2, spec.duration_s), (spec.nodes, spec.duration_s // 2)]
    return [_variant(spec, candidate, desk, pools, *size) for size in sizes if pools and min(size) >= 1]


def _variant(spec: GprSpec, candidate: Request, desk: Desk, pools: tuple[str, ...], nodes: int, duration_s: int) -> _Variant:
    length_s = candidate.length_s - spec.duration_s + duration_s
    smaller = replace(candidate, node_count=nodes, length_s=length_s, pools=pools)
    return _Variant(nodes, duration_s, _by_place(desk.offers(smaller)))


def _elsewhere(spec: GprSpec, candidate: Request, desk: Desk, loaded: Loaded, found: Sequence[Offer]) -> list[Offer]:
    """The same on other GPUs with as much memory, or in another cluster of the slice, where it starts sooner than wherever it was asked."""
    now_s, soonest_s = loaded.snapshot.now_s, min((offer.start_s for offer in found), default=0)
    if spec.is_booking or soonest_s <= now_s:
        return []
    memory_gib = max([loaded.places.keys[offer.pool].gpu_memory_gib for offer in found] + [spec.min_gpu_memory_gib or 0])
    anywhere = replace(spec, shape="", min_gpu_memory_gib=memory_gib, node_type="", clusters=())
    pools = tuple(id_ for id_ in pools_of_spec(anywhere, loaded) if id_ not in candidate.pools)
    return [offer for offer in _best_of_each(desk.offers(loaded.elsewhere(candidate, pools))) if offer.start_s < soonest_s]


def _alternatives(
    spec: GprSpec, offer: Offer, variants: Sequence[_Variant], elsewhere: Sequence[Offer], loaded: Loaded
) -> list[Alternative]:
    smaller = ((each, each.offers.get((offer.cluster, offer.shape))) for each in variants)
    sooner = [_alternative(o, v.nodes, v.duration_s, loaded) for v, o in smaller if o is not None and o.start_s < offer.start_s]
    return sooner + [_alternative(other, spec.nodes, spec.duration_s, loaded) for other in elsewhere]


def _alternative(offer: Offer, nodes: int, duration_s: int, loaded: Loaded) -> Alternative:
    wait_s = max(offer.start_s - loaded.snapshot.now_s, 0)
    return Alternative(offer.cluster, offer.shape, nodes, duration_s, at(offer.start_s), wait_s, Order.of(offer, loaded))


def _estimate(offer: Offer, loaded: Loaded, told: Told, alternatives: list[Alternative], likely: Range) -> Estimate:
    wait_s = max(offer.start_s - loaded.snapshot.now_s, 0)
    return Estimate(
        cluster=offer.cluster,
        shape=offer.shape,
        node_type=loaded.places.keys[offer.pool].node_type,
        supply=RECLAIM if offer.evictions else ORDER if offer.supply else NODES,
        order=Order.of(offer, loaded),
        borrows=offer.borrows,
        start_at=at(offer.start_s),
        wait_s=wait_s,
        promised_start_at=at(offer.promise_s),
        p50_s=likely.p50_s if wait_s else 0,
        p90_s=likely.p90_s if wait_s else 0,
        basis=likely.basis,
        explanation=told,
        alternatives=alternatives,
    )


def _told_more(told: Told, sentences: Sequence[str]) -> Told:
    return replace(told, sentence=" ".join([told.sentence, *sentences]))


def _away(spec: GprSpec, candidate: Request, offer: Offer) -> Iterator[str]:
    home = spec.slice.home
    if home is not None and offer.cluster != home.name and candidate.handicap_s(offer.pool):
        yield AWAY.format(home=home.name, gain=duration_exact(spec.slice.burst_gain_s))


def _rights(offer: Offer) -> Iterator[str]:
    """What it rests on, and what it has no right to, in sentences without names."""
    for kind in sorted({victim.kind for victim in victims_of(offer.evictions)}):
        yield AFTER[kind]
    if offer.borrows:
        yield WOULD_BORROW
