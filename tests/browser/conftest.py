from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.chromium import chromium

# A demo keeps a quarter of a core busy as long as it runs, so at most two run at a time.
ON_THE_SECOND = {"test_admin", "test_keys", "test_styleguide", "test_defragmentation"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of a file share one demo and its queue, so they go to one process, file after file."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.xdist_group("browser-2" if item.path.stem in ON_THE_SECOND else "browser-1"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started
