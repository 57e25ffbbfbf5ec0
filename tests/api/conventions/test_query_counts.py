"""A list costs the same number of queries whether it has ten rows or a hundred."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from core.clock import db_now
from gpr.models import Eviction, EvictionVictim, Gpr, GprState, Promise, VictimOutcome
from inventory.models import Cluster, Reservation, StepResult
from journal.models import Event
from observability.alerts.models import Alert, AlertSilence, AlertSubject
from protocol.agents.events import Outcome
from slices.models import Budget, Kubeconfig, Membership, Namespace, Period, Project, Quota, Role, Slice
from tests import factories
from tests.api.conftest import Caller, World
from tests.builders import SHAPE, hold
from tests.observability.alerts.rows import alert_of

pytestmark = pytest.mark.both_databases


def gprs(world: World, count: int) -> None:
    """Half of them wait, for another and for a stranger; the others hold a node each."""
    foreign = Gpr.objects.create(**_gpr(world, "canary", world.foreign_slice))
    now = db_now()
    factories.add_nodes(world.cluster, count // 2, gpus=1)
    nodes = list(world.cluster.nodes.filter(gpu_count=1, reservations=None))
    for n in range(count // 2):
        slice_ = Slice.objects.create(name=f"s{uuid4()}", project=world.slice.project, created_at=now)
        Membership.objects.create(slice=slice_, user=world.people.owner, role=Role.OWNER)
        waiting, holding = (Gpr.objects.create(**_gpr(world, f"{n}", slice_)) for _ in range(2))
        waiting.clusters.add(world.cluster)
        Promise.objects.create(
            gpr=waiting, made_at=now, first_promised_start_at=now, promised_start_at=now, slot_pool="p", slot_start_at=now
        )
        blockers = [{"id": str(pk), "is_running": True, "until_s": 1_900_000_000} for pk in (foreign.pk, holding.pk)]
        waiting.explanation = {
            "reason": "waits_for_gpus",
            "blockers": blockers,
            "most_node_count": 0,
            "most_gpus_per_node": 0,
        }
        waiting.planned_start_at = now
        waiting.save()
        Gpr.objects.filter(pk=holding.pk).update(state=GprState.PROVISIONING)
        hold(holding, nodes[n], starts_at=now, ends_at=now + timedelta(hours=1))


def _gpr(world: World, name: str, slice_: Slice) -> dict[str, object]:
    now = db_now()
    times = {"created_at": now, "state_changed_at": now, "queued_at": now, "turn_at": now}
    ask = {"shape": SHAPE, "nodes": 1, "duration_s": 3600, "remaining_s": 3600}
    return {"name": name, "slice": slice_, "owner": world.people.owner, "state": GprState.QUEUED, "cluster": world.cluster, **times, **ask}


def steps(world: World, count: int) -> None:
    gpr = Gpr.objects.filter(name="stepped").first() or factories.started(world.slice, world.people.owner, name="stepped")
    row, now = Reservation.objects.get(gpr=gpr), db_now()
    begun = StepResult.objects.count()
    StepResult.objects.bulk_create(
        StepResult(reservation=row, step="drain", attempt=begun + n, outcome=Outcome.OK, started_at=now, ended_at=now) for n in range(count)
    )


def tenants(world: World, count: int) -> None:
    now = db_now()
    for _ in range(count):
        cluster = Cluster.objects.create(name=f"c{uuid4()}", created_at=now)
        project = Project.objects.create(name=f"p{uuid4()}", created_at=now)
        slice_ = Slice.objects.create(name=f"s{uuid4()}", project=project, created_at=now)
        Quota.objects.create(project=project, shape=SHAPE, created_at=now)
        Budget.objects.create(project=project, gpu_hours=1, period=Period.WEEK, created_at=now)
        slice_.clusters.add(cluster, world.cluster)
        Membership.objects.create(slice=slice_, user=world.people.owner, role=Role.OWNER)
        Membership.objects.create(slice=world.slice, user=factories.user(f"u{uuid4()}"), role=Role.VIEWER)
        Namespace.objects.create(slice=world.slice, cluster=world.cluster, name=f"n{uuid4()}", created_at=now)
        factories.token(world.people.owner)


def kubeconfigs(world: World, count: int) -> None:
    now = db_now()
    for _ in range(count):
        user = factories.user(f"u{uuid4()}")
        about = {"slice": world.slice, "cluster": world.cluster, "namespace": "train", "user": user, "duration_s": 3600}
        Kubeconfig.objects.create(**about, asked_at=now, due_at=now)


def events(world: World, count: int) -> None:
    now = db_now()
    Event.objects.bulk_create(Event(at=now, kind="k", message="m", slice_id=world.slice.pk, actor=world.people.owner) for _ in range(count))


def evictions(world: World, count: int) -> None:
    """Each eviction names two GPRs; one of them is a stranger's."""
    now = db_now()
    mine, other = (Gpr.objects.create(**_gpr(world, "victim", slice_)) for slice_ in (world.slice, world.foreign_slice))
    made = Eviction.objects.bulk_create(Eviction(gpr=mine, made_at=now, start_at=now, instead_at=now) for _ in range(count))
    EvictionVictim.objects.bulk_create(
        EvictionVictim(eviction=one, gpr=gpr, kind="reclaim", ends_at=now, lost_gpu_s=0, outcome=VictimOutcome.EVICTED)
        for one in made
        for gpr in (mine, other)
    )


