"""Measures the time from a change to the hint in each of a thousand open pages of one hub process, without the refetch."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect

from bench.figures import Figure, NotRun

PAGES, CHANGES = 1000, 20
START_S = 60.0


def run(traces: Path | None) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder, demo_hub(Path(folder)) as demo:
        return asyncio.run(_measure(demo))


@contextmanager
def demo_hub(folder: Path) -> Iterator[dict[str, str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "EGS_VAR_DIR": str(folder), "EGS_LOG_LEVEL": "ERROR"}
    command = [sys.executable, "manage.py", "demo", "--empty", "--port", str(port)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield _wait_for(folder / "demo.json", process)
    finally:
        process.terminate()
        process.wait(30)


def _wait_for(path: Path, process: subprocess.Popen[bytes]) -> dict[str, str]:
    until = time.monotonic() + START_S
    while not path.exists() or not path.read_text().strip():
        if process.poll() is not None or time.monotonic() > until:
            raise NotRun("the demo did not start")
        time.sleep(0.2)
    demo: dict[str, str] = json.loads(path.read_text())
    return demo


async def _measure(demo: dict[str, str]) -> list[Figure]:
    cookie = _sign_in(demo)
    pages = [await _open(demo["url"], cookie) for _ in range(PAGES)]
    headers = {"Authorization": f"Bearer {demo['user_token']}"}
    waits: list[float] = []
    async with httpx.AsyncClient(base_url=f"{demo['url']}/api/v1", headers=headers, timeout=30) as api:
        for number in range(CHANGES):
            waits += await _one_change(api, pages, number)
    await asyncio.gather(*(page.close() for page in pages))
    waits.sort()
    return [
        Figure("live", f"{PAGES} pages: change to hint, median", "s", statistics.median(waits)),
        Figure("live", f"{PAGES} pages: change to hint, p99", "s", waits[int(len(waits) * 0.99)], goal="<= 1"),
    ]


async def _one_change(api: httpx.AsyncClient, pages: list[ClientConnection], number: int) -> list[float]:
    """Returns the seconds from the change to its first hint, page by page."""
    await asyncio.sleep(1.0)  # those of the change before have all arrived
    await asyncio.gather(*(_drain(page) for page in pages))
    later = datetime.now(UTC) + timedelta(days=300)
    ask = {"name": f"bench-{number}", "slice": "vision", "shape": "H100-80GB", "nodes": 1, "duration_s": 600}
    began = time.perf_counter()

    async def heard(page: ClientConnection) -> float:
        await asyncio.wait_for(page.recv(), timeout=30)
        return time.perf_counter() - began

    change = api.post("/gprs/", json={**ask, "earliest_start_at": later.isoformat()})
    waits, response = await asyncio.gather(asyncio.gather(*(heard(page) for page in pages)), change)
    response.raise_for_status()
    return list(waits)


async def _drain(page: ClientConnection) -> None:
    while True:
        try:
            await asyncio.wait_for(page.recv(), timeout=0.01)
        except TimeoutError:
            return


def _sign_in(demo: dict[str, str]) -> str:
    with httpx.Client(base_url=demo["url"]) as browser:
        browser.get("/login/")
        form = {"token": demo["user_token"], "csrfmiddlewaretoken": _csrf(browser)}
        if browser.post("/login/", data=form).status_code != 302:
            raise NotRun("signing in failed")
        return "; ".join(f"{name}={value}" for name, value in browser.cookies.items())


def _csrf(browser: httpx.Client) -> str:
    return str(browser.cookies["egs_csrf"])


async def _open(url: str, cookie: str) -> ClientConnection:
    headers: Any = {"Cookie": cookie}
    return await connect(f"ws{url.removeprefix('http')}/ws/live/", origin=url, additional_headers=headers)  # type: ignore[arg-type]
