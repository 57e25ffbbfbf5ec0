"""Files new requests. Edits and cancellation are in editing.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db import transaction
from django.db.models import Count, Min

from accounts.models import User
from accounts.policy import Verb, may
from accounts.rates import ask_count
from core.errors import EgsError, NotAllowed, OverPolicy, QueueFull
from core.words import plural
from core.written_sql import WrittenQuery, sent_together
from gpr.allocation.stored_plan import plan_lock, plan_turn
from gpr.budgets.ledger import Ledger
from gpr.followers.selectors import refuse_chain
from gpr.models import Gpr, GprState, GprTemplate
from gpr.requests.planning import gpr_of_spec, newcomers_store
from gpr.requests.spec import GprSpec, budget_excesses, policy_breaches, spec_check, window_of
from journal.hints import TICK, hint
from slices.models import Slice

# The route in idempotency keys: the API and the pages share it, so a key sent to both files one request.
CREATION_ROUTE = "gprs"
WAITING = frozenset({GprState.PENDING_APPROVAL, GprState.QUEUED})
_WAITING: Final = Gpr.objects.filter(state__in=WAITING).order_by()
_WAITING_COUNTS: Final = WrittenQuery(_WAITING.values_list("slice").annotate(Count("pk")), key="slice__id")


def gpr_submit(*, actor: User, spec: GprSpec, now: datetime, remember: Callable[[UUID], None] = lambda pk: None) -> Gpr:
    """The GPR is QUEUED with a promised start, or PENDING_APPROVAL with the rules that it exceeds.

    Raises InvalidInput, OverPolicy, QueueFull, TooManyTries, NotAllowed, CanNeverStart or BookingDoesNotFit. `remember` gets its id in the
    transaction.
    """
    ask_count(str(spec.slice.pk), name=spec.slice.name)
    (answer,) = gprs_submit(actor=actor, specs=[spec], now=now, remember=remember)
    if isinstance(answer, EgsError):
        raise answer
    return answer


def gprs_submit(
    *,
    actor: User,
    specs: Sequence[GprSpec],
    now: datetime,
    collect_errors: tuple[type[EgsError], ...] = (),
    remember: Callable[[UUID], None] = lambda pk: None,
) -> list[Gpr | EgsError]:
    """Files several requests with one plan, in order.

    An error of a type in `collect_errors` is returned in place of its GPR; any other error is raised, and nothing is stored.
    """
    answers: dict[int, Gpr | EgsError] = {}
    asked: dict[int, GprSpec] = {}
    for index, spec in enumerate(specs):
        try:
            may_submit(actor, spec)
            spec_check(spec, now=now)
            refuse_chain(spec)
            asked[index] = spec
        except collect_errors as error:
            answers[index] = error
    gprs = {index: _new_gpr(actor, spec, now) for index, spec in asked.items()}
    refused = _file(gprs, asked, now, collect_errors, remember) if gprs else {}
    answers |= {**gprs, **refused}
    return [answers[index] for index in range(len(specs))]


def may_submit(actor: User, spec: GprSpec) -> None:
    if not may(actor, Verb.REQUEST, spec.slice):
        raise NotAllowed(f"In workspace {spec.slice.name} you may look only. Ask one of its owners for the role editor.")


@plan_turn()
@transaction.atomic
def _file(
    gprs: Mapping[int, Gpr],
    specs: Mapping[int, GprSpec],
    now: datetime,
    collect_errors: tuple[type[EgsError], ...],
    remember: Callable[[UUID], None],
) -> dict[int, EgsError]:
    """Stores all but those that it returns errors for."""
    with sent_together():
        plan_lock()
        waiting = _WAITING_COUNTS.send({spec.slice.pk for spec in specs.values()})
        ledger = Ledger.send((spec.slice for spec in specs.values()), now=now)
    refused: dict[int, EgsError] = {**_collected(_over_queue_limit(specs, Counter(dict(waiting())), now), collect_errors)}
    unrefused = {index: gpr for index, gpr in gprs.items() if index not in refused}
    refused |= _collected(_over_budget(unrefused, specs, ledger(), now), collect_errors)
    asked = {index: gpr for index, gpr in gprs.items() if index not in refused}
    _clear_deleted_templates(asked.values())
    cannot = newcomers_store({gpr: specs[index] for index, gpr in asked.items()}, now)
    refused |= _collected({index: cannot[gpr.pk] for index, gpr in asked.items() if gpr.pk in cannot}, collect_errors)
    for gpr in asked.values():
        remember(gpr.pk)
    hint(TICK)
    return refused


def _collected(errors: Mapping[int, EgsError], collect_errors: tuple[type[EgsError], ...]) -> Mapping[int, EgsError]:
    """Returns the errors; raises the first one of another type than those to collect."""
    for error in errors.values():
        if not isinstance(error, collect_errors):
            raise error
    return errors


def _over_queue_limit(specs: Mapping[int, GprSpec], counts: Counter[UUID], now: datetime) -> dict[int, QueueFull]:
    """`counts`: the requests that wait, by workspace."""
    refused: dict[int, QueueFull] = {}
    waits_s: dict[UUID, float | None] = {}
    for index, spec in specs.items():
        slice_ = spec.slice
        if counts[slice_.pk] < slice_.queued_max:
            counts[slice_.pk] += 1
            continue
        if slice_.pk not in waits_s:
            waits_s[slice_.pk] = _until_one_starts_s(slice_, now)
        refused[index] = QueueFull(
            f"{plural(slice_.queued_max, 'request')} of workspace {slice_.name} may wait at once, and as many do. "
            "File it when some have started, cancel one of them, or ask an administrator for more.",
            wait_s=waits_s[slice_.pk],
            limit="queued_max",
            most=slice_.queued_max,
        )
    return refused


def _until_one_starts_s(slice_: Slice, now: datetime) -> float | None:
    found = Gpr.objects.filter(slice=slice_, state=GprState.QUEUED).aggregate(at=Min("planned_start_at"))["at"]
    return None if found is None else max(0.0, (found - now).total_seconds())


def _over_budget(gprs: Mapping[int, Gpr], specs: Mapping[int, GprSpec], ledger: Ledger, now: datetime) -> dict[int, OverPolicy]:
    """Refuses requests beyond a budget, or lets them wait for approval."""
    refused: dict[int, OverPolicy] = {}
    for index, gpr in gprs.items() if ledger.budgets else ():
        excesses = budget_excesses(specs[index], ledger, now=now)
        if final := [excess for excess in excesses if not excess.needs_approval]:
            refused[index] = final[0].refusal()
            continue
        _set_approval(gpr, [*gpr.approval_reasons, *(excess.text for excess in excesses)], now)
        if gpr.state == GprState.QUEUED:
            ledger.add(window_of(specs[index], now))
    return refused


def _clear_deleted_templates(gprs: Collection[Gpr]) -> None:
    # Deleting a template takes the plan lock, too, so the templates found here exist until these rows are stored.
    if named := {gpr.template_id for gpr in gprs if gpr.template_id}:
        there = set(GprTemplate.objects.filter(pk__in=named).values_list("pk", flat=True))
        for gpr in gprs:
            if gpr.template_id not in there:
                gpr.template = None


def _new_gpr(actor: User, spec: GprSpec, now: datetime) -> Gpr:
    gpr = gpr_of_spec(spec)
    gpr.owner, gpr.created_at, gpr.state_changed_at = actor, now, now
    _set_approval(gpr, [breach.text for breach in policy_breaches(spec)], now)
    return gpr


def _set_approval(gpr: Gpr, reasons: list[str], now: datetime) -> None:
    gpr.state, gpr.approval_reasons = (GprState.PENDING_APPROVAL, reasons) if reasons else (GprState.QUEUED, [])
    gpr.queued_at = gpr.turn_at = None if reasons else now
    gpr.decide_by_at = now + timedelta(seconds=gpr.slice.decide_within_s) if reasons else None