def alerts(world: World, count: int) -> None:
    now, owner = db_now(), world.people.owner
    first = Alert.objects.filter(places="first").first() or alert_of(world.slice, owner, places="first", subjects=0)
    for _ in range(count):
        alert_of(world.slice, owner)
    of = {"alert": first, "rule": first.rule, "state": "OVER", "since_at": now, "first": 1, "worst": 1, "name": "n", "key": "k"}
    AlertSubject.objects.bulk_create(AlertSubject(subject_id=uuid4(), **of) for _ in range(count))
    span = {"starts_at": now, "ends_at": now, "created_at": now, "reason": "r"}
    AlertSilence.objects.bulk_create(AlertSilence(slice=world.slice, owner=owner, rule=first.rule, **span) for _ in range(count))


# The function that makes the rows, and the lists that show them.
LISTS: dict[Callable[[World, int], None], list[str]] = {
    gprs: ["gprs/", "queue/", "nodes/", "gpus/", "schedule/", "shapes/"],
    steps: ["gprs/{stepped}/steps/"],
    tenants: [
        "projects/",
        "slices/",
        "quotas/",
        "budgets/",
        "clusters/",
        "slices/vision/members/",
        "slices/vision/namespaces/",
        "tokens/",
        "me/",
    ],
    kubeconfigs: ["slices/vision/kubeconfig/"],
    events: ["events/"],
    evictions: ["evictions/"],
    alerts: ["alerts/", "alert-rules/", "alert-silences/", "alerts/{alert}/subjects/"],
}


@pytest.mark.parametrize("fill", LISTS, ids=lambda fill: fill.__name__)
def test_a_list_of_a_hundred_costs_what_a_list_of_ten_costs(fill: Callable[[World, int], None], owner: Caller, world: World) -> None:
    def cost(path: str) -> tuple[int, int]:
        stepped = Gpr.objects.filter(name="stepped").first()
        alert = Alert.objects.filter(places="first").first()
        url = path.format(stepped=stepped.pk if stepped else "", alert=alert.pk if alert else "")
        with CaptureQueriesContext(connection) as queries:
            body = owner.get(url, **({} if path in {"me/", "shapes/"} else {"page_size": 500})).json()
        return len(queries), len(body.get("results", body.get("slices")))

    owner.get("me/")  # the token's first use is written down
    fill(world, 10)
    costs = {path: cost(path) for path in LISTS[fill]}
    fill(world, 90)

    for path, (few, few_rows) in costs.items():
        many, many_rows = cost(path)
        assert path == "shapes/" or many_rows >= few_rows + 45, path
        assert many == few <= 14, path
