"""Isolates errors: one failing object does not stop a tick or sync."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypedDict, TypeVar, Unpack
from uuid import UUID

import structlog
from django.db import InterfaceError, OperationalError, connection, transaction

from core.errors import EgsError
from journal.models import Event, Severity
from journal.services import event_record

log = structlog.get_logger(__name__)

FAULT: Final = "egs.fault"
REPORT_AGAIN_AFTER: Final = timedelta(days=1)


class AuditSubject(TypedDict, total=False):
    gpr_id: UUID
    node_id: UUID
    cluster_id: UUID


Item = TypeVar("Item")
NO_SUBJECT: Final[dict[str, UUID | None]] = dict.fromkeys(AuditSubject.__annotations__)


@dataclass(slots=True)
class Attempt:
    error: Exception | None = None


@contextmanager
def set_aside_on_error(
    code: str,
    failed: str,
    *,
    now: datetime,
    raises: tuple[type[Exception], ...] = (),
    **ids: Unpack[AuditSubject],
) -> Iterator[Attempt]:
    """Run the body for one object and swallow what it raises, except `raises`.

    `failed` is a clause: "This request could not be started". The body must write in its own transactions. Faults are reported to
    administrators; an EgsError only means that the object changed meanwhile. A lost database connection is raised.
    """
    attempt = Attempt()
    try:
        yield attempt
    except raises:
        raise
    except EgsError as error:
        attempt.error = error
        log.info("skipped", code=code, why=error.detail, **_ids_as_text(ids))
    except (OperationalError, InterfaceError) as error:
        if connection.in_atomic_block or not connection.is_usable():
            raise
        attempt.error = error
        log.warning("skipped", code=code, why=str(error), **_ids_as_text(ids))
    except Exception as error:
        attempt.error = error
        log.exception(FAULT, code=code, **_ids_as_text(ids))
        text = f"{failed}, by a fault of EGS ({type(error).__name__}). All others go on, and it is tried again. Please report it."
        with transaction.atomic():
            fault_report(FAULT, text, reason=code, now=now, **ids)


def write_or_set_aside(
    items: Sequence[Item],
    write: Callable[[Sequence[Item]], None],
    *,
    at_once: int,
    code: str,
    failed: str,
    now: datetime,
    subject: Callable[[Item], AuditSubject],
    renew: Callable[[Sequence[Item]], Sequence[Item]] = lambda items: items,
) -> list[tuple[Item, Exception | None]]:
    """Write several items in one transaction; where that fails, each in its own, and set aside those that fail alone, too.

    `renew` loads items anew which a failed attempt may have changed.
    """
    written: list[tuple[Item, Exception | None]] = []
    for first in range(0, len(items), at_once):
        some = items[first : first + at_once]
        if len(some) > 1:
            try:
                write(some)
            except Exception as error:
                if isinstance(error, (OperationalError, InterfaceError)) and connection.in_atomic_block:
                    raise
                (log.info if isinstance(error, EgsError) else log.exception)("each_alone", code=code, why=str(error))
                some = renew(some)
            else:
                written += [(item, None) for item in some]
                continue
        for item in some:
            with set_aside_on_error(code, failed, now=now, **subject(item)) as attempt:
                write([item])
            written.append((item, attempt.error))
    return written


def fault_report(kind: str, message: str, *, reason: str, now: datetime, **ids: Unpack[AuditSubject]) -> None:
    """Report to administrators once a day per object. Needs a transaction."""
    told = Event.objects.filter(kind=kind, reason=reason, at__gt=now - REPORT_AGAIN_AFTER, message=message[:500], **NO_SUBJECT | ids)
    if not told.exists():
        event_record(kind=kind, message=message, at=now, severity=Severity.ERROR, reason=reason, **ids)


def _ids_as_text(ids: AuditSubject) -> dict[str, str]:
    return {name: str(id_) for name, id_ in ids.items()}
