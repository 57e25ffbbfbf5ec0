"""Measures the hub's services on the embedded database: submit and tick, with Django and SQLite, without HTTP."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

from bench.figures import Figure
from bench.hub.world import cluster_made, slices_made

SHAPE, NODES, GPUS = "G", 16, 8
SUBMITS, TICKS = 100, 5


def run(traces: Path | None) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["EGS_VAR_DIR"] = folder
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "egs.settings")
        return _measure()


def _measure() -> list[Figure]:
    import django

    django.setup()
    from django.core.management import call_command

    from accounts.models import PlatformRole
    from accounts.people.services import user_create
    from core.clock import db_now
    from gpr.allocation.allocator import tick
    from gpr.requests.services import gpr_submit
    from gpr.requests.spec import GprSpec

    call_command("migrate", verbosity=0)
    now = db_now()
    admin = user_create(name="root", role=PlatformRole.ADMIN, now=now)
    cluster, agent = cluster_made("c", shape=SHAPE, node_count=NODES, gpus=GPUS, now=now)
    _, slices = slices_made("p", SUBMITS, cluster, now=now)

    submits, ticks = [], []
    for slice_ in slices:
        spec = GprSpec(name="b", slice=slice_, nodes=2, duration_s=3600, shape=SHAPE)
        began = time.perf_counter()
        gpr_submit(actor=admin, spec=spec, now=db_now())
        submits.append(time.perf_counter() - began)
    for _ in range(TICKS):
        agent.sync(at=db_now())
        began = time.perf_counter()
        tick()
        ticks.append(time.perf_counter() - began)
    return [
        Figure("hub", f"submits per second, up to {SUBMITS} queued", "/s", len(submits) / sum(submits), "sbatch, measured elsewhere", 231),
        Figure("hub", f"a tick with {SUBMITS - NODES // 2} queued, median", "s", statistics.median(ticks), goal="<= 0.3 at 10,000"),
    ]
