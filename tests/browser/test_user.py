"""A user at work in a real browser: sees the wait time, files, watches without a reload, gives back. It uses the demo and its fleet."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.support.chromium import PHONE, Watch, axe_violations, visitor
from tests.browser.support.demo import Demo
from tests.browser.support.people import end, end_all, goes_through, sign_in
from tests.e2e.processes import START_S, wait_for

pytestmark = pytest.mark.sqlite_only  # the demo is the embedded profile

WORKSPACE, CREATE = "/workspaces/vision/", "/workspaces/vision/create/"


@pytest.fixture
def ada(demo: Demo) -> Iterator[tuple[Page, Watch]]:
    with demo.page(demo.user) as page_and_watch:
        yield page_and_watch
    end_all(demo.admin)


def release(page: Page) -> None:
    page.get_by_role("link", name="Release early").click()
    page.get_by_role("dialog").get_by_role("button", name=re.compile("Release 16 GPUs")).click()
    expect(page.locator("#toasts")).to_contain_text("is released")


def test_from_the_wait_time_to_the_end_without_a_reload(ada: tuple[Page, Watch]) -> None:
    page, watch = ada
    page.goto("/")
    page.get_by_role("link", name="vision").first.click()
    page.get_by_role("link", name="Create GPU request").first.click()
    expect(page.locator("#offers")).to_contain_text("soonest now")
    page.get_by_label("Name", exact=True).fill("first")
    page.get_by_role("button", name="One node more").click()
    expect(page.get_by_role("button", name="Request 16 GPUs")).to_be_visible()
    page.get_by_role("button", name="2 h", exact=True).click()
    expect(page.locator("#as-api")).to_contain_text('"duration_s": 7200')
    page.evaluate("window.isSamePage = true")

    page.get_by_role("button", name="Request 16 GPUs").click()

    page.wait_for_url("**/gprs/**")
    expect(page.locator("#toasts")).to_contain_text("first is filed")
    page.evaluate("window.isSamePage = true")
    goes_through(page, "Active")
    page.locator("#bell").click()
    expect(page.locator("#bell-list")).to_contain_text("first is provisioned until")
    page.get_by_role("button", name="Mark all read").click()
    expect(page.locator("#bell .pip")).to_have_count(0)
    page.keyboard.press("Escape")
    expect(page.locator("#gpr-hero")).to_contain_text("left")
    expect(page.locator("#gpr-nodes .gpu")).to_have_count(16)
    release(page)
    goes_through(page, "Released")
    expect(page.locator("#gpr-hero")).to_contain_text("Released by ada after")
    assert page.evaluate("window.isSamePage") is True
    assert watch.faults == []


@pytest.mark.soak  # quickly: test_live.py, and the page of a GPR above
def test_provisioning_and_active_reach_an_open_list(ada: tuple[Page, Watch], demo: Demo) -> None:
    page, watch = ada
    page.goto(WORKSPACE)
    expect(page.locator("#live")).to_have_text("Live")
    page.evaluate("""() => {
        window.seen = new Set();
        const look = () => document.querySelectorAll("#requests-provisioned .state").forEach((state) => window.seen.add(state.textContent));
        new MutationObserver(look)
            .observe(document.body, { subtree: true, childList: true });
    }""")
    made = demo.ask("listed")

    row = page.locator(f"#gpr-{made}")
    expect(row).to_contain_text("Active")
    assert page.evaluate("[...window.seen]") == ["Provisioning", "Active"]
    end(demo.admin, made)
    expect(row).to_contain_text("Released")
    expect(page.locator(f"#requests-ended #gpr-{made}")).to_be_visible()
    assert watch.faults == []


@pytest.mark.soak  # quickly: test_swap.py, folds and focus
def test_a_log_that_was_opened_stays_open_and_focus_stays_while_the_page_lives(ada: tuple[Page, Watch], demo: Demo) -> None:
    page, watch = ada
    made = demo.ask("kept")
    page.goto(f"/gprs/{made}/")
    goes_through(page, "Active")
    summary = page.locator("#step-entry-node_ready > summary")
    summary.click()
    expect(page.locator("#step-entry-node_ready pre")).to_be_visible()

    end(demo.admin, made)

    goes_through(page, "Released")
    expect(page.locator("#gpr-steps")).to_contain_text("Exit steps")
    expect(page.locator("#step-entry-node_ready pre")).to_be_visible()
    expect(summary).to_be_focused()
    assert watch.faults == []


def test_an_alternative_is_applied_and_a_chosen_offer_stays_chosen(ada: tuple[Page, Watch], demo: Demo) -> None:
    page, watch = ada
    page.goto(CREATE)
    page.get_by_label("Name", exact=True).fill("choose")
    other = page.locator("#offers .offer input[value='borealis/H100-80GB'], #offers .offer input[value='aurora/H100-80GB']").first
    other.check()
    chosen = other.get_attribute("value") or ""
    cluster = chosen.split("/")[0]
    expect(page.locator("#as-api")).to_contain_text(f'"clusters": ["{cluster}"]')

    page.get_by_label("Duration", exact=True).fill("90 min")

    expect(page.locator("#as-api")).to_contain_text('"duration_s": 5400')
    expect(page.locator(f"#offers input[value='{chosen}']")).to_be_checked()
    expect(page.get_by_label("Duration", exact=True)).to_be_focused()

    # The GPUs of a node are those of the GPU that is chosen: a number that meant all of them, or is too great now, means all again.
    per_node, other_gpu = page.get_by_label("GPUs per node", exact=True), page.locator("[name=shape][data-gpus-per-node='4']").first
    per_node.fill("8")
    other_gpu.check(force=True)
    expect(per_node).to_have_value("")
    expect(per_node).to_have_attribute("placeholder", "all 4")
    per_node.fill("2")
    page.locator("[name=shape][data-gpus-per-node='8']").first.check(force=True)
    expect(per_node).to_have_value("2")
    expect(per_node).to_have_attribute("placeholder", "all 8")
    assert watch.faults == []


@pytest.mark.soak  # quickly: tests/pages/user/test_templates.py
def test_a_template_is_made_fills_in_a_request_s_form_and_becomes_the_default(ada: tuple[Page, Watch]) -> None:
    page, watch = ada
    page.goto(f"{WORKSPACE}templates/")
    page.get_by_role("link", name="Make a template").click()
    page.get_by_label("Name", exact=True).fill("pair")
    page.get_by_label("GPU", exact=True).select_option("H100-80GB")
    page.get_by_label("Nodes", exact=True).fill("2")
    page.get_by_label("Duration", exact=True).fill("3 h")
    page.get_by_text("As default, create requests for waiting GPU pods").click()
    page.get_by_role("button", name="Make template").click()
    expect(page.locator("#toasts")).to_contain_text("Template pair saved")
    expect(page.locator("#templates")).to_contain_text("it creates no requests")

    page.get_by_role("link", name="Make default pair").click()
    page.get_by_role("dialog").get_by_role("button", name="Make default").click()
    expect(page.locator("#templates")).to_contain_text("Default, auto")
    assert axe_violations(page) == []

    page.goto(CREATE)
    page.get_by_label("Name", exact=True).fill("from-template")
    page.evaluate("window.isSamePage = true")
    page.get_by_role("link", name="pair", exact=True).click()
    expect(page.get_by_label("Duration", exact=True)).to_have_value("3 h")
    expect(page.get_by_label("Name", exact=True)).to_have_value("from-template")
    expect(page.locator("#as-api")).to_contain_text('"template": "pair"')
    expect(page.get_by_role("button", name="Request 16 GPUs")).to_be_visible()
    assert page.evaluate("window.isSamePage") is True
    assert axe_violations(page) == []

    page.goto(f"{WORKSPACE}templates/")
    page.get_by_role("link", name="Delete template pair").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete template").click()
    expect(page.locator("#templates")).to_contain_text("No template yet")
    assert watch.faults == []


@pytest.mark.soak  # quickly: tests/pages, whose client has no scripts, and test_admin.py
def test_everything_works_without_script(demo: Demo) -> None:
    with demo.page(demo.user, scripts=False) as (page, watch):
        page.goto(CREATE)
        page.get_by_label("Name", exact=True).fill("plain")
        page.get_by_label("Nodes", exact=True).fill("2")
        page.get_by_role("button", name="Show wait time").click()
        expect(page.locator("#offers")).to_contain_text("2 offers")
        page.get_by_role("button", name="Request 16 GPUs").click()
        page.wait_for_url("**/gprs/**")
        expect(page.locator("#toasts")).to_contain_text("plain is filed")
        gpr_id = page.url.split("/")[-2]
        wait_for("ACTIVE", lambda: demo.gpr(gpr_id)["state"] == "ACTIVE", within_s=START_S)
        page.reload()
        expect(page.locator("#gpr-head .state")).to_have_text("Active")
        page.get_by_role("link", name="Release early").click()
        page.get_by_role("button", name="Release 16 GPUs").click()
        page.wait_for_url(re.compile("/gprs/[^/]+/$"))
        expect(page.locator("#toasts")).to_contain_text("is released")
        assert [fault for fault in watch.faults if not fault.startswith("console")] == []
    end_all(demo.admin)


def test_what_is_typed_while_an_older_answer_comes_is_asked_too(ada: tuple[Page, Watch]) -> None:
    page, _ = ada
    page.goto(CREATE)
    page.get_by_label("Name", exact=True).fill("late")
    expect(page.locator("#as-api")).to_contain_text('"late"')
    duration = page.get_by_label("Duration", exact=True)

    def answer_late(route: Route) -> None:
        answer = route.fetch()
        duration.evaluate("(field) => { field.value = '3 h'; field.dispatchEvent(new Event('input', { bubbles: true })); }")
        route.fulfill(response=answer)

    page.route("**/offers/", answer_late, times=1)
    page.evaluate("htmx.trigger(document.body, 'egs:plan')")

    expect(page.locator("#as-api")).to_contain_text('"duration_s": 10800')


def test_an_offer_chosen_while_an_older_answer_comes_stays_chosen(ada: tuple[Page, Watch]) -> None:
    page, watch = ada
    page.goto(CREATE)
    page.get_by_label("Name", exact=True).fill("late")
    expect(page.locator("#as-api")).to_contain_text('"late"')
    other = page.locator("#offers .offer input[type=radio]:not(:checked)").first
    chosen = other.get_attribute("value") or ""

    def answer_late(route: Route) -> None:
        answer = route.fetch()
        other.evaluate("(radio) => radio.click()")
        route.fulfill(response=answer)

    page.route("**/offers/", answer_late, times=1)
    page.evaluate("htmx.trigger(document.body, 'egs:plan')")

    expect(page.locator("#as-api")).to_contain_text(f'"clusters": ["{chosen.split("/")[0]}"]')
    expect(page.locator(f"#offers input[value='{chosen}']")).to_be_checked()
    assert watch.faults == []


@pytest.mark.soak  # quickly: test_swap.py and test_live.py, logins that end
def test_a_login_that_ends_takes_an_open_page_to_the_login_and_back(browser: Browser, demo: Demo) -> None:
    with visitor(browser, demo.url) as (page, _):
        sign_in(page, demo.user.token)
        page.goto(CREATE)
        expect(page.locator("#offers")).to_contain_text("soonest")
        page.context.clear_cookies(name="egs_session")

        page.get_by_label("Duration", exact=True).fill("3 h")

        page.wait_for_url("**/login/?next=**")
        assert page.url.endswith("next=%2Fworkspaces%2Fvision%2Fcreate%2F")
        assert axe_violations(page) == []
        page.set_viewport_size(PHONE)
        page.emulate_media(color_scheme="dark")
        assert axe_violations(page) == []


@pytest.mark.soak  # quickly: test_swap.py, a refusal, and tests/pages/shared/test_refusals.py
def test_a_refused_dialog_says_why_and_leaves_no_error_in_the_console(ada: tuple[Page, Watch], demo: Demo) -> None:
    """A refusal by a dialog is ordinary use: the dialog tells it, and sends again."""
    page, watch = ada
    made = demo.ask("refused")
    page.goto(f"/gprs/{made}/")
    goes_through(page, "Active")
    page.get_by_role("link", name="Extend").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Extend by").fill("soon")

    dialog.get_by_role("button", name="Extend the window").click()

    expect(dialog.get_by_role("alert")).to_contain_text("Not sent")
    dialog.get_by_label("Extend by").fill("30 min")
    dialog.get_by_role("button", name="Extend the window").click()
    expect(page.locator("#toasts")).to_contain_text("ends later")
    expect(page.locator("#gpr-events")).to_contain_text("was extended by 30 min, to")
    expect(page.locator("#gpr-events")).not_to_contain_text("UTC")
    end(demo.admin, made)
    goes_through(page, "Released")
    assert watch.faults == []
