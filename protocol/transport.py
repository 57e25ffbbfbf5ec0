"""EGS Sync v1, the exchange between hub and agent: its version, its limits, and the problem document of a refusal.

The agent dials out; each exchange is one POST with a JSON body. `Authorization: Bearer <credential>` is sent on all but
register, `EGS-Proto: 1.0` on all. Unknown fields are ignored, so that either side may be one version ahead. An unknown
step or `desired` is reported as UNSUPPORTED, never skipped. The messages are in the modules beside this one.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

PROTO = "1.0"
PROTO_MIN, PROTO_MAX = 1, 1
BODY_MAX_BYTES = 8 * 1024 * 1024
CLOCK_OFFSET_WARN_S, CLOCK_OFFSET_REFUSE_S = 2.0, 5.0


class Code(StrEnum):
    """The `code` of a problem document that an agent must act on."""

    BAD_TOKEN = "agent_bad_token"  # noqa: S105  # 401: join token or credential unknown, expired or revoked
    WRONG_CLUSTER = "agent_wrong_cluster"  # 409: this record belongs to a cluster with another UID
    CLONED = "agent_cloned"  # 403: two use one credential; locked until an admin acts
    SUPERSEDED = "agent_superseded"  # 409: a newer session of this agent is at work; stop
    UNSUPPORTED_PROTO = "agent_unsupported_proto"  # 400


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """The part of an RFC 9457 problem document that an agent reads."""

    status: int
    code: str
    detail: str = ""
