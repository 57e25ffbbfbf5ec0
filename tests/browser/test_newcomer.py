"""Four people who sign in through an identity provider click through a newcomer's path, from nothing to an empty budget."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from playwright.sync_api import Page, expect

from tests.browser.support.demo import Demo
from tests.browser.support.people import end_all, goes_through
from tests.browser.support.provider import groups_are, person, sign_in_as

pytestmark = pytest.mark.sqlite_only  # the demo is the embedded profile


@pytest.fixture
def people(demo: Demo) -> Iterator[dict[str, Page]]:
    """lena is new, milo is her colleague, otto administers by his group, and ruth gets a role by hers."""
    for name, groups in {"lena": [], "milo": [], "otto": ["gpu-admins"], "ruth": ["revision"]}.items():
        groups_are(demo, name, *groups)
    with ExitStack() as stack:
        yield {name: stack.enter_context(person(demo)) for name in ("lena", "milo", "otto", "ruth")}
    end_all(demo.admin)


def answers(page: Page, button: str, fields: dict[str, str] | None = None) -> None:
    """Answers the dialog that has just opened: choices are chosen, all else is filled in."""
    dialog = page.get_by_role("dialog")
    for label, value in (fields or {}).items():
        field = dialog.get_by_label(label, exact=True)
        if field.evaluate("field => field.tagName") == "SELECT":
            field.select_option(label=value)
        else:
            field.fill(value)
    dialog.get_by_role("button", name=button).click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def opens(page: Page, link: str, *, within: str = "main") -> None:
    expect(page.locator("#live")).to_contain_text("Live")  # before its scripts run, a link opens a page instead of a dialog
    page.locator(within).get_by_role("link", name=link).first.click()
    expect(page.get_by_role("dialog")).to_be_visible()


def test_from_nothing_to_an_empty_budget_and_the_audit_log_has_all_of_it(demo: Demo, people: dict[str, Page]) -> None:
    lena, milo, otto, ruth = people.values()

    sign_in_as(lena, "lena")
    expect(lena.get_by_text("You are in no workspace yet")).to_be_visible()
    opens(lena, "Ask for a workspace")
    answers(lena, "Ask for it", {"Name": "grippers", "Project": "motion", "Purpose": "Grasping with two hands."})
    expect(lena.locator("#toasts")).to_contain_text("You asked for workspace grippers")

    sign_in_as(otto, "otto", at="/admin/workspace-requests/")
    opens(otto, "Approve grippers")
    answers(otto, "Approve and set up", {"Clusters": "aurora, borealis", "Needed for days": "10"})
    expect(otto.locator("#toasts")).to_contain_text("Workspace grippers is set up, and lena owns it")
    otto.goto("/admin/people/")
    opens(otto, "Give a group a role")
    answers(otto, "Give role", {"Group": "revision", "Role": "Auditor"})
    expect(otto.locator("#groups")).to_contain_text("revision")

    lena.goto("/workspaces/grippers/people/")
    opens(lena, "Add a person")
    answers(lena, "Add person", {"Name or mail address": "milo@example.org", "Role": "Editor"})
    expect(lena.get_by_role("row", name="milo@example.org")).to_contain_text("by lena")

    sign_in_as(milo, "milo")
    opens(milo, "Join grippers")
    answers(milo, "Join it")
    milo.goto("/workspaces/grippers/create/")
    expect(milo.locator("#offers")).to_contain_text("soonest now")
    milo.get_by_label("Name", exact=True).fill("grasp")
    milo.get_by_label("Duration", exact=True).fill("8 d")
    expect(milo.get_by_text("Longer than 7 d")).to_be_visible()
    milo.get_by_role("button", name=re.compile("Request .* GPUs")).click()
    milo.wait_for_url("**/gprs/**")
    goes_through(milo, "Needs approval")
    expect(milo.locator("main")).to_contain_text("7 d")

    otto.goto(milo.url.removeprefix(demo.url))
    opens(otto, "Approve")
    answers(otto, "Approve")
    goes_through(milo, "Active")

    otto.goto("/admin/budgets/")
    opens(otto, "Give a budget")
    answers(otto, "Give budget", {"For": "grippers", "GPU-hours": "100", "Beyond it": "Refusal"})
    milo.goto("/workspaces/grippers/create/")
    expect(milo.locator("#offers")).to_contain_text("GPU-hours")
    expect(milo.get_by_role("button", name=re.compile("Request .* GPUs"))).to_have_count(0)

    sign_in_as(ruth, "ruth", at="/admin/audit/?text=grippers")
    told = ruth.locator("#audit")
    for text in (
        "lena asks for a workspace named grippers",
        "Workspace grippers was approved",
        "m…@example.org was invited",
        "milo is editor",
    ):
        expect(told).to_contain_text(text)
    ruth.goto("/admin/audit/?kind=gpr.")
    expect(told).to_contain_text("grasp")
    ruth.goto("/admin/audit/?kind=budget.")
    expect(told).to_contain_text("workspace grippers")
    expect(ruth.get_by_role("link", name="Give a group a role")).to_have_count(0)
