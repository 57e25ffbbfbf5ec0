"""An administrator makes room in a real browser, and the page of whoever moves says so: on the demo, with its simulated fleet."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.chromium import DESK, PHONE, axe_violations, visitor
from tests.browser.demo import running_demo
from tests.browser.people import sign_in
from tests.e2e.processes import START_S, Api, wait_for

pytestmark = pytest.mark.sqlite_only  # the demo is the embedded profile

PAGE, LIVE_MS = "/admin/defragmentation/", 20_000
# On two nodes of eight GPUs: much of the first, half of the second, and what is left of the first.
BOXES = {"leaves": ("vision", 6), "stays": ("language", 4), "scattered": ("agents", 2)}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """One waits for a whole node, of which another holds a quarter."""
    with running_demo(tmp_path_factory.mktemp("demo")) as tokens:
        api = Api(tokens["url"], tokens["admin_token"])
        ids: dict[str, str] = {}
        for name, (slice_, gpus) in BOXES.items():
            ids[name] = asked(api, name, slice_, gpus)
            wait_for(name, lambda name=name: state(api, ids[name]) == "ACTIVE", within_s=START_S)
        api.post(f"/gprs/{ids['leaves']}/release/")
        wait_for("RELEASED", lambda: state(api, ids["leaves"]) == "RELEASED", within_s=START_S)
        ids["waits"] = asked(api, "waits", "vision", None)
        yield {**tokens, **ids}
        api.close()


def asked(api: Api, name: str, slice_: str, gpus: int | None) -> str:
    body = {"name": name, "slice": slice_, "shape": "H100-80GB", "clusters": ["borealis"], "nodes": 1, "gpus_per_node": gpus}
    return str(api.post("/gprs/", {**body, "duration_s": 86_400})["id"])


def state(api: Api, gpr: str) -> str:
    return str(api.get(f"/gprs/{gpr}/")["state"])


def test_a_proposal_and_its_question_are_accessible_and_agreed_to_whoever_moves_is_told(browser: Browser, demo: dict[str, str]) -> None:
    for size in (DESK, PHONE):
        with visitor(browser, demo["url"], size=size) as (page, watch):
            sign_in(page, demo["admin_token"])
            page.goto(PAGE)
            expect(page.locator("#defragmentation")).to_contain_text("scattered")
            assert axe_violations(page) == []
            page.get_by_role("link", name="Make room for waits").click()
            expect(page.get_by_role("dialog")).to_contain_text("Make room for waits?")
            assert axe_violations(page) == []
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            page.get_by_role("button", name="Move nobody").click()
            assert watch.faults == []

    with visitor(browser, demo["url"]) as (page, watch):
        sign_in(page, demo["admin_token"])
        page.goto(PAGE)
        page.get_by_role("link", name="Make room for waits").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Reason").fill("Release week.")
        dialog.get_by_role("button", name="Make room").click()

        expect(page.locator("#toasts")).to_contain_text("waits has room")
        expect(page.locator("#defragmentation")).to_contain_text("Nothing to move", timeout=LIVE_MS)
        page.goto(f"/gprs/{demo['scattered']}/")
        expect(page.locator("main")).to_contain_text("an administrator moves it", timeout=LIVE_MS)
        assert watch.faults == []
