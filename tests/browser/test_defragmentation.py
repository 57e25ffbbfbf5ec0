"""An administrator makes room in a real browser, and the page of whoever moves says so: on the demo, with its simulated fleet."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.support.chromium import DESK, PHONE, axe_violations
from tests.browser.support.demo import Demo
from tests.e2e.processes import START_S, Api, wait_for

pytestmark = pytest.mark.sqlite_only  # the demo is the embedded profile

PAGE = "/admin/defragmentation/"
# On two nodes of eight GPUs: much of the first, half of the second, and what is left of the first.
BOXES = {"leaves": ("vision", 6), "stays": ("language", 4), "scattered": ("agents", 2)}


@pytest.fixture
def ids(demo: Demo) -> dict[str, str]:
    """One waits for a whole node, of which another holds a quarter."""
    api, ids = demo.admin, {}
    for name, (slice_, gpus) in BOXES.items():
        ids[name] = asked(api, name, slice_, gpus)
        wait_for(name, lambda name=name: state(api, ids[name]) == "ACTIVE", within_s=START_S)
    api.post(f"/gprs/{ids['leaves']}/release/")
    wait_for("RELEASED", lambda: state(api, ids["leaves"]) == "RELEASED", within_s=START_S)
    return {**ids, "waits": asked(api, "waits", "vision", None)}


def asked(api: Api, name: str, slice_: str, gpus: int | None) -> str:
    body = {"name": name, "slice": slice_, "shape": "H100-80GB", "clusters": ["borealis"], "nodes": 1, "gpus_per_node": gpus}
    return str(api.post("/gprs/", {**body, "duration_s": 86_400})["id"])


def state(api: Api, gpr: str) -> str:
    return str(api.get(f"/gprs/{gpr}/")["state"])


@pytest.mark.soak  # quickly: tests/pages/admin/test_defragmentation.py, and test_pages.py
def test_a_proposal_and_its_question_are_accessible_and_agreed_to_whoever_moves_is_told(demo: Demo, ids: dict[str, str]) -> None:
    with demo.page(demo.admin) as (page, watch):
        page.goto(PAGE)
        expect(page.locator("#defragmentation")).to_contain_text("scattered")
        assert axe_violations(page) == []
        page.set_viewport_size(PHONE)
        page.get_by_role("link", name="Make room for waits").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("Make room for waits?")
        assert axe_violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        dialog.get_by_role("button", name="Cancel").click()

        page.set_viewport_size(DESK)
        page.get_by_role("link", name="Make room for waits").click()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        dialog.get_by_label("Reason").fill("Release week.")
        dialog.get_by_role("button", name="Make room").click()

        expect(page.locator("#toasts")).to_contain_text("waits has room")
        expect(page.locator("#defragmentation")).to_contain_text("Nothing to move")
        page.goto(f"/gprs/{ids['scattered']}/")
        expect(page.locator("main")).to_contain_text("an administrator moves it")
        assert watch.faults == []
