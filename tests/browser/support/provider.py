"""People of the demo's identity provider sign in, each in a browser of their own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Page

from tests.browser.support.chromium import new_profile
from tests.browser.support.demo import Demo

BUTTON = "Sign in with the demo's identity provider"


@contextmanager
def person(demo: Demo) -> Iterator[Page]:
    """A browser of somebody who has not signed in anywhere. The provider's pages ask for a font that is not there."""
    profile = new_profile(demo.browser, demo.url)
    profile.route(re.compile("googleapis"), lambda route: route.abort())
    try:
        yield profile.new_page()
    finally:
        profile.close()


def sign_in_as(page: Page, name: str, *, at: str = "/") -> None:
    page.goto(f"/login/?next={at}")
    page.get_by_role("link", name=BUTTON).click()
    prove(page, name)


def prove(page: Page, name: str) -> None:
    """Says on the provider's pages who one is, and that EGS may know it."""
    page.locator("input[name=login]").fill(name)
    page.locator("input[name=password]").fill("any")
    page.get_by_role("button", name="Sign-in").click()
    page.get_by_role("button", name="Continue").click()


def groups_are(demo: Demo, name: str, *groups: str) -> None:
    path = demo.folder / "demo-people.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: {"groups": list(groups)}}))
