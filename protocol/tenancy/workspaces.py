"""Binds namespaces to workspaces, and gives members accounts there."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from protocol.assignments import Desired
from protocol.scalars import Id, Word

BINDINGS_MAX = 200  # in one message, so that the hub answers in time


class BindingState(StrEnum):
    READY = "READY"  # bound, with all of its objects
    WAITING = "WAITING"  # not yet: the namespace is being deleted, a box has to end, or the cluster does not answer
    CONFLICT = "CONFLICT"  # the namespace belongs to somebody else: people must act
    UNBOUND = "UNBOUND"  # as desired: members of the workspace have no access to it any more


class BindingSeen(msgspec.Struct, frozen=True, kw_only=True):
    slice: Id
    namespace: Id
    state: BindingState
    detail: str = ""  # a sentence for people; "" when READY
    repaired: tuple[Word, ...] = ()  # what somebody had changed by hand and the agent restored
    left: tuple[Word, ...] = ()  # what somebody changed by hand and the agent left so


class IssuedToken(msgspec.Struct, frozen=True, kw_only=True):
    """If `failure` is set, all other fields are empty."""

    account: Id
    token: str = ""
    expires_s: float = 0.0  # as the API server set it, possibly earlier than asked
    server: str = ""  # URL of the API server as the agent reaches it
    ca: str = ""  # certificates of the API server, PEM
    failure: str = ""  # a sentence for people

    def __repr__(self) -> str:
        return f"IssuedToken({self.account})"  # without the secret, since a log may print this


class AccessRole(StrEnum):
    """Each is the ClusterRole egs-slice-<role>."""

    USER = "user"
    VIEWER = "viewer"


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """Gives one kubeconfig access to the namespaces of a workspace. Accounts that are not listed have no access."""

    id: Id
    role: str
    namespace: str  # of its ServiceAccount
    token_s: int = 0  # if > 0, the hub waits for a token with this lifetime


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    namespace: str
    desired: str = Desired.PRESENT
    may_adopt: bool = False  # an administrator allowed the agent to take over a namespace that existed before


class Workspace(msgspec.Struct, frozen=True, kw_only=True):
    id: Id
    name: str
    bindings: tuple[Binding, ...]
    accounts: tuple[Account, ...] = ()
    pods_max: int = 1000  # in each namespace
    may_reach_out: bool = False  # pods may open connections to outside the workspace
