"""Hypothesis drives the real services through lives that nobody would think of; see machine.py for the rules and what must hold."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.lifecycle.machine import Life

# More: EGS_LIFE_EXAMPLES=500 pytest tests/lifecycle/test_machine.py
SETTINGS = settings(
    max_examples=20,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=True,
    # Shrinking a life takes minutes; its forty steps are printed as they are. To shrink one: take this line out.
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.django_db
def test_whatever_people_agents_and_time_do_the_promises_hold() -> None:
    run_state_machine_as_test(Life, settings=SETTINGS)
