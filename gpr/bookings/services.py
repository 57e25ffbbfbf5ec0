"""Makes series of bookings: each occurrence becomes a GPR when it comes within the horizon."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import compress
from typing import Final
from uuid import UUID
from zoneinfo import ZoneInfo, available_timezones

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, QuerySet

from accounts.models import User
from core.errors import BookingDoesNotFit, EgsError, IllegalTransition, InvalidInput
from core.words import duration_exact, utc
from core.written_sql import TimeParam, WrittenQuery
from gpr.allocation.stored_plan import plan_lock, plan_turn
from gpr.bookings.recurrence import OCCURRENCES_MAX, SATURDAY, SPAN_MAX, Recurrence, shortest_gap
from gpr.models import BookingOccurrence, BookingSeries, Gpr, GprState, RepeatRule
from gpr.requests.editing import gpr_cancel
from gpr.requests.planning import booking_does_not_fit, bookings_fitting
from gpr.requests.services import gprs_submit, may_submit
from gpr.requests.spec import BOOKING_AHEAD, EARLIEST_START_MAX, PLAIN_FIELDS, GprSpec, spec_check
from inventory.models import Cluster
from journal.guard import set_aside_on_error
from journal.models import Severity
from journal.services import event_record

# The route of idempotency keys: the API and the pages share it.
SERIES_ROUTE = "booking-series"
# Occurrences are booked this far ahead; later ones keep nothing free.
HORIZON = timedelta(weeks=4)
REFUSAL_MAX_CHARS = 500
# Refused occurrences are tried again after this time.
RETRIED_AFTER = timedelta(minutes=10)
RETRIED_AT_ONCE = 2  # per tick, since each try may plan evictions, too
# All fields but name and time: these are the same for each occurrence.
ASKED_FIELDS = tuple(name for name in PLAIN_FIELDS if name not in {"name", "earliest_start_at", "is_booking", "after", "after_condition"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesTerms:
    spec: GprSpec  # without a time
    first_start_at: datetime
    rule: RepeatRule
    zone: str
    until_at: datetime | None = None  # either this or `count`
    count: int | None = None


@plan_turn()
@transaction.atomic
def series_create(*, actor: User, ask: SeriesTerms, now: datetime) -> BookingSeries:
    """Book the occurrences within the horizon. Those that do not fit are stored as refused.

    Raises InvalidInput, BookingDoesNotFit when none fits, or what `gpr_submit` raises; nothing is stored then.
    """
    _check(ask, now)
    spec = ask.spec
    may_submit(actor, spec)
    spec_check(spec, now=now)
    plan_lock()
    series = BookingSeries.objects.create(
        name=spec.name,
        slice=spec.slice,
        owner=actor,
        created_at=now,
        asked={name: getattr(spec, name) for name in ASKED_FIELDS} | {"clusters": [str(cluster.pk) for cluster in spec.clusters]},
        first_start_at=ask.first_start_at,
        rule=ask.rule,
        zone=ask.zone,
        until_at=ask.until_at,
        count=ask.count,
        next_start_at=ask.first_start_at,
    )
    _record(series, "booking_series.created", f"{series.name} is booked again and again, {series.get_rule_display().lower()}.", actor, now)
    refused = _extend(series, now, collect_errors=(BookingDoesNotFit,))
    if refused and len(refused) == series.occurrences.count():
        raise refused[0]
    return series


@plan_turn()
@transaction.atomic
def series_cancel(*, series: BookingSeries, actor: User | None, now: datetime) -> None:
    """Cancel what waits; running GPRs run to their end. Raises IllegalTransition."""
    plan_lock()
    if not BookingSeries.objects.filter(pk=series.pk, canceled_at=None).update(canceled_at=now, next_start_at=None):
        raise IllegalTransition("This series is canceled already.")
    series.canceled_at, series.next_start_at = now, None
    waiting = Gpr.objects.filter(occurrence__series=series, state__in=[GprState.QUEUED, GprState.PENDING_APPROVAL]).order_by("pk")
    for gpr in waiting.select_related("slice"):
        gpr_cancel(gpr=gpr, actor=actor, now=now)
    _record(series, "booking_series.canceled", f"The series {series.name} was canceled.", actor, now)


_SERIES_DUE: Final = WrittenQuery(
    BookingSeries.objects.filter(next_start_at__lte=TimeParam("until")).order_by("next_start_at", "pk").values_list("pk", "name")
)


def series_extend_due(*, now: datetime) -> None:
    """Book what has come within the horizon."""
    for pk, name in _SERIES_DUE(until=now + HORIZON):
        with set_aside_on_error("series_book", f"Booking series {name} ({pk}) could not be carried on", now=now):
            _extend_locked(pk, now)


def occurrences_retry(*, now: datetime) -> None:
    """Book refused occurrences that fit by now, a few at a time. Runs one query when none is due."""
    # The series that was tried longest ago comes first.
    is_due = Q(tried_at=None) | Q(tried_at__lte=now - RETRIED_AFTER) | Q(tried_at__gt=now)  # clocks may be set back
    due = _refused(now).filter(is_due, series__canceled_at=None).order_by(F("tried_at").asc(nulls_first=True), "starts_at", "pk")
    pk = due.values_list("series", flat=True).first()
    if pk is None:
        return
    with set_aside_on_error("series_retry", f"EGS could not try again the refused bookings of series {pk}", now=now):
        rows = list(due.filter(series=pk)[:RETRIED_AT_ONCE])
        BookingOccurrence.objects.filter(pk__in=[row.pk for row in rows]).update(tried_at=now)
        _book_refused(pk, _fitting(pk, rows, now), now)


def _refused(now: datetime) -> QuerySet[BookingOccurrence]:
    # Occurrences that start too soon cannot be booked any more.
    return BookingOccurrence.objects.filter(gpr=None, starts_at__gte=now + BOOKING_AHEAD)


def _fitting(pk: UUID, rows: Sequence[BookingOccurrence], now: datetime) -> list[datetime]:
    # The stored plan tells which occurrences would fit; of the others, nearest times that do not fit any more are removed.
    spec = spec_of_series(BookingSeries.objects.select_related("slice").get(pk=pk))
    times = {moment for row in rows for moment in (row.starts_at, row.nearest_before_at, row.nearest_after_at) if moment}
    ahead = sorted(moment for moment in times if moment >= now + BOOKING_AHEAD)
    fitting = set(compress(ahead, bookings_fitting([_at(spec, moment) for moment in ahead], now=now)))
    for row in rows:
        if row.starts_at not in fitting:
            _update_nearest(row, fitting)
    return [row.starts_at for row in rows if row.starts_at in fitting]


def _update_nearest(row: BookingOccurrence, fitting: Set[datetime]) -> None:
    old = row.nearest_before_at, row.nearest_after_at
    before_at, after_at = (moment if moment in fitting else None for moment in old)
    if (before_at, after_at) != old:
        refusal = booking_does_not_fit(row.starts_at, nearest_before_at=before_at, nearest_after_at=after_at).detail[:REFUSAL_MAX_CHARS]
        refused = BookingOccurrence.objects.filter(pk=row.pk, gpr=None)
        refused.update(refusal=refusal, nearest_before_at=before_at, nearest_after_at=after_at)


@transaction.atomic
def _book_refused(pk: UUID, starts: Sequence[datetime], now: datetime) -> None:
    if not starts:
        return
    plan_lock()
    series = BookingSeries.objects.select_for_update(of=("self",)).select_related("slice", "owner").get(pk=pk)
    rows = list(_refused(now).filter(series=pk, series__canceled_at=None, starts_at__in=starts))
    spec = spec_of_series(series)
    answers = gprs_submit(actor=series.owner, specs=[_at(spec, row.starts_at) for row in rows], now=now, collect_errors=(EgsError,))
    for row, answer in zip(rows, answers, strict=True):
        if isinstance(answer, Gpr):
            row.gpr, row.refusal, row.nearest_before_at, row.nearest_after_at = answer, "", None, None
            row.save()
            outcome = "waits for approval" if answer.state == GprState.PENDING_APPROVAL else "is booked"
            _record(series, "booking_series.taken_up", f"{series.name} fits at {utc(row.starts_at)} after all, and {outcome}.", None, now)


@transaction.atomic
def _extend_locked(pk: UUID, now: datetime) -> None:
    plan_lock()
    series = BookingSeries.objects.select_for_update(of=("self",)).select_related("slice", "owner").get(pk=pk)
    if series.next_start_at is not None:
        _extend(series, now, collect_errors=(EgsError,))


def _extend(series: BookingSeries, now: datetime, *, collect_errors: tuple[type[EgsError], ...]) -> list[EgsError]:
    """Returns the refusals."""
    spec, ahead = spec_of_series(series), [at for at in recurrence_of(series).starts() if at >= (series.next_start_at or now)]
    due = [at for at in ahead if at <= now + HORIZON]
    asked = [_at(spec, at) for at in due]
    answers = gprs_submit(actor=series.owner, specs=asked, now=now, collect_errors=collect_errors) if due else []
    for starts_at, answer in zip(due, answers, strict=True):
        _store_occurrence(series, starts_at, answer, now)
    series.next_start_at = next(iter(ahead[len(due) :]), None)
    series.save(update_fields=["next_start_at"])
    return [answer for answer in answers if isinstance(answer, EgsError)]


def _store_occurrence(series: BookingSeries, starts_at: datetime, answer: Gpr | EgsError, now: datetime) -> None:
    occurrence = BookingOccurrence(series=series, starts_at=starts_at)
    if isinstance(answer, Gpr):
        occurrence.gpr = answer
    else:
        occurrence.refusal, occurrence.tried_at = answer.detail[:REFUSAL_MAX_CHARS], now
        occurrence.nearest_before_at = answer.extra.get("nearest_before_at")
        occurrence.nearest_after_at = answer.extra.get("nearest_after_at")
        text = f"{series.name} could not be booked for {utc(starts_at)}. {answer.detail}"
        _record(series, "booking_series.refused", text, None, now, Severity.WARNING)
    occurrence.save(force_insert=True)


def spec_of_series(series: BookingSeries) -> GprSpec:
    asked = dict(series.asked)
    clusters = Cluster.objects.filter(pk__in=asked.pop("clusters")).order_by("name")
    return GprSpec(name=series.name, slice=series.slice, clusters=tuple(clusters), **asked)


def _at(spec: GprSpec, starts_at: datetime) -> GprSpec:
    return replace(spec, earliest_start_at=starts_at, is_booking=True)


def recurrence_of(series: BookingSeries) -> Recurrence:
    return Recurrence(series.first_start_at, RepeatRule(series.rule), ZoneInfo(series.zone), series.until_at, series.count)


def _check(ask: SeriesTerms, now: datetime) -> None:
    """Raises InvalidInput."""
    zone = _zone(ask.zone)
    if not now + BOOKING_AHEAD <= ask.first_start_at <= now + EARLIEST_START_MAX:
        ahead = duration_exact(BOOKING_AHEAD.total_seconds())
        raise InvalidInput({"first_start_at": [f"Must lie at least {ahead} and at most a year from now."]})
    if (ask.until_at is None) == (ask.count is None):
        raise InvalidInput({"until_at": ["Say until when, or how often, and not both."]})
    if ask.count is not None and ask.count < 1:
        raise InvalidInput({"count": ["Must be at least 1."]})
    if ask.rule == RepeatRule.WEEKDAYS and ask.first_start_at.astimezone(zone).weekday() >= SATURDAY:
        raise InvalidInput({"first_start_at": ["The first one must be on a day from Monday to Friday, too."]})
    starts = Recurrence(ask.first_start_at, ask.rule, zone, ask.until_at, ask.count).starts()
    end = "count" if ask.until_at is None else "until_at"
    if not starts:
        raise InvalidInput({"until_at": ["Must not lie before the first start."]})
    if len(starts) > OCCURRENCES_MAX or starts[-1] - starts[0] > SPAN_MAX:
        raise InvalidInput({end: [f"At most {OCCURRENCES_MAX} starts within a year. Book an earlier end, and more later."]})
    box = timedelta(seconds=settings.EGS_ENTRY_ALLOWANCE_S + ask.spec.duration_s + settings.EGS_EXIT_ALLOWANCE_S)
    gap = shortest_gap(starts)
    if gap is not None and box > gap:
        most = gap - box + timedelta(seconds=ask.spec.duration_s)
        text = f"Each must be over, its exit included, when the next starts: book at most {duration_exact(most.total_seconds())}."
        raise InvalidInput({"duration_s": [text]})


def _zone(name: str) -> ZoneInfo:
    # `localtime` is the server's zone, which users do not know.
    if name == "localtime" or name not in available_timezones():
        raise InvalidInput({"zone": ["Name a time zone as Europe/Berlin or UTC."]})
    return ZoneInfo(name)


def _record(series: BookingSeries, kind: str, text: str, actor: User | None, now: datetime, severity: Severity = Severity.INFO) -> None:
    event_record(kind=kind, message=text, at=now, actor=actor, severity=severity, slice_id=series.slice_id, data={"series": str(series.pk)})
