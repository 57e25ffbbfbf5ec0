"""Takes a token from the browser: the page of EGS posts it to this computer. Or the person pastes it."""

from __future__ import annotations

import secrets
import select
import socket
import sys
import termios
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

from egs_client.cli.exits import say

BODY_MAX_BYTES, TIMEOUT_S = 8192, 5.0
TAKEN = b"<!doctype html><title>egs</title><p>egs has the token. You can close this page."


class Listener(HTTPServer):
    """Hears this computer alone, and believes only the page that it has opened."""

    def __init__(self, url: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.origin = "{0.scheme}://{0.netloc}".format(urlsplit(url))
        self.state = secrets.token_urlsafe(24)
        self.token = ""

    @property
    def page(self) -> str:
        query = {"port": self.server_port, "state": self.state, "name": f"egs on {socket.gethostname()}"[:63]}
        return f"{self.origin}/account/tokens/new/?{urlencode(query)}"


class Handler(BaseHTTPRequestHandler):
    server: Listener
    timeout = TIMEOUT_S

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        body = self.rfile.read(min(int(length), BODY_MAX_BYTES)) if length.isdecimal() else b""
        given = {name: values[0] for name, values in parse_qs(body.decode("ascii", errors="replace")).items()}
        is_own = secrets.compare_digest(given.get("state", "").encode(), self.server.state.encode())
        if not is_own:
            self.send_error(403)
            return
        self.server.token = given.get("token", "")
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(TAKEN)

    def log_message(self, format: str, *args: object) -> None:
        """It would show up between the command's own lines."""


def token_from_person(url: str) -> str:
    """From the browser or the keyboard, whichever is first."""
    with Listener(url) as listener:
        say(f"Make a token in the browser, and give it to egs there: {listener.page}\nOr paste a token here, then press Enter.")
        webbrowser.open(listener.page)
        with hidden_typing():
            while not listener.token:
                ready, _, _ = select.select([sys.stdin, listener], [], [])
                if sys.stdin in ready:
                    return sys.stdin.readline().strip()
                listener.handle_request()
        return listener.token


@contextmanager
def hidden_typing() -> Iterator[None]:
    """A pasted token is not shown."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    hidden = [*before]
    hidden[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSADRAIN, hidden)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
