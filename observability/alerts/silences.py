"""Finds the alerts that a silence covers now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.db.models import Q

from inventory.models import Node
from observability.alerts.models import Alert, AlertSilence, AlertState, AlertSubject, SubjectState


class Silences:
    """Finds the running silences of some alerts. Runs three queries, whatever the number of either."""

    def __init__(self, alerts: Sequence[Alert], now: datetime) -> None:
        whose = Q(slice=None) | Q(slice__in={alert.slice_id for alert in alerts if alert.slice_id})
        self._of: dict[UUID | None, list[AlertSilence]] = defaultdict(list)
        for silence in AlertSilence.objects.filter(whose, starts_at__lte=now, ends_at__gt=now):
            self._of[silence.slice_id].append(silence)
        self._nodes: dict[UUID, set[UUID | None]] = defaultdict(set)
        self._cluster_of: dict[UUID, UUID] = {}
        if any(silence.node_id or silence.cluster_id for silences in self._of.values() for silence in silences):
            self._load_places(alerts)

    def _load_places(self, alerts: Sequence[Alert]) -> None:
        is_over = Q(alert__state=AlertState.RESOLVED)
        rows = AlertSubject.objects.filter(is_over | ~Q(state=SubjectState.OVER), alert__in=[alert.pk for alert in alerts])
        for alert_id, node_id in rows.order_by().values_list("alert", "node_id").distinct():
            self._nodes[alert_id].add(node_id)
        node_ids = {node for nodes in self._nodes.values() for node in nodes if node}
        self._cluster_of = dict(Node.objects.filter(pk__in=node_ids).values_list("pk", "cluster"))

    def has(self, alert: Alert) -> bool:
        return any(self._matches(silence, alert) for silence in self._of.get(alert.slice_id, ()))

    def _matches(self, silence: AlertSilence, alert: Alert) -> bool:
        if silence.rule_id not in (None, alert.rule_id) or silence.alert_id not in (None, alert.pk):
            return False
        if silence.node_id and self._nodes[alert.pk] != {silence.node_id}:
            return False
        return not silence.cluster_id or self._clusters(alert) == {silence.cluster_id}

    def _clusters(self, alert: Alert) -> set[UUID | None]:
        """Returns the clusters of the alert's subjects. An alert of a workspace has no cluster of its own."""
        return {alert.cluster_id} if alert.cluster_id else {node and self._cluster_of.get(node) for node in self._nodes[alert.pk]}
