"""Counts each kind of fault: a run that never met a fault proves nothing about it."""

from __future__ import annotations

import random
from collections import Counter
from enum import StrEnum


class Kind(StrEnum):
    REQUEST_LOST = "request_lost"
    REPLY_LOST = "reply_lost"
    DELAY = "delay"
    DUPLICATE = "duplicate"
    REORDER = "reorder"  # what a delay or duplicate makes: counted where it is seen
    CUT_TO_HUB = "cut_to_hub"
    CUT_FROM_HUB = "cut_from_hub"
    PARTITION = "partition"
    AGENT_CRASH_BEFORE_WRITE = "agent_crash_before_write"
    AGENT_CRASH_AFTER_WRITE = "agent_crash_after_write"
    AGENT_KILLED = "agent_killed"
    AGENT_PAUSED = "agent_paused"  # for longer than the lease: wakes with old beliefs
    MACHINE_SUSPENDED = "machine_suspended"  # as a pause, and the monotonic clock stood still
    AGENT_TWIN = "agent_twin"  # a second process on the same cluster, with the same credential
    OLD_CREDENTIAL_USED = "old_credential_used"  # a copy of the agent, from before a renewal
    HUB_CRASH_BEFORE_COMMIT = "hub_crash_before_commit"
    HUB_CRASH_AFTER_COMMIT = "hub_crash_after_commit"
    HUB_CRASH_BETWEEN = "hub_crash_between"  # at some statement in the middle
    HUB_DOWN = "hub_down"
    EMPTY_SET = "empty_set"  # whole by its own account, and wrong: a hub on an empty database
    HUB_RESTORED = "hub_restored"  # from an older copy of its database
    CLOCK_SKEW = "clock_skew"
    CLOCK_DRIFT = "clock_drift"
    CLOCK_STEP = "clock_step"
    DRIVER_CONFLICT = "driver_conflict"
    DRIVER_THROTTLED = "driver_throttled"
    DRIVER_ERROR = "driver_error"
    DRIVER_ANSWER_LOST = "driver_answer_lost"
    DRIVER_STALE_VIEW = "driver_stale_view"
    STEP_FAILS = "step_fails"
    NODE_SICK = "node_sick"  # its GPUs, or all of it, for a while
    NODE_GONE = "node_gone"  # with all that ran there; another is made under its name later


# Each run has some kinds and not others: runs where all goes wrong at once get nowhere, and meet fewer states. Of so many runs in a
# row exactly one has a kind, which one is drawn: so every stretch of seeds meets every kind.
ONE_IN = 3
RARER = {Kind.HUB_RESTORED: 8, Kind.OLD_CREDENTIAL_USED: 6, Kind.AGENT_TWIN: 5}


def has_kind(seed: int, kind: Kind) -> bool:
    one_in = RARER.get(kind, ONE_IN)
    return kind is Kind.REORDER or random.Random(f"{kind} {seed // one_in}").randrange(one_in) == seed % one_in


class Faults:
    def __init__(self, seed: int, rng: random.Random) -> None:
        self._rng = rng
        self.kinds = {kind for kind in Kind if has_kind(seed, kind)}
        self.counts: Counter[Kind] = Counter()
        self.is_on = True

    def has(self, kind: Kind) -> bool:
        return self.is_on and kind in self.kinds

    def strikes(self, kind: Kind, chance: float) -> bool:
        if not self.has(kind) or self._rng.random() >= chance:
            return False
        self.counts[kind] += 1
        return True

    def saw(self, kind: Kind) -> None:
        self.counts[kind] += 1
