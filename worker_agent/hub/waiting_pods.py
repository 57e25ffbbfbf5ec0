"""Waiting pods and failed Jobs that the hub has not acknowledged yet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from protocol.agents.sync import SyncRequest
from protocol.tenancy.waiting_pods import JOBS_FAILED_MAX, JobFailed, PodsWaiting

Waiting = tuple[PodsWaiting, ...]


@dataclass(slots=True)
class WaitingPodsReport:
    _seen: Waiting | None = None
    _told: tuple[Waiting, int, str] | None = None

    def see(self, found: Waiting) -> None:
        self._seen = found

    def untold(self, session_epoch: int, workspaces: str) -> Waiting | None:
        # A hub of a new session may have forgotten them, and one with a new list of workspaces may have new namespaces.
        is_told = self._told == (self._seen, session_epoch, workspaces)
        return None if is_told else self._seen

    def take(self, told: SyncRequest) -> None:
        if told.waiting is not None:
            self._told = (told.waiting, told.session_epoch, told.have_workspaces)


@dataclass(slots=True)
class FailedJobsReport:
    _untold: dict[JobFailed, None] = field(default_factory=dict)

    @property
    def untold(self) -> tuple[JobFailed, ...]:
        return tuple(self._untold)[:JOBS_FAILED_MAX]

    def see(self, found: Iterable[JobFailed]) -> None:
        self._untold |= dict.fromkeys(found)

    def take(self, told: Iterable[JobFailed]) -> None:
        for failed in told:
            self._untold.pop(failed, None)
