"""I13: of a stranger's workspace nothing reaches a member, whatever he asks; and a stranger's id does what no id does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from core.clock import db_now
from gpr.models import Gpr, PromiseMove
from gpr.usage.services import held_count
from inventory.models import Reservation, StepResult
from observability.alerts.models import AlertSilence
from observability.workloads.models import Workload
from protocol.agents.events import Outcome
from slices.models import Budget, Period, Quota
from slices.namespaces.services import namespace_bind
from tests import factories
from tests.api.conftest import Caller, World
from tests.builders import SHAPE
from tests.observability.alerts.rows import alert_of, rule_of
from tests.observability.workloads.saying import pods_of, tell

READS = ["me/", "gprs/", "queue/", "projects/", "slices/", "slices/vision/", "slices/vision/members/", "slices/vision/namespaces/"]
READS += ["slices/vision/kubeconfig/"]
READS += [
    "clusters/",
    "clusters/aurora/",
    "nodes/",
    "nodes/aurora-0/",
    "nodes/aurora-1/",
    "gpus/",
    "shapes/",
    "schedule/",
    "events/",
    "insights/",
]
READS += ["usage/", "usage/?by=gpr", "usage/?by=person&step=day", "usage/league/", "usage/prices/"]
READS += ["workloads/", "pods/", "tokens/", "quotas/", "budgets/", "gprs/{gpr}/", "gprs/{gpr}/steps/", "evictions/"]
READS += ["alerts/", "alert-rules/", "alert-silences/"]


@pytest.fixture(scope="module")
def canaries(built_world: World) -> set[str]:
    """The stranger runs, waits, has failed and ended around the owner's GPR. All names and ids of it."""
    world, people = built_world, built_world.people
    namespace_bind(slice_=world.foreign_slice, cluster=world.cluster, name="canary-namespace", actor=people.outsider, now=db_now())
    running = factories.active(world.foreign_slice, people.outsider, name="canary-running", nodes=1, model={"name": "canary-model"})
    waiting = factories.gpr(world.foreign_slice, people.outsider, name="canary-waiting", nodes=2, priority=190)
    asking = factories.gpr(world.foreign_slice, people.outsider, name="canary-asking", priority=300)
    (row,) = factories.held(running)
    held_count(now=db_now() + timedelta(minutes=1))
    step = StepResult.objects.create(
        reservation=row, step="drain", attempt=1, outcome=Outcome.FAILED, started_at=db_now(), ended_at=db_now(), log="canary-log"
    )
    namespace_bind(slice_=world.foreign_slice, cluster=world.cluster, name="canary-pods", actor=None, now=db_now())
    tell(world.cluster, *pods_of(running, "canary-pods", model="canary-model"))
    quotas = [
        Quota.objects.create(**of, shape=SHAPE, created_at=db_now())
        for of in ({"slice": world.foreign_slice}, {"project": world.foreign_slice.project})
    ]
    budgets = [
        Budget.objects.create(**of, gpu_hours=100, period=Period.WEEK, created_at=db_now())
        for of in ({"slice": world.foreign_slice}, {"project": world.foreign_slice.project})
    ]
    hot = rule_of(world.foreign_slice, people.outsider, name="canary-rule")
    alert = alert_of(world.foreign_slice, people.outsider, rule=hot, gpr=running, places="canary-node GPU 0")
    platform = alert_of(None, None, rule=rule_of(None, None, name="canary-platform", tells="admins"), places="canary-node GPU 1")
    span = {"created_at": db_now(), "starts_at": db_now(), "ends_at": db_now()}
    silence = AlertSilence.objects.create(slice=world.foreign_slice, owner=people.outsider, rule=hot, reason="canary-reason", **span)
    objects: list[Any] = [
        Workload.objects.get(),
        *quotas,
        *budgets,
        hot,
        alert,
        platform,
        silence,
        world.foreign_slice,
        world.foreign_slice.project,
        running,
        waiting,
        asking,
        row,
        people.outsider,
    ]
    return {"canary", "outsider", *(str(item.pk) for item in objects), *(f'"id":{pk},' for pk in (step.pk,))}


