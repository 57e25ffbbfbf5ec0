"""An administrator uses approve/, reject/, evict/ and priority/; an Event says who did it and why."""

from __future__ import annotations

from typing import Any

import pytest

from accounts.models import Scope
from core.clock import db_now
from gpr.allocation.allocator import tick
from gpr.models import Gpr
from journal.models import Event
from protocol.assignments import Phase
from slices.models import Budget, Period, ProjectAdmin, Slice
from tests import factories
from tests.api.conftest import Caller, World, assert_problem, faults

ACTIONS: dict[str, dict[str, Any]] = {"approve": {}, "reject": {"why": "no"}, "evict": {"why": "no"}, "priority": {"priority": 5}}


def foreseen(action: str, body: dict[str, Any]) -> dict[str, Any]:
    return {"act": action, **{name: value for name, value in body.items() if name != "why"}}


@pytest.fixture
def asking(world: World) -> Gpr:
    return factories.gpr(world.slice, world.people.owner, name="job", priority=300)


@pytest.mark.parametrize(
    ("persona", "status"), [("owner", 403), ("teammate", 403), ("outsider", 404), ("reader", 403), ("half_admin", 404), ("anonymous", 401)]
)
def test_nobody_but_an_administrator_decides(persona: str, status: int, asking: Gpr, request: pytest.FixtureRequest) -> None:
    for action, body in ACTIONS.items():
        caller = request.getfixturevalue(persona)
        assert caller.post(f"gprs/{asking.pk}/preview/", foreseen(action, body)).status_code == status
        assert caller.post(f"gprs/{asking.pk}/{action}/", body).status_code == (403 if action == "priority" and status == 404 else status)
    asking.refresh_from_db()
    assert asking.version == 1


def test_a_project_administrator_approves_what_stays_in_his_project_and_nothing_of_his_own(world: World, admin: Caller) -> None:
    runner, people = factories.user("runner"), world.people
    ProjectAdmin.objects.create(project=world.slice.project, user=runner, created_at=db_now())
    caller = Caller(factories.token(runner))
    long = {"duration_s": world.slice.duration_approval_s + 1}
    far = [factories.gpr(world.slice, people.owner, **wish) for wish in ({"priority": 300}, {"may_evict": True})]
    near, own = factories.gpr(world.slice, people.owner, **long), factories.gpr(world.slice, runner, **long)

    for gpr in (*far, own):
        assert_problem(caller.post(f"gprs/{gpr.pk}/approve/"), 403, "not_allowed")
    assert caller.post(f"gprs/{near.pk}/approve/").json()["state"] == "QUEUED"
    weekly = {"gpu_hours": 1, "period": Period.WEEK, "created_at": db_now()}
    Budget.objects.create(slice=world.slice, **weekly)
    over = factories.gpr(world.slice, people.owner)
    assert caller.post(f"gprs/{over.pk}/approve/").json()["state"] == "QUEUED"
    of_project = Budget.objects.create(project=world.slice.project, **weekly)
    assert_problem(caller.post(f"gprs/{factories.gpr(world.slice, people.owner).pk}/approve/"), 403, "not_allowed")
    of_project.delete()
    Slice.objects.filter(pk=world.slice.pk).update(may_order=True)
    to_order = factories.gpr(world.slice, people.owner, **long)
    assert_problem(caller.post(f"gprs/{to_order.pk}/approve/"), 403, "not_allowed")
    assert [admin.post(f"gprs/{gpr.pk}/approve/").status_code for gpr in (*far, own, to_order)] == [200] * 4


def test_a_token_for_requests_alone_decides_on_none(world: World, asking: Gpr) -> None:
    runner = factories.user("runner")
    ProjectAdmin.objects.create(project=world.slice.project, user=runner, created_at=db_now())
    pipeline = Caller(factories.token(runner, Scope.GPR_WRITE))

    for action in ("approve", "reject", "evict"):
        assert_problem(pipeline.post(f"gprs/{asking.pk}/{action}/", ACTIONS[action]), 403, "not_allowed")
    for act in ({"act": "approve"}, {"act": "reject", "why": "no"}):
        assert_problem(pipeline.post("gprs/bulk/", {**act, "ids": [str(asking.pk)]}), 403, "not_allowed")
    assert pipeline.post("gprs/bulk/", {"act": "cancel", "ids": [str(asking.pk)]}).json()["results"][0]["is_done"]


def test_an_approved_one_is_queued_with_a_promise(admin: Caller, asking: Gpr) -> None:
    body = admin.post(f"gprs/{asking.pk}/approve/", {"why": "Deadline."}).json()

    assert (body["state"], body["position"], body["version"]) == ("QUEUED", 1, 2)
    assert body["promised_start_at"] is not None
    event = Event.objects.get(kind="gpr.transition")
    assert (event.actor.name if event.actor else None, event.message) == ("admin", "job was approved. Deadline.")


