"""Records that somebody was refused, for the audit log, at most once a minute for each person and refusal."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from django.db import DatabaseError, transaction
from rest_framework import status
from rest_framework.response import Response

from accounts.models import User
from core.clock import db_now
from core.errors import EgsError, NotAllowed, OverPolicy
from core.rest import problems
from journal.models import Event, Severity
from journal.services import event_record

REFUSED: Final = "access.refused"
AGAIN_AFTER: Final = timedelta(minutes=1)


def problem_handler(error: Exception, context: dict[str, Any]) -> Response | None:
    """DRF calls this for exceptions."""
    response = problems.problem_handler(error, context)
    view = context.get("view")
    is_estimate = getattr(view, "action", None) in getattr(view, "read_actions", ())
    if response is None or (response.status_code != status.HTTP_403_FORBIDDEN and (is_estimate or not isinstance(error, OverPolicy))):
        return response
    # After these errors the actor is known. After others, such as a lost database, reading the user would raise again.
    # A call within another request is no act of the actor's own.
    if isinstance(actor := context["request"].user, User) and not getattr(context["request"], "is_part", False):
        refusal_record(actor=actor, path=context["request"].path, why=response.data["detail"], now=db_now())
    return response


def error_record(error: EgsError, *, actor: User, path: str, now: datetime) -> None:
    """Records the error of an act if rights or a policy refused it."""
    if isinstance(error, NotAllowed | OverPolicy):
        refusal_record(actor=actor, path=path, why=error.detail, now=now)


def refusal_record(*, actor: User, path: str, why: str, now: datetime) -> None:
    """A record that cannot be written changes nothing for the reader of the answer."""
    message = f"{actor.name} was refused at {path[:200]}: {why}"[:500]
    try:
        with transaction.atomic():
            if not Event.objects.filter(kind=REFUSED, actor=actor, at__gt=now - AGAIN_AFTER, message=message).exists():
                event_record(kind=REFUSED, message=message, at=now, actor=actor, severity=Severity.WARNING)
    except DatabaseError:
        return
