from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.pages import words
from core.pages.axis import LABEL_HALF_PX, PERCENT_MAX, PERCENT_MIN, PILL_HALF_PX, Axis
from core.pages.node_strip import KIND_CSS, NodeBox, node_strip
from core.pages.strip import CHAR_PX, Strip, StripBox, hero_of, strip_of

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 19, 12, 8, 4, tzinfo=UTC)
AXIS = Axis(NOW - timedelta(hours=4), NOW + timedelta(hours=7), NOW, BERLIN)
# To the minute, as people book; around a change to winter time, too.
moments = st.integers(-40 * 24 * 60, 12 * 24 * 60).map(lambda minutes: NOW + timedelta(minutes=minutes))
zones = st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu", "America/St_Johns", "Pacific/Apia"]).map(ZoneInfo)


@st.composite
def axes(draw: st.DrawFn) -> Axis:
    start = draw(moments)
    length = timedelta(minutes=draw(st.integers(5, 400 * 24 * 60)))
    return Axis(start, start + length, draw(moments), draw(zones), width_px=draw(st.integers(200, 1_400)))


@st.composite
def boxes(draw: st.DrawFn) -> StripBox:
    times: dict[str, Any] = draw(
        st.fixed_dictionaries({name: st.none() | moments for name in StripBox.__dataclass_fields__ if name.endswith("_at")})
    )
    return StripBox(draw(st.sampled_from([*words.STATE_WORDS, "OFFER"])), asks="4 × 8 GPUs", **times)


def percent(text: str) -> float:
    return float(text.removesuffix("%"))


def assert_on_axis(strip: Strip) -> None:
    for part in strip.parts:
        assert PERCENT_MIN <= percent(part.x) <= PERCENT_MAX
        if part.width:
            assert percent(part.width) >= 0.25
            assert percent(part.x) + percent(part.width) <= PERCENT_MAX + 0.011  # both are rounded
        if part.x2:
            assert percent(part.x) <= percent(part.x2) <= PERCENT_MAX
        assert 0 <= part.y <= strip.height


@given(boxes(), axes(), st.sampled_from([26, 30, 45]))
def test_whatever_happened_to_a_gpr_its_strip_stays_on_the_axis(box: StripBox, axis: Axis, height: int) -> None:
    strip = strip_of(box, axis, height=height)

    assert_on_axis(strip)
    assert "4 × 8 GPUs." in strip.spoken


def extent_px(axis: Axis, x: str, text: str, anchor: str, dx: float) -> tuple[float, float]:
    width_px = len(text) * CHAR_PX
    at_px = percent(x) / 100 * axis.width_px + dx
    left = {"start": at_px, "middle": at_px - width_px / 2, "end": at_px - width_px}[anchor]
    return left, left + width_px


@given(boxes(), axes())
def test_no_label_of_the_large_strip_crosses_now_another_label_or_an_edge(box: StripBox, axis: Axis) -> None:
    strip = hero_of(box, axis)

    assert_on_axis(strip)
    placed = [(part.y, *extent_px(axis, part.x, part.text, part.anchor, part.dx)) for part in strip.parts if part.shape == "text"]
    now_px = axis.px(axis.now)
    for y, left, right in placed:
        assert left > -1
        assert right < axis.width_px + 1
        assert not axis.now_x or not left < now_px < right
        assert all(other == (y, left, right) or other[0] != y or right <= other[1] or other[2] <= left for other in placed)


@given(axes())
def test_labels_of_the_axis_keep_clear_of_now_and_of_each_other(axis: Axis) -> None:
    labels = axis.labels
    at_px = [min(max(percent(label.x) / 100 * axis.width_px, LABEL_HALF_PX), axis.width_px - LABEL_HALF_PX) for label in labels]

    assert all(0 <= percent(label.x) <= 100 for label in labels)
    assert all(later - earlier >= 2 * LABEL_HALF_PX for earlier, later in pairwise(at_px))
    if axis.now_x:
        pill_px = percent(axis.now_x) / 100 * axis.width_px + axis.pill_shift_px
        assert pill_px - PILL_HALF_PX >= -0.1
        assert pill_px + PILL_HALF_PX <= axis.width_px + 0.1
        assert all(abs(px - pill_px) >= PILL_HALF_PX + LABEL_HALF_PX - 0.1 for px in at_px)


@pytest.mark.parametrize(
    ("zone", "start", "hours", "texts"),
    [
        # The night in which Berlin's clock goes from 03:00 back to 02:00: each round hour once.
        (BERLIN, datetime(2026, 10, 24, 22, tzinfo=UTC), 6, ["Sun 25", "01:00", "02:00", "03:00", "04:00", "05:00"]),
        # The night in which it skips 02:00.
        (BERLIN, datetime(2026, 3, 28, 23, tzinfo=UTC), 5, ["Sun 29", "01:00", "03:00", "04:00", "05:00", "06:00"]),
        (UTC, datetime(2026, 11, 19, tzinfo=UTC), 48, ["Thu 19", "12:00", "Fri 20", "12:00", "Sat 21"]),
    ],
)
def test_an_axis_shows_round_times_of_the_readers_clock(zone: tzinfo, start: datetime, hours: int, texts: list[str]) -> None:
    axis = Axis(start, start + timedelta(hours=hours), start - timedelta(days=1), zone, width_px=500)

    assert [label.text for label in axis.labels] == texts
    assert axis.now_x == ""


