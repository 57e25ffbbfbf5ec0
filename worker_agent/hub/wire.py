"""Decodes messages. The digest of a set counts unknown fields."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from protocol.agents.sync import SyncReply
from protocol.agents.transport import Problem
from protocol.decoding import decode
from worker_agent.hub.link import encoded_digest


@dataclass(frozen=True, slots=True)
class Received:
    reply: SyncReply
    raw_digest: str


class _RawSet(msgspec.Struct):
    assignments: list[msgspec.Raw] | None = None


def read_sync_reply(body: bytes) -> Received:
    """Raises msgspec.DecodeError on anything that is not a SyncReply."""
    reply = decode(body, SyncReply)
    raw = decode(body, _RawSet).assignments
    return Received(reply=reply, raw_digest=encoded_digest(raw) if raw is not None else "")


def read_problem(status: int, body: bytes) -> Problem:
    try:
        return decode(body, Problem)
    except msgspec.DecodeError:
        return Problem(status=status, code="", detail=body[:200].decode(errors="replace"))
