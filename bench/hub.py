"""The hub's services on the embedded database: submit and tick, with Django and SQLite in the figure, HTTP not."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from datetime import timedelta
from pathlib import Path

from bench.figures import Figure

SUBMITS = 100


def run(traces: Path | None) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["EGS_VAR_DIR"] = folder
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "egs.settings")
        return _measure()


def _measure() -> list[Figure]:
    import django

    django.setup()
    from django.core.management import call_command

    from accounts.services import user_create
    from egs.clock import db_now
    from gpr.allocator import tick
    from gpr.services.requests import gpr_submit
    from gpr.spec import GprSpec
    from inventory.models import AgentSession
    from inventory.services.clusters import cluster_create
    from inventory.services.nodes import inventory_store
    from slices.services import project_create, slice_create
    from worker_agent.protocol import GpuView, NodeView

    call_command("migrate", verbosity=0)
    now = db_now()
    admin = user_create(name="root", is_admin=True, now=now)
    cluster = cluster_create(name="c", actor=admin, now=now)
    nodes = [
        NodeView(
            name=f"n{n}",
            uid=f"u{n}",
            shape="G",
            node_type="t",
            gpus=tuple(GpuView(uuid=f"GPU-{n}-{i}", index=i, model="G", memory_gib=80) for i in range(8)),
        )
        for n in range(16)
    ]
    inventory_store(cluster=cluster, nodes=nodes, now=now)
    AgentSession.objects.create(cluster=cluster, install_id="bench", joined_at=now, last_sync_at=now + timedelta(hours=1))
    project = project_create(name="p", actor=admin, now=now)
    slices = [slice_create(name=f"s{n}", project=project, clusters=[cluster], actor=admin, now=now) for n in range(SUBMITS)]

    submits, ticks = [], []
    for slice_ in slices:
        spec = GprSpec(name="b", slice=slice_, nodes=2, duration_s=3600, shape="G")
        began = time.perf_counter()
        gpr_submit(actor=admin, spec=spec, now=db_now())
        submits.append(time.perf_counter() - began)
    for _ in range(5):
        began = time.perf_counter()
        tick()
        ticks.append(time.perf_counter() - began)
    return [
        Figure("hub", f"submits per second, up to {SUBMITS} queued", "/s", len(submits) / sum(submits), "sbatch, measured elsewhere", 231),
        Figure("hub", f"a tick with {SUBMITS - 8} queued, median", "s", statistics.median(ticks), goal="<= 0.3 at 10,000"),
    ]
