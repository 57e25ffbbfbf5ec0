# `make client` writes this file. Do not edit it.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from egs_client.aio.pages import AsyncPages
from egs_client.aio.resource import AsyncResource
from egs_client.models import gpr as models
from egs_client.models import shared


class Approvals(AsyncResource):
    def list(
        self,
        *,
        before: datetime | str | UnsetType = UNSET,
        page_size: int | UnsetType = UNSET,
        project: str | UnsetType = UNSET,
        slice: str | UnsetType = UNSET,
    ) -> AsyncPages[models.Approval]:
        """List what waits for the caller's decision, or for that of people whose deputy he is, the most urgent first.

        page_size: Rows a page.
        """
        return AsyncPages(
            self.client,
            "approvals/",
            params={"before": before, "page_size": page_size, "project": project, "slice": slice},
            kind=models.Approval,
        )


class BookingSeries(AsyncResource):
    def list(
        self, *, canceled: bool | UnsetType = UNSET, page_size: int | UnsetType = UNSET, slice: str | UnsetType = UNSET
    ) -> AsyncPages[models.BookingSeries]:
        """Sorted by created_at (descending), id.

        page_size: Rows a page.
        """
        return AsyncPages(
            self.client, "booking-series/", params={"canceled": canceled, "page_size": page_size, "slice": slice}, kind=models.BookingSeries
        )

    async def create(
        self,
        *,
        name: str,
        slice: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[^\\x00]*$")],
        first_start_at: datetime | str,
        rule: Literal["daily", "weekdays", "weekly"],
        shape: str | UnsetType = UNSET,
        min_gpu_memory_gib: Annotated[int, Meta(ge=1, le=100000)] | UnsetType | None = UNSET,
        nodes: Annotated[int, Meta(ge=1, le=10000)] | UnsetType = UNSET,
        gpus_per_node: Annotated[int, Meta(ge=1, le=1024)] | UnsetType | None = UNSET,
        duration_s: int | str | UnsetType = UNSET,
        priority: Annotated[int, Meta(ge=1, le=300)] | UnsetType = UNSET,
        clusters: Annotated[Sequence[str], Meta(max_length=100)] | UnsetType = UNSET,
        node_type: Annotated[str, Meta(max_length=63)] | UnsetType = UNSET,
        rdma: bool | UnsetType = UNSET,
        within: Literal[""] | Literal["rack", "nvlink"] | UnsetType = UNSET,
        idle_timeout_s: int | str | UnsetType | None = UNSET,
        evictable: bool | UnsetType = UNSET,
        may_evict: bool | UnsetType = UNSET,
        requeue_on_failure: bool | UnsetType = UNSET,
        run_checks: bool | UnsetType = UNSET,
        model: Mapping[str, Any] | UnsetType = UNSET,
        zone: Annotated[str, Meta(min_length=1, max_length=64)] | UnsetType = UNSET,
        until_at: datetime | str | UnsetType | None = UNSET,
        count: Annotated[int, Meta(ge=1, le=200)] | UnsetType | None = UNSET,
        idempotency_key: str | None = None,
    ) -> models.BookingSeriesDetail:
        """Create a series and book its first four weeks. Bookings that do not fit are listed with the nearest times.

        shape: E.g. H100-80GB. Empty, with `min_gpu_memory_gib`: EGS chooses the shape.
        nodes: Required unless the template has it.
        gpus_per_node: Null: all of each node.
        duration_s: Required unless the template has it.
        priority: A higher priority is first. Default: 101.
        clusters: Clusters where it may run. Empty: all of the slice.
        within: A rack or NVLink domain that all of its nodes must share. EGS always places them as near to each other as possible.
        idle_timeout_s: It is released when its GPUs did nothing for so long, 5 minutes at least. 0: never. Null: as long as the
            policy says.
        model: Name and parameters of the model, in any form.
        zone: The time zone, e.g. Europe/Berlin. Every booking starts at the same local time.
        until_at: No booking starts later. Give this or `count`.
        count: The number of bookings, 200 at most.
        """
        return await self.client.call(
            "POST",
            "booking-series/",
            body={
                "name": name,
                "shape": shape,
                "min_gpu_memory_gib": min_gpu_memory_gib,
                "nodes": nodes,
                "gpus_per_node": gpus_per_node,
                "duration_s": duration_s,
                "priority": priority,
                "clusters": clusters,
                "node_type": node_type,
                "rdma": rdma,
                "within": within,
                "idle_timeout_s": idle_timeout_s,
                "evictable": evictable,
                "may_evict": may_evict,
                "requeue_on_failure": requeue_on_failure,
                "run_checks": run_checks,
                "model": model,
                "slice": slice,
                "first_start_at": first_start_at,
                "rule": rule,
                "zone": zone,
                "until_at": until_at,
                "count": count,
            },
            is_keyed=True,
            key=idempotency_key,
            kind=models.BookingSeriesDetail,
        )

    async def get(self, ref: str) -> models.BookingSeriesDetail:
        """GET booking-series/{ref}/"""
        return await self.client.call("GET", f"booking-series/{self.quoted(ref)}/", kind=models.BookingSeriesDetail)

    async def delete(self, ref: str) -> None:
        """Cancel the series and its waiting requests. Running requests continue to their end, and the series stays in the list."""
        await self.client.call("DELETE", f"booking-series/{self.quoted(ref)}/", kind=type(None))


