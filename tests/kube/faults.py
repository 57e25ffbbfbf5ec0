"""Faults of an agent on a real cluster: its calls, its connection, its clock."""

from __future__ import annotations

import base64
import json
import random
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from protocol.cluster_names import GUARD_PATH, RECORDS, pointer
from tests.kube.corner import CornerApi
from worker_agent.clock import SystemClock
from worker_agent.cluster.base import ClusterError, GpuPhase, Throttled, Unavailable
from worker_agent.kube.api.client import Access, Api, Forbidden, Params, StreamLines
from worker_agent.kube.driver import STATE_PATH
from worker_agent.kube.nodes.marks import read_records


class FaultyApi(CornerApi):
    """One call in eight goes wrong: refused before anything is done, or done and its answer lost."""

    def __init__(self, access: Access, rng: random.Random) -> None:
        super().__init__(access)
        self._rng = rng

    def _call(self, method: str, path: str, **how: Any) -> bytes:
        luck = self._rng.random()
        if luck < 0.06:
            raise self._rng.choice([Throttled(0.1), Unavailable("500: injected"), Forbidden("403: injected")])
        answer = super()._call(method, path, **how)
        if luck < 0.12:
            raise Unavailable("a time-out after it was done: injected")
        return answer


class PartedApi(CornerApi):
    """Now and then it is cut off for a second or two: from everything, or from what it watches alone, and then it acts on what was."""

    def __init__(self, access: Access, rng: random.Random) -> None:
        super().__init__(access)
        self._rng, self._lock = rng, threading.Lock()
        self._lost, self._until_mono = "", 0.0

    @property
    def lost(self) -> str:
        with self._lock:
            if time.monotonic() > self._until_mono:
                self._lost = self._rng.choice(["", "", "all", "watches"])
                self._until_mono = time.monotonic() + self._rng.uniform(0.3, 2.0)
            return self._lost

    def _call(self, method: str, path: str, **how: Any) -> bytes:
        if self.lost == "all":
            raise Unavailable("cut off before it was asked: injected")
        answer = super()._call(method, path, **how)
        if self.lost == "all":
            raise Unavailable("cut off before the answer came: injected")
        return answer

    @contextmanager
    def stream(self, path: str, params: Params, *, silence_s: float) -> Iterator[StreamLines]:
        with super().stream(path, params, silence_s=silence_s) as lines:
            yield _HeldLines(lines, self)


class _HeldLines(StreamLines):
    """They come when it is no longer cut off."""

    def __init__(self, lines: StreamLines, api: PartedApi) -> None:
        self._lines, self._api = lines, api

    def __iter__(self) -> Iterator[bytes]:
        for line in self._lines:
            while self._api.lost:
                time.sleep(0.02)
            yield line

    def cut(self) -> None:
        self._lines.cut()


class HeardApi(CornerApi):
    """It keeps what was asked, and how it was refused ("" where it was not)."""

    def __init__(self, access: Access) -> None:
        super().__init__(access)
        self.heard: list[tuple[str, str, str]] = []

    def _call(self, method: str, path: str, **how: Any) -> bytes:
        refusal = ""
        try:
            return super()._call(method, path, **how)
        except ClusterError as error:
            refusal = str(error)
            raise
        finally:
            self.heard.append((method, path, refusal))


class StumblingApi(CornerApi):
    """Every other call to the same object fails in the same way, so that each succeeds at the second try; while there is a `fault`."""

    def __init__(self, access: Access) -> None:
        super().__init__(access)
        self.fault = ""
        self._calls, self._lock = Counter[tuple[str, str]](), threading.Lock()

    def _call(self, method: str, path: str, **how: Any) -> bytes:
        with self._lock:
            self._calls[method, path] += bool(self.fault)
            fails = self._calls[method, path] % 2 == 1
        if fails and self.fault in REFUSALS:
            raise REFUSALS[self.fault]()
        answer = super()._call(method, path, **how)
        if fails:
            raise Unavailable("a time-out after it was done: injected")
        return answer


LOST_ANSWER = "a time-out after it was done"
REFUSALS: dict[str, Callable[[], ClusterError]] = {
    "429": lambda: Throttled(0.1),
    "500": lambda: Unavailable("500: injected"),
    "403": lambda: Forbidden("403: injected"),
}


