"""Stores and drops promises; builds the errors for requests that cannot start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from django.db.models import F

from core.errors import BookingDoesNotFit, CanNeverStart, EgsError
from core.words import plural, utc
from core.written_sql import rows_insert, sent_together
from gpr.allocation.live import snapshot_load
from gpr.allocation.snapshot import Loaded, at
from gpr.allocation.stored_plan import Edited, newcomers_plan, plan_store, replan, shadows_drop, summary_set
from gpr.events import gpr_event
from gpr.models import Gpr, GprState, Promise
from gpr.promises.forecasts import forecasts_drop
from gpr.promises.outcomes import promises_abandon
from gpr.requests.spec import BOOKING_AHEAD, PLAIN_FIELDS, GprSpec, beyond_end, request_summary
from inventory.models import Cluster
from journal.models import Event
from journal.services import events_record
from planner.feasibility import largest_that_fits
from planner.plan import Placement, Plan, Reason
from planner.sharing.bookings import NearestTimes, fitting, nearest
from planner.snapshot import Request, Within

WITHIN_WORDS = {Within.ANY: "", Within.RACK: " in one rack", Within.NVLINK: " in one NVLink domain"}


def newcomers_store(newcomers: Mapping[Gpr, GprSpec], now: datetime) -> dict[UUID, EgsError]:
    """Inserts new GPRs, first those that are queued, with promises, then those that need approval.

    Returns errors by id for those that cannot start; they are not inserted. The caller holds the plan lock.
    """
    queued = {gpr: spec for gpr, spec in newcomers.items() if gpr.state == GprState.QUEUED}
    unapproved = {gpr: spec for gpr, spec in newcomers.items() if gpr.state == GprState.PENDING_APPROVAL}
    refused = _store_queued(queued, now) if queued else {}
    if unapproved:
        loaded = snapshot_load(now=now)
        found = ((gpr.pk, impossibility(loaded.candidate(gpr, spec.clusters), loaded)) for gpr, spec in unapproved.items())
        refused |= {pk: error for pk, error in found if error is not None}
        _insert({gpr: spec for gpr, spec in unapproved.items() if gpr.pk not in refused})
    return refused


def _store_queued(newcomers: Mapping[Gpr, GprSpec], now: datetime) -> dict[UUID, EgsError]:
    loaded = snapshot_load(now=now, with_memory=True).with_newcomers((gpr, spec.clusters) for gpr, spec in newcomers.items())
    made = newcomers_plan(loaded, {gpr.pk for gpr in newcomers})
    placements = {UUID(placement.id): placement for placement in made.placements}
    if late := {gpr.pk: error for gpr in newcomers if (error := _beyond_end(gpr, placements[gpr.pk], now))}:
        in_time = {gpr: spec for gpr, spec in newcomers.items() if gpr.pk not in late}
        return late | (_store_queued(in_time, now) if in_time else {})
    for gpr in newcomers:
        summary_set(gpr, placements[gpr.pk])
    cannot = {gpr: spec for gpr, spec in newcomers.items() if cannot_start(placements[gpr.pk])}
    _insert({gpr: spec for gpr, spec in newcomers.items() if gpr not in cannot})
    promises = {promise.gpr_id: promise for promise in plan_store(made, loaded, now, explained=frozenset())}
    for gpr in newcomers:
        if gpr.pk in promises:
            gpr.promise = promises[gpr.pk]
    if not cannot:
        return {}
    loaded = snapshot_load(now=now)  # the bookings that did fit take their place in it
    return {gpr.pk: _refusal(gpr, spec.clusters, placements[gpr.pk], loaded) for gpr, spec in cannot.items()}


def cannot_start(placement: Placement) -> bool:
    """False for one that waits for a predecessor without a place: it has a place once that one has."""
    return placement.slot is None and placement.explanation.reason != Reason.PREDECESSOR_HAS_NO_PLACE


def _beyond_end(gpr: Gpr, placement: Placement, now: datetime) -> EgsError | None:
    """Returns the refusal of what its promise lets end after its workspace."""
    if placement.start_s is None or placement.promise_s is None:
        return None
    start_s = placement.start_s if placement.starts_now else placement.promise_s
    return beyond_end(gpr.slice, start_at=at(start_s), duration_s=gpr.remaining_s, now=now)


def _insert(newcomers: Mapping[Gpr, GprSpec]) -> None:
    named = [Gpr.clusters.through(gpr=gpr, cluster=cluster) for gpr, spec in newcomers.items() for cluster in set(spec.clusters)]
    with sent_together():
        rows_insert(list(newcomers))
        rows_insert(named)
        events_record([_created_event(gpr, spec) for gpr, spec in newcomers.items()])


def _created_event(gpr: Gpr, spec: GprSpec) -> Event:
    text, data = f"{gpr.name} was requested: {request_summary(spec)}.", {"approval_reasons": gpr.approval_reasons}
    return gpr_event("gpr.created", gpr, text, gpr.created_at, actor=gpr.owner, new=gpr.state, data=data)


def promise_make(gpr: Gpr, *, edited: Edited | None = None, now: datetime) -> Plan:
    """Plans the queue, stores the promise of a GPR that is in it, and returns the plan. `edited`: the request before an edit.

    The caller took the plan lock before it wrote. Raises CanNeverStart, BookingDoesNotFit, or OverPolicy beyond its workspace's end.
    """
    made, _ = replan(now=now, edited=edited, explained={gpr.pk})
    (placement,) = made.placements
    summary_set(gpr, placement)
    if cannot_start(placement):
        raise _refusal(gpr, gpr.clusters.all(), placement, snapshot_load(now=now))
    if late := _beyond_end(gpr, placement, now):
        raise late
    return made


def _refusal(gpr: Gpr, clusters: Iterable[Cluster], placement: Placement, loaded: Loaded) -> EgsError:
    if placement.explanation.reason == Reason.NEVER_FITS:
        return never_fits(placement, Within(gpr.within))
    request = loaded.candidate(gpr, clusters)
    return _booking_refusal(_nearest(request, loaded), request)


def promise_tighten(gpr: Gpr, now: datetime) -> None:
    # After an edit that made the promised start earlier, lateness is measured from the earlier start.
    rows = Promise.objects.filter(gpr=gpr, promised_start_at__lt=F("first_promised_start_at"))
    rows.update(first_promised_start_at=F("promised_start_at"), made_at=now)


def promises_drop(gprs: Sequence[Gpr], *, now: datetime) -> None:
    """Deletes the promises of requests that no longer wait."""
    promises_abandon(gprs, now=now)
    Promise.objects.filter(gpr__in=gprs).delete()
    forecasts_drop(gprs)
    shadows_drop(gprs)
    Gpr.objects.filter(pk__in=[gpr.pk for gpr in gprs]).update(planned_start_at=None, explanation={})
    for gpr in gprs:
        gpr.planned_start_at, gpr.explanation = None, {}


def refuse_impossible(request: Request, loaded: Loaded) -> None:
    """Raises CanNeverStart or BookingDoesNotFit."""
    if error := impossibility(request, loaded):
        raise error


def impossibility(request: Request, loaded: Loaded) -> EgsError | None:
    most = largest_that_fits(loaded.snapshot.pools, request, loaded.snapshot.quotas)
    return _booking_misfit(request, loaded) if most.fits else can_never_start(most.node_count, most.gpus_per_node, request.within)


def _booking_misfit(request: Request, loaded: Loaded) -> BookingDoesNotFit | None:
    near = _nearest(request, loaded) if request.is_fixed else None
    return None if near is None or near.fits else _booking_refusal(near, request)


def _nearest(request: Request, loaded: Loaded) -> NearestTimes:
    return nearest(loaded.snapshot, request, since_s=loaded.snapshot.now_s + int(BOOKING_AHEAD.total_seconds()))


def _booking_refusal(near: NearestTimes, request: Request) -> BookingDoesNotFit:
    starts = {"nearest_before_at": near.before_s, "nearest_after_at": near.after_s}
    found = {name: None if start_s is None else at(start_s) for name, start_s in starts.items()}
    return booking_does_not_fit(at(request.earliest_start_s), **found, has_room_by_now=near.fits)


def booking_does_not_fit(
    start_at: datetime, *, nearest_before_at: datetime | None, nearest_after_at: datetime | None, has_room_by_now: bool = False
) -> BookingDoesNotFit:
    times = [f"{utc(moment)} {word}" for moment, word in ((nearest_before_at, "before it"), (nearest_after_at, "after it")) if moment]
    near = f"The nearest starts with room are {' and '.join(times)}." if times else "No other time was found."
    why = "the GPUs are promised to others, closed, or its workspace runs another then"
    if has_room_by_now:
        why = "another request has just taken the GPUs. Try again"
    return BookingDoesNotFit(
        f"It does not fit at {utc(start_at)}: {why}. {near}",
        nearest_before_at=nearest_before_at,
        nearest_after_at=nearest_after_at,
    )


def never_fits(placement: Placement, within: Within) -> CanNeverStart:
    return can_never_start(placement.explanation.most_node_count, placement.explanation.most_gpus_per_node, within)


def can_never_start(most_nodes: int, most_gpus_per_node: int, within: Within = Within.ANY) -> CanNeverStart:
    if not most_nodes:
        most = "It has no node of that kind, or may hold none: ask for another shape, node type, memory or cluster, or without RDMA."
    else:
        gpus = plural(most_gpus_per_node, "GPU") + (" each" if most_nodes > 1 else "")
        most = f"The most that could start{WITHIN_WORDS[within]} is {plural(most_nodes, 'node')} of that kind with {gpus}."
    return CanNeverStart(
        f"No available cluster is large enough. {most}",
        most_nodes=most_nodes,
        most_gpus_per_node=most_gpus_per_node,
    )


def bookings_fitting(specs: Sequence[GprSpec], *, now: datetime) -> list[bool]:
    """Says for each booking whether it would fit now. It checks no policy and reserves nothing."""
    loaded = snapshot_load(now=now)
    return fitting(loaded.snapshot, [loaded.candidate(gpr_of_spec(spec), spec.clusters) for spec in specs])


def pools_of_spec(spec: GprSpec, loaded: Loaded) -> tuple[str, ...]:
    names = {cluster.name for cluster in spec.clusters or spec.slice.clusters.only("name")}
    return loaded.places.pools_for(gpr_of_spec(spec), names, may_order=spec.slice.may_order)


def gpr_of_spec(spec: GprSpec) -> Gpr:
    plain = {name: getattr(spec, name) for name in PLAIN_FIELDS}
    judged = {"allowed_shapes": spec.slice.shapes, "policy_version": spec.slice.policy_version}
    return Gpr(**plain, **judged, slice=spec.slice, template=spec.template, remaining_s=spec.duration_s)
