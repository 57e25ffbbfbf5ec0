"""Edits and cancels waiting requests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F

from accounts.models import User
from accounts.rates import ask_count
from core.errors import Conflict, IllegalTransition, InvalidInput, StaleState
from core.words import duration_exact
from gpr.allocation.live import snapshot_load
from gpr.allocation.snapshot import Loaded, with_newcomer
from gpr.allocation.stored_plan import Edited, plan_lock, plan_turn
from gpr.events import gpr_event_record
from gpr.followers.selectors import refuse_chain
from gpr.lifecycle import gpr_transition, gprs_transition
from gpr.models import Gpr, GprState
from gpr.requests.planning import gpr_of_spec, promise_make, promise_tighten, promises_drop, refuse_impossible
from gpr.requests.selectors import names_visible_to
from gpr.requests.services import may_submit
from gpr.requests.spec import PLAIN_FIELDS, GprSpec, approval_reasons, refuse_over_budget, request_summary, spec_check
from inventory.models import Cluster
from journal.changes import difference, values_of
from journal.hints import TICK, hint
from planner.causes import Cause
from planner.snapshot import Request, Snapshot

# An edit of one of these fields makes a new plan and a new promise; an edit of any other field keeps the promise.
PLANNED_FIELDS = frozenset(
    {
        *("nodes", "gpus_per_node", "duration_s", "shape", "min_gpu_memory_gib", "node_type", "rdma", "within", "priority"),
        *("earliest_start_at", "is_booking", "may_evict", "after", "after_condition"),
    }
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """Holds a request as the planner would see it now, and the state to plan it on."""

    request: Request
    loaded: Loaded
    # Set when an edit keeps what the planner sees, but the policy or a move would change the slot: the request as it waits now.
    unchanged: tuple[Request, Snapshot] | None = None


@plan_turn()
@transaction.atomic
def gpr_edit(*, gpr: Gpr, actor: User, spec: GprSpec, now: datetime) -> Gpr:
    """It keeps its age and no other promise moves; see planner.sharing.edits.

    Raises IllegalTransition, StaleState and the errors of `gpr_submit`.
    """
    refuse_started(gpr)
    ask_count(str(spec.slice.pk), name=spec.slice.name)
    spec_check(spec, now=now, kept_start_at=gpr.earliest_start_at)
    plan_lock()
    _check_chain(spec, gpr)
    refuse_over_budget(spec, now=now, granted=granted_to(gpr))
    reasons = approval_reasons(spec, now=now, granted=granted_to(gpr))
    was, is_replanned = Edited(copy(gpr), tuple(gpr.clusters.all())), _is_replanned(gpr, spec)
    changes = {name: getattr(spec, name) for name in _changed(gpr, spec)}
    # Time that it used before an eviction still counts.
    remaining_s = gpr.remaining_s + spec.duration_s - gpr.duration_s
    if remaining_s < 1:
        raise InvalidInput(
            {"duration_s": [f"{duration_exact(gpr.duration_s - gpr.remaining_s)} of it have been used already: ask for more."]}
        )
    if is_replanned:
        # An administrator's move was made for the old request, so it ends; the policy of today applies.
        changes |= {**automatic_place(gpr), "allowed_shapes": spec.slice.shapes, "policy_version": spec.slice.policy_version}
    decide_by_at = now + timedelta(seconds=spec.slice.decide_within_s) if reasons else None
    judged = {"approval_reasons": reasons, "decide_by_at": decide_by_at}
    gpr_update(gpr, {**changes, **judged, "remaining_s": remaining_s})
    gpr.clusters.set(spec.clusters)
    data = difference(_terms(was.gpr, was.clusters), _terms(spec, spec.clusters))
    gpr_event_record("gpr.edited", gpr, f"{gpr.name} was changed: {request_summary(spec)}.", now, actor=actor, data=data)
    if is_replanned or bool(reasons) == (gpr.state == GprState.QUEUED):
        replan_changed(gpr, reasons=reasons, actor=actor, was=was, now=now)
    hint(TICK)
    return gpr


def refuse_started(gpr: Gpr) -> None:
    """Raises IllegalTransition."""
    if gpr.state not in {GprState.QUEUED, GprState.PENDING_APPROVAL}:
        raise IllegalTransition(f"Only a waiting GPR can be changed; this one is {gpr.get_state_display().lower()}.", state=gpr.state)


def gpr_cancel(*, gpr: Gpr, actor: User | None, now: datetime, why: str = "") -> None:
    """`actor` None: EGS did it. Raises IllegalTransition or StaleState."""
    gprs_cancel([(gpr, why)], actor=actor, now=now)


@plan_turn()
@transaction.atomic
def gprs_cancel(canceled: Sequence[tuple[Gpr, str]], *, actor: User | None, now: datetime) -> None:
    """Cancels all, each with its reason, or none."""
    of_state: dict[str, list[tuple[Gpr, str]]] = defaultdict(list)
    for gpr, why in canceled:
        of_state[gpr.state].append((gpr, f"{gpr.name} was canceled. {why}".strip()))
    for messages in of_state.values():
        gprs_transition(messages=messages, to=GprState.CANCELED, now=now, actor=actor)
    promises_drop([gpr for gpr, _ in canceled], now=now)
    hint(TICK)  # those behind them may start earlier


def gpr_update(gpr: Gpr, changes: dict[str, Any]) -> None:
    """Raises StaleState when the version has changed."""
    if not Gpr.objects.filter(pk=gpr.pk, version=gpr.version, state=gpr.state).update(version=F("version") + 1, **changes):
        raise StaleState("This GPR has changed since you read it. Read it again and decide again.")
    for name, value in changes.items():
        setattr(gpr, name, value)
    gpr.version += 1


def automatic_place(gpr: Gpr) -> dict[str, Any]:
    """Returns the field values that undo an administrator's move."""
    return {"place_share": None, "place_key": None, "turn_at": gpr.queued_at}


