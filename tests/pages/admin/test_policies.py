"""An administrator changes one rule of a policy at a time, after he has seen what would break it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from core.clock import db_now
from journal.models import Event
from slices.models import Budget, PolicyVersion, ProjectAdmin, Slice
from slices.policies.services import policy_change, policy_of
from tests import factories
from tests.pages.admin_world import HTMX, AdminWorld
from tests.pages.user_world import client_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin(admin_world: AdminWorld) -> Client:
    return client_of(admin_world.people.admin)


@pytest.fixture
def page(admin_world: AdminWorld) -> str:
    return f"/admin/policies/{policy_of(admin_world.slice).pk}/"


def version(of: Slice) -> int:
    return policy_of(of).version


def text(answer: Any) -> str:
    return str(answer.content.decode())


def test_boxes_may_be_idle_for_ever_until_somebody_sets_a_time_out(admin: Client, admin_world: AdminWorld, page: str) -> None:
    def row() -> str:
        return text(admin.get(page)).split("Idle time-out</span>")[1].split("</tr>")[0]

    assert ">never</span>" in row()
    assert "built in" in row()
    assert 'value="never"' in text(admin.get(f"{page}idle_timeout_s/", headers=HTMX))
    for typed, timeout_s in (("2 h", 7200), ("never", 0)):
        admin.post(f"{page}idle_timeout_s/", {"value": typed, "version": version(admin_world.slice), "why": ""})
        assert Slice.objects.get(pk=admin_world.slice.pk).idle_timeout_s == timeout_s
    assert "set here" in row()


def test_the_preview_names_what_would_break_the_rule_and_the_page_names_it_afterwards(
    admin: Client, admin_world: AdminWorld, page: str
) -> None:
    sent = {"value": "1", "version": version(admin_world.slice), "why": "Rack is rebuilt."}

    preview = text(admin.post(f"{page}nodes_approval/", {**sent, "act": "preview"}, headers=HTMX))
    assert "1 request that keeps the policy now would break it" in preview
    assert "It runs to its end; an extension is judged by the new policy." in preview
    assert not Slice.objects.filter(pk=admin_world.slice.pk, nodes_approval=1).exists()

    assert admin.post(f"{page}nodes_approval/", sent).status_code == 302
    shown = text(admin.get(page))
    assert "2 nodes; more than 1 need approval." in shown
    assert "Nodes without approval: inherited → 1" in shown
    assert "Rack is rebuilt." in shown
    assert Event.objects.filter(kind="policy.changed", actor=admin_world.people.admin).count() == 1

    back = {"version": version(admin_world.slice), "why": ""}
    assert "No running, waiting or booked request would break it." in text(admin.get(f"{page}nodes_approval/inherit/", headers=HTMX))
    assert admin.post(f"{page}nodes_approval/inherit/", back).status_code == 302
    assert Slice.objects.get(pk=admin_world.slice.pk).nodes_approval == 16


@pytest.mark.parametrize(
    ("term", "value", "stored"),
    [
        ("duration_approval_s", "2 h", 7200),
        ("may_skip_checks", "no", False),
        ("shapes", ["H100-80GB"], ["H100-80GB"]),
        ("namespace_patterns", "vision, vi-*", ["vision", "vi-*"]),
    ],
)
def test_each_kind_of_rule_has_its_own_field(term: str, value: Any, stored: Any, admin: Client, admin_world: AdminWorld, page: str) -> None:
    assert admin.post(f"{page}{term}/", {"value": value, "version": version(admin_world.slice)}).status_code == 302

    assert getattr(Slice.objects.get(pk=admin_world.slice.pk), term) == stored


def test_a_form_that_is_stale_or_means_nothing_changes_nothing(admin: Client, admin_world: AdminWorld, page: str) -> None:
    seen = version(admin_world.slice)
    bad = {"duration_max_s": "1 min", "decide_within_s": "5 s", "namespace_patterns": "Not A Name", "nodes_approval": "-1"}
    for term, value in bad.items():
        assert admin.post(f"{page}{term}/", {"value": value, "version": seen}).status_code == 422
    policy_change(policy=policy_of(admin_world.slice), terms={"queued_max": 5}, actor=None, now=db_now())
    assert admin.post(f"{page}nodes_approval/", {"value": "1", "version": seen}).status_code == 409
    assert admin.get(f"{page}nothing/").status_code == 404
    assert PolicyVersion.objects.filter(policy=policy_of(admin_world.slice)).count() == 2


def test_a_change_of_the_platform_reaches_workspaces_that_do_not_set_it_and_the_list_says_who_sets_what(
    admin: Client, admin_world: AdminWorld
) -> None:
    platform = policy_of(None)
    admin.post(f"/admin/policies/{platform.pk}/queued_max/", {"value": "7", "version": platform.version})

    assert set(Slice.objects.values_list("queued_max", flat=True)) == {7}
    listed = text(admin.get("/admin/policies/"))
    assert listed.index("The platform") < listed.index("vision")
    assert "Waiting requests" in listed
    assert "the platform" in text(admin.get(f"/admin/policies/{policy_of(admin_world.slice).pk}/"))


def test_members_read_the_policy_of_their_workspace_and_who_runs_the_project_that_too(admin_world: AdminWorld) -> None:
    project, runner = admin_world.slice.project, factories.user("runner")
    ProjectAdmin.objects.create(project=project, user=runner, created_at=db_now())

    member, stranger = client_of(admin_world.people.teammate), client_of(admin_world.people.outsider)
    shown = text(member.get("/workspaces/vision/policy/"))
    assert "Nodes without approval" in shown
    assert "Change" not in shown.partition("<table")[2].partition("Versions")[0]
    assert stranger.get("/workspaces/vision/policy/").status_code == 404
    assert member.get(f"/projects/{project.name}/policy/").status_code == 404
    assert "Policy of the project" in text(client_of(runner).get("/workspaces/vision/policy/"))
    assert client_of(runner).get(f"/projects/{project.name}/policy/").status_code == 200


def test_who_runs_the_project_changes_what_is_below_it_on_the_workspaces_own_page(admin_world: AdminWorld) -> None:
    slice_, runner = admin_world.slice, factories.user("runner")
    ProjectAdmin.objects.create(project=slice_.project, user=runner, created_at=db_now())
    theirs, policy = client_of(runner), policy_of(slice_)
    term, ends = f"/policies/{policy.pk}/nodes_approval/", f"/projects/workspaces/{slice_.pk}/"
    sent = {"value": "1", "version": policy.version, "why": "Release week."}

    shown = text(theirs.get("/workspaces/vision/policy/"))
    assert all(
        part in shown for part in (term, f"{ends}end/", f"{ends}archive/", f"{ends}remove/", f"{ends}budgets/new/", "No budgets yet")
    )
    assert "1 request that keeps the policy now would break it" in text(theirs.post(term, {**sent, "act": "preview"}, headers=HTMX))
    assert theirs.post(term, sent, headers=HTMX).status_code == 204
    assert "It allows more than the policy of the project" in text(
        theirs.post(term, {**sent, "value": "99", "version": policy_of(slice_).version}, headers=HTMX)
    )
    assert theirs.post(f"{ends}budgets/new/", {"gpu_hours": "5", "period": "week", "at_limit": "refuse"}, headers=HTMX).status_code == 204
    budget = Budget.objects.get(slice=slice_)
    assert f"/budgets/{budget.pk}/" in text(theirs.get("/workspaces/vision/policy/?part=body", headers=HTMX))
    assert theirs.post(f"/budgets/{budget.pk}/delete/", {}, headers=HTMX).status_code == 204
    assert "Running: 1 request" in text(theirs.get(f"{ends}archive/", headers=HTMX))
    owner = client_of(admin_world.people.owner)
    assert not {term, ends} & set(re.findall(r'href="([^"]+)"', text(owner.get("/workspaces/vision/policy/"))))
    assert {owner.post(path, sent).status_code for path in (term, f"{ends}end/", f"{ends}remove/", f"{ends}budgets/new/")} == {403}
    assert client_of(admin_world.people.outsider).get(term).status_code == 404
