# `make client` writes this file. Do not edit it.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from egs_client.aio.pages import AsyncPages
from egs_client.aio.resource import AsyncResource
from egs_client.models import inventory as models
from egs_client.models import shared


class CheckPolicies(AsyncResource):
    def list(
        self, *, cluster: str | UnsetType = UNSET, page_size: int | UnsetType = UNSET, shape: str | UnsetType = UNSET
    ) -> AsyncPages[models.CheckPolicy]:
        """Sorted by created_at (descending), id.

        page_size: Rows a page.
        """
        return AsyncPages(
            self.client, "check-policies/", params={"cluster": cluster, "page_size": page_size, "shape": shape}, kind=models.CheckPolicy
        )

    async def create(
        self,
        *,
        cluster: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[^\\x00]*$")],
        limits: Mapping[str, float] | UnsetType = UNSET,
        images: Mapping[str, str] | UnsetType = UNSET,
        skipped_steps: Annotated[Sequence[str], Meta(max_length=20)] | UnsetType = UNSET,
        storage_class: Annotated[str, Meta(max_length=253)] | UnsetType = UNSET,
        rdma_subnet: Annotated[str, Meta(max_length=19)] | UnsetType = UNSET,
        runtime_class: Annotated[str, Meta(max_length=253)] | UnsetType = UNSET,
        pull_secret: Annotated[str, Meta(max_length=253)] | UnsetType = UNSET,
        shape: Annotated[str, Meta(max_length=63)] | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.CheckPolicy:
        """It applies to checks that begin later.

        limits: Thresholds by name; others keep their defaults.
        images: `probe`, `nccl`. Without an `nccl` image NCCL is not measured.
        storage_class: Empty: the cluster's default.
        rdma_subnet: First half of the GIDs of RDMA ports; empty: any.
        runtime_class: Runtime class of the pods that check GPUs, e.g. `nvidia`; empty: the agent's default.
        pull_secret: Image pull Secret in egs-system; empty: the agent's default.
        shape: Empty: all shapes. A shape's own policy takes precedence.
        """
        return await self.client.call(
            "POST",
            "check-policies/",
            body={
                "limits": limits,
                "images": images,
                "skipped_steps": skipped_steps,
                "storage_class": storage_class,
                "rdma_subnet": rdma_subnet,
                "runtime_class": runtime_class,
                "pull_secret": pull_secret,
                "cluster": cluster,
                "shape": shape,
            },
            is_keyed=True,
            key=idempotency_key,
            kind=models.CheckPolicy,
        )

    async def get(self, id: str) -> models.CheckPolicy:
        """GET check-policies/{id}/"""
        return await self.client.call("GET", f"check-policies/{self.quoted(id)}/", kind=models.CheckPolicy)

    async def update(
        self,
        id: str,
        *,
        limits: Mapping[str, float] | UnsetType = UNSET,
        images: Mapping[str, str] | UnsetType = UNSET,
        skipped_steps: Annotated[Sequence[str], Meta(max_length=20)] | UnsetType = UNSET,
        storage_class: Annotated[str, Meta(max_length=253)] | UnsetType = UNSET,
        rdma_subnet: Annotated[str, Meta(max_length=19)] | UnsetType = UNSET,
        runtime_class: Annotated[str, Meta(max_length=253)] | UnsetType = UNSET,
        pull_secret: Annotated[str, Meta(max_length=253)] | UnsetType = UNSET,
        why: Annotated[str, Meta(max_length=150)] | UnsetType = UNSET,
        if_match: str | None = None,
    ) -> models.CheckPolicy:
        """It applies to checks that begin later.

        limits: Thresholds by name; others keep their defaults.
        images: `probe`, `nccl`. Without an `nccl` image NCCL is not measured.
        storage_class: Empty: the cluster's default.
        rdma_subnet: First half of the GIDs of RDMA ports; empty: any.
        runtime_class: Runtime class of the pods that check GPUs, e.g. `nvidia`; empty: the agent's default.
        pull_secret: Image pull Secret in egs-system; empty: the agent's default.
        if_match: the ETag of the state that is meant; * for any. Default: that of the last reading, if there was one.
        """
        return await self.client.call(
            "PATCH",
            f"check-policies/{self.quoted(id)}/",
            body={
                "limits": limits,
                "images": images,
                "skipped_steps": skipped_steps,
                "storage_class": storage_class,
                "rdma_subnet": rdma_subnet,
                "runtime_class": runtime_class,
                "pull_secret": pull_secret,
                "why": why,
            },
            if_match=if_match,
            kind=models.CheckPolicy,
        )

    async def delete(self, id: str, *, if_match: str | None = None) -> None:
        """The default limits apply from now on.

        if_match: the ETag of the state that is meant; * for any. Default: that of the last reading, if there was one.
        """
        await self.client.call("DELETE", f"check-policies/{self.quoted(id)}/", if_match=if_match, kind=type(None))


class Clusters(AsyncResource):
    def list(self, *, page_size: int | UnsetType = UNSET) -> AsyncPages[models.Cluster]:
        """Sorted by name, id.

        page_size: Rows a page.
        """
        return AsyncPages(self.client, "clusters/", params={"page_size": page_size}, kind=models.Cluster)

    async def create(
        self,
        *,
        name: Annotated[str, Meta(min_length=1, pattern="^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")],
        idempotency_key: str | None = None,
    ) -> models.Cluster:
        """POST clusters/

        name: Letters, digits, dots, dashes and underscores, beginning and ending with a letter or a digit; 63 at most.
        """
        return await self.client.call("POST", "clusters/", body={"name": name}, is_keyed=True, key=idempotency_key, kind=models.Cluster)

    async def get(self, ref: str) -> models.Cluster:
        """GET clusters/{ref}/"""
        return await self.client.call("GET", f"clusters/{self.quoted(ref)}/", kind=models.Cluster)

    async def update(
        self,
        ref: str,
        *,
        api_url: Annotated[str, Meta(pattern="^[^\\x00]*$")] | UnsetType = UNSET,
        repairs_drift: bool | UnsetType = UNSET,
        drain_grace_s: Annotated[int, Meta(ge=0, le=86400)] | UnsetType = UNSET,
        drain_force_after_s: Annotated[int, Meta(ge=1, le=86400)] | UnsetType = UNSET,
        if_match: str | None = None,
    ) -> models.Cluster:
        """PATCH clusters/{ref}/

        api_url: API server address in kubeconfigs; empty: the address that the agent uses.
        repairs_drift: Whether to repair changes that others make to EGS objects in the cluster, or only report them.
        drain_grace_s: How long a disruption budget may keep a pod after the end of its request.
        drain_force_after_s: How long after the end of its request a pod is killed.
        if_match: the ETag of the state that is meant; * for any. Default: that of the last reading, if there was one.
        """
        return await self.client.call(
            "PATCH",
            f"clusters/{self.quoted(ref)}/",
            body={
                "api_url": api_url,
                "repairs_drift": repairs_drift,
                "drain_grace_s": drain_grace_s,
                "drain_force_after_s": drain_force_after_s,
            },
            if_match=if_match,
            kind=models.Cluster,
        )

    async def disable(self, ref: str, *, idempotency_key: str | None = None) -> models.Cluster:
        """Nothing new starts there. Running requests continue to their end; waiting ones are planned elsewhere, or for when it may be
        back.
        """
        return await self.client.call(
            "POST", f"clusters/{self.quoted(ref)}/disable/", body={}, is_keyed=True, key=idempotency_key, kind=models.Cluster
        )

    async def enable(self, ref: str, *, idempotency_key: str | None = None) -> models.Cluster:
        """Requests may start there again, if its agent is connected."""
        return await self.client.call(
            "POST", f"clusters/{self.quoted(ref)}/enable/", body={}, is_keyed=True, key=idempotency_key, kind=models.Cluster
        )

    async def join_token(self, ref: str, *, idempotency_key: str | None = None) -> models.JoinToken:
        """Issue a new token for the cluster's agent, shown once. It ends unused earlier tokens and unlocks a locked agent."""
        return await self.client.call(
            "POST", f"clusters/{self.quoted(ref)}/join-token/", body={}, is_keyed=True, key=idempotency_key, kind=models.JoinToken
        )

    async def resume(self, ref: str, *, idempotency_key: str | None = None) -> models.Cluster:
        """Continue after a rewind, when the administrator has compared the agent's state with the hub's."""
        return await self.client.call(
            "POST", f"clusters/{self.quoted(ref)}/resume/", body={}, is_keyed=True, key=idempotency_key, kind=models.Cluster
        )


class Gpus(AsyncResource):
    def list(
        self,
        *,
        cluster: str | UnsetType = UNSET,
        hardware_uuid: str | UnsetType = UNSET,
        node: str | UnsetType = UNSET,
        page_size: int | UnsetType = UNSET,
        state: Sequence[Literal["draining", "free", "held", "unusable"]] | UnsetType = UNSET,
        uuid: str | UnsetType = UNSET,
    ) -> AsyncPages[models.Gpu]:
        """Sorted by node.name, index, id.

        page_size: Rows a page.
        """
        return AsyncPages(
            self.client,
            "gpus/",
            params={"cluster": cluster, "hardware_uuid": hardware_uuid, "node": node, "page_size": page_size, "state": state, "uuid": uuid},
            kind=models.Gpu,
        )

    async def metrics(
        self,
        ref: str,
        *,
        since_at: datetime | str | UnsetType = UNSET,
        step_s: Literal[15, 60, 600] | UnsetType = UNSET,
        until_at: datetime | str | UnsetType = UNSET,
    ) -> models.Course:
        """Show what a GPU did. A member sees the times in which a box of his workspaces held it.

        since_at: By default an hour before the end.
        step_s: The finest step wanted. Coarser ones answer where the finer one is no longer kept.
        until_at: By default now.
        """
        return await self.client.call(
            "GET",
            f"gpus/{self.quoted(ref)}/metrics/",
            params={"since_at": since_at, "step_s": step_s, "until_at": until_at},
            kind=models.Course,
        )


class Nodes(AsyncResource):
    @cached_property
    def steps(self) -> NodesSteps:
        return NodesSteps(self.client)

    def list(
        self,
        *,
        cluster: str | UnsetType = UNSET,
        name: str | UnsetType = UNSET,
        page_size: int | UnsetType = UNSET,
        shape: str | UnsetType = UNSET,
        state: Sequence[Literal["draining", "free", "held", "unusable"]] | UnsetType = UNSET,
    ) -> AsyncPages[models.Node]:
        """Sorted by name, id.

        page_size: Rows a page.
        """
        return AsyncPages(
            self.client,
            "nodes/",
            params={"cluster": cluster, "name": name, "page_size": page_size, "shape": shape, "state": state},
            kind=models.Node,
        )

    async def get(self, ref: str) -> models.Node:
        """GET nodes/{ref}/"""
        return await self.client.call("GET", f"nodes/{self.quoted(ref)}/", kind=models.Node)

    async def cordon(
        self, ref: str, *, why: Annotated[str, Meta(min_length=1, max_length=150)], idempotency_key: str | None = None
    ) -> models.Node:
        """Nothing new starts on the node. Running requests continue to their end; planned ones start elsewhere.

        why: The reason, which is recorded with the user's name.
        """
        return await self.client.call(
            "POST", f"nodes/{self.quoted(ref)}/cordon/", body={"why": why}, is_keyed=True, key=idempotency_key, kind=models.Node
        )

    async def force_release(
        self,
        ref: str,
        *,
        why: Annotated[str, Meta(min_length=1, max_length=150)],
        reservations: Annotated[Sequence[str], Meta(min_length=1, max_length=100)],
        idempotency_key: str | None = None,
    ) -> models.Node:
        """Free the node without its agent's confirmation: the administrator vouches that nothing of these reservations runs on it.

        why: The reason, which is recorded with the user's name.
        reservations: Ids of reservations that hold the node.
        """
        return await self.client.call(
            "POST",
            f"nodes/{self.quoted(ref)}/force-release/",
            body={"why": why, "reservations": reservations},
            is_keyed=True,
            key=idempotency_key,
            kind=models.Node,
        )

    async def uncordon(self, ref: str, *, idempotency_key: str | None = None) -> models.Node:
        """Requests may start on the node again."""
        return await self.client.call(
            "POST", f"nodes/{self.quoted(ref)}/uncordon/", body={}, is_keyed=True, key=idempotency_key, kind=models.Node
        )


class NodesSteps(AsyncResource):
    def list(self, node_ref: str, *, page_size: int | UnsetType = UNSET) -> AsyncPages[shared.Step]:
        """List all attempts at entry and exit steps on a node, of every request, the newest first. Administrators alone call it.

        page_size: Rows a page.
        """
        return AsyncPages(self.client, f"nodes/{self.quoted(node_ref)}/steps/", params={"page_size": page_size}, kind=shared.Step)


class Schedule(AsyncResource):
    def list(
        self,
        *,
        cluster: str | UnsetType = UNSET,
        from_: datetime | str | UnsetType = UNSET,
        gpr: str | UnsetType = UNSET,
        node: str | UnsetType = UNSET,
        page_size: int | UnsetType = UNSET,
        slice: str | UnsetType = UNSET,
        state: Sequence[Literal["HELD", "PLANNED", "RELEASED"]] | UnsetType = UNSET,
        to: datetime | str | UnsetType = UNSET,
    ) -> AsyncPages[models.Schedule]:
        """Reservations of nodes, oldest first.

        page_size: Rows a page.
        """
        return AsyncPages(
            self.client,
            "schedule/",
            params={
                "cluster": cluster,
                "from": from_,
                "gpr": gpr,
                "node": node,
                "page_size": page_size,
                "slice": slice,
                "state": state,
                "to": to,
            },
            kind=models.Schedule,
        )


class Shapes(AsyncResource):
    def list(self) -> AsyncPages[models.Shape]:
        """GET shapes/"""
        return AsyncPages(self.client, "shapes/", kind=models.Shape)
