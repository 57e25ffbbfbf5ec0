# `make client` writes this file. Do not edit it.
"""Reads lists, page by page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar
from urllib.parse import parse_qs, urlsplit

from egs_client.sync.transport import Transport
from egs_client.transport.answers import Page

T = TypeVar("T")


class Pages(Generic[T]):
    """Iterate over it: it reads the next page when it needs one."""

    def __init__(self, client: Transport, path: str, *, kind: type[T], params: Mapping[str, Any] | None = None) -> None:
        self._client, self._path, self._kind, self._params = client, path, kind, dict(params or {})

    def page(self, cursor: str | None = None) -> Page[T]:
        params = {**self._params, "cursor": cursor} if cursor else self._params
        kind: Any = Page[self._kind]  # type: ignore[name-defined]  # a type of the run
        found: Page[T] = self._client.call("GET", self._path, params=params, kind=kind)
        return found

    def __iter__(self) -> Iterator[T]:
        cursor: str | None = None
        while True:
            page = self.page(cursor)
            for row in page.results:
                yield row
            if page.next is None:
                return
            # Not the whole address: a proxy may have another than the server knows.
            cursor = parse_qs(urlsplit(page.next).query)["cursor"][0]

    def all(self, *, limit: int | None = None) -> list[T]:
        rows: list[T] = []
        for row in self:
            if limit is not None and len(rows) >= limit:
                break
            rows.append(row)
        return rows
