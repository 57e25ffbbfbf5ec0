"""A query whose SQL is written once finds the rows of its queryset; rows that are inserted at once are stored as they are."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from django.db import IntegrityError, transaction
from django.db.models import Model, Q

from core.written_sql import IdParam, NumberParam, TextParam, TimeParam, WrittenQuery, load_together, rows_insert, sent_together
from inventory.models import Node
from journal.models import Event
from slices.models import Project
from tests.builders import NOW, make_cluster

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]

NODES = Node.objects.select_related("cluster").order_by("name", "pk")
ALL = WrittenQuery(NODES.values_list("name", "seen_at"))
NIL = UUID(int=0)
IN_CLUSTERS = WrittenQuery(NODES, key="cluster__id")


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5])
def test_it_finds_the_rows_of_any_number_of_ids(count: int) -> None:
    ids = [make_cluster(name=f"c{number}", nodes=2).pk for number in range(6)][:count]

    found = IN_CLUSTERS([*ids, uuid4()] if count else [])

    assert found == list(NODES.filter(cluster__in=ids))
    assert [node.cluster.name for node in found] == [f"c{number}" for number in range(count) for _ in "ab"]


def test_each_call_reads_anew() -> None:
    for number in range(2):
        make_cluster(name=f"c{number}", nodes=1)

        assert ALL() == list(NODES.values_list("name", "seen_at"))


SEEN = WrittenQuery(NODES.filter(Q(seen_at__lt=TimeParam("before")) | Q(seen_at__gt=TimeParam("after"))), key="cluster__id")


def test_it_finds_the_rows_of_the_times_of_each_call() -> None:
    cluster, hour = make_cluster(nodes=3), timedelta(hours=1)
    for number, node in enumerate(NODES.all()):
        Node.objects.filter(pk=node.pk).update(seen_at=NOW + number * hour)

    for before, after in ((NOW, NOW), (NOW + hour, NOW + 2 * hour), (NOW - hour, NOW + hour)):
        assert SEEN([cluster.pk], before=before, after=after) == list(NODES.filter(Q(seen_at__lt=before) | Q(seen_at__gt=after)))


NAMED = WrittenQuery(NODES.filter(name=TextParam("name")))


def test_it_finds_the_rows_of_the_text_of_each_call() -> None:
    make_cluster("c", nodes=2)

    for name in ("c-n0", "c-n1", "c'; --"):
        assert [node.name for node in NAMED(name=name)] == [name] * name.startswith("c-")


LARGE = WrittenQuery(NODES.filter(gpu_memory_gib__gte=NumberParam("gib")))


def test_it_finds_the_rows_of_the_number_of_each_call() -> None:
    make_cluster("c", nodes=2)
    Node.objects.filter(name="c-n1").update(gpu_memory_gib=1_000)

    for gib in (0, 1_000, 1_001):
        assert LARGE(gib=gib) == list(NODES.filter(gpu_memory_gib__gte=gib))


BESIDE = WrittenQuery(NODES.exclude(pk=IdParam("node")), key="cluster__id")


def test_it_finds_the_rows_of_the_id_of_each_call() -> None:
    cluster = make_cluster(nodes=3)

    nodes = list(NODES.all())
    for node in nodes:
        assert BESIDE([cluster.pk], node=node.pk) == [other for other in nodes if other != node]


@pytest.mark.parametrize("round_", range(4))  # the server keeps the plan of a statement that a connection sends again
def test_queries_that_are_sent_together_find_what_each_finds_alone(round_: int) -> None:
    clusters = [make_cluster(name=f"c{number}", nodes=2) for number in range(round_)]
    ids = [cluster.pk for cluster in clusters]

    found, none, every = load_together((IN_CLUSTERS, ids), (IN_CLUSTERS, []), (ALL, None))

    assert (found, none, every) == (list(NODES.filter(cluster__in=ids)), [], list(NODES.values_list("name", "seen_at")))


def test_statements_that_are_sent_together_fail_together() -> None:
    @transaction.atomic
    def insert_twice() -> None:
        with sent_together():
            for name in ("first", "second"):
                rows_insert([Project(pk=NIL, name=name, created_at=NOW)])

    with pytest.raises(IntegrityError):
        insert_twice()

    assert not Project.objects.exists()


def test_inserted_rows_are_stored_as_they_are_and_know_their_keys() -> None:
    events = [Event(kind=kind, message=f"100 % of {kind}.", at=NOW, data={"of": [kind, None]}) for kind in ("one", "two")]

    rows_insert(events)

    assert [Event.objects.get(pk=event.pk).data for event in events] == [{"of": ["one", None]}, {"of": ["two", None]}]
    assert [list(Event.objects.filter(pk=event.pk).values()) for event in events] == [[_values(event)] for event in events]
    assert not any(event._state.adding for event in events)


def test_a_row_that_is_inserted_again_overwrites_the_stored_one() -> None:
    for name in ("first", "second"):
        rows_insert([Project(pk=NIL, name=name, created_at=NOW)], unique="id")

    assert Project.objects.get(pk=NIL).name == "second"


def _values(row: Model) -> dict[str, object]:
    return {field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields}
