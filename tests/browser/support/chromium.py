"""A real Chromium for tests: the system's own (deploy/browser finds or installs it), a watcher of what a page must not do, and axe-core."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, ViewportSize, expect, sync_playwright

ROOT = Path(__file__).resolve().parents[3]
AXE = ROOT / "node_modules/axe-core/axe.min.js"
# How long a page may take to show what happened: without hints it polls every 15 s, its socket asks after its login every 30 s, and the
# machine is busy with other tests.
PATIENCE_MS = 90_000
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]

DESK: ViewportSize = {"width": 1440, "height": 1000}
PHONE: ViewportSize = {"width": 390, "height": 844}
Theme = Literal["light", "dark"]
LOOKS = [
    pytest.param(DESK, "light", id="desk-light"),
    pytest.param(PHONE, "dark", id="phone-dark"),
    pytest.param(DESK, "dark", id="desk-dark", marks=pytest.mark.soak),
    pytest.param(PHONE, "light", id="phone-light", marks=pytest.mark.soak),
]


def chromium_path() -> str:
    found = subprocess.run([ROOT / "deploy/browser"], stdout=subprocess.PIPE, text=True, check=True)
    return found.stdout.strip()


@contextmanager
def chromium() -> Iterator[Browser]:
    # Inside a container the sandbox of Chromium has no rights to build itself; it only visits our own pages.
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=["--no-sandbox", "--disable-gpu"])
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Watch:
    """It records what no page may do: errors in the console (a broken Content-Security-Policy is one), requests to another origin."""

    origin: str
    faults: list[str] = field(default_factory=list)

    def attach(self, page: Page) -> None:
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.faults.append(f"script: {error}"))
        page.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        # htmx complains of a refetch that the reader cut off by going to another page; one that fails is complained of by the browser too.
        if message.type in {"error", "warning"} and not message.text.startswith(("htmx:afterRequest,", "htmx:sendAbort,")):
            self.faults.append(f"console: {message.text}")

    def _request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in {"http", "https"} and f"{parts.scheme}://{parts.netloc}" != self.origin:
            self.faults.append(f"foreign: {request.url}")


def new_profile(browser: Browser, origin: str, *, scripts: bool = True) -> BrowserContext:
    """A fresh browser profile: it has no cookies. With `scripts=False` it runs no JavaScript."""
    profile = browser.new_context(base_url=origin, timezone_id="Europe/Berlin", java_script_enabled=scripts)
    profile.set_default_timeout(PATIENCE_MS)
    return profile


def new_page(profile: BrowserContext, origin: str) -> tuple[Page, Watch]:
    """Opens a page and watches it for errors."""
    page, watch = profile.new_page(), Watch(origin)
    watch.attach(page)
    return page, watch


@contextmanager
def visitor(
    browser: Browser, origin: str, *, size: ViewportSize = DESK, theme: Theme = "light", scripts: bool = True
) -> Iterator[tuple[Page, Watch]]:
    """Opens a fresh page of a fresh person."""
    profile = new_profile(browser, origin, scripts=scripts)
    try:
        page, watch = new_page(profile, origin)
        page.set_viewport_size(size)
        page.emulate_media(color_scheme=theme)
        yield page, watch
    finally:
        profile.close()


def axe_violations(page: Page) -> list[str]:
    """Returns what axe-core finds against WCAG 2.2 AA and best practices: a line for each rule and place."""
    page.evaluate("scrollTo(0, 0)")  # what a sticky head happens to cover is no fault of the page
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("tags => axe.run({ runOnly: tags, resultTypes: ['violations'] })", WCAG)
    return [f"{rule['id']}: {node['target']}: {node['failureSummary']}" for rule in found["violations"] for node in rule["nodes"]]