def test_a_rejected_one_has_ended_and_its_owner_reads_why(admin: Caller, owner: Caller, asking: Gpr) -> None:
    assert admin.post(f"gprs/{asking.pk}/reject/", {"why": "Too big."}).json()["state"] == "REJECTED"

    (event, _) = owner.get(f"events/?gpr={asking.pk}").json()["results"]
    assert (event["new"], event["message"], event["actor"]) == ("REJECTED", "job was rejected. Too big.", "admin")


def test_an_evicted_one_goes_back_to_the_queue_with_what_is_left(admin: Caller, world: World) -> None:
    gpr = factories.active(world.slice, world.people.owner)

    body = admin.post(f"gprs/{gpr.pk}/evict/", {"why": "Maintenance."}).json()
    assert (body["state"], body["end_reason"]) == ("EXITING", "EVICTED")

    gpr.refresh_from_db()
    factories.observe(gpr, Phase.RELEASED)
    body = admin.get(f"gprs/{gpr.pk}/").json()
    assert (body["state"], body["end_reason"], body["cluster"], body["nodes_assigned"]) == ("QUEUED", None, None, [])
    assert body["duration_s"] - 60 <= body["remaining_s"] < body["duration_s"]


@pytest.mark.parametrize(("wish", "said", "state"), [(True, False, "EVICTED"), (False, True, "QUEUED")])
def test_an_administrator_may_say_whether_an_evicted_one_waits_again(
    wish: bool, said: bool, state: str, admin: Caller, world: World
) -> None:
    gpr = factories.active(world.slice, world.people.owner, requeue_on_failure=wish)

    admin.post(f"gprs/{gpr.pk}/evict/", {"why": "Maintenance.", "requeue": said})

    gpr.refresh_from_db()
    factories.observe(gpr, Phase.RELEASED)
    assert gpr.state == state


def test_an_evicted_one_that_would_not_be_queued_again_has_ended(admin: Caller, world: World) -> None:
    gpr = factories.active(world.slice, world.people.owner, requeue_on_failure=False)
    admin.post(f"gprs/{gpr.pk}/evict/", {"why": "Maintenance."})
    gpr.refresh_from_db()

    factories.observe(gpr, Phase.RELEASED)

    assert admin.get(f"gprs/{gpr.pk}/").json()["state"] == "EVICTED"


def test_a_priority_that_changes_no_start_changes_no_place_and_no_promise(admin: Caller, world: World) -> None:
    factories.gpr(world.foreign_slice, world.people.outsider, nodes=2)
    gpr = factories.gpr(world.slice, world.people.owner, nodes=2)
    before = admin.get(f"gprs/{gpr.pk}/").json()

    after = admin.post(f"gprs/{gpr.pk}/priority/", {"priority": 300, "why": "Deadline."}).json()

    assert (before["position"], after["position"], after["priority"], after["version"]) == (2, 2, 300, 2)
    assert after["promised_start_at"] == before["promised_start_at"]
    assert (after["explanation"]["ahead_count"], after["explanation"]["sentence"]) == (1, before["explanation"]["sentence"])
    assert Event.objects.get(kind="gpr.priority_changed").message.endswith("from 101 to 300. Deadline.")


def test_one_that_no_rule_holds_back_any_more_is_queued(admin: Caller, asking: Gpr) -> None:
    """An edit by its owner does the same: nobody approves what needs no approval."""
    assert asking.approval_reasons

    body = admin.post(f"gprs/{asking.pk}/priority/", {"priority": 150}).json()

    assert (body["state"], body["approval_reasons"], body["position"]) == ("QUEUED", [], 1)
    assert body["promised_start_at"] is not None


def test_a_priority_that_an_administrator_gives_needs_no_approval(admin: Caller, world: World) -> None:
    gpr = factories.gpr(world.slice, world.people.owner)

    body = admin.post(f"gprs/{gpr.pk}/priority/", {"priority": 300}).json()

    assert (body["state"], body["priority"], body["approval_reasons"]) == ("QUEUED", 300, [])


def test_the_reasons_that_it_waits_for_approval_follow_its_priority(admin: Caller, world: World) -> None:
    gpr = factories.gpr(world.slice, world.people.owner, priority=300, duration_s=world.slice.duration_approval_s + 1)
    assert len(gpr.approval_reasons) == 2

    body = admin.post(f"gprs/{gpr.pk}/priority/", {"priority": 150}).json()

    assert (body["state"], len(body["approval_reasons"])) == ("PENDING_APPROVAL", 1)


