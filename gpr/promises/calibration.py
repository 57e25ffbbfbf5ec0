"""Publishes how promises turned out: exact figures for readers who may inspect all promises.

Others get rounded figures of past days, only where enough hidden projects are behind them that they reveal no single one (I13).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db.models import Count, F

from accounts.models import User
from accounts.policy import ObjectKind, Verb, may_all
from gpr.allocation.snapshot import PROMISE_TOLERANCE, PROMISE_TOLERANCE_S, box_length_s
from gpr.models import GprState, Promise, PromiseMove, PromiseOutcome
from gpr.promises.forecasts import whole_s
from gpr.promises.outcomes import is_kept
from planner.promises.ranges import ENOUGH_COUNT, quantile
from slices.models import Slice
from slices.selectors import slices_visible_to

# The periods that may be asked for; more than a month is reported by week.
DAYS: Final = (7, 30, 90)
DAYS_DEFAULT: Final = 30
DAYS_BY_DAY: Final = 30
DAY, WEEK = timedelta(days=1), timedelta(days=7)
MINUTE_S: Final = 60
# If there are more outcomes, only the newest are read, so that large sites get an answer quickly.
OUTCOMES_MAX: Final = 100_000
LAST_SHOWN, WORST_SHOWN = 20, 10
# Lower bounds of the length classes.
LENGTHS_S: Final = (0, 900, 3_600, 14_400, 57_600)
# Figures over hidden workspaces need this many projects, and counts are rounded to tens.
PROJECTS_LEAST: Final = 3
COUNT_STEP: Final = 10


class OutcomeRow(NamedTuple):
    slice_id: UUID
    settled_at: datetime
    length_s: int
    is_gang: bool
    is_moved: bool
    margin_s: int
    wait_s: int
    is_learned: bool
    # These are None for a request that did not have to wait.
    expected_wait_s: int | None = None
    promised_wait_s: int | None = None
    p50_s: int | None = None
    p90_s: int | None = None


_FIELDS: Final = (
    "gpr__slice",
    *(f"forecast__{name}" if name in OutcomeRow._field_defaults else name for name in OutcomeRow._fields if name != "slice_id"),
)


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Figures over requests that had to wait. Shares from 0 to 1."""

    median_error_s: float | None = None
    within_1min: float | None = None
    within_10min: float | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """Shares are from 0 to 1. A figure is None if this reader may not see so few promises."""

    due_count: int | None = None
    kept_count: int | None = None
    kept_share: float | None = None
    moved_count: int | None = None
    moved_share: float | None = None
    waited_count: int | None = None  # had to wait: margin and accuracy are over these
    margin_p50_s: float | None = None
    margin_p90_s: float | None = None
    expected: Accuracy = Accuracy()
    promise: Accuracy = Accuracy()
    ranged_count: int | None = None  # were told a learned range, too: coverage and width are over these
    p50_coverage: float | None = None
    p90_coverage: float | None = None
    width_p50_s: float | None = None


@dataclass(frozen=True, slots=True)
class ClassScore:
    length_from_s: int  # of the whole box, entry and exit included
    length_below_s: int | None  # None: no upper limit
    is_gang: bool
    score: Score


@dataclass(frozen=True, slots=True)
class SpanScore:
    from_at: datetime
    until_at: datetime
    score: Score


@dataclass(frozen=True, slots=True)
class CauseShare:
    """Several causes may move one promise."""

    cause: str
    count: int | None
    share: float | None


@dataclass(frozen=True, slots=True)
class SettledPromise:
    gpr_id: UUID
    gpr: str
    slice: Any
    promised_start_at: datetime
    started_at: datetime | None  # None: it was withdrawn when it was overdue
    settled_at: datetime
    margin_s: int
    moves: tuple[PromiseMove, ...]

    @property
    def is_kept(self) -> bool:
        return is_kept(self.margin_s)

    @classmethod
    def of(cls, row: PromiseOutcome) -> SettledPromise:
        # Other promises of the same GPR have moves of their own.
        moves = (move for move in row.gpr.promise_moves.all() if row.made_at <= move.at <= row.settled_at)
        times = row.promised_start_at, row.started_at, row.settled_at
        return cls(row.gpr_id, row.gpr.name, row.gpr.slice, *times, row.margin_s, tuple(moves))


@dataclass(frozen=True, slots=True)
class Calibration:
    """`is_cut`: there are more outcomes than are read, so it begins later than asked."""

    days: int
    since_at: datetime
    until_at: datetime
    is_cut: bool
    total: Score
    causes: tuple[CauseShare, ...]
    classes: tuple[ClassScore, ...]
    spans: tuple[SpanScore, ...]
    last: tuple[SettledPromise, ...]
    worst: tuple[SettledPromise, ...]  # for readers of exact figures


