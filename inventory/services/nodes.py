from __future__ import annotations

from datetime import datetime

from django.db import transaction

from accounts.models import User
from core.errors import Conflict
from inventory.models import Node
from journal.hints import TICK, hint
from journal.models import Severity
from journal.services import event_record


@transaction.atomic
def node_cordon(*, node: Node, actor: User | None, why: str, now: datetime) -> None:
    """Raises Conflict when it is cordoned already."""
    if not Node.objects.filter(pk=node.pk, cordoned_at=None).update(cordoned_at=now, cordon_reason=why[:200]):
        raise Conflict("This node is set aside already.")
    _record_event(node, "node.cordoned", f"Node {node.name} was set aside: {why}", Severity.WARNING, actor, now)


def node_set_aside(*, node: Node, why: str, now: datetime) -> None:
    """Does what `node_cordon` does, but raises no Conflict."""
    try:
        with transaction.atomic():
            node_cordon(node=node, actor=None, why=why, now=now)
    except Conflict:
        return


@transaction.atomic
def node_uncordon(*, node: Node, actor: User, now: datetime) -> None:
    if not Node.objects.filter(pk=node.pk, cordoned_at__isnull=False).update(cordoned_at=None, cordon_reason=""):
        raise Conflict("This node is not set aside.")
    _record_event(node, "node.uncordoned", f"Node {node.name} is usable again.", Severity.INFO, actor, now)


def _record_event(node: Node, kind: str, text: str, severity: Severity, actor: User | None, now: datetime) -> None:
    event_record(kind=kind, message=text, at=now, actor=actor, severity=severity, node_id=node.pk, cluster_id=node.cluster_id)
    hint(TICK)
