"""Asking for GPUs: what it would get, submit, edit, take back."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import IntegrityError, InterfaceError, OperationalError, connection, transaction
from django.db.models import Count, F

from accounts.models import User
from accounts.policy import Verb, may
from core.errors import (
    BookingDoesNotFit,
    CanNeverStart,
    EgsError,
    IllegalTransition,
    InvalidInput,
    NotAllowed,
    QueueFull,
    StaleState,
)
from core.groups import Group
from core.words import duration_exact, plural, utc
from gpr.allocation.rows import told_waiting
from gpr.allocation.snapshot import Loaded, at, snapshot_load
from gpr.allocation.stored_plan import Edited, filing_lock, replan, shadows_drop, witness_lock
from gpr.lifecycle import gpr_transition, gprs_transition
from gpr.models import Gpr, GprState, GprTemplate, Promise
from gpr.promises.forecasts import forecasts_drop
from gpr.promises.outcomes import promises_abandon
from gpr.queue.ages import ages_of, joined
from gpr.requests.spec import BOOKING_AHEAD, PLAIN_FIELDS, GprSpec, approval_reasons, spec_check
from journal.hints import TICK, hint
from journal.models import Event
from journal.services import event_record, events_record
from planner.feasibility import most_that_fits
from planner.plan import Placement, Reason
from planner.sharing.bookings import Nearest, fitting, nearest
from planner.snapshot import Request, Snapshot, Within

# Of the keys under which a request is filed once: the API and the pages file by the same ones.
CREATION_ROUTE = "gprs"
SUBMITS_AT_ONCE = 64
WAITING = frozenset({GprState.PENDING_APPROVAL, GprState.QUEUED})
TOGETHER = {Within.ANY: "", Within.RACK: " in one rack", Within.NVLINK: " in one NVLink domain"}
# A change of one of these is another request to the planner; of any other, the promise stands.
PLANNED_FIELDS = frozenset(
    {
        *("nodes", "gpus_per_node", "duration_s", "shape", "min_gpu_memory_gib", "node_type", "rdma", "within", "priority"),
        *("earliest_start_at", "is_booking", "may_evict"),
    }
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A request as the planner would see it were it filed now, and what it would be planned on.

    `stands`: of a request that waits and would not change by what it is to ask for, how it stands and on what; the candidate is then what
    any other change makes of it. None: that is the same.
    """

    request: Request
    loaded: Loaded
    stands: tuple[Request, Snapshot] | None = None


@dataclass(frozen=True, slots=True)
class Filing:
    """A request on its way in, which has been checked. `also` is done in the same transaction, with the new GPR's id."""

    actor: User
    spec: GprSpec
    now: datetime
    also: Callable[[UUID], None] | None = None


def gpr_submit(*, actor: User, spec: GprSpec, now: datetime, also: Callable[[UUID], None] | None = None) -> Gpr:
    """File a request. It comes back QUEUED with a promised start, or PENDING_APPROVAL with the rules that it exceeds.

    Those who file at once share one transaction and one plan, unless the caller is in a transaction of his own. What one may ask for is
    as it was when he came, not when it was his turn.
    Raises InvalidInput, OverPolicy, QueueFull, NotAllowed, CanNeverStart with the most that could, or for a booking BookingDoesNotFit
    with the nearest times; nothing is stored then. What `also` raises is raised, too.
    """
    _check(actor, spec, now)  # whoever is refused has waited for nobody
    filing = Filing(actor, spec, now, also)
    return _submit_alone(filing) if connection.in_atomic_block else _submits.do(filing)


@transaction.atomic
def gprs_submit(*, actor: User, specs: Sequence[GprSpec], now: datetime, forgives: type[EgsError]) -> list[Gpr | EgsError]:
    """As `gpr_submit` for each, in one plan for all; in their order.

    What `forgives` names is answered in the place of the GPR that it refuses, of which nothing is stored, and the others stand.
    """
    answers: dict[int, Gpr | EgsError] = {}
    for place, spec in enumerate(specs):
        try:
            _check(actor, spec, now)
        except forgives as error:
            answers[place] = error
    filings = {place: Filing(actor, spec, now) for place, spec in enumerate(specs) if place not in answers}
    filing_lock()
    for place, full in _beyond_queue(filings).items():
        if not isinstance(full, forgives):
            raise full
        answers[place] = full
        del filings[place]
    gprs = _insert(filings)
    refused = _place(list(gprs.values()), now)
    for why in refused.values():
        if not isinstance(why, forgives):
            raise why
    Gpr.objects.filter(pk__in=refused).delete()
    events_record([_filed(gpr, filings[place]) for place, gpr in gprs.items() if gpr.pk not in refused])
    hint(TICK)
    answers |= {place: refused.get(gpr.pk, gpr) for place, gpr in gprs.items()}
    return [answers[place] for place in range(len(specs))]


