"""Every component, as a person meets it: both themes, desk and phone."""

from __future__ import annotations

import pytest
from django.test import RequestFactory
from playwright.sync_api import Browser, ViewportSize

from portal_shared.errors import refuse
from portal_shared.styleguide import styleguide
from tests.browser.support.chromium import LOOKS, PHONE, Theme, axe_violations, visitor
from tests.browser.support.staged import ORIGIN, Stage

# Each day: test_pages.py
pytestmark = [pytest.mark.urls(__name__), pytest.mark.rotates]
urlpatterns: list[object] = []


def page_of(name: str) -> str:
    request = RequestFactory().get("/")
    if name == "styleguide":
        return styleguide(request).content.decode()
    return refuse(request, 404, "Not found", "There is no such page, or you may not see it.").content.decode()


@pytest.fixture
def guide(stage: Stage) -> Stage:
    stage.set(page_of("styleguide"))
    stage.open()
    return stage


@pytest.mark.parametrize(("size", "theme"), LOOKS)
@pytest.mark.parametrize("name", ["styleguide", "error"])
def test_components_are_accessible_quiet_and_no_wider_than_the_window(stage: Stage, name: str, size: ViewportSize, theme: Theme) -> None:
    stage.set(page_of(name))
    stage.page.set_viewport_size(size)
    stage.page.emulate_media(color_scheme=theme)
    stage.open()

    assert axe_violations(stage.page) == []
    assert stage.value("document.documentElement.scrollWidth") <= size["width"]
    assert stage.watch.faults == []


# Quickly, the palette: test_pages.py; the menu is one more popover.
OTHERS = [pytest.param(f"[popovertarget={name}]", marks=pytest.mark.soak) for name in ("palette", "me-menu")]


@pytest.mark.parametrize("opener", ["[popovertarget=keys]", "[data-open=ask]", *OTHERS])
def test_what_opens_over_a_page_is_accessible_and_closes_by_escape(guide: Stage, opener: str) -> None:
    page = guide.page
    page.locator(opener).click()
    assert page.locator(":is(:popover-open, dialog[open])").count() == 1
    assert axe_violations(page) == []

    page.keyboard.press("Escape")
    assert page.locator(":is(:popover-open, dialog[open])").count() == 0


def test_the_navigation_of_a_phone_opens_and_leads_on_without_scripts(browser: Browser) -> None:
    with visitor(browser, ORIGIN, size=PHONE, scripts=False) as (page, watch):
        Stage(page, watch).answers["/"] = (200, page_of("styleguide"), {})
        page.goto("/")
        assert not page.get_by_role("link", name="GPU requests").is_visible()

        page.get_by_role("button", name="Open navigation").click()

        assert page.get_by_role("link", name="GPU requests").is_visible()


def test_a_dialog_begins_at_the_safe_button_and_gives_the_focus_back(guide: Stage) -> None:
    guide.page.locator("[data-open=ask]").click()
    assert guide.value("document.activeElement.textContent") == "Keep it"

    guide.page.keyboard.press("Enter")

    assert guide.value("document.activeElement.dataset.open") == "ask"


def test_the_rows_of_a_table_are_walked_by_j_and_k(guide: Stage) -> None:
    guide.value("document.activeElement.blur()")

    for key in "jjjk":
        guide.page.keyboard.press(key)

    assert guide.value("document.activeElement.id") == "state-2"
    assert guide.page.locator(".is-here").count() == 1


def test_the_theme_that_somebody_chose_is_there_before_the_first_paint(guide: Stage) -> None:
    guide.page.locator("[data-theme-toggle]").click()
    guide.page.reload()

    assert guide.value("document.documentElement.dataset.bsTheme") == "dark"
