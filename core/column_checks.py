"""Adds the check constraints that a model's columns get from their types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from django.db.models import CheckConstraint, DateTimeField, F, Field, FloatField, Func, JSONField, Model, Q, TextField
from django.db.models.lookups import Exact

M = TypeVar("M", bound=type[Model])

# PostgreSQL knows times beyond Python's calendar, and `infinity`. No time zone moves these two out of the calendar.
FIRST, LAST = datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)
NUMBER_MOST: Final = 1e300


class JsonKind(Func):
    """Names the JSON types that both databases call the same: `array` and `object`."""

    output_field = TextField()

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        return self.as_sql(compiler, connection, function="jsonb_typeof", **context)

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        return self.as_sql(compiler, connection, function="json_type", **context)


class ColumnChecks(CheckConstraint):
    """Times are within the calendar, numbers finite, JSON columns lists or objects, and choices known."""

    def __init__(
        self,
        *,
        name: str,
        times: Sequence[str] = (),
        numbers: Sequence[str] = (),
        lists: Sequence[str] = (),
        objects: Sequence[str] = (),
        choices: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        self.parts = {"times": tuple(times), "numbers": tuple(numbers), "lists": tuple(lists), "objects": tuple(objects)}
        self.choices = {column: tuple(values) for column, values in sorted((choices or {}).items())}
        condition = Q()
        for column in times:
            condition &= Q(**{f"{column}__range": (FIRST, LAST)})
        for column in numbers:
            condition &= Q(**{f"{column}__range": (-NUMBER_MOST, NUMBER_MOST)})
        for kind, columns in (("array", lists), ("object", objects)):
            for column in columns:
                condition &= Q(Exact(JsonKind(F(column)), kind))
        for column, values in self.choices.items():
            condition &= Q(**{f"{column}__in": values})
        super().__init__(condition=condition, name=name)

    def deconstruct(self) -> tuple[str, Sequence[Any], dict[str, Any]]:
        path, args, kwargs = super().deconstruct()
        del kwargs["condition"]
        said = {**self.parts, "choices": self.choices}
        return path, args, {**kwargs, **{name: value for name, value in said.items() if value}}


SoundValues = ColumnChecks  # the name that older migrations import


def column_checks(model: M) -> M:
    """Decorate a model with one constraint, `<table>_sound_values`, that is made from the types of its fields."""
    fields = [field for field in model._meta.local_concrete_fields if not field.primary_key]
    constraint = ColumnChecks(
        name=f"{model._meta.db_table}_sound_values",
        times=[field.name for field in fields if isinstance(field, DateTimeField)],
        numbers=[field.name for field in fields if isinstance(field, FloatField)],
        lists=[field.name for field in fields if isinstance(field, JSONField) and field.default is list],
        objects=[field.name for field in fields if isinstance(field, JSONField) and field.default is not list],
        choices={field.name: _values(field) for field in fields if field.choices},
    )
    model._meta.constraints = [*model._meta.constraints, constraint]
    model._meta.original_attrs["constraints"] = model._meta.constraints
    return model


def _values(field: Field[Any, Any]) -> tuple[Any, ...]:
    values = tuple(value for value, _ in field.flatchoices)
    # A field that may be blank also takes "".
    return ("", *values) if field.blank and "" not in values else values
