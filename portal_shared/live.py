"""Serves the WebSocket of a page: it sends hints, and the page fetches its fragments.

Rights are checked on connect, on hints about the user, and every RECHECK_S.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import structlog
from channels.exceptions import StopConsumer
from channels.generic.websocket import AsyncJsonWebsocketConsumer
from django.conf import settings
from django.http import QueryDict
from django.http.cookie import parse_cookie
from django.http.request import split_domain_port, validate_host

from accounts.models import User
from accounts.policy import is_overseer
from accounts.sessions import session_load, session_login
from core.clock import db_now
from core.db_threads import in_db_thread
from journal.hints import ALERTS, INVENTORY, LOST, PLAN, SLICE, TEMPLATES, USER, hints_flow, kind_of, slice_topic, user_topic
from journal.models import Event
from journal.wakeups import Waiter, wakeups
from slices.selectors import slices_visible_to

log = structlog.get_logger(__name__)

RECHECK_S = 30.0
GAP_S = 0.25  # combines bursts of changes into one message
SIGNED_OUT, FOREIGN, STOPPING, BROKEN, NO_HINTS = 4401, 4403, 1001, 1011, 1013

# The triggers of page fragments, by kind of hint.
PAGE_TOPICS: dict[str, tuple[str, ...]] = {
    ALERTS: ("alerts",),
    SLICE: ("alerts", "gpr", "plan", "queue", "schedule"),
    PLAN: ("plan", "queue"),
    INVENTORY: ("gpus", "schedule"),
    TEMPLATES: ("gpr",),
    USER: ("notices",),
}
ADMIN_TOPICS = {"queue", "schedule"}


@dataclass(frozen=True, slots=True)
class Listener:
    user: User
    sees_all: bool
    topics: frozenset[str]


def listener_of(session_key: str) -> Listener | None:
    """Returns None when nobody is signed in. Members hear of their own workspaces only."""
    login = session_login(session_load(session_key), now=db_now())
    if login is None:
        return None
    topics = {user_topic(login.user_id), LOST, TEMPLATES}
    sees_all = is_overseer(login.user)
    if sees_all:
        topics |= {ALERTS, SLICE, PLAN, INVENTORY}
    else:
        topics |= {slice_topic(slice_id) for slice_id in slices_visible_to(login.user).values_list("pk", flat=True)}
    return Listener(login.user, sees_all, frozenset(topics))


def made_s(query: bytes) -> float:
    """Returns when the page was rendered; 0 if unknown."""
    try:
        return float(QueryDict(query).get("since") or 0)
    except ValueError:
        return 0.0


def has_news(listener: Listener, since_s: float) -> bool:
    """Tell whether an Event since then may concern the listener."""
    news = Event.objects.order_by("-id")
    if not listener.sees_all:
        news = news.filter(slice_id__in=slices_visible_to(listener.user).values("pk"))
    last_at = news.values_list("at", flat=True).first()
    return last_at is not None and last_at.timestamp() >= since_s


class LiveConsumer(AsyncJsonWebsocketConsumer):
    _task: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self.scope["headers"]}
        if not is_same_origin(headers):
            await self.close(FOREIGN)
            return
        self._page_made_s = made_s(self.scope["query_string"])
        self._session_key = parse_cookie(headers.get("cookie", "")).get(settings.SESSION_COOKIE_NAME, "")
        listener = await self._look()
        if listener is None:
            await self.accept()
            await self.close(SIGNED_OUT)  # a browser can read the code only after accept
            return
        if not hints_flow():
            await self.close(NO_HINTS)  # without accept, since the page would show that it is live
            return
        self._task = asyncio.create_task(self._tell(listener))

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None, **kwargs: Any) -> None:
        """Pages send nothing."""

    async def disconnect(self, code: int) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        raise StopConsumer

    async def _tell(self, first: Listener) -> None:
        """An open socket makes the page show that it is live, so every error closes it."""
        listener: Listener | None = first
        try:
            while listener is not None:
                listener = await self._tell_while(listener, is_first=listener is first)
        except Exception as error:
            log.warning("live_broken", error=type(error).__name__)  # mostly: the database is away
            await self.close(BROKEN)
        else:
            await self.close(_code_of_end())

    async def _tell_while(self, listener: Listener, *, is_first: bool) -> Listener | None:
        """Returns the new rights when they change."""
        loop = asyncio.get_running_loop()
        look_at = loop.time() + RECHECK_S
        with wakeups.expect(*listener.topics) as waiter:
            if is_first:
                await self.accept()
            # Changes since the page was rendered, or while the rights were checked, may have been missed.
            if not is_first or await in_db_thread(lambda: has_news(listener, self._page_made_s)):
                await self.send_json({"topics": page_topics({ALERTS, SLICE, PLAN, INVENTORY, USER}, listener)})
            while not wakeups.is_closing and hints_flow():
                topics = await _topics(waiter, look_at - loop.time())
                if names := page_topics(topics, listener):
                    await self.send_json({"topics": names})
                if user_topic(listener.user.pk) in topics or loop.time() >= look_at:
                    found = await self._look()
                    if found != listener:
                        return found
                    look_at = loop.time() + RECHECK_S
                await asyncio.sleep(GAP_S)
        return None

    async def _look(self) -> Listener | None:
        return await in_db_thread(lambda: listener_of(self._session_key))


def _code_of_end() -> int:
    if wakeups.is_closing:
        return STOPPING
    return SIGNED_OUT if hints_flow() else NO_HINTS


async def _topics(waiter: Waiter, within_s: float) -> set[str]:
    """Returns nothing on timeout."""
    with suppress(TimeoutError):
        await asyncio.wait_for(waiter.event.wait(), timeout=max(within_s, 0.0))
    return waiter.take()


def page_topics(topics: set[str], listener: Listener) -> list[str]:
    names = {name for topic in topics for name in PAGE_TOPICS.get(kind_of(topic), ())}
    return sorted(names if listener.sees_all else names - ADMIN_TOPICS)


def is_same_origin(headers: dict[str, str]) -> bool:
    """Browsers send cookies with WebSockets from any site."""
    host = headers.get("host", "")
    domain, _ = split_domain_port(host)
    if not domain or not validate_host(domain, settings.ALLOWED_HOSTS or [".localhost", "127.0.0.1", "[::1]"]):
        return False
    return urlsplit(headers.get("origin", "")).netloc.lower() == host.lower()
