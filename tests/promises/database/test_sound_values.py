"""The database refuses values that nobody could work with, on both databases and in every model."""

from __future__ import annotations

import pytest
from django.apps import apps
from django.db import IntegrityError, connection, models, transaction

from core.column_checks import ColumnChecks
from tests.lifecycle.stage import Stage

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]

OWN = {"accounts", "gpr", "inventory", "journal", "manifests", "observability", "slices"}
# One statement writes each: courses of readings, and how far they were counted.
COURSES = {"CounterState", "FaultCount", "LatestReading", "Reading15s", "Reading1m", "Reading10m", "RollUpProgress"}
UNSOUND = {
    "a time after all others": ("gpr_gpr", "turn_at", {"postgresql": "'infinity'", "sqlite": "'soon'"}),
    "a time before all others": ("inventory_node", "seen_at", {"postgresql": "'-infinity'", "sqlite": "'0001-01-01 00:00:00'"}),
    "no number": ("gpr_planrecord", "ran_sum_s", {"postgresql": "'NaN'", "sqlite": "9e999"}),
    "no list": ("gpr_promise", "slot_nodes", {"postgresql": "'{}'", "sqlite": "'{}'"}),
    "no object": ("gpr_gpr", "explanation", {"postgresql": "'5'", "sqlite": "'5'"}),
    "an unknown state": ("inventory_reservation", "state", {"postgresql": "'LOST'", "sqlite": "'LOST'"}),
}


def test_every_model_with_values_that_may_be_unsound_has_the_constraint() -> None:
    checked = (models.DateTimeField, models.FloatField, models.JSONField)

    def needs(model: type[models.Model]) -> bool:
        return any(isinstance(field, checked) or field.choices for field in model._meta.local_concrete_fields)

    ours = [model for app in OWN for model in apps.get_app_config(app).get_models() if needs(model)]
    unchecked = {model.__name__ for model in ours if not any(isinstance(each, ColumnChecks) for each in model._meta.constraints)}
    assert unchecked == COURSES


@pytest.mark.parametrize("what", UNSOUND)
def test_what_nobody_could_work_with_is_not_stored(what: str) -> None:
    table, column, values = UNSOUND[what]
    stage = Stage(nodes=1)
    stage.submit()
    stage.submit(stage.slice, name="waits")
    stage.tick()

    with pytest.raises(IntegrityError, match=f"{table}_sound_values"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE {table} SET {column} = {values[connection.vendor]}")  # noqa: S608
