"""Wakes parked agents and open pages of this process on hints."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from journal.hints import kind_of, listen


class Waiter:
    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.event = asyncio.Event()
        self._topics: set[str] = set()

    def take(self) -> set[str]:
        self.event.clear()
        topics, self._topics = self._topics, set()
        return topics

    def came(self, topic: str) -> None:
        self._topics.add(topic)
        self.event.set()


class Wakeups:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, set[Waiter]] = {}
        self._is_listening = False
        self.is_closing = False

    @contextmanager
    def expect(self, *topics: str) -> Iterator[Waiter]:
        """`kind_of(topic)` stands for all topics of a kind."""
        waiter = Waiter()
        with self._lock:
            if not self._is_listening:
                listen(self.wake)
                self._is_listening = True
            for topic in topics:
                self._waiting.setdefault(topic, set()).add(waiter)
        try:
            yield waiter
        finally:
            with self._lock:
                for topic in topics:
                    self._waiting[topic].discard(waiter)
                    if not self._waiting[topic]:
                        del self._waiting[topic]

    def close(self) -> None:
        self.is_closing = True
        for topic in tuple(self._waiting):
            self.wake(topic)

    def wake(self, topic: str) -> None:
        with self._lock:
            waiters = self._waiting.get(topic, set()) | self._waiting.get(kind_of(topic), set())
        for waiter in waiters:
            if not waiter.loop.is_closed():
                waiter.loop.call_soon_threadsafe(waiter.came, topic)


wakeups = Wakeups()
