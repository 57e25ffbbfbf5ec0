"""Assignments of nodes to GPRs: what the hub orders, and what the agent observes of each."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from protocol.checks import CheckPolicy

ENTRY_ATTEMPTS = 2  # a check that fails so often fails the entry, and the hub sets the node aside
LEASE_TTL_S = 45.0  # how long after a good sync the agent may still begin an entry


class Desired(StrEnum):
    PRESENT = "PRESENT"
    ABSENT = "ABSENT"


class Phase(StrEnum):
    """How far the agent is with one assignment. It only moves forward; FAILED is on the way to RELEASED too."""

    PENDING = "PENDING"  # seen, nothing done
    ENTERING = "ENTERING"  # claimed for the slice, checks under way
    ENTERED = "ENTERED"  # this node is ready; others of the GPR may not be
    ACTIVE = "ACTIVE"  # all nodes of the GPR were ready: opened for its workloads at `active_s`
    FAILED = "FAILED"  # an entry step failed; cleaning up
    EXITING = "EXITING"  # closed to the slice, draining
    RELEASED = "RELEASED"  # nothing of the slice is left on it


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent sees of one assignment. `active_s`: when it opened the GPR, by its estimate of the hub's clock."""

    assignment_id: str
    epoch: int
    phase: Phase
    step: str = ""
    active_s: float | None = None
    exit_began_s: float | None = None
    failure: str = ""


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """Exit: ask pods to go, delete those left after `grace_s`, delete by force after `force_after_s`."""

    grace_s: float = 30.0
    force_after_s: float = 120.0


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """One node for one GPR: a Reservation as the agent must make it true.

    The window opens when all `gang_count` assignments of the GPR are ENTERED, not before `not_before_s`; it closes
    `duration_s` later, at the second, hub or no hub. `not_after_s` is the hub's word on that end once it knows; it may
    move (extension, early end). An entry that is not complete at `enter_by_s` fails. `desired` is a plain string so
    that a newer hub's value is seen, not refused.

    A node may enter a box that is open already, in the place of one that fails: then `gang_count` of all counts it from its first set
    on, and it opens when it is ENTERED beside the others, with their `active_s` and their end. Once the hub has seen it ACTIVE, it tells
    ABSENT for the other, and counts without it.
    """

    id: str
    gpr_id: str
    gpr_name: str
    slice: str
    namespaces: tuple[str, ...]
    node: str
    node_uid: str
    gpus: tuple[str, ...]
    epoch: int
    desired: str
    gang_count: int
    not_before_s: float
    enter_by_s: float
    duration_s: float
    not_after_s: float | None
    entry_steps: tuple[str, ...]
    exit_steps: tuple[str, ...]
    drain: Drain = Drain()
    run: int = 1  # how often the GPR was started, this time included: with `gpr_id` it names the box
    slice_id: str = ""  # `slice` is its name, for people
    checks: CheckPolicy = CheckPolicy()
    replaces: str = ""  # of a spare, the id of the assignment in whose place it enters; an older hub does not say

    @property
    def slice_key(self) -> str:
        """What marks namespaces and nodes of the slice. An older hub sends the name alone."""
        return self.slice_id or self.slice