def at(minutes: int) -> datetime:
    return NOW.replace(second=0) + timedelta(minutes=minutes)


@pytest.mark.parametrize(
    ("box", "spoken"),
    [
        (
            StripBox("QUEUED", filed_at=at(-90), planned_start_at=at(77), ends_at=at(317), p90_at=at(117), promised_at=at(122)),
            "Planned 14:25 to 18:25, at the latest 15:05 with 90 % certainty, promised 15:10.",
        ),
        (
            StripBox("QUEUED", planned_start_at=at(132), ends_at=at(312), promised_at=at(62), reason="Waits for 2 nodes"),
            "Planned 15:20 to 18:20, promised 14:10, 1 h 10 min late. Waits for 2 nodes.",
        ),
        (StripBox("QUEUED", filed_at=at(-5)), "Queued since 13:03, no start is planned."),
        (StripBox("PENDING_APPROVAL", filed_at=at(-25)), "Needs approval since 12:43, no start is planned."),
        (StripBox("BOOKED", planned_start_at=at(232), ends_at=at(352)), "Booked 17:00 to 19:00."),
        (
            StripBox("OFFER", planned_start_at=at(72), ends_at=at(252), p90_at=at(81), promised_at=at(82)),
            "Starts 14:20 to 17:20, at the latest 14:29 with 90 % certainty, promised 14:30.",
        ),
        (StripBox("PROVISIONING", started_at=at(-10), ends_at=at(290)), "Provisioning since 12:58, ends 17:58."),
        (StripBox("ACTIVE", active_at=at(-167), ends_at=at(193)), "Running since 10:21, ends 16:21, 3 h 13 min left."),
        (StripBox("EXITING", active_at=at(-182), exiting_at=at(-2), ends_at=at(-2)), "Exiting since 13:06, held since 10:06."),
        (
            StripBox("RELEASED", active_at=at(-208), ends_at=at(32), ended_at=at(-98)),
            "Released, 09:40 to 11:30, booked to 13:40.",
        ),
        (StripBox("CANCELED", ended_at=at(-166)), "Canceled 10:22, never active."),
    ],
)
def test_those_who_do_not_see_the_strip_hear_all_its_figures(box: StripBox, spoken: str) -> None:
    assert strip_of(box, AXIS).spoken == spoken


def css_of(strip: Strip) -> list[str]:
    return [part.css or part.shape for part in strip.parts]


def test_a_gpr_that_is_late_shows_how_far_its_start_slipped_from_the_promise() -> None:
    late = StripBox("QUEUED", filed_at=at(-60), planned_start_at=at(132), ends_at=at(312), promised_at=at(62))
    kept = StripBox("QUEUED", filed_at=at(-60), planned_start_at=at(62), ends_at=at(242), promised_at=at(132))

    assert "slip" in css_of(strip_of(late, AXIS))
    assert "slip" not in css_of(strip_of(kept, AXIS))


def test_a_running_gpr_shows_what_is_used_and_which_marks_have_passed() -> None:
    running = strip_of(StripBox("ACTIVE", active_at=at(-167), ends_at=at(193)), AXIS)

    used = next(part for part in running.parts if part.css == "box-elapsed goes-on")
    assert percent(used.x) + percent(used.width) == pytest.approx(percent(AXIS.now_x), abs=0.02)
    assert [part.css for part in running.parts if part.css.startswith("mark")] == ["mark mark-done", "mark", "mark"]


def test_only_an_eviction_is_drawn_as_a_cut() -> None:
    times: dict[str, Any] = {"active_at": at(-208), "ends_at": at(32), "ended_at": at(-58)}

    assert "box-cut" in css_of(strip_of(StripBox("EVICTED", **times), AXIS))
    assert css_of(strip_of(StripBox("RELEASED", **times), AXIS)) == ["box-ended", "box-unused"]


def test_a_start_beyond_the_axis_is_named_at_its_edge() -> None:
    strip = strip_of(StripBox("QUEUED", filed_at=at(-60), planned_start_at=at(60 * 29), ends_at=at(60 * 33)), AXIS)

    assert strip.later == "Fri 18:08"
    assert [part.shape for part in strip.parts] == ["line"]


@given(axes(), st.lists(st.tuples(st.sampled_from(list(KIND_CSS)), moments, st.integers(1, 10_000)), max_size=6))
def test_boxes_on_a_node_stay_on_the_axis_and_names_off_the_line_of_now(axis: Axis, stays: list[tuple[str, datetime, int]]) -> None:
    drawn = node_strip([NodeBox(kind, start, start + timedelta(minutes=length), "train") for kind, start, length in stays], axis)

    for box in drawn:
        assert percent(box.x) >= PERCENT_MIN
        assert percent(box.x) + percent(box.width) <= PERCENT_MAX + 0.011
        label_left, label_right = percent(box.label_x), percent(box.label_x) + percent(box.label_width)
        assert label_left >= 0
        assert label_right <= 100.011
        assert not axis.now_x or not label_left + 0.02 < percent(axis.now_x) < label_right - 0.02
