"""Requests that are objects in a cluster (GPUProvisioningRequests), the hub's answers to them, and templates of automatic ones."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from protocol.scalars import Id, Number, Word

CLUSTER_REQUESTS_PATH = "/agent/v1/claims"
CLUSTER_REQUESTS_MAX = 100  # of one message
CLUSTER_REQUESTS_AT_ONCE = 25  # so many an agent sends, so that the answer comes soon and other news gets its turn
CLUSTER_REQUEST_TOLD_S = 3600.0  # the hub reports the state of a cluster request for this long after its end


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
