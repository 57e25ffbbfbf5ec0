from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.client.hub import Egs, Hub

# A suite that a shell runs in the background ignores Ctrl-C, and so would the commands that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All these tests share one hub, so they run in one process."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.xdist_group("client"))


@pytest.fixture(scope="package")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    made = Hub(tmp_path_factory.mktemp("hub"))
    yield made
    made.stop()


@pytest.fixture
def egs(hub: Hub, tmp_path: Path) -> Egs:
    """Ada's; her workspace is vision."""
    return Egs(tmp_path, {"EGS_URL": hub.url, "EGS_TOKEN": hub.tokens["user_token"], "EGS_WORKSPACE": "vision"})


@pytest.fixture
def admin(hub: Hub, tmp_path_factory: pytest.TempPathFactory) -> Egs:
    return Egs(tmp_path_factory.mktemp("admin"), {"EGS_URL": hub.url, "EGS_TOKEN": hub.tokens["admin_token"]})
