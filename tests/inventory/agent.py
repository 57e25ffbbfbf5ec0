"""The agent's side of EGS Sync v1, as bytes: whatever a test wants to say, the hub's own functions answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from inventory import agent_hub
from inventory.models import Cluster, Reservation
from inventory.services.clusters import join_token_issue
from protocol.agents.events import EVENTS_PATH, EventsReply, EventsRequest, InventoryEvent, Outcome, StepEvent
from protocol.agents.registration import REGISTER_PATH, RENEW_PATH, Credential, RegisterRequest
from protocol.agents.sync import SYNC_PATH, SyncReply, SyncRequest
from protocol.assignments import Assignment, Observed, Phase
from protocol.nodes.inventory import NodeView
from protocol.tenancy.cluster_requests import (
    CLUSTER_REQUESTS_PATH,
    ClusterRequest,
    ClusterRequestAnswer,
    ClusterRequestsMessage,
    ClusterRequestsReply,
)
from tests.builders import NOW


@dataclass(slots=True)
class Reply:
    status: int
    body: Any

    @property
    def code(self) -> str:
        return str(self.body["code"])


def post(path: str, message: Any, *, bearer: str = "", at: datetime = NOW) -> Reply:
    """`message`: a struct, or bytes that are sent as they are."""
    body = message if isinstance(message, bytes) else msgspec.json.encode(message)
    answer = agent_hub.answer(path=path, bearer=bearer, body=body, now=at)
    return Reply(answer.status, msgspec.json.decode(answer.body))


def join_token(cluster: Cluster, *, at: datetime = NOW) -> str:
    return join_token_issue(cluster=cluster, actor=None, now=at)[1]


def register(token: str, *, uid: str = "uid-1", install: str = "install-1", at: datetime = NOW, **changes: Any) -> Reply:
    fields = {"join_token": token, "cluster_uid": uid, "install_id": install, "agent_version": "1.0", **changes}
    return post(REGISTER_PATH, RegisterRequest(**fields), at=at)


@dataclass(slots=True)
class Agent:
    """It has joined. Each method tells the hub one thing and expects the hub to take it; `post` expects nothing."""

    cluster: Cluster
    credential: str
    cred_gen: int = 1
    boot: str = "boot-1"
    session_epoch: int = 0
    seq: int = 0
    last: SyncReply | None = field(default=None)
    heard_at: datetime | None = None

    @classmethod
    def joined(cls, cluster: Cluster, *, at: datetime = NOW, boot: str = "boot-1", uid: str = "") -> Agent:
        reply = register(join_token(cluster, at=at), uid=uid or f"uid of {cluster.name}", install=f"install of {cluster.name}", at=at)
        assert reply.status == 201, reply.body
        credential = msgspec.convert(reply.body, Credential)
        agent = cls(cluster, credential.credential, credential.cred_gen, boot)
        agent.sync(at=at)
        return agent

    def post(self, path: str, message: Any, *, at: datetime = NOW, bearer: str | None = None) -> Reply:
        return post(path, message, bearer=self.credential if bearer is None else bearer, at=at)

    def try_sync(self, *observed: Observed, at: datetime = NOW, bearer: str | None = None, **changes: Any) -> Reply:
        fields: dict[str, Any] = {"session_epoch": self.session_epoch, "boot_id": self.boot, "observed": observed, **changes}
        return self.post(SYNC_PATH, SyncRequest(**fields), at=at, bearer=bearer)

    def sync(self, *observed: Observed, at: datetime = NOW, **changes: Any) -> SyncReply:
        reply = self.try_sync(*observed, at=at, **changes)
        assert reply.status == 200, reply.body
        self.last = msgspec.convert(reply.body, SyncReply)
        self.session_epoch = self.last.session_epoch
        self.heard_at = at
        return self.last

    def try_events(self, *events: StepEvent | InventoryEvent, at: datetime = NOW, epoch: int | None = None) -> Reply:
        session_epoch = self.session_epoch if epoch is None else epoch
        return self.post(EVENTS_PATH, EventsRequest(session_epoch=session_epoch, events=events), at=at)

    def events(self, *events: StepEvent | InventoryEvent, at: datetime = NOW) -> EventsReply:
        reply = self.try_events(*events, at=at)
        assert reply.status == 200, reply.body
        return msgspec.convert(reply.body, EventsReply)

    def try_claims(self, *claims: ClusterRequest, at: datetime = NOW, epoch: int | None = None) -> Reply:
        session_epoch = self.session_epoch if epoch is None else epoch
        return self.post(CLUSTER_REQUESTS_PATH, ClusterRequestsMessage(session_epoch=session_epoch, claims=claims), at=at)

    def claims(self, *claims: ClusterRequest, at: datetime = NOW) -> tuple[ClusterRequestAnswer, ...]:
        reply = self.try_claims(*claims, at=at)
        assert reply.status == 200, reply.body
        return msgspec.convert(reply.body, ClusterRequestsReply).answers

    def inventory(self, *nodes: NodeView, at: datetime = NOW) -> EventsReply:
        self.seq += 1
        return self.events(InventoryEvent(seq=self.seq, nodes=nodes), at=at)

    def try_renew(self, *, at: datetime = NOW, bearer: str | None = None) -> Reply:
        return self.post(RENEW_PATH, {"cred_gen": self.cred_gen}, at=at, bearer=bearer)

    def renew(self, *, at: datetime = NOW) -> Credential:
        reply = self.try_renew(at=at)
        assert reply.status == 200, reply.body
        return msgspec.convert(reply.body, Credential)


def seen(row: Reservation, phase: Phase, **changes: Any) -> Observed:
    fields: dict[str, Any] = {"assignment_id": str(row.pk), "epoch": row.epoch, "phase": phase, **changes}
    return Observed(**fields)


def seen_of(assignment: Assignment, phase: Phase, **changes: Any) -> Observed:
    return Observed(**{"assignment_id": assignment.id, "epoch": assignment.epoch, "phase": phase, **changes})


def step(row: Reservation, seq: int, *, name: str = "node_ready", outcome: Outcome = Outcome.OK, **changes: Any) -> StepEvent:
    fields: dict[str, Any] = {
        "seq": seq,
        "assignment_id": str(row.pk),
        "epoch": row.epoch,
        "step": name,
        "attempt": 1,
        "outcome": outcome,
        "started_s": NOW.timestamp(),
        "ended_s": NOW.timestamp() + 1,
        **changes,
    }
    return StepEvent(**fields)
