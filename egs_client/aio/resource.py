"""Has the base of all groups of operations."""

from __future__ import annotations

from urllib.parse import quote

from egs_client.aio.transport import AsyncTransport


class AsyncResource:
    def __init__(self, client: AsyncTransport) -> None:
        self.client = client

    @staticmethod
    def quoted(part: str) -> str:
        return quote(str(part), safe="")