def replan_changed(gpr: Gpr, *, reasons: list[str], actor: User, was: Edited | None = None, now: datetime) -> None:
    """Moves the GPR into the queue or back to approval as `reasons` demand, and plans it again. `was`: before the edit.

    The caller holds the plan lock. Raises CanNeverStart, BookingDoesNotFit, or Conflict where that would break a follower's promise.
    """
    if reasons and gpr.state == GprState.QUEUED:
        if promised := gpr.followers.filter(state=GprState.QUEUED, promise__isnull=False).first():
            raise _follower_is_promised(promised, actor, f"that needs approval: {' '.join(reasons)}")
        promises_drop([gpr], now=now)
        text = f"{gpr.name} needs approval: {' '.join(reasons)}"
        gpr_transition(gpr=gpr, to=GprState.PENDING_APPROVAL, now=now, actor=actor, message=text)
    elif not reasons and gpr.state == GprState.PENDING_APPROVAL:
        changes = {"queued_at": gpr.queued_at or now, "turn_at": gpr.turn_at or now, "decide_by_at": None}
        text = f"{gpr.name} needs no approval any more."
        gpr_transition(gpr=gpr, to=GprState.QUEUED, now=now, actor=actor, message=text, changes=changes)
    if gpr.state == GprState.QUEUED:
        if gpr.is_booking:
            promises_drop([gpr], now=now)  # the new time is granted or the edit is refused; the old promise never applies
        made = promise_make(gpr, edited=was, now=now)
        if moved := next((p for p in made.all_placements if p.moved and p.moved.cause == Cause.PREDECESSOR and p.id != str(gpr.pk)), None):
            raise _follower_is_promised(Gpr.objects.get(pk=moved.id), actor, "it would end later than that allows")
        promise_tighten(gpr, now)
    else:
        loaded = snapshot_load(now=now)
        refuse_impossible(loaded.candidate(gpr, gpr.clusters.all()), loaded)


