"""Workspaces in the cluster: what the hub wants of them, and what it is told.

Lives here: the driver's interface, and the board between the thread that talks to the hub and the one that makes namespaces true.
Must not live here: any call. The process guards the board with its lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from protocol.assignments import Desired
from protocol.drift import Drift
from protocol.listings import WORKSPACES, HeardList
from protocol.sync import SyncReply, SyncRequest
from protocol.workspaces import BINDINGS_MAX, Account, Binding, BindingSeen, BindingState, IssuedToken, Workspace

SIMULATED_HAS_NO_DOOR = "This cluster is simulated: there is nothing that a kubeconfig could reach."


@dataclass(frozen=True, slots=True)
class Found:
    """After one pass. Of what it could not look at it says nothing. `accounts_left`: those that are not wanted, and are there still.
    `is_unfinished`: there was more to do than one pass does.
    """

    accounts_left: tuple[str, ...] | None = None
    bindings: tuple[BindingSeen, ...] = ()
    tokens: tuple[IssuedToken, ...] = ()
    drifts: tuple[Drift, ...] = ()  # of what was installed, and of what somebody added in namespaces of workspaces
    is_unfinished: bool = False


class Tenancy(Protocol):
    def reconcile(self, workspaces: Sequence[Workspace], *, in_use: frozenset[str], has_token: frozenset[str], repairs: bool) -> Found:
        """Make them true, as far as it goes; right at any time, any number of times. Raises nothing.

        `in_use`: ids and names of workspaces, and names of namespaces, with a box on a node: they are not unbound.
        `has_token`: accounts whose token was made already and is on its way to the hub. Without `repairs` what somebody else changed
        stays as it is.
        """


class SimulatedTenancy:
    """All is there at once."""

    def reconcile(self, workspaces: Sequence[Workspace], *, in_use: frozenset[str], has_token: frozenset[str], repairs: bool) -> Found:
        return Found(
            accounts_left=(),
            bindings=tuple(
                BindingSeen(
                    slice=workspace.id,
                    namespace=binding.namespace,
                    state=BindingState.UNBOUND if binding.desired == Desired.ABSENT else BindingState.READY,
                )
                for workspace in workspaces
                for binding in workspace.bindings
            ),
            tokens=tuple(
                IssuedToken(account=account.id, failure=SIMULATED_HAS_NO_DOOR)
                for account in waiting_accounts(workspaces)
                if account.id not in has_token
            ),
        )


class Board:
    """Nothing of it is written down: an agent that starts again asks for the list, and tells all that it finds."""

    def __init__(self) -> None:
        self.workspaces = HeardList(WORKSPACES)
        self.is_seen = False  # the namespaces of `wanted` have been looked at
        self.accounts_left: tuple[str, ...] | None = None  # see Found; None: `wanted` has not been worked on
        self._left_told: tuple[str, ...] | None = None
        self._bindings: dict[tuple[str, str], BindingSeen] = {}
        self._tokens: dict[str, IssuedToken] = {}
        self._told: set[BindingSeen | IssuedToken] = set()

    @property
    def wanted(self) -> tuple[Workspace, ...]:
        return self.workspaces.items

    @property
    def has_news(self) -> bool:
        return bool(self.bindings_untold or self.tokens_untold) or self.accounts_left != self._left_told

    @property
    def bindings_untold(self) -> tuple[BindingSeen, ...]:
        """As many as one message holds."""
        return tuple(islice((seen for seen in self._bindings.values() if seen not in self._told), BINDINGS_MAX))

    @property
    def tokens_untold(self) -> tuple[IssuedToken, ...]:
        return tuple(token for token in self._tokens.values() if token not in self._told)

    @property
    def has_token(self) -> frozenset[str]:
        return frozenset(self._tokens)

    def take(self, asked: SyncRequest, reply: SyncReply) -> None:
        """An answer of the hub that counts: what it was asked with is told; a new list is told all anew."""
        self._told.update(asked.bindings, asked.tokens)
        self._left_told = asked.accounts_left
        before = _bindings_of(self.wanted)
        if not self.workspaces.hear(asked, reply):
            return
        now = _bindings_of(self.wanted)
        self.is_seen = not now
        self.accounts_left = self._left_told = None
        self._told.clear()
        # What was seen of another wish is no answer to this one.
        self._bindings = {key: seen for key, seen in self._bindings.items() if key in now and now[key] == before.get(key)}
        # The hub has it, or does not want it any more: a secret is kept no longer than that.
        waiting = {account.id for account in waiting_accounts(self.wanted)}
        self._tokens = {id_: token for id_, token in self._tokens.items() if id_ in waiting}

    def report(self, workspaces: Sequence[Workspace], found: Found) -> None:
        """`workspaces`: the list that was worked on. Meanwhile another may have come: then the next pass reports."""
        if workspaces is not self.wanted:
            return
        self.is_seen = self.is_seen or bool(found.bindings)
        self.accounts_left = found.accounts_left
        self._bindings.update({(seen.slice, seen.namespace): seen for seen in found.bindings})
        self._tokens.update({token.account: token for token in found.tokens})
        self._told &= {*self._bindings.values(), *self._tokens.values()}


def _bindings_of(workspaces: Sequence[Workspace]) -> dict[tuple[str, str], Binding]:
    return {(workspace.id, binding.namespace): binding for workspace in workspaces for binding in workspace.bindings}


def waiting_accounts(workspaces: Sequence[Workspace]) -> list[Account]:
    """Those of which the hub wants a token."""
    return [account for workspace in workspaces for account in workspace.accounts if account.token_s > 0]
