from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from accounts.audit import AccountChange
from accounts.models import User
from core.request_origin import request_origin
from core.written_sql import rows_insert
from journal.changes import difference
from journal.hints import INVENTORY, hint, slice_topic, user_topic
from journal.models import Event, Outbox, Severity
from journal.notices.kinds import rule_of


def record_account_change(change: AccountChange) -> None:
    data = difference(change.before, change.after) if change.after else {}
    event_record(kind=change.kind, message=change.message, at=change.at, actor=change.actor, data=data)
    if change.user is not None:
        hint(user_topic(change.user.pk))


def event_record(
    *,
    kind: str,
    message: str,
    at: datetime,
    actor: User | None = None,
    severity: Severity = Severity.INFO,
    reason: str = "",
    old: str = "",
    new: str = "",
    gpr_id: UUID | None = None,
    slice_id: UUID | None = None,
    node_id: UUID | None = None,
    cluster_id: UUID | None = None,
    data: dict[str, Any] | None = None,
) -> Event:
    """Everyone who may see the subject reads `message`: it must name nothing else."""
    event = Event(
        kind=kind,
        message=message,
        at=at,
        actor=actor,
        severity=severity,
        reason=reason,
        old=old,
        new=new,
        gpr_id=gpr_id,
        slice_id=slice_id,
        node_id=node_id,
        cluster_id=cluster_id,
        data=data or {},
    )
    events_record([event], keyed=True)
    return event


def events_record(events: Sequence[Event], *, keyed: bool = False) -> None:
    """Events of which people are told get into the outbox. Raises RuntimeError outside a transaction. `keyed`: as for `rows_insert`."""
    if not transaction.get_connection().in_atomic_block:
        raise RuntimeError("An Event is written in the transaction of its change.")
    origin = request_origin()
    for event in events:
        event.message = event.message[:500]
        if origin is not None:
            event.request_id, event.address = origin.request_id, origin.address
            event.token_key, event.login_id = origin.token_key, origin.login_id
    topics = {slice_topic(event.slice_id) for event in events if event.slice_id is not None}
    if any(event.node_id is not None or event.cluster_id is not None for event in events):
        topics.add(INVENTORY)
    if topics:
        hint(*sorted(topics))
    told = [event for event in events if rule_of(event) is not None]
    rows_insert(events, keyed=keyed or bool(told))
    rows_insert([Outbox(event=event) for event in told], keyed=False)
