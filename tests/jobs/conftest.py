"""The world of the API, and a stage with an agent; both have a namespace that is ready."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from core.clock import db_now
from tests.api.conftest import (  # noqa: F401  # fixtures
    World,
    admin,
    built_people,
    built_world,
    outsider,
    owner,
    people,
    reader,
    teammate,
    world,
)
from tests.builders import SHAPE
from tests.jobs.stage import JobStage
from tests.slices.kubeconfigs import ready_namespace


@pytest.fixture
def job(world: World) -> dict[str, Any]:  # noqa: F811
    """The body of a job that the API takes."""
    ready_namespace(world.slice, world.cluster, at=db_now())
    box = {"name": "train", "slice": "vision", "shape": SHAPE, "nodes": 2, "duration_s": 3600}
    return {**box, "image": "registry.example/team/train:1.0", "command": ["torchrun", "train.py"]}


@pytest.fixture(scope="module")
def built_stage(module_db: None) -> JobStage:
    return JobStage()


@pytest.fixture
def stage(built_stage: JobStage, db: None) -> JobStage:
    return deepcopy(built_stage)
