"""Deletes Events that are older than EGS_AUDIT_KEPT_DAYS says."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.db import transaction

from journal.models import Event, EventRetention, Notice, Outbox

AT_ONCE: Final = 1000
BATCHES_MAX: Final = 20


def events_prune(*, now: datetime) -> int:
    """Returns how many were deleted, the oldest first and not all at once. A killed process leaves the rest to the next."""
    if not settings.EGS_AUDIT_KEPT_DAYS:
        return 0
    before_at, count = now - timedelta(days=settings.EGS_AUDIT_KEPT_DAYS), 0
    for _ in range(BATCHES_MAX):
        deleted_count = _delete_oldest(before_at)
        count += deleted_count
        if deleted_count < AT_ONCE:
            break
    return count


@transaction.atomic
def _delete_oldest(before_at: datetime) -> int:
    # Only times of the oldest are read: with nothing to delete this costs as little as possible.
    oldest = Event.objects.order_by("pk").values_list("pk", "at")[:AT_ONCE]
    ids = {pk for pk, at in oldest if at < before_at}
    if not ids:
        return 0
    EventRetention.objects.update_or_create(defaults={"deleted_before_at": before_at})
    for model in (Notice, Outbox):  # these go first, by an age of their own
        ids -= set(model.objects.filter(event__in=ids).values_list("event", flat=True))
    Event.objects.filter(pk__in=ids).delete()
    return len(ids)
