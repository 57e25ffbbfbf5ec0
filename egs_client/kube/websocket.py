"""Speaks the client's side of a WebSocket (RFC 6455), as far as API servers do."""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
from dataclasses import dataclass
from typing import Final

HEAD_MAX, MESSAGE_MAX = 64 * 1024, 16 * 1024 * 1024
CONNECT_S = 15.0
FINAL, MASKED = 0x80, 0x80
CONTINUES, BINARY, CLOSE, PING, PONG = 0x0, 0x2, 0x8, 0x9, 0xA
SWITCHED: Final = b" 101 "


class NotOpened(Exception):
    """The server answers something else. The text is what it says."""


@dataclass(slots=True)
class WebSocket:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def open(cls, host: str, port: int, path: str, *, tls: ssl.SSLContext, token: str, protocol: str) -> WebSocket:
        """Raises NotOpened or OSError."""
        async with asyncio.timeout(CONNECT_S):
            reader, writer = await asyncio.open_connection(host, port, ssl=tls, limit=HEAD_MAX)
            head = (
                f"GET {path} HTTP/1.1",
                f"Host: {host}:{port}",
                "Upgrade: websocket",
                "Connection: Upgrade",
                f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}",
                "Sec-WebSocket-Version: 13",
                f"Sec-WebSocket-Protocol: {protocol}",
                f"Authorization: Bearer {token}",
            )
            writer.write("\r\n".join((*head, "", "")).encode())
            try:
                answer = await reader.readuntil(b"\r\n\r\n")
                if SWITCHED not in answer.split(b"\r\n", 1)[0]:
                    said = await reader.read(HEAD_MAX) or answer.split(b"\r\n", 1)[0]
                    raise NotOpened(said.decode(errors="replace"))
            except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                raise NotOpened("the connection ended") from None
            except BaseException:
                writer.close()
                raise
        return cls(reader, writer)

    async def send(self, payload: bytes, *, kind: int = BINARY) -> None:
        self.writer.write(frame(payload, kind=kind))
        await self.writer.drain()

    async def receive(self) -> bytes | None:
        """Returns the next message; None: it is over."""
        message = b""
        try:
            while True:
                first, second = await self.reader.readexactly(2)
                payload = await self._payload(second)
                kind = first & 0x0F
                if kind == CLOSE:
                    return None
                if kind == PING:
                    await self.send(payload, kind=PONG)
                elif kind != PONG:
                    message += payload
                    if len(message) > MESSAGE_MAX:
                        return None
                    if first & FINAL:
                        return message
        except (asyncio.IncompleteReadError, OSError):
            return None

    async def _payload(self, second: int) -> bytes:
        size = second & 0x7F
        if size == 126:
            size = int.from_bytes(await self.reader.readexactly(2))
        elif size == 127:
            size = int.from_bytes(await self.reader.readexactly(8))
        if size > MESSAGE_MAX:
            raise OSError("a message is too long")
        return await self.reader.readexactly(size)

    def close(self) -> None:
        self.writer.close()


def frame(payload: bytes, *, kind: int) -> bytes:
    """Returns a frame of a client, which has to be masked."""
    size, mask = len(payload), os.urandom(4)
    if size < 126:
        length = bytes([MASKED | size])
    elif size < 1 << 16:
        length = bytes([MASKED | 126]) + size.to_bytes(2)
    else:
        length = bytes([MASKED | 127]) + size.to_bytes(8)
    return bytes([FINAL | kind]) + length + mask + masked(payload, mask)


def masked(payload: bytes, mask: bytes) -> bytes:
    size = len(payload)
    key = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload) ^ int.from_bytes(key)).to_bytes(size)
