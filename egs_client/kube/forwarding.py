"""Brings a port of a pod to this machine, as `kubectl port-forward` does: the API server hands the bytes to the pod's kubelet.

It needs no way through the NetworkPolicies of the workspace. Each connection here is one there, on the subprotocol below: each message
begins with the number of its channel, 0 for data and 1 for errors, and the first of each channel holds the port.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from egs_client.kube.access import Access, ClusterRefused, reason_of
from egs_client.kube.websocket import CLOSE, NotOpened, WebSocket

PROTOCOL = "v4.channel.k8s.io"
DATA, ERROR = 0, 1
PART = 32 * 1024
HERE = "127.0.0.1"


class Forwarding:
    """`access` gives the present rights; `find` the pod's name, or "" while there is none."""

    def __init__(
        self, *, namespace: str, port: int, access: Callable[[], Access], find: Callable[[Access], str], say: Callable[[str], None]
    ) -> None:
        self._namespace, self._port, self._access, self._find, self._say = namespace, port, access, find, say
        self._told = ""
        self._one_at_a_time = asyncio.Lock()

    async def listen(self, port: int) -> asyncio.Server:
        """Listens on this machine alone. `port` 0: any. Raises OSError."""
        return await asyncio.start_server(self._carry, HERE, port)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far = await self._open()
        except (ClusterRefused, NotOpened, OSError, TimeoutError) as error:
            text = f"The notebook cannot be reached now: {reason_of(str(error)) or type(error).__name__}"
            self._tell(text)
            with suppress(OSError):
                writer.write(_unreachable(text))
                await writer.drain()
                writer.close()
            return
        self._told = ""
        ways = {asyncio.create_task(_up(reader, far)), asyncio.create_task(self._down(far, writer))}
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            far.close()
            writer.close()

    async def _open(self) -> WebSocket:
        async with self._one_at_a_time:
            access = await asyncio.to_thread(self._access)
            pod = await asyncio.to_thread(self._find, access)
        if not pod:
            raise ClusterRefused("its pod does not run.")
        path = access.path(f"/api/v1/namespaces/{self._namespace}/pods/{pod}/portforward?ports={self._port}")
        return await WebSocket.open(access.host, access.port, path, tls=access.tls, token=access.token, protocol=PROTOCOL)

    async def _down(self, far: WebSocket, writer: asyncio.StreamWriter) -> None:
        begun: set[int] = set()
        with suppress(OSError):
            while (message := await far.receive()) is not None:
                channel, data = message[0] if message else ERROR, message[1:]
                if channel not in begun:
                    begun.add(channel)
                elif channel == DATA:
                    writer.write(data)
                    await writer.drain()
                elif data:
                    self._tell(data.decode(errors="replace"))
                    return

    def _tell(self, text: str) -> None:
        if text != self._told:
            self._told = text
            self._say(text)


async def _up(reader: asyncio.StreamReader, far: WebSocket) -> None:
    with suppress(OSError):
        while data := await reader.read(PART):
            await far.send(bytes([DATA]) + data)
        await far.send(b"", kind=CLOSE)


def _unreachable(text: str) -> bytes:
    body = f"{text}\n".encode()
    head = ("HTTP/1.1 502 Bad Gateway", "Content-Type: text/plain; charset=utf-8", f"Content-Length: {len(body)}", "Connection: close")
    return "\r\n".join((*head, "", "")).encode() + body
