# `make client` writes this file. Do not edit it.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from egs_client.aio.pages import AsyncPages
from egs_client.aio.resource import AsyncResource
from egs_client.models import observability as models


class AlertRules(AsyncResource):
    def list(
        self,
        *,
        is_on: bool | UnsetType = UNSET,
        kind: Sequence[Literal["absence", "forecast", "rate", "threshold", "trend"]] | UnsetType = UNSET,
        page_size: int | UnsetType = UNSET,
        signal: Sequence[
            Literal[
                "agent",
                "behind_peers_s",
                "budget_percent",
                "clock_offset_s",
                "ecc_corrected",
                "ecc_uncorrected",
                "failed_checks",
                "memory_bandwidth_percent",
                "memory_temperature_c",
                "memory_used_mib",
                "node_conditions",
                "node_not_ready",
                "nvlink_errors",
                "nvlink_mib_s",
                "pcie_mib_s",
                "pcie_replays",
                "power_percent",
                "power_w",
                "promise_late_s",
                "queue_wait_s",
                "quota_percent",
                "reading",
                "rows_failed",
                "rows_remapped",
                "sm_clock_mhz",
                "temperature_c",
                "tensor_percent",
                "throttled_percent",
                "utilization_percent",
                "xid_contact_support",
                "xid_investigate",
                "xid_reboot_node",
                "xid_reset_gpu",
                "xid_restart_app",
            ]
        ]
        | UnsetType = UNSET,
        slice: str | UnsetType = UNSET,
    ) -> AsyncPages[models.AlertRule]:
        """Rules belong to the platform or to workspaces. Members see those that may tell them something.

        page_size: Rows a page.
        """
        return AsyncPages(
            self.client,
            "alert-rules/",
            params={"is_on": is_on, "kind": kind, "page_size": page_size, "signal": signal, "slice": slice},
            kind=models.AlertRule,
        )

    async def create(
        self,
        *,
        name: Annotated[str, Meta(min_length=1, max_length=80)],
        kind: Literal["threshold", "rate", "trend", "forecast", "absence"],
        level: Annotated[float, Meta(ge=-1000000000.0, le=1000000000.0)],
        severity: Literal["info", "warning", "error"],
        signal: Literal[
            "temperature_c",
            "memory_temperature_c",
            "utilization_percent",
            "memory_used_mib",
            "power_w",
            "sm_clock_mhz",
            "tensor_percent",
            "memory_bandwidth_percent",
            "nvlink_mib_s",
            "pcie_mib_s",
            "throttled_percent",
            "power_percent",
            "behind_peers_s",
            "ecc_corrected",
            "ecc_uncorrected",
            "rows_remapped",
            "rows_failed",
            "pcie_replays",
            "nvlink_errors",
            "xid_restart_app",
            "xid_reset_gpu",
            "xid_reboot_node",
            "xid_contact_support",
            "xid_investigate",
            "reading",
            "node_not_ready",
            "node_conditions",
            "failed_checks",
            "agent",
            "clock_offset_s",
            "queue_wait_s",
            "promise_late_s",
            "quota_percent",
            "budget_percent",
        ],
        direction: Literal["above", "below"] | UnsetType = UNSET,
        clear_level: Annotated[float, Meta(ge=-1000000000.0, le=1000000000.0)] | UnsetType = UNSET,
        severe_level: Annotated[float, Meta(ge=-1000000000.0, le=1000000000.0)] | UnsetType | None = UNSET,
        window_s: Annotated[int, Meta(ge=60, le=172800)] | UnsetType = UNSET,
        hold_s: Annotated[int, Meta(ge=0, le=604800)] | UnsetType = UNSET,
        clear_s: Annotated[int, Meta(ge=0, le=604800)] | UnsetType = UNSET,
        cluster: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[^\\x00]*$")] | UnsetType | None = UNSET,
        shape: Annotated[str, Meta(max_length=63)] | UnsetType = UNSET,
        tells: Literal["admins", "box", "both", "nobody"] | UnsetType = UNSET,
        is_on: bool | UnsetType = UNSET,
        runbook: Annotated[str, Meta(max_length=1000)] | UnsetType = UNSET,
        slice: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[^\\x00]*$")] | UnsetType | None = UNSET,
        idempotency_key: str | None = None,
    ) -> models.AlertRule:
        """Make a rule for the boxes of a workspace; administrators also one of the platform.

        level: In the signal's unit; of an absence in seconds.
        clear_level: By default the level.
        severe_level: From here on it is an error.
        window_s: Only rates, trends and forecasts have a window.
        hold_s: How long it must last before it fires.
        clear_s: How long it must be over before it is resolved.
        cluster: Null: all.
        shape: Empty: all.
        runbook: What to do.
        slice: Whose boxes it watches; without it a rule of the platform.
        """
        return await self.client.call(
            "POST",
            "alert-rules/",
            body={
                "name": name,
                "kind": kind,
                "direction": direction,
                "level": level,
                "clear_level": clear_level,
                "severe_level": severe_level,
                "window_s": window_s,
                "hold_s": hold_s,
                "clear_s": clear_s,
                "severity": severity,
                "cluster": cluster,
                "shape": shape,
                "tells": tells,
                "is_on": is_on,
                "runbook": runbook,
                "slice": slice,
                "signal": signal,
            },
            is_keyed=True,
            key=idempotency_key,
            kind=models.AlertRule,
        )

    async def get(self, id: str) -> models.AlertRule:
        """Rules belong to the platform or to workspaces. Members see those that may tell them something."""
        return await self.client.call("GET", f"alert-rules/{self.quoted(id)}/", kind=models.AlertRule)

    async def update(
        self,
        id: str,
        *,
        name: Annotated[str, Meta(min_length=1, max_length=80)] | UnsetType = UNSET,
        kind: Literal["threshold", "rate", "trend", "forecast", "absence"] | UnsetType = UNSET,
        direction: Literal["above", "below"] | UnsetType = UNSET,
        level: Annotated[float, Meta(ge=-1000000000.0, le=1000000000.0)] | UnsetType = UNSET,
        clear_level: Annotated[float, Meta(ge=-1000000000.0, le=1000000000.0)] | UnsetType = UNSET,
        severe_level: Annotated[float, Meta(ge=-1000000000.0, le=1000000000.0)] | UnsetType | None = UNSET,
        window_s: Annotated[int, Meta(ge=60, le=172800)] | UnsetType = UNSET,
        hold_s: Annotated[int, Meta(ge=0, le=604800)] | UnsetType = UNSET,
        clear_s: Annotated[int, Meta(ge=0, le=604800)] | UnsetType = UNSET,
        severity: Literal["info", "warning", "error"] | UnsetType = UNSET,
        cluster: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[^\\x00]*$")] | UnsetType | None = UNSET,
        shape: Annotated[str, Meta(max_length=63)] | UnsetType = UNSET,
        tells: Literal["admins", "box", "both", "nobody"] | UnsetType = UNSET,
        is_on: bool | UnsetType = UNSET,
        runbook: Annotated[str, Meta(max_length=1000)] | UnsetType = UNSET,
        if_match: str | None = None,
    ) -> models.AlertRule:
        """Rules belong to the platform or to workspaces. Members see those that may tell them something.

        level: In the signal's unit; of an absence in seconds.
        clear_level: By default the level.
        severe_level: From here on it is an error.
        window_s: Only rates, trends and forecasts have a window.
        hold_s: How long it must last before it fires.
        clear_s: How long it must be over before it is resolved.
        cluster: Null: all.
        shape: Empty: all.
        runbook: What to do.
        if_match: the ETag of the state that is meant; * for any. Default: that of the last reading, if there was one.
        """
        return await self.client.call(
            "PATCH",
            f"alert-rules/{self.quoted(id)}/",
            body={
                "name": name,
                "kind": kind,
                "direction": direction,
                "level": level,
                "clear_level": clear_level,
                "severe_level": severe_level,
                "window_s": window_s,
                "hold_s": hold_s,
                "clear_s": clear_s,
                "severity": severity,
                "cluster": cluster,
                "shape": shape,
                "tells": tells,
                "is_on": is_on,
                "runbook": runbook,
            },
            if_match=if_match,
            kind=models.AlertRule,
        )

    async def delete(self, id: str, *, if_match: str | None = None) -> None:
        """Its alerts go with it. A rule that EGS brings can only be switched off.

        if_match: the ETag of the state that is meant; * for any. Default: that of the last reading, if there was one.
        """
        await self.client.call("DELETE", f"alert-rules/{self.quoted(id)}/", if_match=if_match, kind=type(None))