@pytest.fixture
def own(world: World, canaries: set[str]) -> Gpr:
    """It waits behind the stranger's, who also moved its promise."""
    gpr = factories.gpr(world.slice, world.people.owner, name="mine", nodes=2)
    moved_by = Gpr.objects.get(name="canary-running")
    now = db_now()
    PromiseMove.objects.create(gpr=gpr, at=now, old_start_at=now, new_start_at=now, cause="overrun", cause_id=str(moved_by.pk))
    return gpr


def test_no_read_of_a_member_holds_a_stranger_s_name_or_id(owner: Caller, teammate: Caller, own: Gpr, canaries: set[str]) -> None:
    for caller in (owner, teammate):
        for path in READS:
            response = caller.get(path.format(gpr=own.pk))
            assert response.status_code == 200, path
            text = response.content.decode()
            assert not {canary for canary in canaries if canary in text}, (path, text)


def test_no_answer_to_a_member_s_question_or_deed_does(owner: Caller, own: Gpr, canaries: set[str], ask: dict[str, Any]) -> None:
    for response in (
        owner.post("gprs/estimate/", {**ask, "nodes": 2}),
        owner.post("gprs/", ask),
        owner.patch(f"gprs/{own.pk}/", {"priority": 150}),
        owner.post("gprs/", {**ask, "nodes": 3}),
        owner.post(f"gprs/{own.pk}/release/"),
        owner.post("slices/vision/namespaces/", {"name": "canary-namespace", "cluster": "aurora"}),
    ):
        told = response.content.decode().replace("canary-namespace", "")  # that one he named himself
        assert not {canary for canary in canaries if canary in told}, told


def test_it_can_all_be_found_by_an_administrator(admin: Caller, own: Gpr, canaries: set[str]) -> None:
    """Otherwise the tests above would prove nothing."""
    told = "".join(
        admin.get(path.format(gpr=own.pk), **({"page_size": 500} if path.endswith("s/") else {})).content.decode() for path in READS
    )

    missing = {canary for canary in canaries if canary not in told}
    assert not {name for name in missing if not name.startswith('"id"')}


def foreign_paths(world: World) -> Iterator[tuple[str, str, str, Any]]:
    """Returns rows of method, path of something foreign, the same path of nothing, and body."""
    gpr, nothing = Gpr.objects.get(name="canary-waiting").pk, uuid4()
    for method, tail, body in [
        ("GET", "", None),
        ("PATCH", "", {"name": "x"}),
        ("DELETE", "", None),
        ("GET", "steps/", None),
        ("POST", "release/", {}),
        ("POST", "keep/", {}),
        ("POST", "extend/", {"extra_s": 60}),
        ("POST", "approve/", {}),
        ("POST", "reject/", {"why": "x"}),
        ("POST", "evict/", {"why": "x"}),
        ("POST", "priority/", {"priority": 5}),
    ]:
        yield method, f"gprs/{gpr}/{tail}", f"gprs/{nothing}/{tail}", body
    for ref, nowhere in [("canary-slice", "nowhere"), (str(world.foreign_slice.pk), str(nothing))]:
        for method, tail, body in [
            ("GET", "", None),
            ("PATCH", "", {"nodes_approval": 5}),
            ("GET", "members/", None),
            ("POST", "members/", {"user": "owner", "role": "owner"}),
            ("DELETE", "members/outsider/", None),
            ("GET", "namespaces/", None),
            ("POST", "namespaces/", {"name": "n", "cluster": "aurora"}),
            ("DELETE", "namespaces/canary-namespace/", None),
            ("GET", "kubeconfig/", None),
            ("POST", "kubeconfig/", {"cluster": "aurora"}),
        ]:
            yield method, f"slices/{ref}/{tail}", f"slices/{nowhere}/{tail}", body
    yield "GET", "projects/canary-project/", "projects/nowhere/", None
    yield "PATCH", "projects/canary-project/", "projects/nowhere/", {"in_league": False}
    for quota in Quota.objects.all():
        for method, body in (("GET", None), ("PATCH", {"most_gpus": 5}), ("DELETE", None)):
            yield method, f"quotas/{quota.pk}/", f"quotas/{nothing}/", body
    for budget in Budget.objects.all():
        for method, body in (("GET", None), ("PATCH", {"gpu_hours": 5}), ("DELETE", None)):
            yield method, f"budgets/{budget.pk}/", f"budgets/{nothing}/", body
    strange = factories.cluster("canary-cluster", nodes=1)
    for method, tail, body in [("GET", "", None), ("POST", "join-token/", {}), ("POST", "disable/", {})]:
        yield method, f"clusters/canary-cluster/{tail}", f"clusters/nowhere/{tail}", body
    node = strange.nodes.get()
    for method, tail, body in [("GET", "", None), ("POST", "cordon/", {"why": "x"}), ("POST", "uncordon/", {})]:
        yield method, f"nodes/{node.pk}/{tail}", f"nodes/{nothing}/{tail}", body
    token = factories.row_of(factories.token(world.people.outsider))
    for method in ("GET", "DELETE"):
        yield method, f"tokens/{token.pk}/", f"tokens/{nothing}/", None


