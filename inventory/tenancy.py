"""Declares the workspaces' part of EGS Sync, which the slices app implements."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol
from uuid import UUID

from inventory.models import Cluster
from protocol.agents.sync import SyncRequest
from protocol.tenancy.workspaces import Workspace


class TenantReports(Protocol):
    def workspaces(self, cluster_id: UUID) -> tuple[Workspace, ...]:
        """Returns workspaces in order of id."""

    def take_report(self, cluster: Cluster, message: SyncRequest, now: datetime) -> None:
        """Runs in a transaction of its own."""


_tenants: list[TenantReports] = []


def register(tenants: TenantReports) -> None:
    _tenants[:] = [tenants]


def workspaces(cluster_id: UUID) -> tuple[Workspace, ...]:
    return tuple(workspace for tenants in _tenants for workspace in tenants.workspaces(cluster_id))


def take_report(cluster: Cluster, message: SyncRequest, now: datetime) -> None:
    for tenants in _tenants:
        tenants.take_report(cluster, message, now)
