"""Asks exporters over HTTP. An answer costs bounded time and memory, and a fault is logged once."""

from __future__ import annotations

import ssl
import time
from base64 import b64encode
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import httpcore

from worker_agent.cluster.base import Note
from worker_agent.telemetry.exposition import DeviceRow, NotExposition, parse

ANSWER_MAX_BYTES: Final = 96 * 1024 * 1024
SCRAPE_S: Final = 5.0
PASS_S: Final = 10.0
AT_ONCE: Final = 32
ANSWERED: Final = -1.0
# Without compression: some kilobytes could become gigabytes.
HEADERS: Final[dict[bytes | str, bytes | str]] = {"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "identity"}


@dataclass(frozen=True, slots=True)
class Exporter:
    url: str
    node: str = ""  # where it runs; "": its rows name the node


@dataclass(frozen=True, slots=True)
class Scrape:
    exporter: Exporter
    rows: list[DeviceRow]


class Scraper:
    def __init__(self, *, note: Note, scrape_s: float = SCRAPE_S, pass_s: float = PASS_S) -> None:
        self._note, self._scrape_s, self._pass_s = note, scrape_s, pass_s
        self._tls = ssl.create_default_context()
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="egs-scrape")
        self._told: dict[str, str] = {}  # by URL: what was logged last
        self._asked_mono: dict[str, float] = {}  # by URL: ANSWERED, or when it was asked in vain

    def scrape(self, exporters: Iterable[Exporter]) -> Iterator[Scrape]:
        """Yields the answers as they come; an exporter that fails yields none. Those that answered last time are asked first, then the
        others in turn, as far as there is time.
        """
        there = {exporter.url: exporter for exporter in exporters}
        of_urls: tuple[dict[str, Any], ...] = (self._told, self._asked_mono)
        for known in of_urls:
            for url in known.keys() - there.keys():
                del known[url]
        turn = sorted(there.values(), key=lambda exporter: self._asked_mono.get(exporter.url, 0.0))
        asked = [self._pool.submit(self._scrape, exporter) for exporter in turn]
        try:
            for future in as_completed(asked, timeout=self._pass_s):
                if (found := future.result()) is not None:
                    yield found
        except TimeoutError:
            return
        finally:
            for future in asked:
                future.cancel()

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _scrape(self, exporter: Exporter) -> Scrape | None:
        began_mono = time.monotonic()
        backend = _Hurried(began_mono + self._scrape_s)
        try:
            with (
                httpcore.ConnectionPool(ssl_context=self._tls, network_backend=backend) as pool,
                pool.stream("GET", exporter.url, headers=_headers(exporter.url)) as answer,
            ):
                if answer.status != 200:
                    raise NotExposition(f"it answers {answer.status}")
                if any(name.lower() == b"content-encoding" for name, _ in answer.headers):
                    raise NotExposition("it is compressed")
                found = parse(_bounded(answer.iter_stream()), now_s=time.time())
        except httpcore.TimeoutException:
            self._asked_mono[exporter.url] = began_mono
            self._tell(exporter, f"it takes longer than {self._scrape_s:g} s")
            return None
        except (NotExposition, httpcore.NetworkError, httpcore.ProtocolError, httpcore.UnsupportedProtocol, OSError, ValueError) as error:
            self._asked_mono[exporter.url] = ANSWERED
            self._tell(exporter, f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
            return None
        self._asked_mono[exporter.url] = ANSWERED
        faults = [f"{count} {what}" for count, what in ((found.bad_count, "unreadable rows"), (found.old_count, "old rows")) if count]
        self._tell(exporter, ", ".join(faults) or ("" if found.devices else "it tells of no GPU"))
        return Scrape(exporter, found.devices)

    def _tell(self, exporter: Exporter, why: str) -> None:
        # By kind: a text that changes with every scrape would be logged each time.
        kind = why.partition(":")[0] if ":" in why else why.lstrip("0123456789")
        if self._told.get(exporter.url, "") != kind:
            self._told[exporter.url] = kind
            url = exporter.url.replace(f"{_userinfo(exporter.url)}@", "")
            self._note("exporter_unreadable" if why else "exporter_readable", {"url": url, "node": exporter.node, "why": why})


def _headers(url: str) -> dict[bytes | str, bytes | str]:
    secret = _userinfo(url)
    return {**HEADERS, "Authorization": f"Basic {b64encode(unquote(secret).encode()).decode()}"} if secret else HEADERS


def _userinfo(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[0]


def _bounded(chunks: Iterable[bytes]) -> Iterator[bytes]:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > ANSWER_MAX_BYTES:
            raise NotExposition(f"it has more than {ANSWER_MAX_BYTES} bytes")
        yield chunk


class _Hurried(httpcore.NetworkBackend):
    """Ends all waiting at one moment: an exporter that sends a byte now and then gains no time."""

    def __init__(self, until_mono: float) -> None:
        self._until_mono, self._sockets = until_mono, httpcore.SyncBackend()

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, local_address: str | None = None, socket_options: Any = None
    ) -> httpcore.NetworkStream:
        left_s = _left_s(self._until_mono)
        return _HurriedStream(self._sockets.connect_tcp(host, port, left_s, local_address, socket_options), self._until_mono)


class _HurriedStream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, until_mono: float) -> None:
        self._stream, self._until_mono = stream, until_mono

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _left_s(self._until_mono))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _left_s(self._until_mono))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _HurriedStream(self._stream.start_tls(ssl_context, server_hostname, _left_s(self._until_mono)), self._until_mono)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _left_s(until_mono: float) -> float:
    left_s = until_mono - time.monotonic()
    if left_s <= 0:
        raise httpcore.ReadTimeout("The time is over.")
    return left_s
