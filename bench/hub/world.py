"""Makes what benchmarks need on their own hub: clusters, workspaces, and an agent that answers the hub at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from protocol.assignments import Phase

if TYPE_CHECKING:
    from inventory.models import Cluster, Reservation
    from tests.inventory.agent import Agent

ENTRY: Final = (Phase.ENTERING, Phase.ENTERED, Phase.ACTIVE)
EXIT: Final = (Phase.EXITING, Phase.RELEASED)


def cluster_made(name: str, *, shape: str, node_count: int, gpus: int, now: datetime) -> tuple[Cluster, Agent]:
    """Its agent has been heard."""
    from inventory.models import Gpu, Node
    from inventory.services.clusters import cluster_create
    from tests.inventory.agent import Agent

    cluster = cluster_create(name=name, actor=None, now=now)
    kind = {"shape": shape, "gpu_count": gpus, "gpu_memory_gib": 80, "seen_at": now}
    names = [f"{name}-n{number:04}" for number in range(node_count)]
    nodes = Node.objects.bulk_create(Node(cluster=cluster, name=each, uid=f"uid-{each}", **kind) for each in names)
    Gpu.objects.bulk_create(
        Gpu(node=node, uuid=f"GPU-{node.name}-{index}", index=index, model=shape, memory_gib=80) for node in nodes for index in range(gpus)
    )
    return cluster, Agent.joined(cluster, at=now)


def slices_made(project_name: str, count: int, cluster: Cluster, *, now: datetime, **policy: Any) -> tuple[Any, list[Any]]:
    """Makes a project with so many workspaces: each holds one box at a time."""
    from slices.models import Project, Slice

    project = Project.objects.create(name=project_name, created_at=now)
    first = Slice.objects.count()
    slices = Slice.objects.bulk_create(
        Slice(name=f"{project_name}-{number:04}", project=project, created_at=now, number=first + number, **policy)
        for number in range(count)
    )
    Slice.clusters.through.objects.bulk_create(Slice.clusters.through(slice=slice_, cluster=cluster) for slice_ in slices)
    return project, slices


def queue_made(slices: Sequence[Any], *, owner: Any, shape: str, nodes_most: int) -> None:
    """Stores one request in each workspace, which no plan has seen."""
    import random

    from core.clock import db_now
    from gpr.models import Gpr, GprState

    dice, now, rows = random.Random(7), db_now(), []
    for number, slice_ in enumerate(slices):
        times = {"created_at": now, "queued_at": now, "turn_at": now, "state_changed_at": now}
        length_s = dice.randrange(600, 36_000)
        ask = {"shape": shape, "nodes": dice.randint(1, nodes_most), "duration_s": length_s, "remaining_s": length_s}
        rows.append(Gpr(name=f"q{number}", slice=slice_, owner=owner, state=GprState.QUEUED, **ask, **times))
    Gpr.objects.bulk_create(rows)
    statistics_renewed()


def statistics_renewed() -> None:
    """Updates statistics as autovacuum would after so many rows."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


def agent_says(agent: Agent, rows: Sequence[Reservation], phases: Iterable[Phase], *, now: datetime) -> None:
    from tests.inventory.agent import seen

    for phase in phases if rows else ():
        given = {"active_s": now.timestamp()} if phase == Phase.ACTIVE else {}
        agent.sync(*(seen(row, phase, **given) for row in rows), at=now)
