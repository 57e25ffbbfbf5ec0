"""Keeps a local copy of all objects of one path by one thread with one watch.

A server that refuses to start a watch with all objects (sendInitialEvents) is listed, then watched. While everything is read again the old
copy stays.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Generic, TypeVar

import msgspec

from protocol.decoding import decode, decoder
from worker_agent.clock import Instant, SystemClock
from worker_agent.cluster.base import ClusterError, Note, Throttled, Unavailable, WriteConflict
from worker_agent.kube.api.client import Api, Forbidden, Missing, Params, Status, StreamLines, VersionGone
from worker_agent.kube.api.objects import HasMeta, Meta
from worker_agent.kube.api.replica import Key, Replica, Rewound, key_of, version_of

T = TypeVar("T", bound=HasMeta)

SILENCE_S: Final = 120.0  # bookmarks come each minute, so a stream that is silent for longer is dead
STOP_LOOK_S: Final = 0.05
PAGE_COUNT: Final = 500
INITIAL_END: Final = "k8s.io/initial-events-end"
# The pause between attempts is random from 0 to this limit, which doubles with each attempt in a row that received nothing.
PAUSE_S, PAUSE_MOST_S = 0.1, 10.0


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw  # decoded separately: an unreadable object does not hide the others


class _ListMeta(msgspec.Struct, frozen=True):
    resourceVersion: str = ""
    annotations: dict[str, str] | None = None
    next: str = msgspec.field(name="continue", default="")


class _Bookmark(msgspec.Struct, frozen=True):
    metadata: _ListMeta


class _Page(msgspec.Struct, frozen=True):
    metadata: _ListMeta
    items: tuple[msgspec.Raw, ...] | None = None

    @property
    def version(self) -> int:
        return version_of(self.metadata.resourceVersion)


class _Deleted(msgspec.Struct, frozen=True):
    metadata: Meta


_event = decoder(_Event).decode
_bookmark = decoder(_Bookmark).decode
_deleted = decoder(_Deleted).decode


def _ignore() -> None:
    pass


def _any(_: object) -> bool:
    return True


class Mirror(Generic[T]):
    """Reading it makes no call. The thread calls `on_change` after each change from the server."""

    def __init__(
        self,
        *,
        api: Api,
        path: str,
        type_: type[T],
        note: Note,
        params: Params | None = None,
        on_change: Callable[[], None] = _ignore,
        keeps: Callable[[T], bool] = _any,
    ) -> None:
        """`keeps` must answer the same for an object as long as it exists."""
        self._api, self._path, self._params, self._note, self._on_change = api, path, params or {}, note, on_change
        self._object = decoder(type_).decode
        self._keeps = keeps
        self._replica: Replica[T] = Replica()
        self._fresh: dict[Key, T] | None = {}  # the new copy while everything is read again; None while changes are followed
        self._lists = self._always_lists = False
        self._failures = 0  # attempts in a row that received nothing
        self._refused_as: type[Exception] | None = None  # 404 or 403 from an older installation; logged once
        self._heard_at: Instant | None = None
        self._lines: StreamLines | None = None
        self._is_whole, self._is_stopping = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"egs-mirror {path}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when the thread has ended; the copy stays."""
        # The thread must not read on while the caller closes the Api: the number of its socket may then be that of another file.
        self._is_stopping.set()
        while self._thread.is_alive():
            lines = self._lines
            if lines is not None:
                lines.cut()
            self._thread.join(STOP_LOOK_S)

    def wait_whole(self, timeout_s: float) -> bool:
        return self._is_whole.wait(timeout_s)

    @property
    def is_whole(self) -> bool:
        """Tell whether the copy was complete once. From then on it may only be late."""
        return self._is_whole.is_set()

    @property
    def silent_for_s(self) -> float:
        """It is infinite before the first answer. Up to a minute is normal."""
        return self._heard_at.age_s(SystemClock()) if self._heard_at else float("inf")

    @property
    def serial(self) -> int:
        """Read it before objects(), so that a change in between is seen the next time."""
        return self._replica.serial

    def objects(self) -> Mapping[Key, T]:
        """Returns all objects by namespace ("" for cluster-scoped kinds) and name, in a new mapping after each change."""
        return self._replica.objects()

    def learn(self, obj: T) -> None:
        """Takes in the answer to one of the agent's own writes, unless the copy is newer."""
        self._replica.learn(obj)

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            self._is_stopping.wait(self._attempt())

    def _attempt(self) -> float:
        """Returns the pause in seconds."""
        heard, least_s = self._heard_at, 0.0
        try:
            self._follow()
        except (VersionGone, Rewound) as error:  # the server no longer has that version, or was restored from a backup
            self._begin_again(str(error))
        except Exception as error:
            self._handle_failure(error)
            least_s = error.retry_after_s if isinstance(error, Throttled) else 0.0
        self._failures = self._failures + 1 if self._heard_at is heard else 0
        most_s = min(PAUSE_MOST_S, PAUSE_S * 2.0 ** min(self._failures, 16))
        return max(least_s, random.uniform(0.0, most_s))  # noqa: S311  # jitter

    def _begin_again(self, why: str) -> None:
        self._note("watch_begins_anew", {"path": self._path, "why": why})
        self._fresh = {}

    def _handle_failure(self, error: Exception) -> None:
        if self._is_stopping.is_set():
            return
        if self._fresh is not None and not self._lists and isinstance(error, WriteConflict) and not isinstance(error, Missing):
            # This is no fault: servers without the feature WatchList (all of Kubernetes 1.30, 1.31 and 1.33) refuse such a watch.
            self._lists = self._always_lists = True
            return
        before, self._refused_as = self._refused_as, type(error) if isinstance(error, Missing | Forbidden) else None
        if self._refused_as is None or self._refused_as is not before:
            self._note("watch_broke", {"path": self._path, "why": str(error) or type(error).__name__})
        if self._fresh is not None:
            # The server refused it or could not bear it: the next attempt uses the other way.
            self._fresh, self._lists = {}, self._always_lists or not self._lists

    def _follow(self) -> None:
        """Runs until the server ends the stream. Raises ClusterError and Rewound."""
        if self._fresh is None:
            self._check_version()
        elif self._lists:
            self._take_all(*self._listed())
        with self._api.stream(self._path, self._watch_params(), silence_s=SILENCE_S) as lines:
            self._lines = lines
            try:
                self._take_lines(lines)
            finally:
                self._lines = None
        if self._fresh is not None:
            raise Unavailable(f"the watch of {self._path} ended before all had come")

    def _watch_params(self) -> Params:
        params: Params = {**self._params, "watch": True, "allowWatchBookmarks": True}
        if self._fresh is None:
            return {**params, "resourceVersion": str(self._replica.version)}
        return {**params, "sendInitialEvents": True, "resourceVersionMatch": "NotOlderThan"}

    def _check_version(self) -> None:
        # A watch from a version that is still to come, as after a restore from a backup, would stay silent.
        at = self._api.get(self._path, _Page, limit=1, **self._params).version
        if at < self._replica.version:
            raise Rewound(f"the server is at version {at}, and told of {self._replica.version} before")

    def _listed(self) -> tuple[dict[Key, T], int]:
        """Returns all objects, and their common version."""
        objects: dict[Key, T] = {}
        following: Params = {}
        while True:
            page = self._api.get(self._path, _Page, limit=PAGE_COUNT, **self._params, **following)
            objects.update((key_of(obj), obj) for obj in self._readable(page))
            if not page.metadata.next:
                return objects, page.version
            following = {"continue": page.metadata.next}

    def _readable(self, page: _Page) -> Iterator[T]:
        for raw in page.items or ():
            obj = self._read(raw)
            if obj is not None:
                yield obj

    def _take_lines(self, lines: StreamLines) -> None:
        for line in lines:
            try:
                self._take_event(_event(line))
            except msgspec.DecodeError as error:
                raise Unavailable(f"a line of the watch of {self._path} cannot be read: {error}") from error
            if self._is_stopping.is_set():
                return

    def _take_event(self, event: _Event) -> None:
        if event.type == "ERROR":
            raise _refusal(decode(event.object, Status))
        self._heard_at = Instant.of(SystemClock())
        if event.type == "BOOKMARK":
            self._take_bookmark(_bookmark(event.object).metadata)
        elif event.type == "DELETED":
            self._drop(_deleted(event.object))
        elif (obj := self._read(event.object)) is not None:
            self._put(obj)

    def _take_bookmark(self, mark: _ListMeta) -> None:
        version = version_of(mark.resourceVersion)
        if self._fresh is None:
            self._replica.reach(version)
        elif INITIAL_END in (mark.annotations or {}):
            self._take_all(self._fresh, version)

    def _take_all(self, objects: dict[Key, T], version: int) -> None:
        self._replica.replace(objects, version)
        self._fresh, self._lists = None, self._always_lists
        self._heard_at = Instant.of(SystemClock())
        self._refused_as = None
        self._is_whole.set()
        self._on_change()

    def _put(self, obj: T) -> None:
        if self._fresh is not None:
            self._fresh[key_of(obj)] = obj
            return
        self._replica.put(obj)
        self._on_change()

    def _drop(self, obj: HasMeta) -> None:
        if self._fresh is not None:
            self._fresh.pop(key_of(obj), None)
            return
        self._replica.drop(obj)
        self._on_change()

    def _read(self, raw: msgspec.Raw) -> T | None:
        """Returns None for an unreadable object, and for one that is not kept."""
        try:
            obj = self._object(raw)
            return obj if self._keeps(obj) else None
        except msgspec.DecodeError as error:
            self._note("object_unreadable", {"path": self._path, "why": str(error), "object": bytes(raw)[:200].decode(errors="replace")})
            return None


def _refusal(status: Status) -> ClusterError:
    text = f"the watch says {status.code} {status.reason} {status.message}"
    return VersionGone(text) if status.code == 410 or status.reason in ("Expired", "Gone") else Unavailable(text)
