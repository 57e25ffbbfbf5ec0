"""Runs the consequences of readings in their order."""

from __future__ import annotations

from datetime import datetime

from observability.idle.services import idle_step
from observability.telemetry.services import telemetry_step
from observability.usage.reports import used_record
from observability.usage.services import usage_step


def readings_step(*, now: datetime) -> None:
    """It is correct however often it runs, and in several processes at once."""
    telemetry_step(now=now)
    usage_step(now=now)
    idle_step(now=now)
    used_record(now=now)
