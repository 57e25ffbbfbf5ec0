"""A real Kubernetes control plane for each test process; a test makes its own nodes and namespace in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.kube.cluster import Cluster, clusters, programs
from tests.kube.pods import Tenant


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
