"""Asks exporters over HTTP. An answer costs bounded time and memory, and a fault is logged once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import httpx

from worker_agent.cluster.base import Note
from worker_agent.telemetry.exposition import DeviceRow, NotExposition, parse

ANSWER_MAX_BYTES: Final = 96 * 1024 * 1024
SCRAPE_S: Final = 5.0
AT_ONCE: Final = 8
FORMAT: Final = "text/plain;version=0.0.4"


@dataclass(frozen=True, slots=True)
class Exporter:
    url: str
    node: str = ""  # where it runs; "": its rows name the node


@dataclass(frozen=True, slots=True)
class Scrape:
    exporter: Exporter
    rows: list[DeviceRow]


class Scraper:
    def __init__(self, *, note: Note, scrape_s: float = SCRAPE_S) -> None:
        self._note, self._scrape_s = note, scrape_s
        self._client = httpx.Client(headers={"Accept": FORMAT}, follow_redirects=False, trust_env=False)
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="egs-scrape")
        self._told: dict[str, str] = {}  # by URL: what was logged last

    def scrape(self, exporters: list[Exporter]) -> Iterator[Scrape]:
        """Yields the answers as they come; an exporter that fails yields none."""
        for found in self._pool.map(self._scrape, exporters):
            if found is not None:
                yield found

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def _scrape(self, exporter: Exporter) -> Scrape | None:
        try:
            with self._client.stream("GET", exporter.url, timeout=httpx.Timeout(self._scrape_s)) as answer:
                if answer.status_code != 200:
                    raise NotExposition(f"it answers {answer.status_code}")
                found = parse(self._bounded(answer), now_s=time.time())
        except (NotExposition, httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            self._tell(exporter, f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
            return None
        faults = [f"{count} {what}" for count, what in ((found.bad_count, "unreadable rows"), (found.old_count, "old rows")) if count]
        self._tell(exporter, ", ".join(faults))
        return Scrape(exporter, found.devices)

    def _bounded(self, answer: httpx.Response) -> Iterator[bytes]:
        size, until_mono = 0, time.monotonic() + self._scrape_s
        for chunk in answer.iter_bytes():  # as they come: a full chunk may never come
            size += len(chunk)
            if size > ANSWER_MAX_BYTES:
                raise NotExposition(f"it has more than {ANSWER_MAX_BYTES} bytes")
            if time.monotonic() > until_mono:
                raise NotExposition(f"it takes longer than {self._scrape_s:g} s")
            yield chunk

    def _tell(self, exporter: Exporter, why: str) -> None:
        # By kind: a text that changes with every scrape would be logged each time.
        kind = why.partition(":")[0] if ":" in why else why.lstrip("0123456789")
        if self._told.get(exporter.url, "") != kind:
            self._told[exporter.url] = kind
            self._note("exporter_unreadable" if why else "exporter_readable", {"url": exporter.url, "node": exporter.node, "why": why})
