"""Reads lists, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Generic, TypeVar
from urllib.parse import parse_qs, urlsplit

from egs_client.aio.transport import AsyncTransport
from egs_client.errors import InvalidInput, TooManyHeld
from egs_client.transport.answers import Page
from egs_client.transport.asks import WAIT

T = TypeVar("T")


class AsyncPages(Generic[T]):
    """Iterate over it: it reads the next page when it needs one."""

    def __init__(self, client: AsyncTransport, path: str, *, kind: type[T], params: Mapping[str, Any] | None = None) -> None:
        self._client, self._path, self._kind, self._params = client, path, kind, dict(params or {})

    async def page(self, cursor: str | None = None) -> Page[T]:
        params = {**self._params, "cursor": cursor} if cursor else self._params
        found: Page[T] = await self._client.call("GET", self._path, params=params, kind=self._page_kind())
        return found

    async def __aiter__(self) -> AsyncIterator[T]:
        page: Page[T] | None = await self.page()
        while page is not None:
            for row in page.results:
                yield row
            page = await self._after(page)

    async def news(self, etag: str, *, wait_s: float, has_rest: bool = True) -> tuple[list[T] | None, str]:
        """Returns all rows, or without `has_rest` those of the first page, once that is another than `etag` names, and its ETag.

        None: it is the same after `wait_s`. A server that cannot wait, or not for this caller now, answers at once and without an ETag.
        """
        try:
            found = await self._client.news(self._path, kind=self._page_kind(), params=self._params, etag=etag, wait_s=wait_s)
        except (TooManyHeld, InvalidInput) as error:
            if isinstance(error, InvalidInput) and WAIT not in error.errors:
                raise
            found = await self.page(), ""
        page, etag = found
        if page is None:
            return None, etag
        rows: list[T] = []
        while page is not None:
            rows += page.results
            page = await self._after(page) if has_rest else None
        return rows, etag

    def _page_kind(self) -> Any:
        return Page[self._kind]  # type: ignore[name-defined]  # a type of the run

    async def _after(self, page: Page[T]) -> Page[T] | None:
        # Not the whole address: a proxy may have another than the server knows.
        return await self.page(parse_qs(urlsplit(page.next).query)["cursor"][0]) if page.next is not None else None

    async def all(self, *, limit: int | None = None) -> list[T]:
        rows: list[T] = []
        async for row in self:
            if limit is not None and len(rows) >= limit:
                break
            rows.append(row)
        return rows
