"""Real servers on 127.0.0.1 that take messages."""

from __future__ import annotations

import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from email.policy import default
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, slots=True)
class Post:
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class HttpReceiver:
    """`answer` is status, headers and body; `before_answer` runs when a message has come."""

    url: str = ""
    posts: list[Post] = field(default_factory=list)
    answer: tuple[int, dict[str, str], bytes] = (200, {}, b"")
    before_answer: Callable[[], None] = lambda: None

    @property
    def ids(self) -> list[str]:
        return [post.headers["X-Egs-Delivery"] for post in self.posts]


@contextmanager
def http_receiver(*, tls: ssl.SSLContext | None = None) -> Iterator[HttpReceiver]:
    told = HttpReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            told.posts.append(Post(self.path, {name.title(): value for name, value in self.headers.items()}, body))
            told.before_answer()
            status, headers, content = told.answer
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 64  # senders connect side by side; by default only five may wait

    server = Server(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    with _serving(server) as port:
        told.url = f"http://127.0.0.1:{port}"
        yield told


@dataclass
class SmtpReceiver:
    port: int = 0
    mails: list[Message] = field(default_factory=list)
    rcpt_answer: str = "250 ok"


@contextmanager
def smtp_receiver() -> Iterator[SmtpReceiver]:
    told = SmtpReceiver()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self._say("220 test")
            while line := self.rfile.readline().decode().strip():
                match line.split()[0].upper():
                    case "DATA":
                        self._say("354 go on")
                        told.mails.append(message_from_bytes(b"".join(iter(self.rfile.readline, b".\r\n")), policy=default))
                        self._say("250 ok")
                    case "RCPT":
                        self._say(told.rcpt_answer)
                    case "QUIT":
                        self._say("221 bye")
                        return
                    case _:
                        self._say("250 ok")

        def _say(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

    with _serving(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)) as port:
        told.port = port
        yield told


@contextmanager
def _serving(server: socketserver.TCPServer) -> Iterator[int]:
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a peer that hangs up is what a test wants
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
