"""Helpers of the tests of evictions: their rules, a workspace that may evict, and a request that others have notice for."""

from __future__ import annotations

from typing import Any

from gpr.models import Gpr
from slices.models import Slice
from slices.policies.services import policy_change, policy_of
from tests.builders import make_slice
from tests.lifecycle.stage import Stage

NOTICE_S, LEAST_RUN_S = 600, 1200
DAY_S = 86_400
RULES = {"EGS_EVICTION_NOTICE_S": NOTICE_S, "EGS_EVICTION_LEAST_RUN_S": LEAST_RUN_S, "EGS_EVICTION_GAIN_S": 60}


def evicting_slice(stage: Stage) -> Slice:
    slice_ = make_slice(stage.cluster, owner=stage.owner)
    policy_change(policy=policy_of(slice_), terms={"may_evict": True}, actor=stage.admin, now=stage.now)
    return slice_


def noticed(stage: Stage, other: Slice, **asked: Any) -> tuple[Gpr, Gpr]:
    """One that runs for a day and has notice, and the one that it makes way for."""
    victim = stage.active(duration_s=DAY_S, priority=50, **asked)
    stage.after(LEAST_RUN_S)
    stage.tick()
    return victim, stage.submit(other, priority=150, may_evict=True)
