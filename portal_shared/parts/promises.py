"""Shows statistics of kept promises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.urls import reverse

from core.pages import words
from core.pages.parts import Fact, Pair, Tab
from gpr.promises.calibration import DAYS, DAYS_DEFAULT, Accuracy, Calibration, CauseShare, ClassScore, Score, SettledPromise, SpanScore
from planner.causes import Cause
from planner.promises.ranges import ENOUGH_COUNT, TARGETS
from portal_shared.access import PageRequest
from portal_shared.parts.paging import url_with

NOT_YET = "too few"
# Height of a full bar, and the space above it for the target line.
BARS_PX, ABOVE_PX = 64, 2
# Share of a bar's width that stays empty.
GAP = 0.2
CAUSE_WORDS = {
    Cause.OVERRUN: "a request before it gave its nodes back late",
    Cause.NODE_FAILURE: "a node that it was planned on went away",
    Cause.MAINTENANCE: "nodes that it was planned on are closed for maintenance",
    Cause.CHANGED: "the request was changed",
    Cause.ACCESS: "its workspace may no longer use the nodes that it was planned on",
    Cause.SILENCE: "the cluster that it was planned on was not connected",
    Cause.LATE_TICK: "the planner was late",
    Cause.RECLAIM: "another workspace was entitled to the GPUs that it would have borrowed",
    Cause.QUOTA: "its workspace or project may hold no more GPUs then",
    Cause.ADMIN: "an administrator moved it, or another before it",
    Cause.PREDECESSOR: "the request that it starts after ends later",
    Cause.PRIORITY: "a request of much higher priority came",
    Cause.SUPPLY: "nodes that were ordered for it did not come",
    Cause.TOPOLOGY: "nodes that it was planned on are in different racks or NVLink domains now",
    Cause.FAULT: "EGS itself made a mistake; its administrators have been told",
}


@dataclass(frozen=True, slots=True)
class PromiseLine:
    id: str
    name: str
    url: str
    mark: Any
    promised_at: datetime
    started_at: datetime | None  # None: withdrawn after its time
    settled_at: datetime
    margin: str
    is_late: bool
    moves: tuple[tuple[datetime, str], ...]  # to when, since what

    @classmethod
    def of(cls, settled: SettledPromise, *, page: str, mark: Any) -> PromiseLine:
        moves = tuple((move.new_start_at, CAUSE_WORDS[Cause(move.cause)]) for move in settled.moves)
        times = settled.promised_start_at, settled.started_at, settled.settled_at
        id_ = f"{settled.gpr_id}-{int(settled.settled_at.timestamp())}"  # a GPR may have had several promises
        return cls(id_, settled.gpr, reverse(page, args=[settled.gpr_id]), mark, *times, _margin(settled), not settled.is_kept, moves)


@dataclass(frozen=True, slots=True)
class Gauge:
    """Both `x` are percentages of the width."""

    label: str
    value: str
    spoken: str
    share_x: str
    target_x: str


@dataclass(frozen=True, slots=True)
class Bar:
    x: str
    width: str
    y: float
    height: float
    title: str


@dataclass(frozen=True, slots=True)
class BarChart:
    """`spoken` is for screen readers."""

    title: str
    spoken: str
    bars: tuple[Bar, ...]
    target_y: float
    target: str


@dataclass(frozen=True, slots=True)
class SpanRow:
    label: str
    due: str
    kept: str
    p50: str
    p90: str


@dataclass(frozen=True, slots=True)
class ClassRow:
    length: str
    size: str
    due: str
    kept: str
    p50: str
    p90: str
    width: str
    error: str


@dataclass(frozen=True, slots=True)
class CauseRow:
    why: str
    value: str


@dataclass(frozen=True, slots=True)
class PromiseFigures:
    """`is_blank`: no promises came due, or too few to show."""

    days: int
    tabs: tuple[Tab, ...]
    is_blank: bool
    is_cut: bool
    since_at: datetime
    facts: tuple[Fact, ...]
    told: str
    gauges: tuple[Gauge, ...]
    accuracy: tuple[Pair, ...]
    charts: tuple[BarChart, ...]
    spans: tuple[SpanRow, ...]
    first: str
    last: str
    classes: tuple[ClassRow, ...]
    causes: tuple[CauseRow, ...]

    @classmethod
    def of(cls, found: Calibration, url: str) -> PromiseFigures:
        total = found.total
        labels = [_day(span.from_at) for span in found.spans]
        return cls(
            days=found.days,
            tabs=tuple(Tab(f"{days} days", url_with(url, {"days": str(days)}), days == found.days) for days in DAYS),
            is_blank=not total.due_count,
            is_cut=found.is_cut,
            since_at=found.since_at,
            facts=_facts(total),
            told=_told(total),
            gauges=_gauges(total),
            accuracy=_accuracy(total),
            charts=_charts(found.spans),
            spans=tuple(_span_row(span) for span in found.spans if span.score.due_count),
            first=labels[0],
            last=labels[-1],
            classes=tuple(_class_row(one) for one in found.classes),
            causes=tuple(_cause_row(one) for one in found.causes),
        )


def days_asked(request: PageRequest) -> int:
    given = request.GET.get("days", "")
    return int(given) if given in map(str, DAYS) else DAYS_DEFAULT


def percent(share: float | None) -> str:
    """Returns e.g. `98.7 %`. Less than all is never rounded to 100 %."""
    if share is None:
        return NOT_YET
    return f"{words.number(99.9 if 0.999 < share < 1 else round(100 * share, 1))} %"


def _facts(total: Score) -> tuple[Fact, ...]:
    is_kept = total.kept_share == 1
    kept_note = f"{words.number(total.kept_count)} of them" if total.kept_count is not None else "at most a minute late"
    moved_note = f"{words.number(total.moved_count)} of them" if total.moved_count is not None else "for a cause"
    due_note = "started, or overdue" if total.kept_count is not None else "by yesterday; all counts in tens"
    return (
        Fact("Promises due", words.number(total.due_count or 0), due_note),
        Fact("Kept", percent(total.kept_share), kept_note, tone="good" if is_kept else "late"),
        Fact("Moved", percent(total.moved_share), moved_note),
        Fact("Earlier than promised", _span(total.margin_p50_s), "median of those that waited"),
        Fact("One in ten earlier by", _span(total.margin_p90_s), "or more"),
    )


def _told(total: Score) -> str:
    if total.p90_coverage is None:
        return f"Not enough history for a range yet: it needs {ENOUGH_COUNT} outcomes."
    count = words.number(total.ranged_count or 0)
    return f"{count} requests had to wait and got a range. Its median width was {_span(total.width_p50_s)}."


def _gauges(total: Score) -> tuple[Gauge, ...]:
    if total.p90_coverage is None or total.p50_coverage is None:
        return ()
    return (
        _gauge("Started by the first time of the range (target: half)", total.p50_coverage, TARGETS[0]),
        _gauge("Started by the second time (target: nine in ten)", total.p90_coverage, TARGETS[1]),
    )


def _gauge(label: str, share: float, target: float) -> Gauge:
    return Gauge(label, percent(share), f"{percent(share)}, the target is {percent(target)}", _x(share), _x(target))


def _accuracy(total: Score) -> tuple[Pair, ...]:
    return (
        Pair("Planned start", _off(total.expected), "from the queue at that time"),
        Pair("Promised start", _off(total.promise), "the latest start; most start earlier"),
    )


def _off(accuracy: Accuracy) -> str:
    if accuracy.median_error_s is None:
        return ""
    within = f"{percent(accuracy.within_1min)} within a minute, {percent(accuracy.within_10min)} within ten"
    return f"off by {words.duration(accuracy.median_error_s)} (median); {within}"


def _charts(spans: Sequence[SpanScore]) -> tuple[BarChart, ...]:
    return (
        _chart("Promises kept", spans, [span.score.kept_share for span in spans], 1.0),
        _chart("Started by the first time of the range", spans, [span.score.p50_coverage for span in spans], TARGETS[0]),
        _chart("Started by the second time of the range", spans, [span.score.p90_coverage for span in spans], TARGETS[1]),
    )


def _chart(title: str, spans: Sequence[SpanScore], shares: Sequence[float | None], target: float) -> BarChart:
    room = 100 / len(spans)
    bars = tuple(
        Bar(
            x=f"{(number + GAP / 2) * room:.2f}%",
            width=f"{(1 - GAP) * room:.2f}%",
            y=round(ABOVE_PX + BARS_PX * (1 - share), 1),
            height=round(BARS_PX * share, 1),
            title=f"{_day(span.from_at)}: {percent(share)}",
        )
        for number, (span, share) in enumerate(zip(spans, shares, strict=True))
        if share is not None
    )
    told = (
        f"{words.plural(len(bars), 'bar')}, the target is {percent(target)}; the table below has the figures"
        if bars
        else "nothing to show yet"
    )
    return BarChart(title, f"{title}: {told}", bars, round(ABOVE_PX + BARS_PX * (1 - target), 1), percent(target))


def _span_row(span: SpanScore) -> SpanRow:
    score = span.score
    return SpanRow(
        _day(span.from_at), words.number(score.due_count or 0), *map(percent, (score.kept_share, score.p50_coverage, score.p90_coverage))
    )


def _class_row(one: ClassScore) -> ClassRow:
    score = one.score
    shares = map(percent, (score.kept_share, score.p50_coverage, score.p90_coverage))
    spans = map(_span, (score.width_p50_s, score.expected.median_error_s))
    return ClassRow(_length(one), "several nodes" if one.is_gang else "one node", words.number(score.due_count or 0), *shares, *spans)


def _cause_row(one: CauseShare) -> CauseRow:
    count = f" ({words.number(one.count)})" if one.count is not None else ""
    return CauseRow(CAUSE_WORDS[Cause(one.cause)], f"{percent(one.share)}{count}")


def _length(one: ClassScore) -> str:
    if one.length_below_s is None:
        return f"{words.duration(one.length_from_s)} and longer"
    if one.length_from_s == 0:
        return f"under {words.duration(one.length_below_s)}"
    return f"{words.duration(one.length_from_s)} to {words.duration(one.length_below_s)}"


def _margin(settled: SettledPromise) -> str:
    """Returns e.g. `45 min late`, `4 min early`, `on time`."""
    if abs(settled.margin_s) < words.MINUTE_S:
        return "on time"
    return f"{words.duration(abs(settled.margin_s))} {'early' if settled.margin_s > 0 else 'late'}"


def _span(span_s: float | None) -> str:
    if span_s is None:
        return NOT_YET
    return words.duration(span_s) if span_s >= 0 else f"-{words.duration(-span_s)}"


def _day(at: datetime) -> str:
    """Returns e.g. `24 Nov`. Days are counted in UTC."""
    local = at.astimezone(UTC)
    return f"{local.day} {local:%b}"


def _x(share: float) -> str:
    return f"{100 * share:.2f}%"
