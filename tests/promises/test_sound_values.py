"""The database refuses values that nobody could work with, on both databases and in every model."""

from __future__ import annotations

import pytest
from django.apps import apps
from django.db import IntegrityError, connection, models, transaction

from egs.sound_values import SoundValues
from tests.lifecycle.stage import Stage
from tests.promises.processes import run_script

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]

OWN = {"accounts", "gpr", "inventory", "journal", "slices"}
UNSOUND = {
    "a time after all others": ("gpr_gpr", "turn_at", {"postgresql": "'infinity'", "sqlite": "'soon'"}),
    "a time before all others": ("inventory_node", "seen_at", {"postgresql": "'-infinity'", "sqlite": "'0001-01-01 00:00:00'"}),
    "no number": ("gpr_witness", "ran_sum_s", {"postgresql": "'NaN'", "sqlite": "9e999"}),
    "no list": ("gpr_promise", "slot_nodes", {"postgresql": "'{}'", "sqlite": "'{}'"}),
    "no object": ("gpr_gpr", "explanation", {"postgresql": "'5'", "sqlite": "'5'"}),
    "an unknown state": ("inventory_reservation", "state", {"postgresql": "'LOST'", "sqlite": "'LOST'"}),
}
# To the state before and back again, with rows in it as that state had them.
UPGRADE = """
from uuid import uuid4
from django.core.management import call_command
from django.db import connection
from tests.promises import guards

call_command("migrate", verbosity=0)
from gpr.models import Gpr
from tests.lifecycle.stage import Stage
stage = Stage(nodes=2)
gpr = stage.active(duration_s=3600)
before = {model: list(model.objects.order_by("pk").values()) for model in (Gpr, *{type(row) for row in stage.held()}, type(stage.cluster))}

for app, name in (("slices", "0010"), ("inventory", "0016"), ("gpr", "0030"), ("journal", "0002"), ("accounts", "0002")):
    call_command("migrate", app, name, verbosity=0)
with connection.cursor() as cursor:
    cursor.execute("UPDATE gpr_gpr SET allowed_shapes = NULL, template_id = %s", [uuid4().hex])
call_command("migrate", verbosity=0)

assert {model: list(model.objects.order_by("pk").values()) for model in before} == before
assert guards.triggers() == guards.TRIGGERS[connection.vendor], guards.triggers()
print("upgraded")
"""


def test_every_model_with_values_that_may_be_unsound_has_the_constraint() -> None:
    checked = (models.DateTimeField, models.FloatField, models.JSONField)

    def needs(model: type[models.Model]) -> bool:
        return any(isinstance(field, checked) or field.choices for field in model._meta.local_concrete_fields)

    ours = [model for app in OWN for model in apps.get_app_config(app).get_models() if needs(model)]
    assert [model for model in ours if not any(isinstance(each, SoundValues) for each in model._meta.constraints)] == []


@pytest.mark.parametrize("what", UNSOUND)
def test_what_nobody_could_work_with_is_not_stored(what: str) -> None:
    table, column, values = UNSOUND[what]
    stage = Stage(nodes=1)
    stage.submit()
    stage.submit(stage.slice, name="waits")
    stage.tick()

    with pytest.raises(IntegrityError, match=f"{table}_sound_values"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE {table} SET {column} = {values[connection.vendor]}")  # noqa: S608


def test_a_database_with_rows_in_it_is_upgraded(own_database: dict[str, str]) -> None:
    assert run_script(UPGRADE, env=own_database) == "upgraded\n"
