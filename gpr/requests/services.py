"""Files new requests. Edits and cancellation are in editing.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import IntegrityError, InterfaceError, OperationalError, connection, transaction
from django.db.models import Count

from accounts.models import User
from accounts.policy import Verb, may
from core.errors import EgsError, NotAllowed, QueueFull
from core.groups import Group
from core.words import duration_exact, plural, utc
from gpr.allocation.live import snapshot_load
from gpr.allocation.stored_plan import filing_lock
from gpr.models import Gpr, GprState, GprTemplate
from gpr.requests.planning import gpr_of_spec, impossibility, promises_make
from gpr.requests.spec import GprSpec, approval_reasons, spec_check
from journal.hints import TICK, hint
from journal.models import Event
from journal.services import events_record

# The route in idempotency keys: the API and the pages share it, so a key sent to both files one request.
CREATION_ROUTE = "gprs"
SUBMITS_AT_ONCE = 64
WAITING = frozenset({GprState.PENDING_APPROVAL, GprState.QUEUED})


@dataclass(frozen=True, slots=True)
class Filing:
    """A checked request. `on_created` gets the new GPR's id in the same transaction."""

    actor: User
    spec: GprSpec
    now: datetime
    on_created: Callable[[UUID], None] | None = None


def gpr_submit(*, actor: User, spec: GprSpec, now: datetime, on_created: Callable[[UUID], None] | None = None) -> Gpr:
    """The GPR is QUEUED with a promised start, or PENDING_APPROVAL with the rules that it exceeds.

    Concurrent calls share one transaction and one plan, unless the caller is already in a transaction.
    Raises InvalidInput, OverPolicy, QueueFull, NotAllowed, CanNeverStart, BookingDoesNotFit, or what `on_created` raises.
    """
    _check(actor, spec, now)  # before waiting for the others, so that a refusal is immediate
    filing = Filing(actor, spec, now, on_created)
    return _submit_alone(filing) if connection.in_atomic_block else _submits.do(filing)


@transaction.atomic
def gprs_submit(*, actor: User, specs: Sequence[GprSpec], now: datetime, collect_errors: type[EgsError]) -> list[Gpr | EgsError]:
    """Files several requests with one plan, in order.

    An error of type `collect_errors` is returned in place of its GPR; any other error is raised.
    """
    answers: dict[int, Gpr | EgsError] = {}
    for index, spec in enumerate(specs):
        try:
            _check(actor, spec, now)
        except collect_errors as error:
            answers[index] = error
    filings = {index: Filing(actor, spec, now) for index, spec in enumerate(specs) if index not in answers}
    filing_lock()
    for index, full in _over_queue_limit(filings).items():
        if not isinstance(full, collect_errors):
            raise full
        answers[index] = full
        del filings[index]
    gprs = _insert(filings)
    refused = _plan(list(gprs.values()), now)
    for why in refused.values():
        if not isinstance(why, collect_errors):
            raise why
    Gpr.objects.filter(pk__in=refused).delete()
    events_record([_created_event(gpr, filings[index]) for index, gpr in gprs.items() if gpr.pk not in refused])
    hint(TICK)
    answers |= {index: refused.get(gpr.pk, gpr) for index, gpr in gprs.items()}
    return [answers[index] for index in range(len(specs))]


def may_submit(actor: User, spec: GprSpec) -> None:
    if not may(actor, Verb.REQUEST, spec.slice):
        raise NotAllowed(f"In workspace {spec.slice.name} you may look only. Ask one of its owners for the role editor.")


def request_summary(spec: GprSpec) -> str:
    gpus = "all GPUs" if spec.gpus_per_node is None else plural(spec.gpus_per_node, "GPU")
    each = " each" if spec.nodes > 1 else ""
    kind = spec.shape or f"at least {spec.min_gpu_memory_gib} GiB"
    booked = f", booked for {utc(spec.earliest_start_at)}" if spec.is_booking and spec.earliest_start_at else ""
    size = f"{plural(spec.nodes, 'node')} with {gpus}{each} ({kind})"
    return f"{size} for {duration_exact(spec.duration_s)} at priority {spec.priority}{booked}"


@transaction.atomic
def _submit_alone(filing: Filing) -> Gpr:
    (answer,) = _submit_all([filing], filing.now)
    if isinstance(answer, Exception):
        raise answer
    return answer


def _submit_together(filings: Sequence[Filing]) -> Sequence[Gpr | Exception]:
    # A database error before the commit is raised, and the group then retries each request alone. After a failed commit nobody knows
    # whether the requests were stored, so every caller gets the error instead.
    is_done = False
    try:
        with transaction.atomic():
            answers = _submit_all(filings, max(filing.now for filing in filings))
            is_done = True
    except (OperationalError, InterfaceError) as error:
        if not is_done:
            raise
        return [error] * len(filings)
    return answers


_submits: Group[Filing, Gpr] = Group(together=_submit_together, alone=_submit_alone, most=SUBMITS_AT_ONCE)


def _check(actor: User, spec: GprSpec, now: datetime) -> None:
    may_submit(actor, spec)
    spec_check(spec, now=now)


