from __future__ import annotations

from typing import Any

import pytest

from gpr.models import Gpr
from tests import factories
from tests.api.conftest import Caller, World


def test_a_request_comes_back_queued_with_its_promise_and_everything_that_was_asked(owner: Caller, ask: dict[str, Any]) -> None:
    response = owner.post("gprs/", {**ask, "priority": 150, "rdma": False, "model": {"name": "llama", "layers": [1, 2.5, None]}})

    assert response.status_code == 201, response.data
    gpr = response.json()
    print(gpr)
    assert gpr["state"] == "QUEUED"
