"""Writes a person's settings of notices."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

from django.db import transaction

from accounts.models import User
from accounts.permissions import refuse_bound
from core.errors import InvalidInput
from core.rest.references import by_reference
from journal.changes import difference, values_of
from journal.hints import hint, user_topic
from journal.models import NoticeSettings
from journal.notices.audience import tenancy
from journal.notices.kinds import kinds_in_order
from journal.notices.settings.wishes import settings_of
from journal.services import event_record

TERMS: Final = ("unwanted_kinds", "muted_slices", "zone", "quiet_from", "quiet_until")
MUTED_MAX: Final = 500


def notice_settings_for(user: User) -> NoticeSettings:
    return settings_of([user.pk])[user.pk]


@transaction.atomic
def notice_settings_change(*, user: User, changes: dict[str, Any], now: datetime) -> NoticeSettings:
    """`changes`: fields of NoticeSettings; `muted_slices` takes ids and names of workspaces that the user sees.

    Raises InvalidInput, and NotAllowed with a bound token.
    """
    refuse_bound(user)
    NoticeSettings.objects.get_or_create(user=user)
    found = NoticeSettings.objects.select_for_update().get(user=user)
    before = values_of(found, TERMS)
    if "unwanted_kinds" in changes:
        found.unwanted_kinds = kinds_in_order(changes["unwanted_kinds"])
    if "muted_slices" in changes:
        found.muted_slices = _muted(user, changes["muted_slices"], found.muted_slices)
    found.zone = _zone(changes.get("zone", found.zone))
    found.quiet_from, found.quiet_until = changes.get("quiet_from", found.quiet_from), changes.get("quiet_until", found.quiet_until)
    if (found.quiet_from is None) != (found.quiet_until is None):
        missing = "quiet_from" if found.quiet_from is None else "quiet_until"
        raise InvalidInput({missing: ["Quiet hours need a begin and an end."]})
    found.save()
    text, data = f"{user.name} changed which notices they get.", difference(before, values_of(found, TERMS))
    event_record(kind="user.notices_changed", message=text, at=now, actor=user, data=data)
    hint(user_topic(user.pk))
    return found


def _zone(name: str) -> str:
    try:
        return ZoneInfo(name).key
    except (ValueError, OSError, KeyError):
        raise InvalidInput({"zone": ["Must be a time zone, as Europe/Berlin."]}) from None


def _muted(user: User, references: list[str | UUID], before: list[str]) -> list[str]:
    """Workspaces that the user has left stay muted."""
    muted = []
    for reference in references[:MUTED_MAX]:
        slice_ = by_reference(tenancy().slices_seen_by(user), reference)
        if slice_ is None and str(reference) not in before:
            raise InvalidInput({"muted_slices": ["There is no such workspace, or you may not see it."]})
        muted.append(str(slice_.pk) if slice_ else str(reference))
    return sorted(set(muted))