def test_a_priority_out_of_bounds_is_refused(admin: Caller, asking: Gpr) -> None:
    for value in [0, 301, -1, 1.5, True, "5", None, 2**60]:
        assert faults(admin.post(f"gprs/{asking.pk}/priority/", {"priority": value})) == ["priority"]


@pytest.mark.parametrize("action", ["reject", "evict"])
def test_a_verdict_needs_a_reason(action: str, admin: Caller, asking: Gpr) -> None:
    assert faults(admin.post(f"gprs/{asking.pk}/{action}/")) == ["why"]
    for why in ["", " ", None, 5, "x" * 301, "a\u0000", "a\nb"]:
        assert faults(admin.post(f"gprs/{asking.pk}/{action}/", {"why": why})) == ["why"]


@pytest.mark.parametrize("action", ACTIONS)
def test_a_stale_version_decides_nothing(action: str, admin: Caller, asking: Gpr) -> None:
    assert_problem(admin.post(f"gprs/{asking.pk}/{action}/", {**ACTIONS[action], "version": 9}), 409, "stale_version")


@pytest.mark.parametrize("action", ACTIONS)
def test_an_ended_one_is_past_all_decisions(action: str, admin: Caller, owner: Caller, asking: Gpr) -> None:
    owner.delete(f"gprs/{asking.pk}/")

    assert_problem(admin.post(f"gprs/{asking.pk}/{action}/", ACTIONS[action]), 409, "wrong_state")
    assert_problem(admin.post(f"gprs/{asking.pk}/preview/", foreseen(action, ACTIONS[action])), 409, "wrong_state")


@pytest.mark.parametrize("action", ACTIONS)
def test_one_that_is_not_there_is_a_404(action: str, admin: Caller) -> None:
    assert_problem(admin.post(f"gprs/4be0643f-1d98-573b-97cd-ca98a65347dd/{action}/", ACTIONS[action]), 404, "not_found")


def test_a_preview_tells_what_the_act_then_does_and_who_else_starts_at_another_time(admin: Caller, world: World) -> None:
    factories.started(world.slice, world.people.owner, nodes=2)
    first, last = (
        factories.gpr(factories.make_slice(world.cluster, owner=world.people.owner), world.people.owner, name=name, nodes=2)
        for name in ("first", "last")
    )
    tick(now=db_now())

    told = admin.post(f"gprs/{last.pk}/preview/", {"act": "move", "to": "first"}).json()

    assert (told["old_position"], told["new_position"]) == (2, 1)
    assert told["new_start_at"] < told["old_start_at"]
    assert told["sentence"].startswith("It is planned as number 1 instead of 2. It starts 20")
    assert (told["others"]["summary"], told["others"]["later_count"]) == ("1 other would start later.", 1)
    assert [row["gpr"] for row in told["others"]["moved"]] == [first.name]
    assert admin.get(f"gprs/{last.pk}/").json()["position"] == 2

    admin.post(f"gprs/{last.pk}/move/", {"to": "first"})
    tick(now=db_now())
    assert admin.get(f"gprs/{last.pk}/").json()["position"] == told["new_position"]

    assert "first of its priority" in admin.post(f"gprs/{last.pk}/preview/", {"act": "move", "to": "up"}).json()["detail"]
    assert faults(admin.post(f"gprs/{first.pk}/preview/", {"act": "priority"})) == ["priority"]
    assert faults(admin.post(f"gprs/{first.pk}/preview/", {"act": "priority", "priority": 301})) == ["priority"]


def test_a_preview_names_requests_of_others_to_administrators_alone(world: World, admin: Caller) -> None:
    runner = factories.user("runner")
    ProjectAdmin.objects.create(project=world.slice.project, user=runner, created_at=db_now())
    gpr = factories.active(world.slice, world.people.owner, nodes=2)
    factories.gpr(world.foreign_slice, world.people.outsider, name="canary", nodes=2)
    tick(now=db_now())
    ask = {"act": "evict", "requeue": False}

    own, everything = (caller.post(f"gprs/{gpr.pk}/preview/", ask) for caller in (Caller(factories.token(runner)), admin))

    assert own.json()["others"] is None
    assert "canary" not in own.content.decode()
    assert own.json()["sentence"] == everything.json()["sentence"]
    assert "are lost" in own.json()["sentence"]
    assert [row["gpr"] for row in everything.json()["others"]["moved"]] == ["canary"]


def test_an_approval_that_could_never_start_says_so_and_changes_nothing(admin: Caller, world: World, asking: Gpr) -> None:
    world.cluster.nodes.update(gone_at=world.cluster.created_at)

    assert_problem(admin.post(f"gprs/{asking.pk}/approve/"), 400, "can_never_start")

    asking.refresh_from_db()
    assert (asking.state, asking.version) == ("PENDING_APPROVAL", 1)
