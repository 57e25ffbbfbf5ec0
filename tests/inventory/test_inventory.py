"""After every report the hub has exactly the reported cluster, and tells what changed, at the same cost."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from core.errors import InvalidInput
from inventory.models import Cluster, Gpu, Node
from inventory.services.inventory import inventory_store
from journal.models import Event
from protocol.nodes.inventory import GpuView, NodeCondition, NodeView
from tests.builders import NOW, make_cluster, node_view
from tests.effort import examples

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)
UIDS, NAMES, UUIDS = [f"u{number}" for number in range(4)], [f"n{number}" for number in range(5)], [f"GPU-{number}" for number in range(3)]

seen_gpus = st.lists(
    st.builds(GpuView, uuid=st.sampled_from(UUIDS), index=st.integers(0, 2), model=st.just("H100"), memory_gib=st.sampled_from([40, 80]))
    | st.builds(
        GpuView, uuid=st.sampled_from(UUIDS), index=st.just(0), model=st.just("H100"), memory_gib=st.just(80), healthy=st.just(False)
    ),
    unique_by=lambda gpu: gpu.uuid,
    max_size=3,
).map(tuple)


@st.composite
def reports(draw: st.DrawFn) -> list[NodeView]:
    """Nodes come and go, return, exchange their names, and lose GPUs or find them again."""
    uids = draw(st.lists(st.sampled_from(UIDS), unique=True))
    names = draw(st.permutations(NAMES))
    flags = st.booleans()
    return [
        structs.replace(
            node_view(name, uid=uid, ready=draw(flags), broken=draw(flags), rack=draw(st.sampled_from(["", "r1"]))), gpus=draw(seen_gpus)
        )
        for uid, name in zip(uids, names, strict=False)
    ]


def live_nodes(cluster: Cluster) -> dict[str, tuple[Any, ...]]:
    return {
        node.uid: (
            node.name,
            node.is_ready,
            node.rack,
            node.gpu_count,
            node.broken_at is not None,
            node.sick_gpus_at is not None,
            node.seen_at,
        )
        for node in Node.objects.filter(cluster=cluster, gone_at=None)
    }


def live_gpus(cluster: Cluster) -> set[tuple[Any, ...]]:
    rows = Gpu.objects.filter(node__cluster=cluster, node__gone_at=None, gone_at=None)
    return set(rows.values_list("node__uid", "uuid", "index", "model", "memory_gib", "is_healthy"))


def as_reported(views: list[NodeView], at: datetime) -> tuple[dict[str, tuple[Any, ...]], set[tuple[Any, ...]]]:
    nodes: dict[str, tuple[Any, ...]] = {}
    gpus: set[tuple[Any, ...]] = set()
    for view in views:
        is_sick = any(not gpu.healthy for gpu in view.gpus)
        nodes[view.uid] = (view.name, view.ready, view.rack, len(view.gpus), view.broken, is_sick, at)
        gpus |= {(view.uid, gpu.uuid, gpu.index, gpu.model, gpu.memory_gib, gpu.healthy) for gpu in view.gpus}
    return nodes, gpus


@examples(40)
@given(st.lists(reports(), min_size=1, max_size=5))
def test_after_each_report_the_hub_has_what_was_reported_and_nothing_else_as_live(told: list[list[NodeView]]) -> None:
    cluster, other = make_cluster(), make_cluster(nodes=2)
    before = live_nodes(other), live_gpus(other)
    gone_since: dict[str, datetime] = {}
    sick_since: dict[str, datetime] = {}
    for number, views in enumerate(told):
        at = NOW + number * MINUTE
        left = set(live_nodes(cluster)) - {view.uid for view in views}

        inventory_store(cluster=cluster, nodes=views, now=at)

        gone_since = {uid: since for uid, since in gone_since.items() if uid not in {view.uid for view in views}} | dict.fromkeys(left, at)
        sick_now = {view.uid for view in views if any(not gpu.healthy for gpu in view.gpus)}
        sick_since = {uid: sick_since.get(uid, at) for uid in sick_now} | {uid: sick_since[uid] for uid in gone_since if uid in sick_since}
        assert (live_nodes(cluster), live_gpus(cluster)) == as_reported(views, at)
        nodes = Node.objects.filter(cluster=cluster)
        assert dict(nodes.exclude(gone_at=None).values_list("uid", "gone_at")) == gone_since
        assert dict(nodes.exclude(sick_gpus_at=None).values_list("uid", "sick_gpus_at")) == sick_since
    assert (live_nodes(other), live_gpus(other)) == before


def test_a_report_says_what_has_changed_of_each_node_once() -> None:
    cluster = make_cluster("c1")
    views = [node_view(name) for name in ("a", "b", "c", "d")]
    inventory_store(cluster=cluster, nodes=views, now=NOW)
    a, b, c, _ = views
    told_count = Event.objects.count()

    changed = [structs.replace(a, ready=False), structs.replace(b, gpus=b.gpus[:-1]), structs.replace(c, rack="r9")]
    for _ in range(2):
        inventory_store(cluster=cluster, nodes=changed, now=NOW + MINUTE)

    assert list(Event.objects.order_by("pk").values_list("message", flat=True)[told_count:]) == [
        "Node d is gone from cluster c1.",
        "Node a is not ready.",
        "1 GPU of node b is sick or gone; nothing new starts on it until all are well.",
    ]


def test_a_report_leaves_the_epoch_and_what_set_a_node_aside_alone() -> None:
    cluster = make_cluster(nodes=1)
    Node.objects.update(epoch=7, cordoned_at=NOW, cordon_reason="broken fan")

    inventory_store(cluster=cluster, nodes=[node_view(f"{cluster.name}-n0", rack="r1")], now=NOW + MINUTE)

    node = Node.objects.get()
    assert (node.epoch, node.cordoned_at, node.cordon_reason, node.rack) == (7, NOW, "broken fan", "r1")


@pytest.mark.parametrize("twice", ["uid", "name", "gpu"])
def test_a_report_that_names_something_twice_changes_nothing(twice: str) -> None:
    cluster = make_cluster(nodes=1)
    one, two = node_view("x"), node_view("y")
    views = {
        "uid": [one, structs.replace(two, uid=one.uid)],
        "name": [one, structs.replace(two, name=one.name)],
        "gpu": [structs.replace(one, gpus=one.gpus[:1] * 2)],
    }

    with pytest.raises(InvalidInput):
        inventory_store(cluster=cluster, nodes=views[twice], now=NOW + MINUTE)

    assert list(Node.objects.values_list("name", "gone_at")) == [(f"{cluster.name}-n0", None)]


def test_a_report_of_many_nodes_costs_no_more_queries_than_one_of_two() -> None:
    counts = []
    for name, count in (("few", 2), ("many", 40)):
        cluster = make_cluster(name)
        views = [node_view(f"{name}-{number}", gpus=2) for number in range(count)]
        for report in (views, [structs.replace(view, ready=False) for view in views], views[:1]):
            with CaptureQueriesContext(connection) as queries:
                inventory_store(cluster=cluster, nodes=report, now=NOW)
            counts.append(len(queries))

    assert counts[3:] == counts[:3]


def test_nodes_that_are_gone_are_read_no_more() -> None:
    cluster = make_cluster(nodes=3)
    inventory_store(cluster=cluster, nodes=[], now=NOW)

    with CaptureQueriesContext(connection) as queries:
        inventory_store(cluster=cluster, nodes=[], now=NOW + MINUTE)

    assert not [query for query in queries.captured_queries if "inventory_gpu" in query["sql"]]


def test_a_condition_is_kept_while_it_is_bad_and_told_when_it_turns() -> None:
    cluster = make_cluster("c1")
    bad = NodeCondition(type="XidError", status="True", reason="Xid79", message="GPU 3 is lost", since_s=NOW.timestamp() - 5)
    ahead = structs.replace(bad, since_s=NOW.timestamp() + 999)
    for at, conditions in enumerate([(), (bad,), (ahead,), (), ()]):
        inventory_store(cluster=cluster, nodes=[node_view("a", conditions=conditions)], now=NOW + at * MINUTE)
        assert [each["type"] for each in Node.objects.get().conditions] == [each.type for each in conditions]
        if conditions == (ahead,):
            assert Node.objects.get().conditions[0]["since_at"] is None

    assert list(Event.objects.filter(kind__startswith="node.condition").order_by("pk").values_list("kind", "message")) == [
        ("node.condition_bad", "Node a tells XidError (Xid79: GPU 3 is lost)."),
        ("node.condition_well", "Node a does not tell XidError any more."),
    ]
