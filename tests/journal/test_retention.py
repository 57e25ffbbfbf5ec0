"""Events are append-only; those older than the policy of retention says are deleted, and none that is younger."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from journal import retention
from journal.models import Event, EventRetention
from journal.retention import events_prune
from journal.services import event_record
from tests.builders import make_user
from tests.pages.user_world import client_of

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]


def happens(text: str, at: datetime) -> None:
    with transaction.atomic():
        event_record(kind="user.created", message=text, at=at)


def messages() -> list[str]:
    return list(Event.objects.order_by("pk").values_list("message", flat=True))


def test_only_events_older_than_the_setting_are_deleted_and_the_audit_page_says_so(
    now: datetime, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for days in (402, 401, 400, 3):
        happens(f"{days} days ago", now - timedelta(days=days))
    assert events_prune(now=now) == 0
    settings.EGS_AUDIT_KEPT_DAYS = 400
    monkeypatch.setattr(retention, "AT_ONCE", 1)

    counts = [events_prune(now=now), events_prune(now=now)]

    assert counts == [2, 0]
    assert messages() == ["400 days ago", "3 days ago"]
    page = client_of(make_user("boss", is_admin=True)).get("/admin/audit/").content.decode()
    assert "Records stay for 400 days. Those from before" in page


@pytest.mark.parametrize("deleted_before", [None, timedelta(days=5)])
def test_the_database_lets_nobody_delete_a_younger_event(now: datetime, deleted_before: timedelta | None) -> None:
    happens("young", now - timedelta(days=5))
    if deleted_before is not None:
        EventRetention.objects.create(deleted_before_at=now - deleted_before)

    with pytest.raises(IntegrityError), transaction.atomic():
        Event.objects.filter(message="young").delete()
