"""A page costs 15 queries at most, and the same for ten rows and for a hundred."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.template.backends.django import Template
from django.test import Client
from django.test.utils import CaptureQueriesContext

from core.clock import db_now
from gpr.models import Gpr, GprState, Promise
from inventory.models import StepResult
from protocol.agents.events import Outcome
from slices.models import Membership, Role, Slice
from tests import factories
from tests.builders import SHAPE
from tests.pages.user_world import CREATE, HTMX, OFFERS, WORKSPACE, World, form

# Each day: tests/api/conventions/test_query_counts.py
pytestmark = [pytest.mark.django_db, pytest.mark.rotates]

# One of them is the clock's, on PostgreSQL.
QUERIES_MAX = 25
# The whole queue is read for each question to the planner: what runs, what waits, on which nodes, with which promises, and
# what has come lately; when EGS itself was away, which clusters had failures, and which nodes are held by what cannot be read.
PLAN_QUERIES = 16


def cost(client: Client, path: str, data: dict[str, Any] | None = None) -> int:
    with CaptureQueriesContext(connection) as made:
        response = client.post(path, data, headers=HTMX) if data else client.get(path)
    assert response.status_code == 200, path
    return len(made)


def fill(world: World, count: int) -> None:
    """Bare rows: waiting ones, late, with a stored explanation, and as many that have ended."""
    now, runs = db_now(), Gpr.objects.filter(slice=world.slice, state=GprState.ACTIVE).first()
    told = {"reason": "waits_for_gpus", "blockers": [], "most_node_count": 0, "most_gpus_per_node": 0}
    if runs:
        told["blockers"] = [{"id": str(runs.pk), "is_running": True, "until_s": 1_900_000_000}]
    given: dict[str, Any] = {"owner": world.people.owner, "slice": world.slice, "shape": SHAPE, "nodes": 1, "duration_s": 3600}
    given |= {"remaining_s": 3600, "created_at": now, "state_changed_at": now, "queued_at": now, "turn_at": now, "state": GprState.QUEUED}
    waiting = [Gpr(name=uuid4().hex[:8], explanation=told, planned_start_at=now + timedelta(hours=n), **given) for n in range(count)]
    over = [Gpr(name=uuid4().hex[:8], **given) for _ in range(count)]
    Gpr.objects.bulk_create([*waiting, *over])
    Gpr.objects.filter(pk__in=[gpr.pk for gpr in over]).update(state=GprState.CANCELED, ended_at=now)
    Promise.objects.bulk_create(
        Promise(gpr=gpr, made_at=now, first_promised_start_at=now, promised_start_at=now, slot_pool="p", slot_start_at=now)
        for gpr in waiting
    )


def workspaces(world: World, count: int) -> None:
    now = db_now()
    made = Slice.objects.bulk_create(Slice(name=uuid4().hex[:8], project=world.slice.project, created_at=now) for _ in range(count))
    Membership.objects.bulk_create(Membership(slice=slice_, user=world.people.owner, role=Role.EDITOR) for slice_ in made)


# A teammate sees what an owner sees.
@pytest.mark.parametrize("persona", ["owner", pytest.param("teammate", marks=pytest.mark.soak), "admin"])
def test_a_list_of_a_hundred_costs_what_ten_cost(persona: str, world: World) -> None:
    factories.active(world.slice, world.people.owner, name="runs", nodes=2)
    client = world.client(persona)
    paths = ["/", WORKSPACE, *(f"{WORKSPACE}?part={part}" for part in ("facts", "tabs", "provisioned", "pending", "ended", "axis"))]
    paths += [f"{WORKSPACE}?state={state}" for state in ("pending", "provisioned", "ended")]
    fill(world, 10)
    workspaces(world, 10)
    few = {path: cost(client, path) for path in paths}

    fill(world, 90)
    workspaces(world, 30)

    assert {path: cost(client, path) for path in paths} == few
    assert max(few.values()) <= QUERIES_MAX, few


def test_the_form_and_its_offers_cost_the_same_behind_a_long_queue(world: World) -> None:
    factories.active(world.slice, world.people.owner, name="runs", nodes=2)
    owner = world.client("owner")
    fill(world, 10)
    few = cost(owner, CREATE), cost(owner, OFFERS, form(nodes="2"))

    fill(world, 90)

    assert (cost(owner, CREATE), cost(owner, OFFERS, form(nodes="2"))) == few
    assert few[0] <= QUERIES_MAX
    assert few[1] <= QUERIES_MAX + PLAN_QUERIES


def test_a_request_of_many_nodes_costs_what_one_of_few_costs(world: World) -> None:
    factories.add_nodes(world.cluster, 98)
    Slice.objects.update(nodes_approval=1_000, gpus_approval=10_000)
    world.foreign.refresh_from_db()
    few = factories.active(world.slice, world.people.owner, name="few", nodes=2)
    many = factories.active(world.foreign, world.people.outsider, name="many", nodes=90, gpus_per_node=8)
    now = db_now()
    for gpr in (few, many):
        StepResult.objects.bulk_create(
            StepResult(reservation=row, step=step, attempt=1, outcome=Outcome.OK, started_at=now, ended_at=now)
            for row in factories.held(gpr)
            for step in ("claim", "node_ready", "open")
        )
    parts = ["", "?part=now", "?part=use", "?part=nodes", "?part=steps", "?part=why", "?part=events"]

    def costs(gpr: Gpr, persona: str) -> list[int]:
        client = world.client(persona)
        return [cost(client, f"/gprs/{gpr.pk}/{part}") for part in parts]

    assert costs(few, "owner") == costs(many, "outsider")
    assert max(costs(few, "owner")) <= QUERIES_MAX


def test_no_page_asks_while_it_is_rendered(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is shown stands in the context object."""
    runs = factories.active(world.slice, world.people.owner, name="runs", nodes=2)
    waits = factories.gpr(world.slice, world.people.owner, name="waits", nodes=2)
    owner, asked = world.client("owner"), 0
    render = Template.render

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal asked
        with CaptureQueriesContext(connection) as made:
            result = render(self, *args, **kwargs)
        asked += len(made)
        return result

    monkeypatch.setattr(Template, "render", counted)
    for path in ("/", WORKSPACE, CREATE, f"/gprs/{runs.pk}/", f"/gprs/{waits.pk}/", f"/gprs/{waits.pk}/edit/", f"/gprs/{runs.pk}/release/"):
        owner.get(path)

    assert asked == 0
