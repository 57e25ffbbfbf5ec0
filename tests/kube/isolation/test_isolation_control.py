"""Harmful attacks get through without the validating policies, so the refusals of test_isolation.py are real."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kube.callers import DONE
from tests.kube.isolation.attacks import ATTACKS
from tests.kube.isolation.attacks.attack import Attack, Attacker
from tests.kube.policies import VALIDATING, without
from tests.kube.world import World

# Each day: test_locks.py, where each lock is taken off by itself
pytestmark = pytest.mark.rotates


@pytest.fixture(scope="module")
def unlocked(world: World) -> Iterator[World]:
    bindings = [each["metadata"]["name"] for each in world.admin.get(VALIDATING)["items"]]
    with without(world, *(f"{VALIDATING}/{name}" for name in bindings)):
        yield world


@pytest.mark.parametrize("attack", [attack for attack in ATTACKS if attack.opens], ids=lambda attack: attack.tries)
def test_one_with_all_rights_in_the_namespace_gets_through_who_tries(attack: Attack, unlocked: World) -> None:
    assert attack.outcome(Attacker(unlocked.people["o"], "red")) == DONE
