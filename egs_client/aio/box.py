"""Gives a box for as long as a block of code runs."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from egs_client.aio.client import AsyncClient
from egs_client.errors import EgsError, NotSetUp, Problem
from egs_client.gprs import name_now, workspace_meant
from egs_client.models.gpr import GprDetail, Offers

log = logging.getLogger("egs_client")


class AsyncBox:
    """Files the request on entry and waits until it is ACTIVE; on exit it releases it, or cancels it if it never started."""

    def __init__(
        self, client: AsyncClient | None, fields: dict[str, Any], *, wait_s: float | None, on_offer: Callable[[Offers], None] | None
    ) -> None:
        self._client, self._is_own = client, client is None
        self._fields, self._wait_s, self._on_offer = fields, wait_s, on_offer
        self._gpr: GprDetail | None = None
        self._key, self._is_asked_for = str(uuid.uuid4()), False
        self.offers: Offers | None = None

    @property
    def gpr(self) -> GprDetail:
        if self._gpr is None:
            raise RuntimeError("The box was not filed yet: use it in a `with` block.")
        return self._gpr

    @property
    def nodes(self) -> list[str]:
        return [node.node for node in self.gpr.nodes_assigned]

    @property
    def left_s(self) -> float:
        """Returns the time until it ends by itself."""
        ends_at = self.gpr.ends_at
        return max((ends_at - datetime.now(UTC)).total_seconds(), 0.0) if ends_at else 0.0

    async def refresh(self) -> GprDetail:
        self._gpr = await self.client.gprs.get(self.gpr.id)
        return self._gpr

    @property
    def client(self) -> AsyncClient:
        if self._client is None:
            self._client = AsyncClient()
        return self._client

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._close()

    async def _open(self) -> None:
        if "slice" not in self._fields:
            self._fields["slice"] = self.client.workspace or await only_workspace(self.client)
        self.offers = await self.client.gprs.estimate(**self._fields)
        if self._on_offer is not None:
            self._on_offer(self.offers)
        try:
            await self._file()
        except Problem:  # refused
            self._is_asked_for = False
            raise
        self._gpr = await self.client.wait(self.gpr.id, for_s=self._wait_s)

    async def _file(self) -> None:
        """Files it, or finds it where an earlier call with its key has filed it."""
        self._is_asked_for = True
        self._gpr = await self.client.gprs.create(**self._fields, idempotency_key=self._key)

    async def _close(self) -> None:
        """An error of ours must not hide the one that ended the block."""
        try:
            if self._is_asked_for and self._gpr is None:  # the answer never came
                await self._file()
            if self._gpr is not None:
                self._gpr = await self.client.end(self._gpr.id)
        except BaseException as error:
            name = self._fields["name"]
            log.error("%s was perhaps not given back and would run until its end: %s", name, str(error) or type(error).__name__)
            if not isinstance(error, EgsError):
                raise
        finally:
            if self._is_own and self._client is not None:
                await self._client.aclose()


async def only_workspace(client: AsyncClient) -> str:
    """Returns the only workspace, or the only one where the caller may file. Raises NotSetUp."""
    me = await client.me.get()
    if name := workspace_meant(me.slices):
        return name
    names = ", ".join(own.name for own in me.slices)
    raise NotSetUp(f"Name a workspace. You are in {names or 'none'}.")


def async_gpus(
    shape: str = "",
    *,
    nodes: int = 1,
    hours: float,
    workspace: str | None = None,
    name: str = "",
    client: AsyncClient | None = None,
    wait_s: float | None = None,
    on_offer: Callable[[Offers], None] | None = None,
    **fields: Any,
) -> AsyncBox:
    """Returns a box for a `with` block. Other fields are those of `client.gprs.create`; after `wait_s` it gives up and cancels."""
    fields |= {"shape": shape, "nodes": nodes, "duration_s": round(hours * 3600), "name": name or name_now()}
    if workspace is not None:
        fields["slice"] = workspace
    return AsyncBox(client, fields, wait_s=wait_s, on_offer=on_offer)
