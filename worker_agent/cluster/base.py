"""What a driver must do for the agent's core.

Lives here: the records that fence each GPU, and the calls. Must not live here: any decision about an assignment (the
core's).

Every write is conditional: it names the node as it was read (`seen`) and has no effect when the node changed since.
With Kubernetes that is one JSON Patch with `test` operations (uid, and the annotation that holds the records of all
GPUs of the node); a failed test is `Conflict`, and the core reads again and decides again. A write whose answer was
lost is `Unavailable` and may have been applied: the core finds out by reading. Drivers derive taints, labels and the
bind guard from the records, and keep the order that leaves no gap: to give, node first and then guard; to take, guard
first and then node. Each patch of the guard tests the guard as read before the node was written, so that an agent that
slept between the two cannot open a node that went on to somebody else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from protocol.assignments import Assignment
from protocol.checks import CheckResult
from protocol.drift import Drift
from protocol.life_marks import LifeMark
from protocol.nodes import NodeOrder, NodeView

Note = Callable[[str, dict[str, object]], None]  # takes an event of the log, and its fields


class GpuPhase(StrEnum):
    CLAIMED = "CLAIMED"  # isolated for the slice, nothing of it runs yet
    OPEN = "OPEN"  # the slice may use it
    CLOSED = "CLOSED"  # isolation ended, its workloads are being cleared away
    FREE = "FREE"  # nothing of the slice is left; the epoch stays on record


class GpuRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Kept on the node per GPU: the fence, and enough to go on when the agent's own document is lost.

    Times by the hub's clock.
    """

    epoch: int
    assignment_id: str
    gpr_id: str
    slice: str
    phase: GpuPhase
    run: int = 1
    active_s: float | None = None
    closed_s: float | None = None


Records = Mapping[str, GpuRecord]  # by GPU UUID


class NodeState(msgspec.Struct, frozen=True, kw_only=True):
    """`version` is opaque: it differs when the node was written in between (Kubernetes: resourceVersion).

    `why_unready`: what keeps the node from being ready, each for people; of others' workloads no name.
    """

    view: NodeView
    version: str
    records: dict[str, GpuRecord]
    why_unready: tuple[str, ...] = ()


class StateDoc(msgspec.Struct, frozen=True, kw_only=True):
    """The agent's own document, one object (Kubernetes: a Secret or ConfigMap, since it holds the credential)."""

    body: bytes
    version: str


class StepStatus(StrEnum):
    RUNNING = "RUNNING"
    OK = "OK"
    FAILED = "FAILED"


class StepResult(msgspec.Struct, frozen=True, kw_only=True):
    """`log` is for people: what was done, and what came of it. `blames_node`: as in StepEvent."""

    status: StepStatus
    log: str = ""
    evidence: dict[str, str | int | float | bool] = {}
    results: tuple[CheckResult, ...] = ()
    blames_node: bool = True


class StepCall(msgspec.Struct, frozen=True, kw_only=True):
    """One poll of one attempt. `since_closed_s` counts from the close, over restarts; it is 0 before.

    `gang`: of a step that nodes of a box take together (steps.GANG_STEPS), the names of these, in order. `at_work`: as in gangs.Gang.
    """

    step: str
    attempt: int
    assignment: Assignment
    node: NodeState
    since_closed_s: float = 0.0
    gang: tuple[str, ...] = ()
    at_work: tuple[str, ...] = ()


class ClusterError(Exception):
    """The cluster did not do it. `words`: what it said itself, for people; "" where it said nothing."""

    words: str = ""


class Conflict(ClusterError):
    """What the write was conditional on is no longer so. Nothing was changed."""


class Throttled(ClusterError):
    """429. Nothing was changed."""

    def __init__(self, retry_after_s: float = 1.0) -> None:
        super().__init__(f"throttled, retry after {retry_after_s:g} s")
        self.retry_after_s = retry_after_s


class Unavailable(ClusterError):
    """An error or no answer. It may have been applied."""


class Verb(StrEnum):
    """What a write of records is for.

    CLAIM: isolate these GPUs for the records' slice, by taint and labels; nothing is lifted yet. OPEN: the guard lists the slice for the
    node from the next `serve` on, which does it for all boxes at once. CLOSE: guard and taint closed and labels gone, nothing new of the
    slice can start here from now on. RELEASE: free; the records stay, with their epochs, until a higher epoch replaces them.
    """

    CLAIM = "claim"
    OPEN = "open"
    CLOSE = "close"
    RELEASE = "release"


NodeChange = tuple[NodeState, Records]  # the node as it was seen, and what is to be written of its GPUs


class BoxEnd(msgspec.Struct, frozen=True, kw_only=True):
    """Of one run of a GPR, by the hub's clock. `is_near`: so near that what runs in it is to be warned."""

    gpr_id: str
    gpr_name: str
    run: int
    ends_s: float
    is_near: bool


class Cluster(Protocol):
    """Calls return soon (a driver sets short timeouts) and raise nothing but ClusterError; `write` not even that."""

    def uid(self) -> str:
        """UID of the namespace kube-system: what makes this cluster this cluster."""

    def load_state(self) -> StateDoc | None: ...

    def save_state(self, body: bytes, version: str) -> str:
        """Replace the document whole, if it still has this version ("": if there is none). Returns the new version."""

    def observe(self) -> dict[str, NodeState]:
        """All managed GPU nodes by name. It may lag behind (a watch): the writes are what is tested."""

    def serial(self) -> int:
        """Rises with each change that a pass would go by, and while something is on its way; with each call where that is not known."""

    def fence(self, closing: Sequence[NodeChange]) -> None:
        """These are closed next: what is cheaper for all of them at once. It may do nothing."""

    def write(self, verb: Verb, changes: Sequence[NodeChange]) -> list[NodeState | ClusterError]:
        """One conditional write for each of these nodes, which differ. The answers in their order: one that fails hurts no other."""

    def serve(self, boxes: Sequence[Sequence[Assignment]]) -> None:
        """Lift the waiting pods of each box's slice while they fit. Called at each pass, with all open boxes: cheap when none waits."""

    def tend(self, *, repairs: bool) -> Sequence[Drift] | None:
        """What needs care besides assignments: nodes that came or went, and what somebody else changed of ours. Cheap when nothing did.

        Returns what was found changed, mended or, without `repairs`, left as it is; None when it was looked at a moment ago.
        """

    def tell(self, assignment: Assignment, what: str, message: str, *, is_bad: bool) -> None:
        """A milestone or a failure, for people who look at the cluster itself. Never in the way of anything else: it may be lost."""

    def herald(self, life: Sequence[LifeMark]) -> None:
        """What the hub told last of the lives of GPRs, for the same people: each once, also over restarts. Called at each pass, as cheap.

        Raises nothing.
        """

    def announce(self, ends: Sequence[BoxEnd]) -> None:
        """When each open box ends, for what runs in it: its pods can read it, and are told, once for each end, where it is near.

        Called at each pass, before `serve`: cheap when nothing changed. Raises nothing.
        """

    def provide(self, orders: Sequence[NodeOrder]) -> None:
        """Ask whoever makes nodes come for these, once each, and label each with its order: all that are due and not there yet.

        What was asked for and is not among them is not wanted any more. Called at each pass: cheap when nothing changed.
        A driver that can make none come does nothing.
        """

    def run(self, call: StepCall) -> StepResult:
        """Observe, act if needed, observe: start this attempt or see how far it is. Never blocks."""