def calibration_for(actor: User, *, days: int, now: datetime) -> Calibration:
    """Covers UTC days up to today, or up to yesterday for readers without exact figures."""
    is_exact = may_all(actor, Verb.INSPECT, ObjectKind.PROMISE)
    ends_at = _day_of(now) + (DAY if is_exact else timedelta())
    since_at, until_at = ends_at - days * DAY, min(now, ends_at)
    # Others must not see overdue promises: the figures would show when one of them starts.
    overdue = _overdue(now) if is_exact else []
    outcomes = overdue + _settled_between(since_at, ends_at)
    is_cut = len(outcomes) > OUTCOMES_MAX
    if is_cut:
        outcomes = outcomes[:OUTCOMES_MAX]
        since_at = outcomes[-1].settled_at if is_exact else _day_of(outcomes[-1].settled_at)
    seen = slices_visible_to(actor).values("pk")
    scorer = Scoring(None if is_exact else dict(Slice.objects.exclude(pk__in=seen).values_list("pk", "project")))
    settled = PromiseOutcome.objects.filter(settled_at__gte=since_at)
    settled = settled.select_related("gpr__slice").prefetch_related("gpr__promise_moves")
    own = settled if is_exact else settled.filter(gpr__slice__in=seen)
    late = settled.filter(margin_s__lt=-PROMISE_TOLERANCE_S).order_by("margin_s", "-settled_at", "-pk")
    return Calibration(
        days=days,
        since_at=since_at,
        until_at=until_at,
        is_cut=is_cut,
        total=scorer.score(outcomes),
        causes=scorer.causes(_moved_by(since_at, ends_at), len(outcomes)),
        classes=_classes(outcomes, scorer),
        spans=_spans(outcomes, scorer, since_at, until_at, WEEK if days > DAYS_BY_DAY else DAY),
        last=tuple(map(SettledPromise.of, own.order_by("-settled_at", "-pk")[:LAST_SHOWN])),
        worst=tuple(map(SettledPromise.of, late[:WORST_SHOWN])) if is_exact else (),
    )


@dataclass(frozen=True, slots=True)
class Scoring:
    """`hidden_slices`: slices that the reader cannot see, with their projects; None: exact figures."""

    hidden_slices: Mapping[UUID, UUID] | None

    def score(self, outcomes: Sequence[OutcomeRow]) -> Score:
        outcomes = self._if_enough(outcomes)
        if not outcomes:
            return Score()
        waited = self._if_enough([outcome for outcome in outcomes if outcome.promised_wait_s is not None])
        ranged = self._if_enough([outcome for outcome in waited if outcome.is_learned])
        kept_count = sum(is_kept(outcome.margin_s) for outcome in outcomes)
        moved_count = sum(outcome.is_moved for outcome in outcomes)
        margins = [outcome.margin_s for outcome in waited]
        return Score(
            due_count=self._count(outcomes),
            kept_count=kept_count if self.hidden_slices is None else None,
            kept_share=self._share(kept_count, len(outcomes), rounded=math.floor),
            moved_count=moved_count if self.hidden_slices is None else None,
            moved_share=self._share(moved_count, len(outcomes)),
            waited_count=self._count(waited),
            margin_p50_s=self._quantile(margins, 0.5),
            margin_p90_s=self._quantile(margins, 0.9),
            expected=self._accuracy([abs(outcome.wait_s - (outcome.expected_wait_s or 0)) for outcome in waited]),
            promise=self._accuracy([abs(margin_s) for margin_s in margins]),
            ranged_count=self._count(ranged),
            p50_coverage=self._share(sum(outcome.wait_s <= (outcome.p50_s or 0) for outcome in ranged), len(ranged)),
            p90_coverage=self._share(sum(outcome.wait_s <= (outcome.p90_s or 0) for outcome in ranged), len(ranged)),
            width_p50_s=self._quantile([(outcome.p90_s or 0) - (outcome.p50_s or 0) for outcome in ranged], 0.5),
        )

    def causes(self, moved_by: Mapping[str, Mapping[UUID, int]], due_count: int) -> tuple[CauseShare, ...]:
        shown = ((cause, sum(counts.values())) for cause, counts in moved_by.items() if self._is_enough(counts))
        ranked = sorted(shown, key=lambda each: (-each[1], each[0]))
        is_whole = self.hidden_slices is None
        return tuple(CauseShare(cause, count if is_whole else None, self._share(count, due_count)) for cause, count in ranked)

    def _if_enough(self, outcomes: Sequence[OutcomeRow]) -> Sequence[OutcomeRow]:
        return outcomes if self._is_enough(Counter(outcome.slice_id for outcome in outcomes)) else ()

    def _is_enough(self, counts: Mapping[UUID, int]) -> bool:
        # `counts` is by slice. Slices that the reader can see hide no other.
        if self.hidden_slices is None:
            return True
        theirs = {slice_id: count for slice_id, count in counts.items() if slice_id in self.hidden_slices}
        return sum(theirs.values()) >= ENOUGH_COUNT and len({self.hidden_slices[slice_id] for slice_id in theirs}) >= PROJECTS_LEAST

    def _count(self, outcomes: Sequence[OutcomeRow]) -> int | None:
        return len(outcomes) if self.hidden_slices is None else round_to(len(outcomes), COUNT_STEP, rounded=math.floor) or None

    def _share(self, count: int, total: int, *, rounded: Callable[[float], int] = round) -> float | None:
        if not total:
            return None
        return count / total if self.hidden_slices is None else round_to(100 * count / total, 1, rounded=rounded) / 100

    def _quantile(self, values: Sequence[float], level: float) -> float | None:
        found = quantile(values, level)
        return found if found is None or self.hidden_slices is None else round_to(found, MINUTE_S)

    def _accuracy(self, errors_s: Sequence[int]) -> Accuracy:
        within = (self._share(sum(error_s <= bound_s for error_s in errors_s), len(errors_s)) for bound_s in (MINUTE_S, 10 * MINUTE_S))
        return Accuracy(self._quantile(errors_s, 0.5), *within)


