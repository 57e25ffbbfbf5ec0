"""Follows GPRs and Events. The server holds a call until there is a new Event; one that does not is asked again and again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from msgspec.structs import replace

from egs_client.aio.api import AsyncApi
from egs_client.aio.pages import AsyncPages
from egs_client.errors import AnswerLost, Ended, ServerFault, StaleVersion, Unreachable, WaitedTooLong, WrongState
from egs_client.gprs import ACTIVE, ENDED, OVER, WAITING, sentence_of
from egs_client.models.gpr import Event, GprDetail

T = TypeVar("T")
LOOK_LEAST_S, LOOK_MOST_S = 0.25, 3.0
HOLD_S = 20.0
HELD_LEAST_S = 0.9
GPR_HOLD_S = 5.0  # without an Event its position and its planned start change
# An Event gets its time before it is stored, so that an older one can appear after a newer one.
OVERLAP_S = 60.0


async def watch_gpr(client: AsyncApi, id: str, *, away_max_s: float | None = None, look_s: float | None = None) -> AsyncIterator[GprDetail]:
    last: GprDetail | None = None
    events, look = client.events.list(gpr=id, page_size=5), Looks(min(look_s or GPR_HOLD_S, GPR_HOLD_S), away_max_s)
    while True:
        try:
            await look.news(events, has_rest=False)
            gpr = await client.gprs.get(id)
        except (Unreachable, ServerFault) as error:
            look.missed(error)
        else:
            has_changed = last is None or has_news(last, gpr)
            look.found(has_changed=has_changed)
            last = gpr
            if has_changed or look_s is not None:
                yield gpr
            if gpr.state in ENDED:
                return
        await asyncio.sleep(look.pause_s)


async def watch_events(
    client: AsyncApi, *, since: datetime | str | None = None, away_max_s: float | None = None, **filters: Any
) -> AsyncIterator[Event]:
    known: set[str] = set()
    if since is None:
        newest = await client.events.list(page_size=1, **filters).all(limit=1)
        last_at = newest[0].at if newest else datetime.now(UTC)
        begun_at = last_at - timedelta(seconds=OVERLAP_S)
        known = {event.id async for event in client.events.list(since=begun_at, page_size=500, **filters)}
    else:
        begun_at = last_at = datetime.fromisoformat(since) if isinstance(since, str) else since
    look = Looks(HOLD_S, away_max_s)
    while True:
        begin_at = max(begun_at, last_at - timedelta(seconds=OVERLAP_S))
        try:
            rows = await look.news(client.events.list(since=begin_at, page_size=500, **filters))
        except (Unreachable, ServerFault) as error:
            look.missed(error)
        else:
            news = [event for event in reversed(rows or []) if event.id not in known]
            look.found(has_changed=bool(news))
            if rows is not None:
                known = {event.id for event in rows}  # others are too old to come again
            for event in news:
                last_at = max(last_at, event.at)
                yield event
        await asyncio.sleep(look.pause_s)


async def gpr_wait(client: AsyncApi, id: str, *, for_s: float | None = None) -> GprDetail:
    until_s = None if for_s is None else time.monotonic() + for_s
    events, look = client.events.list(gpr=id, page_size=5), Looks(GPR_HOLD_S, for_s)
    last: GprDetail | None = None
    while True:
        try:
            await look.news(events, has_rest=False, until_s=until_s)
            gpr = await client.gprs.get(id)
        except (Unreachable, ServerFault) as error:
            look.missed(error)
        else:
            look.found(has_changed=last is None or has_news(last, gpr))
            last = gpr
            if gpr.state == ACTIVE:
                return gpr
            if gpr.state in OVER:
                raise Ended(sentence_of(gpr), gpr=gpr)
        if until_s is not None and time.monotonic() + look.pause_s > until_s:
            raise WaitedTooLong(f"The GPR {id} is not active after {for_s:.0f} s. It goes on waiting.", gpr=last)
        await asyncio.sleep(look.pause_s)


async def gpr_end(client: AsyncApi, id: str) -> GprDetail:
    gpr = await client.gprs.get(id)
    while gpr.state not in OVER:
        try:
            if gpr.state in WAITING:
                await client.gprs.delete(id, if_match="*")  # whatever it is by now
            else:
                return await client.gprs.release(id)
        except (WrongState, StaleVersion, AnswerLost):
            pass  # it started, or ended, between our reading and asking
        gpr = await client.gprs.get(id)
    return gpr


def has_news(old: GprDetail, new: GprDetail) -> bool:
    """Tells whether anything changed but the time that is left."""
    return replace(old, time_left_s=None) != replace(new, time_left_s=None)


class Looks:
    """Says how long the server holds a look, how long to pause between two, and how long the server may be away."""

    def __init__(self, hold_s: float, away_max_s: float | None) -> None:
        self.pause_s = LOOK_LEAST_S
        self._hold_s, self._etag, self._held_s = hold_s, "", 0.0
        self._away_max_s = away_max_s
        self._seen_s = time.monotonic()

    async def news(self, pages: AsyncPages[T], *, has_rest: bool = True, until_s: float | None = None) -> list[T] | None:
        """Returns the rows; None: they are the same as before."""
        begun_s = time.monotonic()
        hold_s = self._hold_s if until_s is None else max(min(self._hold_s, until_s - begun_s), 0.0)
        rows, self._etag = await pages.news(self._etag, wait_s=hold_s, has_rest=has_rest)
        self._held_s = time.monotonic() - begun_s if self._etag else 0.0  # a server that is slow holds nothing
        return rows

    def found(self, *, has_changed: bool) -> None:
        self._seen_s = time.monotonic()
        if has_changed:
            self.pause_s = LOOK_LEAST_S
        elif self._held_s >= HELD_LEAST_S:
            self.pause_s = 0.0
        else:  # the server does not hold calls
            self.pause_s = min(max(self.pause_s, LOOK_LEAST_S) * 1.3, LOOK_MOST_S)

    def missed(self, error: Exception) -> None:
        """Raises the error when the server has been away for too long."""
        if self._away_max_s is not None and time.monotonic() - self._seen_s > self._away_max_s:
            raise error
        self.pause_s = LOOK_MOST_S
