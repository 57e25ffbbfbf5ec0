"""Measures with 10,000 GPUs in 500 boxes what pages and lists cost, and what each periodic pass costs, on PostgreSQL.

Times are CPU seconds of the hub's process and of the server's process for its connection. One request at a time.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.figures import Figure
from bench.hub.large_fleet import LargeFleet, fleet_made, readings_renewed
from bench.hub.own_hub import figures_from, migrated_database, tell

RUNS: Final = 20
TICKS_S: Final = os.sysconf("SC_CLK_TCK")
LEVEL: Final = 0.95
LIST_MS, PASS_S, MAP_S = 200, 1.0, 0.4
LISTS: Final = {
    "map of GPUs, its data": "/admin/gpus/map/?part=cells",
    "map of GPUs, the page": "/admin/gpus/map/",
    "table of GPUs": "/admin/gpus/",
    "table of GPUs, held and idle": "/admin/gpus/?view=idle",
    "workloads": "/admin/workloads/",
    "workloads, ended": "/admin/workloads/?view=ended",
    "workloads, search": "/admin/workloads/?q=llama",
    "pods": "/admin/pods/",
    "pods, search": "/admin/pods/?q=train-1",
    "alerts": "/admin/alerts/",
    "alerts, over": "/admin/alerts/?state=resolved",
    "usage": "/admin/usage/",
    "usage by request": "/admin/usage/?by=gpr",
    "nodes set aside": "/admin/remediation/",
    "API workloads/": "/api/v1/workloads/",
    "API pods/": "/api/v1/pods/",
    "API alerts/": "/api/v1/alerts/",
    "API hotspots/": "/api/v1/hotspots/",
    "API usage/": "/api/v1/usage/",
}
MEMBERS: Final = {
    "member's table of GPUs": "/gpus/",
    "member's map of GPUs, its data": "/gpus/map/?part=cells",
    "member's workloads": "/workloads/",
    "member's pods": "/pods/",
    "member's usage": "/usage/",
}
CSV: Final = "/admin/usage/usage.csv?by=gpr&month={month}"


def run(traces: Path | None) -> list[Figure]:
    return figures_from("bench.hub.observability", with_redis=False)


def main() -> None:
    with migrated_database():
        tell(list(_measure(fleet_made())))


def _measure(fleet: LargeFleet) -> Iterator[Figure]:
    from django.db import connection

    from core.clock import db_now

    with connection.cursor() as cursor:
        cursor.execute("SET max_parallel_workers_per_gather = 0")  # whose time would not be counted
    yield from _passes()
    readings_renewed()
    for person, paths in ((fleet.admin, LISTS), (fleet.member, MEMBERS)):
        client = client_of(person)
        for case, path in paths.items():
            yield from _page(client, case, path)
    client, last_month = client_of(fleet.admin), db_now().replace(day=1) - timedelta(days=1)
    for case, month in (("this month", db_now()), ("last month", last_month)):
        cpu_s, queries = _cost(partial(_read, client, CSV.format(month=f"{month:%Y-%m}")))
        yield from _figures(f"usage as CSV, {case}", cpu_s, queries, "")


def _passes() -> Iterator[Figure]:
    from core.clock import db_now
    from observability.alerts.evaluation import alerts_evaluate
    from observability.idle.services import idle_step
    from observability.remediation.services import remediation_step
    from observability.telemetry.services import telemetry_step
    from observability.usage.reports import used_record
    from observability.usage.services import usage_step
    from observability.workloads.measuring import workloads_step

    passes: dict[str, Callable[..., object]] = {
        "alerts, the first pass": alerts_evaluate,
        "alerts, the second pass": alerts_evaluate,
        "alerts, a pass in which trends are due": _trends_due,
        "alerts, a usual pass": alerts_evaluate,
        "remediation, the first pass": remediation_step,
        "remediation, a usual pass": remediation_step,
        "workloads": workloads_step,
        "readings rolled up, a usual pass": telemetry_step,
        "usage, ten minutes of readings at once": usage_step,
        "usage, a usual pass": _usage_of_a_minute,
        "idle boxes": idle_step,
        "what boxes used": used_record,
    }
    for case, work in passes.items():
        readings_renewed()
        cpu_s, queries = _cost(partial(work, now=db_now()))
        yield from _figures(f"pass: {case}", cpu_s, queries, f"<= {PASS_S:g}")


def _trends_due(now: Any) -> None:
    from observability.alerts.evaluation import alerts_evaluate
    from observability.alerts.models import AlertRule

    AlertRule.objects.update(judged_at=now - timedelta(days=1))
    alerts_evaluate(now=now)


def _usage_of_a_minute(now: Any) -> None:
    from django.db.models import F

    from gpr.models import UsageProgress
    from observability.models import Reading1m
    from observability.usage.services import usage_step

    UsageProgress.objects.update(measured_until_at=F("measured_until_at") - Reading1m.STEP)
    usage_step(now=now)


def _page(client: Any, case: str, path: str) -> Iterator[Figure]:
    times, queries = [], 0
    _read(client, path)
    for _ in range(RUNS):
        cpu_s, queries = _cost(partial(_read, client, path))
        times.append(cpu_s)
    p95_s = sorted(times)[math.ceil(len(times) * LEVEL) - 1]
    goal = f"<= {MAP_S * 1000:g}" if "map" in case else f"<= {LIST_MS}"
    yield Figure("observability", f"{case}: CPU, p95", "ms", p95_s * 1000, goal=goal)
    yield Figure("observability", f"{case}: queries", "", queries)


def _figures(case: str, cpu_s: float, queries: int, goal: str) -> Iterator[Figure]:
    yield Figure("observability", f"{case}: CPU", "s", cpu_s, goal=goal)
    yield Figure("observability", f"{case}: queries", "", queries)


def _read(client: Any, path: str) -> None:
    response = client.get(path)
    if response.status_code != 200:
        raise RuntimeError(f"{path}: {response.status_code}")
    if response.streaming:
        for _ in response:
            continue


def _cost(work: Callable[[], object]) -> tuple[float, int]:
    """Returns CPU seconds of this process and of the server's, and the count of statements."""
    from django.db import connection

    statements: list[tuple[float, str]] = []
    pid = _backend_pid()

    def counted(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        began_s = time.perf_counter()
        try:
            return execute(sql, *rest)
        finally:
            statements.append((time.perf_counter() - began_s, sql))

    began_s = time.process_time(), backend_cpu_s(pid)
    with connection.execute_wrapper(counted):
        work()
    cpu_s = time.process_time() - began_s[0] + backend_cpu_s(pid) - began_s[1]
    if os.environ.get("EGS_BENCH_SLOW"):
        for took_s, sql in sorted(statements, reverse=True)[:3]:
            sys.stderr.write(f"  {took_s:.3f} s of {cpu_s:.3f}: {sql[:3000]}\n")
    return cpu_s, len(statements)


def _backend_pid() -> int:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def backend_cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return float(int(fields[11]) + int(fields[12])) / TICKS_S


def client_of(person: Any) -> Any:
    from django.test import Client

    from accounts.models import PlatformRole, Scope
    from accounts.sessions import LOGIN_KEY, Proof, login_start
    from accounts.tokens.services import token_issue
    from core.clock import db_now

    now = db_now()
    scopes = list(Scope) if person.role == PlatformRole.ADMIN else [Scope.READ]
    issued = token_issue(user=person, name="bench", scopes=scopes, life=timedelta(hours=3), now=now)
    client: Any = Client(SERVER_NAME="127.0.0.1")
    session = client.session
    session[LOGIN_KEY] = str(login_start(proof=Proof(token=issued.token), address="127.0.0.1", browser="", now=now).pk)
    session.save()
    client.cookies["egs_session"] = session.session_key
    client.defaults["HTTP_AUTHORIZATION"] = f"Bearer {issued.plain}"  # for the API
    return client


if __name__ == "__main__":
    main()
