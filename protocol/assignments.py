"""Assigns nodes to GPRs, and reports their progress."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from protocol.nodes.checks import CheckPolicy

ENTRY_ATTEMPTS = 2  # a check that fails this often fails the entry, and the hub sets the node aside
LEASE_TTL_S = 45.0  # how long after a good sync the agent may still begin an entry


class Desired(StrEnum):
    PRESENT = "PRESENT"
    ABSENT = "ABSENT"


class Phase(StrEnum):
    """It only moves forward; FAILED also leads to RELEASED."""

    PENDING = "PENDING"  # received, nothing done
    ENTERING = "ENTERING"  # on record for the slice; checks are running
    ENTERED = "ENTERED"  # this node is ready; other nodes of the GPR may not be
    ACTIVE = "ACTIVE"  # all nodes of the GPR were ready; it is open for workloads since `active_s`
    FAILED = "FAILED"  # an entry step failed; cleaning up
    EXITING = "EXITING"  # closed to the slice, draining
    RELEASED = "RELEASED"  # nothing of the slice is left on the node


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    assignment_id: str
    epoch: int
    phase: Phase
    step: str = ""
    active_s: float | None = None  # when the agent opened the GPR, by its estimate of the hub's clock
    exit_began_s: float | None = None
    failure: str = ""


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """An exit evicts pods, deletes those left after `grace_s`, and deletes by force after `force_after_s`."""

    grace_s: float = 30.0
    force_after_s: float = 120.0


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """Gives one node to one GPR.

    The window opens when all `gang_count` assignments of the GPR are ENTERED, but not before `not_before_s`. It closes `duration_s` later,
    also without the hub.

    A spare enters an open box in place of the node `replaces`. Until the hub has seen it ACTIVE, `gang_count` includes both. It opens as
    soon as it is ENTERED, with the others' `active_s` and end; then the hub sends ABSENT for the replaced one.
    """

    id: str
    gpr_id: str
    gpr_name: str
    slice: str  # the name, for people
    namespaces: tuple[str, ...]
    node: str
    node_uid: str
    gpus: tuple[str, ...]
    epoch: int
    desired: str  # a plain string, so that the value of a newer hub is reported and does not make the message unreadable
    gang_count: int
    not_before_s: float
    enter_by_s: float  # an entry that is not complete by then fails
    duration_s: float
    not_after_s: float | None  # the end of the window once the hub knows it; it may move
    entry_steps: tuple[str, ...]
    exit_steps: tuple[str, ...]
    drain: Drain = Drain()
    run: int = 1  # the number of times that the GPR was started, including this one; with `gpr_id` it identifies the box
    slice_id: str = ""
    checks: CheckPolicy = CheckPolicy()
    is_repair: bool = False  # its entry repairs and checks a node that is set aside, for nobody: it never opens
    replaces: str = ""  # for a spare, the id of the assignment that it replaces; an older hub does not send it

    @property
    def slice_key(self) -> str:
        """Returns the value of labels on namespaces and nodes. An older hub sends only the name."""
        return self.slice_id or self.slice
