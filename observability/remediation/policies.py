"""Policies of the actions that EGS may take on nodes that are set aside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypedDict
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from accounts.models import User
from accounts.policy import ObjectKind
from core.errors import InvalidInput
from inventory.models import Cluster
from journal.changes import difference, values_of
from journal.services import event_record
from observability.cluster_settings import clusters_shown, setting_for, settings_of
from observability.remediation.faults import LIMIT_NAMES, XID_ACTIONS
from observability.remediation.models import RemediationPolicy

XID_MAX: Final = 100_000
LIMIT_MAX: Final = 1_000_000_000
LISTED_MAX: Final = 100


class RemediationTerms(TypedDict, total=False):
    watches_faults: bool
    check_node: str
    restart_driver: str
    reset_gpus: str
    reboot_node: str
    tries_max: int
    returns_max: int
    ignored_xids: list[int]
    limits: dict[str, int]


def policies_by_cluster(cluster_ids: Iterable[UUID]) -> Mapping[UUID, RemediationPolicy]:
    """Runs one query."""
    ids = set(cluster_ids)
    found = {row.cluster_id: row for row in RemediationPolicy.objects.filter(cluster__in=ids)}
    return {id_: found.get(id_) or RemediationPolicy(cluster_id=id_) for id_ in ids}


def policies_of(clusters: Sequence[Cluster]) -> list[RemediationPolicy]:
    """Return a policy for each cluster, with the defaults where nobody has set anything. Runs one query."""
    return settings_of(RemediationPolicy, clusters)


def clusters_with_policies(actor: User) -> QuerySet[Cluster]:
    return clusters_shown(actor, ObjectKind.REMEDIATION_POLICY)


def policy_for(actor: User, reference: str) -> RemediationPolicy:
    """Find the policy of a cluster. Raises NotFound."""
    return setting_for(RemediationPolicy, ObjectKind.REMEDIATION_POLICY, actor, reference)


@transaction.atomic
def remediation_policy_change(*, cluster: Cluster, change: RemediationTerms, actor: User, now: datetime) -> RemediationPolicy:
    """Raises InvalidInput."""
    _check(change)
    Cluster.objects.select_for_update().get(pk=cluster.pk)
    policy = RemediationPolicy.objects.filter(cluster=cluster).first() or RemediationPolicy(cluster=cluster)
    old, before = terms(policy), values_of(policy, change)
    for name, value in change.items():
        setattr(policy, name, value)
    if terms(policy) == old:
        return policy
    policy.save()
    message = f"Remediation in {cluster.name} was changed: {terms(policy)}; before: {old}."
    data = difference(before, change)
    event_record(kind="remediation_policy.changed", message=message, at=now, actor=actor, cluster_id=cluster.pk, data=data)
    return policy


def terms(policy: RemediationPolicy) -> str:
    said = ["faults set nodes aside" if policy.watches_faults else "faults are only recorded"]
    said += [f"{name} {getattr(policy, name)}" for name in ("check_node", "restart_driver", "reset_gpus", "reboot_node")]
    said += [f"{policy.tries_max} tries", f"{policy.returns_max} returns a week"]
    said += [f"Xids {', '.join(map(str, policy.ignored_xids))} ignored"] if policy.ignored_xids else []
    said += [f"{name} {value}" for name, value in sorted(policy.limits.items())]
    return ", ".join(said)


def _check(change: Mapping[str, Any]) -> None:
    """Raises InvalidInput."""
    for xid in change.get("ignored_xids", []):
        if xid not in XID_ACTIONS:
            raise InvalidInput({"ignored_xids": [f"Xid {xid} sets no node aside anyway."]})
    if unknown := sorted(set(change.get("limits", {})) - set(LIMIT_NAMES)):
        raise InvalidInput({"limits": [f"There is no limit {unknown[0]}; there are {', '.join(LIMIT_NAMES)}."]})
