"""A proxy between an agent and an API server that fails on command: it cuts streams, falls silent, refuses, or forgets the past."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import httpx

from worker_agent.kube.api.client import Access, StreamLines

EXPIRED: Final = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old resource version"}
REFUSED: Final = {"kind": "Status", "status": "Failure", "code": 422, "reason": "Invalid", "message": "sendInitialEvents is forbidden"}


class Proxy:
    """Plain HTTP on 127.0.0.1 for reads, with the rights of `access`. Its faults may be changed at any time."""

    def __init__(self, access: Access) -> None:
        self.asked: list[dict[str, str]] = []  # the parameters of each request
        self.lines_each = float("inf")  # after so many lines a watch is cut
        self.breaks_lists = False  # but not the question for the version alone
        self.expires = ""  # "status": a watch that resumes is answered 410; "event": 200, and an ERROR event of 410
        self.refuses_initial = False  # sendInitialEvents, as old servers do
        self.is_away = False  # nobody answers
        self._goes_on = threading.Event()
        self._goes_on.set()
        self._open: set[StreamLines] = set()
        self._is_over = False
        self._behind = httpx.Client(base_url=access.url, verify=access.tls, timeout=httpx.Timeout(30.0, read=None))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = False  # so that closing it waits for them
        threading.Thread(target=self._server.serve_forever, name="proxy", daemon=True).start()

    @property
    def access(self) -> Access:
        return Access(url=f"http://127.0.0.1:{self._server.server_port}", tls=True, bearer=lambda: "")

    def stop(self) -> None:
        """Nobody reads then from what is closed: the numbers of its sockets will soon be those of other files."""
        self._is_over = True
        self.resume()
        self._server.shutdown()
        for lines in list(self._open):
            lines.cut()
        self._server.server_close()
        self._behind.close()

    def stall(self) -> None:
        """Connections stay open and nothing comes over them any more."""
        self._goes_on.clear()

    def resume(self) -> None:
        self._goes_on.set()

    @property
    def watches(self) -> list[dict[str, str]]:
        return [asked for asked in self.asked if "watch" in asked]

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        asked = {key: values[0] for key, values in parse_qs(urlsplit(handler.path).query).items()}
        self.asked.append(asked)
        resumes = "watch" in asked and "resourceVersion" in asked
        if self.is_away:
            handler.close_connection = True
        elif self.refuses_initial and "sendInitialEvents" in asked:
            _say(handler, 422, REFUSED)
        elif self.expires == "status" and resumes:
            _say(handler, 410, EXPIRED)
        elif self.expires == "event" and resumes:
            _say(handler, 200, {"type": "ERROR", "object": EXPIRED})
        else:
            is_broken = self.breaks_lists and asked.get("limit") != "1"
            self._pass_on(handler, is_watch="watch" in asked, is_broken=is_broken)

    def _pass_on(self, handler: BaseHTTPRequestHandler, *, is_watch: bool, is_broken: bool) -> None:
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        with suppress(httpx.HTTPError, OSError), self._behind.stream("GET", handler.path, headers=headers) as answer:
            handler.send_response(answer.status_code)
            handler.send_header("Transfer-Encoding", "chunked")
            handler.send_header("Connection", "close")  # as it is done below: nobody asks over it again
            handler.end_headers()
            handler.wfile.flush()
            for count, line in enumerate(self._lines(answer) if is_watch else _whole(answer)):
                self._goes_on.wait()
                if self.is_away or (count >= self.lines_each if is_watch else is_broken):
                    _chunk(handler, line[: len(line) // 2])  # in the middle of it, and without the mark of an end
                    break
                _chunk(handler, f"{line}\n")
            else:
                _chunk(handler, "")
        handler.close_connection = True

    def _lines(self, answer: httpx.Response) -> Iterator[str]:
        lines = StreamLines(answer)
        self._open.add(lines)
        try:
            # Also before the first one: stop() may have come too early to cut it.
            if not self._is_over:
                yield from map(bytes.decode, lines)
        finally:
            self._open.discard(lines)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                proxy._answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing: the output is the test's."""

        return Handler


def _whole(answer: httpx.Response) -> Iterator[str]:
    yield answer.read().decode()


def _chunk(handler: BaseHTTPRequestHandler, text: str) -> None:
    body = text.encode()
    handler.wfile.write(b"%x\r\n%s\r\n" % (len(body), body))
    handler.wfile.flush()


def _say(handler: BaseHTTPRequestHandler, status: int, body: dict[str, Any]) -> None:
    text = json.dumps(body).encode() + b"\n"
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(text)))
    handler.end_headers()
    handler.wfile.write(text)
