"""Measures the admin's queue page with 10,000 queued GPRs: the server's time for the whole page and for its fragments, on PostgreSQL.

It runs in a process and a database of its own, both gone afterwards.
"""

from __future__ import annotations

import random
import re
import statistics
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from bench.figures import Figure
from bench.hub.own_hub import figures_from, migrated_database, tell
from bench.hub.world import statistics_renewed
from protocol.assignments import Phase

QUEUED, RUNNING, SLICES, NODES = 10_000, 200, 500, 1_000
QUEUED_AT_ONCE = 2_000
RUNS, PAGES_DEEP = 60, 10
QUEUE = "/admin/queue/"


def run(traces: Path | None) -> list[Figure]:
    return figures_from("bench.hub.queue_page", with_redis=False)


def main() -> None:
    with migrated_database():
        tell(_measure(filled(QUEUED)))


def filled(queued: int) -> Any:
    """Returns a signed-in administrator's client for a full hub."""
    from django.test import Client

    from accounts.models import PlatformRole, Scope
    from accounts.people.services import user_create
    from accounts.sessions import LOGIN_KEY, Proof, login_start
    from accounts.tokens.services import token_issue
    from core.clock import db_now
    from inventory.models import AgentSession, Cluster, Gpu, Node
    from slices.models import Project, Slice

    now, rng = db_now(), random.Random(7)
    admin = user_create(name="root", role=PlatformRole.ADMIN, now=now)
    cluster = Cluster.objects.create(name="aurora", created_at=now)
    AgentSession.objects.create(cluster=cluster, install_id="bench", joined_at=now, last_sync_at=now + timedelta(hours=1))
    kind = {"shape": "H100-80GB", "gpu_count": 8, "gpu_memory_gib": 80, "seen_at": now}
    nodes = Node.objects.bulk_create(Node(cluster=cluster, name=f"n{n:04}", uid=f"u{n}", **kind) for n in range(NODES))
    Gpu.objects.bulk_create(
        Gpu(node=node, uuid=f"GPU-{node.name}-{index}", index=index, model="H100", memory_gib=80) for node in nodes for index in range(8)
    )
    project = Project.objects.create(name="p", created_at=now)
    slices = Slice.objects.bulk_create(Slice(name=f"s{n:03}", project=project, created_at=now, number=n) for n in range(SLICES))
    running = boxes_made(slices[:RUNNING], nodes, admin, [7200] * RUNNING, now)
    for first in range(0, queued, QUEUED_AT_ONCE):
        _queue(range(first, min(first + QUEUED_AT_ONCE, queued)), slices, admin, now, [str(gpr.pk) for gpr in running], rng)
    statistics_renewed()

    client: Any = Client(SERVER_NAME="127.0.0.1")
    session = client.session
    issued = token_issue(user=admin, name="bench", scopes=[Scope.READ, Scope.ADMIN], life=timedelta(hours=1), now=now)
    login = login_start(proof=Proof(token=issued.token), address="127.0.0.1", browser="bench", now=now)
    session[LOGIN_KEY] = str(login.pk)
    session.save()
    client.cookies["egs_session"] = session.session_key
    client.defaults["HTTP_AUTHORIZATION"] = f"Bearer {issued.plain}"  # for the API
    return client


