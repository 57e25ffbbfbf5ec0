"""Pages on the production profile: two web processes on PostgreSQL and Redis, hints that cross from one to the other, and what an open
page says and shows while Redis or PostgreSQL is away."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.support.chromium import visitor
from tests.browser.support.people import end_all, goes_through, sign_in
from tests.e2e.jobs import make_tenants
from tests.e2e.processes import Api, ProductionStage
from tests.e2e.servers import OwnPostgres
from tests.journal.redis_server import OwnRedis

# On the two other days: tests/e2e/test_production.py and test_outages.py; each day: test_user.py, and tests/journal/test_hints.py
pytestmark = [pytest.mark.postgres_only, pytest.mark.rotates(2)]

ASK = {"slice": "s", "shape": "H100-80GB", "nodes": 1, "duration_s": 3600}


@pytest.fixture(scope="module")
def redis() -> Iterator[OwnRedis]:
    own = OwnRedis()
    own.start()
    yield own
    own.kill()


@pytest.fixture(scope="module")
def postgres() -> Iterator[OwnPostgres]:
    own = OwnPostgres()
    own.create()
    yield own
    own.remove()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, redis: OwnRedis, postgres: OwnPostgres) -> Iterator[ProductionStage]:
    """The stage has servers that a test may kill."""
    stage = ProductionStage(tmp_path_factory.mktemp("production"), database_url=postgres.url, redis_url=redis.url)
    stage.collect_static()
    yield stage
    stage.stop()


@pytest.fixture(scope="module")
def administrator(stage: ProductionStage) -> Api:
    api = stage.start()
    stage.join(api, "c1")
    make_tenants(api, "s", "t")
    return api


@pytest.fixture
def api(administrator: Api) -> Iterator[Api]:
    yield administrator
    end_all(administrator)


def test_a_request_is_filed_watched_and_released_by_page_and_another_is_moved(stage: ProductionStage, api: Api, browser: Browser) -> None:
    with visitor(browser, stage.url) as (page, watch):
        sign_in(page, api.token)
        page.goto("/workspaces/s/create/")
        page.get_by_label("Name", exact=True).fill("first")
        page.get_by_role("button", name="Request 8 GPUs").click()
        page.wait_for_url("**/gprs/**")
        page.evaluate("window.isSamePage = true")
        goes_through(page, "Active")

        page.get_by_role("link", name="Release early").click()
        page.get_by_role("dialog").get_by_role("button", name="Release 8 GPUs").click()
        goes_through(page, "Released")
        assert page.evaluate("window.isSamePage") is True

        ask = {"shape": "H100-80GB", "nodes": 4, "duration_s": 3600}
        held = api.post("/gprs/", {**ask, "name": "held", "slice": "s"})
        waiting = api.post("/gprs/", {**ask, "name": "waiting", "slice": "t", "priority": 300})
        page.goto(f"/gprs/{waiting['id']}/")
        goes_through(page, "Needs approval")
        api.post(f"/gprs/{waiting['id']}/approve/")
        goes_through(page, "Queued")
        expect(page.locator("#gpr-hero")).to_contain_text("Starts in")
        api.post(f"/gprs/{held['id']}/release/")
        goes_through(page, "Active")
        assert watch.faults == []


def says(page: Page, text: str) -> None:
    expect(page.locator("#live")).to_contain_text(text)


def open_list(page: Page, api: Api) -> None:
    """The list of a workspace; it is never loaded again."""
    sign_in(page, api.token)
    page.goto("/workspaces/s/")
    page.evaluate("window.isSamePage = true")
    says(page, "Live")


def shows(page: Page, gpr: dict[str, str], state: str) -> None:
    expect(page.locator(f"#gpr-{gpr['id']}")).to_contain_text(state)


@pytest.mark.soak  # quickly: test_live.py, and tests/e2e/test_outages.py
def test_without_redis_an_open_page_polls_and_says_so_and_hints_come_back_with_it(
    stage: ProductionStage, api: Api, redis: OwnRedis, browser: Browser
) -> None:
    with visitor(browser, stage.url) as (page, _):
        open_list(page, api)
        first = api.post("/gprs/", {**ASK, "name": "first"})
        shows(page, first, "Active")

        redis.kill()
        says(page, "Polling")
        meanwhile = api.post("/gprs/", {**ASK, "name": "meanwhile"})
        shows(page, meanwhile, "Queued")
        withdrawn = api.post("/gprs/", {**ASK, "name": "withdrawn"})
        api.raw("DELETE", f"/gprs/{withdrawn['id']}/")
        shows(page, withdrawn, "Canceled")
        says(page, "Polling")

        redis.start()
        says(page, "Live")
        api.post(f"/gprs/{first['id']}/release/")
        shows(page, first, "Released")
        shows(page, meanwhile, "Active")
        says(page, "Live")
        assert page.evaluate("window.isSamePage") is True


@pytest.mark.soak  # quickly: test_live.py, and tests/e2e/test_outages.py
def test_without_postgresql_an_open_page_keeps_what_it_shows_calls_it_stale_and_catches_up(
    stage: ProductionStage, api: Api, postgres: OwnPostgres, browser: Browser
) -> None:
    with visitor(browser, stage.url) as (page, _):
        open_list(page, api)
        first = api.post("/gprs/", {**ASK, "name": "first"})
        shows(page, first, "Active")

        postgres.crash()
        says(page, "Stale since")
        expect(page.get_by_text("This page is out of date.")).to_be_visible()
        shows(page, first, "Active")

        postgres.start()
        says(page, "Live")
        expect(page.get_by_text("This page is out of date.")).to_be_hidden()
        api.post(f"/gprs/{first['id']}/release/")
        shows(page, first, "Released")
        assert page.evaluate("window.isSamePage") is True
