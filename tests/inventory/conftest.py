from __future__ import annotations

import pytest

from inventory.models import Cluster
from tests.builders import make_cluster
from tests.inventory.agent import Agent


@pytest.fixture
def cluster() -> Cluster:
    return make_cluster("c1", nodes=1, is_heard=False)


@pytest.fixture
def agent(cluster: Cluster) -> Agent:
    return Agent.joined(cluster)
