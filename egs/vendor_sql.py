"""Migrations that need each database's own words: exclusion constraints, triggers.

SQLite remakes a table when a later migration alters it, and its triggers are lost then: such a migration must run the guard's SQL
again. A test reads the triggers of a migrated database, so that this cannot be forgotten.
"""

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
    for statement in statements[schema_editor.connection.vendor]:
        # None, not an empty list: a percent sign stays a percent sign.
        schema_editor.execute(statement, params=None)
