"""Signing in by a code that is confirmed in the browser."""

from __future__ import annotations

import re
import signal

import pytest

from tests.browser.support.chromium import chromium
from tests.e2e.client.hub import Egs, Hub, Terminal
from tests.e2e.processes import START_S

pytestmark = pytest.mark.rotates(0)


def code_of(terminal: Terminal) -> str:
    found = re.search(r"code is (\S+)\.", terminal.wait_for(r"or open http\S+\s"))
    assert found
    return found[1]


def answer(hub: Hub, code: str, button: str) -> None:
    with chromium() as browser:
        page = browser.new_page()
        page.goto(f"{hub.url}/connect/?code={code}")
        page.fill("input[name=token]", hub.tokens["user_token"])
        page.click("button[type=submit]")
        page.get_by_role("button", name=button, exact=True).click()
        page.wait_for_url("**/account/")
        page.close()


def test_a_code_that_is_confirmed_in_the_browser_signs_the_terminal_in(hub: Hub, egs: Egs) -> None:
    egs.env = {"BROWSER": "true"}
    terminal = egs.at_terminal("login", hub.url, "-n", "vision", "--scope", "gpr:write")
    answer(hub, code_of(terminal), "Connect")

    assert terminal.end() == 0, terminal.shown
    assert "Signed in" in terminal.shown
    assert "egsu_" not in terminal.shown
    told = egs.run("whoami")
    assert "egs on " in told
    assert "gpr:write" in told
    egs.run("logout", "--revoke")


def test_a_code_that_is_refused_or_left_alone_stores_nothing_and_says_so(hub: Hub, egs: Egs) -> None:
    egs.env = {}
    terminal = egs.at_terminal("login", hub.url, "--device")
    answer(hub, code_of(terminal), "Refuse")
    assert (terminal.end(), "refused on the page" in terminal.shown) == (4, True), terminal.shown

    left = egs.start("login", hub.url, "--device")
    assert left.stdout
    assert "Your code is" in left.stdout.readline()
    left.send_signal(signal.SIGINT)
    text = left.communicate(timeout=START_S)[0]
    assert (left.returncode, "Nothing is stored" in text, "Traceback" in text) == (130, True, False), text
    assert "not signed in" in egs.run("whoami", code=3)


def test_a_token_is_still_taken_from_standard_input(hub: Hub, egs: Egs) -> None:
    egs.env = {}

    assert "as ada" in egs.run("login", hub.url, "--with-token", given=hub.tokens["user_token"])
    assert "as ada" in egs.run("login", hub.url, given=hub.tokens["user_token"])
    egs.run("login", hub.url, "--with-token", "--device", code=2)
    egs.run("login", hub.url, "--with-token", given="egsu_wrong", code=3)
