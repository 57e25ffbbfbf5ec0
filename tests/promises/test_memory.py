"""A newcomer's slack and failure reserve follow from memory: equal arrivals count as one, and only the last failure counts."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from gpr.allocation.live import snapshot_load
from gpr.allocation.pools import RETURN_S
from gpr.allocation.snapshot import SLACK
from gpr.models import Promise, Shadow
from gpr.requests.services import gpr_submit
from inventory.models import Cluster, MaintenanceWindow, Node
from inventory.services.inventory import inventory_store
from planner.snapshot import Arrival, Failed
from protocol.nodes.inventory import GpuView, NodeView
from tests.builders import NOW, make_cluster, make_slice, make_user, spec

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]


def test_alike_arrivals_count_together_from_the_first_on_and_old_ones_not_at_all() -> None:
    cluster, user = make_cluster(nodes=1), make_user(is_admin=True)
    asks = [(3600, NOW), (3600, NOW + timedelta(seconds=5)), (7200, NOW + timedelta(seconds=9))]
    gprs = [gpr_submit(actor=user, spec=spec(make_slice(cluster), duration_s=length_s), now=at) for length_s, at in asks]
    short, _, long = (Shadow.objects.get(gpr=gpr) for gpr in gprs)
    now_s = int(NOW.timestamp())

    assert snapshot_load(now=asks[-1][1], with_memory=True).snapshot.memory.arrivals == (
        Arrival(now_s, short.priority, short.gpu_s, short.gpu_s),
        Arrival(now_s + 9, long.priority, long.gpu_s),
    )

    later = NOW + timedelta(seconds=SLACK.observed_s + 7)
    assert snapshot_load(now=later, with_memory=True).snapshot.memory.arrivals == (Arrival(now_s + 9, long.priority, long.gpu_s),)


def report(cluster: Cluster, *, at: datetime, ready: bool = True, healthy: bool = True) -> None:
    gpus = tuple(GpuView(uuid=f"GPU-{i}", index=i, model="H100", memory_gib=80, healthy=healthy or i > 0) for i in range(8))
    node = NodeView(name="n0", uid="uid-0", shape="H100-80GB", node_type="hgx", gpus=gpus, ready=ready)
    inventory_store(cluster=cluster, nodes=[node], now=at)


def failed_at(cluster: Cluster) -> datetime | None:
    cluster.refresh_from_db()
    return cluster.node_failed_at


@pytest.mark.parametrize("trouble", [{"ready": False}, {"healthy": False}], ids=["not ready", "lost a GPU"])
def test_of_a_cluster_is_remembered_when_a_node_failed_last(trouble: dict[str, bool]) -> None:
    cluster = make_cluster(nodes=0)
    times = [NOW + timedelta(hours=hour) for hour in range(4)]
    for at, state in zip(times, ({}, trouble, {}, trouble), strict=True):
        report(cluster, at=at, **state)

    assert failed_at(cluster) == times[3]
    make_cluster(nodes=1, name="calm")
    assert snapshot_load(now=times[3], with_memory=True).snapshot.memory.failed == (
        Failed(cluster.name, int(times[3].timestamp()), RETURN_S),
    )


def test_a_node_that_was_set_aside_or_is_maintained_has_not_failed() -> None:
    cluster = make_cluster(nodes=0)
    report(cluster, at=NOW)
    node, hour = Node.objects.get(cluster=cluster), timedelta(hours=1)

    Node.objects.filter(pk=node.pk).update(cordoned_at=NOW)
    report(cluster, at=NOW, ready=False)
    report(cluster, at=NOW)
    Node.objects.filter(pk=node.pk).update(cordoned_at=None)
    for of_node in (node, None):
        window = MaintenanceWindow.objects.create(cluster=cluster, node=of_node, starts_at=NOW, ends_at=NOW + hour, created_at=NOW)
        report(cluster, at=NOW, ready=False)
        report(cluster, at=NOW)
        window.delete()
    assert failed_at(cluster) is None

    report(cluster, at=NOW + hour, ready=False)
    assert failed_at(cluster) == NOW + hour


def test_a_failure_that_was_seen_moves_what_is_promised_behind_the_slot() -> None:
    cluster, user = make_cluster(nodes=1), make_user(is_admin=True)

    def promise() -> Promise:
        gpr = gpr_submit(actor=user, spec=spec(make_slice(cluster), duration_s=3600), now=NOW)
        return Promise.objects.get(gpr=gpr)

    promise()  # that of one that starts at once
    before = promise()
    Cluster.objects.update(node_failed_at=NOW)
    after = promise()

    assert before.promised_start_at == before.slot_start_at
    assert after.promised_start_at == after.slot_start_at + timedelta(seconds=SLACK.reserve_most_s)
