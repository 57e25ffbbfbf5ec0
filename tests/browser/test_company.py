"""The demo as a visitor finds it: a company at work, with a past, and room for one more."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.support.chromium import axe_violations
from tests.browser.support.demo import Demo, running_demo
from tests.e2e.processes import START_S, wait_for

pytestmark = pytest.mark.sqlite_only  # the demo is the embedded profile

MEASURED_S = 240
STATES = {"QUEUED", "PENDING_APPROVAL", "ACTIVE", "COMPLETED", "RELEASED", "REJECTED", "CANCELED"}
PAGES = (
    "/admin/queue/",
    "/admin/schedule/",
    "/admin/gpus/",
    "/admin/gpus/map/?by=holder",
    "/admin/gpus/compare/?q=llm-pretrain",
    "/admin/promises/",
    "/admin/evictions/",
    "/admin/inventory/",
    "/admin/maintenance/",
    "/admin/usage/",
)


@pytest.mark.rotates(0)  # each day: tests/egs/test_demo.py, and the browser's other tests, on a demo of their own
def test_the_demo_opens_on_a_company_at_work_a_first_request_starts_at_once_and_a_second_one_waits(
    browser: Browser, tmp_path: Path
) -> None:
    with running_demo(tmp_path) as tokens:
        demo = Demo(browser, tokens)
        gprs = demo.admin.get("/gprs/?page_size=500")["results"]
        events = {kind: demo.admin.get(f"/events/?kind={kind}")["results"] for kind in ("gpr.node_replaced", "gpr.eviction_planned")}

        assert {gpr["state"] for gpr in gprs} >= STATES
        assert len({gpr["slice"] for gpr in gprs}) == 6
        assert any(gpr["is_booking"] for gpr in gprs)
        assert all(events.values())
        assert demo.admin.get("/maintenance/")["results"]
        over = demo.admin.get("/alerts/?state=RESOLVED")["results"]
        assert len({alert["began_at"][:10] for alert in over}) > 3
        promises = demo.admin.get("/insights/")["promises"]["total"]
        assert promises["due_count"] > 15
        assert promises["kept_count"] == promises["due_count"]
        had_hours = measured_hours(demo)
        days = demo.admin.get("/usage/?by=gpr&step=day&page_size=500")["results"]
        today = days[-1]["since"]
        assert [
            day for day in days if round(day["used_hours"] + day["wasted_hours"] - day["held_hours"], 3) > 0 and day["since"] < today
        ] == []

        first, second = demo.ask("first"), demo.ask("second")
        wait_for("ACTIVE", lambda: demo.gpr(first)["state"] == "ACTIVE", within_s=START_S)
        assert demo.gpr(second)["state"] == "QUEUED"
        assert demo.gpr(second)["estimate"]["start_at"] > demo.gpr(first)["ends_at"]

        with demo.page(demo.admin) as (page, watch):
            for path in PAGES:
                page.goto(path)
                assert axe_violations(page) == []
            _walk_on_the_map(page)
            _zoom(page)
            _break(page)
            assert watch.faults == []
        wait_for("minutes that are measured", lambda: measured_hours(demo) > had_hours, within_s=MEASURED_S)
        demo.close()


def measured_hours(demo: Demo) -> float:
    hours: list[float] = [row["used_hours"] + row["wasted_hours"] for row in demo.admin.get("/usage/")["results"]]
    return sum(hours)


def _walk_on_the_map(page: Page) -> None:
    page.goto("/admin/gpus/map/")
    page.locator("#fleet canvas").focus()
    said = page.locator("#fleet-cell")
    expect(said).to_contain_text("aurora-h100-01 GPU 0")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    expect(said).to_contain_text("aurora-h100-02 GPU 1")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("aurora-h100-02, GPU 1")


def _zoom(page: Page) -> None:
    """It stays while the page fetches its chart anew."""
    page.goto("/admin/gpus/compare/?q=llm-pretrain")
    whole, area = page.get_by_role("button", name="Whole time"), page.locator(".u-over")
    box = area.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 200, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 400, box["y"] + 50, steps=4)
    page.mouse.up()
    expect(whole).to_be_visible()
    page.wait_for_event("response", lambda response: "part=chart" in response.url)
    expect(whole).to_be_visible()
    whole.click()
    expect(whole).to_be_hidden()


def _break(page: Page) -> None:
    """A line is clipped where there was no reading for long."""
    page.goto("/admin/gpus/compare/?q=llm-pretrain")
    expect(page.locator(".u-over")).to_be_visible()
    whole, broken = page.evaluate(
        """async () => {
          const of = CanvasRenderingContext2D.prototype, clip = of.clip;
          const drawn = async () => {
            let clips = 0;
            of.clip = function (...path) { clips += 1; return clip.apply(this, path); };
            window.dispatchEvent(new Event("resize"));
            await new Promise((done) => setTimeout(done, 300));
            of.clip = clip;
            return clips;
          };
          const whole = await drawn(), rows = [...document.querySelectorAll("#compared-twin tbody tr")];
          rows.slice(rows.length / 4, rows.length / 2).forEach((row) => row.remove());
          return [whole, await drawn()];
        }"""
    )
    assert broken > whole > 0
