"""Sign-in through a real identity provider: who gets in, with which role, and when that ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.browser.support.demo import Demo
from tests.browser.support.people import sign_in
from tests.browser.support.provider import BUTTON, groups_are, person, prove, sign_in_as
from tests.e2e.client.hub import Egs
from tests.e2e.processes import START_S, is_alive, wait_for


def activate(demo: Demo, is_active: bool) -> None:
    assert demo.admin.raw("PATCH", "/users/emma/", {"is_active": is_active}).status_code == 200


def test_groups_give_roles_and_who_leaves_one_loses_it(demo: Demo) -> None:
    with person(demo) as page:
        sign_in_as(page, "emma", at="/workspaces/vision/")
        expect(page).to_have_url(f"{demo.url}/workspaces/vision/")
        expect(page.get_by_role("link", name="Create GPU request").first).to_be_visible()

    groups_are(demo, "emma")
    with person(demo) as page:
        sign_in_as(page, "emma", at="/workspaces/vision/")
        expect(page.get_by_text("There is no such")).to_be_visible()
    groups_are(demo, "emma", "vision-team")

    with person(demo) as page:
        sign_in_as(page, "otto", at="/admin/people/")
        expect(page.get_by_role("heading", name="People", exact=True)).to_be_visible()
        expect(page.locator("tr", has_text="otto")).to_contain_text("by a group")


def test_a_disabled_person_is_out_while_his_page_is_open(demo: Demo) -> None:
    with person(demo) as page:
        sign_in_as(page, "emma", at="/workspaces/vision/")
        expect(page.locator("#live")).to_contain_text("Live")

        activate(demo, False)

        expect(page.get_by_role("heading", name="Sign in to EGS")).to_be_visible()
    with person(demo) as page:
        sign_in_as(page, "emma")
        expect(page.get_by_text("Your account is disabled")).to_be_visible()
    activate(demo, True)


def test_signing_out_ends_the_session_at_the_provider_and_those_of_other_programs_there(demo: Demo) -> None:
    with person(demo) as page:
        sign_in_as(page, "emma", at="/workspaces/vision/")
        kept: Any = page.context.cookies(demo.url)
        page.get_by_role("button", name="account of emma").click()
        with paused(provider_process(demo)), page.expect_response(lambda answer: answer.status == 401):
            # The provider is slow. Meanwhile the page, which is signed out already, asks for its news.
            page.evaluate("void setInterval(() => document.body.dispatchEvent(new Event('egs:notices')), 100)")
            page.get_by_role("button", name="Sign out").click(no_wait_after=True)
        page.get_by_role("button", name="Yes, sign me out").click()
        expect(page.get_by_role("heading", name="Sign in to EGS")).to_be_visible()
        page.context.add_cookies(kept)  # the old session's key opens nothing
        page.goto("/workspaces/vision/")
        expect(page.get_by_role("heading", name="Sign in to EGS")).to_be_visible()


def test_a_sign_out_at_the_provider_ends_the_session_here(demo: Demo) -> None:
    with person(demo) as page:
        sign_in_as(page, "emma", at="/workspaces/vision/")
        expect(page.locator("#live")).to_contain_text("Live")
        elsewhere = page.context.new_page()
        elsewhere.goto(f"{issuer(demo)}/session/end?client_id=egs")
        elsewhere.get_by_role("button", name="Yes, sign me out").click()

        expect(page.get_by_role("heading", name="Sign in to EGS")).to_be_visible()


def test_somebody_with_a_token_links_an_identity_and_unlinks_it(demo: Demo) -> None:
    groups_are(demo, "nina")
    with person(demo) as page:
        sign_in(page, demo.user.token)
        page.goto("/account/")
        page.get_by_role("button", name="Link the demo's identity provider").click()
        prove(page, "nina")
        expect(page.get_by_text("demo: nina")).to_be_visible()
        expect(page.get_by_role("button", name="account of ada")).to_be_visible()
        expect(page.locator("#live")).to_contain_text("Live")  # before its scripts run, a link opens a page instead of a dialog

        page.get_by_role("link", name="Unlink").click()
        page.get_by_role("dialog").get_by_role("button", name="Unlink").click()

        expect(page.get_by_role("heading", name="Sign in to EGS")).to_be_visible()  # the identity had opened this session


def test_a_code_counts_once_and_only_in_the_browser_that_asked(demo: Demo) -> None:
    seen: list[str] = []
    with person(demo) as page:
        page.on("request", lambda request: seen.append(request.url) if "/callback/" in request.url else None)
        sign_in_as(page, "emma")
        expect(page).to_have_url(f"{demo.url}/")
        (address,) = seen
        again = page.request.get(address, max_redirects=0)
        assert again.headers["location"] == "/login/"
    with person(demo) as other:
        other.goto(address)
        expect(other.get_by_text("was not started in this browser")).to_be_visible()


def test_a_terminal_is_connected_by_somebody_whom_the_provider_signs_in(demo: Demo, tmp_path: Path) -> None:
    """A phone would do: the browser need not be on the terminal's machine."""
    egs = Egs(tmp_path)
    terminal = egs.at_terminal("login", demo.url, "--device")
    code = re.findall(r"code is (\S+)\.", terminal.wait_for(r"or open http\S+\s"))[0]
    with person(demo) as page:
        sign_in_as(page, "emma", at="/connect/")
        page.get_by_label("Code").fill(code.lower())
        page.get_by_role("button", name="Go on").click()
        expect(page.get_by_text("from 127.0.0.1, as this browser")).to_be_visible()
        expect(page.get_by_text(code)).to_be_visible()
        page.get_by_role("button", name="Connect", exact=True).click()
        expect(page).to_have_url(f"{demo.url}/account/")

    assert terminal.end() == 0, terminal.shown
    assert "as emma" in terminal.shown
    assert "vision (" in egs.run("whoami")
    activate(demo, False)
    assert "Sign in again" in egs.run("whoami", code=3)
    activate(demo, True)
    groups_are(demo, "emma")
    with person(demo) as page:
        sign_in_as(page, "emma")  # the provider tells that she has left the group
        expect(page).to_have_url(f"{demo.url}/")
    assert "vision (" not in egs.run("whoami")
    groups_are(demo, "emma", "vision-team")


