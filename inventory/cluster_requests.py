"""Passes cluster requests (GPUProvisioningRequest objects that agents report) to the handler that `gpr` registers at start-up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Protocol
from uuid import UUID

import msgspec

from core.errors import InvalidInput
from inventory.models import AgentSession, Cluster
from inventory.services.agents import AgentIdentity, session_check
from protocol.agents.sync import IdleRelease
from protocol.decoding import decode
from protocol.scalars import Id, Number
from protocol.tenancy.cluster_requests import (
    CLUSTER_REQUESTS_MAX,
    AutoTemplate,
    ClusterRequest,
    ClusterRequestAnswer,
    ClusterRequestsReply,
    ClusterRequestState,
    ClusterRequestVerdict,
)
from protocol.tenancy.life_marks import LifeMark
from protocol.tenancy.waiting_pods import JobFailed
from protocol.tenancy.workloads import JobWorkload, LogAsk, LogChunk, LogReply, WorkloadSeen


class ClusterRequestHandler(Protocol):
    def states(self, cluster_id: UUID, *, now: datetime) -> tuple[ClusterRequestState, ...]:
        """Returns the states ordered by id."""

    def life_marks(self, cluster_id: UUID, *, now: datetime) -> tuple[LifeMark, ...]:
        """Returns recent events of all GPRs that concern the cluster."""

    def auto_templates(self, cluster_id: UUID) -> tuple[AutoTemplate, ...]:
        """Returns templates for waiting pods, ordered by id."""

    def take(self, *, cluster: Cluster, requests: Sequence[ClusterRequest], now: datetime) -> Sequence[ClusterRequestAnswer]:
        """Answers in order, in its own transactions: a request that fails does not stop the others."""

    def take_failed_jobs(self, *, cluster: Cluster, failed: Sequence[JobFailed], now: datetime) -> None:
        """Takes Jobs that failed after they had run in a GPR."""

    def workloads(self, cluster_id: UUID) -> tuple[JobWorkload, ...]:
        """Returns what runs in open boxes, ordered by id."""

    def take_workloads(self, *, cluster: Cluster, seen: Sequence[WorkloadSeen], now: datetime) -> None:
        """Takes how workloads go."""

    def log_asks(self, cluster_id: UUID, now: datetime) -> tuple[LogAsk, ...]:
        """Returns the pods whose output somebody reads now."""

    def idle_releases(self, cluster_id: UUID) -> tuple[IdleRelease, ...]:
        """Returns the boxes of which people were warned that they are released, since their GPUs do nothing."""

    def take_log(self, *, cluster: Cluster, chunk: LogChunk, now: datetime) -> str:
        """Returns how far the output is stored."""


class RawClusterRequests(msgspec.Struct, frozen=True, kw_only=True):
    """Decodes the entries of a ClusterRequestsMessage one by one, so that an unreadable entry does not reject the others."""

    session_epoch: int
    claims: Annotated[tuple[msgspec.Raw, ...], msgspec.Meta(max_length=CLUSTER_REQUESTS_MAX)]


class _Identity(msgspec.Struct, frozen=True, kw_only=True):
    uid: Id
    generation: Number = 0


_makers: list[Callable[[], ClusterRequestHandler]] = []


def set_handler(make: Callable[[], ClusterRequestHandler]) -> None:
    """`make` is called for each use, so that it may import what some processes never need."""
    _makers[:] = [make]


def handler() -> ClusterRequestHandler:
    return _makers[0]()


def receive_log(agent: AgentIdentity, chunk: LogChunk, now: datetime) -> LogReply:
    """Raises AgentSuperseded."""
    session_check(AgentSession.objects.get(pk=agent.cluster.pk), chunk.session_epoch)
    return LogReply(until=handler().take_log(cluster=agent.cluster, chunk=chunk, now=now))


def receive(agent: AgentIdentity, message: RawClusterRequests, now: datetime) -> ClusterRequestsReply:
    """An entry without a readable uid gets no answer. Raises AgentSuperseded."""
    # The session row is not locked, unlike for events: each request counts once by its uid, and planning takes long.
    session_check(AgentSession.objects.get(pk=agent.cluster.pk), message.session_epoch)
    decoded = [_decode(raw) for raw in message.claims]
    requests = [each for each in decoded if isinstance(each, ClusterRequest)]
    answers = iter(handler().take(cluster=agent.cluster, requests=requests, now=now))
    in_order = (next(answers) if isinstance(each, ClusterRequest) else each for each in decoded if each is not None)
    return ClusterRequestsReply(answers=tuple(in_order))


def _decode(raw: msgspec.Raw) -> ClusterRequest | ClusterRequestAnswer | None:
    # None: not even the uid can be read.
    try:
        return decode(raw, ClusterRequest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _unreadable(raw, str(error))


def _unreadable(raw: msgspec.Raw, why: str) -> ClusterRequestAnswer | None:
    try:
        identity = decode(raw, _Identity)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return ClusterRequestAnswer(
        uid=identity.uid,
        generation=identity.generation,
        verdict=ClusterRequestVerdict.REFUSED,
        reason=InvalidInput.code,
        message=f"A value of the object cannot be read: {why}.",
    )
