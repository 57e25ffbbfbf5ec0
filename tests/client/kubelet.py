"""A kubelet that forwards ports, as API servers ask it to (by WebSocket, over TLS), what is behind it, and what is before it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from egs_client.kube.access import Access
from egs_client.kube.forwarding import Forwarding

MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # of RFC 6455
HOST = "127.0.0.1"


class Lab(BaseHTTPRequestHandler):
    """It replaces JupyterLab."""

    def do_GET(self) -> None:
        body = self.path.encode() * 20_000
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: it would stand among the results."""


@contextmanager
def lab() -> Iterator[int]:
    server = ThreadingHTTPServer((HOST, 0), Lab)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass(slots=True)
class Kubelet:
    """`target`: the port where the pod's bytes really come from."""

    target: int
    certificate: Path
    port: int = 0
    asked: list[str] = field(default_factory=list)  # first lines of requests
    said: list[str] = field(default_factory=list)  # their Authorization
    refusal: bytes = b""  # what it answers instead

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *rest = head.splitlines()
        fields = {name.lower(): text for name, _, text in (line.partition(": ") for line in rest if line)}
        self.asked.append(first)
        self.said.append(fields.get("authorization", ""))
        if self.refusal:
            writer.write(self.refusal)
            await writer.drain()
            writer.close()
            return
        accept = base64.b64encode(hashlib.sha1(f"{fields['sec-websocket-key']}{MAGIC}".encode()).digest()).decode()  # noqa: S324  # the RFC's
        writer.write(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {fields['sec-websocket-protocol']}\r\n\r\n".encode()
        )
        port = int(first.split("port")[-1].split("=")[1].split("&")[0].split(" ")[0]).to_bytes(2, "little")
        for channel in (0, 1):
            writer.write(_frame(bytes([channel]) + port))
        near, far = await asyncio.open_connection(HOST, self.target)
        ways = {asyncio.create_task(_down(near, writer)), asyncio.create_task(_up(reader, far))}
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        far.close()
        writer.close()

    async def serve(self, ready: threading.Event, end: asyncio.Event) -> None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(self.certificate)
        server = await asyncio.start_server(self._carry, HOST, 0, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await end.wait()
        server.close()


@contextmanager
def kubelet(folder: Path, target: int) -> Iterator[Kubelet]:
    made = Kubelet(target, _certificate(folder))
    ready, loop, end = threading.Event(), asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(made.serve(ready, end),))
    thread.start()
    ready.wait()
    try:
        yield made
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join()
        finish(loop)


@contextmanager
def at_hand(access: Access, namespace: str, *, find: Callable[[Access], str], said: list[str] | None = None) -> Iterator[str]:
    """The address on this machine, as `egs notebook` gives it."""
    door = Forwarding(namespace=namespace, port=8888, access=lambda: access, find=find, say=(said if said is not None else []).append)
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(door.listen(0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"http://{HOST}:{server.sockets[0].getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        finish(loop)


def finish(loop: asyncio.AbstractEventLoop) -> None:
    """Ends what is still at work in a loop that stopped."""
    if tasks := asyncio.all_tasks(loop):
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.wait(tasks))
    loop.close()


async def _up(reader: asyncio.StreamReader, far: asyncio.StreamWriter) -> None:
    while True:
        first, second = await reader.readexactly(2)
        size = second & 0x7F
        if size == 126:
            size = int.from_bytes(await reader.readexactly(2))
        mask = await reader.readexactly(4)
        payload = bytes(byte ^ mask[place % 4] for place, byte in enumerate(await reader.readexactly(size)))
        if first & 0x0F == 8:
            return
        assert payload[0] == 0
        far.write(payload[1:])


async def _down(near: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await near.read(40_000):
        writer.write(_frame(b"\0" + data))
        await writer.drain()


def _frame(payload: bytes) -> bytes:
    size = len(payload)
    length = bytes([size]) if size < 126 else bytes([126]) + size.to_bytes(2)
    return b"\x82" + length + payload


def _certificate(folder: Path) -> Path:
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kubelet")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(
            name, name, key.public_key(), x509.random_serial_number(), now - timedelta(hours=1), now + timedelta(hours=1)
        )
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(HOST))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / "kubelet.pem"
    own = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + own)
    return path
