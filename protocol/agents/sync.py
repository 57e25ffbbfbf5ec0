"""Defines the agent's heartbeat, and the hub's answer with the desired state.

A missing assignment is not released: only `desired: ABSENT` or the end of its window releases a node. `generation` never falls for one
`hub_id`. An assignment with a lower epoch than its GPU's record has no effect.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from protocol.assignments import Assignment, Observed
from protocol.nodes.drift import DRIFTS_MAX, Drift
from protocol.nodes.inventory import NodeOrder
from protocol.scalars import Id, Number, Word
from protocol.tenancy.cluster_requests import AutoTemplate, ClusterRequestState
from protocol.tenancy.life_marks import LifeMark
from protocol.tenancy.waiting_pods import JOBS_FAILED_MAX, NAMESPACES_WAITING_MAX, JobFailed, PodsWaiting
from protocol.tenancy.workloads import WORKLOADS_SEEN_MAX, JobWorkload, LogAsk, WorkloadSeen
from protocol.tenancy.workspaces import BindingSeen, IssuedToken, Workspace

WAIT_MAX_S = 20.0  # how long the hub may hold a sync
SYNC_PATH = "/agent/v1/sync"


class IdleRelease(msgspec.Struct, frozen=True, kw_only=True):
    """Tells of an active box whose people were warned: its GPUs do nothing, and at this time it is released."""

    gpr_id: str
    run: int
    at_s: float


class SyncRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The agent repeats bindings, tokens, drifts and failed Jobs until the hub has answered."""

    session_epoch: int  # 0 asks for a new session
    boot_id: Id
    known_hub_id: str = ""
    known_generation: Number = 0
    have_digest: str = ""
    wait_s: float = 0.0
    agent_wall_s: float = 0.0
    clock_offset_s: float | None = None
    agent_version: str = ""
    observed: tuple[Observed, ...] = ()
    have_workspaces: str = ""  # the digest of the list that the agent has
    accounts_left: tuple[Id, ...] | None = None  # accounts in the cluster that are not on this list; None: the agent has not looked yet
    have_claims: str = ""  # the digest of the list that the agent has
    have_life: str | None = None  # the same; None: the agent does not want the list now
    have_templates: str | None = None  # the same; None: this version of the agent does not know such a list
    bindings: tuple[BindingSeen, ...] = ()
    tokens: tuple[IssuedToken, ...] = ()
    drifts: Annotated[tuple[Drift, ...], msgspec.Meta(max_length=DRIFTS_MAX)] = ()
    # All namespaces in which pods wait. None: the hub was told so in this session already, or the agent has not looked.
    waiting: Annotated[tuple[PodsWaiting, ...], msgspec.Meta(max_length=NAMESPACES_WAITING_MAX)] | None = None
    # At most this many StepEvents were dropped since the last report of this field. A lost answer can make the hub count them twice.
    steps_lost: Number = 0
    jobs_failed: Annotated[tuple[JobFailed, ...], msgspec.Meta(max_length=JOBS_FAILED_MAX)] = ()
    have_workloads: str | None = None  # as have_templates
    workload_kinds: tuple[Word, ...] | None = None  # those that the cluster serves; None: the agent has not looked
    workloads_seen: Annotated[tuple[WorkloadSeen, ...], msgspec.Meta(max_length=WORKLOADS_SEEN_MAX)] = ()


class SyncReply(msgspec.Struct, frozen=True, kw_only=True):
    """A list is None when the agent already has it, by the digest in its `have_...` field.

    The hub holds the answer until something changes, for at most `wait_s`. Changes of `orders`, `life`, `idle_releases`, and positions and
    estimates in `claims` do not end that wait. An older hub sends no `life` and no `templates`.
    """

    hub_id: str
    session_epoch: int
    # When the request came and when the answer left, by the hub's clock: with the agent's own two times they give the offset of the
    # clocks, however long the request was held.
    received_s: float
    sent_s: float
    lease_ttl_s: float
    generation: int
    count: int
    digest: str
    assignments: tuple[Assignment, ...] | None
    orders: tuple[NodeOrder, ...] = ()  # all open ones, in every answer; they are not part of the digest
    workspaces_digest: str = ""
    # A missing workspace or namespace is left as it is; only `desired: ABSENT` unbinds. An account missing from a listed workspace is
    # deleted.
    workspaces: tuple[Workspace, ...] | None = None
    claims_digest: str = ""
    claims: tuple[ClusterRequestState, ...] | None = None  # those that have not ended, or ended within CLUSTER_REQUEST_TOLD_S
    repairs_drift: bool = True  # False: drift is reported and left as it is
    life_digest: str = ""
    life: tuple[LifeMark, ...] | None = None  # recent ones that concern this cluster, the earliest first
    warn_before_s: float = 600.0  # pods are told this long before their box ends; 0: they are not told
    templates_digest: str = ""
    templates: tuple[AutoTemplate, ...] | None = None  # one for each workspace that has one
    workloads_digest: str = ""
    # Marks of GPRs that are active here. A missing one is left as it is: the agent deletes it when its box closes.
    workloads: tuple[JobWorkload, ...] | None = None
    log_asks: tuple[LogAsk, ...] = ()  # all present ones, in every answer
    idle_releases: tuple[IdleRelease, ...] | None = None  # all present ones, in every answer; an older hub sends none
