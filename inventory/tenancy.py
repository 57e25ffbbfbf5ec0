"""What agents are told of workspaces, and say of them.

Workspaces live on the floor above: it names here, when the project starts, who answers.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol
from uuid import UUID

from inventory.models import Cluster
from protocol.messages import SyncRequest, Workspace


class Tenants(Protocol):
    def told(self, cluster_id: UUID) -> tuple[Workspace, ...]:
        """All that the cluster shall have, in order of id."""

    def heard(self, cluster: Cluster, message: SyncRequest, now: datetime) -> None:
        """What its agent reports. A transaction of its own."""


_tenants: list[Tenants] = []


def answer_by(tenants: Tenants) -> None:
    _tenants[:] = [tenants]


def told(cluster_id: UUID) -> tuple[Workspace, ...]:
    return tuple(workspace for tenants in _tenants for workspace in tenants.told(cluster_id))


def heard(cluster: Cluster, message: SyncRequest, now: datetime) -> None:
    for tenants in _tenants:
        tenants.heard(cluster, message, now)
