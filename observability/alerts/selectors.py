"""Alerts that a reader may see: overseers see all, members those of their workspaces, which tell nothing of other times or GPUs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet

from accounts.models import User
from accounts.policy import Verb, is_overseer, may, visible_rows
from core.errors import NotAllowed
from core.rest.references import one_by_id
from inventory.models import Node
from inventory.selectors import cluster_ids_of
from observability.alerts.models import Alert, AlertRule, AlertSilence, AlertState, AlertSubject, Tells
from slices.selectors import slices_visible_to


def alerts_visible_to(actor: User) -> QuerySet[Alert]:
    rows = Alert.objects.select_related("rule", "slice", "gpr", "cluster", "owner")
    return visible_rows(rows, actor, Q(slice__in=slices_visible_to(actor)))


def alert_for(actor: User, alert_id: str | UUID, *, write: bool = False) -> Alert:
    """Raises NotFound, and NotAllowed when the actor may see it and not change it."""
    alert = one_by_id(alerts_visible_to(actor), alert_id, what="alert")
    if write and not may(actor, Verb.CHANGE, alert):
        raise NotAllowed("Only editors and owners of the workspace may acknowledge its alerts.")
    return alert


def subjects_of(alert: Alert) -> QuerySet[AlertSubject]:
    return alert.subjects.all()


def only_node_of(alert: Alert) -> Node | None:
    """None: it is about several nodes, or about none."""
    nodes = list(subjects_of(alert).order_by().values_list("node_id", flat=True).distinct()[:2])
    node_id = nodes[0] if len(nodes) == 1 else None
    return Node.objects.filter(pk=node_id).first() if node_id is not None else None


def firing_count(actor: User) -> int:
    """Counts alerts that nobody has acknowledged, for the navigation; for overseers it counts those of the platform. Runs one query."""
    rows = alerts_visible_to(actor).select_related(None).filter(state=AlertState.FIRING)
    return rows.filter(slice=None).count() if is_overseer(actor) else rows.count()


def rules_visible_to(actor: User) -> QuerySet[AlertRule]:
    """Members see those of their workspaces, and those of EGS that tell boxes."""
    rows = AlertRule.objects.select_related("slice", "cluster", "owner")
    is_told = Q(slice=None, is_on=True, tells__in=[Tells.BOX, Tells.BOTH]) & (Q(cluster=None) | Q(cluster__in=cluster_ids_of(actor)))
    return visible_rows(rows, actor, is_told | Q(slice__in=slices_visible_to(actor)))


def rule_for(actor: User, rule_id: str | UUID, *, write: bool = False) -> AlertRule:
    """Raises NotFound and NotAllowed."""
    rule = one_by_id(rules_visible_to(actor), rule_id, what="alert rule")
    if write and not may(actor, Verb.CHANGE, rule):
        raise NotAllowed("Only who made a rule, and owners of its workspace, may change it." if rule.slice_id else ADMINS_CHANGE)
    return rule


ADMINS_CHANGE = "Only administrators may change the rules of the platform. Make a rule of your workspace."


def silences_visible_to(actor: User) -> QuerySet[AlertSilence]:
    rows = AlertSilence.objects.select_related("slice", "owner", "rule", "cluster", "node", "alert__rule")
    return visible_rows(rows, actor, Q(slice__in=slices_visible_to(actor)))


def silence_for(actor: User, silence_id: str | UUID, *, write: bool = False) -> AlertSilence:
    """Raises NotFound and NotAllowed."""
    silence = one_by_id(silences_visible_to(actor), silence_id, what="alert silence")
    if write and not may(actor, Verb.CHANGE, silence):
        raise NotAllowed("Only editors and owners of the workspace may end its silences.")
    return silence


def alerts_of_gpus(actor: User, gpu_ids: Iterable[UUID], *, since: datetime, until: datetime) -> QuerySet[AlertSubject]:
    """Returns alerts that fired on these GPUs; overseers get those of the platform."""
    own = Exists(alerts_visible_to(actor).select_related(None).filter(pk=OuterRef("alert")))
    rows: QuerySet[Any] = AlertSubject.objects.filter(own, subject_id__in=list(gpu_ids), fired_at__isnull=False, since_at__lte=until)
    rows = rows.filter(Q(over_at=None) | Q(over_at__gte=since)).select_related("rule")
    return rows.filter(alert__slice=None) if is_overseer(actor) else rows
