"""Cancels requests of objects that nobody can delete any more. Apart from services.py, since a tick needs no REST API."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from django.db.models import Exists, OuterRef

from core.written_sql import WrittenQuery
from gpr.models import ClusterRequestRecord, GprState
from gpr.requests.editing import gpr_cancel
from journal.guard import set_aside_on_error
from slices.models import Namespace

_HOME: Final = Namespace.objects.filter(cluster=OuterRef("cluster"), name=OuterRef("namespace"), slice=OuterRef("gpr__slice"))
_ORPHANS: Final = WrittenQuery(
    ClusterRequestRecord.objects.filter(gpr__state__in=[GprState.QUEUED, GprState.PENDING_APPROVAL])
    .exclude(Exists(_HOME))
    .select_related("gpr", "cluster")
)


def orphans_cancel(*, now: datetime) -> None:
    """Cancels waiting GPRs whose namespace left their workspace: no member could delete their objects there."""
    for row in _ORPHANS():
        why = f"The workspace has namespace {row.namespace} of cluster {row.cluster.name}, where it was filed, no more."
        with set_aside_on_error("orphan_cancel", "This request could not be canceled", now=now, gpr_id=row.gpr_id):
            gpr_cancel(gpr=row.gpr, actor=None, now=now, why=why)
