"""Estimates the start of a request that is not filed yet. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from accounts.models import User
from accounts.rates import ask_count
from core.words import duration_exact, utc
from gpr.allocation.snapshot import Loaded, at
from gpr.models import Gpr
from gpr.promises.forecasts import BOOKED, NO_HISTORY_BORROWED, Range, range_of, ranges_load
from gpr.queue.explanations import FormatTime, VisibleExplanation, explain
from gpr.quotas.borrowing import WOULD_BORROW
from gpr.requests.alternatives import Alternative, Alternatives, Order, soonest_by_place
from gpr.requests.editing import Candidate, candidate_of
from gpr.requests.spec import GprSpec, beyond_end
from planner.causes import EvictionKind, victims_of
from planner.offers import OfferFinder
from planner.plan import Offer
from planner.promises.ranges import ForecastRanges
from planner.snapshot import Request

NODES, RECLAIM, ORDER = "nodes", "reclaim", "order"  # where the GPUs of an offer come from
# Evictions that only an administrator may order are never offered, so they have no sentence.
AFTER = {
    EvictionKind.RECLAIM: "It starts after others' borrowed GPUs come back.",
    EvictionKind.PRIORITY: "It starts after requests of lower priority have made way.",
}
OUTSIDE_HOME = "It is not in {home}, the home of its workspace: unless you choose it, it is used only where that saves more than {gain}."


@dataclass(frozen=True, slots=True)
class Estimate:
    """It is a possible start. Waits are seconds from now."""

    cluster: str
    shape: str
    node_type: str
    supply: str
    order: Order | None
    borrows: bool  # the GPUs are guaranteed to another project, which may evict it
    start_at: datetime
    wait_s: int
    promised_start_at: datetime
    p50_s: int
    p90_s: int
    basis: str
    explanation: VisibleExplanation
    alternatives: list[Alternative]


def gpr_estimate(*, actor: User, spec: GprSpec, now: datetime, edited: Gpr | None = None, format_time: FormatTime = utc) -> list[Estimate]:
    """Returns one estimate for each cluster and shape, soonest first. `edited`: for an edit of this GPR. Raises as `gpr_submit`."""
    ask_count(str(spec.slice.pk), name=spec.slice.name)
    asked = candidate_of(spec, actor=actor, now=now, edited=edited)
    candidate, loaded, finder = asked.request, asked.loaded, OfferFinder(asked.loaded.snapshot, restore=asked.loaded.board.restore)
    found = _in_time(spec, edited, list(soonest_by_place(_offers(asked, finder)).values()), now)
    explanations = explain([offer.explain() for offer in found], actor=actor, now=now, format_time=format_time)
    alternatives = Alternatives(spec, candidate, finder, loaded, found).per_offer()
    learned = ranges_load(now=now, edited=edited)
    return [
        _estimate(
            offer,
            loaded,
            _with_sentences(explanation, [*_rights_sentences(offer), *_outside_home(spec, candidate, offer)]),
            sooner,
            _range(spec, offer, learned),
        )
        for offer, explanation, sooner in zip(found, explanations, alternatives, strict=True)
    ]


def _in_time(spec: GprSpec, edited: Gpr | None, found: Sequence[Offer], now: datetime) -> list[Offer]:
    """Leaves out what would end after its workspace. Raises OverPolicy if that is all."""
    duration_s = spec.duration_s - (edited.duration_s - edited.remaining_s if edited else 0)
    starts = [now if offer.start_s <= now.timestamp() else at(offer.promise_s) for offer in found]
    late = [beyond_end(spec.slice, start_at=start_at, duration_s=duration_s, now=now) for start_at in starts]
    if late and late[0] and all(late):
        raise late[0]
    return [offer for offer, is_late in zip(found, late, strict=True) if not is_late]


def _offers(asked: Candidate, finder: OfferFinder) -> tuple[Offer, ...]:
    # The start that a request keeps without changes comes first; every other offer is a change.
    if asked.unchanged is None:
        return finder.offers(asked.request)
    request, snapshot = asked.unchanged
    return finder.beside(OfferFinder(snapshot, restore=asked.loaded.board.restore).best(request), asked.request)


def _range(spec: GprSpec, offer: Offer, learned: ForecastRanges) -> Range:
    if spec.is_booking:
        wait_s = offer.forecast.promised_wait_s
        return Range(wait_s, wait_s, BOOKED, is_learned=False)
    found = range_of(learned, offer.forecast)
    return replace(found, basis=NO_HISTORY_BORROWED) if offer.borrows and not found.is_learned else found


def _estimate(offer: Offer, loaded: Loaded, explanation: VisibleExplanation, alternatives: list[Alternative], likely: Range) -> Estimate:
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
        explanation=explanation,
        alternatives=alternatives,
    )


def _with_sentences(explanation: VisibleExplanation, sentences: Sequence[str]) -> VisibleExplanation:
    return replace(explanation, sentence=" ".join([explanation.sentence, *sentences]))


def _outside_home(spec: GprSpec, candidate: Request, offer: Offer) -> Iterator[str]:
    home = spec.slice.home
    if home is not None and offer.cluster != home.name and candidate.handicap_s(offer.pool):
        yield OUTSIDE_HOME.format(home=home.name, gain=duration_exact(spec.slice.burst_gain_s))


def _rights_sentences(offer: Offer) -> Iterator[str]:
    for kind in sorted({victim.kind for victim in victims_of(offer.evictions)}):
        yield AFTER[kind]
    if offer.borrows:
        yield WOULD_BORROW
