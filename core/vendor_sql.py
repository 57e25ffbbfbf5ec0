"""Gives migrations SQL of each database, such as exclusion constraints and triggers. It skips SQLite's triggers, see core/triggers.py."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from django.db.migrations import RunPython


def vendor_sql(
    *, postgresql: Sequence[str], sqlite: Sequence[str], undo_postgresql: Sequence[str], undo_sqlite: Sequence[str]
) -> RunPython:
    return RunPython(
        partial(_run, {"postgresql": postgresql, "sqlite": sqlite}),
        partial(_run, {"postgresql": undo_postgresql, "sqlite": undo_sqlite}),
    )


def _run(statements: dict[str, Sequence[str]], apps: Any, schema_editor: Any) -> None:
    vendor = schema_editor.connection.vendor
    for statement in statements[vendor]:
        if vendor == "sqlite" and statement.split()[1] == "TRIGGER":
            continue
        # None instead of an empty list, so that percent signs are not read as placeholders.
        schema_editor.execute(statement, params=None)
