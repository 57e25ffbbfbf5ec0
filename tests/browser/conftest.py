from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Browser

from tests.browser.support.chromium import chromium, visitor
from tests.browser.support.demo import Demo, running_demo
from tests.browser.support.people import end_all

if TYPE_CHECKING:
    from tests.browser.support.staged import Stage


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests on a demo go to one process, which has one demo and one Chromium; those that need no demo go to another."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            is_on_demo = "demo" in getattr(item, "fixturenames", ())
            item.add_marker(pytest.mark.xdist_group("browser-demo" if is_on_demo else "browser"))


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """It closes after the tests of this folder: while its event loop runs, Django refuses other tests of the process the database."""
    with chromium() as started:
        yield started


@pytest.fixture(scope="package")
def shared_demo(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    with running_demo(tmp_path_factory.mktemp("demo"), "--empty", "--oidc") as tokens:
        demo = Demo(browser, tokens)
        yield demo
        demo.close()


@pytest.fixture(scope="module")
def demo(shared_demo: Demo) -> Iterator[Demo]:
    """All tests share one demo. A file's tests leave no request in it for those of the next."""
    yield shared_demo
    end_all(shared_demo.admin)


@pytest.fixture(scope="module")
def stage(browser: Browser) -> Iterator[Stage]:
    """All tests of a file share one page, because a browser takes longer to make a page than to open an address in it."""
    from tests.browser.support.staged import ORIGIN, Stage  # not before Django is set up

    with visitor(browser, ORIGIN) as (page, watch):
        yield Stage(page, watch)
