"""Answers EGS Sync v1 without HTTP, for the async views and the deterministic simulation."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import msgspec
import structlog

from core.errors import EgsError
from core.rest.problems import problem
from inventory import cluster_requests, tenancy
from inventory.services.agents import AgentIdentity, agent_authenticate, agent_register, agent_renew
from inventory.services.events import UNSTORABLE, events_store
from inventory.services.sync import sync_receive, sync_reply
from protocol.agents.events import EVENTS_PATH, EventsRequest
from protocol.agents.registration import REGISTER_PATH, RENEW_PATH, RegisterRequest, RenewRequest
from protocol.agents.sync import SYNC_PATH, SyncReply, SyncRequest
from protocol.agents.transport import PROTO_MAX, PROTO_MIN, Code
from protocol.decoding import decode
from protocol.nodes.drift import DRIFTS_MAX, Drift
from protocol.tenancy.cluster_requests import CLUSTER_REQUESTS_PATH
from protocol.tenancy.waiting_pods import JOBS_FAILED_MAX, NAMESPACES_WAITING_MAX, JobFailed, PodsWaiting
from protocol.tenancy.workloads import LOGS_PATH, WORKLOADS_SEEN_MAX, LogChunk, WorkloadSeen

log = structlog.get_logger(__name__)

Message = TypeVar("Message")
# PostgreSQL cannot store the character NUL, which logs may contain. After an odd number of backslashes `\u0000` is plain text.
NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")


@dataclass(frozen=True, slots=True)
class AgentAnswer:
    status: int
    body: bytes


class Malformed(EgsError):
    code = "agent_malformed"
    title = "Not a message of EGS Sync v1"


class UnsupportedProto(EgsError):
    code = Code.UNSUPPORTED_PROTO
    title = "No protocol version in common"


@dataclass(frozen=True, slots=True)
class ReceivedSync:
    agent: AgentIdentity
    message: SyncRequest
    session_epoch: int
    received_at: datetime


def answer(*, path: str, bearer: str, body: bytes, now: datetime) -> AgentAnswer:
    """Never waits. After an error it stores nothing of the message."""
    return answer_errors(lambda: encode(201 if path == REGISTER_PATH else 200, HANDLERS[path](bearer, body, now)))


def receive_sync(*, bearer: str, body: bytes, now: datetime) -> ReceivedSync:
    agent = agent_authenticate(bearer=bearer, now=now)
    message = _sync_request(body)
    session_epoch = sync_receive(agent=agent, message=message, now=now)
    tenancy.take_report(agent.cluster, message, now)
    handler = cluster_requests.handler()
    handler.take_failed_jobs(cluster=agent.cluster, failed=message.jobs_failed, now=now)
    handler.take_workloads(cluster=agent.cluster, seen=message.workloads_seen, now=now)
    return ReceivedSync(agent, message, session_epoch, now)


def reply_to_sync(received: ReceivedSync, *, now: datetime) -> SyncReply:
    return sync_reply(
        agent=received.agent,
        message=received.message,
        session_epoch=received.session_epoch,
        received_at=received.received_at,
        now=now,
    )


def answer_errors(work: Callable[[], AgentAnswer]) -> AgentAnswer:
    try:
        return work()
    except EgsError as error:
        return _refuse(error)
    except UNSTORABLE as error:
        log.warning("agent_message_unstorable", error=f"{type(error).__name__}: {error}")
        return _refuse(Malformed("A value of this message is beyond what can be stored."))


def encode_reply(reply: SyncReply) -> AgentAnswer:
    return encode(200, reply)


def _register(bearer: str, body: bytes, now: datetime) -> msgspec.Struct:
    message = message_read(body, RegisterRequest)
    if message.proto_max < PROTO_MIN or message.proto_min > PROTO_MAX:
        raise UnsupportedProto(f"This hub speaks EGS Sync {PROTO_MIN} to {PROTO_MAX}. Upgrade the older side.")
    return agent_register(message=message, now=now)


def _renew(bearer: str, body: bytes, now: datetime) -> msgspec.Struct:
    agent = agent_authenticate(bearer=bearer, now=now)
    message_read(body, RenewRequest)
    return agent_renew(agent=agent, now=now)


def _sync(bearer: str, body: bytes, now: datetime) -> msgspec.Struct:
    return reply_to_sync(receive_sync(bearer=bearer, body=body, now=now), now=now)


def _events(bearer: str, body: bytes, now: datetime) -> msgspec.Struct:
    agent = agent_authenticate(bearer=bearer, now=now)
    return events_store(agent=agent, message=message_read(body, EventsRequest), now=now)


def _cluster_requests(bearer: str, body: bytes, now: datetime) -> msgspec.Struct:
    agent = agent_authenticate(bearer=bearer, now=now)
    return cluster_requests.receive(agent, message_read(body, cluster_requests.RawClusterRequests), now)


def _logs(bearer: str, body: bytes, now: datetime) -> msgspec.Struct:
    agent = agent_authenticate(bearer=bearer, now=now)
    return cluster_requests.receive_log(agent, message_read(body, LogChunk), now)


HANDLERS: dict[str, Callable[[str, bytes, datetime], msgspec.Struct]] = {
    REGISTER_PATH: _register,
    RENEW_PATH: _renew,
    SYNC_PATH: _sync,
    EVENTS_PATH: _events,
    CLUSTER_REQUESTS_PATH: _cluster_requests,
    LOGS_PATH: _logs,
}


def _refuse(error: EgsError) -> AgentAnswer:
    body = problem(status=error.status, code=error.code, title=error.title, detail=error.detail)
    return AgentAnswer(error.status, msgspec.json.encode(body))


def message_read(body: bytes, kind: type[Message]) -> Message:
    try:
        return decode(NUL.sub(rb"\1", body) if rb"\u0000" in body else body, kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"The body is not a {kind.__name__}: {error}") from None


def _sync_request(body: bytes) -> SyncRequest:
    """Drops informational lists that cannot be decoded: user data must not block the heartbeat."""
    try:
        return message_read(body, SyncRequest)
    except Malformed as error:
        parts = message_read(body, dict[str, msgspec.Raw])
        waiting, drifts, failed = parts.pop("waiting", None), parts.pop("drifts", None), parts.pop("jobs_failed", None)
        seen = parts.pop("workloads_seen", None)
        parts.pop("have_life", None)
        parts.pop("workload_kinds", None)
        message = message_read(msgspec.json.encode(parts), SyncRequest)
        log.warning("agent_sync_partly_unreadable", error=error.detail)
        return msgspec.structs.replace(
            message,
            waiting=_readable(waiting, PodsWaiting, NAMESPACES_WAITING_MAX),  # None: unchanged
            drifts=_readable(drifts, Drift, DRIFTS_MAX) or (),
            jobs_failed=_readable(failed, JobFailed, JOBS_FAILED_MAX) or (),
            workloads_seen=_readable(seen, WorkloadSeen, WORKLOADS_SEEN_MAX) or (),
        )


def _readable(told: msgspec.Raw | None, kind: type[Message], count_max: int) -> tuple[Message, ...] | None:
    """Drops entries that cannot be decoded. Returns None if there is no list."""
    if told is None:
        return None
    try:
        listed = message_read(bytes(told), list[msgspec.Raw])
    except Malformed:
        return None
    read = []
    for each in listed[:count_max]:
        with suppress(Malformed):
            read.append(message_read(bytes(each), kind))
    return tuple(read)


def encode(status: int, message: msgspec.Struct) -> AgentAnswer:
    return AgentAnswer(status, msgspec.json.encode(message))
