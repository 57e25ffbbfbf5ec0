"""Defines EGS Sync v1: the agent connects to the hub; each exchange is one POST with a JSON body.

Every request has the header `EGS-Proto: 1.0`, and all but register have `Authorization: Bearer <credential>`. Unknown fields are ignored,
so either side may be one version ahead. The agent reports an unknown step or `desired` as UNSUPPORTED.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

PROTO = "1.0"
PROTO_MIN, PROTO_MAX = 1, 1
BODY_MAX_BYTES = 8 * 1024 * 1024
CLOCK_OFFSET_WARN_S, CLOCK_OFFSET_REFUSE_S = 2.0, 5.0


class Code(StrEnum):
    """An agent must act on these codes."""

    BAD_TOKEN = "agent_bad_token"  # noqa: S105  # 401: join token or credential unknown, expired or revoked
    WRONG_CLUSTER = "agent_wrong_cluster"  # 409: this record belongs to a cluster with another UID
    CLONED = "agent_cloned"  # 403: two agents use one credential; it is locked until an admin acts
    SUPERSEDED = "agent_superseded"  # 409: a newer session of this agent is active; this one must stop
    UNSUPPORTED_PROTO = "agent_unsupported_proto"  # 400


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Has the members of an RFC 9457 document that an agent reads."""

    status: int
    code: str
    detail: str = ""
