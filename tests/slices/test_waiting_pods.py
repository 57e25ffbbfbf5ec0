"""The hub stores the waiting pods that agents report from workspaces' namespaces."""

from __future__ import annotations

import msgspec
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from inventory.models import Cluster
from protocol.agents.sync import SYNC_PATH, SyncRequest
from protocol.tenancy.waiting_pods import NAMESPACES_WAITING_MAX, JobWaiting, PodsWaiting, ReasonWaiting
from slices.models import Namespace, Slice
from tests.builders import NOW, make_cluster, make_slice
from tests.inventory.agent import Agent
from tests.slices.kubeconfigs import ready_namespace

pytestmark = pytest.mark.django_db

WAITING = PodsWaiting(
    namespace="train",
    count=2,
    reasons=(ReasonWaiting(text="Waits for GPUs.", count=2, names=("a", "b")),),
    jobs=(JobWaiting(name="fit", count=2, fails_s=1_800_000_000.0),),
)


@pytest.fixture
def cluster() -> Cluster:
    return make_cluster(nodes=1, is_heard=False)


@pytest.fixture
def agent(cluster: Cluster) -> Agent:
    return Agent.joined(cluster)


@pytest.fixture
def bound(cluster: Cluster) -> Namespace:
    return ready_namespace(make_slice(cluster), cluster, at=NOW)


def waiting(row: Namespace) -> object:
    row.refresh_from_db()
    return row.waiting


def test_they_are_kept_until_none_waits_any_more(agent: Agent, bound: Namespace) -> None:
    agent.sync(waiting=(WAITING,))
    assert waiting(bound) == {
        "namespace": "train",
        "count": 2,
        "reasons": [{"text": "Waits for GPUs.", "count": 2, "names": ["a", "b"]}],
        "jobs": [{"name": "fit", "count": 2, "fails_s": 1_800_000_000.0}],
    }

    agent.sync()  # has nothing new to tell
    assert waiting(bound) is not None
    agent.sync(waiting=())
    assert waiting(bound) is None


def test_what_is_as_it_was_is_not_written(agent: Agent, bound: Namespace) -> None:
    agent.sync(waiting=(WAITING,))

    with CaptureQueriesContext(connection) as captured:
        agent.sync(waiting=(WAITING,))

    assert not [query for query in captured if (query["sql"] or "").startswith("UPDATE") and "slices_namespace" in query["sql"]]


def test_an_agent_tells_of_its_own_cluster_and_of_bound_namespaces_alone(agent: Agent, bound: Namespace) -> None:
    other = make_cluster(nodes=1, is_heard=False)
    slice_: Slice = bound.slice
    slice_.clusters.add(other)
    elsewhere = ready_namespace(slice_, other, at=NOW)

    agent.sync(waiting=(WAITING, PodsWaiting(namespace="loose", count=1)))

    assert waiting(elsewhere) is None
    assert Namespace.objects.filter(waiting__isnull=False).get() == bound


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ([PodsWaiting(namespace="loose", count=1, jobs=(JobWaiting(name="a" * 300, count=1, fails_s=-1.0),)), WAITING], 2),
        ([*[PodsWaiting(namespace="loose", count=1)] * NAMESPACES_WAITING_MAX, PodsWaiting(namespace="train", count=9)], None),
        ([WAITING, "nonsense", None], 2),
        ("nonsense", 5),
    ],
)
def test_what_cannot_be_read_of_it_costs_no_heartbeat_and_hides_nothing_else(
    told: object, kept: int | None, agent: Agent, bound: Namespace
) -> None:
    agent.sync(waiting=(PodsWaiting(namespace="train", count=5),))
    message = msgspec.to_builtins(SyncRequest(session_epoch=agent.session_epoch, boot_id=agent.boot))

    reply = agent.post(SYNC_PATH, msgspec.json.encode(message | {"waiting": told, "have_life": 7}))

    assert (reply.status, reply.body.get("life")) == (200, None)
    seen = waiting(bound)
    assert (seen["count"] if isinstance(seen, dict) else None) == kept


def test_a_message_whose_other_parts_cannot_be_read_is_refused_as_ever(agent: Agent, bound: Namespace) -> None:
    reply = agent.post(SYNC_PATH, b'{"session_epoch": 1, "boot_id": 7, "waiting": 7}')

    assert (reply.status, reply.code) == (400, "agent_malformed")