class _CannotStart(Exception):
    # Raised to roll back the transaction; the other requests are then tried without those in `errors`, by index.

    def __init__(self, errors: Mapping[int, EgsError]) -> None:
        super().__init__()
        self.errors = errors


def _submit_all(filings: Sequence[Filing], now: datetime) -> list[Gpr | EgsError | IntegrityError]:
    """Returns the error of a request in its place, and plans again without those that cannot start."""
    answers: dict[int, Gpr | EgsError | IntegrityError] = {}
    filing_lock()
    answers |= _over_queue_limit(dict(enumerate(filings)))
    while left := {index: filing for index, filing in enumerate(filings) if index not in answers}:
        try:
            with transaction.atomic():
                answers |= _insert_and_plan(left, now)
        except _CannotStart as some:
            answers |= some.errors
    hint(TICK)
    return [answers[index] for index in range(len(filings))]


def _over_queue_limit(filings: Mapping[int, Filing]) -> dict[int, QueueFull]:
    """The caller holds the filing lock."""
    waiting = Gpr.objects.filter(slice__in={filing.spec.slice.pk for filing in filings.values()}, state__in=WAITING)
    counts = Counter(dict(waiting.order_by().values_list("slice").annotate(Count("pk"))))
    refused: dict[int, QueueFull] = {}
    for index, filing in filings.items():
        slice_ = filing.spec.slice
        if counts[slice_.pk] < slice_.queued_max:
            counts[slice_.pk] += 1
            continue
        refused[index] = QueueFull(
            f"{plural(slice_.queued_max, 'request')} of workspace {slice_.name} may wait at once, and as many do. "
            "File it when some have started, cancel one of them, or ask an administrator for more.",
            limit="queued_max",
            most=slice_.queued_max,
        )
    return refused


def _insert_and_plan(filings: Mapping[int, Filing], now: datetime) -> dict[int, Gpr | EgsError | IntegrityError]:
    """Raises _CannotStart."""
    gprs = _insert(filings)
    refused = {index: error for index, filing in filings.items() if (error := _run_on_created(filing, gprs[index]))}
    Gpr.objects.filter(pk__in=[gprs.pop(index).pk for index in refused]).delete()
    events_record([_created_event(gpr, filings[index]) for index, gpr in gprs.items()])
    if cannot := _plan(list(gprs.values()), now):
        raise _CannotStart({index: cannot[gpr.pk] for index, gpr in gprs.items() if gpr.pk in cannot})
    return {**gprs, **refused}


def _insert(filings: Mapping[int, Filing]) -> dict[int, Gpr]:
    gprs = {index: _new_gpr(filing) for index, filing in filings.items()}
    _clear_deleted_templates(gprs.values())
    Gpr.objects.bulk_create(gprs.values())
    named = [Gpr.clusters.through(gpr=gpr, cluster=cluster) for index, gpr in gprs.items() for cluster in set(filings[index].spec.clusters)]
    Gpr.clusters.through.objects.bulk_create(named)
    return gprs


def _clear_deleted_templates(gprs: Collection[Gpr]) -> None:
    # Deleting a template takes the filing lock too, so the templates found here exist until these rows are stored.
    if named := {gpr.template_id for gpr in gprs if gpr.template_id}:
        there = set(GprTemplate.objects.filter(pk__in=named).values_list("pk", flat=True))
        for gpr in gprs:
            if gpr.template_id not in there:
                gpr.template = None


def _run_on_created(filing: Filing, gpr: Gpr) -> EgsError | IntegrityError | None:
    if filing.on_created is None:
        return None
    try:
        with transaction.atomic():
            filing.on_created(gpr.pk)
    except (EgsError, IntegrityError) as error:
        return error
    return None


def _new_gpr(filing: Filing) -> Gpr:
    reasons = approval_reasons(filing.spec)
    gpr = gpr_of_spec(filing.spec)
    gpr.owner, gpr.created_at, gpr.state_changed_at = filing.actor, filing.now, filing.now
    gpr.state, gpr.approval_reasons = (GprState.PENDING_APPROVAL, reasons) if reasons else (GprState.QUEUED, [])
    gpr.queued_at = gpr.turn_at = None if reasons else filing.now
    return gpr


def _created_event(gpr: Gpr, filing: Filing) -> Event:
    return Event(
        kind="gpr.created",
        message=f"{gpr.name} was requested: {request_summary(filing.spec)}.",
        at=filing.now,
        actor=filing.actor,
        new=gpr.state,
        gpr_id=gpr.pk,
        slice_id=gpr.slice_id,
        data={"approval_reasons": gpr.approval_reasons},
    )


def _plan(gprs: Sequence[Gpr], now: datetime) -> dict[UUID, EgsError]:
    """Stores promises for the queued ones; returns errors by id for all that cannot start."""
    queued = [gpr for gpr in gprs if gpr.state == GprState.QUEUED]
    refused = promises_make(queued, now) if queued else {}
    if len(queued) < len(gprs):
        loaded = snapshot_load(now=now)
        unapproved = (gpr for gpr in gprs if gpr.state == GprState.PENDING_APPROVAL)
        errors = ((gpr.pk, impossibility(loaded.candidate(gpr, gpr.clusters.all()), loaded)) for gpr in unapproved)
        refused |= {pk: error for pk, error in errors if error}
    return refused