class AlertSilences(AsyncResource):
    def list(self, *, page_size: int | UnsetType = UNSET, slice: str | UnsetType = UNSET) -> AsyncPages[models.AlertSilence]:
        """While a silence lasts, nobody is told of the alerts that match; they stand in the list all the same.

        page_size: Rows a page.
        """
        return AsyncPages(self.client, "alert-silences/", params={"page_size": page_size, "slice": slice}, kind=models.AlertSilence)

    async def create(
        self,
        *,
        ends_at: datetime | str,
        reason: Annotated[str, Meta(min_length=1, max_length=200)],
        slice: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[^\\x00]*$")] | UnsetType | None = UNSET,
        rule: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[^\\x00]*$")] | UnsetType = UNSET,
        cluster: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[^\\x00]*$")] | UnsetType = UNSET,
        node: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[^\\x00]*$")] | UnsetType = UNSET,
        alert: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[^\\x00]*$")] | UnsetType = UNSET,
        starts_at: datetime | str | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.AlertSilence:
        """While a silence lasts, nobody is told of the alerts that match; they stand in the list all the same.

        slice: Whose alerts; without it those of administrators.
        rule: Id of the rule.
        alert: Id of one alert.
        starts_at: By default now.
        """
        return await self.client.call(
            "POST",
            "alert-silences/",
            body={
                "slice": slice,
                "rule": rule,
                "cluster": cluster,
                "node": node,
                "alert": alert,
                "starts_at": starts_at,
                "ends_at": ends_at,
                "reason": reason,
            },
            is_keyed=True,
            key=idempotency_key,
            kind=models.AlertSilence,
        )

    async def get(self, id: str) -> models.AlertSilence:
        """While a silence lasts, nobody is told of the alerts that match; they stand in the list all the same."""
        return await self.client.call("GET", f"alert-silences/{self.quoted(id)}/", kind=models.AlertSilence)

    async def delete(self, id: str) -> None:
        """End it now."""
        await self.client.call("DELETE", f"alert-silences/{self.quoted(id)}/", kind=type(None))


class Alerts(AsyncResource):
    @cached_property
    def subjects(self) -> AlertsSubjects:
        return AlertsSubjects(self.client)

    def list(
        self,
        *,
        cluster: str | UnsetType = UNSET,
        gpr: str | UnsetType = UNSET,
        page_size: int | UnsetType = UNSET,
        platform: bool | UnsetType = UNSET,
        rule: str | UnsetType = UNSET,
        severity: Sequence[Literal["error", "info", "warning"]] | UnsetType = UNSET,
        slice: str | UnsetType = UNSET,
        state: Sequence[Literal["ACKNOWLEDGED", "FIRING", "PENDING", "RESOLVED"]] | UnsetType = UNSET,
    ) -> AsyncPages[models.Alert]:
        """List alerts, the newest first. Administrators and auditors see all; members see those of their own boxes.

        page_size: Rows a page.
        """
        return AsyncPages(
            self.client,
            "alerts/",
            params={
                "cluster": cluster,
                "gpr": gpr,
                "page_size": page_size,
                "platform": platform,
                "rule": rule,
                "severity": severity,
                "slice": slice,
                "state": state,
            },
            kind=models.Alert,
        )

    async def get(self, id: str) -> models.Alert:
        """List alerts, the newest first. Administrators and auditors see all; members see those of their own boxes."""
        return await self.client.call("GET", f"alerts/{self.quoted(id)}/", kind=models.Alert)

    async def acknowledge(self, id: str, *, note: Annotated[str, Meta(max_length=200)] | UnsetType = UNSET) -> models.Alert:
        """Take care of it. It is told again only if it gets worse.

        note: What you do about it.
        """
        return await self.client.call("POST", f"alerts/{self.quoted(id)}/acknowledge/", body={"note": note}, kind=models.Alert)


class AlertsSubjects(AsyncResource):
    def list(
        self,
        alert_pk: str,
        *,
        page_size: int | UnsetType = UNSET,
        state: Sequence[Literal["FIRING", "OVER", "PENDING"]] | UnsetType = UNSET,
    ) -> AsyncPages[models.AlertSubject]:
        """GPUs, nodes or whatever else the alert is about, with the course of each.

        page_size: Rows a page.
        """
        return AsyncPages(
            self.client,
            f"alerts/{self.quoted(alert_pk)}/subjects/",
            params={"page_size": page_size, "state": state},
            kind=models.AlertSubject,
        )


class Hotspots(AsyncResource):
    def list(
        self,
        *,
        cluster: str | UnsetType = UNSET,
        node: str | UnsetType = UNSET,
        page_size: int | UnsetType = UNSET,
        shape: str | UnsetType = UNSET,
        view: Literal["faulty", "hot", "idle", "stale"] | UnsetType = UNSET,
    ) -> AsyncPages[models.Hotspot]:
        """Each row is the newest reading of a GPU: administrators see all, members those that their workspaces hold.

        page_size: Rows a page.
        """
        return AsyncPages(
            self.client,
            "hotspots/",
            params={"cluster": cluster, "node": node, "page_size": page_size, "shape": shape, "view": view},
            kind=models.Hotspot,
        )


class Pods(AsyncResource):
    def list(
        self,
        *,
        cluster: str | UnsetType = UNSET,
        gpr: str | UnsetType = UNSET,
        namespace: str | UnsetType = UNSET,
        node: str | UnsetType = UNSET,
        page_size: int | UnsetType = UNSET,
        q: str | UnsetType = UNSET,
        slice: str | UnsetType = UNSET,
        view: Literal["ended", "held-back", "running"] | UnsetType = UNSET,
        workload: str | UnsetType = UNSET,
    ) -> AsyncPages[models.Pod]:
        """These pods hold GPUs or ask for them; each says what keeps it from running.

        page_size: Rows a page.
        q: Part of its name, workload, node or request.
        view: Ended ones are listed for a day.
        workload: Id of the workload.
        """
        return AsyncPages(
            self.client,
            "pods/",
            params={
                "cluster": cluster,
                "gpr": gpr,
                "namespace": namespace,
                "node": node,
                "page_size": page_size,
                "q": q,
                "slice": slice,
                "view": view,
                "workload": workload,
            },
            kind=models.Pod,
        )


class Prometheus(AsyncResource):
    def list(self, *, page_size: int | UnsetType = UNSET) -> AsyncPages[models.Prometheus]:
        """The Prometheus of each cluster provides long courses of GPUs.

        page_size: Rows a page.
        """
        return AsyncPages(self.client, "prometheus/", params={"page_size": page_size}, kind=models.Prometheus)

    async def get(self, ref: str) -> models.Prometheus:
        """The Prometheus of each cluster provides long courses of GPUs."""
        return await self.client.call("GET", f"prometheus/{self.quoted(ref)}/", kind=models.Prometheus)

    async def update(
        self,
        ref: str,
        *,
        url: Annotated[str, Meta(max_length=500, pattern="^[^\\x00]*$")] | UnsetType = UNSET,
        auth: Literal["none", "bearer", "basic"] | UnsetType = UNSET,
        username: Annotated[str, Meta(max_length=200, pattern="^[^\\x00]*$")] | UnsetType = UNSET,
        secret: Annotated[str, Meta(max_length=4000, pattern="^[^\\x00]*$")] | UnsetType = UNSET,
        ca_pem: Annotated[str, Meta(max_length=20000, pattern="^[^\\x00]*$")] | UnsetType = UNSET,
        matchers: Annotated[str, Meta(max_length=200, pattern="^[^\\x00]*$")] | UnsetType = UNSET,
        beyond_s: Annotated[int, Meta(ge=3600, le=7776000)] | UnsetType = UNSET,
        if_match: str | None = None,
    ) -> models.Prometheus:
        """The Prometheus of each cluster provides long courses of GPUs.

        url: Empty: it is no longer used.
        secret: The token or password; empty: the one that is there.
        ca_pem: Certificates to trust, as PEM.
        matchers: As cluster="aurora".
        beyond_s: Ranges that begin longer ago than this come from it.
        if_match: the ETag of the state that is meant; * for any. Default: that of the last reading, if there was one.
        """
        return await self.client.call(
            "PATCH",
            f"prometheus/{self.quoted(ref)}/",
            body={
                "url": url,
                "auth": auth,
                "username": username,
                "secret": secret,
                "ca_pem": ca_pem,
                "matchers": matchers,
                "beyond_s": beyond_s,
            },
            if_match=if_match,
            kind=models.Prometheus,
        )

    async def test(self, ref: str) -> models.PrometheusAnswer:
        """Ask it about some GPUs of the cluster."""
        return await self.client.call("POST", f"prometheus/{self.quoted(ref)}/test/", body={}, kind=models.PrometheusAnswer)


class Remediation(AsyncResource):
    def list(
        self,
        *,
        cluster: str | UnsetType = UNSET,
        is_open: bool | UnsetType = UNSET,
        node: str | UnsetType = UNSET,
        page_size: int | UnsetType = UNSET,
        state: Sequence[Literal["acting", "asking", "escalated", "gone", "kept", "open", "proving", "returned"]] | UnsetType = UNSET,
    ) -> AsyncPages[models.Case]:
        """These nodes are set aside; each says why, and what is done about it.

        page_size: Rows a page.
        """
        return AsyncPages(
            self.client,
            "remediation/",
            params={"cluster": cluster, "is_open": is_open, "node": node, "page_size": page_size, "state": state},
            kind=models.Case,
        )

    async def get(self, id: str) -> models.CaseDetail:
        """These nodes are set aside; each says why, and what is done about it."""
        return await self.client.call("GET", f"remediation/{self.quoted(id)}/", kind=models.CaseDetail)

    async def approve(
        self,
        id: str,
        *,
        action: Literal["check_node", "restart_driver", "reset_gpus", "reboot_node"] | UnsetType = UNSET,
        why: Annotated[str, Meta(max_length=150)] | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.CaseDetail:
        """Repair and check the node as soon as no request holds it. It returns when all checks have passed.

        action: Omitted: the next one.
        """
        return await self.client.call(
            "POST",
            f"remediation/{self.quoted(id)}/approve/",
            body={"action": action, "why": why},
            is_keyed=True,
            key=idempotency_key,
            kind=models.CaseDetail,
        )

    async def give_back(
        self, id: str, *, why: Annotated[str, Meta(min_length=1, max_length=150)], idempotency_key: str | None = None
    ) -> models.CaseDetail:
        """Use the node again without checks.

        why: The reason, which is recorded with the user's name.
        """
        return await self.client.call(
            "POST",
            f"remediation/{self.quoted(id)}/give-back/",
            body={"why": why},
            is_keyed=True,
            key=idempotency_key,
            kind=models.CaseDetail,
        )

    async def keep(
        self, id: str, *, why: Annotated[str, Meta(min_length=1, max_length=150)], idempotency_key: str | None = None
    ) -> models.CaseDetail:
        """EGS does nothing more to the node until somebody resumes or returns it.

        why: The reason, which is recorded with the user's name.
        """
        return await self.client.call(
            "POST", f"remediation/{self.quoted(id)}/keep/", body={"why": why}, is_keyed=True, key=idempotency_key, kind=models.CaseDetail
        )

    async def log(self, id: str) -> models.CaseLog:
        """Return the log for the vendor."""
        return await self.client.call("GET", f"remediation/{self.quoted(id)}/log/", kind=models.CaseLog)

    async def resume(self, id: str, *, idempotency_key: str | None = None) -> models.CaseDetail:
        """EGS goes on as the policy of the cluster says."""
        return await self.client.call(
            "POST", f"remediation/{self.quoted(id)}/resume/", body={}, is_keyed=True, key=idempotency_key, kind=models.CaseDetail
        )


class RemediationPolicies(AsyncResource):
    def list(self, *, page_size: int | UnsetType = UNSET) -> AsyncPages[models.RemediationPolicy]:
        """A policy names the actions that EGS may take on nodes of a cluster that are set aside.

        page_size: Rows a page.
        """
        return AsyncPages(self.client, "remediation-policies/", params={"page_size": page_size}, kind=models.RemediationPolicy)

    async def get(self, ref: str) -> models.RemediationPolicy:
        """A policy names the actions that EGS may take on nodes of a cluster that are set aside."""
        return await self.client.call("GET", f"remediation-policies/{self.quoted(ref)}/", kind=models.RemediationPolicy)

    async def update(
        self,
        ref: str,
        *,
        watches_faults: bool | UnsetType = UNSET,
        check_node: Literal["auto", "ask", "never"] | UnsetType = UNSET,
        restart_driver: Literal["auto", "ask", "never"] | UnsetType = UNSET,
        reset_gpus: Literal["auto", "ask", "never"] | UnsetType = UNSET,
        reboot_node: Literal["auto", "ask", "never"] | UnsetType = UNSET,
        tries_max: Annotated[int, Meta(ge=1, le=10)] | UnsetType = UNSET,
        returns_max: Annotated[int, Meta(ge=1, le=10)] | UnsetType = UNSET,
        ignored_xids: Annotated[Sequence[int], Meta(max_length=100)] | UnsetType = UNSET,
        limits: Mapping[str, int] | UnsetType = UNSET,
        if_match: str | None = None,
    ) -> models.RemediationPolicy:
        """A policy names the actions that EGS may take on nodes of a cluster that are set aside.

        watches_faults: A fault that GPUs report sets their node aside.
        check_node: Check a node that looks well again.
        tries_max: After so many failed repairs a person is asked.
        returns_max: Returns within a week before a person is asked.
        limits: Increase that is a fault, by count (ecc_uncorrected, ecc_corrected, rows_remapped, nvlink_errors, pcie_replays); 0:
            never. Others keep their defaults.
        if_match: the ETag of the state that is meant; * for any. Default: that of the last reading, if there was one.
        """
        return await self.client.call(
            "PATCH",
            f"remediation-policies/{self.quoted(ref)}/",
            body={
                "watches_faults": watches_faults,
                "check_node": check_node,
                "restart_driver": restart_driver,
                "reset_gpus": reset_gpus,
                "reboot_node": reboot_node,
                "tries_max": tries_max,
                "returns_max": returns_max,
                "ignored_xids": ignored_xids,
                "limits": limits,
            },
            if_match=if_match,
            kind=models.RemediationPolicy,
        )


class Workloads(AsyncResource):
    def list(
        self,
        *,
        cluster: str | UnsetType = UNSET,
        gpr: str | UnsetType = UNSET,
        kind: str | UnsetType = UNSET,
        namespace: str | UnsetType = UNSET,
        page_size: int | UnsetType = UNSET,
        q: str | UnsetType = UNSET,
        slice: str | UnsetType = UNSET,
        state: Sequence[Literal["ENDED", "RUNNING", "WAITING"]] | UnsetType = UNSET,
        view: Literal["ended", "idle", "running", "straggling", "waiting"] | UnsetType = UNSET,
    ) -> AsyncPages[models.Workload]:
        """List workloads of workspaces: pods, grouped by their owner.

        gpr: A request that carries its pods, or did.
        kind: As JobSet.
        page_size: Rows a page.
        q: Part of its name, model, namespace or request.
        """
        return AsyncPages(
            self.client,
            "workloads/",
            params={
                "cluster": cluster,
                "gpr": gpr,
                "kind": kind,
                "namespace": namespace,
                "page_size": page_size,
                "q": q,
                "slice": slice,
                "state": state,
                "view": view,
            },
            kind=models.Workload,
        )

    async def get(self, ref: str) -> models.WorkloadDetail:
        """List workloads of workspaces: pods, grouped by their owner."""
        return await self.client.call("GET", f"workloads/{self.quoted(ref)}/", kind=models.WorkloadDetail)
