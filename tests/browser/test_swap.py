"""A reader's input and focus stay while the page fetches its parts again."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.support.staged import Stage, page_around

# Each day: test_live.py, and test_user.py
pytestmark = [pytest.mark.urls(__name__), pytest.mark.rotates]
urlpatterns: list[object] = []  # the shell links to nothing here


def rows(*names: str) -> str:
    row = '<tr id="gpr-{0}" tabindex="-1"><td><a href="/gprs/{0}/">{0}</a></td><td>waits for {0}</td></tr>'
    cells = "".join(row.format(name) for name in names)
    fold = '<tr id="log"><td colspan="2"><details id="fold"><summary>Log</summary><p>checked</p></details></td></tr>'
    refetched = 'hx-get="/rows/" hx-trigger="egs:gpr from:body" hx-target="this" hx-swap="outerHTML"'
    return f'<tbody id="rows" {refetched} data-ordered>{cells}{fold}</tbody>'


@pytest.fixture
def list_page(stage: Stage) -> Stage:
    content = f'<table class="dense" id="list" data-rows><caption>Requests</caption>{rows("a", "b", "c")}</table><p class="late">below</p>'
    stage.set(page_around(content))
    stage.open()
    return stage


def refetch(on: Stage, *names: str) -> None:
    on.answers["/rows/"] = (200, rows(*names), {})
    on.page.evaluate("window.before = document.getElementById('rows')")
    with on.page.expect_response("**/rows/"):
        on.value("htmx.trigger(document.body, 'egs:gpr')")
    expect(on.page.locator(".htmx-request, .htmx-swapping, .htmx-settling")).to_have_count(0)


def select(on: Stage, start: str, end: str) -> str:
    """Selects from the first letter of one element to the last of another, as a hand does with the mouse, and returns what is selected."""
    first, last = (on.page.locator(selector).bounding_box() for selector in (start, end))
    assert first
    assert last
    on.page.mouse.move(first["x"] + 1, first["y"] + first["height"] / 2)
    on.page.mouse.down()
    on.page.mouse.move(last["x"] + last["width"] - 1, last["y"] + last["height"] / 2, steps=5)
    on.page.mouse.up()
    return selected(on)


def selected(on: Stage) -> str:
    return " ".join(str(on.value("getSelection().toString()")).split())


def test_focus_cursor_and_open_folds_outlast_a_swap(list_page: Stage) -> None:
    on = list_page
    on.page.locator("summary").click()
    on.page.locator("#gpr-b a").focus()

    refetch(on, "a", "b", "c", "d")

    assert on.value("window.before.isConnected") is False
    assert on.value("document.activeElement.textContent") == "b"
    assert on.value("document.querySelector('.is-here').id") == "gpr-b"
    assert on.value("document.getElementById('fold').open") is True
    assert on.watch.faults == []


def test_what_is_the_same_as_what_is_shown_is_not_swapped_and_text_stays_selected(list_page: Stage) -> None:
    on = list_page
    on.page.locator("summary").click()
    on.page.locator("#gpr-a").focus()
    text = select(on, "#gpr-b td:last-child", "#gpr-c td:last-child")
    assert text.endswith("c waits for c")

    for _ in range(2):
        refetch(on, "a", "b", "c")
        assert on.value("window.before.isConnected") is True
    assert selected(on) == text

    refetch(on, "a", "b")
    expect(on.page.locator("#gpr-c")).to_have_count(0)
    refetch(on, "a", "b", "c")
    expect(on.page.locator("#gpr-c")).to_be_visible()


def test_selected_text_stays_selected_when_something_else_has_changed(list_page: Stage) -> None:
    on = list_page
    text = select(on, "#gpr-b td:last-child", "#gpr-c td:last-child")

    refetch(on, "a", "b", "c", "d")

    assert on.value("window.before.isConnected") is False
    assert selected(on) == text


def test_text_that_begins_outside_of_what_is_swapped_stays_selected(list_page: Stage) -> None:
    on = list_page
    text = select(on, "#gpr-c td:last-child", "p.late")
    assert text.endswith("below")

    refetch(on, "d", "a", "b", "c")

    assert on.value("window.before.isConnected") is False
    assert selected(on) == text


def test_when_the_selected_text_has_gone_nothing_else_is_selected_in_its_place(list_page: Stage) -> None:
    on = list_page
    select(on, "#gpr-b td:last-child", "#gpr-b td:last-child")

    refetch(on, "a", "c")

    assert selected(on) == ""


def test_rows_with_selected_text_are_not_moved_to_another_order(list_page: Stage) -> None:
    on = list_page
    text = select(on, "#gpr-b td:last-child", "#gpr-b td:last-child")
    on.value("document.activeElement.blur()")

    refetch(on, "c", "b", "a")

    expect(on.page.get_by_text("Order changed")).to_be_visible()
    assert selected(on) == text


def test_a_dialog_that_was_closed_opens_again_although_its_question_is_the_same(stage: Stage) -> None:
    content = '<a id="open" href="/ask/" hx-get="/ask/" hx-target="#ask" hx-swap="outerHTML">Evict</a><div id="ask"></div>'
    on = stage
    on.set(page_around(content))
    on.answers["/ask/"] = (
        200,
        '<dialog id="ask" data-show aria-label="Evict?"><button type="button" data-close>No</button></dialog>',
        {},
    )
    on.open()

    for _ in range(2):
        on.page.locator("#open").click()
        on.page.get_by_role("button", name="No", exact=True).click()
        expect(on.page.get_by_role("dialog")).to_be_hidden()


def test_when_the_row_in_focus_has_gone_the_next_one_has_it(list_page: Stage) -> None:
    on = list_page
    on.page.locator("#gpr-b").focus()

    refetch(on, "a", "c")
    assert on.value("document.activeElement.id") == "gpr-c"

    refetch(on, "a")
    assert on.value("document.activeElement.id") in {"log", "gpr-a"}


def test_a_row_that_goes_to_another_group_is_never_shown_twice_and_keeps_the_focus(stage: Stage) -> None:
    """Each group of a table is fetched by itself, and one of the two comes first."""
    refetched = 'hx-get="/ended/" hx-trigger="egs:ended from:body" hx-target="this" hx-swap="outerHTML"'
    ended = f'<tbody id="ended" {refetched}><tr id="gpr-z"></tr></tbody>'
    on = stage
    on.set(page_around(f'<table class="dense" id="list" data-rows>{ended}{rows("a", "b", "c")}</table>'))
    on.answers["/rows/"] = (200, rows("a", "b", "c"), {})
    on.answers["/ended/"] = (200, ended.replace("</tbody>", '<tr id="gpr-b" tabindex="-1"><td><a href="/">b</a></td></tr></tbody>'), {})
    on.open()
    on.page.locator("#gpr-b a").focus()

    on.value("htmx.trigger(document.body, 'egs:ended')")

    expect(on.page.locator("#ended #gpr-b")).to_be_visible()
    expect(on.page.locator("#gpr-b")).to_have_count(1)
    assert on.value("document.activeElement.textContent") == "b"

    on.value("htmx.trigger(document.body, 'egs:gpr')")

    expect(on.page.locator("#rows #gpr-b")).to_be_visible()
    expect(on.page.locator("#gpr-b")).to_have_count(1)


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


def test_a_refusal_is_told_and_leaves_the_page_as_it_is(stage: Stage) -> None:
    form = '<form method="post" hx-post="/act/" hx-swap="none" data-once><button class="btn" type="submit">Release 8 GPUs</button></form>'
    on = stage
    on.set(page_around(form))
    on.answers["/act/"] = (409, "", {"HX-Trigger": '{"egs:refused": {"title": "Too late", "detail": "It has ended."}}'})
    on.open()

    on.page.get_by_role("button", name="Release 8 GPUs").click()

    expect(on.page.locator("#toasts")).to_contain_text("Too late. It has ended.")
    assert on.value("document.querySelector('[data-once]').dataset.sent") is None


def test_a_double_click_sends_a_form_once(stage: Stage) -> None:
    form = '<form method="post" action="/act/" data-once><button class="btn" type="submit">Request 16 GPUs</button></form>'
    on = stage
    on.set(page_around(form))
    on.answers["/act/"] = (204, "", {})  # the page stays, as while a server thinks
    on.open()

    on.page.get_by_role("button", name="Request 16 GPUs").dblclick()
    expect(on.page.locator("button[aria-busy=true]")).to_have_count(1)
    on.wait_until(lambda: on.count("POST /act/") > 0)
    on.value("fetch('/later/').then(() => null)")  # when it is answered, a second form would have been sent

    assert on.count("POST /act/") == 1


def test_single_letters_act_only_outside_fields_and_can_be_switched_off(stage: Stage) -> None:
    on = stage
    on.set(page_around('<label>Name <input id="name"></label>'))
    on.open()
    on.page.locator("#name").focus()
    on.page.keyboard.type("gr")
    assert on.page.locator("#name").input_value() == "gr"

    on.value("document.activeElement.blur()")
    on.page.keyboard.press("?")
    expect(on.page.locator("[data-key-list]")).to_contain_text("g r")
    on.page.get_by_label("Single-letter shortcuts").uncheck()
    expect(on.page.locator("[data-key-list]")).not_to_contain_text("g r")
    expect(on.page.locator("[data-key-list]")).to_contain_text("Ctrl K")
    on.page.keyboard.press("Escape")
    on.value("document.activeElement.blur()")
    on.page.keyboard.type("gr")
    assert on.asked == []

    on.value("document.querySelector('[data-letter-keys-switch]').click()")
    on.value("document.activeElement.blur()")
    on.page.keyboard.type("gr")
    on.page.wait_for_url("**/elsewhere/")
