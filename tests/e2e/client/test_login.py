"""Signing in by the browser."""

from __future__ import annotations

import re

import httpx
import pytest

from tests.browser.support.chromium import chromium
from tests.e2e.client.hub import Egs, Hub

pytestmark = pytest.mark.rotates(0)


def test_the_browser_hands_a_new_token_to_the_terminal(hub: Hub, egs: Egs) -> None:
    egs.env = {"BROWSER": "true"}
    terminal = egs.at_terminal("login", hub.url, "-n", "vision")
    url = re.findall(r"http\S+", terminal.wait_for(r"new/\?\S+\s"))[0]
    port = re.findall(r"port=(\d+)", url)[0]
    assert httpx.post(f"http://127.0.0.1:{port}/", data={"token": "egsu_of_somebody_else", "state": "guessed"}).status_code == 403

    with chromium() as browser:
        page = browser.new_page()
        page.goto(url)
        page.fill("input[name=token]", hub.tokens["user_token"])
        page.click("button[type=submit]")
        page.get_by_role("button", name="Make token").click()
        page.get_by_role("button", name="Give it to egs").click()
        page.wait_for_selector("text=egs has the token")
        page.close()

    assert terminal.end() == 0, terminal.shown
    assert hub.tokens["user_token"] not in terminal.shown
    assert "egs on " in egs.run("whoami")
