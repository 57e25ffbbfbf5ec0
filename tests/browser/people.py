"""What people do on pages, as several tests need it."""

from __future__ import annotations

from playwright.sync_api import Page, expect

LIVE_MS = 20_000


def sign_in(page: Page, token: str) -> None:
    page.goto("/login/")
    page.get_by_label("Access token").fill(token)
    page.get_by_role("button", name="Sign in with token").click()
    page.wait_for_url("**/")


def goes_through(page: Page, *states: str) -> None:
    """The pill of the head says them one after the other; nobody reloads."""
    for state in states:
        expect(page.locator("#gpr-head .state")).to_have_text(state, timeout=LIVE_MS)
