"""Where scripts are switched off, no page offers what only a script could do."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.demo import Demo

pytestmark = pytest.mark.sqlite_only  # the demo is the embedded profile


@pytest.mark.parametrize(("scripts", "count"), [(False, 0), (True, 2)], ids=["without", "with"])
def test_a_join_token_has_copy_buttons_only_where_they_work(scripts: bool, count: int, demo: Demo) -> None:
    with demo.page(demo.admin, scripts=scripts) as (page, _):
        page.goto("/admin/clusters/")
        page.get_by_role("link", name="Join token for aurora").click()
        page.get_by_role("button", name="Issue join token").click()

        expect(page.locator("#join-token")).to_contain_text("egsb_")
        expect(page.get_by_role("button", name="Copy")).to_have_count(count)


def test_with_scripts_they_are_there(demo: Demo) -> None:
    with demo.page(demo.user) as (page, _):
        page.goto("/workspaces/vision/create/")

        for name in ("One node more", "2 h", "Copy", "Switch between light and dark", "Keys and help"):
            expect(page.get_by_role("button", name=name).first).to_be_visible()
        expect(page.get_by_role("button", name="Show wait time")).to_be_hidden()


def test_an_act_without_scripts_is_confirmed_on_the_page_it_leads_to(demo: Demo) -> None:
    with demo.page(demo.admin, scripts=False) as (page, _):
        page.goto("/admin/clusters/")
        page.get_by_label("Name").fill("huygens")
        page.get_by_role("button", name="Add cluster").click()

        expect(page.locator("#toasts")).to_contain_text("Cluster huygens is added")
        page.reload()
        expect(page.locator("#toasts")).not_to_contain_text("Cluster huygens is added")
