"""Learns which workspaces the hub wants in the cluster, and tells it how they are. Must not live here: any call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from protocol.agents.listings import WORKSPACES, ReceivedList
from protocol.agents.sync import SyncReply, SyncRequest
from protocol.assignments import Desired
from protocol.nodes.drift import Drift
from protocol.tenancy.workspaces import BINDINGS_MAX, Account, Binding, BindingSeen, BindingState, IssuedToken, Workspace

SIMULATED_HAS_NO_DOOR = "This cluster is simulated: there is nothing that a kubeconfig could reach."


@dataclass(frozen=True, slots=True)
class TenancyResult:
    """Leaves out what the pass could not look at."""

    accounts_left: tuple[str, ...] | None = None  # unwanted accounts that are still there
    bindings: tuple[BindingSeen, ...] = ()
    tokens: tuple[IssuedToken, ...] = ()
    drifts: tuple[Drift, ...] = ()  # in the installation, and additions in namespaces of workspaces
    is_unfinished: bool = False  # there is more to do than one pass does


class TenancyDriver(Protocol):
    def reconcile(
        self, workspaces: Sequence[Workspace], *, in_use: frozenset[str], has_token: frozenset[str], repairs: bool
    ) -> TenancyResult:
        """Bring the namespaces to this state as far as possible. Raises nothing. Without `repairs`, drift stays.

        `in_use`: ids and names of workspaces, and namespaces, with a box on a node; these are not unbound.
        `has_token`: accounts whose tokens exist and are on their way to the hub.
        """


class SimulatedTenancy:
    def reconcile(
        self, workspaces: Sequence[Workspace], *, in_use: frozenset[str], has_token: frozenset[str], repairs: bool
    ) -> TenancyResult:
        return TenancyResult(
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


class WorkspaceExchange:
    """The state is in memory only. The process guards it with its lock."""

    def __init__(self) -> None:
        self.workspaces = ReceivedList(WORKSPACES)
        self.is_seen = False  # whether the namespaces of `wanted` have been looked at
        self.accounts_left: tuple[str, ...] | None = None  # see TenancyResult; None: no pass over `wanted` yet
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
        return tuple(islice((seen for seen in self._bindings.values() if seen not in self._told), BINDINGS_MAX))

    @property
    def tokens_untold(self) -> tuple[IssuedToken, ...]:
        return tuple(token for token in self._tokens.values() if token not in self._told)

    @property
    def has_token(self) -> frozenset[str]:
        return frozenset(self._tokens)

    def take(self, asked: SyncRequest, reply: SyncReply) -> None:
        """All that the request held is acknowledged; a new list is reported in full."""
        self._told.update(asked.bindings, asked.tokens)
        self._left_told = asked.accounts_left
        before = _bindings_of(self.wanted)
        if not self.workspaces.hear(asked, reply):
            return
        now = _bindings_of(self.wanted)
        self.is_seen = not now
        self.accounts_left = self._left_told = None
        self._told.clear()
        # A report on another wish does not answer this one.
        self._bindings = {key: seen for key, seen in self._bindings.items() if key in now and now[key] == before.get(key)}
        # Secrets that the hub has, or does not want any more, are dropped.
        waiting = {account.id for account in waiting_accounts(self.wanted)}
        self._tokens = {id_: token for id_, token in self._tokens.items() if id_ in waiting}

    def report(self, workspaces: Sequence[Workspace], found: TenancyResult) -> None:
        if workspaces is not self.wanted:  # a new list came meanwhile: the next pass reports
            return
        self.is_seen = self.is_seen or bool(found.bindings)
        self.accounts_left = found.accounts_left
        self._bindings.update({(seen.slice, seen.namespace): seen for seen in found.bindings})
        self._tokens.update({token.account: token for token in found.tokens})
        self._told &= {*self._bindings.values(), *self._tokens.values()}


def _bindings_of(workspaces: Sequence[Workspace]) -> dict[tuple[str, str], Binding]:
    return {(workspace.id, binding.namespace): binding for workspace in workspaces for binding in workspace.bindings}


def waiting_accounts(workspaces: Sequence[Workspace]) -> list[Account]:
    return [account for workspace in workspaces for account in workspace.accounts if account.token_s > 0]