@transaction.atomic
def _submit_alone(filing: Filing) -> Gpr:
    (answer,) = _file([filing], filing.now)
    if isinstance(answer, Exception):
        raise answer
    return answer


def _submit_together(filings: Sequence[Filing]) -> Sequence[Gpr | Exception]:
    """What fails for reasons of one request is told to that one. Other faults are for each to find out alone, but for a commit of which
    the database did not say what became of it.
    """
    is_done = False
    try:
        with transaction.atomic():
            answers = _file(filings, max(filing.now for filing in filings))
            is_done = True
    except (OperationalError, InterfaceError) as error:
        if not is_done:
            raise
        return [error] * len(filings)
    return answers


_submits: Group[Filing, Gpr] = Group(together=_submit_together, alone=_submit_alone, most=SUBMITS_AT_ONCE)


@transaction.atomic
def gpr_edit(*, gpr: Gpr, actor: User, spec: GprSpec, now: datetime) -> Gpr:
    """Change a request that waits. It keeps its age in the queue, and nobody else's promise moves. See planner.sharing.edits.

    Errors as in `gpr_submit`.
    """
    if gpr.state not in {GprState.QUEUED, GprState.PENDING_APPROVAL}:
        raise IllegalTransition(f"Only a waiting GPR can be changed; this one is {gpr.get_state_display().lower()}.", state=gpr.state)
    spec_check(spec, now=now, kept_start_at=gpr.earliest_start_at)
    witness_lock()
    reasons = _reasons_of_edit(gpr, spec)
    was, is_new_ask = Edited(copy(gpr), tuple(gpr.clusters.all())), _is_new_ask(gpr, spec)
    changes = {name: getattr(spec, name) for name in _changed(gpr, spec)}
    # What was had before an eviction stays had.
    remaining_s = gpr.remaining_s + spec.duration_s - gpr.duration_s
    if remaining_s < 1:
        raise InvalidInput(
            {"duration_s": [f"{duration_exact(gpr.duration_s - gpr.remaining_s)} of it have been used already: ask for more."]}
        )
    if is_new_ask:
        # An administrator put there what it was before, and the policy is that of now.
        changes |= {**no_place(gpr), "allowed_shapes": spec.slice.shapes}
    gpr_update(gpr, {**changes, "remaining_s": remaining_s, "approval_reasons": reasons})
    gpr.clusters.set(spec.clusters)
    event_record(
        kind="gpr.edited",
        message=f"{gpr.name} was changed: {_ask(spec)}.",
        at=now,
        actor=actor,
        gpr_id=gpr.pk,
        slice_id=gpr.slice_id,
        data={"changed": sorted(changes.keys() & set(PLAIN_FIELDS))},
    )
    if is_new_ask:
        to_its_queue(gpr, reasons=reasons, actor=actor, was=was, now=now)
    hint(TICK)
    return gpr


def _changed(gpr: Gpr, spec: GprSpec) -> Iterator[str]:
    return (name for name in PLAIN_FIELDS if getattr(spec, name) != getattr(gpr, name))


def _is_new_ask(gpr: Gpr, spec: GprSpec) -> bool:
    return not PLANNED_FIELDS.isdisjoint(_changed(gpr, spec)) or set(gpr.clusters.all()) != set(spec.clusters)


def gpr_cancel(*, gpr: Gpr, actor: User | None, now: datetime, why: str = "") -> None:
    """Withdraw a request that holds no nodes yet. `actor` is None when EGS itself does it. Raises IllegalTransition or StaleState."""
    gprs_cancel([(gpr, why)], actor=actor, now=now)


@transaction.atomic
def gprs_cancel(canceled: Sequence[tuple[Gpr, str]], *, actor: User | None, now: datetime) -> None:
    """`gpr_cancel` for each, with its reason; all or none."""
    of_state: dict[str, list[tuple[Gpr, str]]] = defaultdict(list)
    for gpr, why in canceled:
        of_state[gpr.state].append((gpr, f"{gpr.name} was canceled. {why}".strip()))
    for messages in of_state.values():
        gprs_transition(messages=messages, to=GprState.CANCELED, now=now, actor=actor)
    promises_drop([gpr for gpr, _ in canceled], now=now)
    hint(TICK)  # those behind them may start earlier