class Budgets(AsyncResource):
    def list(
        self,
        *,
        page_size: int | UnsetType = UNSET,
        period: Sequence[Literal["month", "range", "week"]] | UnsetType = UNSET,
        project: str | UnsetType = UNSET,
        shape: str | UnsetType = UNSET,
        slice: str | UnsetType = UNSET,
    ) -> AsyncPages[models.Budget]:
        """List budgets with their use. A member sees those of his slices and of their projects.

        page_size: Rows a page.
        project: Id or name. Includes those of its slices.
        slice: Id or name.
        """
        return AsyncPages(
            self.client,
            "budgets/",
            params={"page_size": page_size, "period": period, "project": project, "shape": shape, "slice": slice},
            kind=models.Budget,
        )

    async def create(
        self,
        *,
        gpu_hours: Annotated[int, Meta(ge=1, le=2147483647)],
        period: Literal["week", "month", "range"],
        why: Annotated[str, Meta(max_length=300)] | UnsetType = UNSET,
        starts_at: datetime | str | UnsetType = UNSET,
        ends_at: datetime | str | UnsetType = UNSET,
        at_limit: Literal["approve", "refuse"] | UnsetType = UNSET,
        project: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[^\\x00]*$")] | UnsetType = UNSET,
        slice: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[^\\x00]*$")] | UnsetType = UNSET,
        shape: Annotated[str, Meta(max_length=63)] | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.Budget:
        """Create a budget of GPU-hours for a project, or for a slice.

        starts_at: Only a range has it.
        ends_at: Only a range has it.
        project: Give either this or `slice`.
        shape: Empty: GPUs of all shapes.
        """
        return await self.client.call(
            "POST",
            "budgets/",
            body={
                "why": why,
                "gpu_hours": gpu_hours,
                "starts_at": starts_at,
                "ends_at": ends_at,
                "at_limit": at_limit,
                "project": project,
                "slice": slice,
                "shape": shape,
                "period": period,
            },
            is_keyed=True,
            key=idempotency_key,
            kind=models.Budget,
        )

    async def get(self, id: str) -> models.Budget:
        """GET budgets/{id}/"""
        return await self.client.call("GET", f"budgets/{self.quoted(id)}/", kind=models.Budget)

    async def update(
        self,
        id: str,
        *,
        why: Annotated[str, Meta(max_length=300)] | UnsetType = UNSET,
        gpu_hours: Annotated[int, Meta(ge=1, le=2147483647)] | UnsetType = UNSET,
        starts_at: datetime | str | UnsetType = UNSET,
        ends_at: datetime | str | UnsetType = UNSET,
        at_limit: Literal["approve", "refuse"] | UnsetType = UNSET,
        if_match: str | None = None,
    ) -> models.Budget:
        """Change the budget. A budget that is smaller than its use ends nothing.

        starts_at: Only a range has it.
        ends_at: Only a range has it.
        if_match: the ETag of the state that is meant; * for any. Default: that of the last reading, if there was one.
        """
        return await self.client.call(
            "PATCH",
            f"budgets/{self.quoted(id)}/",
            body={"why": why, "gpu_hours": gpu_hours, "starts_at": starts_at, "ends_at": ends_at, "at_limit": at_limit},
            if_match=if_match,
            kind=models.Budget,
        )

    async def delete(self, id: str, *, why: str | UnsetType = UNSET, if_match: str | None = None) -> None:
        """DELETE budgets/{id}/

        why: The reason, which is recorded with the user's name.
        if_match: the ETag of the state that is meant; * for any. Default: that of the last reading, if there was one.
        """
        await self.client.call("DELETE", f"budgets/{self.quoted(id)}/", params={"why": why}, if_match=if_match, kind=type(None))


class Defragmentation(AsyncResource):
    def list(self) -> AsyncPages[models.Suggestion]:
        """List proposals for waiting requests, the lowest cost first. Nothing moves until an administrator applies one."""
        return AsyncPages(self.client, "defragmentation/", kind=models.Suggestion)

    async def question(
        self,
        *,
        shape: Annotated[str, Meta(min_length=1)],
        nodes: Annotated[int, Meta(ge=1, le=10000)],
        starts_at: datetime | str,
        duration_s: int | str,
        gpus_per_node: Annotated[int, Meta(ge=1, le=1024)] | UnsetType | None = UNSET,
        cluster: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[^\\x00]*$")] | UnsetType = UNSET,
        priority: Annotated[int, Meta(ge=1, le=300)] | UnsetType = UNSET,
    ) -> models.RoomAnswer:
        """Ask whether a booking would fit, and which moves would make it fit. Nothing is written.

        shape: The GPU shape, e.g. H100-80GB.
        gpus_per_node: Null: whole nodes.
        cluster: Default: any cluster.
        priority: Requests of a higher priority are not moved.
        """
        return await self.client.call(
            "POST",
            "defragmentation/question/",
            body={
                "shape": shape,
                "nodes": nodes,
                "gpus_per_node": gpus_per_node,
                "starts_at": starts_at,
                "duration_s": duration_s,
                "cluster": cluster,
                "priority": priority,
            },
            kind=models.RoomAnswer,
        )

    async def apply(
        self,
        id: str,
        *,
        fingerprint: Annotated[str, Meta(min_length=1, max_length=64)],
        why: Annotated[str, Meta(min_length=1, max_length=300)],
        idempotency_key: str | None = None,
    ) -> models.Eviction:
        """Apply the proposal for this GPR: the moved requests get notice, and the GPR gets a promise of their nodes.

        fingerprint: Fingerprint of the proposal that you read. The answer is 409 if it has changed.
        why: The reason, which is recorded with the user's name.
        """
        return await self.client.call(
            "POST",
            f"defragmentation/{self.quoted(id)}/apply/",
            body={"fingerprint": fingerprint, "why": why},
            is_keyed=True,
            key=idempotency_key,
            kind=models.Eviction,
        )


class Events(AsyncResource):
    def list(
        self,
        *,
        cluster: str | UnsetType = UNSET,
        gpr: str | UnsetType = UNSET,
        kind: str | UnsetType = UNSET,
        node: str | UnsetType = UNSET,
        page_size: int | UnsetType = UNSET,
        severity: Sequence[Literal["error", "info", "warning"]] | UnsetType = UNSET,
        since: datetime | str | UnsetType = UNSET,
        slice: str | UnsetType = UNSET,
    ) -> AsyncPages[models.Event]:
        """Sorted by id (descending).

        cluster: Id or name.
        gpr: Id or name.
        node: Id or name.
        page_size: Rows a page.
        slice: Id or name.
        """
        return AsyncPages(
            self.client,
            "events/",
            params={
                "cluster": cluster,
                "gpr": gpr,
                "kind": kind,
                "node": node,
                "page_size": page_size,
                "severity": severity,
                "since": since,
                "slice": slice,
            },
            kind=models.Event,
        )


class Evictions(AsyncResource):
    def list(
        self, *, gpr: str | UnsetType = UNSET, page_size: int | UnsetType = UNSET, since: datetime | str | UnsetType = UNSET
    ) -> AsyncPages[models.Eviction]:
        """Sorted by made_at (descending), id.

        gpr: Id or name of the beneficiary or of a victim.
        page_size: Rows a page.
        """
        return AsyncPages(self.client, "evictions/", params={"gpr": gpr, "page_size": page_size, "since": since}, kind=models.Eviction)


class Gprs(AsyncResource):
    @cached_property
    def steps(self) -> GprsSteps:
        return GprsSteps(self.client)

    def list(
        self,
        *,
        cluster: str | UnsetType = UNSET,
        ended: bool | UnsetType = UNSET,
        idempotency_key: str | UnsetType = UNSET,
        is_booking: bool | UnsetType = UNSET,
        name: str | UnsetType = UNSET,
        owner: str | UnsetType = UNSET,
        page_size: int | UnsetType = UNSET,
        priority_max: int | UnsetType = UNSET,
        priority_min: int | UnsetType = UNSET,
        slice: str | UnsetType = UNSET,
        state: Sequence[
            Literal[
                "ACTIVE",
                "CANCELED",
                "COMPLETED",
                "EVICTED",
                "EXITING",
                "FAILED",
                "PENDING_APPROVAL",
                "PROVISIONING",
                "QUEUED",
                "REJECTED",
                "RELEASED",
            ]
        ]
        | UnsetType = UNSET,
    ) -> AsyncPages[models.Gpr]:
        """Sorted by created_at (descending), id.

        cluster: The cluster of its nodes.
        idempotency_key: What your POST with this key has made, by itself or as a job.
        name: Part of the name.
        owner: Id or name, or `me`.
        page_size: Rows a page.
        """
        return AsyncPages(
            self.client,
            "gprs/",
            params={
                "cluster": cluster,
                "ended": ended,
                "idempotency_key": idempotency_key,
                "is_booking": is_booking,
                "name": name,
                "owner": owner,
                "page_size": page_size,
                "priority_max": priority_max,
                "priority_min": priority_min,
                "slice": slice,
                "state": state,
            },
            kind=models.Gpr,
        )

    async def create(
        self,
        *,
        name: str,
        slice: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[^\\x00]*$")],
        shape: str | UnsetType = UNSET,
        min_gpu_memory_gib: Annotated[int, Meta(ge=1, le=100000)] | UnsetType | None = UNSET,
        nodes: Annotated[int, Meta(ge=1, le=10000)] | UnsetType = UNSET,
        gpus_per_node: Annotated[int, Meta(ge=1, le=1024)] | UnsetType | None = UNSET,
        duration_s: int | str | UnsetType = UNSET,
        priority: Annotated[int, Meta(ge=1, le=300)] | UnsetType = UNSET,
        clusters: Annotated[Sequence[str], Meta(max_length=100)] | UnsetType = UNSET,
        earliest_start_at: datetime | str | UnsetType | None = UNSET,
        after: Annotated[str, Meta(max_length=253, pattern="^[^\\x00]*$")] | UnsetType | None = UNSET,
        after_condition: Literal["any", "success"] | UnsetType = UNSET,
        is_booking: bool | UnsetType = UNSET,
        node_type: Annotated[str, Meta(max_length=63)] | UnsetType = UNSET,
        rdma: bool | UnsetType = UNSET,
        within: Literal[""] | Literal["rack", "nvlink"] | UnsetType = UNSET,
        idle_timeout_s: int | str | UnsetType | None = UNSET,
        evictable: bool | UnsetType = UNSET,
        may_evict: bool | UnsetType = UNSET,
        requeue_on_failure: bool | UnsetType = UNSET,
        run_checks: bool | UnsetType = UNSET,
        model: Mapping[str, Any] | UnsetType = UNSET,
        template: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[^\\x00]*$")] | UnsetType | None = UNSET,
        idempotency_key: str | None = None,
    ) -> models.GprDetail:
        """Create a request. It is QUEUED with a promised start, or PENDING_APPROVAL with the policy rules that it exceeds.

        shape: E.g. H100-80GB. Empty, with `min_gpu_memory_gib`: EGS chooses the shape.
        nodes: Required unless the template has it.
        gpus_per_node: Null: all of each node.
        duration_s: Required unless the template has it.
        priority: A higher priority is first. Default: 101.
        clusters: Clusters where it may run. Empty: all of the slice.
        after: A GPR, by name or id, of the same project or of a workspace of yours: this one starts when that has ended. Empty:
            none.
        after_condition: With `success` this one is canceled unless that one has its time or is given back, and its job succeeds.
        is_booking: It starts at `earliest_start_at`, or is refused with the nearest times.
        within: A rack or NVLink domain that all of its nodes must share. EGS always places them as near to each other as possible.
        idle_timeout_s: It is released when its GPUs did nothing for so long, 5 minutes at least. 0: never. Null: as long as the
            policy says.
        model: Name and parameters of the model, in any form.
        template: A template of the slice or of the platform, for all fields that are not given here. The slice's own goes first.
        """
        return await self.client.call(
            "POST",
            "gprs/",
            body={
                "name": name,
                "shape": shape,
                "min_gpu_memory_gib": min_gpu_memory_gib,
                "nodes": nodes,
                "gpus_per_node": gpus_per_node,
                "duration_s": duration_s,
                "priority": priority,
                "clusters": clusters,
                "earliest_start_at": earliest_start_at,
                "after": after,
                "after_condition": after_condition,
                "is_booking": is_booking,
                "node_type": node_type,
                "rdma": rdma,
                "within": within,
                "idle_timeout_s": idle_timeout_s,
                "evictable": evictable,
                "may_evict": may_evict,
                "requeue_on_failure": requeue_on_failure,
                "run_checks": run_checks,
                "model": model,
                "slice": slice,
                "template": template,
            },
            is_keyed=True,
            key=idempotency_key,
            kind=models.GprDetail,
        )

    async def bulk(
        self,
        *,
        act: Literal["cancel", "release", "approve", "reject"],
        ids: Annotated[Sequence[str], Meta(min_length=1, max_length=200)],
        why: Annotated[str, Meta(min_length=1, max_length=300)] | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.BulkVerdicts:
        """Cancel, release, approve or reject many requests. Each gets its own verdict; one that is refused stops none of the others.

        why: The reason; `reject` needs one, `cancel` and `release` take none.
        """
        return await self.client.call(
            "POST", "gprs/bulk/", body={"act": act, "ids": ids, "why": why}, is_keyed=True, key=idempotency_key, kind=models.BulkVerdicts
        )

    async def estimate(
        self,
        *,
        slice: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[^\\x00]*$")],
        name: str | UnsetType = UNSET,
        shape: str | UnsetType = UNSET,
        min_gpu_memory_gib: Annotated[int, Meta(ge=1, le=100000)] | UnsetType | None = UNSET,
        nodes: Annotated[int, Meta(ge=1, le=10000)] | UnsetType = UNSET,
        gpus_per_node: Annotated[int, Meta(ge=1, le=1024)] | UnsetType | None = UNSET,
        duration_s: int | str | UnsetType = UNSET,
        priority: Annotated[int, Meta(ge=1, le=300)] | UnsetType = UNSET,
        clusters: Annotated[Sequence[str], Meta(max_length=100)] | UnsetType = UNSET,
        earliest_start_at: datetime | str | UnsetType | None = UNSET,
        after: Annotated[str, Meta(max_length=253, pattern="^[^\\x00]*$")] | UnsetType | None = UNSET,
        after_condition: Literal["any", "success"] | UnsetType = UNSET,
        is_booking: bool | UnsetType = UNSET,
        node_type: Annotated[str, Meta(max_length=63)] | UnsetType = UNSET,
        rdma: bool | UnsetType = UNSET,
        within: Literal[""] | Literal["rack", "nvlink"] | UnsetType = UNSET,
        idle_timeout_s: int | str | UnsetType | None = UNSET,
        evictable: bool | UnsetType = UNSET,
        may_evict: bool | UnsetType = UNSET,
        requeue_on_failure: bool | UnsetType = UNSET,
        run_checks: bool | UnsetType = UNSET,
        model: Mapping[str, Any] | UnsetType = UNSET,
        template: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[^\\x00]*$")] | UnsetType | None = UNSET,
    ) -> models.Offers:
        """Estimate the start of a request: one offer for each cluster and shape, the soonest first. Nothing is written.

        shape: E.g. H100-80GB. Empty, with `min_gpu_memory_gib`: EGS chooses the shape.
        nodes: Required unless the template has it.
        gpus_per_node: Null: all of each node.
        duration_s: Required unless the template has it.
        priority: A higher priority is first. Default: 101.
        clusters: Clusters where it may run. Empty: all of the slice.
        after: A GPR, by name or id, of the same project or of a workspace of yours: this one starts when that has ended. Empty:
            none.
        after_condition: With `success` this one is canceled unless that one has its time or is given back, and its job succeeds.
        is_booking: It starts at `earliest_start_at`, or is refused with the nearest times.
        within: A rack or NVLink domain that all of its nodes must share. EGS always places them as near to each other as possible.
        idle_timeout_s: It is released when its GPUs did nothing for so long, 5 minutes at least. 0: never. Null: as long as the
            policy says.
        model: Name and parameters of the model, in any form.
        template: A template of the slice or of the platform, for all fields that are not given here. The slice's own goes first.
        """
        return await self.client.call(
            "POST",
            "gprs/estimate/",
            body={
                "name": name,
                "shape": shape,
                "min_gpu_memory_gib": min_gpu_memory_gib,
                "nodes": nodes,
                "gpus_per_node": gpus_per_node,
                "duration_s": duration_s,
                "priority": priority,
                "clusters": clusters,
                "earliest_start_at": earliest_start_at,
                "after": after,
                "after_condition": after_condition,
                "is_booking": is_booking,
                "node_type": node_type,
                "rdma": rdma,
                "within": within,
                "idle_timeout_s": idle_timeout_s,
                "evictable": evictable,
                "may_evict": may_evict,
                "requeue_on_failure": requeue_on_failure,
                "run_checks": run_checks,
                "model": model,
                "slice": slice,
                "template": template,
            },
            kind=models.Offers,
        )

    async def get(self, id: str) -> models.GprDetail:
        """GET gprs/{id}/"""
        return await self.client.call("GET", f"gprs/{self.quoted(id)}/", kind=models.GprDetail)

    async def update(
        self,
        id: str,
        *,
        name: str | UnsetType = UNSET,
        shape: str | UnsetType = UNSET,
        min_gpu_memory_gib: Annotated[int, Meta(ge=1, le=100000)] | UnsetType | None = UNSET,
        nodes: Annotated[int, Meta(ge=1, le=10000)] | UnsetType = UNSET,
        gpus_per_node: Annotated[int, Meta(ge=1, le=1024)] | UnsetType | None = UNSET,
        duration_s: int | str | UnsetType = UNSET,
        priority: Annotated[int, Meta(ge=1, le=300)] | UnsetType = UNSET,
        clusters: Annotated[Sequence[str], Meta(max_length=100)] | UnsetType = UNSET,
        earliest_start_at: datetime | str | UnsetType | None = UNSET,
        after: Annotated[str, Meta(max_length=253, pattern="^[^\\x00]*$")] | UnsetType | None = UNSET,
        after_condition: Literal["any", "success"] | UnsetType = UNSET,
        is_booking: bool | UnsetType = UNSET,
        node_type: Annotated[str, Meta(max_length=63)] | UnsetType = UNSET,
        rdma: bool | UnsetType = UNSET,
        within: Literal[""] | Literal["rack", "nvlink"] | UnsetType = UNSET,
        idle_timeout_s: int | str | UnsetType | None = UNSET,
        evictable: bool | UnsetType = UNSET,
        may_evict: bool | UnsetType = UNSET,
        requeue_on_failure: bool | UnsetType = UNSET,
        run_checks: bool | UnsetType = UNSET,
        model: Mapping[str, Any] | UnsetType = UNSET,
        version: Annotated[int, Meta(ge=-9007199254740991, le=9007199254740991)] | UnsetType = UNSET,
        if_match: str | None = None,
    ) -> models.GprDetail:
        """Change a waiting request. It keeps its age; a change of what it asks for may change its promised start.

        shape: E.g. H100-80GB. Empty, with `min_gpu_memory_gib`: EGS chooses the shape.
        gpus_per_node: Null: all of each node.
        priority: A higher priority is first. Default: 101.
        clusters: Clusters where it may run. Empty: all of the slice.
        after: A GPR, by name or id, of the same project or of a workspace of yours: this one starts when that has ended. Empty:
            none.
        after_condition: With `success` this one is canceled unless that one has its time or is given back, and its job succeeds.
        is_booking: It starts at `earliest_start_at`, or is refused with the nearest times.
        within: A rack or NVLink domain that all of its nodes must share. EGS always places them as near to each other as possible.
        idle_timeout_s: It is released when its GPUs did nothing for so long, 5 minutes at least. 0: never. Null: as long as the
            policy says.
        model: Name and parameters of the model, in any form.
        version: The version that you read. The answer is 409 if the request has changed since.
        if_match: the ETag of the state that is meant; * for any. Default: that of the last reading, if there was one.
        """
        return await self.client.call(
            "PATCH",
            f"gprs/{self.quoted(id)}/",
            body={
                "name": name,
                "shape": shape,
                "min_gpu_memory_gib": min_gpu_memory_gib,
                "nodes": nodes,
                "gpus_per_node": gpus_per_node,
                "duration_s": duration_s,
                "priority": priority,
                "clusters": clusters,
                "earliest_start_at": earliest_start_at,
                "after": after,
                "after_condition": after_condition,
                "is_booking": is_booking,
                "node_type": node_type,
                "rdma": rdma,
                "within": within,
                "idle_timeout_s": idle_timeout_s,
                "evictable": evictable,
                "may_evict": may_evict,
                "requeue_on_failure": requeue_on_failure,
                "run_checks": run_checks,
                "model": model,
                "version": version,
            },
            if_match=if_match,
            kind=models.GprDetail,
        )

    async def delete(self, id: str, *, version: int | UnsetType = UNSET, if_match: str | None = None) -> None:
        """Cancel a waiting request. It stays in the list as CANCELED.

        version: The version that you read. The answer is 409 if the request has changed since.
        if_match: the ETag of the state that is meant; * for any. Default: that of the last reading, if there was one.
        """
        await self.client.call("DELETE", f"gprs/{self.quoted(id)}/", params={"version": version}, if_match=if_match, kind=type(None))

    async def approve(
        self,
        id: str,
        *,
        version: Annotated[int, Meta(ge=-9007199254740991, le=9007199254740991)] | UnsetType = UNSET,
        why: Annotated[str, Meta(max_length=300)] | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.GprDetail:
        """POST gprs/{id}/approve/

        version: The version that you read. The answer is 409 if the request has changed since.
        why: The reason, which is recorded with the user's name.
        """
        return await self.client.call(
            "POST",
            f"gprs/{self.quoted(id)}/approve/",
            body={"version": version, "why": why},
            is_keyed=True,
            key=idempotency_key,
            kind=models.GprDetail,
        )

    async def estimate_change(
        self,
        id: str,
        *,
        name: str | UnsetType = UNSET,
        shape: str | UnsetType = UNSET,
        min_gpu_memory_gib: Annotated[int, Meta(ge=1, le=100000)] | UnsetType | None = UNSET,
        nodes: Annotated[int, Meta(ge=1, le=10000)] | UnsetType = UNSET,
        gpus_per_node: Annotated[int, Meta(ge=1, le=1024)] | UnsetType | None = UNSET,
        duration_s: int | str | UnsetType = UNSET,
        priority: Annotated[int, Meta(ge=1, le=300)] | UnsetType = UNSET,
        clusters: Annotated[Sequence[str], Meta(max_length=100)] | UnsetType = UNSET,
        earliest_start_at: datetime | str | UnsetType | None = UNSET,
        after: Annotated[str, Meta(max_length=253, pattern="^[^\\x00]*$")] | UnsetType | None = UNSET,
        after_condition: Literal["any", "success"] | UnsetType = UNSET,
        is_booking: bool | UnsetType = UNSET,
        node_type: Annotated[str, Meta(max_length=63)] | UnsetType = UNSET,
        rdma: bool | UnsetType = UNSET,
        within: Literal[""] | Literal["rack", "nvlink"] | UnsetType = UNSET,
        idle_timeout_s: int | str | UnsetType | None = UNSET,
        evictable: bool | UnsetType = UNSET,
        may_evict: bool | UnsetType = UNSET,
        requeue_on_failure: bool | UnsetType = UNSET,
        run_checks: bool | UnsetType = UNSET,
        model: Mapping[str, Any] | UnsetType = UNSET,
        version: Annotated[int, Meta(ge=-9007199254740991, le=9007199254740991)] | UnsetType = UNSET,
    ) -> models.Offers:
        """Estimate the start of a waiting request after such a change, the soonest first. Nothing is written.

        shape: E.g. H100-80GB. Empty, with `min_gpu_memory_gib`: EGS chooses the shape.
        gpus_per_node: Null: all of each node.
        priority: A higher priority is first. Default: 101.
        clusters: Clusters where it may run. Empty: all of the slice.
        after: A GPR, by name or id, of the same project or of a workspace of yours: this one starts when that has ended. Empty:
            none.
        after_condition: With `success` this one is canceled unless that one has its time or is given back, and its job succeeds.
        is_booking: It starts at `earliest_start_at`, or is refused with the nearest times.
        within: A rack or NVLink domain that all of its nodes must share. EGS always places them as near to each other as possible.
        idle_timeout_s: It is released when its GPUs did nothing for so long, 5 minutes at least. 0: never. Null: as long as the
            policy says.
        model: Name and parameters of the model, in any form.
        version: The version that you read. The answer is 409 if the request has changed since.
        """
        return await self.client.call(
            "POST",
            f"gprs/{self.quoted(id)}/estimate-change/",
            body={
                "name": name,
                "shape": shape,
                "min_gpu_memory_gib": min_gpu_memory_gib,
                "nodes": nodes,
                "gpus_per_node": gpus_per_node,
                "duration_s": duration_s,
                "priority": priority,
                "clusters": clusters,
                "earliest_start_at": earliest_start_at,
                "after": after,
                "after_condition": after_condition,
                "is_booking": is_booking,
                "node_type": node_type,
                "rdma": rdma,
                "within": within,
                "idle_timeout_s": idle_timeout_s,
                "evictable": evictable,
                "may_evict": may_evict,
                "requeue_on_failure": requeue_on_failure,
                "run_checks": run_checks,
                "model": model,
                "version": version,
            },
            kind=models.Offers,
        )

    async def evict(
        self,
        id: str,
        *,
        why: Annotated[str, Meta(min_length=1, max_length=300)],
        version: Annotated[int, Meta(ge=-9007199254740991, le=9007199254740991)] | UnsetType = UNSET,
        requeue: bool | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.GprDetail:
        """Take the nodes back now. If the request is queued again, it keeps its age, and it may get free nodes at once.

        why: The reason, which is recorded with the user's name and shown to the owner.
        version: The version that you read. The answer is 409 if the request has changed since.
        requeue: Whether it is queued again for its remaining time. Default: the owner's choice.
        """
        return await self.client.call(
            "POST",
            f"gprs/{self.quoted(id)}/evict/",
            body={"version": version, "why": why, "requeue": requeue},
            is_keyed=True,
            key=idempotency_key,
            kind=models.GprDetail,
        )

    async def extend(
        self,
        id: str,
        *,
        extra_s: int | str,
        version: Annotated[int, Meta(ge=-9007199254740991, le=9007199254740991)] | UnsetType = UNSET,
        is_dry: bool | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.GprDetail:
        """Extend a running request, if this moves no promise. If it would harm other requests, the answer is 409 `conflict` with two
        more members: `max_ends_at`, the latest possible end (the present end if no extension is possible), and `next_id`, the
        request that needs the nodes next. `next_id` is null if the reader may not see that request, or if a maintenance is next.

        version: The version that you read. The answer is 409 if the request has changed since.
        is_dry: Whether to refuse what is not possible, and else to change nothing.
        """
        return await self.client.call(
            "POST",
            f"gprs/{self.quoted(id)}/extend/",
            body={"version": version, "extra_s": extra_s, "is_dry": is_dry},
            is_keyed=True,
            key=idempotency_key,
            kind=models.GprDetail,
        )

    async def keep(
        self,
        id: str,
        *,
        version: Annotated[int, Meta(ge=-9007199254740991, le=9007199254740991)] | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.GprDetail:
        """Keep an idle box: its idle time-out begins anew. The policy of the slice may leave that to administrators.

        version: The version that you read. The answer is 409 if the request has changed since.
        """
        return await self.client.call(
            "POST", f"gprs/{self.quoted(id)}/keep/", body={"version": version}, is_keyed=True, key=idempotency_key, kind=models.GprDetail
        )

    async def move(
        self,
        id: str,
        *,
        to: Literal["up", "down", "first", "last"],
        version: Annotated[int, Meta(ge=-9007199254740991, le=9007199254740991)] | UnsetType = UNSET,
        why: Annotated[str, Meta(max_length=300)] | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.GprDetail:
        """Move the request up or down among those of its priority. Promises that have to move get the cause `admin`.

        to: The new place among requests of its priority.
        version: The version that you read. The answer is 409 if the request has changed since.
        why: The reason, which is recorded with the user's name.
        """
        return await self.client.call(
            "POST",
            f"gprs/{self.quoted(id)}/move/",
            body={"version": version, "why": why, "to": to},
            is_keyed=True,
            key=idempotency_key,
            kind=models.GprDetail,
        )

    async def preview(
        self,
        id: str,
        *,
        act: Literal["approve", "reject", "evict", "priority", "move"],
        priority: Annotated[int, Meta(ge=1, le=300)] | UnsetType = UNSET,
        to: Literal["up", "down", "first", "last"] | UnsetType = UNSET,
        requeue: bool | UnsetType = UNSET,
    ) -> models.DecisionPreview:
        """Tell what a decision would do, to this request and to others. Nothing is written; what the act refuses, this refuses.

        priority: Only `priority` takes it.
        to: Only `move` takes it.
        requeue: Only `evict` takes it.
        """
        return await self.client.call(
            "POST",
            f"gprs/{self.quoted(id)}/preview/",
            body={"act": act, "priority": priority, "to": to, "requeue": requeue},
            kind=models.DecisionPreview,
        )

    async def priority(
        self,
        id: str,
        *,
        priority: Annotated[int, Meta(ge=1, le=300)],
        version: Annotated[int, Meta(ge=-9007199254740991, le=9007199254740991)] | UnsetType = UNSET,
        why: Annotated[str, Meta(max_length=300)] | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.GprDetail:
        """Change the priority. This moves no promise.

        version: The version that you read. The answer is 409 if the request has changed since.
        why: The reason, which is recorded with the user's name.
        """
        return await self.client.call(
            "POST",
            f"gprs/{self.quoted(id)}/priority/",
            body={"version": version, "why": why, "priority": priority},
            is_keyed=True,
            key=idempotency_key,
            kind=models.GprDetail,
        )

    async def reject(
        self,
        id: str,
        *,
        why: Annotated[str, Meta(min_length=1, max_length=300)],
        version: Annotated[int, Meta(ge=-9007199254740991, le=9007199254740991)] | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.GprDetail:
        """POST gprs/{id}/reject/

        why: The reason, which is recorded with the user's name and shown to the owner.
        version: The version that you read. The answer is 409 if the request has changed since.
        """
        return await self.client.call(
            "POST",
            f"gprs/{self.quoted(id)}/reject/",
            body={"version": version, "why": why},
            is_keyed=True,
            key=idempotency_key,
            kind=models.GprDetail,
        )

    async def release(
        self,
        id: str,
        *,
        version: Annotated[int, Meta(ge=-9007199254740991, le=9007199254740991)] | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.GprDetail:
        """Give the nodes back before the end.

        version: The version that you read. The answer is 409 if the request has changed since.
        """
        return await self.client.call(
            "POST", f"gprs/{self.quoted(id)}/release/", body={"version": version}, is_keyed=True, key=idempotency_key, kind=models.GprDetail
        )

    async def replace_node(
        self,
        id: str,
        *,
        node: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[^\\x00]*$")],
        why: Annotated[str, Meta(min_length=1, max_length=150)],
        version: Annotated[int, Meta(ge=-9007199254740991, le=9007199254740991)] | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.GprDetail:
        """Replace a node of a running request and set the old node aside. Its end stays, and no promise moves. If there is no spare,
        the answer is 409 with the reason, and nothing changes.

        node: One of `nodes_assigned`, by name or id.
        why: The reason, which is recorded with the user's name and shown to the owner.
        version: The version that you read. The answer is 409 if the request has changed since.
        """
        return await self.client.call(
            "POST",
            f"gprs/{self.quoted(id)}/replace-node/",
            body={"version": version, "node": node, "why": why},
            is_keyed=True,
            key=idempotency_key,
            kind=models.GprDetail,
        )


class GprsSteps(AsyncResource):
    def list(self, gpr_pk: str, *, page_size: int | UnsetType = UNSET) -> AsyncPages[shared.Step]:
        """List all attempts at entry and exit steps on each node, with their logs, the oldest first.

        page_size: Rows a page.
        """
        return AsyncPages(self.client, f"gprs/{self.quoted(gpr_pk)}/steps/", params={"page_size": page_size}, kind=shared.Step)


class Insights(AsyncResource):
    async def get(self, *, days: Literal[7, 30, 90] | UnsetType = UNSET) -> models.Insights:
        """Show how promises and forecasts turned out. Administrators get exact figures. Others get the promises of their own
        workspaces, and rounded figures of all workspaces together for past days, unless these figures would reveal a single
        workspace.

        days: Days in UTC, up to today for administrators and up to yesterday for others.
        """
        return await self.client.call("GET", "insights/", params={"days": days}, kind=models.Insights)


class Jobs(AsyncResource):
    def list(
        self,
        *,
        ended: bool | UnsetType = UNSET,
        gpr: str | UnsetType = UNSET,
        kind: Sequence[Literal["Job", "JobSet", "MPIJob", "Manifest", "Notebook", "PyTorchJob"]] | UnsetType = UNSET,
        name: str | UnsetType = UNSET,
        page_size: int | UnsetType = UNSET,
        slice: str | UnsetType = UNSET,
        state: Sequence[Literal["FAILED", "RUNNING", "STARTING", "STOPPED", "STOPPING", "SUCCEEDED", "WAITING"]] | UnsetType = UNSET,
    ) -> AsyncPages[models.Job]:
        """Sorted by created_at (descending), id.

        name: Part of the name.
        page_size: Rows a page.
        """
        return AsyncPages(
            self.client,
            "jobs/",
            params={"ended": ended, "gpr": gpr, "kind": kind, "name": name, "page_size": page_size, "slice": slice, "state": state},
            kind=models.Job,
        )

    async def create(
        self,
        *,
        name: str,
        slice: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[^\\x00]*$")],
        image: Annotated[str, Meta(max_length=500, pattern="^[^\\x00]*$")] | UnsetType = UNSET,
        command: Annotated[Sequence[str], Meta(max_length=200)] | UnsetType = UNSET,
        env: Mapping[str, str] | UnsetType = UNSET,
        secrets: Annotated[Sequence[str], Meta(max_length=200)] | UnsetType = UNSET,
        volumes: Mapping[str, str] | UnsetType = UNSET,
        pull_secret: str | UnsetType = UNSET,
        user_id: Annotated[int, Meta(ge=1, le=2147483647)] | UnsetType = UNSET,
        retries: Annotated[int, Meta(ge=0, le=100)] | UnsetType = UNSET,
        checkpoint: Annotated[Sequence[str], Meta(max_length=200)] | UnsetType = UNSET,
        namespace: str | UnsetType = UNSET,
        kind: Literal["Job", "JobSet", "PyTorchJob", "MPIJob", "Notebook", "Manifest"] | UnsetType = UNSET,
        manifest: Sequence[Mapping[str, Any]] | str | UnsetType = UNSET,
        releases_box: bool | UnsetType = UNSET,
        shape: str | UnsetType = UNSET,
        min_gpu_memory_gib: Annotated[int, Meta(ge=1, le=100000)] | UnsetType | None = UNSET,
        nodes: Annotated[int, Meta(ge=1, le=10000)] | UnsetType = UNSET,
        gpus_per_node: Annotated[int, Meta(ge=1, le=1024)] | UnsetType | None = UNSET,
        duration_s: int | str | UnsetType = UNSET,
        priority: Annotated[int, Meta(ge=1, le=300)] | UnsetType = UNSET,
        clusters: Annotated[Sequence[str], Meta(max_length=100)] | UnsetType = UNSET,
        earliest_start_at: datetime | str | UnsetType | None = UNSET,
        after: Annotated[str, Meta(max_length=253, pattern="^[^\\x00]*$")] | UnsetType | None = UNSET,
        after_condition: Literal["any", "success"] | UnsetType = UNSET,
        is_booking: bool | UnsetType = UNSET,
        node_type: Annotated[str, Meta(max_length=63)] | UnsetType = UNSET,
        rdma: bool | UnsetType = UNSET,
        within: Literal[""] | Literal["rack", "nvlink"] | UnsetType = UNSET,
        idle_timeout_s: int | str | UnsetType | None = UNSET,
        evictable: bool | UnsetType = UNSET,
        may_evict: bool | UnsetType = UNSET,
        requeue_on_failure: bool | UnsetType = UNSET,
        run_checks: bool | UnsetType = UNSET,
        model: Mapping[str, Any] | UnsetType = UNSET,
        template: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[^\\x00]*$")] | UnsetType | None = UNSET,
        idempotency_key: str | None = None,
    ) -> models.Job:
        """File a GPR and what is to run in its box. The job starts when the nodes are there, and ends with the box.

        command: Program and arguments; empty: those of the image.
        env: Variables. Members of the workspace see them: put secrets into `secrets`.
        secrets: Secrets of the namespace whose values it gets as variables.
        volumes: By PersistentVolumeClaim of the namespace: the path where it is mounted.
        pull_secret: The Secret of the namespace with which the image is pulled.
        user_id: The user of its processes, never root. Default: 1000.
        retries: Number of restarts after a failure. Evictions do not count. Default: 0.
        checkpoint: A command that runs in each pod before it is ended.
        namespace: Empty: the first of the workspace in the cluster.
        kind: The object that it becomes; other kinds than Job need a cluster that serves them. Manifest: `manifest` has the objects.
        manifest: Objects of Kubernetes, without namespace, as a list or as YAML. The first that can finish says how the job ends.
            They may be Job, JobSet, PyTorchJob, MPIJob, Deployment, StatefulSet, Service.
        releases_box: Give the nodes back when it has finished. Default: true; in the box of another: false.
        shape: E.g. H100-80GB. Empty, with `min_gpu_memory_gib`: EGS chooses the shape.
        nodes: Required unless the template has it.
        gpus_per_node: Null: all of each node.
        duration_s: Required unless the template has it.
        priority: A higher priority is first. Default: 101.
        clusters: Clusters where it may run. Empty: all of the slice.
        after: A GPR, by name or id, of the same project or of a workspace of yours: this one starts when that has ended. Empty:
            none.
        after_condition: With `success` this one is canceled unless that one has its time or is given back, and its job succeeds.
        is_booking: It starts at `earliest_start_at`, or is refused with the nearest times.
        within: A rack or NVLink domain that all of its nodes must share. EGS always places them as near to each other as possible.
        idle_timeout_s: It is released when its GPUs did nothing for so long, 5 minutes at least. 0: never. Null: as long as the
            policy says.
        model: Name and parameters of the model, in any form.
        template: A template of the slice or of the platform, for all fields that are not given here. The slice's own goes first.
        """
        return await self.client.call(
            "POST",
            "jobs/",
            body={
                "image": image,
                "command": command,
                "env": env,
                "secrets": secrets,
                "volumes": volumes,
                "pull_secret": pull_secret,
                "user_id": user_id,
                "retries": retries,
                "checkpoint": checkpoint,
                "namespace": namespace,
                "kind": kind,
                "manifest": manifest,
                "releases_box": releases_box,
                "name": name,
                "shape": shape,
                "min_gpu_memory_gib": min_gpu_memory_gib,
                "nodes": nodes,
                "gpus_per_node": gpus_per_node,
                "duration_s": duration_s,
                "priority": priority,
                "clusters": clusters,
                "earliest_start_at": earliest_start_at,
                "after": after,
                "after_condition": after_condition,
                "is_booking": is_booking,
                "node_type": node_type,
                "rdma": rdma,
                "within": within,
                "idle_timeout_s": idle_timeout_s,
                "evictable": evictable,
                "may_evict": may_evict,
                "requeue_on_failure": requeue_on_failure,
                "run_checks": run_checks,
                "model": model,
                "slice": slice,
                "template": template,
            },
            is_keyed=True,
            key=idempotency_key,
            kind=models.Job,
        )

    async def in_box(
        self,
        *,
        gpr: str,
        image: Annotated[str, Meta(max_length=500, pattern="^[^\\x00]*$")] | UnsetType = UNSET,
        command: Annotated[Sequence[str], Meta(max_length=200)] | UnsetType = UNSET,
        env: Mapping[str, str] | UnsetType = UNSET,
        secrets: Annotated[Sequence[str], Meta(max_length=200)] | UnsetType = UNSET,
        volumes: Mapping[str, str] | UnsetType = UNSET,
        pull_secret: str | UnsetType = UNSET,
        user_id: Annotated[int, Meta(ge=1, le=2147483647)] | UnsetType = UNSET,
        retries: Annotated[int, Meta(ge=0, le=100)] | UnsetType = UNSET,
        checkpoint: Annotated[Sequence[str], Meta(max_length=200)] | UnsetType = UNSET,
        namespace: str | UnsetType = UNSET,
        kind: Literal["Job", "JobSet", "PyTorchJob", "MPIJob", "Notebook", "Manifest"] | UnsetType = UNSET,
        manifest: Sequence[Mapping[str, Any]] | str | UnsetType = UNSET,
        releases_box: bool | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.Job:
        """Run something in the box of a request that is there, instead of filing one. It starts when the box is open.

        gpr: The request in whose box it runs. It may wait, and has no job yet.
        command: Program and arguments; empty: those of the image.
        env: Variables. Members of the workspace see them: put secrets into `secrets`.
        secrets: Secrets of the namespace whose values it gets as variables.
        volumes: By PersistentVolumeClaim of the namespace: the path where it is mounted.
        pull_secret: The Secret of the namespace with which the image is pulled.
        user_id: The user of its processes, never root. Default: 1000.
        retries: Number of restarts after a failure. Evictions do not count. Default: 0.
        checkpoint: A command that runs in each pod before it is ended.
        namespace: Empty: the first of the workspace in the cluster.
        kind: The object that it becomes; other kinds than Job need a cluster that serves them. Manifest: `manifest` has the objects.
        manifest: Objects of Kubernetes, without namespace, as a list or as YAML. The first that can finish says how the job ends.
            They may be Job, JobSet, PyTorchJob, MPIJob, Deployment, StatefulSet, Service.
        releases_box: Give the nodes back when it has finished. Default: true; in the box of another: false.
        """
        return await self.client.call(
            "POST",
            "jobs/in-box/",
            body={
                "image": image,
                "command": command,
                "env": env,
                "secrets": secrets,
                "volumes": volumes,
                "pull_secret": pull_secret,
                "user_id": user_id,
                "retries": retries,
                "checkpoint": checkpoint,
                "namespace": namespace,
                "kind": kind,
                "manifest": manifest,
                "releases_box": releases_box,
                "gpr": gpr,
            },
            is_keyed=True,
            key=idempotency_key,
            kind=models.Job,
        )

    async def get(self, ref: str) -> models.Job:
        """Takes an id or a name."""
        return await self.client.call("GET", f"jobs/{self.quoted(ref)}/", kind=models.Job)

    async def cancel(self, ref: str) -> models.Job:
        """Cancel the job: its waiting request is withdrawn, or its nodes are given back."""
        return await self.client.call("POST", f"jobs/{self.quoted(ref)}/cancel/", body={}, kind=models.Job)

    async def logs(self, ref: str, *, rank: int | UnsetType = UNSET, since: int | UnsetType = UNSET) -> models.Log:
        """Read the output of one pod. While somebody reads, its agent sends what comes; the last 256 KiB of each pod are kept.

        rank: The pod, by its index. Default: 0.
        since: `next` of an earlier answer. Default: 0.
        """
        return await self.client.call("GET", f"jobs/{self.quoted(ref)}/logs/", params={"rank": rank, "since": since}, kind=models.Log)


class Maintenance(AsyncResource):
    def list(
        self,
        *,
        canceled: bool | UnsetType = UNSET,
        cluster: str | UnsetType = UNSET,
        from_: datetime | str | UnsetType = UNSET,
        node: str | UnsetType = UNSET,
        page_size: int | UnsetType = UNSET,
        to: datetime | str | UnsetType = UNSET,
    ) -> AsyncPages[models.Maintenance]:
        """Sorted by starts_at, id.

        page_size: Rows a page.
        """
        return AsyncPages(
            self.client,
            "maintenance/",
            params={"canceled": canceled, "cluster": cluster, "from": from_, "node": node, "page_size": page_size, "to": to},
            kind=models.Maintenance,
        )

    async def create(
        self,
        *,
        starts_at: datetime | str,
        ends_at: datetime | str,
        reason: Annotated[str, Meta(min_length=1, max_length=200)],
        cluster: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[^\\x00]*$")] | UnsetType = UNSET,
        node: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[^\\x00]*$")] | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.MaintenanceDetail:
        """Announce a maintenance window. Running requests continue to their end; promises that overlap it move within a second.

        reason: Shown to all whose workspaces may use the cluster.
        cluster: Closes the whole cluster. Give either this or `node`.
        """
        return await self.client.call(
            "POST",
            "maintenance/",
            body={"cluster": cluster, "node": node, "starts_at": starts_at, "ends_at": ends_at, "reason": reason},
            is_keyed=True,
            key=idempotency_key,
            kind=models.MaintenanceDetail,
        )

    async def preview(
        self,
        *,
        starts_at: datetime | str,
        ends_at: datetime | str,
        reason: Annotated[str, Meta(min_length=1, max_length=200)],
        cluster: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[^\\x00]*$")] | UnsetType = UNSET,
        node: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[^\\x00]*$")] | UnsetType = UNSET,
    ) -> models.MaintenanceEffects:
        """Show which requests the window would affect. Nothing is written.

        reason: Shown to all whose workspaces may use the cluster.
        cluster: Closes the whole cluster. Give either this or `node`.
        """
        return await self.client.call(
            "POST",
            "maintenance/preview/",
            body={"cluster": cluster, "node": node, "starts_at": starts_at, "ends_at": ends_at, "reason": reason},
            kind=models.MaintenanceEffects,
        )

    async def get(self, ref: str) -> models.MaintenanceDetail:
        """GET maintenance/{ref}/"""
        return await self.client.call("GET", f"maintenance/{self.quoted(ref)}/", kind=models.MaintenanceDetail)

    async def delete(self, ref: str) -> None:
        """Cancel the rest of the window. It stays in the list as canceled."""
        await self.client.call("DELETE", f"maintenance/{self.quoted(ref)}/", kind=type(None))


class Notebooks(AsyncResource):
    def list(
        self,
        *,
        ended: bool | UnsetType = UNSET,
        gpr: str | UnsetType = UNSET,
        name: str | UnsetType = UNSET,
        page_size: int | UnsetType = UNSET,
        slice: str | UnsetType = UNSET,
        state: Sequence[Literal["FAILED", "RUNNING", "STARTING", "STOPPED", "STOPPING", "SUCCEEDED", "WAITING"]] | UnsetType = UNSET,
    ) -> AsyncPages[models.Job]:
        """Sorted by created_at (descending), id.

        name: Part of the name.
        page_size: Rows a page.
        """
        return AsyncPages(
            self.client,
            "notebooks/",
            params={"ended": ended, "gpr": gpr, "name": name, "page_size": page_size, "slice": slice, "state": state},
            kind=models.Job,
        )

    async def create(
        self,
        *,
        name: str,
        slice: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[^\\x00]*$")],
        image: Annotated[str, Meta(max_length=500, pattern="^[^\\x00]*$")] | UnsetType = UNSET,
        command: Annotated[Sequence[str], Meta(max_length=200)] | UnsetType = UNSET,
        env: Mapping[str, str] | UnsetType = UNSET,
        secrets: Annotated[Sequence[str], Meta(max_length=200)] | UnsetType = UNSET,
        volumes: Mapping[str, str] | UnsetType = UNSET,
        pull_secret: str | UnsetType = UNSET,
        user_id: Annotated[int, Meta(ge=1, le=2147483647)] | UnsetType = UNSET,
        retries: Annotated[int, Meta(ge=0, le=100)] | UnsetType = UNSET,
        checkpoint: Annotated[Sequence[str], Meta(max_length=200)] | UnsetType = UNSET,
        namespace: str | UnsetType = UNSET,
        shape: str | UnsetType = UNSET,
        min_gpu_memory_gib: Annotated[int, Meta(ge=1, le=100000)] | UnsetType | None = UNSET,
        nodes: Annotated[int, Meta(ge=1, le=10000)] | UnsetType = UNSET,
        gpus_per_node: Annotated[int, Meta(ge=1, le=1024)] | UnsetType | None = UNSET,
        duration_s: int | str | UnsetType = UNSET,
        priority: Annotated[int, Meta(ge=1, le=300)] | UnsetType = UNSET,
        clusters: Annotated[Sequence[str], Meta(max_length=100)] | UnsetType = UNSET,
        earliest_start_at: datetime | str | UnsetType | None = UNSET,
        after: Annotated[str, Meta(max_length=253, pattern="^[^\\x00]*$")] | UnsetType | None = UNSET,
        after_condition: Literal["any", "success"] | UnsetType = UNSET,
        is_booking: bool | UnsetType = UNSET,
        node_type: Annotated[str, Meta(max_length=63)] | UnsetType = UNSET,
        rdma: bool | UnsetType = UNSET,
        within: Literal[""] | Literal["rack", "nvlink"] | UnsetType = UNSET,
        idle_timeout_s: int | str | UnsetType | None = UNSET,
        evictable: bool | UnsetType = UNSET,
        may_evict: bool | UnsetType = UNSET,
        requeue_on_failure: bool | UnsetType = UNSET,
        run_checks: bool | UnsetType = UNSET,
        model: Mapping[str, Any] | UnsetType = UNSET,
        template: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[^\\x00]*$")] | UnsetType | None = UNSET,
        idempotency_key: str | None = None,
    ) -> models.Job:
        """File a GPR and a notebook that serves JupyterLab in its box.

        command: Program and arguments; empty: those of the image.
        env: Variables. Members of the workspace see them: put secrets into `secrets`.
        secrets: Secrets of the namespace whose values it gets as variables.
        volumes: By PersistentVolumeClaim of the namespace: the path. /home/jovyan is its home.
        pull_secret: The Secret of the namespace with which the image is pulled.
        user_id: The user of its processes, never root. Default: 1000.
        retries: Number of restarts after a failure. Evictions do not count. Default: 0.
        checkpoint: A command that runs in each pod before it is ended.
        namespace: Empty: the first of the workspace in the cluster.
        shape: E.g. H100-80GB. Empty, with `min_gpu_memory_gib`: EGS chooses the shape.
        nodes: Required unless the template has it.
        gpus_per_node: Null: all of each node.
        duration_s: Required unless the template has it.
        priority: A higher priority is first. Default: 101.
        clusters: Clusters where it may run. Empty: all of the slice.
        after: A GPR, by name or id, of the same project or of a workspace of yours: this one starts when that has ended. Empty:
            none.
        after_condition: With `success` this one is canceled unless that one has its time or is given back, and its job succeeds.
        is_booking: It starts at `earliest_start_at`, or is refused with the nearest times.
        within: A rack or NVLink domain that all of its nodes must share. EGS always places them as near to each other as possible.
        idle_timeout_s: It is released when its GPUs did nothing for so long, 5 minutes at least. 0: never. Null: as long as the
            policy says.
        model: Name and parameters of the model, in any form.
        template: A template of the slice or of the platform, for all fields that are not given here. The slice's own goes first.
        """
        return await self.client.call(
            "POST",
            "notebooks/",
            body={
                "image": image,
                "command": command,
                "env": env,
                "secrets": secrets,
                "volumes": volumes,
                "pull_secret": pull_secret,
                "user_id": user_id,
                "retries": retries,
                "checkpoint": checkpoint,
                "namespace": namespace,
                "name": name,
                "shape": shape,
                "min_gpu_memory_gib": min_gpu_memory_gib,
                "nodes": nodes,
                "gpus_per_node": gpus_per_node,
                "duration_s": duration_s,
                "priority": priority,
                "clusters": clusters,
                "earliest_start_at": earliest_start_at,
                "after": after,
                "after_condition": after_condition,
                "is_booking": is_booking,
                "node_type": node_type,
                "rdma": rdma,
                "within": within,
                "idle_timeout_s": idle_timeout_s,
                "evictable": evictable,
                "may_evict": may_evict,
                "requeue_on_failure": requeue_on_failure,
                "run_checks": run_checks,
                "model": model,
                "slice": slice,
                "template": template,
            },
            is_keyed=True,
            key=idempotency_key,
            kind=models.Job,
        )

    async def get(self, ref: str) -> models.Job:
        """Takes an id or a name."""
        return await self.client.call("GET", f"notebooks/{self.quoted(ref)}/", kind=models.Job)

    async def cancel(self, ref: str) -> models.Job:
        """Cancel the job: its waiting request is withdrawn, or its nodes are given back."""
        return await self.client.call("POST", f"notebooks/{self.quoted(ref)}/cancel/", body={}, kind=models.Job)

    async def logs(self, ref: str, *, rank: int | UnsetType = UNSET, since: int | UnsetType = UNSET) -> models.Log:
        """Read the output of one pod. While somebody reads, its agent sends what comes; the last 256 KiB of each pod are kept.

        rank: The pod, by its index. Default: 0.
        since: `next` of an earlier answer. Default: 0.
        """
        return await self.client.call("GET", f"notebooks/{self.quoted(ref)}/logs/", params={"rank": rank, "since": since}, kind=models.Log)

    async def open(self, ref: str) -> models.NotebookAccess:
        """Read how to reach a notebook that runs, and its token. Only its owner may, and each time is recorded."""
        return await self.client.call("POST", f"notebooks/{self.quoted(ref)}/open/", body={}, kind=models.NotebookAccess)


class Policies(AsyncResource):
    @cached_property
    def breaches(self) -> PoliciesBreaches:
        return PoliciesBreaches(self.client)

    @cached_property
    def versions(self) -> PoliciesVersions:
        return PoliciesVersions(self.client)

    def list(
        self,
        *,
        kind: Sequence[Literal["platform", "project", "slice"]] | UnsetType = UNSET,
        page_size: int | UnsetType = UNSET,
        project: str | UnsetType = UNSET,
        slice: str | UnsetType = UNSET,
    ) -> AsyncPages[models.Policy]:
        """List policies, the platform's first. A member sees those of his slices, an administrator of a project also the project's.

        page_size: Rows a page.
        project: Id or name. Includes those of its slices.
        slice: Id or name.
        """
        return AsyncPages(
            self.client, "policies/", params={"kind": kind, "page_size": page_size, "project": project, "slice": slice}, kind=models.Policy
        )

    async def get(self, id: str) -> models.Policy:
        """GET policies/{id}/"""
        return await self.client.call("GET", f"policies/{self.quoted(id)}/", kind=models.Policy)

    async def update(
        self,
        id: str,
        *,
        nodes_approval: Annotated[int, Meta(ge=0, le=2147483647)] | UnsetType | None = UNSET,
        gpus_approval: Annotated[int, Meta(ge=0, le=2147483647)] | UnsetType | None = UNSET,
        duration_approval_s: Annotated[int, Meta(ge=1, le=31622400)] | UnsetType | None = UNSET,
        duration_max_s: Annotated[int, Meta(ge=1, le=31622400)] | UnsetType | None = UNSET,
        priority_approval: Annotated[int, Meta(ge=1, le=300)] | UnsetType | None = UNSET,
        queued_max: Annotated[int, Meta(ge=0, le=2147483647)] | UnsetType | None = UNSET,
        ahead_max_s: Annotated[int, Meta(ge=60, le=31622400)] | UnsetType | None = UNSET,
        shapes: Annotated[Sequence[str], Meta(max_length=100)] | UnsetType | None = UNSET,
        may_evict: bool | UnsetType | None = UNSET,
        may_skip_checks: bool | UnsetType | None = UNSET,
        may_order: bool | UnsetType | None = UNSET,
        idle_timeout_s: Annotated[int, Meta(ge=0, le=31622400)] | UnsetType | None = UNSET,
        may_keep_idle: bool | UnsetType | None = UNSET,
        burst_gain_s: Annotated[int, Meta(ge=0, le=31622400)] | UnsetType | None = UNSET,
        decide_within_s: Annotated[int, Meta(ge=60, le=31622400)] | UnsetType | None = UNSET,
        pods_max: Annotated[int, Meta(ge=0, le=2147483647)] | UnsetType | None = UNSET,
        may_reach_out: bool | UnsetType | None = UNSET,
        kubeconfig_max_s: Annotated[int, Meta(ge=600, le=31622400)] | UnsetType | None = UNSET,
        namespace_patterns: Annotated[Sequence[str], Meta(max_length=100)] | UnsetType | None = UNSET,
        namespaces_max: Annotated[int, Meta(ge=0, le=2147483647)] | UnsetType | None = UNSET,
        why: Annotated[str, Meta(max_length=300)] | UnsetType = UNSET,
        version: Annotated[int, Meta(ge=0, le=9007199254740991)] | UnsetType = UNSET,
        if_match: str | None = None,
    ) -> models.Policy:
        """Change the policy for requests from now on; nothing that runs or waits ends. Each change makes a version.

        nodes_approval: More nodes in one request need approval.
        gpus_approval: More GPUs in one request need approval.
        duration_approval_s: Longer needs approval.
        duration_max_s: Longer is refused.
        priority_approval: A higher priority needs approval.
        queued_max: Requests that may wait at once; more are refused.
        ahead_max_s: A later start, counted from now, is refused.
        shapes: Shapes it may ask for; empty means all.
        may_evict: Its requests may evict others of lower priority without approval.
        may_skip_checks: Its requests may skip the checks of nodes without approval.
        may_order: Nodes may be ordered for its requests from supplies, at their cost.
        idle_timeout_s: A box whose GPUs do nothing for so long is released; 0: never. Asking for longer needs approval.
        may_keep_idle: Members may keep an idle box, which begins its time-out anew.
        burst_gain_s: Requests run outside the preferred cluster only if that saves more than this.
        decide_within_s: What waits longer for approval is rejected.
        pods_max: Pods at once in each of its namespaces.
        may_reach_out: Pods may open connections to other networks, including the internet.
        kubeconfig_max_s: Maximum lifetime of its kubeconfigs.
        namespace_patterns: Namespace names that owners may bind without approval.
        namespaces_max: Maximum number of namespaces, bound or asked for, over all clusters.
        version: The version that you read. The answer is 409 if the request has changed since.
        if_match: the ETag of the state that is meant; * for any. Default: that of the last reading, if there was one.
        """
        return await self.client.call(
            "PATCH",
            f"policies/{self.quoted(id)}/",
            body={
                "nodes_approval": nodes_approval,
                "gpus_approval": gpus_approval,
                "duration_approval_s": duration_approval_s,
                "duration_max_s": duration_max_s,
                "priority_approval": priority_approval,
                "queued_max": queued_max,
                "ahead_max_s": ahead_max_s,
                "shapes": shapes,
                "may_evict": may_evict,
                "may_skip_checks": may_skip_checks,
                "may_order": may_order,
                "idle_timeout_s": idle_timeout_s,
                "may_keep_idle": may_keep_idle,
                "burst_gain_s": burst_gain_s,
                "decide_within_s": decide_within_s,
                "pods_max": pods_max,
                "may_reach_out": may_reach_out,
                "kubeconfig_max_s": kubeconfig_max_s,
                "namespace_patterns": namespace_patterns,
                "namespaces_max": namespaces_max,
                "why": why,
                "version": version,
            },
            if_match=if_match,
            kind=models.Policy,
        )

    async def preview(
        self,
        id: str,
        *,
        nodes_approval: Annotated[int, Meta(ge=0, le=2147483647)] | UnsetType | None = UNSET,
        gpus_approval: Annotated[int, Meta(ge=0, le=2147483647)] | UnsetType | None = UNSET,
        duration_approval_s: Annotated[int, Meta(ge=1, le=31622400)] | UnsetType | None = UNSET,
        duration_max_s: Annotated[int, Meta(ge=1, le=31622400)] | UnsetType | None = UNSET,
        priority_approval: Annotated[int, Meta(ge=1, le=300)] | UnsetType | None = UNSET,
        queued_max: Annotated[int, Meta(ge=0, le=2147483647)] | UnsetType | None = UNSET,
        ahead_max_s: Annotated[int, Meta(ge=60, le=31622400)] | UnsetType | None = UNSET,
        shapes: Annotated[Sequence[str], Meta(max_length=100)] | UnsetType | None = UNSET,
        may_evict: bool | UnsetType | None = UNSET,
        may_skip_checks: bool | UnsetType | None = UNSET,
        may_order: bool | UnsetType | None = UNSET,
        idle_timeout_s: Annotated[int, Meta(ge=0, le=31622400)] | UnsetType | None = UNSET,
        may_keep_idle: bool | UnsetType | None = UNSET,
        burst_gain_s: Annotated[int, Meta(ge=0, le=31622400)] | UnsetType | None = UNSET,
        decide_within_s: Annotated[int, Meta(ge=60, le=31622400)] | UnsetType | None = UNSET,
        pods_max: Annotated[int, Meta(ge=0, le=2147483647)] | UnsetType | None = UNSET,
        may_reach_out: bool | UnsetType | None = UNSET,
        kubeconfig_max_s: Annotated[int, Meta(ge=600, le=31622400)] | UnsetType | None = UNSET,
        namespace_patterns: Annotated[Sequence[str], Meta(max_length=100)] | UnsetType | None = UNSET,
        namespaces_max: Annotated[int, Meta(ge=0, le=2147483647)] | UnsetType | None = UNSET,
        why: Annotated[str, Meta(max_length=300)] | UnsetType = UNSET,
        version: Annotated[int, Meta(ge=0, le=9007199254740991)] | UnsetType = UNSET,
    ) -> models.PolicyPreview:
        """Tell which requests would break the changed policy, and what happens to them. Nothing is written.

        nodes_approval: More nodes in one request need approval.
        gpus_approval: More GPUs in one request need approval.
        duration_approval_s: Longer needs approval.
        duration_max_s: Longer is refused.
        priority_approval: A higher priority needs approval.
        queued_max: Requests that may wait at once; more are refused.
        ahead_max_s: A later start, counted from now, is refused.
        shapes: Shapes it may ask for; empty means all.
        may_evict: Its requests may evict others of lower priority without approval.
        may_skip_checks: Its requests may skip the checks of nodes without approval.
        may_order: Nodes may be ordered for its requests from supplies, at their cost.
        idle_timeout_s: A box whose GPUs do nothing for so long is released; 0: never. Asking for longer needs approval.
        may_keep_idle: Members may keep an idle box, which begins its time-out anew.
        burst_gain_s: Requests run outside the preferred cluster only if that saves more than this.
        decide_within_s: What waits longer for approval is rejected.
        pods_max: Pods at once in each of its namespaces.
        may_reach_out: Pods may open connections to other networks, including the internet.
        kubeconfig_max_s: Maximum lifetime of its kubeconfigs.
        namespace_patterns: Namespace names that owners may bind without approval.
        namespaces_max: Maximum number of namespaces, bound or asked for, over all clusters.
        version: The version that you read. The answer is 409 if the request has changed since.
        """
        return await self.client.call(
            "POST",
            f"policies/{self.quoted(id)}/preview/",
            body={
                "nodes_approval": nodes_approval,
                "gpus_approval": gpus_approval,
                "duration_approval_s": duration_approval_s,
                "duration_max_s": duration_max_s,
                "priority_approval": priority_approval,
                "queued_max": queued_max,
                "ahead_max_s": ahead_max_s,
                "shapes": shapes,
                "may_evict": may_evict,
                "may_skip_checks": may_skip_checks,
                "may_order": may_order,
                "idle_timeout_s": idle_timeout_s,
                "may_keep_idle": may_keep_idle,
                "burst_gain_s": burst_gain_s,
                "decide_within_s": decide_within_s,
                "pods_max": pods_max,
                "may_reach_out": may_reach_out,
                "kubeconfig_max_s": kubeconfig_max_s,
                "namespace_patterns": namespace_patterns,
                "namespaces_max": namespaces_max,
                "why": why,
                "version": version,
            },
            kind=models.PolicyPreview,
        )


class PoliciesBreaches(AsyncResource):
    def list(
        self,
        policy_pk: str,
        *,
        cluster: str | UnsetType = UNSET,
        ended: bool | UnsetType = UNSET,
        idempotency_key: str | UnsetType = UNSET,
        is_booking: bool | UnsetType = UNSET,
        name: str | UnsetType = UNSET,
        owner: str | UnsetType = UNSET,
        page_size: int | UnsetType = UNSET,
        priority_max: int | UnsetType = UNSET,
        priority_min: int | UnsetType = UNSET,
        slice: str | UnsetType = UNSET,
        state: Sequence[
            Literal[
                "ACTIVE",
                "CANCELED",
                "COMPLETED",
                "EVICTED",
                "EXITING",
                "FAILED",
                "PENDING_APPROVAL",
                "PROVISIONING",
                "QUEUED",
                "REJECTED",
                "RELEASED",
            ]
        ]
        | UnsetType = UNSET,
    ) -> AsyncPages[models.PolicyBreach]:
        """List running, waiting and booked requests that break the policy in force, the newest first.

        cluster: The cluster of its nodes.
        idempotency_key: What your POST with this key has made, by itself or as a job.
        name: Part of the name.
        owner: Id or name, or `me`.
        page_size: Rows a page.
        """
        return AsyncPages(
            self.client,
            f"policies/{self.quoted(policy_pk)}/breaches/",
            params={
                "cluster": cluster,
                "ended": ended,
                "idempotency_key": idempotency_key,
                "is_booking": is_booking,
                "name": name,
                "owner": owner,
                "page_size": page_size,
                "priority_max": priority_max,
                "priority_min": priority_min,
                "slice": slice,
                "state": state,
            },
            kind=models.PolicyBreach,
        )


class PoliciesVersions(AsyncResource):
    def list(self, policy_pk: str, *, page_size: int | UnsetType = UNSET) -> AsyncPages[models.PolicyVersion]:
        """List the versions of a policy, the newest first.

        page_size: Rows a page.
        """
        return AsyncPages(
            self.client, f"policies/{self.quoted(policy_pk)}/versions/", params={"page_size": page_size}, kind=models.PolicyVersion
        )


class Queue(AsyncResource):
    def list(self, *, page_size: int | UnsetType = UNSET) -> AsyncPages[models.QueueRow]:
        """List waiting requests by planned start; those without one are last. A member sees his slices' rows; the position counts all.

        page_size: Rows a page.
        """
        return AsyncPages(self.client, "queue/", params={"page_size": page_size}, kind=models.QueueRow)


class Quotas(AsyncResource):
    def list(
        self,
        *,
        page_size: int | UnsetType = UNSET,
        project: str | UnsetType = UNSET,
        shape: str | UnsetType = UNSET,
        slice: str | UnsetType = UNSET,
    ) -> AsyncPages[models.Quota]:
        """List quotas. A member sees those of his slices and of their projects.

        page_size: Rows a page.
        project: Id or name. Includes those of its slices.
        slice: Id or name.
        """
        return AsyncPages(
            self.client, "quotas/", params={"page_size": page_size, "project": project, "shape": shape, "slice": slice}, kind=models.Quota
        )

    async def create(
        self,
        *,
        shape: Annotated[str, Meta(min_length=1, max_length=63)],
        why: Annotated[str, Meta(max_length=300)] | UnsetType = UNSET,
        guaranteed_gpus: Annotated[int, Meta(ge=0, le=2147483647)] | UnsetType = UNSET,
        most_gpus: Annotated[int, Meta(ge=0, le=2147483647)] | UnsetType | None = UNSET,
        project: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[^\\x00]*$")] | UnsetType = UNSET,
        slice: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[^\\x00]*$")] | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.Quota:
        """Create the quota of a project, or of a slice as a part of its project's.

        project: Give either this or `slice`.
        """
        return await self.client.call(
            "POST",
            "quotas/",
            body={
                "why": why,
                "guaranteed_gpus": guaranteed_gpus,
                "most_gpus": most_gpus,
                "project": project,
                "slice": slice,
                "shape": shape,
            },
            is_keyed=True,
            key=idempotency_key,
            kind=models.Quota,
        )

    async def get(self, id: str) -> models.Quota:
        """GET quotas/{id}/"""
        return await self.client.call("GET", f"quotas/{self.quoted(id)}/", kind=models.Quota)

    async def update(
        self,
        id: str,
        *,
        why: Annotated[str, Meta(max_length=300)] | UnsetType = UNSET,
        guaranteed_gpus: Annotated[int, Meta(ge=0, le=2147483647)] | UnsetType = UNSET,
        most_gpus: Annotated[int, Meta(ge=0, le=2147483647)] | UnsetType | None = UNSET,
        if_match: str | None = None,
    ) -> models.Quota:
        """Change the quota. A limit below the held GPUs ends nothing; no request starts until fewer are held.

        if_match: the ETag of the state that is meant; * for any. Default: that of the last reading, if there was one.
        """
        return await self.client.call(
            "PATCH",
            f"quotas/{self.quoted(id)}/",
            body={"why": why, "guaranteed_gpus": guaranteed_gpus, "most_gpus": most_gpus},
            if_match=if_match,
            kind=models.Quota,
        )

    async def delete(self, id: str, *, why: str | UnsetType = UNSET, if_match: str | None = None) -> None:
        """DELETE quotas/{id}/

        why: The reason, which is recorded with the user's name.
        if_match: the ETag of the state that is meant; * for any. Default: that of the last reading, if there was one.
        """
        await self.client.call("DELETE", f"quotas/{self.quoted(id)}/", params={"why": why}, if_match=if_match, kind=type(None))


class Supplies(AsyncResource):
    def list(
        self, *, cluster: str | UnsetType = UNSET, page_size: int | UnsetType = UNSET, shape: str | UnsetType = UNSET
    ) -> AsyncPages[models.Supply]:
        """Sorted by created_at, id.

        page_size: Rows a page.
        """
        return AsyncPages(self.client, "supplies/", params={"cluster": cluster, "page_size": page_size, "shape": shape}, kind=models.Supply)

    async def create(
        self,
        *,
        cluster: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[^\\x00]*$")],
        name: Annotated[str, Meta(min_length=1, max_length=63)],
        kind: Literal["NODE_POOL", "ATTACH"],
        shape: Annotated[str, Meta(min_length=1, max_length=63)],
        gpus_per_node: Annotated[int, Meta(ge=1, le=64)],
        gpu_memory_gib: Annotated[int, Meta(ge=1, le=100000)],
        node_count: Annotated[int, Meta(ge=1, le=1000)],
        lead_time_s: int | str,
        gain_s: int | str,
        is_enabled: bool | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.Supply:
        """Create a supply. Within a second, nodes are ordered for waiting requests that may order and gain enough.

        shape: The shape that its nodes will report; it may be new to the cluster.
        gpu_memory_gib: Minimum memory of each GPU.
        node_count: How many nodes it can provide in total.
        lead_time_s: Time from the order to the arrival of the node.
        gain_s: Nodes are ordered only if a request starts sooner by at least this.
        """
        return await self.client.call(
            "POST",
            "supplies/",
            body={
                "cluster": cluster,
                "name": name,
                "kind": kind,
                "shape": shape,
                "gpus_per_node": gpus_per_node,
                "gpu_memory_gib": gpu_memory_gib,
                "node_count": node_count,
                "lead_time_s": lead_time_s,
                "gain_s": gain_s,
                "is_enabled": is_enabled,
            },
            is_keyed=True,
            key=idempotency_key,
            kind=models.Supply,
        )

    async def get(self, ref: str) -> models.Supply:
        """GET supplies/{ref}/"""
        return await self.client.call("GET", f"supplies/{self.quoted(ref)}/", kind=models.Supply)

    async def update(
        self,
        ref: str,
        *,
        name: Annotated[str, Meta(min_length=1, max_length=63)] | UnsetType = UNSET,
        node_count: Annotated[int, Meta(ge=1, le=1000)] | UnsetType = UNSET,
        lead_time_s: int | str | UnsetType = UNSET,
        gain_s: int | str | UnsetType = UNSET,
        is_enabled: bool | UnsetType = UNSET,
        why: Annotated[str, Meta(max_length=300)] | UnsetType = UNSET,
        if_match: str | None = None,
    ) -> models.Supply:
        """Change the supply for later orders. Existing orders stay as they are.

        node_count: How many nodes it can provide in total.
        lead_time_s: Time from the order to the arrival of the node.
        gain_s: Nodes are ordered only if a request starts sooner by at least this.
        is_enabled: Whether nodes may be ordered.
        if_match: the ETag of the state that is meant; * for any. Default: that of the last reading, if there was one.
        """
        return await self.client.call(
            "PATCH",
            f"supplies/{self.quoted(ref)}/",
            body={
                "name": name,
                "node_count": node_count,
                "lead_time_s": lead_time_s,
                "gain_s": gain_s,
                "is_enabled": is_enabled,
                "why": why,
            },
            if_match=if_match,
            kind=models.Supply,
        )


class SupplyOrders(AsyncResource):
    def list(
        self,
        *,
        cluster: str | UnsetType = UNSET,
        gpr: str | UnsetType = UNSET,
        page_size: int | UnsetType = UNSET,
        state: Sequence[Literal["ARRIVED", "CANCELED", "FAILED", "ORDERED"]] | UnsetType = UNSET,
        supply: str | UnsetType = UNSET,
    ) -> AsyncPages[models.SupplyOrder]:
        """Sorted by ordered_at (descending), id.

        page_size: Rows a page.
        """
        return AsyncPages(
            self.client,
            "supply-orders/",
            params={"cluster": cluster, "gpr": gpr, "page_size": page_size, "state": state, "supply": supply},
            kind=models.SupplyOrder,
        )

    async def get(self, id: str) -> models.SupplyOrder:
        """GET supply-orders/{id}/"""
        return await self.client.call("GET", f"supply-orders/{self.quoted(id)}/", kind=models.SupplyOrder)

    async def cancel(
        self, id: str, *, why: Annotated[str, Meta(min_length=1, max_length=200)], idempotency_key: str | None = None
    ) -> models.SupplyOrder:
        """Cancel the order. GPRs that were planned on it are planned elsewhere and get no more orders from this supply."""
        return await self.client.call(
            "POST",
            f"supply-orders/{self.quoted(id)}/cancel/",
            body={"why": why},
            is_keyed=True,
            key=idempotency_key,
            kind=models.SupplyOrder,
        )

    async def fail(
        self, id: str, *, why: Annotated[str, Meta(min_length=1, max_length=200)], idempotency_key: str | None = None
    ) -> models.SupplyOrder:
        """Report that the node will not come. Its GPRs are planned elsewhere, and the supply gets no orders for a quarter of an hour."""
        return await self.client.call(
            "POST", f"supply-orders/{self.quoted(id)}/fail/", body={"why": why}, is_keyed=True, key=idempotency_key, kind=models.SupplyOrder
        )


class Templates(AsyncResource):
    def list(
        self,
        *,
        cluster: str | UnsetType = UNSET,
        is_default: bool | UnsetType = UNSET,
        name: str | UnsetType = UNSET,
        page_size: int | UnsetType = UNSET,
        slice: str | UnsetType = UNSET,
    ) -> AsyncPages[models.Template]:
        """Sorted by name, id.

        cluster: Templates for this cluster only, without those for all clusters.
        name: Part of the name.
        page_size: Rows a page.
        slice: What its requests may start from: its own templates, and those of the platform.
        """
        return AsyncPages(
            self.client,
            "templates/",
            params={"cluster": cluster, "is_default": is_default, "name": name, "page_size": page_size, "slice": slice},
            kind=models.Template,
        )

    async def create(
        self,
        *,
        name: Annotated[str, Meta(min_length=1, pattern="^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")],
        cluster: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[^\\x00]*$")] | UnsetType | None = UNSET,
        is_default: bool | UnsetType = UNSET,
        auto: bool | UnsetType = UNSET,
        slice: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[^\\x00]*$")] | UnsetType | None = UNSET,
        shape: str | UnsetType | None = UNSET,
        min_gpu_memory_gib: Annotated[int, Meta(ge=1, le=100000)] | UnsetType | None = UNSET,
        nodes: Annotated[int, Meta(ge=1, le=10000)] | UnsetType | None = UNSET,
        gpus_per_node: Annotated[int, Meta(ge=1, le=1024)] | UnsetType | None = UNSET,
        duration_s: int | str | UnsetType | None = UNSET,
        priority: Annotated[int, Meta(ge=1, le=300)] | UnsetType | None = UNSET,
        node_type: Annotated[str, Meta(max_length=63)] | UnsetType | None = UNSET,
        rdma: bool | UnsetType | None = UNSET,
        within: Literal[""] | Literal["rack", "nvlink"] | UnsetType | None = UNSET,
        idle_timeout_s: int | str | UnsetType | None = UNSET,
        evictable: bool | UnsetType | None = UNSET,
        may_evict: bool | UnsetType | None = UNSET,
        requeue_on_failure: bool | UnsetType | None = UNSET,
        run_checks: bool | UnsetType | None = UNSET,
        kind: Literal["Job", "JobSet", "PyTorchJob", "MPIJob", "Notebook", "Manifest"] | UnsetType | None = UNSET,
        image: Annotated[str, Meta(max_length=500, pattern="^[^\\x00]*$")] | UnsetType | None = UNSET,
        command: Annotated[Sequence[str], Meta(max_length=200)] | UnsetType | None = UNSET,
        env: Mapping[str, str] | UnsetType | None = UNSET,
        secrets: Annotated[Sequence[str], Meta(max_length=200)] | UnsetType | None = UNSET,
        volumes: Mapping[str, str] | UnsetType | None = UNSET,
        pull_secret: str | UnsetType | None = UNSET,
        user_id: Annotated[int, Meta(ge=1, le=2147483647)] | UnsetType | None = UNSET,
        retries: Annotated[int, Meta(ge=0, le=100)] | UnsetType | None = UNSET,
        checkpoint: Annotated[Sequence[str], Meta(max_length=200)] | UnsetType | None = UNSET,
        manifest: Sequence[Mapping[str, Any]] | str | UnsetType | None = UNSET,
        namespace: str | UnsetType | None = UNSET,
        releases_box: bool | UnsetType | None = UNSET,
        idempotency_key: str | None = None,
    ) -> models.Template:
        """Create a template. Owners of the slice may do this; for the platform, its administrators.

        name: Letters, digits, dots, dashes and underscores, beginning and ending with a letter or a digit; 63 at most.
        cluster: The only cluster that it is for; null: all clusters of the slice.
        is_default: Whether it is the default of its cluster or of the slice, and replaces the present one. A cluster's default takes
            precedence.
        auto: While it is the default, requests are created from it for GPU pods that wait in namespaces of the slice without an
            automatic GPRTemplate. It needs `shape` and `duration_s`.
        slice: Whose requests start from it. Null: the platform, for the requests of all slices; a slice's own of the same name hides
            it.
        shape: E.g. H100-80GB. Empty, with `min_gpu_memory_gib`: EGS chooses the shape.
        gpus_per_node: Null: all of each node.
        priority: A higher priority is first. Default: 101.
        within: A rack or NVLink domain that all of its nodes must share. EGS always places them as near to each other as possible.
        idle_timeout_s: It is released when its GPUs did nothing for so long, 5 minutes at least. 0: never. Null: as long as the
            policy says.
        kind: The object that it becomes; other kinds than Job need a cluster that serves them. Manifest: `manifest` has the objects.
        command: Program and arguments; empty: those of the image.
        env: Variables. Members of the workspace see them: put secrets into `secrets`.
        secrets: Secrets of the namespace whose values it gets as variables.
        volumes: By PersistentVolumeClaim of the namespace: the path where it is mounted.
        pull_secret: The Secret of the namespace with which the image is pulled.
        user_id: The user of its processes, never root. Default: 1000.
        retries: Number of restarts after a failure. Evictions do not count. Default: 0.
        checkpoint: A command that runs in each pod before it is ended.
        manifest: Objects of Kubernetes, without namespace, as a list or as YAML. The first that can finish says how the job ends.
            They may be Job, JobSet, PyTorchJob, MPIJob, Deployment, StatefulSet, Service.
        namespace: Empty: the first of the workspace in the cluster.
        releases_box: Give the nodes back when it has finished. Default: true; in the box of another: false.
        """
        return await self.client.call(
            "POST",
            "templates/",
            body={
                "name": name,
                "cluster": cluster,
                "is_default": is_default,
                "auto": auto,
                "slice": slice,
                "shape": shape,
                "min_gpu_memory_gib": min_gpu_memory_gib,
                "nodes": nodes,
                "gpus_per_node": gpus_per_node,
                "duration_s": duration_s,
                "priority": priority,
                "node_type": node_type,
                "rdma": rdma,
                "within": within,
                "idle_timeout_s": idle_timeout_s,
                "evictable": evictable,
                "may_evict": may_evict,
                "requeue_on_failure": requeue_on_failure,
                "run_checks": run_checks,
                "kind": kind,
                "image": image,
                "command": command,
                "env": env,
                "secrets": secrets,
                "volumes": volumes,
                "pull_secret": pull_secret,
                "user_id": user_id,
                "retries": retries,
                "checkpoint": checkpoint,
                "manifest": manifest,
                "namespace": namespace,
                "releases_box": releases_box,
            },
            is_keyed=True,
            key=idempotency_key,
            kind=models.Template,
        )

    async def get(self, ref: str) -> models.Template:
        """GET templates/{ref}/"""
        return await self.client.call("GET", f"templates/{self.quoted(ref)}/", kind=models.Template)

    async def update(
        self,
        ref: str,
        *,
        name: Annotated[str, Meta(min_length=1, pattern="^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")] | UnsetType = UNSET,
        cluster: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[^\\x00]*$")] | UnsetType | None = UNSET,
        is_default: bool | UnsetType = UNSET,
        auto: bool | UnsetType = UNSET,
        shape: str | UnsetType | None = UNSET,
        min_gpu_memory_gib: Annotated[int, Meta(ge=1, le=100000)] | UnsetType | None = UNSET,
        nodes: Annotated[int, Meta(ge=1, le=10000)] | UnsetType | None = UNSET,
        gpus_per_node: Annotated[int, Meta(ge=1, le=1024)] | UnsetType | None = UNSET,
        duration_s: int | str | UnsetType | None = UNSET,
        priority: Annotated[int, Meta(ge=1, le=300)] | UnsetType | None = UNSET,
        node_type: Annotated[str, Meta(max_length=63)] | UnsetType | None = UNSET,
        rdma: bool | UnsetType | None = UNSET,
        within: Literal[""] | Literal["rack", "nvlink"] | UnsetType | None = UNSET,
        idle_timeout_s: int | str | UnsetType | None = UNSET,
        evictable: bool | UnsetType | None = UNSET,
        may_evict: bool | UnsetType | None = UNSET,
        requeue_on_failure: bool | UnsetType | None = UNSET,
        run_checks: bool | UnsetType | None = UNSET,
        kind: Literal["Job", "JobSet", "PyTorchJob", "MPIJob", "Notebook", "Manifest"] | UnsetType | None = UNSET,
        image: Annotated[str, Meta(max_length=500, pattern="^[^\\x00]*$")] | UnsetType | None = UNSET,
        command: Annotated[Sequence[str], Meta(max_length=200)] | UnsetType | None = UNSET,
        env: Mapping[str, str] | UnsetType | None = UNSET,
        secrets: Annotated[Sequence[str], Meta(max_length=200)] | UnsetType | None = UNSET,
        volumes: Mapping[str, str] | UnsetType | None = UNSET,
        pull_secret: str | UnsetType | None = UNSET,
        user_id: Annotated[int, Meta(ge=1, le=2147483647)] | UnsetType | None = UNSET,
        retries: Annotated[int, Meta(ge=0, le=100)] | UnsetType | None = UNSET,
        checkpoint: Annotated[Sequence[str], Meta(max_length=200)] | UnsetType | None = UNSET,
        manifest: Sequence[Mapping[str, Any]] | str | UnsetType | None = UNSET,
        namespace: str | UnsetType | None = UNSET,
        releases_box: bool | UnsetType | None = UNSET,
        if_match: str | None = None,
    ) -> models.Template:
        """Change the template for later requests.

        name: Letters, digits, dots, dashes and underscores, beginning and ending with a letter or a digit; 63 at most.
        cluster: The only cluster that it is for; null: all clusters of the slice.
        is_default: Whether it is the default of its cluster or of the slice, and replaces the present one. A cluster's default takes
            precedence.
        auto: While it is the default, requests are created from it for GPU pods that wait in namespaces of the slice without an
            automatic GPRTemplate. It needs `shape` and `duration_s`.
        shape: E.g. H100-80GB. Empty, with `min_gpu_memory_gib`: EGS chooses the shape.
        gpus_per_node: Null: all of each node.
        priority: A higher priority is first. Default: 101.
        within: A rack or NVLink domain that all of its nodes must share. EGS always places them as near to each other as possible.
        idle_timeout_s: It is released when its GPUs did nothing for so long, 5 minutes at least. 0: never. Null: as long as the
            policy says.
        kind: The object that it becomes; other kinds than Job need a cluster that serves them. Manifest: `manifest` has the objects.
        command: Program and arguments; empty: those of the image.
        env: Variables. Members of the workspace see them: put secrets into `secrets`.
        secrets: Secrets of the namespace whose values it gets as variables.
        volumes: By PersistentVolumeClaim of the namespace: the path where it is mounted.
        pull_secret: The Secret of the namespace with which the image is pulled.
        user_id: The user of its processes, never root. Default: 1000.
        retries: Number of restarts after a failure. Evictions do not count. Default: 0.
        checkpoint: A command that runs in each pod before it is ended.
        manifest: Objects of Kubernetes, without namespace, as a list or as YAML. The first that can finish says how the job ends.
            They may be Job, JobSet, PyTorchJob, MPIJob, Deployment, StatefulSet, Service.
        namespace: Empty: the first of the workspace in the cluster.
        releases_box: Give the nodes back when it has finished. Default: true; in the box of another: false.
        if_match: the ETag of the state that is meant; * for any. Default: that of the last reading, if there was one.
        """
        return await self.client.call(
            "PATCH",
            f"templates/{self.quoted(ref)}/",
            body={
                "name": name,
                "cluster": cluster,
                "is_default": is_default,
                "auto": auto,
                "shape": shape,
                "min_gpu_memory_gib": min_gpu_memory_gib,
                "nodes": nodes,
                "gpus_per_node": gpus_per_node,
                "duration_s": duration_s,
                "priority": priority,
                "node_type": node_type,
                "rdma": rdma,
                "within": within,
                "idle_timeout_s": idle_timeout_s,
                "evictable": evictable,
                "may_evict": may_evict,
                "requeue_on_failure": requeue_on_failure,
                "run_checks": run_checks,
                "kind": kind,
                "image": image,
                "command": command,
                "env": env,
                "secrets": secrets,
                "volumes": volumes,
                "pull_secret": pull_secret,
                "user_id": user_id,
                "retries": retries,
                "checkpoint": checkpoint,
                "manifest": manifest,
                "namespace": namespace,
                "releases_box": releases_box,
            },
            if_match=if_match,
            kind=models.Template,
        )

    async def delete(self, ref: str, *, if_match: str | None = None) -> None:
        """Delete the template. Requests that were created from it stay as they are.

        if_match: the ETag of the state that is meant; * for any. Default: that of the last reading, if there was one.
        """
        await self.client.call("DELETE", f"templates/{self.quoted(ref)}/", if_match=if_match, kind=type(None))


class Usage(AsyncResource):
    @cached_property
    def league(self) -> UsageLeague:
        return UsageLeague(self.client)

    @cached_property
    def prices(self) -> UsagePrices:
        return UsagePrices(self.client)

    def list(
        self,
        *,
        by: Literal["cluster", "gpr", "person", "project", "shape", "slice", "workload"] | UnsetType = UNSET,
        cluster: str | UnsetType = UNSET,
        gpr: str | UnsetType = UNSET,
        owner: str | UnsetType = UNSET,
        page_size: int | UnsetType = UNSET,
        project: str | UnsetType = UNSET,
        shape: str | UnsetType = UNSET,
        since: str | UnsetType = UNSET,
        slice: str | UnsetType = UNSET,
        step: Literal["day", "month", "total"] | UnsetType = UNSET,
        until: str | UnsetType = UNSET,
        workload: str | UnsetType = UNSET,
    ) -> AsyncPages[models.Usage]:
        """Count GPU-hours, those with most first. A member counts those of his slices.

        by: By default slice.
        owner: The person who filed the GPR: id or name, or `me`.
        page_size: Rows a page.
        step: By default total.
        workload: Id of the workload, or its kind and name as in rows by workload.
        """
        return AsyncPages(
            self.client,
            "usage/",
            params={
                "by": by,
                "cluster": cluster,
                "gpr": gpr,
                "owner": owner,
                "page_size": page_size,
                "project": project,
                "shape": shape,
                "since": since,
                "slice": slice,
                "step": step,
                "until": until,
                "workload": workload,
            },
            kind=models.Usage,
        )


class UsageLeague(AsyncResource):
    def list(self, *, since: str | UnsetType = UNSET, until: str | UnsetType = UNSET) -> AsyncPages[models.LeaguePlace]:
        """Compare the slices of each project by how much of their GPU time they use, the most efficient first. A member sees the places
        of his own slices, an administrator of a project those of all its slices. Projects may stay out of it.
        """
        return AsyncPages(self.client, "usage/league/", params={"since": since, "until": until}, kind=models.LeaguePlace)


class UsagePrices(AsyncResource):
    def list(self, *, page_size: int | UnsetType = UNSET) -> AsyncPages[models.Price]:
        """Prices of GPU-hours by shape, each from a day until the shape's next price.

        page_size: Rows a page.
        """
        return AsyncPages(self.client, "usage/prices/", params={"page_size": page_size}, kind=models.Price)

    async def create(
        self,
        *,
        shape: Annotated[str, Meta(min_length=1, max_length=63)],
        gpu_hour_price: Annotated[str, Meta(pattern="^([0-9]{1,6}(\\.[0-9]{0,4})?|1000000(\\.0{0,4})?)$")],
        from_day: str | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.Price:
        """Set a shape's price from a day on. It replaces the price that begins on the same day; costs of past days follow it.

        from_day: In UTC; by default today. It may be past.
        """
        return await self.client.call(
            "POST",
            "usage/prices/",
            body={"shape": shape, "gpu_hour_price": gpu_hour_price, "from_day": from_day},
            is_keyed=True,
            key=idempotency_key,
            kind=models.Price,
        )

    async def get(self, id: str) -> models.Price:
        """Prices of GPU-hours by shape, each from a day until the shape's next price."""
        return await self.client.call("GET", f"usage/prices/{self.quoted(id)}/", kind=models.Price)

    async def delete(self, id: str) -> None:
        """Delete a price; the one before it holds again."""
        await self.client.call("DELETE", f"usage/prices/{self.quoted(id)}/", kind=type(None))
