"""Measures what people wait for in a hub with 10,000 queued on 5,000 nodes, and what ticks, a restart, calls and memory cost.

Times of ticks and calls are CPU time of this process, so that they hold on a busy machine, too. `python -m bench.hub.goals CASE` measures.
"""

from __future__ import annotations

import os
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.figures import Figure
from bench.hub.own_hub import ROOT, figures_from, migrated_database, tell
from bench.hub.queue_page import boxes_made, filled
from bench.hub.world import EXIT, agent_says, cluster_made, slices_made, statistics_renewed

if TYPE_CHECKING:
    from tests.inventory.agent import Agent

SHAPE: Final = "H100-80GB"
QUEUED, NODES, GPUS = 10_000, 5_000, 8
QUEUED_OF_CALLS = 1_000
RUNS, CALLS = 9, 40
READY_WITHIN_S: Final = 600
CELERY: Final = ("-m", "celery", "-A", "egs.celery", "worker", "--concurrency", "1", "--without-gossip", "--without-mingle", "--queues")
CALL_GOALS: Final = {"gprs/": "<= 25", "queue/": "<= 25", "me/": "<= 5"}


def run(traces: Path | None) -> list[Figure]:
    return [figure for case in CASES for figure in figures_from("bench.hub.goals", case, with_redis=True)] + _demos()


def main() -> None:
    if sys.argv[1] == "first-tick":
        _tick_first()
        return
    with migrated_database():
        tell(CASES[sys.argv[1]]())


# The deep queue.


def _deep() -> list[Figure]:
    agent = _world()
    _tick()  # plans them all
    case = f"{QUEUED:,} queued on {NODES:,} nodes"
    idle_ms = statistics.median(_tick() for _ in range(RUNS))
    started_ms = statistics.median(_one_start(agent) for _ in range(RUNS))
    return [
        Figure("goals", f"{case}: a tick with nothing to do, CPU", "ms", idle_ms, goal="<= 20"),
        Figure("goals", f"{case}: a tick that settles one box and starts what fits on its node, CPU", "ms", started_ms, goal="<= 30"),
        Figure("goals", f"{case}: a new process, until its first tick is over", "s", _restart_s(), goal="<= 3"),
        *_processes(case),
    ]


def _world() -> Agent:
    """Each node has a box that runs, and so many requests wait."""
    from accounts.models import PlatformRole
    from accounts.people.services import user_create
    from core.clock import db_now
    from gpr.models import Gpr, GprState
    from inventory.models import AgentSession, Node

    now, dice = db_now(), random.Random(7)
    admin = user_create(name="root", role=PlatformRole.ADMIN, now=now)
    cluster, agent = cluster_made("aurora", shape=SHAPE, node_count=NODES, gpus=GPUS, now=now)
    _, slices = slices_made("p", QUEUED + NODES, cluster, now=now, nodes_approval=NODES, gpus_approval=NODES * GPUS)
    lengths_s = [dice.randrange(7200, 36_000) for _ in range(NODES)]
    boxes_made(slices[QUEUED:], Node.objects.order_by("name"), admin, lengths_s, now)
    times = {"created_at": now, "queued_at": now, "turn_at": now, "state_changed_at": now}

    def waiting(slice_: Any) -> Gpr:
        is_gang, length_s = dice.random() < 0.1, dice.randrange(600, 36_000)
        size = {"nodes": dice.choice((2, 4, 8))} if is_gang else {"nodes": 1, "gpus_per_node": dice.choice((1, 1, 2, 4, 8))}
        ask = {"shape": SHAPE, "duration_s": length_s, "remaining_s": length_s, **size}
        return Gpr(name="q", slice=slice_, owner=admin, state=GprState.QUEUED, **ask, **times)

    Gpr.objects.bulk_create(map(waiting, slices[:QUEUED]), batch_size=2_000)
    AgentSession.objects.update(last_sync_at=now + timedelta(hours=1))
    statistics_renewed()
    return agent


def _tick(*, may_hurry: bool = False) -> float:
    """Returns the milliseconds of CPU time."""
    from gpr.allocation.allocator import tick

    began_s = time.process_time()
    if tick(may_hurry=may_hurry) is None:
        raise RuntimeError("somebody else ticks")
    return (time.process_time() - began_s) * 1000