def gpr_update(gpr: Gpr, changes: dict[str, Any]) -> None:
    """Guarded by the version, like a transition. Raises StaleState."""
    if not Gpr.objects.filter(pk=gpr.pk, version=gpr.version, state=gpr.state).update(version=F("version") + 1, **changes):
        raise StaleState("This GPR has changed since you read it. Read it again and decide anew.")
    for name, value in changes.items():
        setattr(gpr, name, value)
    gpr.version += 1


def no_place(gpr: Gpr) -> dict[str, Any]:
    """What an administrator's move gave it is over: it stands where it would by itself."""
    return {"place_share": None, "place_key": None, "turn_at": gpr.queued_at}


def to_its_queue(gpr: Gpr, *, reasons: list[str], actor: User, was: Edited | None = None, now: datetime) -> None:
    """After a change: into the queue, or to approval, where it now belongs, and planned anew. The caller holds the witness. `was`: what its
    owner has changed.

    Raises CanNeverStart.
    """
    if reasons and gpr.state == GprState.QUEUED:
        promises_drop([gpr], now=now)
        text = f"{gpr.name} needs approval: {' '.join(reasons)}"
        gpr_transition(gpr=gpr, to=GprState.PENDING_APPROVAL, now=now, actor=actor, message=text)
    elif not reasons and gpr.state == GprState.PENDING_APPROVAL:
        changes = {"queued_at": gpr.queued_at or now, "turn_at": gpr.turn_at or now}
        text = f"{gpr.name} needs no approval any more."
        gpr_transition(gpr=gpr, to=GprState.QUEUED, now=now, actor=actor, message=text, changes=changes)
    if gpr.state == GprState.QUEUED:
        if gpr.is_booking:
            promises_drop([gpr], now=now)  # its time is new: it is met, or the change is refused
        promise_make(gpr, edited=was, now=now)
        _promise_tighten(gpr, now)
    else:
        loaded = snapshot_load(now=now)
        refuse_what_cannot_be(loaded.candidate(gpr, gpr.clusters.all()), loaded)


def candidate_of(spec: GprSpec, *, actor: User, now: datetime, edited: Gpr | None = None) -> Candidate:
    """Writes nothing. `edited`: a waiting GPR that would become it. Raises as `gpr_submit`."""
    may_submit(actor, spec)
    spec_check(spec, now=now, kept_start_at=edited.earliest_start_at if edited else None)
    loaded = snapshot_load(now=now, with_memory=True)
    if edited is not None:
        return _edit_of(spec, edited, loaded, now)
    request = loaded.candidate(_gpr_of(spec), spec.clusters)
    refuse_what_cannot_be(request, loaded)
    return Candidate(request, loaded)


def _edit_of(spec: GprSpec, edited: Gpr, loaded: Loaded, now: datetime) -> Candidate:
    """As `gpr_edit` would have it planned: from where it stands, or as a newcomer of its age where its promise ends by the change."""
    ends = spec.is_booking or bool(_reasons_of_edit(edited, spec))
    was = None if ends else loaded.waiting(edited, edited.clusters.all())
    made = _gpr_of(spec)
    made.pk, made.run = edited.pk, edited.run
    made.remaining_s = max(edited.remaining_s + spec.duration_s - edited.duration_s, 1)
    request = (loaded.waiting(made, spec.clusters) if was is not None else None) or loaded.candidate(made, spec.clusters)
    snapshot = joined(loaded.snapshot, ages_of(loaded), request, edited.queued_at or now)
    request = next(waiting for waiting in snapshot.queue if waiting.id == request.id)
    if was is None:
        refuse_what_cannot_be(request, loaded)
        others = tuple(waiting for waiting in snapshot.queue if waiting.id != request.id)
        return Candidate(request, replace(loaded, snapshot=replace(snapshot, queue=others)))
    anew = replace(loaded, snapshot=replace(snapshot, edited=replace(was, rank=request.rank)))
    if not _is_new_ask(edited, spec):
        # An administrator may have moved it, and the policy have changed: it keeps both while it asks for the same.
        return Candidate(request, anew, None if request == was else (was, replace(loaded.snapshot, edited=was)))
    refuse_what_cannot_be(request, loaded)
    return Candidate(request, anew)


