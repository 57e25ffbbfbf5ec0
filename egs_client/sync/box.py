# `make client` writes this file. Do not edit it.
"""Gives a box for as long as a block of code runs."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from egs_client.errors import EgsError, NotSetUp, Problem
from egs_client.gprs import name_now, workspace_meant
from egs_client.models.gpr import GprDetail, Offers
from egs_client.sync.client import Client

log = logging.getLogger("egs_client")


class Box:
    """Files the request on entry and waits until it is ACTIVE; on exit it releases it, or cancels it if it never started."""

    def __init__(
        self, client: Client | None, fields: dict[str, Any], *, wait_s: float | None, on_offer: Callable[[Offers], None] | None
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

    def refresh(self) -> GprDetail:
        self._gpr = self.client.gprs.get(self.gpr.id)
        return self._gpr

    @property
    def client(self) -> Client:
        if self._client is None:
            self._client = Client()
        return self._client

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._close()

    def _open(self) -> None:
        if "slice" not in self._fields:
            self._fields["slice"] = self.client.workspace or only_workspace(self.client)
        self.offers = self.client.gprs.estimate(**self._fields)
        if self._on_offer is not None:
            self._on_offer(self.offers)
        try:
            self._file()
        except Problem:  # refused
            self._is_asked_for = False
            raise
        self._gpr = self.client.wait(self.gpr.id, for_s=self._wait_s)

    def _file(self) -> None:
        """Files it, or finds it where an earlier call with its key has filed it."""
        self._is_asked_for = True
        self._gpr = self.client.gprs.create(**self._fields, idempotency_key=self._key)

    def _close(self) -> None:
        """An error of ours must not hide the one that ended the block."""
        try:
            if self._is_asked_for and self._gpr is None:  # the answer never came
                self._file()
            if self._gpr is not None:
                self._gpr = self.client.end(self._gpr.id)
        except BaseException as error:
            name = self._fields["name"]
            log.error("%s was perhaps not given back and would run until its end: %s", name, str(error) or type(error).__name__)
            if not isinstance(error, EgsError):
                raise
        finally:
            if self._is_own and self._client is not None:
                self._client.close()


def only_workspace(client: Client) -> str:
    """Returns the only workspace, or the only one where the caller may file. Raises NotSetUp."""
    me = client.me.get()
    if name := workspace_meant(me.slices):
        return name
    names = ", ".join(own.name for own in me.slices)
    raise NotSetUp(f"Name a workspace. You are in {names or 'none'}.")


def gpus(
    shape: str = "",
    *,
    nodes: int = 1,
    hours: float,
    workspace: str | None = None,
    name: str = "",
    client: Client | None = None,
    wait_s: float | None = None,
    on_offer: Callable[[Offers], None] | None = None,
    **fields: Any,
) -> Box:
    """Returns a box for a `with` block. Other fields are those of `client.gprs.create`; after `wait_s` it gives up and cancels."""
    fields |= {"shape": shape, "nodes": nodes, "duration_s": round(hours * 3600), "name": name or name_now()}
    if workspace is not None:
        fields["slice"] = workspace
    return Box(client, fields, wait_s=wait_s, on_offer=on_offer)
