"""Exporters over real HTTP: those that answer, and those that hang, send pages, or send without end."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from worker_agent.telemetry import scrape
from worker_agent.telemetry.scrape import Exporter, Scraper

TEXT = (Path(__file__).with_name("texts") / "dcgm_4.txt").read_bytes()
PAGE = b"<html><body>404</body></html>"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = {"/metrics": TEXT, "/page": PAGE, "/broken": b'DCGM_FI_DEV_GPU_TEMP{gpu="0" 3\n' * 9}.get(self.path)
        if self.path == "/secret":
            body = TEXT if self.headers["Authorization"] == "Basic bWU6cEBzcw==" else PAGE
        if self.path == "/zipped":
            body = gzip.compress(TEXT)
        self.send_response(500 if self.path == "/error" else 302 if self.path == "/moved" else 200)
        if self.path == "/moved":
            self.send_header("Location", "/metrics")
        if self.path == "/zipped":
            self.send_header("Content-Encoding", "gzip")
        if body is not None or self.path in ("/error", "/moved"):
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")
            return
        self.send_header("Connection", "close")
        try:
            while self.path == "/dripping":
                self.send_header("X-Nothing", "yet")
                self.flush_headers()
                time.sleep(0.05)
            self.end_headers()
            if self.path.startswith("/hangs"):
                time.sleep(3)
            while self.path in ("/slow", "/endless"):
                self.wfile.write(b"# nothing\n" * (1 if self.path == "/slow" else 100_000))
                time.sleep(0.05 if self.path == "/slow" else 0)
        except OSError:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def notes() -> list[tuple[str, dict[str, Any]]]:
    return []


@pytest.fixture
def scraper(notes: list[tuple[str, dict[str, Any]]]) -> Iterator[Scraper]:
    made = Scraper(note=lambda event, fields: notes.append((event, fields)), scrape_s=0.4, pass_s=0.9)
    yield made
    made.close()


def test_what_one_exporter_does_hinders_no_other(url: str, scraper: Scraper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrape, "ANSWER_MAX_BYTES", 4_000_000)
    bad = ["/hangs", "/dripping", "/slow", "/endless", "/zipped", "/page", "/error", "/moved"]
    began = time.monotonic()

    exporters = [Exporter(url + path) for path in (*bad, "/metrics")]
    found = list(scraper.scrape([Exporter("http://127.0.0.1:9/metrics"), *exporters]))

    assert [each.exporter.url for each in found] == [f"{url}/metrics"]
    assert [row.values[b"DCGM_FI_DEV_GPU_TEMP"] for row in found[0].rows] == [55]
    assert time.monotonic() - began < 2.5


def test_a_hundred_exporters_that_hang_delay_no_other_once_they_are_known(url: str, scraper: Scraper) -> None:
    exporters = [*(Exporter(f"{url}/hangs?{n}") for n in range(100)), Exporter(f"{url}/metrics")]
    for _ in range(9):
        if any(scraper.scrape(exporters)):
            break
    time.sleep(0.5)  # as between passes: those asked in vain are over
    began = time.monotonic()
    assert next(scraper.scrape(exporters)).exporter == exporters[-1]
    assert time.monotonic() - began < 0.4


def test_a_password_of_an_exporter_is_sent_and_not_logged(url: str, scraper: Scraper, notes: list[tuple[str, dict[str, Any]]]) -> None:
    exporters = [Exporter(url.replace("://", "://me:p%40ss@") + path) for path in ("/secret", "/page")]
    assert [found.exporter for found in scraper.scrape(exporters)] == exporters[:1]
    assert [fields["url"] for _, fields in notes] == [f"{url}/page"]


@pytest.mark.parametrize("body", [PAGE, b"", b"# HELP up 1\nup 1\n"], ids=["a page", "an empty text", "a text without GPUs"])
def test_a_fault_of_an_exporter_is_logged_once_until_it_ends(
    body: bytes, url: str, scraper: Scraper, notes: list[tuple[str, dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.agent.telemetry.test_scraping.PAGE", body)
    for _ in range(3):
        assert [row for found in scraper.scrape([Exporter(f"{url}/page", node="gpu-1")]) for row in found.rows] == []
    assert [(event, fields["node"]) for event, fields in notes] == [("exporter_unreadable", "gpu-1")]

    monkeypatch.setattr("tests.agent.telemetry.test_scraping.PAGE", TEXT)
    assert len(list(scraper.scrape([Exporter(f"{url}/page", node="gpu-1")]))) == 1
    assert [event for event, _ in notes] == ["exporter_unreadable", "exporter_readable"]


def test_rows_that_cannot_be_read_are_told_with_their_number(url: str, scraper: Scraper, notes: list[tuple[str, dict[str, Any]]]) -> None:
    (found,) = scraper.scrape([Exporter(f"{url}/broken")])

    assert found.rows == []
    assert notes[0][1]["why"] == "9 unreadable rows"