class StillClock(SystemClock):
    """It goes on only as far as a test lets it: what depends on it does not depend on how fast the test runs."""

    def __init__(self) -> None:
        self._wall_s, self._mono_s = super().wall(), super().mono()

    def wall(self) -> float:
        return self._wall_s

    def mono(self) -> float:
        return self._mono_s

    def advance(self, seconds: float) -> None:
        self._wall_s += seconds
        self._mono_s += seconds


class SetClock(SystemClock):
    """Somebody sets it, by up to half a minute, every few looks; and right again."""

    def __init__(self, rng: random.Random) -> None:
        self._rng, self._off_s = rng, 0.0

    def wall(self) -> float:
        if self._rng.random() < 0.02:
            self._off_s = self._rng.choice([0.0, self._rng.uniform(-4.0, 4.0), self._rng.uniform(-30.0, 30.0)])
        return super().wall() + self._off_s


# What an agent speaks to the API server by, by what is wrong with it.
APIS: dict[str, Callable[[Access, random.Random], Api]] = {"calls fail": FaultyApi, "it is cut off": PartedApi}
CLOCK_IS_SET = "its clock is set"


class Crash(BaseException):
    """The process is gone: nothing of ours may catch it."""


class MortalApi(CornerApi):
    """The agent dies before or after the first write of this name is done: from then on nothing that it asks for is done any more.

    `box`: whose life it is, by the id of its assignment. `written`: the names of all writes, in the order in which they were begun.
    """

    def __init__(self, access: Access, *, box: str, dies_at: str = "", is_after: bool = False) -> None:
        super().__init__(access)
        self._box, self._dies_at, self._is_after, self._lock = box, dies_at, is_after, threading.Lock()
        self.written: list[str] = []
        self.is_dead = False

    def _call(self, method: str, path: str, **how: Any) -> bytes:
        if method == "GET" and self.is_dead:
            raise Unavailable("nobody asks any more")  # for threads that only read: their faults would be taken for faults of the test
        with self._lock:
            self._must_live()
            name = self._name(method, path, how.get("body") or b"")
            is_hit = bool(name) and name == self._dies_at and name not in self.written
            self.written += [name] if name else []
            self.is_dead = is_hit and not self._is_after
            self._must_live()
        answer = super()._call(method, path, **how)
        with self._lock:  # else a thread that has just seen it alive would bring it back to life
            self.is_dead |= is_hit
            self._must_live()
        return answer

    def _must_live(self) -> None:
        if self.is_dead:
            raise Crash

    def _name(self, method: str, path: str, body: bytes) -> str:
        """Names a write that matters. Reads and events have the name ""."""
        if method == "GET" or path.endswith("/events"):
            return ""
        if path == STATE_PATH:
            return _saved(body, self._box)
        if path == GUARD_PATH:
            return "guard opened" if _opens(body) else "guard closed"
        if path.startswith("/api/v1/nodes/"):
            return _phase(body)
        return "evicted" if path.endswith("/eviction") else "lifted"


def _saved(secret: bytes, box: str) -> str:
    """Names a write by the last milestone of the box in it, whatever other threads have written by then; without the box it is ""."""
    state = json.loads(zlib.decompress(base64.b64decode(json.loads(secret)["data"]["state"])))
    progress = state.get("progress", {}).get(box)
    if progress is None:
        return ""
    reported = progress.get("reported", [])
    return f"saved {reported[-1]}" if reported else "saved the set"


def _opens(guard_patch: bytes) -> bool:
    """It lists a slice that it did not list before."""
    tested, added = (str(op.get("value") or "") for op in json.loads(guard_patch)[:2])
    return added.count(",") > tested.count(",")


def _phase(node_patch: bytes) -> str:
    (text,) = (
        op["value"] for op in json.loads(node_patch) if op["op"] == "add" and op["path"] == pointer("metadata", "annotations", RECORDS)
    )
    phases = {record.phase for record in read_records(text).values()}
    return f"node {max(phases, key=list(GpuPhase).index)}" if phases else "node taken in"
