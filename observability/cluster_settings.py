"""Reads settings of which each cluster has one row at most; without a row the model's defaults hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from django.db.models import Model, QuerySet

from accounts.models import User
from accounts.policy import ObjectKind, Verb, may_all
from core.rest.references import one_by_reference
from inventory.models import Cluster
from inventory.selectors import clusters_visible_to

Row = TypeVar("Row", bound=Model)


def clusters_shown(actor: User, kind: ObjectKind) -> QuerySet[Cluster]:
    """Return the clusters whose settings of this kind the actor may see."""
    return clusters_visible_to(actor) if may_all(actor, Verb.SEE, kind) else Cluster.objects.none()


def settings_of(model: type[Row], clusters: Sequence[Cluster]) -> list[Row]:
    """Return one row for each cluster, in their order; a row that is not stored has the defaults. Runs one query."""
    rows: Any = model._default_manager.filter(cluster__in=clusters)
    stored = {row.cluster_id: row for row in rows}
    for cluster in clusters:
        stored.setdefault(cluster.pk, model(cluster=cluster)).cluster = cluster
    return [stored[cluster.pk] for cluster in clusters]


def setting_for(model: type[Row], kind: ObjectKind, actor: User, reference: str) -> Row:
    """Find the row by its cluster. Raises NotFound."""
    (row,) = settings_of(model, [one_by_reference(clusters_shown(actor, kind), reference, what="cluster")])
    return row
