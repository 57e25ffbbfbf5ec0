"""The agent reports attempts at steps, and the inventory of nodes."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from protocol.nodes.checks import RESULTS_MAX, CheckResult
from protocol.nodes.inventory import NodeView

EVENTS_PATH = "/agent/v1/events"


class Outcome(StrEnum):
    OK = "OK"
    FAILED = "FAILED"
    UNSUPPORTED = "UNSUPPORTED"


class StepEvent(msgspec.Struct, frozen=True, kw_only=True, tag="step", tag_field="kind"):
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
    blames_node: bool = True  # False: the failure is no fault of the node


class InventoryEvent(msgspec.Struct, frozen=True, kw_only=True, tag="inventory", tag_field="kind"):
    """A node that is missing here is gone."""

    seq: int
    nodes: tuple[NodeView, ...]


AgentEvent = StepEvent | InventoryEvent


class EventsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`seq` counts from 1 in each session. The agent repeats events until they are stored."""

    session_epoch: int
    events: tuple[AgentEvent, ...]


class EventsReply(msgspec.Struct, frozen=True, kw_only=True):
    stored_seq: int  # all events up to this one are stored
    stale: tuple[int, ...] = ()  # events without effect: they have an old epoch, or their assignment has ended
