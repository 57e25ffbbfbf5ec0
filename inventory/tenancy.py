"""The workspaces' part of EGS Sync, which the slices app implements."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol
from uuid import UUID

from inventory.models import Cluster
from protocol.sync import SyncRequest
from protocol.workspaces import Workspace


class Tenants(Protocol):
    def told(self, cluster_id: UUID) -> tuple[Workspace, ...]:
        """In order of id."""

    def heard(self, cluster: Cluster, message: SyncRequest, now: datetime) -> None:
        """Runs in a transaction of its own."""


_tenants: list[Tenants] = []


def answer_by(tenants: Tenants) -> None:
    _tenants[:] = [tenants]


def told(cluster_id: UUID) -> tuple[Workspace, ...]:
    return tuple(workspace for tenants in _tenants for workspace in tenants.told(cluster_id))


def heard(cluster: Cluster, message: SyncRequest, now: datetime) -> None:
    for tenants in _tenants:
        tenants.heard(cluster, message, now)
