"""It stands for a browser's WebSocket and passes messages to the ASGI application without a network."""

from __future__ import annotations

import json
from typing import Any

from asgiref.testing import ApplicationCommunicator

from egs.asgi import application


class Socket:
    def __init__(self, path: str, *, headers: dict[str, str], query: str = "") -> None:
        sent = [(name.encode(), value.encode()) for name, value in headers.items() if value]
        scope: Any = {"type": "websocket", "path": path, "query_string": query.encode(), "headers": sent, "subprotocols": []}
        self._link: Any = ApplicationCommunicator(application, scope)  # type: ignore[no-untyped-call]

    async def open(self) -> int:
        """0 when it was let in, else the code of the refusal."""
        await self._link.send_input({"type": "websocket.connect"})
        answer: dict[str, Any] = await self._link.receive_output(timeout=15)
        return 0 if answer["type"] == "websocket.accept" else int(answer.get("code", 1000))

    async def say(self, **message: Any) -> None:
        await self._link.send_input({"type": "websocket.receive", **message})

    async def heard(self) -> Any:
        return json.loads((await self._link.receive_output(timeout=15))["text"])

    async def is_quiet(self, within_s: float) -> bool:
        return bool(await self._link.receive_nothing(timeout=within_s, interval=0.02))

    async def closed(self) -> int:
        """The code with which the server ends it, whatever it says before."""
        answer: dict[str, Any] = await self._link.receive_output(timeout=15)
        while answer["type"] == "websocket.send":
            answer = await self._link.receive_output(timeout=15)
        return int(answer["code"])

    async def leave(self) -> None:
        await self._link.send_input({"type": "websocket.disconnect", "code": 1000})
        await self._link.wait(timeout=5)
