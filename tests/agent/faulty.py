"""A cluster that fails on command: at every call, before it is applied or after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TypeVar

from protocol.assignments import Assignment
from protocol.nodes.drift import Drift
from protocol.nodes.inventory import NodeOrder
from protocol.tenancy.life_marks import LifeMark
from tests.effort import IS_SOAK
from worker_agent.cluster.base import (
    BoxEnd,
    ClusterDriver,
    ClusterError,
    NodeChange,
    NodeState,
    StateDoc,
    StepCall,
    StepProgress,
    Throttled,
    Unavailable,
    WriteConflict,
    WriteKind,
)

Answer = TypeVar("Answer")

WRITES = ("save_state", *WriteKind, "serve")


class Fault(StrEnum):
    CRASH_BEFORE = "crash_before"
    CRASH_AFTER = "crash_after"
    CONFLICT = "conflict"
    THROTTLED = "throttled"
    ERROR = "error"  # 500: not applied, but who knows
    LOST_ANSWER = "lost_answer"  # applied, and the caller does not learn of it
    STALE_VIEW = "stale_view"  # a read shows the past


class Crash(BaseException):
    """The process is gone: nothing of ours may catch it."""


def each_write(write_count: int, *faults: Fault) -> list[tuple[int, Fault]]:
    """A soak tries all faults at each write, `make test` the next in turn."""
    writes = range(1, write_count + 1)
    return [(write, fault) for write in writes for fault in (faults if IS_SOAK else faults[write % len(faults) :][:1])]


class FaultyCluster:
    """`choose(call)` says what goes wrong with this call, if anything."""

    def __init__(self, inner: ClusterDriver, choose: Callable[[str], Fault | None]) -> None:
        self._inner, self._choose = inner, choose
        self._last_view: dict[str, NodeState] = {}

    def uid(self) -> str:
        return self._inner.uid()

    def load_state(self) -> StateDoc | None:
        return self._inner.load_state()

    def save_state(self, body: bytes, version: str) -> str:
        return self._faulty("save_state", lambda: self._inner.save_state(body, version))

    def observe(self) -> dict[str, NodeState]:
        if self._last_view and self._choose("observe") is Fault.STALE_VIEW:
            return dict(self._last_view)
        self._last_view = self._inner.observe()
        return dict(self._last_view)

    def serial(self) -> int:
        return self._inner.serial()

    def prepare_close(self, closing: Sequence[NodeChange]) -> None:
        self._inner.prepare_close(closing)

    def write(self, kind: WriteKind, changes: Sequence[NodeChange]) -> list[NodeState | ClusterError]:
        """Writes one change after the other, each with its own fault."""
        return [self._written(kind, change) for change in changes]

    def _written(self, kind: WriteKind, change: NodeChange) -> NodeState | ClusterError:
        try:
            return self._faulty(kind, lambda: self._inner.write(kind, [change])[0])
        except ClusterError as error:
            return error

    def repair_drift(self, *, repairs: bool) -> Sequence[Drift] | None:
        return self._inner.repair_drift(repairs=repairs)

    def record_event(self, assignment: Assignment, what: str, message: str, *, is_bad: bool) -> None:
        self._inner.record_event(assignment, what, message, is_bad=is_bad)

    def record_life_marks(self, life: Sequence[LifeMark]) -> None:
        self._inner.record_life_marks(life)

    def publish_ends(self, ends: Sequence[BoxEnd]) -> None:
        self._inner.publish_ends(ends)

    def lift_gates(self, boxes: Sequence[Sequence[Assignment]]) -> None:
        return self._faulty("serve", lambda: self._inner.lift_gates(boxes)) if boxes else self._inner.lift_gates(boxes)

    def order_nodes(self, orders: Sequence[NodeOrder]) -> None:
        return self._faulty("provide", lambda: self._inner.order_nodes(orders)) if orders else self._inner.order_nodes(orders)

    def run(self, call: StepCall) -> StepProgress:
        return self._faulty("run", lambda: self._inner.run(call))

    def _faulty(self, name: str, call: Callable[[], Answer]) -> Answer:
        fault = self._choose(name)
        match fault:
            case Fault.CRASH_BEFORE:
                raise Crash(name)
            case Fault.CONFLICT:
                raise WriteConflict(f"{name}: injected")
            case Fault.THROTTLED:
                raise Throttled(0.5)
            case Fault.ERROR:
                raise Unavailable(f"{name}: injected 500")
        answer = call()
        if fault is Fault.CRASH_AFTER:
            raise Crash(name)
        if fault is Fault.LOST_ANSWER:
            raise Unavailable(f"{name}: injected time-out, applied")
        return answer
