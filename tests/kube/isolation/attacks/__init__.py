"""The attacks of one workspace on another, and the part that stops each: the table that test_isolation.py runs.

Each is a dry run: all that decides is asked, and nothing is changed, so that no try disturbs the next.
"""

from __future__ import annotations

from tests.kube.isolation.attacks.attack import Attack
from tests.kube.isolation.attacks.climbing import NAMESPACE_ATTACKS, RIGHT_ATTACKS
from tests.kube.isolation.attacks.entering import GATE_ATTACKS, PLACE_ATTACKS, TOLERATION_ATTACKS
from tests.kube.isolation.attacks.harming import END_ATTACKS, GPU_ATTACKS, PUSH_ATTACKS
from tests.kube.isolation.attacks.posing import REQUEST_ATTACKS

ATTACKS: list[Attack] = [
    *TOLERATION_ATTACKS,
    *PLACE_ATTACKS,
    *GATE_ATTACKS,
    *GPU_ATTACKS,
    *PUSH_ATTACKS,
    *END_ATTACKS,
    *NAMESPACE_ATTACKS,
    *RIGHT_ATTACKS,
    *REQUEST_ATTACKS,
]
