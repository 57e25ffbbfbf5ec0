"""Which pods of workspaces wait in the cluster, until the hub was told.

Nothing of it is written down: it is looked at again and again.
"""

from __future__ import annotations

from dataclasses import dataclass

from worker_agent.protocol import PodsWaiting, SyncRequest

Waiting = tuple[PodsWaiting, ...]


@dataclass(slots=True)
class WaitBook:
    """Not for several threads at once."""

    _seen: Waiting | None = None
    _told: tuple[Waiting, int, str] | None = None

    def see(self, found: Waiting) -> None:
        self._seen = found

    def untold(self, session_epoch: int, workspaces: str) -> Waiting | None:
        """A hub of a new session may have forgotten it; one with a new list of workspaces may have been told of namespaces it had not."""
        is_told = self._told == (self._seen, session_epoch, workspaces)
        return None if is_told else self._seen

    def take(self, told: SyncRequest) -> None:
        if told.waiting is not None:
            self._told = (told.waiting, told.session_epoch, told.have_workspaces)
