# `make client` writes this file. Do not edit it.
"""Has the base of all groups of operations."""

from __future__ import annotations

from urllib.parse import quote

from egs_client.sync.transport import Transport


class Resource:
    def __init__(self, client: Transport) -> None:
        self.client = client

    @staticmethod
    def quoted(part: str) -> str:
        return quote(str(part), safe="")
