"""The stage of claims, which all tests of a file share."""

from __future__ import annotations

from copy import deepcopy

import pytest

from tests.claims.stage import ClaimStage


@pytest.fixture(scope="module")
def built_stage(module_db: None) -> ClaimStage:
    return ClaimStage()


@pytest.fixture
def stage(built_stage: ClaimStage, db: None) -> ClaimStage:
    return deepcopy(built_stage)
