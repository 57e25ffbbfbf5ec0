"""Claims: objects of kind GPUProvisioningRequest, as agents report them and are told of them; what agents are told of any GPR's life,
and by which templates they make claims for pods that wait; and what they tell of Jobs that ran in GPRs.

What becomes of them is decided on a floor above: it names here, when the project starts, who answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Protocol
from uuid import UUID

import msgspec

from core.errors import InvalidInput
from inventory.models import AgentSession, Cluster
from inventory.services.agents import AgentIdentity, session_check
from protocol.messages import (
    CLAIMS_MAX,
    AutoTemplate,
    Claim,
    ClaimAnswer,
    ClaimsReply,
    ClaimState,
    ClaimVerdict,
    Id,
    JobFailed,
    LifeMark,
    Number,
)


class Claimants(Protocol):
    def told(self, cluster_id: UUID, now: datetime) -> tuple[ClaimState, ...]:
        """How all of the cluster stand, in order of id."""

    def life(self, cluster_id: UUID, now: datetime) -> tuple[LifeMark, ...]:
        """What happened lately to the GPRs that concern the cluster, whether they are objects or not."""

    def templates(self, cluster_id: UUID) -> tuple[AutoTemplate, ...]:
        """By which its agent makes requests for pods that wait, in order of id."""

    def heard(self, cluster: Cluster, claims: Sequence[Claim], now: datetime) -> Sequence[ClaimAnswer]:
        """Their answers, in order. In transactions of its own: one claim that is refused, or fails, does not stop the others."""

    def jobs_failed(self, cluster: Cluster, failed: Sequence[JobFailed], now: datetime) -> None:
        """Jobs that its agent found to have failed after they ran in boxes."""


class RawClaims(msgspec.Struct, frozen=True, kw_only=True):
    """A ClaimsRequest whose claims are read one by one, so that one that cannot be read is refused alone."""

    session_epoch: int
    claims: Annotated[tuple[msgspec.Raw, ...], msgspec.Meta(max_length=CLAIMS_MAX)]


class _Named(msgspec.Struct, frozen=True, kw_only=True):
    uid: Id
    generation: Number = 0


_claimants: list[Claimants] = []


def answer_by(claimants: Claimants) -> None:
    _claimants[:] = [claimants]


def told(cluster_id: UUID, now: datetime) -> tuple[ClaimState, ...]:
    return tuple(state for claimants in _claimants for state in claimants.told(cluster_id, now))


def life(cluster_id: UUID, now: datetime) -> tuple[LifeMark, ...]:
    return tuple(mark for claimants in _claimants for mark in claimants.life(cluster_id, now))


def templates(cluster_id: UUID) -> tuple[AutoTemplate, ...]:
    return tuple(template for claimants in _claimants for template in claimants.templates(cluster_id))


def jobs_failed(cluster: Cluster, failed: Sequence[JobFailed], now: datetime) -> None:
    for claimants in _claimants:
        claimants.jobs_failed(cluster, failed, now)


def heard(agent: AgentIdentity, message: RawClaims, now: datetime) -> ClaimsReply:
    """Raises AgentSuperseded. What does not even have a uid has no answer.

    The session is not locked meanwhile, as it is for events: a claim counts once by its uid, and to plan for it takes its time.
    """
    session_check(AgentSession.objects.get(pk=agent.cluster.pk), message.session_epoch)
    read = [_read(raw) for raw in message.claims]
    claims = [each for each in read if isinstance(each, Claim)]
    answers = iter([answer for claimants in _claimants for answer in claimants.heard(agent.cluster, claims, now)])
    return ClaimsReply(answers=tuple(next(answers) if isinstance(each, Claim) else each for each in read if each is not None))


def _read(raw: msgspec.Raw) -> Claim | ClaimAnswer | None:
    try:
        return msgspec.json.decode(raw, type=Claim)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _unreadable(raw, str(error))


def _unreadable(raw: msgspec.Raw, why: str) -> ClaimAnswer | None:
    try:
        named = msgspec.json.decode(raw, type=_Named)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    message = f"A value of the object cannot be read: {why}."
    return ClaimAnswer(uid=named.uid, generation=named.generation, verdict=ClaimVerdict.REFUSED, reason=InvalidInput.code, message=message)
