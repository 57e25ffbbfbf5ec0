"""The benchmark of a queue's trials counts right, on lists small enough to play at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.replays.drawn_lists import draw, pool_of
from bench.replays.queue_trials import IDLE_TIMEOUT_S, bookings, clusters, failures, idle_release, priorities

# Each day: tests/simulate/test_command.py; what is here only a benchmark uses
pytestmark = pytest.mark.rotates

POOL = pool_of(20)
JOBS = draw(seed=5002, count=120, load=1.0, pool=POOL)


def test_the_wait_of_the_highest_class_stands_beside_that_of_the_lowest() -> None:
    jobs = [replace(job, priority=201 if i % 4 == 0 else 50) for i, job in enumerate(JOBS)]

    kept, waits = priorities("drawn", (POOL,), jobs)

    assert kept.ours == 1
    assert waits.peer_value is not None
    assert waits.ours < waits.peer_value


def test_each_seed_of_failures_is_a_line_and_all_are_counted_together() -> None:
    figures = failures([("drawn", (POOL,), JOBS)], (1, 2, 3))

    assert [figure.goal for figure in figures] == ["", "", "", ">= 0.9995", ""], "one replay says little"
    *each, together, killed = (figure.ours for figure in figures)
    assert min(each) <= together <= max(each)
    assert killed > 0


def test_boxes_that_idle_long_enough_are_taken_back() -> None:
    long = [replace(job, run_s=job.run_s + 4 * IDLE_TIMEOUT_S, reserve_s=job.reserve_s + 4 * IDLE_TIMEOUT_S) for job in JOBS]

    wait, taken, kept = idle_release(POOL, long)

    assert taken.ours == len(JOBS) / 5
    assert wait.peer_value is not None
    assert wait.ours < wait.peer_value
    assert kept.ours == 1


def test_whoever_may_burst_waits_less_than_whoever_stays_at_home() -> None:
    wait, kept = clusters(JOBS)

    assert wait.peer_value is not None
    assert wait.ours <= wait.peer_value
    assert kept.ours == 1


def test_bookings_start_at_their_time_or_are_refused() -> None:
    refused, late, kept = bookings(POOL, JOBS)

    assert 0 <= refused.ours < 1
    assert late.ours == 0
    assert kept.ours == 1
