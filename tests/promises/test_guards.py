"""The guards stand in the database itself, on both, and come and go with their migrations."""

from __future__ import annotations

import pytest
from django.db import connection

from tests.promises import guards
from tests.promises.processes import run_script

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]

BACK_AND_FORTH = """
from django.core.management import call_command
from tests.promises import guards

def move(*where):
    call_command("migrate", *where, verbosity=0, interactive=False)

move()
before = guards.triggers()
for app in ("gpr", "slices", "inventory", "journal"):
    move(app, "zero")
assert guards.triggers() == set(), guards.triggers()
move()
assert guards.triggers() == before == guards.TRIGGERS[guards.connection.vendor], guards.triggers()
from gpr.models import Witness
assert Witness.objects.count() == 1
print("back and forth")
"""


def test_the_database_has_every_trigger_that_a_promise_rests_on_and_no_other() -> None:
    assert guards.triggers() == guards.TRIGGERS[connection.vendor]


@pytest.mark.postgres_only
def test_postgresql_excludes_overlapping_reservations_of_a_gpu() -> None:
    assert guards.exclusions() == guards.EXCLUSIONS


@pytest.mark.parametrize("table", sorted(guards.CONSTRAINTS))
def test_the_database_has_every_named_constraint_of_its_promises(table: str) -> None:
    assert guards.CONSTRAINTS[table] <= guards.constraints(table)


@pytest.mark.parametrize("name", sorted(guards.PARTIAL))
def test_what_is_unique_among_some_rows_says_among_which(name: str) -> None:
    sql = guards.index_sql(name)

    assert "UNIQUE" in sql
    condition = sql.partition(" WHERE ")[2]
    assert all(word in condition for word in guards.PARTIAL[name]), sql
    others = {"PENDING_APPROVAL", "QUEUED", "PLANNED", "RELEASED", "COMPLETED"} - set(guards.PARTIAL[name])
    assert not any(f"'{word}'" in condition for word in others), sql


def test_migrations_go_back_to_zero_and_forward_again(own_database: dict[str, str]) -> None:
    assert run_script(BACK_AND_FORTH, env=own_database) == "back and forth\n"