def boxes_made(slices: Any, nodes: Any, owner: Any, lengths_s: Sequence[int], now: Any) -> list[Any]:
    """Makes a box for each length: it runs on all GPUs of its own node, for its own workspace."""
    from gpr.models import Gpr, GprState
    from inventory.models import Gpu, Node, Reservation, ReservationState, ReservedGpu

    times = {"created_at": now, "state_changed_at": now, "queued_at": now, "provisioning_at": now, "active_at": now}
    places = list(zip(slices, nodes, lengths_s, strict=False))
    made = Gpr.objects.bulk_create(
        Gpr(name=f"r{n}", slice=slice_, state=GprState.QUEUED, ends_at=now + timedelta(seconds=length_s), run=1, **_ask(owner), **times)
        for n, (slice_, _, length_s) in enumerate(places)
    )
    # The database allows no other way.
    for state in (GprState.PROVISIONING, GprState.ACTIVE):
        Gpr.objects.update(state=state)
    held = {"state": ReservationState.HELD, "starts_at": now}
    gang = {"gang_count": 1, "duration_s": 7200, "enter_by_at": now, "run": 1, "active_at": now, "phase": Phase.ACTIVE, "epoch": 1}

    def place(gpr: Gpr, node: Any, length_s: int) -> Reservation:
        ends_at = now + timedelta(seconds=length_s)
        return Reservation(gpr=gpr, slice=gpr.slice, cluster_id=node.cluster_id, node=node, ends_at=ends_at, **held, **gang)

    reservations = Reservation.objects.bulk_create(
        place(gpr, node, length_s) for gpr, (_, node, length_s) in zip(made, places, strict=True)
    )
    of_node = {row.node_id: row for row in reservations}
    Node.objects.filter(pk__in=of_node).update(epoch=1)
    ReservedGpu.objects.bulk_create(
        ReservedGpu(reservation=of_node[gpu.node_id], gpu=gpu, ends_at=of_node[gpu.node_id].ends_at, **held)
        for gpu in Gpu.objects.filter(node__in=of_node)
    )
    return made


def _queue(numbers: Iterable[int], slices: Any, owner: Any, now: Any, blockers: list[str], rng: random.Random) -> None:
    from gpr.models import Gpr, GprState, Promise

    def gpr(number: int) -> Any:
        waits = [{"id": rng.choice(blockers), "is_running": True, "until_s": 1_900_000_000} for _ in range(2)]
        told = {"reason": "waits_for_gpus", "blockers": waits, "most_node_count": 0, "most_gpus_per_node": 0}
        since = now - timedelta(seconds=rng.randrange(86_400))
        return Gpr(
            name=f"q{number}",
            slice=slices[number % SLICES],
            state=GprState.QUEUED,
            priority=rng.choice((60, 101, 101, 101, 180)),
            planned_start_at=now + timedelta(seconds=rng.randrange(60, 400_000)),
            explanation=told,
            created_at=since,
            queued_at=since,
            turn_at=since,
            turn_key=rng.randrange(600, 400_000),
            state_changed_at=since,
            **_ask(owner),
        )

    made: list[Any] = Gpr.objects.bulk_create(gpr(number) for number in numbers)
    Promise.objects.bulk_create(
        Promise(
            gpr=gpr,
            made_at=now,
            first_promised_start_at=gpr.planned_start_at,
            promised_start_at=gpr.planned_start_at,
            slot_pool="aurora/H100-80GB/-/80",
            slot_start_at=gpr.planned_start_at,
        )
        for gpr in made
    )


def _ask(owner: Any) -> dict[str, Any]:
    return {"owner": owner, "shape": "H100-80GB", "nodes": 1, "duration_s": 7200, "remaining_s": 7200}


def _measure(client: Any) -> list[Figure]:
    deep = QUEUE
    for _ in range(PAGES_DEEP):
        deep = re.search(r'href="([^"]+)" rel="next"', client.get(deep).content.decode())[1].replace("&amp;", "&")  # type: ignore[index]
    cases = {
        "first page": (QUEUE, "p95 <= 200"),
        f"page {PAGES_DEEP + 1}": (deep, "p95 <= 200"),
        "one workspace": (f"{QUEUE}?workspace=s007", "p95 <= 200"),
        "rows alone": (f"{QUEUE}?part=rows", ""),
        "facts alone": (f"{QUEUE}?part=facts", ""),
    }
    figures = []
    for case, (path, goal) in cases.items():
        times = sorted(times_ms(client, path))
        title = f"{QUEUED:,} queued, {case}"
        figures.append(Figure("queue-page", f"{title}: p50", "ms", statistics.median(times)))
        figures.append(Figure("queue-page", f"{title}: p95", "ms", times[int(len(times) * 0.95)], goal=goal))
    return figures


def times_ms(client: Any, path: str, *, runs: int = RUNS) -> list[float]:
    """Measures after a few requests to warm up."""
    times = []
    for number in range(runs + 5):
        began = time.perf_counter()
        response = client.get(path)
        if number >= 5:
            times.append((time.perf_counter() - began) * 1000)
        if response.status_code != 200:
            raise RuntimeError(f"{path}: {response.status_code}")
    return times


if __name__ == "__main__":
    main()