def round_to(value: float, step: int, *, rounded: Callable[[float], int] = round) -> int:
    return step * rounded(value / step)


def _day_of(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def _settled_between(since_at: datetime, ends_at: datetime) -> list[OutcomeRow]:
    rows = PromiseOutcome.objects.filter(settled_at__gte=since_at, settled_at__lt=ends_at).order_by("-settled_at", "-pk")
    return [OutcomeRow._make(row) for row in rows.values_list(*_FIELDS)[: OUTCOMES_MAX + 1]]


def _overdue(now: datetime) -> list[OutcomeRow]:
    # Queued after the first promised start: not kept, whatever comes. Whether one was moved is counted when it is settled.
    rows = Promise.objects.filter(gpr__state=GprState.QUEUED, first_promised_start_at__lt=now - PROMISE_TOLERANCE)
    fields = "gpr__slice", "first_promised_start_at", "made_at", "gpr__remaining_s", "gpr__nodes"
    found = rows.order_by("first_promised_start_at", "pk").values_list(*fields)[: OUTCOMES_MAX + 1]
    return [
        OutcomeRow(
            slice_id=slice_id,
            settled_at=now,
            length_s=box_length_s(remaining_s),
            is_gang=nodes > 1,
            is_moved=False,
            margin_s=whole_s(promised_at - now),
            wait_s=whole_s(now - made_at),
            is_learned=False,
        )
        for slice_id, promised_at, made_at, remaining_s, nodes in found
    ]


def _moved_by(since_at: datetime, ends_at: datetime) -> dict[str, dict[UUID, int]]:
    # Counts of settled promises by cause and workspace.
    moves = PromiseMove.objects.filter(
        gpr__outcomes__settled_at__gte=since_at,
        gpr__outcomes__settled_at__lt=ends_at,
        gpr__outcomes__is_moved=True,
        at__gte=F("gpr__outcomes__made_at"),
        at__lte=F("gpr__outcomes__settled_at"),
    )
    found: dict[str, dict[UUID, int]] = defaultdict(dict)
    for cause, slice_id, count in moves.order_by().values_list("cause", "gpr__slice").annotate(count=Count("gpr__outcomes", distinct=True)):
        found[cause][slice_id] = count
    return found


def _classes(outcomes: Sequence[OutcomeRow], scorer: Scoring) -> tuple[ClassScore, ...]:
    grouped: dict[tuple[bool, int], list[OutcomeRow]] = defaultdict(list)
    for outcome in outcomes:
        grouped[outcome.is_gang, bisect_right(LENGTHS_S, outcome.length_s) - 1].append(outcome)
    ends_s: tuple[int | None, ...] = (*LENGTHS_S[1:], None)
    return tuple(
        ClassScore(LENGTHS_S[number], ends_s[number], is_gang, score)
        for (is_gang, number), members in sorted(grouped.items())
        if len(members) >= ENOUGH_COUNT and (score := scorer.score(members)).due_count
    )


def _spans(
    outcomes: Sequence[OutcomeRow], scorer: Scoring, since_at: datetime, until_at: datetime, step: timedelta
) -> tuple[SpanScore, ...]:
    # Spans without outcomes are included; an outcome at `until_at` belongs to the last.
    count = max(math.ceil((until_at - since_at) / step), 1)
    grouped: dict[int, list[OutcomeRow]] = defaultdict(list)
    for outcome in outcomes:
        grouped[min((outcome.settled_at - since_at) // step, count - 1)].append(outcome)
    begins = [since_at + number * step for number in range(count)]
    return tuple(SpanScore(begin, min(begin + step, until_at), scorer.score(grouped[number])) for number, begin in enumerate(begins))
