from __future__ import annotations

from datetime import datetime

from django.db import transaction

from accounts.models import User
from core.errors import Conflict
from inventory.models import CordonCause, Node
from journal.hints import TICK, hint
from journal.models import Severity
from journal.services import event_record

WHY_MAX_CHARS = 200


@transaction.atomic
def node_cordon(
    *, node: Node, actor: User | None, why: str, now: datetime, cause: CordonCause = CordonCause.PERSON, code: str = ""
) -> None:
    """Raises Conflict when it is cordoned already."""
    changes = {"cordoned_at": now, "cordon_reason": why[:WHY_MAX_CHARS], "cordon_cause": cause, "cordon_code": code}
    if not Node.objects.filter(pk=node.pk, cordoned_at=None).update(**changes):
        raise Conflict("This node is set aside already.")
    _record_event(node, "node.cordoned", f"Node {node.name} was set aside: {why}", Severity.WARNING, actor, now)


def node_set_aside(*, node: Node, why: str, now: datetime, cause: CordonCause, code: str = "") -> None:
    """Does what `node_cordon` does, but raises no Conflict."""
    try:
        with transaction.atomic():
            node_cordon(node=node, actor=None, why=why, now=now, cause=cause, code=code)
    except Conflict:
        return


@transaction.atomic
def node_mark_faulty(*, node: Node, why: str, code: str, now: datetime) -> bool:
    """Set it aside for a fault of its hardware: running boxes get another node. Returns False if that is known."""
    if not Node.objects.filter(pk=node.pk, gone_at=None, faulty_at=None).update(faulty_at=now):
        return False
    node_set_aside(node=node, why=why, now=now, cause=CordonCause.FAULT, code=code)
    hint(TICK)
    return True


@transaction.atomic
def node_uncordon(*, node: Node, actor: User | None, now: datetime) -> None:
    """Let the node be used again, and forget the fault that set it aside. Raises Conflict when it is not cordoned."""
    changes = {"cordoned_at": None, "cordon_reason": "", "cordon_cause": "", "cordon_code": "", "faulty_at": None}
    if not Node.objects.filter(pk=node.pk, cordoned_at__isnull=False).update(**changes):
        raise Conflict("This node is not set aside.")
    _record_event(node, "node.uncordoned", f"Node {node.name} is usable again.", Severity.INFO, actor, now)


def _record_event(node: Node, kind: str, text: str, severity: Severity, actor: User | None, now: datetime) -> None:
    event_record(kind=kind, message=text, at=now, actor=actor, severity=severity, node_id=node.pk, cluster_id=node.cluster_id)
    hint(TICK)
