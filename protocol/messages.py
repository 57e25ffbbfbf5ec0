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
from typing import Annotated, Protocol

import msgspec

PROTO = "1.0"
PROTO_MIN, PROTO_MAX = 1, 1
WAIT_MAX_S = 20.0  # how long the hub may hold a sync
ENTRY_ATTEMPTS = 2  # a check that fails so often fails the entry, and the hub sets the node aside
RESULTS_MAX = 1_000  # of one attempt
DRIFTS_MAX = 100  # in one message
DRIFT_AGAIN_S = 60.0  # what is changed again and again is told so often
BINDINGS_MAX = 200  # likewise: the hub answers in time
LEASE_TTL_S = 45.0  # how long after a good sync the agent may still begin an entry
BODY_MAX_BYTES = 8 * 1024 * 1024
CLOCK_OFFSET_WARN_S, CLOCK_OFFSET_REFUSE_S = 2.0, 5.0

REGISTER_PATH = "/agent/v1/register"
RENEW_PATH = "/agent/v1/credential/renew"
SYNC_PATH = "/agent/v1/sync"
EVENTS_PATH = "/agent/v1/events"
CLUSTER_REQUESTS_PATH = "/agent/v1/claims"
CLUSTER_REQUESTS_MAX = 100  # of one message
CLUSTER_REQUESTS_AT_ONCE = 25  # so many an agent sends, so that the answer comes soon and other news gets its turn
CLUSTER_REQUEST_TOLD_S = 3600.0  # the hub reports the state of a cluster request for this long after its end
LIFE_TOLD_S = 900.0  # so long the hub tells of a mark; less than the hour for which an API server keeps an event
LIFE_MARKS_MAX = 500  # in one answer: the latest
LIFE_NODES_MAX = 256  # of one mark: a larger box is told on so many of its nodes

# Of pods that wait, told for the pages: what is more is counted, or not told.
NAMESPACES_WAITING_MAX, REASONS_WAITING_MAX, PODS_NAMED_MAX, JOBS_WAITING_MAX = 500, 5, 3, 10
JOBS_FAILED_MAX = 100  # of one message
MOMENT_MAX_S = 253_402_300_000.0  # the year 9999

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


class Verdict(StrEnum):
    """Of one measurement. WARN: worth a look, and no reason to refuse the node. SKIP: it could not be measured, or need not be."""

    PASS = "PASS"  # noqa: S105  # no password
    WARN = "WARN"
    FAIL = "FAIL"
    SKIP = "SKIP"


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


class BindingState(StrEnum):
    """How far the agent is with one namespace of a workspace."""

    READY = "READY"  # bound, and all that belongs to it is there
    WAITING = "WAITING"  # not yet: it is being deleted, a box has to end, or the cluster does not answer
    CONFLICT = "CONFLICT"  # it is somebody else's: people must act
    UNBOUND = "UNBOUND"  # as wanted, nobody of the workspace has access to it any more


class BindingSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One namespace of one workspace as the agent finds it. `detail`: a sentence for people, "" when it is READY.

    `repaired`: what somebody had changed by hand and is as it should be again; `left`: what is as they changed it.
    """

    slice: Id
    namespace: Id
    state: BindingState
    detail: str = ""
    repaired: tuple[Word, ...] = ()
    left: tuple[Word, ...] = ()


class Drift(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something of ours in the cluster that somebody else changed. `what`: the object, for people, as "node gpu-7". `detail`: a
    sentence: what was found. `node`: its name, where it is about one. Not `is_repaired`: it is left as it is, by the hub's policy or for
    lack of the right. `is_foreign`: it is not of ours, and works against what is. `is_added`: somebody put it beside what is ours.
    """

    what: Annotated[str, msgspec.Meta(max_length=300)]
    detail: Annotated[str, msgspec.Meta(max_length=300)]
    node: Annotated[str, msgspec.Meta(max_length=253)] = ""
    is_repaired: bool = False
    is_foreign: bool = False
    is_added: bool = False


class IssuedToken(msgspec.Struct, frozen=True, kw_only=True):
    """What an account's token_s asked for, or why there is none (`failure`, a sentence; then all else is empty).

    `server` and `ca` (PEM): where the API server is and how it is known, as the agent reaches it. `expires_s`: as the API server
    said, which may cut the life short.
    """

    account: Id
    token: str = ""
    expires_s: float = 0.0
    server: str = ""
    ca: str = ""
    failure: str = ""

    def __repr__(self) -> str:
        return f"IssuedToken({self.account})"  # never the secret: this may stand in a log


