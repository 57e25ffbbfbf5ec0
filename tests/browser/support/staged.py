"""One page of ours in a real browser without a server: templates are rendered here, static files read from where they lie, and what
fragments and the socket answer is said by the test."""

from __future__ import annotations

import mimetypes
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from django.contrib.staticfiles import finders
from django.template import engines
from playwright.sync_api import Page, Route, WebSocketRoute

from portal_shared.shell import NavItem, Shell
from tests.browser.support.chromium import DESK, Watch

ORIGIN = "http://egs.test"
PATIENCE_S, LOOK_MS = 60.0, 10
CSP = "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'"
SHELL = Shell(
    portal="user",
    nav=(NavItem("GPU requests", "/elsewhere/", "list-details", True, key="g r"),),
    switcher=(),
    current=None,
    user_name="Nadia Brandt",
    user_initials="NB",
    is_overseer=False,
    role="Member",
    now=datetime(2026, 11, 19, 12, 8, tzinfo=UTC),
    zone="UTC",
    live_url="/ws/live/",
)


class Stage:
    """`answers` has status, body and headers by path. `asked` has method and path of each request but those for static files."""

    def __init__(self, page: Page, watch: Watch) -> None:
        self.page, self.watch = page, watch
        self.answers: dict[str, tuple[int, str, dict[str, str]]] = {}
        self.asked: list[str] = []
        self.sockets: list[WebSocketRoute] = []
        page.route("**/*", self._answer)
        page.route_web_socket("**/ws/live/", lambda socket: self.sockets.append(socket))  # noqa: PLW0108  # it sets an attribute on what it calls

    def set(self, home: str) -> None:
        """Answer with this page, and with nothing else yet. Nothing is left of what was here before."""
        self.answers = {"/": (200, home, {})}
        self.page.goto("/elsewhere/")
        self.page.evaluate("localStorage.clear()")
        self.page.set_viewport_size(DESK)
        self.page.emulate_media(color_scheme="light")
        self.asked.clear()
        self.sockets.clear()
        self.watch.faults.clear()

    def open(self) -> None:
        self.page.goto("/")
        self.page.wait_for_function("document.fonts.status === 'loaded'")
        self.asked.clear()

    def _answer(self, route: Route) -> None:
        path = urlsplit(route.request.url).path
        if path.startswith("/static/"):
            file = finders.find(path.removeprefix("/static/"))
            assert isinstance(file, str), path
            route.fulfill(path=file, content_type=mimetypes.guess_type(path)[0] or "font/woff2")
            return
        self.asked.append(f"{route.request.method} {path}")
        status, body, headers = self.answers.get(path, (200, "<!DOCTYPE html><title>Elsewhere</title>", {}))
        if status:
            headers = {"Content-Security-Policy": CSP, **headers}
            route.fulfill(status=status, body=body, content_type="text/html; charset=utf-8", headers=headers)
        else:
            route.abort()

    def hint(self, *topics: str) -> None:
        quoted = ", ".join(f'"{topic}"' for topic in topics)
        self.sockets[-1].send(f'{{"topics": [{quoted}]}}')

    def count(self, request: str) -> int:
        return self.asked.count(request)

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """The browser goes on while this looks."""
        until = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < until, self.asked
            self.page.wait_for_timeout(LOOK_MS)

    def says(self, selector: str) -> str:
        return self.page.locator(selector).inner_text().strip()

    def value(self, expression: str) -> Any:
        return self.page.evaluate(expression)


def page_around(content: str) -> str:
    markup = f'{{% extends "base.html" %}}{{% block content %}}<h1>Stage</h1>{content}{{% endblock %}}'
    return engines["django"].from_string(markup).render({"shell": SHELL, "csrf_token": "secret"})
