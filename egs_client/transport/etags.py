"""Remembers the ETags of objects that were read, so that a change of one says which state of it was meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

KEPT_MAX = 1_000
Key = tuple[str, str]  # the address of its list, and its id


class Etags:
    """An object is known under the address by which it was asked for, and under that of its id."""

    def __init__(self) -> None:
        self._known: dict[Key, str] = {}
        self._keys: dict[str, Key] = {}

    def of(self, path: str) -> str | None:
        key = self._keys.get(path)
        return self._known.get(key) if key is not None else None

    def hear(self, http: str, path: str, etag: str, found: Any) -> None:
        """Hears of an answer.

        An answer that may have changed an object, or showed another state of it without an ETag, makes it unknown.
        """
        if http != "GET":
            self._forget(lambda key: path.startswith("manifests/") or key[0].partition("/")[0] == path.partition("/")[0])
        elif not etag:
            self._forget(lambda key: key[0] == path)
        id_ = getattr(found, "id", None)
        if not etag or not isinstance(id_, str):
            return
        if len(self._keys) >= KEPT_MAX:
            self._known, self._keys = {}, {}
        list_path = path if http == "POST" else f"{path.rstrip('/').rpartition('/')[0]}/"
        key = (list_path, id_)
        self._known[key] = etag.removeprefix("W/")  # a proxy that compresses answers marks them so
        self._keys |= {path: key, f"{list_path}{id_}/": key}

    def _forget(self, is_gone: Callable[[Key], bool]) -> None:
        self._known = {key: etag for key, etag in self._known.items() if not is_gone(key)}