class ReasonWaiting(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that wait for one reason, a sentence; `names`: of some of them."""

    text: Annotated[str, msgspec.Meta(max_length=200)]
    count: Count
    names: Annotated[tuple[Annotated[str, msgspec.Meta(max_length=253)], ...], msgspec.Meta(max_length=PODS_NAMED_MAX)] = ()


class JobWaiting(msgspec.Struct, frozen=True, kw_only=True):
    """A Job with a deadline, which runs while so many of its pods wait; then it fails."""

    name: Annotated[str, msgspec.Meta(max_length=253)]
    count: Count
    fails_s: Annotated[float, msgspec.Meta(ge=0, le=MOMENT_MAX_S)]


class PodsWaiting(msgspec.Struct, frozen=True, kw_only=True):
    """GPU pods of one bound namespace that wait. `reasons`: the most frequent ones; `jobs`: those that fail first."""

    namespace: Id
    count: Count
    reasons: Annotated[tuple[ReasonWaiting, ...], msgspec.Meta(max_length=REASONS_WAITING_MAX)] = ()
    jobs: Annotated[tuple[JobWaiting, ...], msgspec.Meta(max_length=JOBS_WAITING_MAX)] = ()


class JobFailed(msgspec.Struct, frozen=True, kw_only=True):
    """A Job of a bound namespace whose pods were in the box of this GPR last, and that has failed."""

    gpr_id: Id
    namespace: Id
    name: Annotated[str, msgspec.Meta(max_length=253)]


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


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """Exit: ask pods to go, delete those left after `grace_s`, delete by force after `force_after_s`."""

    grace_s: float = 30.0
    force_after_s: float = 120.0


class CheckPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What differs from the agent's own: see `protocol.check_limits`. Names that this agent does not know have no effect.

    `images`: by what they are for (`limits.IMAGES`). `storage_class`: of the volume that the storage check asks for; "": the
    cluster's default. `rdma_subnet`: the first half of the GIDs that RDMA ports must have; "": any. `runtime_class`: of the pods
    that look at GPUs; `pull_secret`: by which the images are pulled; "": the agent's own of either.
    """

    limits: dict[str, float] = {}
    images: dict[str, str] = {}
    storage_class: str = ""
    rdma_subnet: str = ""
    runtime_class: str = ""
    pull_secret: str = ""


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


class NodeOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A node that the cluster shall get: asked for by `order_by_s`, not before it, and there by `expected_s`.

    It joins with the label egs.io/order; once the hub has seen it, or has done without it, it is no order any more. `supply` is a name.
    """

    id: str
    supply: str
    kind: str
    shape: str
    gpus_per_node: int
    gpu_memory_gib: int
    order_by_s: float
    expected_s: float


class AccessRole(StrEnum):
    """What an account may do: the ClusterRole egs-slice-<role>."""

    USER = "user"
    VIEWER = "viewer"


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody's way into the namespaces of a workspace: one kubeconfig that was given out. What is not listed has no access.

    `namespace` is where its ServiceAccount lives. `token_s` > 0: the hub waits for a token of that life.
    """

    id: Id
    role: str
    namespace: str
    token_s: int = 0


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """`may_adopt`: an administrator said that it may be taken over though it was there before."""

    namespace: str
    desired: str = Desired.PRESENT
    may_adopt: bool = False


class Workspace(msgspec.Struct, frozen=True, kw_only=True):
    """A slice as its cluster shall have it. `pods_max`: in each namespace. `may_reach_out`: its pods may open connections beyond it."""

    id: Id
    name: str
    bindings: tuple[Binding, ...]
    accounts: tuple[Account, ...] = ()
    pods_max: int = 1000
    may_reach_out: bool = False


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


class LifeMark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened to a GPR, however it was filed: for those who look at its workspace's namespaces and its nodes.

    `id`: the same whenever it is told. `slice`: its id, as in Assignment.slice_id. `state`: the one that it came to, or, with `percent`, in
    which so much of its time had passed. `message`: a sentence for members of the workspace. `nodes`: names of those that it had then,
    LIFE_NODES_MAX at most.
    """

    id: Id
    gpr_id: Id
    gpr_name: Word
    slice: Id
    at_s: float
    state: Word
    percent: Number = 0
    message: Annotated[str, msgspec.Meta(max_length=500)] = ""
    nodes: tuple[str, ...] = ()


class ModelParameter(msgspec.Struct, frozen=True, kw_only=True):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=63)]
    value: Annotated[str, msgspec.Meta(max_length=256)] = ""


class ModelDescription(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is run on the nodes, in the words of who asks. Bounded, since every object of the kind is in the agent's memory."""

    name: Annotated[str, msgspec.Meta(max_length=253)] = ""
    parameters: Annotated[tuple[ModelParameter, ...], msgspec.Meta(max_length=32)] = ()


class ClusterRequestSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an object of kind GPUProvisioningRequest asks for, its template's words taken in. The names of the REST API's create; None:
    not said, the hub's default holds.

    `duration`, `idle_timeout`: as people write them (8h30m). `workspace`: the name of the slice, where it was said; the hub refuses
    another than the namespace's. `early_release`: give the nodes back, or withdraw what waits.
    """

    nodes: Number | None = None
    duration: Annotated[str, msgspec.Meta(max_length=32)] = ""
    shape: Word = ""
    min_gpu_memory_gib: Number | None = None
    gpus_per_node: Number | None = None
    priority: Number | None = None
    earliest_start_at: Annotated[str, msgspec.Meta(max_length=40)] = ""
    node_type: Word = ""
    rdma: bool | None = None
    within: Word = ""
    idle_timeout: Annotated[str, msgspec.Meta(max_length=32)] = ""
    evictable: bool | None = None
    may_evict: bool | None = None
    requeue_on_failure: bool | None = None
    run_checks: bool | None = None
    model: ModelDescription | None = None
    workspace: Word = ""
    early_release: bool = False


class AutoTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """What a request asks for that is made for pods of a workspace that wait, in namespaces whose own GPRTemplates do not say auto.

    `id`: of the workspace. `name`: of the template, for people.
    """

    id: Id
    name: Word
    spec: ClusterRequestSpec


class ClusterRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A GPUProvisioningRequest in the cluster as the agent finds it; the hub makes a GPR of it, once for each `uid`, and keeps to it.

    Level, not edge: it may come again at any time, and changes nothing then. `generation`: as the API server counts changes of
    the spec. `requester`: who made the object, by the word of the API server; "": not known. `is_auto`: the agent made it for pods
    that wait, by the hub's `template` of this name, or by one of the namespace (""). `is_gone`: the object is not there any more (all
    but the uid means nothing then, and may be empty): what waits is canceled, what runs is released.
    """

    uid: Id
    namespace: Word
    name: Annotated[str, msgspec.Meta(max_length=253)]
    generation: Number = 0
    spec: ClusterRequestSpec = ClusterRequestSpec()
    requester: Annotated[str, msgspec.Meta(max_length=253)] = ""
    is_auto: bool = False
    template: Annotated[str, msgspec.Meta(max_length=63)] = ""
    is_gone: bool = False


class ClusterRequestVerdict(StrEnum):
    TAKEN = "TAKEN"  # there is a GPR, and it is as this generation says
    REFUSED = "REFUSED"  # there is none, or it stays as it was: `reason` and `message` say why. The next generation is tried anew
    LATER = "LATER"  # not now: ask again in a while; `message` says why


class ClusterRequestAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """`gpr_id`: "" while there is none. `reason`: the code of the problem, as the REST API gives it; `message`: a sentence for people."""

    uid: Id
    generation: Number
    verdict: ClusterRequestVerdict
    gpr_id: str = ""
    reason: str = ""
    message: str = ""


class ClusterRequestsMessage(msgspec.Struct, frozen=True, kw_only=True):
    """Answered at once, in order, each in a transaction of its own: one that is refused does not stop the others."""

    session_epoch: int
    claims: Annotated[tuple[ClusterRequest, ...], msgspec.Meta(max_length=CLUSTER_REQUESTS_MAX)]


class ClusterRequestsReply(msgspec.Struct, frozen=True, kw_only=True):
    answers: tuple[ClusterRequestAnswer, ...]


class ClusterRequestState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of the GPR of one ClusterRequest, for the object's status. Times (`_s`) are None where there is none.

    `state`, `end_reason`: as in the REST API. `position`: 1 is next; None when it does not wait. `message`: one sentence, what it waits
    for or how it ended. `is_ended`: nothing of this will change any more. `filed_s`: when it was filed; an older hub does not say.
    """

    id: Id  # the uid of the ClusterRequest
    gpr_id: Id
    state: Word
    is_auto: bool = False
    is_ended: bool = False
    end_reason: Word = ""
    message: str = ""
    position: Number | None = None
    promised_start_s: float | None = None
    estimated_start_s: float | None = None
    started_s: float | None = None
    ends_s: float | None = None
    nodes: tuple[str, ...] = ()
    filed_s: float | None = None


class CheckResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that was measured, of one GPU or, where `gpu` is "", of the whole node.

    `check`: its name, as in `protocol.check_limits`. `is_least`: the threshold is the least that is good, else the most.
    """

    check: Word
    verdict: Verdict
    gpu: Annotated[str, msgspec.Meta(max_length=63)] = ""
    value: float | None = None
    unit: Word = ""
    threshold: float | None = None
    is_least: bool = False
    text: Annotated[str, msgspec.Meta(max_length=200)] = ""


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


class GpuView(msgspec.Struct, frozen=True, kw_only=True):
    """`uuid`: by which boxes hold it, the same however often it is replaced. `hardware_uuid`: as its driver told a check, or empty."""

    uuid: Id
    index: Count
    model: Word
    memory_gib: Count
    healthy: bool = True
    hardware_uuid: Word = ""


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU node as the cluster shows it. `ready`: the cluster calls it ready and schedulable for us. `broken`: the cluster says that it
    does not work; one that somebody only set aside is not ready, and not broken.

    `order`: its label egs.io/order, the id of the order that it comes of. `supply`: its label egs.io/supply, the name or id of the
    supply that it is from. Empty where it has none.
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
    broken: bool = False


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


class Listed(Protocol):
    """An item of a list that is told by its digest."""

    @property
    def id(self) -> str: ...


def set_digest(listed: Sequence[Listed]) -> str:
    """SHA-256 over the set in order of id, so that both sides can compare what they hold."""
    ordered = sorted(listed, key=lambda item: item.id)
    return hashlib.sha256(msgspec.json.encode(ordered, order="deterministic")).hexdigest()
