"""Measures the half of `speed` over HTTP: two web processes as in production, clients that submit and ask for estimates, nobody who ticks.

`python -m bench.hub.speed_http QUEUED` measures.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from http.client import HTTPConnection
from typing import Any, Final

from bench.figures import Figure
from bench.hub.own_hub import ROOT, migrated_database, tell
from bench.hub.speed_hub import GPUS, SBATCH_PER_S, SHAPE, tick, whole, world_made
from bench.hub.world import queue_made

NODES: Final = 500
CLIENTS: Final = 16
ALONE, TOGETHER, WARM_UP = 100, 400, 40
START_S: Final = 120.0
IDLE_S: Final = 2.0  # the server closes a connection that nobody uses for some seconds
HOST: Final = "127.0.0.1"


def main() -> None:
    with migrated_database():
        tell(measured(int(sys.argv[1])))


def measured(queued: int) -> list[Figure]:
    count = WARM_UP + ALONE + 2 * TOGETHER
    world = world_made(nodes=NODES, slices=queued + count + 1)
    whole(world, world.slices[-1], NODES)
    tick(world)
    queue_made(world.slices[:queued], owner=world.admin, shape=SHAPE, nodes_most=16)
    tick(world)
    names = iter([slice_.name for slice_ in world.slices[queued : queued + count]])
    with two_web_processes() as (ports, process_ids):
        submit, estimate = _caller(ports, _token(world), "gprs/", 201), _caller(ports, _token(world), "gprs/estimate/", 200)
        for _ in range(WARM_UP):
            submit(next(names))
            estimate(world.slices[0].name)
        alone_s = [submit(next(names)) for _ in range(ALONE)]
        estimates_s = [estimate(world.slices[0].name) for _ in range(ALONE)]
        cpu_s, (together_s, _) = _cpu_s(process_ids), _together(submit, names, TOGETHER)
        cpu_s = _cpu_s(process_ids) - cpu_s
        _, beside_s = _together(submit, names, TOGETHER, beside=lambda: estimate(world.slices[0].name))
    what = f"over HTTP on PostgreSQL, {queued:,} queued"
    rate = TOGETHER / together_s
    return [
        Figure("speed", f"{what}: submits of {CLIENTS} clients", "/s", rate, "sbatch, another run", SBATCH_PER_S, ">= 250"),
        Figure("speed", f"{what}: CPU time of one, without the database's", "s", cpu_s / TOGETHER),
        *_percentiles(f"{what}: a submit of one client", alone_s, "<= 0.015", "<= 0.05"),
        *_percentiles(f"{what}: an estimate of one client", estimates_s, "<= 0.015", "<= 0.05"),
        *_percentiles(f"{what}: an estimate beside {CLIENTS} who submit", beside_s, "", "<= 0.1"),
    ]


def _percentiles(case: str, times_s: Sequence[float], half: str, most: str) -> list[Figure]:
    in_order = sorted(times_s)
    found = (("p50", 0.5, half), ("p99", 0.99, most))
    return [Figure("speed", f"{case}, {name}", "s", in_order[int(len(in_order) * share)], goal=goal) for name, share, goal in found]


def _together(
    submit: Callable[[str], float], names: Iterator[str], count: int, *, beside: Callable[[], float] | None = None
) -> tuple[float, list[float]]:
    """Returns the seconds that all take, and those of each call of `beside` meanwhile."""
    asked, began, times_s = [next(names) for _ in range(count)], time.perf_counter(), list[float]()
    with ThreadPoolExecutor(CLIENTS) as pool:
        submits = [pool.submit(submit, name) for name in asked]
        while beside is not None and not all(each.done() for each in submits):
            times_s.append(beside())
        for each in submits:
            each.result()
    return time.perf_counter() - began, times_s


def _caller(ports: Sequence[int], token: str, path: str, expected: int) -> Callable[[str], float]:
    """Returns a function that asks for one GPU in a workspace and returns the seconds until the answer."""
    from threading import local

    own, headers = local(), {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def call(slice_: str) -> float:
        if not hasattr(own, "connections"):
            own.connections, own.count, own.used_s = [HTTPConnection(HOST, port) for port in ports], 0, 0.0
        own.count += 1
        connection = own.connections[own.count % len(ports)]
        if time.monotonic() > own.used_s + IDLE_S:
            for each in own.connections:
                each.close()
        ask = {"name": "box", "slice": slice_, "shape": SHAPE, "nodes": 1, "gpus_per_node": GPUS, "duration_s": 3600}
        began, own.used_s = time.perf_counter(), time.monotonic()
        connection.request("POST", f"/api/v1/{path}", json.dumps(ask), headers)
        answer = connection.getresponse()
        told = answer.read()
        if answer.status != expected:
            raise RuntimeError(f"{answer.status}: {told[:500]!r}")
        return time.perf_counter() - began

    return call


def _token(world: Any) -> str:
    from accounts.models import Scope
    from accounts.tokens.services import token_issue
    from core.clock import db_now

    return token_issue(user=world.admin, name="bench", scopes=[Scope.ADMIN], life=timedelta(days=1), now=db_now()).plain


@contextmanager
def two_web_processes() -> Iterator[tuple[list[int], list[int]]]:
    """Gives their ports and their process ids."""
    with ExitStack() as running:
        ports, process_ids = [], []
        for _ in range(2):
            with socket.socket() as free:
                free.bind((HOST, 0))
                ports.append(free.getsockname()[1])
            command = [sys.executable, "manage.py", "egs_web", "--host", HOST, "--port", str(ports[-1])]
            process = subprocess.Popen(command, cwd=ROOT, env={**os.environ}, stdout=subprocess.DEVNULL)
            running.callback(process.wait, 30)
            running.callback(process.terminate)
            process_ids.append(process.pid)
        for port in ports:
            _wait_for(port)
        yield ports, process_ids


def _wait_for(port: int) -> None:
    until = time.monotonic() + START_S
    while True:
        try:
            connection = HTTPConnection(HOST, port, timeout=5)
            connection.request("GET", "/readyz")
            connection.getresponse().read()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


def _cpu_s(process_ids: Sequence[int]) -> float:
    ticks = 0
    for process_id in process_ids:
        with open(f"/proc/{process_id}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
