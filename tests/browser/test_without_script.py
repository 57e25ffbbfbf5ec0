"""Where scripts are switched off, no page offers what only a script could do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.chromium import DESK, PHONE, visitor
from tests.browser.demo import four_gprs, gpr_named, running_demo
from tests.browser.people import sign_in
from tests.e2e.processes import Api

pytestmark = pytest.mark.sqlite_only  # the demo is the embedded profile

# A browser sends a form, and opens a popover, by itself.
DEAD = "button:visible:not([type=submit]):not([popovertarget])"
USER_PAGES = ["/", "/workspaces/vision/", "/workspaces/vision/create/", "/gprs/{runs}/", "/gprs/{first}/", "/gprs/{first}/edit/"]
ADMIN_PAGES = [
    "/admin/queue/",
    "/admin/queue/{long}/",
    "/admin/queue/{first}/priority/",
    "/admin/defragmentation/",
    "/admin/defragmentation/booking/",
    "/admin/inventory/",
    "/admin/clusters/",
    "/admin/schedule/",
]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with running_demo(tmp_path_factory.mktemp("demo")) as tokens:
        api = Api(tokens["url"], tokens["user_token"])
        four_gprs(api)
        yield {**tokens, **{name: str(gpr_named(api, name)["id"]) for name in ("runs", "first", "long")}}
        api.close()


def offers_nothing_dead(page: Page, path: str) -> None:
    page.goto(path)
    assert page.locator(DEAD).all_inner_texts() == [], path
    expect(page.locator("kbd:visible")).to_have_count(0)
    expect(page.locator("#clock")).to_be_hidden()


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_without_scripts_no_button_is_dead_and_no_key_is_promised(size: dict[str, int], browser: Browser, demo: dict[str, str]) -> None:
    for token, paths in (("user_token", USER_PAGES), ("admin_token", ADMIN_PAGES)):
        with visitor(browser, demo["url"], size=size, scripts=False) as (page, _):
            sign_in(page, demo[token])
            for path in paths:
                offers_nothing_dead(page, path.format(**demo))


@pytest.mark.parametrize(("scripts", "count"), [(False, 0), (True, 2)], ids=["without", "with"])
def test_a_join_token_has_copy_buttons_only_where_they_work(scripts: bool, count: int, browser: Browser, demo: dict[str, str]) -> None:
    with visitor(browser, demo["url"], scripts=scripts) as (page, _):
        sign_in(page, demo["admin_token"])
        page.goto("/admin/clusters/")
        page.get_by_role("link", name="Join token for aurora").click()
        page.get_by_role("button", name="Issue join token").click()

        expect(page.locator("#join-token")).to_contain_text("egsb_")
        expect(page.get_by_role("button", name="Copy")).to_have_count(count)


def test_with_scripts_they_are_there(browser: Browser, demo: dict[str, str]) -> None:
    with visitor(browser, demo["url"]) as (page, _):
        sign_in(page, demo["user_token"])
        page.goto("/workspaces/vision/create/")

        for name in ("One node more", "2 h", "Copy", "Switch between light and dark", "Keys and help"):
            expect(page.get_by_role("button", name=name).first).to_be_visible()
        expect(page.get_by_role("button", name="Show wait time")).to_be_hidden()


def test_an_act_without_scripts_is_confirmed_on_the_page_it_leads_to(browser: Browser, demo: dict[str, str]) -> None:
    with visitor(browser, demo["url"], scripts=False) as (page, _):
        sign_in(page, demo["admin_token"])
        page.goto("/admin/clusters/")
        page.get_by_label("Name").fill("cassini")
        page.get_by_role("button", name="Add cluster").click()

        expect(page.locator("#toasts")).to_contain_text("Cluster cassini is there")
        page.reload()
        expect(page.locator("#toasts")).not_to_contain_text("Cluster cassini is there")
