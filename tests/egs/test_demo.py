"""The demo makes the same at every start, and nothing twice."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from pytest_django.fixtures import Settings

from core.clock import db_now
from core.locks import single_runner
from egs.demo import start as demo
from gpr.quotas.selectors import quota_usages
from inventory.models import AgentSession, Cluster, Node, Supply, SupplyOrder
from inventory.services.inventory import inventory_store
from inventory.services.sync import node_order
from slices.models import Quota, Slice
from slices.quotas.services import quota_delete, terms
from tests import factories
from tests.builders import node_view
from tests.e2e.processes import free_port

pytestmark = pytest.mark.django_db

MADE = {
    "perception A100-80GB": "16 GPUs guaranteed, no limit",
    "vision A100-80GB": "8 GPUs guaranteed, 32 at most",
    "foundation A100-80GB": "16 GPUs guaranteed, no limit",
    "language A100-80GB": "8 GPUs guaranteed, no limit",
    "agents A100-80GB": "8 GPUs guaranteed, 16 at most",
}


def join(cluster: str) -> None:
    """Its agent tells of the nodes of its fleet."""
    groups = demo.fleet_of(cluster).groups
    seen = [node_view(f"{g.name}-{n}", gpus=g.gpus, shape=g.shape) for g in groups for n in range(g.count)]
    inventory_store(cluster=Cluster.objects.get(name=cluster), nodes=seen, now=db_now())


def test_what_can_be_ordered_is_what_the_fleet_can_deliver_in_time() -> None:
    for _ in range(2):
        demo.seed(now=db_now())

    supply = Supply.objects.get()
    order = SupplyOrder(supply=supply, ordered_at=db_now(), expected_at=db_now() + timedelta(seconds=supply.lead_time_s))
    growth = demo.fleet_of(supply.cluster.name).growth_for(node_order(order))

    assert growth is not None
    assert growth.lead_time_s < supply.lead_time_s
    assert growth.count == supply.node_count
    assert [slice_.name for slice_ in Slice.objects.filter(may_order=True)] == ["vision"]


def test_a_second_demo_does_not_take_the_place_of_the_first(tmp_path: Path, settings: Settings) -> None:
    """They would share the database and the simulated clusters, whose agents supersede each other."""
    settings.EGS_VAR_DIR = tmp_path
    demo.demo_json().write_text("the first's")

    with single_runner("demo") as mine:
        assert mine
        with pytest.raises(CommandError, match="Another demo runs"):
            call_command("demo", port=free_port())

    assert demo.demo_json().read_text() == "the first's"


def quotas() -> dict[str, Any]:
    return {str(quota): terms(quota) for quota in Quota.objects.all()}


def sync(cluster: str, *, at: datetime) -> None:
    row = Cluster.objects.get(name=cluster)
    AgentSession.objects.update_or_create(cluster=row, defaults={"install_id": cluster, "joined_at": at, "last_sync_at": at})


def test_it_is_ready_once_each_agent_of_this_start_has_told_of_its_nodes() -> None:
    since = db_now()
    demo.seed(now=since)
    for cluster in demo.FLEETS:
        join(cluster)
        sync(cluster, at=since - timedelta(seconds=1))
    assert not demo.has_joined(since=since), "an earlier start's"

    sync("aurora", at=since)
    assert not demo.has_joined(since=since)
    sync("borealis", at=since)
    assert demo.has_joined(since=since)

    Node.objects.filter(cluster__name="aurora").update(gone_at=since)
    assert not demo.has_joined(since=since)


def test_quotas_are_given_once_the_gpus_have_joined() -> None:
    demo.seed(now=db_now())
    join("aurora")
    assert (demo.quotas_seed(now=db_now()), quotas()) == (False, {})

    join("borealis")
    assert (demo.quotas_seed(now=db_now()), quotas()) == (True, MADE)


def test_another_start_finds_them_and_leaves_alone_what_was_changed_since() -> None:
    for _ in range(2):
        demo.seed(now=db_now())
        join("borealis")
        demo.quotas_seed(now=db_now())
    assert quotas() == MADE

    vision = Quota.objects.get(slice__name="vision")
    quota_delete(quota=vision, actor=factories.user("somebody", is_admin=True), now=db_now())
    demo.seed(now=db_now() + timedelta(days=1))

    assert demo.quotas_seed(now=db_now())
    assert quotas().keys() == MADE.keys() - {"vision A100-80GB"}


def test_nobody_wants_or_holds_anything_yet_and_the_projects_weigh_the_same() -> None:
    demo.seed(now=db_now())
    join("borealis")
    demo.quotas_seed(now=db_now())

    assert {(usage.held_gpus, usage.wanted_gpus) for usage in quota_usages(Quota.objects.all())} == {(0, 0)}
    of_projects = Quota.objects.filter(slice=None)
    assert {quota.guaranteed_gpus for quota in of_projects} == {16}
    assert {slice_.project_id for slice_ in Slice.objects.all()} == {quota.project_id for quota in of_projects}
