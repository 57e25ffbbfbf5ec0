"""Hypothesis drives the real services through lives that nobody would think of; see machine.py for the rules and what must hold."""

from __future__ import annotations

import pytest
from django.test import override_settings
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.internal.conjecture.providers import HypothesisProvider
from hypothesis.stateful import run_state_machine_as_test

from tests.effort import IS_SOAK
from tests.lifecycle.machine import Life

SETTINGS = settings(
    max_examples=8 if IS_SOAK else 2,
    stateful_step_count=16,
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=True,
    # Shrinking a life takes minutes; its forty steps are printed as they are. To shrink one: take this line out.
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
# Each round runs several lives. In a soak more rounds follow while something that must be seen has not been seen.
ROUNDS_LEAST, ROUNDS_MOST = (25, 40) if IS_SOAK else (1, 1)
SOMETIMES = {
    "QUEUED>PROVISIONING",
    "PROVISIONING>ACTIVE",
    "PROVISIONING>EXITING CHECK_FAILED",
    "ACTIVE>EXITING EXPIRED",
    "ACTIVE>EXITING NODE_FAILURE",
    "EXITING>COMPLETED EXPIRED",
    "EXITING>QUEUED NODE_FAILURE",
    "EXITING>QUEUED CHECK_FAILED",
    "EXITING>RELEASED EARLY_RELEASE",
    "PENDING_APPROVAL>QUEUED",
    "QUEUED>CANCELED",
    "gpr.node_failing",
    "gpr.spare_entering",
    "gpr.node_replaced",
    "a promise was moved",
    "started behind another",
}


@pytest.fixture(autouse=True)
def _same_lives_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise some of what is drawn are numbers that stand in whatever code is loaded, and each process would live other lives."""
    monkeypatch.setattr(HypothesisProvider, "_maybe_draw_constant", lambda *_arguments, **_named: None)


@pytest.mark.django_db(transaction=True)
def test_whatever_people_agents_and_time_do_the_promises_hold() -> None:
    Life.seen.clear()
    missing = SOMETIMES if IS_SOAK else set()

    with override_settings(EGS_SPARE_GRACE_S=5, EGS_SPARE_LEAST_S=60, EGS_SPARE_WAIT_S=60):
        for number in range(ROUNDS_MOST):
            if missing or number < ROUNDS_LEAST:
                run_state_machine_as_test(seed(number)(Life), settings=SETTINGS)
                missing = missing - set(Life.seen)

    assert not missing, f"none of the lives had {missing}"
