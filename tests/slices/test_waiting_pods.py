"""Which pods wait in the namespaces of workspaces, as the agents tell it."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from inventory.models import Cluster
from slices.models import Namespace, Slice
from tests.builders import NOW, make_cluster, make_slice
from tests.inventory.agent import Agent
from tests.slices.kubeconfigs import ready_namespace
from worker_agent.protocol import JobWaiting, PodsWaiting, ReasonWaiting

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

    assert not [query for query in captured if query["sql"].startswith("UPDATE") and "slices_namespace" in query["sql"]]


def test_an_agent_tells_of_its_own_cluster_and_of_bound_namespaces_alone(agent: Agent, bound: Namespace) -> None:
    other = make_cluster(nodes=1, is_heard=False)
    slice_: Slice = bound.slice
    slice_.clusters.add(other)
    elsewhere = ready_namespace(slice_, other, at=NOW)

    agent.sync(waiting=(WAITING, PodsWaiting(namespace="loose", count=1)))

    assert waiting(elsewhere) is None
    assert Namespace.objects.filter(waiting__isnull=False).get() == bound
