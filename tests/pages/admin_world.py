"""A small world for the tests of the admin portal: people of all kinds signed in, one busy cluster, GPRs in every state before the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from django.db import connection

from core.clock import db_now
from gpr.allocation.allocator import tick
from gpr.models import Gpr, GprState, Promise
from inventory.models import Cluster
from slices.models import Slice
from tests import factories
from tests.builders import SHAPE
from tests.factories import People

HTMX = {"HX-Request": "true"}
# A page runs so many queries at most; PostgreSQL is asked for the time as well.
QUERIES_MAX = 17 + (connection.vendor == "postgresql")


@dataclass(frozen=True, slots=True)
class AdminWorld:
    people: People
    cluster: Cluster
    slice: Slice
    runs: Gpr  # holds both nodes
    waits: Gpr
    held: Gpr  # needs approval


def make_admin_world() -> AdminWorld:
    people = factories.make_people()
    cluster = factories.cluster("aurora", nodes=2)
    vision = factories.make_slice(cluster, name="vision", owner=people.owner, viewers=[people.teammate])
    speech = factories.make_slice(cluster, name="speech", owner=people.outsider)
    runs = factories.active(vision, people.owner, name="runs", nodes=2, duration_s=7200)
    waits = factories.gpr(speech, people.outsider, name="waits", nodes=1)
    Slice.objects.filter(pk=speech.pk).update(nodes_approval=1)
    speech.refresh_from_db()
    held = factories.gpr(speech, people.outsider, name="held-back", nodes=2)
    tick(now=db_now())
    for gpr in (runs, waits, held):
        gpr.refresh_from_db()
    assert [runs.state, waits.state, held.state] == [GprState.ACTIVE, GprState.QUEUED, GprState.PENDING_APPROVAL]
    return AdminWorld(people, cluster, vision, runs, waits, held)


def queue_up(world: AdminWorld, count: int) -> None:
    """Bare rows that wait, with a promise and a stored explanation each."""
    now = db_now()
    blockers = [{"id": str(world.runs.pk), "is_running": True, "until_s": 1_900_000_000}]
    told = {"reason": "waits_for_gpus", "blockers": blockers, "most_node_count": 0, "most_gpus_per_node": 0}
    given: dict[str, Any] = {"owner": world.people.owner, "shape": SHAPE, "nodes": 1, "duration_s": 3600, "remaining_s": 3600}
    times = {"created_at": now, "state_changed_at": now, "queued_at": now, "turn_at": now, "planned_start_at": now}
    slices = Slice.objects.bulk_create(Slice(name=f"s{uuid4().hex[:8]}", project=world.slice.project, created_at=now) for _ in range(count))
    gprs = Gpr.objects.bulk_create(
        Gpr(name=f"g{uuid4().hex[:8]}", slice=slice_, state=GprState.QUEUED, explanation=told, **given, **times) for slice_ in slices
    )
    Promise.objects.bulk_create(
        Promise(gpr=gpr, made_at=now, first_promised_start_at=now, promised_start_at=now, slot_pool="p", slot_start_at=now) for gpr in gprs
    )
