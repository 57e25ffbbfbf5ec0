"""Shows the head of a GPR's page: the main figure of its state, facts, and its timeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo

from core.pages import words
from core.pages.axis import Axis
from core.pages.parts import Fact
from core.pages.strip import Strip, hero_of
from gpr.allocation.snapshot import nodes_free_at
from gpr.idle.selectors import Idleness, idleness_of
from gpr.models import ENDED, Gpr, GprState
from gpr.requests.end_reasons import ending
from inventory.models import Reservation, ReservationState
from journal.models import Event
from portal_shared.parts.gpr_box import box_of, late_s, promised_at_first, shown_state, waiting_since, window_end
from portal_user.pages.notices import EvictionNotice
from portal_user.pages.requests.outcomes import lateness
from portal_user.pages.requests.row import READY, node_failure, used_percent
from portal_user.pages.requests.steps import StepPanel, steps_done

S = GprState
AXIS_PX = 1080
SHOWN_MIN = timedelta(minutes=4)


@dataclass(frozen=True, slots=True)
class Hero:
    big: str
    tick: str  # "left" or "starts": how the script updates the figure towards `at`; empty: it is fixed
    text: str  # below the figure
    at: datetime | None  # after the text
    trouble: str  # why it does not proceed, or empty
    notice: EvictionNotice | None
    idle: Idleness | None
    used: str  # what it used, after its end
    facts: tuple[Fact, ...]
    axis: Axis
    strip: Strip


@dataclass(frozen=True, slots=True)
class ReadForHero:
    """Holds data of a GPR that was read beside its row."""

    now: datetime
    zone: tzinfo
    since: datetime | None = None  # start of its wait before this run
    position: int | None = None
    event: Event | None = None
    nodes: Sequence[Reservation] = ()
    panels: Sequence[StepPanel] = ()
    notice: EvictionNotice | None = None
    used: str = ""


def hero(gpr: Gpr, seen: ReadForHero) -> Hero:
    axis = _axis(gpr, seen)
    big, text, at = _time(gpr, seen)
    return Hero(
        big=big,
        tick="left" if gpr.state == S.ACTIVE else "starts" if gpr.state == S.QUEUED and gpr.planned_start_at else "",
        text=text,
        at=at,
        trouble=node_failure(seen.nodes) if gpr.state not in ENDED else "",
        notice=seen.notice,
        idle=idleness_of(gpr),
        used=seen.used,
        facts=tuple(fact for fact in _facts(gpr, seen, axis) if fact.value),
        axis=axis,
        strip=hero_of(box_of(gpr), axis),
    )


def _time(gpr: Gpr, seen: ReadForHero) -> tuple[str, str, datetime | None]:
    now = seen.now
    if gpr.state == S.PENDING_APPROVAL:
        return "Waits for approval", "an administrator decides; filed", gpr.created_at
    if gpr.state == S.QUEUED:
        return _start(gpr, now)
    if gpr.state == S.PROVISIONING:
        ready = sum(node.phase in READY for node in seen.nodes)
        entry = seen.panels[0] if seen.panels else None
        big = f"Step {min(steps_done(entry) + 1, len(entry.steps))} of {len(entry.steps)}" if entry else "Provisioning"
        return big, f"{ready} of {words.plural(gpr.nodes, 'node')} ready; since", gpr.provisioning_at
    if gpr.state == S.ACTIVE and gpr.ends_at:
        return words.left(gpr.ends_at, now=now), "will be evicted at" if seen.notice else "ends", gpr.ends_at
    if gpr.state == S.EXITING:
        back = sum(node.state == ReservationState.RELEASED for node in seen.nodes)
        clean_at = nodes_free_at(gpr.state_changed_at)
        big = f"Clean in about {words.duration((clean_at - now).total_seconds())}" if clean_at > now else "Being cleaned"
        return big, f"{back} of {words.plural(len(seen.nodes), 'node')} back; since", gpr.state_changed_at
    return words.STATE_WORDS[gpr.state], f"{ending(gpr, seen.event)} Over since", gpr.ended_at


def _start(gpr: Gpr, now: datetime) -> tuple[str, str, datetime | None]:
    start_at = gpr.planned_start_at
    if start_at is None:
        return "Not planned yet", "filed", gpr.created_at
    return words.starts(start_at, now=now), "by the plan at", start_at


def _facts(gpr: Gpr, seen: ReadForHero, axis: Axis) -> list[Fact]:
    if gpr.state == S.PENDING_APPROVAL:
        return [
            replace(_waited(gpr, seen, axis), label="Waited"),
            Fact("Rules", words.plural(len(gpr.approval_reasons), "rule"), "to be approved"),
            Fact("Decided by", axis.says(gpr.decide_by_at) if gpr.decide_by_at else "", "else it is rejected"),
        ]
    if gpr.state == S.QUEUED:
        promised_at = promised_at_first(gpr)
        return [
            Fact("Place", words.number(seen.position) if seen.position else "", "by planned start, across all workspaces"),
            Fact(
                "Promised by",
                axis.says(promised_at) if promised_at else "",
                lateness(gpr, seen.event).rstrip("."),
                tone="late" if late_s(gpr) >= words.MINUTE_S else "",
            ),
            _range(gpr, axis),
            _waited(gpr, seen, axis),
            _had(gpr),
        ]
    facts = [_promise(gpr), _waited(gpr, seen, axis), _provisioning(gpr, seen)]
    return facts if gpr.state == S.PROVISIONING else [_used(gpr, seen), *facts]


def _range(gpr: Gpr, axis: Axis) -> Fact:
    promise = gpr.current_promise
    if shown_state(gpr) == "BOOKED":
        return Fact("Range", "none", "booked: it starts exactly then")
    if promise is None or promise.p50_at is None or promise.p90_at is None:
        return Fact("Range", "none yet", "not enough history")
    return Fact(
        "Range", f"{axis.says(promise.p50_at)} to {axis.says(promise.p90_at)}", "half start by the first time, nine in ten by the second"
    )


def _used(gpr: Gpr, seen: ReadForHero) -> Fact:
    if gpr.active_at is None or gpr.ends_at is None:
        return Fact("Used", "nothing", f"of {words.duration(gpr.duration_s)}")
    if gpr.state == S.ACTIVE:
        window_s = (gpr.ends_at - gpr.active_at).total_seconds()
        used_s = min(max((seen.now - gpr.active_at).total_seconds(), 0), window_s)
        return Fact("Used", f"{used_percent(gpr, seen.now)} %", f"{words.duration(used_s)} of {words.duration(window_s)}")
    used_s = gpr.duration_s - gpr.remaining_s  # in all its runs
    return Fact("Used", f"{used_s / gpr.duration_s * 100:.0f} %", f"{words.duration(used_s)} of {words.duration(gpr.duration_s)} booked")


def _had(gpr: Gpr) -> Fact:
    """Describes the past runs of a GPR that waits to run the rest of its time."""
    had_s = gpr.duration_s - gpr.remaining_s
    return Fact("Still to run", words.duration(gpr.remaining_s) if had_s else "", f"of {words.duration(gpr.duration_s)}")


def _promise(gpr: Gpr) -> Fact:
    promise = gpr.current_promise
    if promise is None or gpr.provisioning_at is None:
        return Fact("Promise", "")
    late = words.late(late_s(gpr))
    if late:
        return Fact("Promise", "missed", f"{late.removeprefix('+')} late", tone="late")
    early = words.late(-late_s(gpr)).removeprefix("+")
    return Fact("Promise", "kept", f"{early} early" if early else "on time", tone="good")


def _waited(gpr: Gpr, seen: ReadForHero, axis: Axis) -> Fact:
    since = seen.since or waiting_since(gpr)
    until = gpr.provisioning_at or gpr.ended_at or seen.now
    return Fact("Queued", words.duration(max((until - since).total_seconds(), 0)), f"since {axis.says(since)}")


def _provisioning(gpr: Gpr, seen: ReadForHero) -> Fact:
    if gpr.provisioning_at is None:
        return Fact("Provisioning", "")
    until = gpr.active_at or gpr.ended_at or seen.now
    passed = sum(steps_done(panel) for panel in seen.panels[:1])
    return Fact(
        "Provisioning",
        words.duration(max((until - gpr.provisioning_at).total_seconds(), 0)),
        f"{words.plural(passed, 'step')} passed" if passed else "",
    )


def _axis(gpr: Gpr, seen: ReadForHero) -> Axis:
    """Spans the time from filing to the end. A wait much longer than the box is cut short."""
    begin = waiting_since(gpr)
    end = max(filter(None, (window_end(gpr), gpr.ended_at, promised_at_first(gpr), begin + SHOWN_MIN)))
    if gpr.state not in ENDED:
        end = max(end, seen.now)
    held_from = gpr.provisioning_at
    if held_from and held_from - begin > 2 * (end - held_from):
        begin = held_from - (end - held_from)
    air = max((end - begin) * 0.06, timedelta(seconds=10))
    return Axis(begin - air, end + air, seen.now, seen.zone, width_px=AXIS_PX, name="gpr")