@pytest.mark.parametrize("name", ["nonce", "code_challenge"])
def test_a_changed_request_is_refused(name: str, demo: Demo) -> None:
    """Somebody between browser and provider changes what EGS asked for."""
    with person(demo) as page:
        address, _, query = asked_of_provider(page).partition("?")
        given = {key: values[0] for key, values in parse_qs(query).items()} | {name: "A" * 43}
        page.goto(f"{address}?{urlencode(given)}")
        prove(page, "emma")
        expect(page.get_by_text("was not accepted")).to_be_visible()
        page.goto("/workspaces/vision/")
        expect(page.get_by_role("heading", name="Sign in to EGS")).to_be_visible()


def test_without_the_provider_the_page_says_why_and_tokens_still_open_it(demo: Demo) -> None:
    """The last test here: the provider does not come back."""
    pid = provider_process(demo)
    with person(demo) as page:
        page.goto("/login/")
        page.get_by_role("link", name=BUTTON).click()
        page.locator("input[name=login]").wait_for()
        os.kill(pid, signal.SIGTERM)
        wait_for("the provider's end", lambda: not is_alive(pid), within_s=START_S)
        state = demo_state(page)
        page.goto(f"/login/demo/callback/?code=x&state={state}")
        expect(page.get_by_text("does not answer")).to_be_visible()
        sign_in(page, demo.user.token)


def demo_state(page: Page) -> str:
    """Returns what EGS gave the provider; its page shows it."""
    found = re.search(r"<strong>state</strong>: '([\w-]+)'", page.content())
    assert found
    return found[1]


def provider_process(demo: Demo) -> int:
    pattern = f"oidc-provider.mjs {urlsplit(issuer(demo)).port} "
    found = subprocess.run(["pgrep", "-f", pattern], stdout=subprocess.PIPE, text=True, check=True)
    (pid,) = map(int, found.stdout.split())
    return pid


@contextmanager
def paused(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def issuer(demo: Demo) -> str:
    with person(demo) as page:
        return asked_of_provider(page).partition("/auth?")[0]


def asked_of_provider(page: Page) -> str:
    """The address where EGS sends this browser."""
    return page.request.get("/login/demo/", max_redirects=0).headers["location"]
