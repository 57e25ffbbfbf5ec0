"""Acts of people on pages that several tests need."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.e2e.processes import START_S, Api, wait_for


def sign_in(page: Page, token: str) -> None:
    page.goto("/login/")
    page.get_by_label("Access token").fill(token)
    page.get_by_role("button", name="Sign in with token").click()
    page.wait_for_url("**/")


def goes_through(page: Page, *states: str) -> None:
    """The pill of the head says them one after the other; nobody reloads."""
    for state in states:
        expect(page.locator("#gpr-head .state")).to_have_text(state)


def end(admin: Api, gpr_id: str) -> None:
    """Withdraw it, or give it back. One that is leaving is left alone."""
    if admin.raw("DELETE", f"/gprs/{gpr_id}/").is_error:
        admin.raw("POST", f"/gprs/{gpr_id}/release/")


def end_all(admin: Api) -> None:
    """End every request, and wait until all nodes are free: the next test begins with an empty queue."""

    def all_ended() -> bool:
        left = admin.get("/gprs/?ended=false&page_size=500")["results"]
        for gpr in left:
            end(admin, gpr["id"])
        return not left

    wait_for("an empty queue", all_ended, within_s=START_S)