def _reasons_of_edit(gpr: Gpr, spec: GprSpec) -> list[str]:
    return approval_reasons(spec, granted=spec_of(gpr) if gpr.state == GprState.QUEUED else None)


def pools_of_spec(spec: GprSpec, loaded: Loaded) -> tuple[str, ...]:
    """Where such a request could run, by the slice's clusters and policy."""
    names = {cluster.name for cluster in spec.clusters or spec.slice.clusters.only("name")}
    return loaded.places.pools_for(_gpr_of(spec), names, may_order=spec.slice.may_order)


def bookings_fitting(specs: Sequence[GprSpec], *, now: datetime) -> list[bool]:
    """Which of these would have their time if it were booked now. A quick look, no promise: nothing is written, and no policy is asked."""
    loaded = snapshot_load(now=now)
    return fitting(loaded.snapshot, [loaded.candidate(_gpr_of(spec), spec.clusters) for spec in specs])


def refuse_what_cannot_be(request: Request, loaded: Loaded) -> None:
    """Raises CanNeverStart, with the most that could, or BookingDoesNotFit, with the nearest times at which it would."""
    if error := _impossible(request, loaded):
        raise error


def _impossible(request: Request, loaded: Loaded) -> EgsError | None:
    most = most_that_fits(loaded.snapshot.pools, request, loaded.snapshot.quotas)
    return _misfit(request, loaded) if most.fits else can_never_start(most.node_count, most.gpus_per_node, request.within)


def _misfit(request: Request, loaded: Loaded) -> BookingDoesNotFit | None:
    """Of a booking, at its time."""
    near = _nearest(request, loaded) if request.is_fixed else None
    return None if near is None or near.fits else _refused_by(near, request)


def _nearest(request: Request, loaded: Loaded) -> Nearest:
    return nearest(loaded.snapshot, request, since_s=loaded.snapshot.now_s + int(BOOKING_AHEAD.total_seconds()))


def _refused_by(near: Nearest, request: Request) -> BookingDoesNotFit:
    """Of a booking that the plan had no place for: also where it would have one by now."""
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
        why = "somebody else was just given the GPUs. There may be room again by now: try again"
    return BookingDoesNotFit(
        f"It does not fit at {utc(start_at)}: {why}. {near}",
        nearest_before_at=nearest_before_at,
        nearest_after_at=nearest_after_at,
    )


def promise_make(gpr: Gpr, *, edited: Edited | None = None, now: datetime) -> None:
    """Plan the queue with this GPR in it and store what it can be promised. The caller holds the witness since before it wrote.

    `edited`: it waited before, for that.

    Raises CanNeverStart or BookingDoesNotFit.
    """
    if refused := _promises_make([gpr], now, edited=edited):
        raise refused[gpr.pk]


def _check(actor: User, spec: GprSpec, now: datetime) -> None:
    """Errors as in `gpr_submit`, but for what only a plan can tell."""
    may_submit(actor, spec)
    spec_check(spec, now=now)


class _CannotStart(Exception):
    """Some cannot, by their places among those that were filed: the others are to be filed without them."""

    def __init__(self, errors: Mapping[int, EgsError]) -> None:
        super().__init__()
        self.errors = errors


def _file(filings: Sequence[Filing], now: datetime) -> list[Gpr | EgsError | IntegrityError]:
    """All of them, with one plan, and another one where some have no place. What cannot be, or what `also` refuses, is answered by why."""
    answers: dict[int, Gpr | EgsError | IntegrityError] = {}
    filing_lock()
    answers |= _beyond_queue(dict(enumerate(filings)))
    while left := {place: filing for place, filing in enumerate(filings) if place not in answers}:
        try:
            with transaction.atomic():
                answers |= _store(left, now)
        except _CannotStart as some:
            answers |= some.errors
    hint(TICK)
    return [answers[place] for place in range(len(filings))]


