"""Reads 10,000 GPUs every 15 s and measures what hub and PostgreSQL spend on them, the disk of a day, and the table of GPUs meanwhile;
and what the agent spends on an exporter's text of 8,000 GPUs.
"""

from __future__ import annotations

import os
import random
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.figures import Figure
from bench.hub.own_hub import figures_from, migrated_database, tell
from bench.hub.world import cluster_made, statistics_renewed

NODES, GPUS = 1250, 8
CYCLES, RUNS = 12, 40
SCRAPED_NODES: Final = 1000
CHUNK_BYTES: Final = 65_536
TICKS_S: Final = os.sysconf("SC_CLK_TCK")
DAY_S: Final = 86_400
# Those of dcgm-exporter's own list.
FIELDS: Final = (
    "SM_CLOCK MEM_CLOCK MEMORY_TEMP GPU_TEMP POWER_USAGE TOTAL_ENERGY_CONSUMPTION PCIE_REPLAY_COUNTER GPU_UTIL MEM_COPY_UTIL ENC_UTIL "
    "DEC_UTIL XID_ERRORS FB_FREE FB_USED UNCORRECTABLE_REMAPPED_ROWS CORRECTABLE_REMAPPED_ROWS ROW_REMAP_FAILURE NVLINK_BANDWIDTH_TOTAL"
)


def run(traces: Path | None) -> list[Figure]:
    return figures_from("bench.hub.telemetry", with_redis=False)


def main() -> None:
    with migrated_database():
        tell(_measure())


def _measure() -> list[Figure]:
    from core.clock import db_now
    from observability.telemetry.services import telemetry_step

    _, agent = cluster_made("aurora", shape="H100-80GB", node_count=NODES, gpus=GPUS, now=db_now())
    now = db_now()
    _cycle(agent.credential, now - timedelta(seconds=15 * (CYCLES + 1)))  # makes the partitions and the rows that later ones update
    statistics_renewed()
    hub, database = [], []
    for number in range(CYCLES):
        at = now - timedelta(seconds=15 * (CYCLES - number))
        began = time.process_time(), _backend_s()
        _cycle(agent.credential, at)
        hub.append(time.process_time() - began[0])
        database.append(_backend_s() - began[1])
    began_s = _backend_s()
    telemetry_step(now=now)
    per_minute_s = (_backend_s() - began_s) / ((CYCLES - 6) / 4)  # the last minute and a half is not due yet
    _cycle(agent.credential, db_now())
    admin = _administrator()
    list_ms, map_ms = (_times(partial(admin.get, url)) for url in ("/admin/gpus/", "/admin/gpus/map/"))
    core = (statistics.mean(database) + per_minute_s / 4) / 15
    return [
        *_parsing(),
        Figure("telemetry", "10,000 GPUs every 15 s: PostgreSQL", "cores", core, goal="<= 0.5"),
        Figure("telemetry", "10,000 GPUs every 15 s: the hub", "cores", statistics.mean(hub) / 15),
        Figure("telemetry", "disk of a day at 15 s", "GiB", _bytes_of_row() * NODES * GPUS * DAY_S / 15 / 2**30),
        Figure("telemetry", "admin's table of GPUs, p95", "ms", list_ms, goal="<= 200"),
        Figure("telemetry", "admin's map of all 10,000 GPUs, p95; Chromium draws it within 0.4 s", "ms", map_ms, goal="<= 600"),
    ]


def _parsing() -> list[Figure]:
    from worker_agent.telemetry.exposition import parse

    text = _exposition()
    times = []
    for _ in range(RUNS // 8):
        began_s = time.process_time()
        found = parse(_chunks(text), now_s=time.time())
        times.append(time.process_time() - began_s)
        assert len(found.devices) == SCRAPED_NODES * GPUS  # noqa: S101
    tracemalloc.start()
    parse(_chunks(text), now_s=time.time())
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    case = f"a scrape of {SCRAPED_NODES * GPUS:,} GPUs, {len(text) / 2**20:.0f} MiB"
    return [
        Figure("telemetry", f"{case}: CPU", "s", statistics.median(times), goal="<= 0.5"),
        Figure("telemetry", f"{case}: memory", "MiB", most_bytes / 2**20, goal="<= 100"),
    ]


def _exposition() -> bytes:
    """Returns what dcgm-exporters of whole nodes with pods say, one after the other."""
    names = [f"DCGM_FI_DEV_{name}" for name in FIELDS.split()]
    gpus = [
        f'{{gpu="{index}",UUID="GPU-{node}-{index}",device="nvidia{index}",modelName="NVIDIA H100 80GB HBM3",Hostname="gpu-{node}",'
        f'DCGM_FI_DRIVER_VERSION="535.161.08",container="main",namespace="vision",pod="train-{node}-{index}"}}'
        for node in range(SCRAPED_NODES)
        for index in range(GPUS)
    ]
    return "".join(f"{name}{labels} {30 + len(labels) % 50}\n" for name in names for labels in gpus).encode()


def _chunks(text: bytes) -> Iterator[bytes]:
    return (text[at : at + CHUNK_BYTES] for at in range(0, len(text), CHUNK_BYTES))


def _cycle(bearer: str, at: datetime) -> None:
    import msgspec

    from observability.telemetry.agent_views import receive
    from protocol.gpus.telemetry import GPUS_MAX, NAMES, GpuReading, TelemetryRequest

    rng = random.Random(at.timestamp())
    gpus = [
        GpuReading(f"aurora-n{node:04}", f"GPU-aurora-n{node:04}-{index}", at.timestamp(), tuple(rng.randrange(90) for _ in NAMES))
        for node in range(NODES)
        for index in range(GPUS)
    ]
    for first in range(0, len(gpus), GPUS_MAX):
        body = msgspec.json.encode(TelemetryRequest(metrics=NAMES, gpus=tuple(gpus[first : first + GPUS_MAX])))
        assert receive(bearer, body, at).status == 200  # noqa: S101


def _backend_s() -> float:
    """Returns the CPU time of the server's process for our connection."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (pid,) = cursor.fetchone()
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return float(int(fields[11]) + int(fields[12])) / TICKS_S


def _bytes_of_row() -> float:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sum(pg_total_relation_size(inhrelid)), (SELECT count(*) FROM observability_reading15s) "
            "FROM pg_inherits WHERE inhparent = 'observability_reading15s'::regclass"
        )
        size, count = cursor.fetchone()
    return float(size) / float(count)


def _administrator() -> Any:
    from django.test import Client

    from accounts.models import PlatformRole, Scope
    from accounts.people.services import user_create
    from accounts.sessions import LOGIN_KEY, Proof, login_start
    from accounts.tokens.services import token_issue
    from core.clock import db_now

    now = db_now()
    admin = user_create(name="root", role=PlatformRole.ADMIN, now=now)
    token = token_issue(user=admin, name="bench", scopes=list(Scope), life=timedelta(hours=1), now=now).token
    client = Client(SERVER_NAME="127.0.0.1")
    session = client.session
    session[LOGIN_KEY] = str(login_start(proof=Proof(token=token), address="127.0.0.1", browser="", now=now).pk)
    session.save()
    client.cookies["egs_session"] = session.session_key or ""
    return client


def _times(call: Callable[[], Any]) -> float:
    took_ms = []
    for _ in range(RUNS):
        began = time.perf_counter()
        assert call().status_code == 200  # noqa: S101
        took_ms.append((time.perf_counter() - began) * 1000)
    return float(statistics.quantiles(took_ms, n=20)[-1])


if __name__ == "__main__":
    main()
