from __future__ import annotations

from pathlib import Path

from accounts.roles_table import roles_table


def test_the_manual_has_the_table_of_permissions_as_it_is() -> None:
    assert roles_table() in (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "roles.md").read_text()
