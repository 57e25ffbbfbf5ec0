"""What a reader holds in hand stays there while the page refetches its parts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.staged import Stage, stage

pytestmark = pytest.mark.urls(__name__)
urlpatterns: list[object] = []  # the shell links to nothing here


def rows(*names: str) -> str:
    box = '<input type="checkbox" aria-label="Select {0}">'
    row = f'<tr id="gpr-{{0}}" tabindex="-1"><td>{box}</td><td><a href="/gprs/{{0}}/">{{0}}</a></td></tr>'
    cells = "".join(row.format(name) for name in names)
    fold = '<tr id="log"><td colspan="2"><details id="fold"><summary>Log</summary><p>checked</p></details></td></tr>'
    refetched = 'hx-get="/rows/" hx-trigger="egs:gpr from:body" hx-target="this" hx-swap="outerHTML"'
    return f'<tbody id="rows" {refetched} data-ordered>{cells}{fold}</tbody>'


@pytest.fixture
def list_page(browser: Browser) -> Iterator[Stage]:
    content = f'<table class="dense" id="list" data-rows><caption>Requests</caption>{rows("a", "b", "c")}</table><p class="late">below</p>'
    with stage(browser, content) as on:
        on.open()
        yield on


def refetch(on: Stage, *names: str) -> None:
    on.answers["/rows/"] = (200, rows(*names), {})
    on.page.evaluate("window.before = document.getElementById('rows')")
    with on.page.expect_response("**/rows/"):
        on.value("htmx.trigger(document.body, 'egs:gpr')")
    on.page.wait_for_timeout(50)


def test_focus_selection_cursor_and_open_folds_outlast_a_swap(list_page: Stage) -> None:
    on = list_page
    on.page.locator("#gpr-b input").check()
    on.page.locator("summary").click()
    on.page.locator("#gpr-b a").focus()

    refetch(on, "a", "b", "c", "d")

    assert on.value("window.before.isConnected") is False
    assert on.value("document.activeElement.textContent") == "b"
    assert on.value("document.querySelector('.is-here').id") == "gpr-b"
    expect(on.page.locator("#gpr-b input")).to_be_checked()
    expect(on.page.locator("#gpr-a input")).not_to_be_checked()
    assert on.value("document.getElementById('fold').open") is True
    assert on.watch.faults == []


def test_when_the_row_in_focus_has_gone_the_next_one_has_it(list_page: Stage) -> None:
    on = list_page
    on.page.locator("#gpr-b").focus()

    refetch(on, "a", "c")
    assert on.value("document.activeElement.id") == "gpr-c"

    refetch(on, "a")
    assert on.value("document.activeElement.id") in {"log", "gpr-a"}


def test_rows_in_another_order_are_offered_and_not_moved_under_the_hand(list_page: Stage) -> None:
    on = list_page
    on.page.locator("#gpr-b").focus()

    refetch(on, "c", "b", "a")
    assert on.value("[...document.querySelectorAll('#rows tr')].map(row => row.id).join(' ')") == "gpr-a gpr-b gpr-c log"
    assert on.value("document.activeElement.id") == "gpr-b"

    with on.page.expect_response("**/rows/"):
        on.page.get_by_role("button", name="Show").click()
    expect(on.page.locator("#rows tr").first).to_have_id("gpr-c")
    expect(on.page.get_by_text("Order changed")).to_have_count(0)


def test_rows_that_nobody_holds_take_their_new_order_at_once(list_page: Stage) -> None:
    refetch(list_page, "c", "b", "a")

    expect(list_page.page.locator("#rows tr").first).to_have_id("gpr-c")


def test_a_login_that_ended_leads_to_the_login_page_and_not_into_the_table(list_page: Stage) -> None:
    on = list_page
    on.answers["/rows/"] = (401, "", {"HX-Redirect": "/login/?next=/"})

    on.value("htmx.trigger(document.body, 'egs:gpr')")

    on.page.wait_for_url("**/login/?next=/")


def test_a_refusal_is_told_and_leaves_the_page_as_it_is(browser: Browser) -> None:
    form = '<form method="post" hx-post="/act/" hx-swap="none" data-once><button class="btn" type="submit">Release 8 GPUs</button></form>'
    with stage(browser, form) as on:
        on.answers["/act/"] = (409, "", {"HX-Trigger": '{"egs:refused": {"title": "Too late", "detail": "It has ended."}}'})
        on.open()

        on.page.get_by_role("button", name="Release 8 GPUs").click()

        expect(on.page.locator("#toasts")).to_contain_text("Too late. It has ended.")
        assert on.value("document.querySelector('[data-once]').dataset.sent") is None


def test_a_double_click_sends_a_form_once(browser: Browser) -> None:
    form = '<form method="post" action="/act/" data-once><button class="btn" type="submit">Request 16 GPUs</button></form>'
    with stage(browser, form) as on:
        on.answers["/act/"] = (204, "", {})  # the page stays, as while a server thinks
        on.open()

        on.page.get_by_role("button", name="Request 16 GPUs").dblclick()
        on.page.wait_for_timeout(100)

        assert on.count("POST /act/") == 1
        assert on.page.locator("button[aria-busy=true]").count() == 1


def test_single_letters_act_only_outside_fields_and_can_be_switched_off(browser: Browser) -> None:
    with stage(browser, '<label>Name <input id="name"></label>') as on:
        on.open()
        on.page.locator("#name").focus()
        on.page.keyboard.type("gr")
        assert on.page.locator("#name").input_value() == "gr"

        on.value("document.activeElement.blur()")
        on.page.keyboard.press("?")
        on.page.get_by_label("Single letters act as keys").uncheck()
        on.page.keyboard.press("Escape")
        on.value("document.activeElement.blur()")
        on.page.keyboard.type("gr")
        assert on.asked == []

        on.value("document.querySelector('[data-letter-keys-switch]').click()")
        on.value("document.activeElement.blur()")
        on.page.keyboard.type("gr")
        on.page.wait_for_url("**/elsewhere/")
