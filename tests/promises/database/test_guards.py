"""The guards stand in the database itself, on both, and come and go with their migrations."""

from __future__ import annotations

import pytest
from django.db import connection

from tests.migrated import ROOT, files_of_schema
from tests.promises.database import guards
from tests.promises.races.processes import run_script

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]

# To the state before and back again, with rows in it as that state had them.
UPGRADE = """
from uuid import uuid4
from django.core.management import call_command
from django.db import connection
from tests.migrated import ROOT, files_of_schema
from tests.promises.database import guards

from gpr.models import Gpr, PlanRecord
from inventory.models import Cluster, Reservation
from tests.builders import hold, make_cluster, make_gpr, make_slice, nodes_of
cluster = make_cluster(nodes=2)
hold(make_gpr(make_slice(cluster)), nodes_of(cluster)[0])
before = {model: list(model.objects.order_by("pk").values()) for model in (Gpr, Reservation, Cluster)}

for app, name in (("slices", "0010"), ("inventory", "0016"), ("gpr", "0030"), ("journal", "0002"), ("accounts", "0002")):
    call_command("migrate", app, name, verbosity=0)
with connection.cursor() as cursor:
    cursor.execute("UPDATE gpr_gpr SET allowed_shapes = NULL, template_id = %s", [uuid4().hex])
call_command("migrate", verbosity=0)

assert {model: list(model.objects.order_by("pk").values()) for model in before} == before
assert guards.triggers() == guards.TRIGGERS[connection.vendor], guards.triggers()
assert PlanRecord.objects.count() == 1
print("upgraded")
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


@pytest.mark.soak  # quickly: each run migrates an empty database of both kinds, and tests/lifecycle/test_upgrade.py
def test_a_database_with_rows_in_it_goes_back_and_is_upgraded_again(own_database: dict[str, str]) -> None:
    assert run_script(UPGRADE, env=own_database) == "upgraded\n"


@pytest.mark.sqlite_only
def test_tests_migrate_anew_after_a_change_of_the_schema_and_not_after_one_of_a_page() -> None:
    found = {str(path.relative_to(ROOT)) for path in files_of_schema()}

    assert {"gpr/migrations/0003_promises.py", "accounts/models.py", "gpr/triggers.py", "core/vendor_sql.py"} <= found
    assert "protocol/agents/events.py" in found  # a model imports it
    assert not found & {"portal_user/urls.py", "egs/urls.py", "gpr/requests/services.py"}
