"""Runs statements that are frequent: Django writes the SQL of each once, PostgreSQL keeps its plan, and several need not wait for each
other.

Django takes several times as long to write the SQL of a queryset as PostgreSQL takes to run it, and a submit runs some twenty. So a
`WrittenQuery` has the SQL written at its first call. The SQL must be the same for all calls: a queryset's own values stay those of the
first call; only ids and values of type `TimeParam`, `NumberParam`, `TextParam` and `IdParam` change.

It leans on parts of Django that no document promises: a compiler's `as_sql`, `execute_sql` and `results_iter`, a queryset's
`_iterable_class`, a field's `pre_save` and `get_db_prep_save`. tests/promises/database/test_written_sql.py compares all of it with what
Django's own querysets do; run it on both databases after an upgrade of Django or psycopg.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from datetime import datetime
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.models import AutoField, BigIntegerField, DateTimeField, Expression, Field, Model, QuerySet, TextField, UUIDField

Row = TypeVar("Row")
Value = datetime | str | UUID | int
ID: Final[UUIDField[Any, Any]] = UUIDField()
TIME: Final[DateTimeField[Any, Any]] = DateTimeField()
NUMBER: Final[BigIntegerField[Any, Any]] = BigIntegerField()
TEXT: Final[TextField[Any, Any]] = TextField()
# A connection that has run a statement so often keeps its plan. PostgreSQL takes so many values beside one.
PLANNED_AFTER: Final = 2
VALUES_MOST: Final = 65_535


class WrittenQuery(Generic[Row]):
    """Loads rows of a queryset anew at each call: all, or those whose `key` is among the ids."""

    def __init__(self, rows: QuerySet[Any, Row], *, key: str = "pk") -> None:
        self._rows, self._key = rows, key
        self._compilers: dict[int | None, Any] = {}  # by the number of ids

    def __call__(self, ids: Collection[UUID] | None = None, **named: Value) -> list[Row]:
        return self.send(ids, **named)()

    def send(self, ids: Collection[UUID] | None = None, **named: Value) -> Callable[[], list[Row]]:
        """Asks for the rows; what it returns waits for them."""
        if ids is None:
            return self._send(None, named)
        if not ids:
            return list
        # One text for each power of two: the last id is repeated.
        given = list(ids)
        count = 1 << (len(given) - 1).bit_length()
        return self._send(count, named | dict(enumerate([*given, *given[-1:] * (count - len(given))])))

    def _send(self, count: int | None, given: Mapping[Any, Any]) -> Callable[[], list[Row]]:
        if count not in self._compilers:
            self._compilers[count] = self._compiler(count)
        connection, compiler = connections[DEFAULT_DB_ALIAS], copy(self._compilers[count])
        sql, params = compiler.as_sql()
        values = [each.value(given, connection) if isinstance(each, _Given) else each for each in params]
        cursor = planned_cursor() if len(values) <= VALUES_MOST else connection.cursor()
        cursor.execute(sql, values)

        def rows() -> list[Row]:
            with cursor:
                found = cursor.fetchall()
            compiler.connection, compiler.execute_sql = connection, lambda *_, **__: [found]
            loaded: Any = self._rows._iterable_class(QuerySet(self._rows.model, query=_Written(compiler)))  # type: ignore[arg-type]
            return [*loaded]

        return rows

    def _compiler(self, count: int | None) -> Any:
        rows = self._rows if count is None else self._rows.filter(**{f"{self._key}__in": [_Given(place, ID) for place in range(count)]})
        compiler: Any = rows.query.get_compiler(rows.db)
        written = compiler.as_sql()
        compiler.as_sql = lambda: written
        converters = compiler.get_converters([column for column, *_ in compiler.select[: compiler.col_count]])
        compiler.get_converters = lambda _: converters  # they are the same for every connection
        compiler.connection = None  # it belongs to one thread
        return compiler


class _Given(Expression):
    """Stands in a queryset for a value of a call, by its place or name."""

    def __init__(self, key: int | str, field: Field[Any, Any]) -> None:
        super().__init__(output_field=field)
        self.key = key

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, tuple[Any, ...]]:
        return "%s", (self,)

    def value(self, given: Mapping[Any, Any], connection: Any) -> Any:
        return self.output_field.get_db_prep_value(given[self.key], connection)


class TimeParam(_Given):
    """Stands in a queryset for the time that a call gives by this name."""

    def __init__(self, name: str) -> None:
        super().__init__(name, TIME)


class TextParam(_Given):
    """Stands in a queryset for the text that a call gives by this name."""

    def __init__(self, name: str) -> None:
        super().__init__(name, TEXT)


class IdParam(_Given):
    """Stands in a queryset for the id that a call gives by this name."""

    def __init__(self, name: str) -> None:
        super().__init__(name, ID)


class NumberParam(_Given):
    """Stands in a queryset for the whole number that a call gives by this name."""

    def __init__(self, name: str) -> None:
        super().__init__(name, NUMBER)


class _Written:
    """Stands in for the query of a queryset."""

    def __init__(self, compiler: Any) -> None:
        self._compiler = compiler

    def get_compiler(self, using: str) -> Any:
        return self._compiler


def load_together(*asked: tuple[WrittenQuery[Any], Collection[UUID] | None]) -> list[list[Any]]:
    """Returns the rows of each query, after one wait for all."""
    with sent_together():
        sent = [query.send(ids) for query, ids in asked]
    return [rows() for rows in sent]  # within, the first would wait for its rows, and the end for the server's last word


@contextmanager
def sent_together() -> Iterator[None]:
    """Statements within do not wait for the one before, until rows of one are fetched. Do not read how many rows one has changed."""
    connection = connections[DEFAULT_DB_ALIAS]
    if connection.vendor != "postgresql":
        yield
        return
    connection.ensure_connection()
    with connection.wrap_database_errors, connection.connection.pipeline():
        yield


def planned_cursor() -> Any:
    """PostgreSQL keeps the plans of statements whose values are sent beside them."""
    connection: Any = connections[DEFAULT_DB_ALIAS]
    if connection.vendor != "postgresql":
        return connection.cursor()
    from django.db.backends.postgresql.base import ServerBindingCursor

    connection.ensure_connection()
    connection.connection.prepare_threshold = PLANNED_AFTER
    return connection._prepare_cursor(ServerBindingCursor(connection.connection))  # type: ignore[call-arg]


def rows_insert(rows: Sequence[Model], *, unique: str = "", where: str = "", keyed: bool = True) -> None:
    """Does what `bulk_create` does, in two thirds of its time. A stored row with the same value of the column `unique` is overwritten.

    `where`: the condition of the index of `unique`. Without `keyed` rows do not learn the keys that the database gives: nobody waits.
    """
    if not rows:
        return
    connection, meta = connections[DEFAULT_DB_ALIAS], rows[0]._meta
    key, quoted = meta.pk, connection.ops.quote_name
    fields = [field for field in meta.local_concrete_fields if not isinstance(field, AutoField)]
    told = [[field.get_db_prep_save(field.pre_save(row, add=True), connection) for field in fields] for row in rows]
    if not unique:  # a column that is not named is null; psycopg parses a statement of more than 50 values anew each time
        used = [place for place in range(len(fields)) if any(values[place] is not None for values in told)]
        fields, told = [fields[place] for place in used], [[values[place] for place in used] for values in told]
    names = [quoted(str(field.column)) for field in fields]
    beginning = f"INSERT INTO {quoted(meta.db_table)} ({', '.join(names)}) VALUES "  # noqa: S608
    keyed &= key not in fields
    index = f"({unique}) WHERE {where}" if where else f"({unique})"
    ending = f" ON CONFLICT {index} DO UPDATE SET {', '.join(f'{name} = EXCLUDED.{name}' for name in names)}" if unique else ""
    ending += f" RETURNING {quoted(str(key.column))}" if keyed else ""
    marks = f"({', '.join('%s' for _ in fields)})"
    size = min(connection.ops.bulk_batch_size(fields, rows), VALUES_MOST // len(fields))
    with planned_cursor() as cursor:
        for first in range(0, len(rows), size):
            some = told[first : first + size]
            cursor.execute(f"{beginning}{', '.join([marks] * len(some))}{ending}", [value for values in some for value in values])
            if keyed:
                for row, (made,) in zip(rows[first : first + size], cursor.fetchall(), strict=True):
                    row.pk = made
    for row in rows:
        row._state.adding, row._state.db = False, DEFAULT_DB_ALIAS


def rows_derive(model: type[Model], rows: QuerySet[Any], columns: Mapping[str, Any], *, most: int | None = None) -> None:
    """Inserts a row of `model` for each of `rows`, or `most` of them, inside the database; one that is there already stays. `columns`: an
    expression for each field.
    """
    connection, quoted = connections[DEFAULT_DB_ALIAS], connections[DEFAULT_DB_ALIAS].ops.quote_name
    names = ", ".join(quoted(str(model._meta.get_field(name).column)) for name in columns)  # type: ignore[union-attr]
    sql, values = rows.order_by().values_list(*columns.values())[:most].query.sql_with_params()
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {quoted(model._meta.db_table)} ({names}) {sql} ON CONFLICT DO NOTHING", values)


def rows_update(rows: Sequence[Model], names: Sequence[str]) -> None:
    """Does what `bulk_update` does, whose one large statement takes many times as long."""
    if not rows:
        return
    connection, meta = connections[DEFAULT_DB_ALIAS], rows[0]._meta
    quoted = connection.ops.quote_name
    fields: list[Any] = [meta.get_field(name) for name in names]
    settings = ", ".join(f"{quoted(str(field.column))} = %s" for field in fields)
    told = [[field.get_db_prep_save(getattr(row, field.attname), connection=connection) for field in (*fields, meta.pk)] for row in rows]
    with planned_cursor() as cursor:
        cursor.executemany(f"UPDATE {quoted(meta.db_table)} SET {settings} WHERE {quoted(str(meta.pk.column))} = %s", told)  # noqa: S608
