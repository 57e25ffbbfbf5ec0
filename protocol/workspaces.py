"""Workspaces: their namespaces and accounts as the hub wants them and as the agent finds them."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from protocol.assignments import Desired
from protocol.scalars import Id, Word

BINDINGS_MAX = 200  # likewise: the hub answers in time


class BindingState(StrEnum):
    """How far the agent is with one namespace of a workspace."""

    READY = "READY"  # bound, and all that belongs to it is there
    WAITING = "WAITING"  # not yet: it is being deleted, a box has to end, or the cluster does not answer
    CONFLICT = "CONFLICT"  # it is somebody else's: people must act
    UNBOUND = "UNBOUND"  # as wanted, nobody of the workspace has access to it any more


class BindingSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One namespace of one workspace as the agent finds it. `detail`: a sentence for people, "" when it is READY.

    `repaired`: what somebody had changed by hand and is as it should be again; `left`: what is as they changed it.
    """

    slice: Id
    namespace: Id
    state: BindingState
    detail: str = ""
    repaired: tuple[Word, ...] = ()
    left: tuple[Word, ...] = ()


class IssuedToken(msgspec.Struct, frozen=True, kw_only=True):
    """What an account's token_s asked for, or why there is none (`failure`, a sentence; then all else is empty).

    `server` and `ca` (PEM): where the API server is and how it is known, as the agent reaches it. `expires_s`: as the API server
    said, which may cut the life short.
    """

    account: Id
    token: str = ""
    expires_s: float = 0.0
    server: str = ""
    ca: str = ""
    failure: str = ""

    def __repr__(self) -> str:
        return f"IssuedToken({self.account})"  # never the secret: this may stand in a log


class AccessRole(StrEnum):
    """What an account may do: the ClusterRole egs-slice-<role>."""

    USER = "user"
    VIEWER = "viewer"


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody's way into the namespaces of a workspace: one kubeconfig that was given out. What is not listed has no access.

    `namespace` is where its ServiceAccount lives. `token_s` > 0: the hub waits for a token of that life.
    """

    id: Id
    role: str
    namespace: str
    token_s: int = 0


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """`may_adopt`: an administrator said that it may be taken over though it was there before."""

    namespace: str
    desired: str = Desired.PRESENT
    may_adopt: bool = False


class Workspace(msgspec.Struct, frozen=True, kw_only=True):
    """A slice as its cluster shall have it. `pods_max`: in each namespace. `may_reach_out`: its pods may open connections beyond it."""

    id: Id
    name: str
    bindings: tuple[Binding, ...]
    accounts: tuple[Account, ...] = ()
    pods_max: int = 1000
    may_reach_out: bool = False
