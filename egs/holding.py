"""Holds an answer 304 back until there is something new for its caller. A held call has no thread and no database connection.

The whole request runs again for the answer, so that rights and tokens hold as in every other.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any, Final
from uuid import UUID

from django.db import InterfaceError, OperationalError

from core.db_threads import in_db_thread
from core.rest.held import HELD, WAIT, Held
from core.rest.problems import CONTENT_TYPE, problem
from egs.metrics import App, Receive, Scope, Send
from journal.wakeups import wakeups

ACCOUNT_MAX: Final = 20
PROCESS_MAX: Final = 500
LOOK_AGAIN_S = 3.0  # hints may be lost, and some Events come without
GAP_S = 0.25  # between two looks, since hints come in bursts

Messages = list[Mapping[str, Any]]
_held_by: Counter[UUID] = Counter()


async def hold(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    hanging_up = asyncio.create_task(_hang_up(receive))
    try:
        held, answer = await _ask(app, scope, send, hanging_up)
        if held is not None:
            with _place(held.account) as is_free:
                if not is_free:
                    answer = _too_many()
                elif await _has_news(held, hanging_up):
                    _, answer = await _ask(app, scope, send, hanging_up)
        if not hanging_up.done():
            for message in answer:
                await send(message)
    finally:
        hanging_up.cancel()


async def _hang_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass  # a body, which nobody reads


async def _ask(app: App, scope: Scope, send: Send, hanging_up: asyncio.Task[None]) -> tuple[Held | None, Messages]:
    """Returns an answer that may be held. Any other is sent piece by piece: it may be a long file."""
    own_scope, answer = {**scope}, Messages()
    is_read = False

    async def receive() -> MutableMapping[str, Any]:
        nonlocal is_read
        if is_read:
            await asyncio.shield(hanging_up)
            return {"type": "http.disconnect"}
        is_read = True
        return {"type": "http.request", "body": b""}

    async def keep_or_send(message: Mapping[str, Any]) -> None:
        if HELD in own_scope:
            answer.append(message)
        elif not hanging_up.done():
            await send(message)

    await app(own_scope, receive, keep_or_send)
    return own_scope.get(HELD), answer


async def _has_news(held: Held, hanging_up: asyncio.Task[None]) -> bool:
    """Returns False once the time is up."""
    loop = asyncio.get_running_loop()
    until = loop.time() + held.wait_s
    with wakeups.expect(*held.topics) as waiter:
        while True:
            waiter.take()
            if await _looks_new(held):
                return True
            looked_s = loop.time()
            if looked_s >= until or wakeups.is_closing:
                return False
            hint = asyncio.create_task(waiter.event.wait())
            await asyncio.wait({hint, hanging_up}, timeout=min(until - looked_s, LOOK_AGAIN_S), return_when=asyncio.FIRST_COMPLETED)
            hint.cancel()
            if hanging_up.done():
                return False
            await asyncio.sleep(max(looked_s + GAP_S - loop.time(), 0.0))


async def _looks_new(held: Held) -> bool:
    try:
        return await in_db_thread(held.has_news)
    except (OperationalError, InterfaceError):
        return True  # the answer tells that the database is away


@contextmanager
def _place(account: UUID) -> Iterator[bool]:
    """Gives False where too many are held already."""
    is_free = _held_by[account] < ACCOUNT_MAX and _held_by.total() < PROCESS_MAX
    _held_by[account] += is_free
    try:
        yield is_free
    finally:
        _held_by[account] -= is_free
        if not _held_by[account]:
            del _held_by[account]


def _too_many() -> Messages:
    detail = (
        f"This server holds at most {ACCOUNT_MAX} calls of an account, and {PROCESS_MAX} in all. Ask without {WAIT}, or end another call."
    )
    body = json.dumps(problem(status=429, code="too_many_held", title="Too many calls wait", detail=detail)).encode()
    headers = [(b"content-type", CONTENT_TYPE.encode()), (b"content-length", str(len(body)).encode())]
    start = {"type": "http.response.start", "status": 429, "headers": headers}
    return [start, {"type": "http.response.body", "body": body}]
