"""Daily partitions on PostgreSQL, and what is too old on both databases."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Final

from django.db import OperationalError, connection, transaction

from observability.models import LEVELS, Reading

DAY: Final = timedelta(days=1)
AHEAD: Final = DAY
_made: set[tuple[type[Reading], date]] = set()  # by this process


def partitions_ensure(model: type[Reading], moments: Iterable[datetime]) -> None:
    """Make the partitions of these times, where they are not there yet."""
    if connection.vendor != "postgresql":
        return
    for day in {moment.astimezone(UTC).date() for moment in moments} - {day for of, day in _made if of is model}:
        with transaction.atomic(), connection.cursor() as cursor:
            # CREATE ... IF NOT EXISTS of two processes at once would fail for one.
            cursor.execute("SELECT pg_advisory_xact_lock(hashtext('egs.partitions'))")
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {_name(model, day)} PARTITION OF {model._meta.db_table} "
                f"FOR VALUES FROM ('{day} 00:00Z') TO ('{day + DAY} 00:00Z')"
            )
            transaction.on_commit(partial(_made.add, (model, day)))


def readings_prune(*, now: datetime) -> None:
    for model in LEVELS:
        if connection.vendor == "postgresql":
            _drop_partitions(model, before=(now - model.KEPT).astimezone(UTC).date())
        else:
            model._default_manager.filter(at__lt=now - model.KEPT).delete()


def _drop_partitions(model: type[Reading], *, before: date) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s::regclass", [model._meta.db_table])
        for (name,) in cursor.fetchall():
            if name < _name(model, before):
                _drop(name)
    _made.difference_update({made for made in _made if made[0] is model and made[1] < before})


def _drop(name: str) -> None:
    # It waits for readers, and meanwhile everybody would wait for it: the next step tries again.
    with suppress(OperationalError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL lock_timeout = '2s'")
        cursor.execute(f"DROP TABLE {name}")


def _name(model: type[Reading], day: date) -> str:
    return f"{model._meta.db_table}_{day:%Y%m%d}"
