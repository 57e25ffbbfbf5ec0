"""Events that the agent reports: attempts at steps, and the inventory of nodes."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from protocol.checks import RESULTS_MAX, CheckResult
from protocol.nodes import NodeView

EVENTS_PATH = "/agent/v1/events"


class Outcome(StrEnum):
    OK = "OK"
    FAILED = "FAILED"
    UNSUPPORTED = "UNSUPPORTED"


class StepEvent(msgspec.Struct, frozen=True, kw_only=True, tag="step", tag_field="kind"):
    """One attempt at one step, when it ended. `blames_node` False: it failed for something that is no fault of the node."""

    seq: int
    assignment_id: str
    epoch: int
    step: str
    attempt: int
    outcome: Outcome
    started_s: float
    ended_s: float
    log: str = ""
    evidence: dict[str, str | int | float | bool] = {}
    results: Annotated[tuple[CheckResult, ...], msgspec.Meta(max_length=RESULTS_MAX)] = ()
    blames_node: bool = True


class InventoryEvent(msgspec.Struct, frozen=True, kw_only=True, tag="inventory", tag_field="kind"):
    """All GPU nodes of the cluster, whole: a node that is not in it is gone."""

    seq: int
    nodes: tuple[NodeView, ...]


AgentEvent = StepEvent | InventoryEvent


class EventsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """In order of `seq`, which counts from 1 in each session. Sent again until stored."""

    session_epoch: int
    events: tuple[AgentEvent, ...]


class EventsReply(msgspec.Struct, frozen=True, kw_only=True):
    """All up to `stored_seq` are stored. `stale`: those too late for an effect (old epoch, ended assignment)."""

    stored_seq: int
    stale: tuple[int, ...] = ()
