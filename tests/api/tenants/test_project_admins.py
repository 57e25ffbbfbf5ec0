"""A project administrator limits and ends the workspaces of his project, within his own limits, and does nothing else."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from accounts.models import Scope
from core.clock import db_now
from journal.models import Event
from slices.models import Budget, Life, Period, ProjectAdmin, Slice
from slices.policies.services import policy_change, policy_of
from tests import factories
from tests.api.conftest import Caller, World, assert_problem, faults
from tests.builders import SHAPE


@pytest.fixture
def runner(world: World) -> Caller:
    user = factories.user("runner")
    ProjectAdmin.objects.create(project=world.slice.project, user=user, created_at=db_now())
    return Caller(factories.token(user))


def project_allows(world: World, **terms: Any) -> None:
    policy_change(policy=policy_of(world.slice.project), terms=terms, actor=None, now=db_now())


# Each term has what the project allows, a value within it, and one beyond it.
BOUNDS: dict[str, tuple[Any, Any, Any]] = {
    "nodes_approval": (8, 8, 9),
    "duration_max_s": (30 * 86_400, 20 * 86_400, 31 * 86_400),
    "priority_approval": (150, 101, 151),
    "may_evict": (False, False, True),
    "shapes": ([SHAPE], [SHAPE], []),
    "idle_timeout_s": (3600, 600, 0),
    "burst_gain_s": (1800, 3600, 0),
    "namespace_patterns": (["ml-*"], [], ["*"]),
}


@pytest.mark.parametrize("term", BOUNDS)
def test_a_bound_from_above_is_narrowed_and_never_widened(term: str, runner: Caller, admin: Caller, world: World) -> None:
    allowed, narrower, wider = BOUNDS[term]
    project_allows(world, **{term: allowed})
    path = f"policies/{policy_of(world.slice).pk}/"

    assert runner.patch(path, {term: narrower, "why": "Release week."}).json()["effective"][term] == narrower
    for address in (path, "slices/vision/"):
        assert faults(runner.patch(address, {term: wider})) == [term]
    assert faults(runner.post(f"{path}preview/", {term: wider})) == [term]
    assert runner.patch(path, {term: None}).json()["effective"][term] == allowed
    assert admin.patch(path, {term: wider}).json()["effective"][term] == wider


def test_what_was_granted_beyond_the_project_is_narrowed_step_by_step(runner: Caller, admin: Caller, world: World) -> None:
    project_allows(world, nodes_approval=4)
    path = f"policies/{policy_of(world.slice).pk}/"
    admin.patch(path, {"nodes_approval": 32})

    assert runner.patch(path, {"nodes_approval": 16}).status_code == 200
    assert faults(runner.patch(path, {"nodes_approval": 32})) == ["nodes_approval"]


def test_what_limits_him_is_not_his_to_change(runner: Caller, world: World) -> None:
    project = world.slice.project
    budget = Budget.objects.create(project=project, gpu_hours=10, period=Period.WEEK, created_at=db_now())
    later = (db_now() + timedelta(days=9)).isoformat()

    for answer in (
        runner.patch(f"policies/{policy_of(project).pk}/", {"nodes_approval": 1}),
        runner.post(f"policies/{policy_of(project).pk}/preview/", {"nodes_approval": 1}),
        runner.post("budgets/", {"project": project.name, "gpu_hours": 99, "period": "month"}),
        runner.patch(f"budgets/{budget.pk}/", {"gpu_hours": 99}),
        runner.delete(f"budgets/{budget.pk}/"),
        runner.patch(f"projects/{project.name}/", {"ends_at": later}),
        runner.post(f"projects/{project.name}/archive/"),
        runner.post("quotas/", {"slice": "vision", "shape": SHAPE, "guaranteed_gpus": 8}),
        runner.post(f"projects/{project.name}/admins/", {"user": "teammate"}),
        runner.post("slices/", {"name": "new", "project": project.name}),
    ):
        assert_problem(answer, 403, "not_allowed")
    factories.cluster("borealis")
    assert runner.patch("slices/vision/", {"clusters": ["aurora", "borealis"]}).status_code in {403, 404}
    assert_problem(runner.patch(f"policies/{policy_of(None).pk}/", {"nodes_approval": 99}), 404, "not_found")


def test_workspaces_of_others_are_not_there_for_him_and_none_is_moved(runner: Caller, world: World) -> None:
    foreign = world.foreign_slice
    budget = Budget.objects.create(slice=foreign, gpu_hours=10, period=Period.WEEK, created_at=db_now())

    for answer in (
        runner.patch(f"policies/{policy_of(foreign).pk}/", {"nodes_approval": 1}),
        runner.patch(f"budgets/{budget.pk}/", {"gpu_hours": 1}),
        runner.post("budgets/", {"slice": foreign.name, "gpu_hours": 1, "period": "week"}),
        runner.patch(f"slices/{foreign.name}/", {"nodes_approval": 1}),
        runner.get(f"slices/{foreign.name}/closing/"),
        runner.post(f"slices/{foreign.name}/remove/"),
        runner.get(f"projects/{foreign.project.name}/closing/"),
    ):
        assert_problem(answer, 404, "not_found")
    assert faults(runner.patch("slices/vision/", {"project": foreign.project.name})) == ["project"]


def test_a_token_that_is_bound_or_may_not_write_changes_no_limits(runner: Caller, world: World) -> None:
    second = factories.make_slice(world.cluster, name="second", owner=world.people.owner, of=world.slice.project)
    user = ProjectAdmin.objects.get().user
    path = f"policies/{policy_of(world.slice).pk}/"

    assert Caller(factories.token(user, Scope.READ)).patch(path, {"nodes_approval": 1}).status_code == 403
    assert Caller(factories.token(user, slices=[str(second.pk)])).patch(path, {"nodes_approval": 1}).status_code == 404
    assert runner.patch(path, {"nodes_approval": 1}).status_code == 200


def test_his_own_request_is_not_approved_by_a_budget_that_his_project_does_not_have(runner: Caller, world: World) -> None:
    Budget.objects.create(project=world.slice.project, gpu_hours=10, period=Period.WEEK, created_at=db_now())
    budget = runner.post("budgets/", {"slice": "vision", "gpu_hours": 5, "period": "week"}).json()
    ask = {"name": "own", "slice": "vision", "shape": SHAPE, "nodes": 1, "duration_s": 36_000}
    own = runner.post("gprs/", ask).json()

    assert own["state"] == "PENDING_APPROVAL"
    assert_problem(runner.post(f"gprs/{own['id']}/approve/"), 403, "not_allowed")
    assert runner.patch(f"budgets/{budget['id']}/", {"gpu_hours": 10_000}).status_code == 200
    assert runner.patch(f"gprs/{own['id']}/", {"name": "again"}).json()["state"] == "PENDING_APPROVAL"


def test_he_reads_what_an_end_would_end_and_removes_a_workspace_once_it_is_drained(runner: Caller, world: World) -> None:
    factories.active(world.slice, world.people.owner, name="runs")
    soon = (db_now() + timedelta(days=9)).isoformat()

    assert runner.get("slices/vision/closing/").json()["ends"]["running"]["names"] == ["runs"]
    assert runner.get(f"projects/{world.slice.project.name}/closing/").json()["ends"]["workspaces"]["count"] == 1
    assert runner.patch("slices/vision/", {"ends_at": soon}).status_code == 200
    assert runner.post("slices/vision/remove/", {"drain": True, "why": "The project is done."}).json()["settled_at"] is None
    assert Slice.objects.get(pk=world.slice.pk).life == Life.REMOVED
    assert Event.objects.get(kind="slice.closed").actor == ProjectAdmin.objects.get().user
    assert_problem(runner.post("slices/vision/restore/"), 403, "not_allowed")
