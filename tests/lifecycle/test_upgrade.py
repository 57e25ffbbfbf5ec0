"""What an upgrade works out of rows that are there already."""

from __future__ import annotations

import importlib
from datetime import timedelta

import pytest
from django.apps import apps
from django.db import connection

from gpr.models import Gpr
from tests.lifecycle.stage import Stage, fresh

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]


def filled() -> None:
    importlib.import_module("gpr.migrations.0026_exiting_at").fill(apps, None)


def test_of_a_box_that_is_over_it_is_known_afterwards_when_its_exit_began() -> None:
    gpr = Stage(nodes=1).active(duration_s=3600)
    assert gpr.active_at is not None
    Gpr.objects.filter(pk=gpr.pk).update(ended_at=gpr.ends_at, remaining_s=600, exiting_at=None)

    filled()

    assert fresh(gpr).exiting_at == gpr.active_at + timedelta(minutes=50)


@pytest.mark.sqlite_only
@pytest.mark.parametrize(
    ("active_at", "ends_at"),
    [
        ("2026-01-01 00:00:00", "0001-01-01 00:00:00"),
        ("2026-01-01 00:00:00", "-infinity"),
        ("infinity", "2026-01-02 00:00:00"),
        ("soon", "2026-01-02 00:00:00"),
    ],
)
def test_a_row_whose_times_cannot_be_read_stops_no_upgrade(active_at: str, ends_at: str) -> None:
    Stage(nodes=1).active(duration_s=3600)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE gpr_gpr SET active_at = %s, ends_at = %s, ended_at = %s", [active_at, ends_at, "2026-01-02 00:00:00"])

    filled()

    assert not Gpr.objects.exclude(exiting_at=None).exists()
