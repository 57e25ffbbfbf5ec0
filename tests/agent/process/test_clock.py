"""The agent estimates the hub's clock."""

from __future__ import annotations

import pytest

from tests.agent.stage import T0, FakeClock
from worker_agent.clock import HubTime, Instant


def exchange(time: HubTime, clock: FakeClock, *, there_s: float, held_s: float, back_s: float, hub_ahead_s: float) -> None:
    """A sync whose ways take so long, at a hub whose clock is ahead of ours by so much."""
    sent = Instant.of(clock)
    clock.advance(there_s)
    received_s = clock.wall() + hub_ahead_s
    clock.advance(held_s)
    sent_s = clock.wall() + hub_ahead_s
    clock.advance(back_s)
    time.sample(sent=sent, received_s=received_s, sent_s=sent_s)


def test_the_offset_is_right_however_long_the_hub_holds_the_sync() -> None:
    clock = FakeClock()
    time = HubTime(clock, None)
    exchange(time, clock, there_s=0.1, held_s=20.0, back_s=0.1, hub_ahead_s=3.0)
    assert time.offset_s == pytest.approx(3.0)
    assert time.now() == pytest.approx(clock.wall() + 3.0)


def test_a_slow_and_lopsided_exchange_does_not_spoil_a_good_estimate() -> None:
    clock = FakeClock()
    time = HubTime(clock, None)
    exchange(time, clock, there_s=0.01, held_s=1.0, back_s=0.01, hub_ahead_s=0.0)
    exchange(time, clock, there_s=8.0, held_s=1.0, back_s=0.0, hub_ahead_s=0.0)
    assert time.offset_s == pytest.approx(0.0, abs=0.01)


def test_after_a_restart_even_a_slow_exchange_counts_more_than_what_was_kept() -> None:
    clock = FakeClock()
    time = HubTime(clock, 4.0)
    assert time.now() == pytest.approx(T0 + 4.0)
    exchange(time, clock, there_s=1.0, held_s=0.0, back_s=1.0, hub_ahead_s=0.5)
    assert time.offset_s == pytest.approx(0.5)


def test_a_wall_clock_that_was_set_is_noticed_at_the_next_exchange() -> None:
    clock = FakeClock()
    time = HubTime(clock, None)
    exchange(time, clock, there_s=0.01, held_s=0.0, back_s=0.01, hub_ahead_s=0.0)
    clock.wall_s += 100.0
    assert time.latest() == pytest.approx(clock.wall())
    assert time.earliest() == pytest.approx(clock.wall() - 100.0)
    exchange(time, clock, there_s=0.02, held_s=0.0, back_s=0.02, hub_ahead_s=-100.0)
    assert time.latest() == pytest.approx(time.earliest())
    assert time.offset_s == pytest.approx(-100.0, abs=0.05)


def test_a_machine_that_slept_is_noticed_though_its_next_exchange_is_a_slow_one() -> None:
    clock = FakeClock()
    time = HubTime(clock, None)
    exchange(time, clock, there_s=0.01, held_s=0.0, back_s=0.01, hub_ahead_s=0.0)
    clock.wall_s += 3600.0  # the monotonic clock stood still
    exchange(time, clock, there_s=0.4, held_s=0.0, back_s=0.4, hub_ahead_s=0.0)
    assert time.now() == pytest.approx(clock.wall(), abs=0.5)
