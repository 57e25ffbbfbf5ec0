"""An upgrade computes new columns from existing rows."""

from __future__ import annotations

import importlib
from datetime import timedelta

import pytest
from django.apps import apps

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
