"""Defines the interface between the agent's core, which decides, and a driver, which acts on a cluster.

Every write names the node as it was read (`seen`), and fails with WriteConflict where the node changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from protocol.assignments import Assignment
from protocol.nodes.checks import CheckResult
from protocol.nodes.drift import Drift
from protocol.nodes.inventory import NodeOrder, NodeView
from protocol.tenancy.life_marks import LifeMark

Note = Callable[[str, dict[str, object]], None]  # writes an event with its fields to the log


class GpuPhase(StrEnum):
    ISOLATED = "CLAIMED"  # for the slice, of which nothing runs yet; records keep the word of older agents
    OPEN = "OPEN"  # the slice may use it
    CLOSED = "CLOSED"  # access has ended, and its workloads are being removed
    FREE = "FREE"  # nothing of the slice is left; the epoch stays recorded


class GpuRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Fences one GPU, as an annotation of its node. Times are by the hub's clock."""

    epoch: int
    assignment_id: str
    gpr_id: str
    slice: str
    phase: GpuPhase
    run: int = 1
    is_repair: bool = False
    active_s: float | None = None
    closed_s: float | None = None


Records = Mapping[str, GpuRecord]  # by GPU UUID


class NodeState(msgspec.Struct, frozen=True, kw_only=True):
    view: NodeView
    version: str  # opaque: it differs after each write (Kubernetes: resourceVersion)
    records: dict[str, GpuRecord]
    why_unready: tuple[str, ...] = ()  # for people, so without names of others' workloads


class StateDoc(msgspec.Struct, frozen=True, kw_only=True):
    """The agent stores this document, with its credential."""

    body: bytes
    version: str


class StepStatus(StrEnum):
    RUNNING = "RUNNING"
    OK = "OK"
    FAILED = "FAILED"


class StepProgress(msgspec.Struct, frozen=True, kw_only=True):
    status: StepStatus
    log: str = ""  # for people: what was done, and with what result
    evidence: dict[str, str | int | float | bool] = {}
    results: tuple[CheckResult, ...] = ()
    blames_node: bool = True  # as in StepEvent


class StepCall(msgspec.Struct, frozen=True, kw_only=True):
    step: str
    attempt: int
    assignment: Assignment
    node: NodeState
    since_closed_s: float = 0.0  # also over restarts; 0 before the close
    since_repair_s: float = float("inf")  # what the node logged before is over
    gang: tuple[str, ...] = ()  # names of the nodes of a box that take a step of GANG_STEPS together, in order
    at_work: tuple[str, ...] = ()  # as in gangs.Gang


class ClusterError(Exception):
    words: str = ""  # the text of the cluster itself, for people


class WriteConflict(ClusterError):
    """The node or document changed in between, so nothing was written."""


class Throttled(ClusterError):
    """The server answered 429 and changed nothing."""

    def __init__(self, retry_after_s: float = 1.0) -> None:
        super().__init__(f"throttled, retry after {retry_after_s:g} s")
        self.retry_after_s = retry_after_s


class Unavailable(ClusterError):
    """The cluster gave no clear answer. The write may have been applied."""


class WriteKind(StrEnum):
    ISOLATE = "isolate"  # set these GPUs apart for the slice of the records by taint and labels, without lifting any gate yet
    OPEN = "open"  # from the next `lift_gates` on, the bind guard lists the slice for the node
    CLOSE = "close"  # close guard and taint and remove the labels, so that nothing new of the slice can start
    RELEASE = "release"  # free the GPUs; the records stay with their epochs until a higher epoch replaces them


NodeChange = tuple[NodeState, Records]  # the node as it was seen, and the new records of its GPUs


class BoxEnd(msgspec.Struct, frozen=True, kw_only=True):
    """Says when the window of a run ends, in seconds of the hub's clock."""

    gpr_id: str
    gpr_name: str
    run: int
    ends_s: float
    is_near: bool  # its pods are to be warned
    idle_release_s: float | None = None  # when it is released because its GPUs do nothing; 0: it is not; None: not known


# A driver keeps an order that leaves no gap. To give a node it writes the node first and then the bind guard; to take it, the guard first.
# Each patch of the guard tests the guard as it was read before the node was written, so that an agent that slept between the two cannot
# open a node that has gone to another slice.
#
# Each pass calls `lift_gates`, `record_life_marks`, `publish_ends` and `order_nodes`: they must be cheap when nothing changed.
class ClusterDriver(Protocol):
    """Calls return soon and raise only ClusterError; `write`, `record_life_marks` and `publish_ends` raise nothing."""

    def uid(self) -> str:
        """Returns the UID of the namespace kube-system."""

    def load_state(self) -> StateDoc | None: ...

    def save_state(self, body: bytes, version: str) -> str:
        """Replaces the document of this version ("": there is none). Returns the new version."""

    def observe(self) -> dict[str, NodeState]:
        """Returns all managed GPU nodes by name. May lag behind."""

    def serial(self) -> int:
        """Rises with each change that matters to a pass."""

    def prepare_close(self, closing: Sequence[NodeChange]) -> None:
        """A driver may close here at once what `write` is to close next."""

    def write(self, kind: WriteKind, changes: Sequence[NodeChange]) -> list[NodeState | ClusterError]:
        """Answers in the order of the changes; a failure affects no other node."""

    def lift_gates(self, boxes: Sequence[Sequence[Assignment]]) -> None:
        """Lifts the gates of waiting pods that fit into open boxes."""

    def repair_drift(self, *, repairs: bool) -> Sequence[Drift] | None:
        """Returns changes that others had made, or None if it checked a moment ago."""

    def record_event(self, assignment: Assignment, what: str, message: str, *, is_bad: bool) -> None:
        """Records an event for people who look at the cluster. It may be lost."""

    def record_life_marks(self, life: Sequence[LifeMark]) -> None:
        """Records news of the hub about GPRs, each once."""

    def publish_ends(self, ends: Sequence[BoxEnd]) -> None:
        """Shows pods when their box ends, and warns them once."""

    def order_nodes(self, orders: Sequence[NodeOrder]) -> None:
        """Requests nodes for these orders, once each, and cancels all others."""

    def run(self, call: StepCall) -> StepProgress:
        """Starts this attempt, or returns its progress. A step that repairs is withdrawn by the exit step NODE_CLEAN."""
