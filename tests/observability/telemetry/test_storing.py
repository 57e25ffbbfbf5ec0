"""The hub keeps the newest reading of each GPU, and three courses."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from inventory.models import Cluster, Gpu, Node
from observability.models import LatestReading, Reading1m, Reading10m, Reading15s
from observability.telemetry.services import telemetry_step
from protocol.gpus.telemetry import GpuReading
from tests.builders import NOW, make_cluster, nodes_of
from tests.inventory.agent import Agent
from tests.observability.telemetry.saying import gpus_of, reading, say, store

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]


@pytest.fixture
def cluster() -> Cluster:
    return make_cluster("c1", nodes=2, gpus=4)


@pytest.fixture
def node(cluster: Cluster) -> Node:
    return nodes_of(cluster)[0]


def test_the_newest_reading_of_a_gpu_is_at_hand_and_all_are_in_its_course(cluster: Cluster, node: Node) -> None:
    gpu = gpus_of(node)[0]
    for n, temperature in enumerate([60, 71.6]):
        at = NOW + timedelta(seconds=15 * n)
        assert store(cluster, reading(gpu, at=at, temperature_c=temperature, xid=n), now=at) == (1, 0)

    latest = LatestReading.objects.get(gpu=gpu)
    assert (latest.temperature_c, latest.xid, latest.power_w) == (72, 1, None)
    course = Reading15s.objects.filter(series_id=latest.pk).order_by("at")
    assert [(row.at - NOW, row.temperature_c) for row in course] == [(timedelta(0), 60), (timedelta(seconds=15), 72)]


def test_an_agent_tells_of_its_own_clusters_gpus_alone(cluster: Cluster, node: Node) -> None:
    other = make_cluster("c2", nodes=1)
    agent = Agent.joined(other)

    reply = say(agent, reading(gpus_of(node)[0], at=NOW, temperature_c=50), reading(gpus_of(nodes_of(other)[0])[0], at=NOW), at=NOW)

    assert (reply.stored, reply.refused) == (1, 1)
    assert not LatestReading.objects.filter(gpu__node__cluster=cluster).exists()


def test_a_gpu_that_changed_its_node_is_told_of_by_its_new_node_alone(cluster: Cluster, node: Node) -> None:
    gpu = gpus_of(node)[0]
    moved = GpuReading(nodes_of(cluster)[1].name, gpu.uuid, NOW.timestamp(), (50.0,))
    Gpu.objects.filter(pk=gpu.pk).update(gone_at=NOW)

    assert store(cluster, moved, reading(gpu, at=NOW, temperature_c=50), now=NOW) == (0, 2)


@pytest.mark.parametrize(("late", "is_taken"), [(timedelta(seconds=3), True), (timedelta(minutes=3), False), (-timedelta(hours=2), False)])
def test_a_time_that_cannot_be_is_refused(late: timedelta, is_taken: bool, cluster: Cluster, node: Node) -> None:
    """A clock that is a little ahead is set right."""
    gpu = gpus_of(node)[0]

    assert store(cluster, reading(gpu, at=NOW + late, temperature_c=50), now=NOW) == (int(is_taken), int(not is_taken))
    assert not LatestReading.objects.filter(at__gt=NOW).exists()


def test_values_that_cannot_be_and_metrics_of_a_newer_agent_are_left_out(cluster: Cluster, node: Node) -> None:
    agent, gpu = Agent.joined(make_cluster("c3", nodes=1)), gpus_of(nodes_of(Cluster.objects.get(name="c3"))[0])[0]
    odd = GpuReading(gpu.node.name, gpu.uuid, NOW.timestamp(), (1e9, 7.0, -4.0))

    assert say(agent, odd, at=NOW, metrics=("temperature_c", "quantum_flux", "power_w")).stored == 1
    latest = LatestReading.objects.get(gpu=gpu)
    assert (latest.temperature_c, latest.power_w) == (None, None)


def test_finer_courses_are_rolled_up_once_and_old_ones_removed(cluster: Cluster, node: Node) -> None:
    gpu = gpus_of(node)[0]
    begin = NOW.replace(minute=0, second=0, microsecond=0)
    for n in range(80):  # twenty minutes
        at = begin + timedelta(seconds=15 * n)
        store(cluster, reading(gpu, at=at, temperature_c=50 + n % 4, utilization_percent=n % 4 * 10, new_faults=1), now=at)

    for _ in range(2):
        telemetry_step(now=begin + timedelta(minutes=25))

    minutes = list(Reading1m.objects.order_by("at"))
    assert [row.at for row in minutes] == [begin + timedelta(minutes=n) for n in range(20)]
    assert {(row.temperature_c, row.utilization_percent, row.new_faults) for row in minutes} == {(53, 15, 4)}
    assert [(row.at, row.new_faults) for row in Reading10m.objects.order_by("at")] == [
        (begin, 40),
        (begin + timedelta(minutes=10), 40),
    ]

    telemetry_step(now=begin + timedelta(days=3))
    assert [Reading15s.objects.count(), Reading1m.objects.count(), Reading10m.objects.count()] == [0, 20, 2]
    telemetry_step(now=begin + timedelta(days=92))
    assert [Reading1m.objects.count(), Reading10m.objects.count()] == [0, 0]


def test_a_reading_costs_the_same_queries_for_any_number_of_gpus(cluster: Cluster, node: Node) -> None:
    counts: list[int] = []
    for gpus in (gpus_of(node)[:1], gpus_of(node)):
        at: datetime = NOW + timedelta(seconds=len(counts))
        with CaptureQueriesContext(connection) as queries:
            store(cluster, *(reading(gpu, at=at, temperature_c=50) for gpu in gpus), now=at)
        counts.append(len([query for query in queries.captured_queries if "partition" not in query["sql"].lower()]))

    assert counts[0] == counts[1] <= 8


def test_an_agent_that_sends_too_often_or_late_fills_no_disk_and_hides_nothing_newer(cluster: Cluster, node: Node) -> None:
    gpu = gpus_of(node)[0]
    for n in range(40):  # ten seconds
        at = NOW + timedelta(seconds=n / 4)
        store(cluster, reading(gpu, at=at, temperature_c=50 + n), now=at)
        store(cluster, reading(gpu, at=at - timedelta(minutes=1), temperature_c=99), now=at)

    assert list(Reading15s.objects.order_by("at").values_list("temperature_c", flat=True)) == [50, 70]
    assert LatestReading.objects.get(gpu=gpu).temperature_c == 70
    back = NOW - timedelta(hours=1)  # the hub's clock is set back
    assert store(cluster, reading(gpu, at=back, temperature_c=40), now=back) == (1, 0)
