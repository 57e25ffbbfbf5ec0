"""Requests to the ASGI application itself, as a server makes them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import msgspec

from egs.asgi import application
from protocol.agents.sync import SYNC_PATH, SyncReply, SyncRequest
from tests.inventory.agent import Agent

EMPTY: Mapping[str, str] = MappingProxyType({})


@dataclass(slots=True)
class Response:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


async def request(
    path: str,
    body: bytes | Sequence[bytes] = b"",
    *,
    method: str = "POST",
    bearer: str = "",
    hangs_up: bool = False,
    leaves: asyncio.Event | None = None,
    headers: Mapping[str, str] = EMPTY,
) -> Response | None:
    """Returns None when the server sent nothing. `body` as several pieces comes in as many messages; `leaves`: hangs up then."""
    pieces = [body] if isinstance(body, bytes) else list(body)
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": piece, "more_body": hangs_up or index + 1 < len(pieces)} for index, piece in enumerate(pieces)
    ]
    if hangs_up:
        messages.append({"type": "http.disconnect"})
    response: Response | None = None

    async def receive() -> MutableMapping[str, Any]:
        if not messages:  # the client waits for the answer
            await (leaves.wait() if leaves else asyncio.Future())
            return {"type": "http.disconnect"}
        return messages.pop(0)

    async def send(message: Mapping[str, Any]) -> None:
        nonlocal response
        if message["type"] == "http.response.start":
            sent = {name.decode(): value.decode() for name, value in message["headers"]}
            response = Response(message["status"], sent)
        elif response is not None:
            response.body += message.get("body", b"")

    given = {**({"authorization": f"Bearer {bearer}"} if bearer else {}), **headers}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path.partition("?")[0],
        "raw_path": path.partition("?")[0].encode(),
        "query_string": path.partition("?")[2].encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in given.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    await application(scope, receive, send)
    return response


async def sync(agent: Agent, *, wait_s: float = 20.0, **changes: Any) -> SyncReply:
    """Asked with what the agent was told last, so that it is parked until there is news."""
    known = {"known_generation": agent.last.generation, "have_digest": agent.last.digest} if agent.last else {}
    fields: dict[str, Any] = {"session_epoch": agent.session_epoch, "boot_id": agent.boot, "wait_s": wait_s, **known, **changes}
    response = await request(SYNC_PATH, msgspec.json.encode(SyncRequest(**fields)), bearer=agent.credential)
    assert response is not None
    assert response.status == 200, response.body
    return msgspec.json.decode(response.body, type=SyncReply)


async def until(look: Any, *, within_s: float = 60.0) -> None:
    """Wait for something to come about; the limit only ends a broken test."""
    deadline = asyncio.get_running_loop().time() + within_s
    while not look():
        assert asyncio.get_running_loop().time() < deadline, "it did not come about"
        await asyncio.sleep(0.01)
