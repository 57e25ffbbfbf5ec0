"""Finds nodes that are not ready, checks that failed, and agents that are silent or whose clocks are wrong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db.models import Count, Exists, OuterRef, Q

from gpr.allocation.absence import was_just_away
from inventory.models import AgentSession, Cluster, MaintenanceWindow, Node, StepResult
from observability.alerts.models import AlertRule
from observability.alerts.signals import AGENT, CHECKS, CONDITIONS, NOT_READY
from observability.alerts.sources.measured import Found, Measured, in_scope, open_subjects
from protocol.agents.events import Outcome


def nodes(rules: Sequence[AlertRule], now: datetime) -> Found:
    """Leaves out nodes that an administrator has set aside, and nodes in maintenance. Runs two queries, and one for each window."""
    failed = {window_s: _failed_checks(window_s, now) for window_s in {rule.window_s for rule in rules if rule.signal == CHECKS}}
    open_ids = set(open_subjects(rules))
    wanted = open_ids | {node_id for counted in failed.values() for node_id in counted}
    window = MaintenanceWindow.objects.filter(canceled_at=None, starts_at__lte=now, ends_at__gt=now)
    closed = window.filter(Q(node=OuterRef("pk")) | Q(node=None, cluster=OuterRef("cluster")))
    is_measured = Q(is_ready=False) | ~Q(conditions=[]) | Q(pk__in=wanted)
    rows = Node.objects.filter(is_measured, gone_at=None, cordoned_at=None).exclude(Exists(closed))
    since_at = now - timedelta(seconds=settings.EGS_AGENT_UNREACHABLE_S)
    heard = set(AgentSession.objects.filter(last_sync_at__gt=since_at).values_list("pk", flat=True))
    found: dict[UUID, list[Measured]] = defaultdict(list)
    for node in rows.order_by().only("name", "shape", "cluster", "is_ready", "conditions"):
        for rule in rules:
            if rule.signal == NOT_READY:
                value = float(not node.is_ready) if node.cluster_id in heard else None
            elif rule.signal == CONDITIONS:
                count = len(node.conditions) if node.is_ready else 0  # NOT_READY watches the others: one alert for each cause
                value = float(count) if node.cluster_id in heard else None
            else:
                value = float(failed[rule.window_s].get(node.pk, 0))
            one = Measured(node.pk, node.name, value, cluster_id=node.cluster_id, node_id=node.pk, shape=node.shape)
            if in_scope(rule, one):
                found[rule.pk].append(one)
    return found


def _failed_checks(window_s: int, now: datetime) -> dict[UUID, int]:
    since_at = now - timedelta(seconds=window_s)
    rows = StepResult.objects.filter(outcome=Outcome.FAILED, blames_node=True, ended_at__gt=since_at, ended_at__lte=now)
    return dict(rows.order_by().values_list("reservation__node").annotate(n=Count("pk")))


def clusters(rules: Sequence[AlertRule], now: datetime) -> Found:
    """Runs one query. After an outage of EGS itself agents get time to report."""
    rows = Cluster.objects.filter(is_enabled=True, agent__locked_at=None, agent__last_sync_at__isnull=False).select_related("agent")
    is_back = not was_just_away(now=now)
    found: dict[UUID, list[Measured]] = defaultdict(list)
    for cluster in rows:
        heard_at, offset_s = cluster.agent.last_sync_at or now, cluster.agent.clock_offset_s
        silent_s = (now - heard_at).total_seconds()
        is_heard = silent_s < settings.EGS_AGENT_UNREACHABLE_S
        skew_s = abs(offset_s) if offset_s is not None and is_heard else None
        for rule in rules:
            value = (max(silent_s, 0.0) if is_back else None) if rule.signal == AGENT else skew_s
            one = Measured(cluster.pk, cluster.name, value, cluster_id=cluster.pk)
            if in_scope(rule, one):
                found[rule.pk].append(one)
    return found
