"""The benchmark of the long queue reads and changes what it says, on any database."""

from __future__ import annotations

import pytest
from django.db import connection

from bench.hub import queue_large, queue_page
from gpr.models import Gpr, GprState
from gpr.queue.moves import MoveTo
from journal.models import Event

# Each day: tests/api/conventions/test_query_counts.py, and test_every_page.py
pytestmark = [pytest.mark.django_db, pytest.mark.rotates]
QUEUED, RUNS = 100, 2


def test_every_page_opens_and_every_change_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, count in {"RUNNING": 5, "SLICES": 10, "NODES": 5}.items():
        monkeypatch.setattr(queue_page, name, count)
    monkeypatch.setattr(queue_large, "RUNS", RUNS)
    monkeypatch.setenv("EGS_DATABASE_URL", f"{connection.vendor}:///")

    figures = queue_large.measured(queue_page.filled(QUEUED), QUEUED)

    assert all(figure.ours > 0 for figure in figures)
    assert Gpr.objects.filter(state=GprState.CANCELED).count() == RUNS
    assert Gpr.objects.filter(state=GprState.QUEUED).count() == QUEUED
    assert Event.objects.filter(kind="gpr.priority_changed").count() == RUNS
    assert Gpr.objects.exclude(place_share=None).count() == RUNS * len(MoveTo)
