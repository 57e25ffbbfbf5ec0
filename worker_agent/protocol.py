"""EGS Sync v1: every message between hub and agent.

The agent dials out; each exchange is one POST with a JSON body. `Authorization: Bearer <credential>` on all but
register, `EGS-Proto: 1.0` on all. Unknown fields are ignored, so that either side may be one version ahead. An unknown
step or `desired` is reported as UNSUPPORTED, never skipped. Times (`_s`) are seconds since the Unix epoch by the hub's
clock unless said otherwise.

What holds: the set of a SyncReply is whole, and missing is not released: only `desired: ABSENT` or the end of the
window releases a node. `generation` never falls for one `hub_id`. A GPU's claim with a lower epoch than the one on
record has no effect.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import msgspec

PROTO = "1.0"
PROTO_MIN, PROTO_MAX = 1, 1
WAIT_MAX_S = 20.0  # how long the hub may hold a sync
ENTRY_ATTEMPTS = 2  # a check that fails so often fails the entry, and the hub sets the node aside
LEASE_TTL_S = 45.0  # how long after a good sync the agent may still begin an entry
BODY_MAX_BYTES = 8 * 1024 * 1024
CLOCK_OFFSET_WARN_S, CLOCK_OFFSET_REFUSE_S = 2.0, 5.0

REGISTER_PATH = "/agent/v1/register"
RENEW_PATH = "/agent/v1/credential/renew"
SYNC_PATH = "/agent/v1/sync"
EVENTS_PATH = "/agent/v1/events"

# On a node that was ordered: the id of its order, or else the name or id of its supply.
ORDER_LABEL, SUPPLY_LABEL = "egs.io/order", "egs.io/supply"

NUMBER_MAX = 2**53 - 1  # what JSON carries exactly
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=63)]
Number = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
Word = Annotated[str, msgspec.Meta(max_length=63, pattern=r"^[^\x00-\x1f\x7f]*\Z")]
NodeName = Annotated[str, msgspec.Meta(max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?\Z")]


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


class Outcome(StrEnum):
    OK = "OK"
    FAILED = "FAILED"
    UNSUPPORTED = "UNSUPPORTED"


class Code(StrEnum):
    """The `code` of a problem document that an agent must act on."""

    BAD_TOKEN = "agent_bad_token"  # noqa: S105  # 401: join token or credential unknown, expired or revoked
    WRONG_CLUSTER = "agent_wrong_cluster"  # 409: this record belongs to a cluster with another UID
    CLONED = "agent_cloned"  # 403: two use one credential; locked until an admin acts
    SUPERSEDED = "agent_superseded"  # 409: a newer session of this agent is at work; stop
    UNSUPPORTED_PROTO = "agent_unsupported_proto"  # 400


class RegisterRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`cluster_uid`: UID of the namespace kube-system. `install_id`: random, made once: it may repeat a lost register."""

    join_token: str
    cluster_uid: Id
    install_id: Id
    agent_version: str
    proto_min: int = PROTO_MIN
    proto_max: int = PROTO_MAX
    capabilities: tuple[str, ...] = ()


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """The agent's bearer secret. Renewed at half its life; the old one dies when the new one is first used."""

    agent_id: str
    cluster: str
    credential: str
    cred_gen: int
    expires_s: float


class RenewRequest(msgspec.Struct, frozen=True, kw_only=True):
    cred_gen: int


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent sees of one assignment. `active_s`: when it opened the GPR, by its estimate of the hub's clock."""

    assignment_id: str
    epoch: int
    phase: Phase
    step: str = ""
    active_s: float | None = None
    exit_began_s: float | None = None
    failure: str = ""


class SyncRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Heartbeat, acknowledgement and question in one. `session_epoch` 0 asks for a new session."""

    session_epoch: int
    boot_id: Id
    known_hub_id: str = ""
    known_generation: Number = 0
    have_digest: str = ""
    wait_s: float = 0.0
    agent_wall_s: float = 0.0
    clock_offset_s: float | None = None
    agent_version: str = ""
    observed: tuple[Observed, ...] = ()


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


class NodeOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A node that the cluster shall get: asked for by `order_by_s`, not before it, and there by `expected_s`.

    It joins with ORDER_LABEL; once the hub has seen it, or has done without it, it is no order any more. `supply` is a name.
    """

    id: str
    supply: str
    kind: str
    shape: str
    gpus_per_node: int
    gpu_memory_gib: int
    order_by_s: float
    expected_s: float


class SyncReply(msgspec.Struct, frozen=True, kw_only=True):
    """The whole desired set, or `assignments` None when its digest is the one that the agent has.

    `received_s` and `sent_s` are the hub's clock when the request came and the answer left: with the agent's own two
    times they give the offset of the clocks however long the request was held. `orders`: all that are open, in every
    answer, and no part of the set: a change of them ends no wait, and comes with the next answer.
    """

    hub_id: str
    session_epoch: int
    received_s: float
    sent_s: float
    lease_ttl_s: float
    generation: int
    count: int
    digest: str
    assignments: tuple[Assignment, ...] | None
    orders: tuple[NodeOrder, ...] = ()


class StepEvent(msgspec.Struct, frozen=True, kw_only=True, tag="step", tag_field="kind"):
    """One attempt at one step, when it ended."""

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


class GpuView(msgspec.Struct, frozen=True, kw_only=True):
    uuid: Id
    index: Count
    model: Word
    memory_gib: Count
    healthy: bool = True


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU node as the cluster shows it. `ready`: the cluster calls it ready and schedulable for us.

    `order`, `supply`: its labels of these names (see below), which say what it was ordered for; empty where it has none.
    """

    name: NodeName
    uid: Id
    shape: Word
    node_type: Word
    gpus: tuple[GpuView, ...]
    ready: bool = True
    rdma: bool = False
    zone: Word = ""
    rack: Word = ""
    nvlink_domain: Word = ""
    order: Word = ""
    supply: Word = ""


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


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """The part of an RFC 9457 problem document that an agent reads."""

    status: int
    code: str
    detail: str = ""


def set_digest(assignments: Sequence[Assignment]) -> str:
    """SHA-256 over the set in order of id, so that both sides can compare what they hold."""
    ordered = sorted(assignments, key=lambda a: a.id)
    return hashlib.sha256(msgspec.json.encode(ordered, order="deterministic")).hexdigest()
