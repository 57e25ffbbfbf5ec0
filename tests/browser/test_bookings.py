"""A time is booked and a maintenance announced in a real browser, on the demo and its fleet."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Page, expect

from tests.browser.support.chromium import DESK, PHONE, axe_violations
from tests.browser.support.demo import Demo

pytestmark = pytest.mark.sqlite_only  # the demo is the embedded profile

BOOKINGS, MAINTENANCE = "/workspaces/vision/bookings/", "/admin/maintenance/"


@pytest.fixture
def both(demo: Demo) -> Iterator[tuple[Page, Page]]:
    with demo.page(demo.user) as (user, seen), demo.page(demo.admin) as (admin, also_seen):
        yield user, admin
        assert seen.faults + also_seen.faults == []


def is_accessible_and_fits(page: Page) -> None:
    """Checks the page at the desk, and that it is no wider than a phone."""
    assert axe_violations(page) == []
    for size in (PHONE, DESK):
        page.set_viewport_size(size)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def in_field(at: datetime) -> str:
    return f"{at.astimezone(ZoneInfo('Europe/Berlin')):%Y-%m-%dT%H:%M}"


def test_a_weekly_time_is_booked_and_canceled_and_a_maintenance_announced_and_taken_back(both: tuple[Page, Page]) -> None:
    user, admin = both
    start = datetime.now().astimezone().replace(second=0, microsecond=0) + timedelta(days=1)
    user.goto(BOOKINGS)
    expect(user.get_by_role("heading", name="Nothing is booked ahead")).to_be_visible()
    user.get_by_role("link", name="Book a time").first.click()
    user.get_by_label("Name", exact=True).fill("weekly-eval")
    user.get_by_label("GPU", exact=True).select_option("H100-80GB")
    user.get_by_label("Starts at").fill(in_field(start))
    user.get_by_label("Repeat", exact=True).select_option("weekly")
    user.get_by_label("Repeat until (inclusive)").fill(f"{start + timedelta(days=8):%Y-%m-%d}")
    user.get_by_role("button", name="Book this time").click()
    expect(user.locator("#bookings")).to_contain_text("2 booked")
    expect(user.locator("#bookings tbody").first.locator("tr")).to_have_count(2)
    is_accessible_and_fits(user)

    admin.goto(MAINTENANCE)
    admin.get_by_role("link", name="Announce maintenance").click()
    dialog = admin.get_by_role("dialog")
    whole = dialog.get_by_label("Closes").locator("option", has_text=", the whole cluster").first.inner_text()
    dialog.get_by_label("Closes").select_option(label=whole)
    cluster = whole.partition(",")[0]
    dialog.get_by_label("Closed from").fill(in_field(start - timedelta(hours=1)))
    dialog.get_by_label("Open again at").fill(in_field(start + timedelta(hours=6)))
    dialog.get_by_label("Reason").fill("New switches")
    expect(dialog.locator("#ask-effects")).to_contain_text("No running request reaches into it")
    is_accessible_and_fits(admin)
    dialog.get_by_role("button", name="Announce maintenance").click()
    expect(admin.locator("#maintenance")).to_contain_text(f"Cluster {cluster}")
    is_accessible_and_fits(admin)

    admin.locator("#maintenance").get_by_role("link", name="Cancel the maintenance").click()
    admin.get_by_role("dialog").get_by_role("button", name="Cancel maintenance").click()
    expect(admin.locator("#maintenance")).to_contain_text("Canceled")

    user.get_by_role("link", name="Cancel the series weekly-eval").click()
    user.get_by_role("dialog").get_by_role("button", name="Cancel the series").click()
    expect(user.get_by_role("heading", name="Nothing is booked ahead")).to_be_visible()
