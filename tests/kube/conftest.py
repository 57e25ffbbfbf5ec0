"""A real Kubernetes control plane for each test process; a test makes its own nodes and namespace in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.kube.cluster import Cluster, clusters, programs
from tests.kube.pods import Tenant
from tests.kube.world import World, install, new_world


@pytest.fixture(scope="session")
def cluster(worker_id: str) -> Iterator[Cluster]:
    """The one that EGS_TEST_KUBECONFIG names, made by deploy/kube, or a new one."""
    given = os.environ.get("EGS_TEST_KUBECONFIG")
    if given:
        yield Cluster(Path(given), programs())
        return
    with clusters(f"test-{worker_id}") as (made,):
        yield made


@pytest.fixture
def tenant(cluster: Cluster) -> Iterator[Tenant]:
    """A namespace and a node of 8 GPUs that nobody else uses."""
    made = Tenant(cluster, f"tenant-{uuid4().hex[:8]}")
    made.move_in()
    yield made
    made.move_out()


@pytest.fixture(scope="session")
def locked(worker_id: str) -> Iterator[Cluster]:
    """Another one, in which deploy/agent/install has put the isolation: nothing that asks for GPUs runs there by itself."""
    with clusters(f"locked-{worker_id}") as (made,):
        install(made, "--no-agent")
        yield made


@pytest.fixture(scope="session")
def managed(worker_id: str) -> Iterator[Cluster]:
    """A third one, with the same isolation, where the agent is at work: it writes nodes and guard."""
    given = os.environ.get("EGS_TEST_KUBECONFIG")
    if given:
        install(made := Cluster(Path(given), programs()), "--no-agent")
        yield made
        return
    with clusters(f"managed-{worker_id}") as (made,):
        install(made, "--no-agent")
        yield made


@pytest.fixture(scope="session")
def world(locked: Cluster) -> Iterator[World]:
    """Two workspaces in it, and the people who attack. Tests leave it as they found it."""
    with new_world(locked) as made:
        yield made