def _follower_is_promised(follower: Gpr, actor: User, why: str) -> Conflict:
    name = names_visible_to(actor, {str(follower.pk)}).get(str(follower.pk), "Another request")
    return Conflict(f"{name} starts after it and has been promised a start, and {why}. Change less, or let that one not start after it.")


def _check_chain(spec: GprSpec, edited: Gpr) -> None:
    if (spec.after, spec.after_condition) != (edited.after, edited.after_condition):
        refuse_chain(spec, edited=edited)


def spec_of(gpr: Gpr, **changes: Any) -> GprSpec:
    plain = {name: getattr(gpr, name) for name in PLAIN_FIELDS}
    spec = GprSpec(**plain, slice=gpr.slice, clusters=tuple(gpr.clusters.all()))
    return replace(spec, **changes)


def candidate_of(spec: GprSpec, *, actor: User, now: datetime, edited: Gpr | None = None) -> Candidate:
    """Builds the candidate of a new request, or of an edit of `edited`. Raises as `gpr_submit`."""
    may_submit(actor, spec)
    spec_check(spec, now=now, kept_start_at=edited.earliest_start_at if edited else None)
    refuse_chain(spec) if edited is None else _check_chain(spec, edited)
    refuse_over_budget(spec, now=now, granted=granted_to(edited) if edited else None)
    loaded = snapshot_load(now=now, with_memory=True)
    if edited is not None:
        return _edited_candidate(spec, edited, loaded, now)
    request = loaded.candidate(gpr_of_spec(spec), spec.clusters)
    refuse_impossible(request, loaded)
    return Candidate(request, loaded)


def _edited_candidate(spec: GprSpec, edited: Gpr, loaded: Loaded, now: datetime) -> Candidate:
    # `gpr_edit` plans it from its present slot, or as a newcomer of the same age when the edit ends its promise.
    ends = spec.is_booking or bool(approval_reasons(spec, now=now, granted=granted_to(edited)))
    was = None if ends else loaded.waiting(edited, edited.clusters.all())
    made = gpr_of_spec(spec)
    made.pk, made.run = edited.pk, edited.run
    made.remaining_s = max(edited.remaining_s + spec.duration_s - edited.duration_s, 1)
    request = (loaded.waiting(made, spec.clusters) if was is not None else None) or loaded.candidate(made, spec.clusters)
    snapshot = with_newcomer(loaded.snapshot, request, edited.queued_at or now)
    request = next(waiting for waiting in snapshot.queue if waiting.id == request.id)
    if was is None:
        refuse_impossible(request, loaded)
        others = tuple(waiting for waiting in snapshot.queue if waiting.id != request.id)
        return Candidate(request, replace(loaded, snapshot=replace(snapshot, queue=others)))
    anew = replace(loaded, snapshot=replace(snapshot, edited=replace(was, rank=request.rank)))
    if not _is_replanned(edited, spec):
        # It asks for the same, so it keeps an administrator's move and the policy under which it was filed.
        return Candidate(request, anew, None if request == was else (was, replace(loaded.snapshot, edited=was)))
    refuse_impossible(request, loaded)
    return Candidate(request, anew)


def _terms(of: Gpr | GprSpec, clusters: Iterable[Cluster]) -> dict[str, Any]:
    return {**values_of(of, PLAIN_FIELDS), "clusters": sorted(cluster.name for cluster in clusters)}


def _changed(gpr: Gpr, spec: GprSpec) -> Iterator[str]:
    return (name for name in PLAIN_FIELDS if getattr(spec, name) != getattr(gpr, name))


def _is_replanned(gpr: Gpr, spec: GprSpec) -> bool:
    return not PLANNED_FIELDS.isdisjoint(_changed(gpr, spec)) or set(gpr.clusters.all()) != set(spec.clusters)


def granted_to(gpr: Gpr) -> GprSpec | None:
    """A queued request keeps what is approved already."""
    return spec_of(gpr) if gpr.state == GprState.QUEUED else None
