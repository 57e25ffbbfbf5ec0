"""GPRs that are Kubernetes objects, the hub's answers, and templates of automatic requests. The wire calls them claims."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from protocol.scalars import Id, Number, Word

CLUSTER_REQUESTS_PATH = "/agent/v1/claims"
CLUSTER_REQUESTS_MAX = 100  # in one message
CLUSTER_REQUESTS_AT_ONCE = 25  # an agent sends no more in one message, so that the answer comes soon and other messages get their turn
CLUSTER_REQUEST_TOLD_S = 3600.0  # the hub reports the state of a cluster request for this long after its end


class ModelParameter(msgspec.Struct, frozen=True, kw_only=True):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=63)]
    value: Annotated[str, msgspec.Meta(max_length=256)] = ""


class ModelDescription(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The size is bounded, since the agent keeps all such objects in memory."""

    name: Annotated[str, msgspec.Meta(max_length=253)] = ""
    parameters: Annotated[tuple[ModelParameter, ...], msgspec.Meta(max_length=32)] = ()


class JobAsk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Describes the job of a request, with the field names of the REST API. The hub checks it."""

    kind: Word = ""
    image: str = ""
    command: tuple[str, ...] = ()
    env: dict[str, str] = {}
    secrets: tuple[str, ...] = ()
    volumes: dict[str, str] = {}
    pull_secret: str = ""
    user_id: Number | None = None
    retries: Number | None = None
    checkpoint: tuple[str, ...] = ()
    manifest: str = ""  # objects of Kubernetes, as YAML
    releases_box: bool | None = None


class ClusterRequestSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Holds a spec merged with its template, with the field names of the REST API. None or "" means the hub's default."""

    nodes: Number | None = None
    duration: Annotated[str, msgspec.Meta(max_length=32)] = ""  # as people write it: 8h30m
    shape: Word = ""
    min_gpu_memory_gib: Number | None = None
    gpus_per_node: Number | None = None
    priority: Number | None = None
    earliest_start_at: Annotated[str, msgspec.Meta(max_length=40)] = ""
    after: Annotated[str, msgspec.Meta(max_length=253)] = ""  # name of another request of its workspace; it starts when that has ended
    after_condition: Word = ""  # any or success
    node_type: Word = ""
    rdma: bool | None = None
    within: Word = ""
    idle_timeout: Annotated[str, msgspec.Meta(max_length=32)] = ""  # as people write it
    evictable: bool | None = None
    may_evict: bool | None = None
    requeue_on_failure: bool | None = None
    run_checks: bool | None = None
    model: ModelDescription | None = None
    workspace: Word = ""  # name of the slice; the hub refuses another one than the namespace's
    early_release: bool = False  # releases the nodes, or cancels a waiting request
    job: JobAsk | None = None


class AutoTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """The agent makes requests from it for waiting pods, in namespaces without an automatic GPRTemplate."""

    id: Id  # of the workspace
    name: Word  # of the template, for people
    spec: ClusterRequestSpec


class ClusterRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The agent may repeat it at any time; the hub makes one GPR for each `uid`."""

    uid: Id
    namespace: Word
    name: Annotated[str, msgspec.Meta(max_length=253)]
    generation: Number = 0  # the API server's counter of changes of the spec
    spec: ClusterRequestSpec = ClusterRequestSpec()
    requester: Annotated[str, msgspec.Meta(max_length=253)] = ""  # who created the object, according to the API server; "": unknown
    is_auto: bool = False  # the agent made it for waiting pods
    # name of the hub's template by which it was made, or that it names while the namespace has none of that name
    template: Annotated[str, msgspec.Meta(max_length=63)] = ""
    is_gone: bool = False  # the object was deleted, so its GPR is canceled or released; only `uid` counts then


class ClusterRequestVerdict(StrEnum):
    TAKEN = "TAKEN"  # there is a GPR that matches this generation
    REFUSED = "REFUSED"  # there is no GPR, or it stays as it was; the next generation is tried again
    LATER = "LATER"  # ask again in a while


class ClusterRequestAnswer(msgspec.Struct, frozen=True, kw_only=True):
    uid: Id
    generation: Number
    verdict: ClusterRequestVerdict
    gpr_id: str = ""  # "" while there is none
    reason: str = ""  # the problem's code, as in the REST API
    message: str = ""  # a sentence for people


class ClusterRequestsMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The hub answers in order, with one transaction for each request."""

    session_epoch: int
    claims: Annotated[tuple[ClusterRequest, ...], msgspec.Meta(max_length=CLUSTER_REQUESTS_MAX)]


class ClusterRequestsReply(msgspec.Struct, frozen=True, kw_only=True):
    answers: tuple[ClusterRequestAnswer, ...]


class JobProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    state: Word  # as in the REST API
    pods_running: Number = 0


class ClusterRequestState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The object's status shows it."""

    id: Id  # the uid of the ClusterRequest
    gpr_id: Id
    state: Word  # as in the REST API
    is_auto: bool = False
    is_ended: bool = False  # nothing of this will change any more
    end_reason: Word = ""  # as in the REST API
    message: str = ""  # why it waits or how it ended, as a sentence
    position: Number | None = None  # 1 is next; None: it does not wait
    promised_start_s: float | None = None
    estimated_start_s: float | None = None
    started_s: float | None = None
    ends_s: float | None = None
    nodes: tuple[str, ...] = ()
    filed_s: float | None = None  # an older hub does not send it
    job: JobProgress | None = None  # None: it runs none
