"""Measures how long the `egs` command takes: its start alone, and a list beside what the server needs for it."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from bench.figures import Figure
from bench.hub.live import demo_hub

ROUNDS = 20


def run(traces: Path | None) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder, demo_hub(Path(folder)) as demo:
        env = {**os.environ, "EGS_URL": demo["url"], "EGS_TOKEN": demo["user_token"]}
        headers = {"Authorization": f"Bearer {demo['user_token']}"}
        with httpx.Client(base_url=demo["url"], headers=headers) as api:
            server_s = _median_s(lambda: api.get("/api/v1/gprs/?ended=false&page_size=100"))
        help_s = _median_s(lambda: _egs("--help", env=env))
        list_s = _median_s(lambda: _egs("gpr", "list", env=env))
    return [
        Figure("terminal", "egs --help, median", "s", help_s, goal="<= 0.15"),
        Figure("terminal", "egs gpr list beside the server's time, median", "s", list_s - server_s, goal="<= 0.3"),
    ]


def _egs(*line: str, env: dict[str, str]) -> None:
    subprocess.run([sys.executable, "-m", "egs_client", *line], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)


def _median_s(do: Callable[[], object]) -> float:
    taken: list[float] = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        do()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)
