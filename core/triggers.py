"""Makes SQLite's triggers after each migration, since SQLite drops them when a migration remakes their table.

They are dropped before migrations: SQLite renames no table while a trigger reads one that is gone.

PostgreSQL's triggers are in migrations.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from django.apps import AppConfig
from django.db import connections
from django.db.models.signals import post_migrate, pre_migrate

# By name: the last table that it needs, and the text after the name in `CREATE TRIGGER`.
Triggers = Mapping[str, tuple[str, str]]


def triggers_of(app: AppConfig, triggers: Triggers) -> None:
    """Create the app's triggers after each migration. Call it in `ready`."""
    pre_migrate.connect(partial(_drop, triggers), sender=app, weak=False, dispatch_uid=f"triggers of {app.label}, before")
    post_migrate.connect(partial(_make, triggers), sender=app, weak=False, dispatch_uid=f"triggers of {app.label}")


def _drop(triggers: Triggers, *, using: str, plan: list[Any], **_: Any) -> None:
    connection = connections[using]
    if connection.vendor == "sqlite" and plan:
        with connection.cursor() as cursor:
            for name in triggers:
                cursor.execute(f"DROP TRIGGER IF EXISTS {name}")


def _make(triggers: Triggers, *, using: str, **_: Any) -> None:
    connection = connections[using]
    if connection.vendor != "sqlite":
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT name, sql FROM sqlite_master")
        there = dict(cursor.fetchall())
        for name, (table, rest) in triggers.items():
            sql = f"CREATE TRIGGER {name} {rest}"
            if table in there and there.get(name) != sql:
                cursor.execute(f"DROP TRIGGER IF EXISTS {name}")
                cursor.execute(sql)
