"""The sync: the agent's heartbeat, and the hub's answer with all that the agent shall do.

The set of a SyncReply is whole, and missing is not released: only `desired: ABSENT` or the end of the window releases a
node. `generation` never falls for one `hub_id`. An assignment with a lower epoch than the one on record for its GPU has
no effect.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from protocol.assignments import Assignment, Observed
from protocol.cluster_requests import AutoTemplate, ClusterRequestState
from protocol.drift import DRIFTS_MAX, Drift
from protocol.life_marks import LifeMark
from protocol.nodes import NodeOrder
from protocol.scalars import Id, Number
from protocol.waiting_pods import JOBS_FAILED_MAX, NAMESPACES_WAITING_MAX, JobFailed, PodsWaiting
from protocol.workspaces import BindingSeen, IssuedToken, Workspace

WAIT_MAX_S = 20.0  # how long the hub may hold a sync
SYNC_PATH = "/agent/v1/sync"


class SyncRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Heartbeat, acknowledgement and question in one. `session_epoch` 0 asks for a new session.

    `bindings` and `tokens`: what is news of the workspaces since the hub last took some, and no more; `drifts` and `jobs_failed` likewise.
    `waiting`: all
    namespaces in which pods wait, whole; None: as it was told in this session, or not looked at. `steps_lost`: at most so many StepEvents
    that the hub was not sent, nor will be, since it was last told so; it may be told twice, where an answer was lost.
    """

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
    have_workspaces: str = ""  # the digest of the list that the agent has
    accounts_left: tuple[Id, ...] | None = None  # those in the cluster that are not on this list; None: it has not been looked at yet
    have_claims: str = ""  # likewise
    have_life: str | None = None  # likewise; None: not wanted now
    have_templates: str | None = None  # likewise; None: this agent knows of none
    bindings: tuple[BindingSeen, ...] = ()
    tokens: tuple[IssuedToken, ...] = ()
    drifts: Annotated[tuple[Drift, ...], msgspec.Meta(max_length=DRIFTS_MAX)] = ()
    waiting: Annotated[tuple[PodsWaiting, ...], msgspec.Meta(max_length=NAMESPACES_WAITING_MAX)] | None = None
    steps_lost: Number = 0
    jobs_failed: Annotated[tuple[JobFailed, ...], msgspec.Meta(max_length=JOBS_FAILED_MAX)] = ()


class SyncReply(msgspec.Struct, frozen=True, kw_only=True):
    """The whole desired set, or `assignments` None when its digest is the one that the agent has.

    `received_s` and `sent_s` are the hub's clock when the request came and the answer left: with the agent's own two
    times they give the offset of the clocks however long the request was held. `orders`: all that are open, in every
    answer, and no part of the set: a change of them ends no wait, and comes with the next answer. `workspaces`: all of the cluster, or
    None when the agent has this list. A change of it ends the wait. A workspace or namespace that is missing is left as it is: only
    `desired: ABSENT` unbinds. An account that is missing from a workspace that is listed is gone. `claims`: the state of each
    ClusterRequest that has not ended, or ended within CLUSTER_REQUEST_TOLD_S; None when the agent has this list. A change of a GPR's
    state ends the wait; a change of position or estimates comes with the next answer.
    `repairs_drift`: put right what somebody else changed of ours;
    else it is only told. `life`: what happened lately to the GPRs that concern the cluster, the earliest first; None when the agent has
    this list or does not want one, or the hub is an older one. A change of it ends no wait. `warn_before_s`: how long before the end of a
    box its pods are told that it is near; 0: not at all. `templates`: of each workspace that has one, by which requests are made for its
    pods that wait; None when the agent has this list or knows of none, or the hub is an older one. A change of it ends the wait.
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
    workspaces_digest: str = ""
    workspaces: tuple[Workspace, ...] | None = None
    claims_digest: str = ""
    claims: tuple[ClusterRequestState, ...] | None = None
    repairs_drift: bool = True
    life_digest: str = ""
    life: tuple[LifeMark, ...] | None = None
    warn_before_s: float = 600.0
    templates_digest: str = ""
    templates: tuple[AutoTemplate, ...] | None = None
