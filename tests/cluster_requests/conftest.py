"""All tests of a file share the stage of claims."""

from __future__ import annotations

from copy import deepcopy

import pytest

from tests.cluster_requests.stage import ClusterRequestStage


@pytest.fixture(scope="module")
def built_stage(module_db: None) -> ClusterRequestStage:
    return ClusterRequestStage()


@pytest.fixture
def stage(built_stage: ClusterRequestStage, db: None) -> ClusterRequestStage:
    return deepcopy(built_stage)
