"""Many seeds, each another story; and that the stories were about something."""

from __future__ import annotations

from collections import Counter

import pytest
from django.db import transaction

from tests.effort import IS_SOAK, seeds_of_today
from tests.simulation.faults import Kind
from tests.simulation.run import Report, run_seed

CHUNK = 20
SEEDS = seeds_of_today(3, 500)
SEEDS_WITH_COMMITS = range(10_001, 10_021 if IS_SOAK else 10_002)

# What each chunk of a soak must have met. Besides, every kind of fault.
STATES = {
    "closed at its end",
    "closed at its end without the hub",
    "an entry waited for the hub",
    "something was released early",
    "a clock differed",
    "an agent stopped: crash",
    "a GPR ended COMPLETED",
    "a GPR ended RELEASED",
}


def run_and_undo(seed: int) -> Report:
    """Each seed begins with an empty database; savepoints make it cheap, and an old copy of it possible."""
    with transaction.atomic():
        report = run_seed(seed)
        transaction.set_rollback(True)
    return report


@pytest.mark.sqlite_only
@pytest.mark.django_db
@pytest.mark.parametrize("chunk", range(0, len(SEEDS), CHUNK))
def test_whatever_goes_wrong_no_promise_is_broken_and_all_comes_to_rest(chunk: int) -> None:
    faults: Counter[Kind] = Counter()
    states: Counter[str] = Counter()
    for seed in SEEDS[chunk : chunk + CHUNK]:
        report = run_and_undo(seed)
        faults.update(report.faults)
        states.update(report.sometimes)
    if IS_SOAK:
        assert set(faults) == set(Kind), "a kind of fault was never reached"
        assert set(states) >= STATES, "an interesting state was never reached"


@pytest.mark.both_databases
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("seed", SEEDS_WITH_COMMITS)
def test_no_promise_is_broken_with_real_commits_either(seed: int) -> None:
    run_seed(seed, can_restore=False)


@pytest.mark.rotates  # each day: tests/planner/promises/test_promises.py, where a plan depends on nothing but its snapshot
@pytest.mark.sqlite_only
@pytest.mark.django_db
def test_one_seed_is_one_story() -> None:
    assert run_and_undo(7).trace == run_and_undo(7).trace