def _beyond_queue(filings: Mapping[int, Filing]) -> dict[int, QueueFull]:
    """Those of whose workspace as many wait as may, by their places. The caller holds the lock of those who file, so none slips in."""
    waiting = Gpr.objects.filter(slice__in={filing.spec.slice.pk for filing in filings.values()}, state__in=WAITING)
    counts = Counter(dict(waiting.order_by().values_list("slice").annotate(Count("pk"))))
    refused: dict[int, QueueFull] = {}
    for place, filing in filings.items():
        slice_ = filing.spec.slice
        if counts[slice_.pk] < slice_.queued_max:
            counts[slice_.pk] += 1
            continue
        refused[place] = QueueFull(
            f"{plural(slice_.queued_max, 'request')} of workspace {slice_.name} may wait at once, and as many do. "
            "File it when some have started, cancel one of them, or ask an administrator for more.",
            limit="queued_max",
            most=slice_.queued_max,
        )
    return refused


def _store(filings: Mapping[int, Filing], now: datetime) -> dict[int, Gpr | EgsError | IntegrityError]:
    """Raises _CannotStart: then nothing may be stored."""
    gprs = _insert(filings)
    refused = {place: error for place, filing in filings.items() if (error := _refusal(filing, gprs[place]))}
    Gpr.objects.filter(pk__in=[gprs.pop(place).pk for place in refused]).delete()
    events_record([_filed(gpr, filings[place]) for place, gpr in gprs.items()])
    if cannot := _place(list(gprs.values()), now):
        raise _CannotStart({place: cannot[gpr.pk] for place, gpr in gprs.items() if gpr.pk in cannot})
    return {**gprs, **refused}


def _insert(filings: Mapping[int, Filing]) -> dict[int, Gpr]:
    """They are not planned yet, nor told of. The caller has checked them, and holds the witness."""
    gprs = {place: _made(filing) for place, filing in filings.items()}
    _leave_deleted_templates(gprs.values())
    Gpr.objects.bulk_create(gprs.values())
    named = [Gpr.clusters.through(gpr=gpr, cluster=cluster) for place, gpr in gprs.items() for cluster in set(filings[place].spec.clusters)]
    Gpr.clusters.through.objects.bulk_create(named)
    return gprs


def _leave_deleted_templates(gprs: Collection[Gpr]) -> None:
    """Whoever deletes one takes the lock, too: those that are there now stay until these are stored."""
    if named := {gpr.template_id for gpr in gprs if gpr.template_id}:
        there = set(GprTemplate.objects.filter(pk__in=named).values_list("pk", flat=True))
        for gpr in gprs:
            if gpr.template_id not in there:
                gpr.template = None


def _refusal(filing: Filing, gpr: Gpr) -> EgsError | IntegrityError | None:
    """Of what is to be done beside it."""
    if filing.also is None:
        return None
    try:
        with transaction.atomic():
            filing.also(gpr.pk)
    except (EgsError, IntegrityError) as error:
        return error
    return None


def _made(filing: Filing) -> Gpr:
    """For the queue, or for approval. It is not stored yet."""
    reasons = approval_reasons(filing.spec)
    gpr = _gpr_of(filing.spec)
    gpr.owner, gpr.created_at, gpr.state_changed_at = filing.actor, filing.now, filing.now
    gpr.state, gpr.approval_reasons = (GprState.PENDING_APPROVAL, reasons) if reasons else (GprState.QUEUED, [])
    gpr.queued_at = gpr.turn_at = None if reasons else filing.now
    return gpr


def _filed(gpr: Gpr, filing: Filing) -> Event:
    return Event(
        kind="gpr.created",
        message=f"{gpr.name} was requested: {_ask(filing.spec)}.",
        at=filing.now,
        actor=filing.actor,
        new=gpr.state,
        gpr_id=gpr.pk,
        slice_id=gpr.slice_id,
        data={"approval_reasons": gpr.approval_reasons},
    )


def _place(gprs: Sequence[Gpr], now: datetime) -> dict[UUID, EgsError]:
    """Promise those in the queue what they can have; those that cannot be, and why, also among those that need approval."""
    queued = [gpr for gpr in gprs if gpr.state == GprState.QUEUED]
    refused = _promises_make(queued, now) if queued else {}
    if len(queued) < len(gprs):
        loaded = snapshot_load(now=now)
        unapproved = (gpr for gpr in gprs if gpr.state == GprState.PENDING_APPROVAL)
        errors = ((gpr.pk, _impossible(loaded.candidate(gpr, gpr.clusters.all()), loaded)) for gpr in unapproved)
        refused |= {pk: error for pk, error in errors if error}
    return refused