def _one_start(agent: Agent) -> float:
    """Ends a box, as its agent does, and ticks as after a hint."""
    from core.clock import db_now
    from gpr.models import Gpr, GprState
    from inventory.models import Reservation

    gpr = Gpr.objects.filter(state=GprState.ACTIVE).order_by("ends_at")[0]
    over_at = db_now() - timedelta(seconds=1)
    Gpr.objects.filter(pk=gpr.pk).update(active_at=over_at - timedelta(days=1), ends_at=over_at)
    _tick()
    agent_says(agent, list(Reservation.objects.filter(gpr=gpr)), EXIT, now=db_now())
    return _tick(may_hurry=True)


def _restart_s() -> float:
    began_s = time.perf_counter()
    subprocess.run([sys.executable, "-m", "bench.hub.goals", "first-tick"], cwd=ROOT, check=True)
    return time.perf_counter() - began_s


def _tick_first() -> None:
    import django

    django.setup()
    _tick()
    os._exit(0)  # to free all its memory takes a second more


# What processes need.


def _processes(case: str) -> list[Figure]:
    """Starts the processes of a hub as deploy/production does; the worker has ticked, and the web server has answered."""
    port = _free_port()
    with tempfile.TemporaryDirectory() as folder:
        commands = {
            "web": (["manage.py", "egs_web", "--port", str(port)], "<= 180"),
            "worker": ([*CELERY, "allocator"], "<= 180"),
            "notices": ([*CELERY, "notices"], ""),
            "beat": (["-m", "celery", "-A", "egs.beat", "beat", "-s", f"{folder}/schedule"], "<= 90"),
        }
        with _running([[sys.executable, *command] for command, _ in commands.values()]) as processes:
            _wait(lambda: _answers(port), processes[0])
            time.sleep(15)  # ticks
            return [
                Figure("goals", f"{case}: memory of the process {name}", "MB", _memory_mb(process.pid), goal=goal)
                for (name, (_, goal)), process in zip(commands.items(), processes, strict=True)
            ]


def _demos() -> list[Figure]:
    subprocess.run(["make", "--silent", "var/migrated.sqlite3"], cwd=ROOT, check=True)  # `make demo` finds it there
    return [*_demo("the empty demo", "--empty", ready="<= 5"), *_demo("the demo with a company", ready="<= 15")]


def _demo(case: str, *options: str, ready: str) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        database = f"sqlite:///{folder}/egs.sqlite3"
        given = {"EGS_VAR_DIR": folder, "EGS_DATABASE_URL": database, "EGS_REDIS_URL": "", "EGS_LOG_LEVEL": "ERROR"}
        began_s = time.perf_counter()
        with _running([[sys.executable, "manage.py", "demo", "--port", str(_free_port()), *options]], **given) as (process,):
            _wait((Path(folder) / "demo.json").exists, process)
            ready_s = time.perf_counter() - began_s
            time.sleep(15)
            return [
                Figure("goals", f"{case}, until it is ready", "s", ready_s, goal=ready),
                Figure("goals", f"{case}: memory", "MB", _memory_mb(process.pid), goal="<= 300"),
            ]


@contextmanager
def _running(commands: Sequence[Sequence[str]], **given: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    processes = [subprocess.Popen(command, cwd=ROOT, env={**os.environ, **given}, **quiet) for command in commands]  # type: ignore[call-overload]
    try:
        yield processes
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def _wait(is_so: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    began_s = time.perf_counter()
    while not is_so():
        if process.poll() is not None or time.perf_counter() - began_s > READY_WITHIN_S:
            raise RuntimeError("a process did not come up")
        time.sleep(0.1)


def _answers(port: int) -> bool:
    import httpx

    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=5).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _memory_mb(pid: int) -> float:
    """Resident memory of the process, or of the largest that it has forked."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return max(map(_resident_mb, (str(pid), *children)))


def _resident_mb(pid: str) -> float:
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


# Calls.


def _calls() -> list[Figure]:
    client, figures = filled(QUEUED_OF_CALLS), []
    for path, goal in CALL_GOALS.items():
        times = [_call_ms(client, f"/api/v1/{path}") for _ in range(CALLS)][CALLS // 4 :]
        title = f"{QUEUED_OF_CALLS:,} queued, API {path}: CPU, p50"
        figures.append(Figure("goals", title, "ms", statistics.median(times), goal=goal))
    return figures


def _call_ms(client: Any, path: str) -> float:
    began_s = time.process_time()
    response = client.get(path)
    if response.status_code != 200:
        raise RuntimeError(f"{path}: {response.status_code}")
    return (time.process_time() - began_s) * 1000


CASES: Final[dict[str, Callable[[], list[Figure]]]] = {"deep": _deep, "calls": _calls}


if __name__ == "__main__":
    main()
