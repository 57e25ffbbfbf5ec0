"""Builds the ASGI application. Agents and probes bypass Django's middleware and its thread per request."""

from __future__ import annotations

import asyncio
import io
import json
import os
import warnings
from collections.abc import MutableMapping
from functools import partial
from typing import Any

import structlog
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.handlers.asgi import ASGIRequest
from django.db import InterfaceError, OperationalError
from django.http import HttpResponse
from django.urls import Resolver404, resolve

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "egs.settings")
# Static files are small: Django may read each at once in a thread, and need not warn about it.
warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous iterators")
django_application = get_asgi_application()

# These imports need loaded apps.
from core.clock import db_now  # noqa: E402
from core.db_threads import in_db_thread  # noqa: E402
from core.rest.held import may_be_held  # noqa: E402
from core.rest.problems import CONTENT_TYPE, problem  # noqa: E402
from egs.health import HEALTH_PATHS  # noqa: E402
from egs.holding import hold  # noqa: E402
from egs.metrics import App, Receive, Scope, Send, measure  # noqa: E402
from gpr.allocation.absence import SERVED_EVERY_S, web_server_seen  # noqa: E402
from gpr.allocation.live import live_check  # noqa: E402
from portal_shared.live import LiveConsumer  # noqa: E402
from portal_shared.shell import LIVE_URL  # noqa: E402
from protocol.agents.transport import BODY_MAX_BYTES  # noqa: E402

AGENT_PREFIX = "/agent/v1/"
log = structlog.get_logger(__name__)
live_application: Any = LiveConsumer.as_asgi()


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
    elif scope["type"] == "websocket":
        await _websocket(scope, receive, send)
    elif scope["path"] in HEALTH_PATHS:
        await _health(scope, receive, send)
    else:
        is_agent = scope["path"].startswith(AGENT_PREFIX)
        await measure(_agent if is_agent else _with_body_limit, scope, receive, send)


async def _with_body_limit(scope: Scope, receive: Receive, send: Send) -> None:
    """Refuses bodies beyond the limit: Django would write them to disk before it checks who sent them."""
    most_bytes: int = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    read_bytes = 0

    async def bounded_receive() -> MutableMapping[str, Any]:
        nonlocal read_bytes
        message = await receive()
        read_bytes += len(message.get("body", b""))
        # Django treats this as a client that hung up in the middle of its body.
        return {"type": "http.disconnect"} if read_bytes > most_bytes else message

    length = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    if not (length.isdigit() and int(length) > most_bytes):
        if may_be_held(scope):
            await hold(django_application, scope, bounded_receive, send)
        else:
            await django_application(scope, bounded_receive, send)
        if read_bytes <= most_bytes:
            return
    detail = f"Send at most {most_bytes} bytes."
    body = json.dumps(problem(status=413, code="too_large", title="Too large", detail=detail)).encode()
    headers = [(b"content-type", CONTENT_TYPE.encode()), (b"content-length", str(len(body)).encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _without_middleware(scope: Scope, receive: Receive, send: Send, *, urls: str, methods: set[str]) -> None:
    """Run a view of the module `urls` without middleware, so that a parked sync costs one task only."""
    body = await _body(receive)
    if body is None:
        return
    try:
        match = resolve(scope["path"], urls)
        allowed = scope["method"] in methods
        request = ASGIRequest(scope, io.BytesIO(body))
        response = await match.func(request) if allowed else HttpResponse(status=405)
    except Resolver404:
        response = HttpResponse(status=404)
    except (OperationalError, InterfaceError):
        # The database is away. The agent goes on to end boxes on time, and asks again.
        response = HttpResponse(status=503, headers={"Retry-After": "2"})
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in response.items()]
    headers.append((b"content-length", str(len(response.content)).encode()))
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": response.content})


_agent: App = partial(_without_middleware, urls="egs.agent_urls", methods={"POST"})
_health: App = partial(_without_middleware, urls="egs.health", methods={"GET", "HEAD"})


async def _websocket(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["path"] == LIVE_URL:
        await live_application(scope, receive, send)
    else:
        await send({"type": "websocket.close"})


async def _body(receive: Receive) -> bytes | None:
    """Returns None when the client hung up. Reads at most one chunk past the limit."""
    chunks = io.BytesIO()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        if chunks.tell() <= BODY_MAX_BYTES:
            chunks.write(message.get("body", b""))
        if not message.get("more_body", False):
            return chunks.getvalue()


async def _lifespan(receive: Receive, send: Send) -> None:
    presence = asyncio.create_task(_record_presence())
    try:
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return
    finally:
        presence.cancel()


async def _record_presence() -> None:
    """Uses the threads that serve agents: when these hang, this process does not count as serving."""
    while True:
        try:
            await in_db_thread(lambda: web_server_seen(now=db_now()))
            await in_db_thread(lambda: live_check(now=db_now()))
        except Exception:
            # While the database is away, agents are not served either.
            log.exception("presence_failed")
        await asyncio.sleep(SERVED_EVERY_S)
