"""Reads long lists page by page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

import msgspec

from worker_agent.kube.api.client import Api

T = TypeVar("T")

PAGE_COUNT: Final = 100  # tenants may make objects large: annotations alone may have 256 KiB


class ListMeta(msgspec.Struct, frozen=True):
    next: str = msgspec.field(name="continue", default="")


class ObjectPage(msgspec.Struct, Generic[T], frozen=True):
    items: tuple[T, ...] = ()
    metadata: ListMeta = ListMeta()


def listed(api: Api, path: str, page_type: type[ObjectPage[T]], *, page_count: int = PAGE_COUNT, **selectors: str) -> Iterator[T]:
    """Raises ClusterError, also in the middle, when the server has dropped the list."""
    after: dict[str, str] = {}
    while True:
        page = api.get(path, page_type, limit=page_count, **after, **selectors)
        yield from page.items
        if not page.metadata.next:
            return
        after = {"continue": page.metadata.next}
