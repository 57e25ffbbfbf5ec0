"""A query whose SQL is written once finds the same rows as its queryset, and rows that are stored later."""

from __future__ import annotations

from uuid import uuid4

import pytest

from core.written_sql import WrittenQuery
from inventory.models import Node
from tests.builders import make_cluster

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]

NODES = Node.objects.select_related("cluster").order_by("name", "pk")
ALL = WrittenQuery(NODES.values_list("name", "seen_at"))
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