def test_what_is_foreign_answers_as_what_is_not_there(owner: Caller, world: World, canaries: set[str]) -> None:
    for method, foreign, absent, body in foreign_paths(world):
        there, not_there = owner.call(method, foreign, body), owner.call(method, absent, body)

        assert there.status_code == not_there.status_code in {403, 404}, foreign
        assert there.content == not_there.content, foreign
        assert {**there.headers, "X-Request-Id": ""} == {**not_there.headers, "X-Request-Id": ""}


def test_ids_in_bodies_are_no_oracle_either(owner: Caller, world: World, canaries: set[str], ask: dict[str, Any]) -> None:
    strange = factories.cluster("canary-cluster", nodes=1)
    own = factories.gpr(world.slice, world.people.owner)
    for method, path, body in [
        ("POST", "gprs/", {**ask, "slice": "{}"}),
        ("POST", "gprs/estimate/", {**ask, "slice": "{}"}),
        ("POST", "gprs/", {**ask, "clusters": ["{}"]}),
        ("POST", "gprs/estimate/", {**ask, "clusters": ["{}"]}),
        ("PATCH", f"gprs/{own.pk}/", {"clusters": ["{}"]}),
        ("POST", "slices/vision/namespaces/", {"name": "n", "cluster": "{}"}),
    ]:
        template = json.dumps(body)
        known = (world.foreign_slice.pk, "canary-slice") if '"slice": "{}"' in template else (strange.pk, "canary-cluster")
        answers = {
            owner.call(method, path, json.loads(template.replace('"{}"', json.dumps(str(ref))))).content for ref in (*known, uuid4(), "x")
        }
        assert len(answers) == 1, (path, answers)


def test_filters_and_counts_are_no_oracle(owner: Caller, world: World, canaries: set[str]) -> None:
    foreign = Gpr.objects.get(name="canary-running")
    row = Reservation.objects.get(gpr=foreign)
    for path in ("gprs/", "queue/", "events/", "schedule/", "nodes/", "gpus/", "quotas/"):
        for query in (
            {"slice": world.foreign_slice.pk},
            {"slice": "canary-slice"},
            {"project": "canary-project"},
            {"gpr": foreign.pk},
            {"gpr": "canary-running"},
            {"owner": "outsider"},
            {"name": "canary"},
            {"kind": "gpr.created"},
        ):
            response = owner.get(path, **query)
            assert response.status_code in {200, 400}
            assert response.status_code == 400 or response.json()["results"] == [], (path, query)
    assert row.node.name in owner.get("nodes/").content.decode()
