# `make client` writes this file. Do not edit it.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from egs_client.aio.resource import AsyncResource
from egs_client.models import manifests as models


class Manifests(AsyncResource):
    async def apply(
        self,
        *,
        files: Annotated[Sequence[models.ManifestFileRequest], Meta(max_length=1000)],
        manager: Annotated[str, Meta(min_length=1, max_length=63)] | UnsetType = UNSET,
        is_forced: bool | UnsetType = UNSET,
        prune: Mapping[str, str] | UnsetType = UNSET,
        secrets: Mapping[str, str] | UnsetType = UNSET,
        is_partial: bool | UnsetType = UNSET,
    ) -> models.ManifestReport:
        """Make objects as manifests say. All or nothing: with a mistake the answer is 400 `invalid_manifests` with the member `faults`.

        manager: The owner of the fields in the manifests, e.g. `ci`. Another manager's apply does not change them.
        is_forced: Take over fields that other managers own.
        prune: Labels. Objects that this manager has applied with them are deleted when no document names them any more.
        secrets: Secrets of new channels, by the names in `secretFrom`.
        is_partial: Apply what can be applied, although other documents have mistakes.
        """
        return await self.client.call(
            "POST",
            "manifests/apply/",
            body={"files": files, "manager": manager, "is_forced": is_forced, "prune": prune, "secrets": secrets, "is_partial": is_partial},
            kind=models.ManifestReport,
        )

    async def delete(
        self,
        *,
        files: Annotated[Sequence[models.ManifestFileRequest], Meta(max_length=1000)],
        is_dry: bool | UnsetType = UNSET,
        is_partial: bool | UnsetType = UNSET,
    ) -> models.ManifestReport:
        """Delete what manifests name. Workspaces and projects are archived; clusters, supplies and people are kept.

        is_dry: Tell what would be deleted, and change nothing.
        is_partial: Delete what can be deleted, although other documents have mistakes.
        """
        return await self.client.call(
            "POST", "manifests/delete/", body={"files": files, "is_dry": is_dry, "is_partial": is_partial}, kind=models.ManifestReport
        )

    async def diff(
        self,
        *,
        files: Annotated[Sequence[models.ManifestFileRequest], Meta(max_length=1000)],
        manager: Annotated[str, Meta(min_length=1, max_length=63)] | UnsetType = UNSET,
        is_forced: bool | UnsetType = UNSET,
        prune: Mapping[str, str] | UnsetType = UNSET,
        secrets: Mapping[str, str] | UnsetType = UNSET,
    ) -> models.ManifestReport:
        """Tell what `apply/` would do, mistakes included. Nothing is changed.

        manager: The owner of the fields in the manifests, e.g. `ci`. Another manager's apply does not change them.
        is_forced: Take over fields that other managers own.
        prune: Labels. Objects that this manager has applied with them are deleted when no document names them any more.
        secrets: Secrets of new channels, by the names in `secretFrom`.
        """
        return await self.client.call(
            "POST",
            "manifests/diff/",
            body={"files": files, "manager": manager, "is_forced": is_forced, "prune": prune, "secrets": secrets},
            kind=models.ManifestReport,
        )

    async def export(
        self, *, kind: str | UnsetType = UNSET, name: str | UnsetType = UNSET, workspace: str | UnsetType = UNSET
    ) -> models.ManifestText:
        """Write what the caller may see as manifests, without secrets.

        kind: Kinds, e.g. `Workspace,Member`. Default: all but requests and booking series.
        name: Only objects of this name.
        workspace: Only this workspace and what belongs to it.
        """
        return await self.client.call(
            "GET", "manifests/export/", params={"kind": kind, "name": name, "workspace": workspace}, kind=models.ManifestText
        )
