"""An agent registers with its hub and renews its credential."""

from __future__ import annotations

import msgspec

from protocol.agents.transport import PROTO_MAX, PROTO_MIN
from protocol.scalars import Id

REGISTER_PATH = "/agent/v1/register"
RENEW_PATH = "/agent/v1/credential/renew"


class RegisterRequest(msgspec.Struct, frozen=True, kw_only=True):
    join_token: str
    cluster_uid: Id  # UID of the namespace kube-system
    install_id: Id  # random, made once, so that the agent may repeat a register whose answer was lost
    agent_version: str
    proto_min: int = PROTO_MIN
    proto_max: int = PROTO_MAX
    capabilities: tuple[str, ...] = ()


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """The agent renews its secret at half its lifetime; the old one ends at the first use of the new one."""

    agent_id: str
    cluster: str
    credential: str
    cred_gen: int
    expires_s: float


class RenewRequest(msgspec.Struct, frozen=True, kw_only=True):
    cred_gen: int
