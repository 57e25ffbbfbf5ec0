"""Sends requests, and asks again while the server is away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from egs_client.config import is_readable_by_others
from egs_client.errors import AnswerLost, NotSetUp, StaleVersion, Unreachable
from egs_client.transport.answers import read, refuse
from egs_client.transport.asks import USER_AGENT, WAIT, Ask, ask
from egs_client.transport.etags import Etags
from egs_client.transport.retries import Patience

log = logging.getLogger("egs_client")
T = TypeVar("T")
PATIENCE_S, TIMEOUT_S = 30.0, 30.0
CHANGES = {"PATCH", "DELETE"}
TRIES = "egs_tries"
NOT_MODIFIED = 304
MAYBE_OWN = "The connection broke, and now the object is another, perhaps by this very change. Look at it before you repeat it."


class AsyncTransport:
    """`patience_s` is how long a request is tried again while the server is away or has no time."""

    def __init__(self, url: str, token: str, *, patience_s: float = PATIENCE_S, timeout_s: float = TIMEOUT_S) -> None:
        self.url = url.rstrip("/")
        self.patience_s, self._timeout_s = patience_s, timeout_s
        self._etags = Etags()
        self.on_pause: Callable[[float, str], None] | None = None  # hears of each pause: its seconds and its cause
        if not (token.isascii() and token.isprintable()):
            raise NotSetUp("The token has characters that no token has. Copy it again: egs login, or EGS_TOKEN.")
        if is_readable_by_others(self.url):
            log.warning("%s has no TLS, so others can read your token. Use https.", self.url)
        headers = {"User-Agent": USER_AGENT, "Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        try:
            self._http = httpx.AsyncClient(base_url=f"{self.url}/api/v1/", headers=headers, timeout=timeout_s)
        except httpx.InvalidURL as error:
            raise NotSetUp(f"{self.url} is no address of a server: {error}.") from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()

    async def call(
        self,
        http: str,
        path: str,
        *,
        kind: type[T],
        params: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        is_keyed: bool = False,
        key: str | None = None,
        if_match: str | None = None,
    ) -> T:
        """Calls one operation of the API. A change of an object that was read before is for that state of it. Raises an EgsError."""
        if http in CHANGES:
            if_match = if_match or self._etags.of(path)
        answer = await self._send(ask(http, path, params=params, body=body, is_keyed=is_keyed, key=key, if_match=if_match))
        try:
            found: T = read(answer.content, status=answer.status_code, kind=kind, url=self.url, headers=answer.headers)
        except StaleVersion:
            if answer.extensions.get(TRIES):
                raise AnswerLost(MAYBE_OWN) from None
            raise
        self._etags.hear(http, path, answer.headers.get("ETag", ""), found)
        return found

    async def news(self, path: str, *, kind: type[T], params: Mapping[str, Any], etag: str, wait_s: float) -> tuple[T | None, str]:
        """Returns an answer other than that of `etag`, and its own ETag; None: there was none within `wait_s`.

        Without an ETag it does not wait. An older server gives none.
        """
        waits = {WAIT: int(min(wait_s, self._timeout_s / 2))} if etag else {}
        answer = await self._send(ask("GET", path, params={**params, **waits}, if_none_match=etag or None))
        if answer.status_code == NOT_MODIFIED:
            return None, etag
        found: T = read(answer.content, status=answer.status_code, kind=kind, url=self.url, headers=answer.headers)
        return found, answer.headers.get("ETag", "")

    async def text(self, http: str, path: str, *, params: Mapping[str, Any] | None = None) -> str:
        """Calls an operation whose answer is no object."""
        answer = await self._send(ask(http, path, params=params))
        refuse(answer.content, status=answer.status_code, url=self.url, headers=answer.headers)
        return answer.text

    async def _send(self, ask: Ask) -> httpx.Response:
        patience = Patience(self.patience_s)
        while True:
            try:
                answer = await self._http.request(ask.http, ask.path, params=ask.params, headers=ask.headers, content=ask.content)
            except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
                raise Unreachable(f"{self.url} is no address of a server: {error}") from error
            except httpx.TransportError as error:
                pause_s, cause = patience.pause_s(), str(error) or type(error).__name__
                if pause_s is None:
                    raise Unreachable(f"The server at {self.url} does not answer: {cause}.") from error
            else:
                retry_after = answer.headers.get("Retry-After", "")
                pause_s, cause = patience.pause_s(status=answer.status_code, retry_after=retry_after), f"it answers {answer.status_code}"
                # What a repeated DELETE does not find was deleted by an earlier try.
                if patience.tries and ask.http == "DELETE" and answer.status_code == 404:
                    return httpx.Response(204)
                if pause_s is None:
                    answer.extensions[TRIES] = patience.tries
                    return answer
            if self.on_pause is not None:
                self.on_pause(pause_s, cause)
            await asyncio.sleep(pause_s)
