"""The main job by page on the production profile: two web processes on PostgreSQL and Redis, and hints that cross from one to the other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.chromium import visitor
from tests.browser.people import goes_through, sign_in
from tests.databases import postgres_database
from tests.e2e.jobs import make_tenants
from tests.e2e.processes import ProductionStage

pytestmark = pytest.mark.postgres_only

REDIS_DATABASE = 8  # no other test uses it


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[ProductionStage]:
    redis_url = urlsplit(os.environ["EGS_REDIS_URL"])._replace(path=f"/{REDIS_DATABASE}").geturl()
    with postgres_database() as database_url:
        stage = ProductionStage(tmp_path, database_url=database_url, redis_url=redis_url)
        stage.collect_static()
        yield stage
        stage.stop()


def test_a_request_is_filed_watched_and_released_by_page_and_another_is_moved(stage: ProductionStage, browser: Browser) -> None:
    api = stage.start()
    stage.join(api, "c1")
    make_tenants(api, "s", "t")

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
