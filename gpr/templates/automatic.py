"""Finds the templates that agents use for waiting GPU pods (worker_agent/kube/requests/automatic.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from django.db.models import F, Q

from core.words import split
from gpr.models import GprTemplate
from protocol.decoding import convert
from protocol.tenancy.cluster_requests import AutoTemplate, ClusterRequestSpec
from slices.models import Namespace

# Fields with another name in the protocol.
DURATION_FIELDS: Final = {"duration_s": "duration", "idle_timeout_s": "idle_timeout"}


def auto_templates_of(cluster_id: UUID) -> tuple[AutoTemplate, ...]:
    """Reads the `auto` defaults of slices with a namespace in the cluster, ordered by slice id."""
    bound = Namespace.objects.filter(cluster=cluster_id).values("slice")
    rows = GprTemplate.objects.filter(Q(cluster=cluster_id) | Q(cluster=None), is_default=True, slice__in=bound)
    first: dict[UUID, GprTemplate] = {}
    for row in rows.order_by("slice", F("cluster").asc(nulls_last=True)):
        if row.slice_id is not None:
            first.setdefault(row.slice_id, row)
    return tuple(AutoTemplate(id=str(row.slice_id), name=row.name, spec=spec_of_template(row.asked)) for row in first.values() if row.auto)


def spec_of_template(asked: Mapping[str, Any]) -> ClusterRequestSpec:
    words: dict[str, Any] = {
        str(DURATION_FIELDS.get(name, name)): _duration_text(value) if name in DURATION_FIELDS else value for name, value in asked.items()
    }
    return convert(words, ClusterRequestSpec)


def _duration_text(span_s: int) -> str:
    """Returns e.g. `2d4h`."""
    return "".join(f"{count}{unit}" for count, unit in zip(split(span_s), "dhms", strict=True) if count)
