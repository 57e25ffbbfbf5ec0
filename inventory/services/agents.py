"""Handles agents' joins, credentials and sessions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar, Final

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Max

from accounts.tokens.minting import TokenKind, token_matches, token_mint, token_parse
from core.errors import EgsError
from core.written_sql import TextParam, WrittenQuery
from inventory.models import AgentCredential, AgentSession, Cluster, JoinToken
from inventory.services.clusters import agent_credentials_revoke, join_tokens_end
from journal.models import Severity
from journal.services import event_record
from protocol.agents.registration import Credential, RegisterRequest
from protocol.agents.transport import Code

# Within this time a replaced credential is no sign of a clone: the request may have been under way.
RENEWAL_GRACE = timedelta(seconds=60)
_CREDENTIAL: Final = WrittenQuery(AgentCredential.objects.select_related("cluster__agent").filter(key_id=TextParam("key_id")))


class BadAgentToken(EgsError):
    status: ClassVar[int] = 401
    code: ClassVar[str] = Code.BAD_TOKEN
    title: ClassVar[str] = "Not a valid agent token"


class WrongCluster(EgsError):
    status: ClassVar[int] = 409
    code: ClassVar[str] = Code.WRONG_CLUSTER
    title: ClassVar[str] = "This record belongs to another cluster"


class AgentCloned(EgsError):
    status: ClassVar[int] = 403
    code: ClassVar[str] = Code.CLONED
    title: ClassVar[str] = "This agent is locked"


class AgentSuperseded(EgsError):
    status: ClassVar[int] = 409
    code: ClassVar[str] = Code.SUPERSEDED
    title: ClassVar[str] = "A newer session of this agent is at work"


@dataclass(frozen=True, slots=True)
class AgentIdentity:
    """Comes from the credential, never from a message."""

    cluster: Cluster
    cred_gen: int


@transaction.atomic
def agent_register(*, message: RegisterRequest, now: datetime) -> Credential:
    """Exchange a join token for a credential. Raises BadAgentToken or WrongCluster."""
    token = _join_token(message, now)
    cluster = token.cluster
    if cluster.uid and cluster.uid != message.cluster_uid:
        raise WrongCluster(
            f"Cluster {cluster.name} is known with another UID. Add this cluster under a name of its own, or use the right kubeconfig."
        )
    try:
        with transaction.atomic():
            is_ours = Cluster.objects.filter(pk=cluster.pk, uid__in=["", message.cluster_uid]).update(uid=message.cluster_uid)
    except IntegrityError:
        is_ours = 0
    if not is_ours:
        raise WrongCluster("The cluster with this UID has joined under another name. Use a join token of that record.")
    JoinToken.objects.filter(pk=token.pk).update(used_by=message.install_id)
    agent_credentials_revoke(cluster=cluster, now=now)
    AgentSession.objects.update_or_create(
        cluster=cluster,
        defaults={
            "install_id": message.install_id,
            "agent_version": message.agent_version,
            "capabilities": list(message.capabilities),
            "joined_at": now,
            "locked_at": None,
        },
    )
    event_record(
        kind="agent.joined",
        message=f"An agent (version {message.agent_version}) joined cluster {cluster.name}.",
        at=now,
        cluster_id=cluster.pk,
        data={"install_id": message.install_id},
    )
    return _credential_issue(cluster, now)


def agent_authenticate(*, bearer: str, now: datetime) -> AgentIdentity:
    """The first use of a credential ends its predecessor; the use of a superseded one locks the agent, which may be cloned.

    Raises BadAgentToken or AgentCloned.
    """
    parsed = token_parse(bearer)
    row = None
    if parsed is not None and parsed.kind == TokenKind.AGENT:
        row = next(iter(_CREDENTIAL(key_id=parsed.key_id)), None)
    if parsed is None or row is None or not token_matches(parsed.secret, digest=row.digest, pepper_id=row.pepper_id):
        raise BadAgentToken("This credential is not known. Join again with a new join token.")
    if row.superseded_at is not None and row.revoked_at is None and now - row.superseded_at > RENEWAL_GRACE:
        _lock(row, now)
    if row.cluster.agent.locked_at is not None:
        raise AgentCloned(
            "Two processes used one credential of this agent, so it is locked and its nodes stay as they are. "
            "An administrator must look, and issue a new join token."
        )
    if row.revoked_at is not None or row.superseded_at is not None or now >= row.expires_at:
        raise BadAgentToken("This credential has expired or was replaced. Join again with a new join token.")
    if row.first_used_at is None:
        _first_use(row, now)
    return AgentIdentity(row.cluster, row.cred_gen)


@transaction.atomic
def agent_renew(*, agent: AgentIdentity, now: datetime) -> Credential:
    AgentSession.objects.select_for_update().get(pk=agent.cluster.pk)
    # A successor that was never used was lost with its answer.
    AgentCredential.objects.filter(cluster=agent.cluster, first_used_at=None, revoked_at=None).exclude(cred_gen=agent.cred_gen).update(
        revoked_at=now
    )
    return _credential_issue(agent.cluster, now)


def session_check(session: AgentSession, session_epoch: int) -> None:
    """Raises AgentSuperseded for an older session."""
    if session_epoch != session.session_epoch:
        raise AgentSuperseded("Another process of this agent has begun a newer session. This one should stop.")


def _join_token(message: RegisterRequest, now: datetime) -> JoinToken:
    parsed = token_parse(message.join_token)
    token = None
    if parsed is not None and parsed.kind == TokenKind.JOIN:
        token = JoinToken.objects.select_for_update(of=("self",)).select_related("cluster").filter(key_id=parsed.key_id).first()
    known = token is not None and token_matches(parsed.secret, digest=token.digest, pepper_id=token.pepper_id) if parsed else False
    if token is None or not known or now >= token.expires_at or token.used_by not in {"", message.install_id}:
        raise BadAgentToken("This join token is unknown, used or expired. Ask an administrator for a new one.")
    return token


def _credential_issue(cluster: Cluster, now: datetime) -> Credential:
    last = AgentCredential.objects.filter(cluster=cluster).aggregate(last=Max("cred_gen"))["last"] or 0
    minted = token_mint(TokenKind.AGENT)
    row = AgentCredential.objects.create(
        cluster=cluster,
        key_id=minted.key_id,
        digest=minted.digest,
        pepper_id=minted.pepper_id,
        cred_gen=last + 1,
        created_at=now,
        expires_at=now + settings.EGS_AGENT_CREDENTIAL_LIFE,
    )
    return Credential(
        agent_id=str(cluster.pk),
        cluster=cluster.name,
        credential=minted.plain,
        cred_gen=row.cred_gen,
        expires_s=row.expires_at.timestamp(),
    )


@transaction.atomic
def _first_use(row: AgentCredential, now: datetime) -> None:
    AgentCredential.objects.filter(pk=row.pk, first_used_at=None).update(first_used_at=now)
    AgentCredential.objects.filter(cluster=row.cluster, cred_gen__lt=row.cred_gen, superseded_at=None).update(superseded_at=now)


@transaction.atomic
def _lock(row: AgentCredential, now: datetime) -> None:
    if row.cluster.agent.locked_at is not None:
        return
    join_tokens_end(cluster=row.cluster, now=now)  # a copy has the token and the install id as well
    if not AgentSession.objects.filter(cluster=row.cluster, locked_at=None).update(locked_at=now):
        return
    event_record(
        kind="agent.cloned",
        message=f"A replaced credential of cluster {row.cluster.name} was used: its agent may have been copied, and is locked.",
        at=now,
        severity=Severity.ERROR,
        cluster_id=row.cluster.pk,
        data={"cred_gen": row.cred_gen},
    )
    row.cluster.agent.locked_at = now