def _promises_make(gprs: Sequence[Gpr], now: datetime, *, edited: Edited | None = None) -> dict[UUID, EgsError]:
    """One plan with all of these in the queue, stored, also in the objects given; those that it has no place for, and why.

    The nearest times of a booking without one are looked for beside those that have theirs now.
    """
    made, _ = replan(now=now, edited=edited, tells={gpr.pk for gpr in gprs})
    placements = {placement.id: placement for placement in made.placements}
    refused: dict[UUID, EgsError] = {}
    loaded: Loaded | None = None
    for gpr in gprs:
        placement = placements[str(gpr.pk)]
        if placement.explanation.reason == Reason.NEVER_FITS:
            refused[gpr.pk] = never_fits(placement, Within(gpr.within))
        elif placement.explanation.reason == Reason.DOES_NOT_FIT_THEN:
            loaded = loaded or snapshot_load(now=now)
            request = loaded.candidate(gpr, gpr.clusters.all())
            refused[gpr.pk] = _refused_by(_nearest(request, loaded), request)
    told = told_waiting(gpr.pk for gpr in gprs)
    for gpr in gprs:
        for name, value in told[str(gpr.pk)]._asdict().items():
            setattr(gpr, name, value)
    return refused


def _promise_tighten(gpr: Gpr, now: datetime) -> None:
    """A request that asks for less may be promised more: then that is what is to be kept from now on."""
    rows = Promise.objects.filter(gpr=gpr, promised_start_at__lt=F("first_promised_start_at"))
    rows.update(first_promised_start_at=F("promised_start_at"), made_at=now)


def promises_drop(gprs: Sequence[Gpr], *, now: datetime) -> None:
    """They wait no longer: their slots are free for others."""
    promises_abandon(gprs, now=now)
    Promise.objects.filter(gpr__in=gprs).delete()
    forecasts_drop(gprs)
    shadows_drop(gprs)
    Gpr.objects.filter(pk__in=[gpr.pk for gpr in gprs]).update(planned_start_at=None, explanation={})
    for gpr in gprs:
        gpr.planned_start_at, gpr.explanation = None, {}


def never_fits(placement: Placement, within: Within) -> CanNeverStart:
    return can_never_start(placement.explanation.most_node_count, placement.explanation.most_gpus_per_node, within)


def can_never_start(most_nodes: int, most_gpus_per_node: int, within: Within = Within.ANY) -> CanNeverStart:
    if not most_nodes:
        most = "It has no node of that kind, or may hold none: ask for another shape, node type, memory or cluster, or without RDMA."
    else:
        gpus = plural(most_gpus_per_node, "GPU") + (" each" if most_nodes > 1 else "")
        most = f"The most that could start{TOGETHER[within]} is {plural(most_nodes, 'node')} of that kind with {gpus}."
    return CanNeverStart(
        f"No cluster that it may use could ever hold it. {most}",
        most_nodes=most_nodes,
        most_gpus_per_node=most_gpus_per_node,
    )


def spec_of(gpr: Gpr, **changes: Any) -> GprSpec:
    """What the GPR asks for, with changes: the starting point of an edit."""
    plain = {name: getattr(gpr, name) for name in PLAIN_FIELDS}
    spec = GprSpec(**plain, slice=gpr.slice, clusters=tuple(gpr.clusters.all()), kept_idle_timeout_s=gpr.idle_timeout_s)
    return replace(spec, **changes)


def may_submit(actor: User, spec: GprSpec) -> None:
    if not may(actor, Verb.REQUEST, spec.slice):
        raise NotAllowed(f"In workspace {spec.slice.name} you may look only. Ask one of its owners for the role editor.")


def _gpr_of(spec: GprSpec) -> Gpr:
    plain = {name: getattr(spec, name) for name in PLAIN_FIELDS}
    return Gpr(**plain, slice=spec.slice, template=spec.template, remaining_s=spec.duration_s, allowed_shapes=spec.slice.shapes)


def _ask(spec: GprSpec) -> str:
    gpus = "all GPUs" if spec.gpus_per_node is None else plural(spec.gpus_per_node, "GPU")
    each = " each" if spec.nodes > 1 else ""
    kind = spec.shape or f"at least {spec.min_gpu_memory_gib} GiB"
    booked = f", booked for {utc(spec.earliest_start_at)}" if spec.is_booking and spec.earliest_start_at else ""
    size = f"{plural(spec.nodes, 'node')} with {gpus}{each} ({kind})"
    return f"{size} for {duration_exact(spec.duration_s)} at priority {spec.priority}{booked}"
