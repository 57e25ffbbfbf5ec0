"""The page of what waits for the reader's decision, and of his deputies."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from accounts.models import User
from core.clock import db_now
from gpr.models import Gpr
from slices.models import Deputy, ProjectAdmin
from tests import factories
from tests.pages.user_world import World, client_of

pytestmark = pytest.mark.django_db
LONG = {"duration_s": 7 * 86_400 + 1}


@pytest.fixture
def runner(world: World) -> User:
    made = factories.user("runner")
    ProjectAdmin.objects.create(project=world.slice.project, user=made, created_at=db_now())
    return made


def text(answer: Any) -> str:
    assert answer.status_code == 200
    return str(answer.content.decode())


def test_no_button_is_shown_for_an_approval_that_would_be_refused(world: World, runner: User) -> None:
    near = factories.gpr(world.slice, world.people.owner, name="near", **LONG)
    far = factories.gpr(world.slice, world.people.owner, name="far", priority=300)
    own = factories.gpr(world.slice, runner, name="own", **LONG)
    his, admin = client_of(runner), world.client("admin")

    listed = text(his.get("/approvals/"))
    for gpr, may in ((near, True), (far, False), (own, False)):
        url = f"/gprs/{gpr.pk}/approve/"
        assert (url in listed, url in text(his.get(f"/gprs/{gpr.pk}/"))) == (may, may)
        assert (his.post(url, {"version": gpr.version}).status_code == 302) == may
        assert f"/gprs/{gpr.pk}/reject/" in listed
    assert "Ask an administrator of the platform." in text(his.get(f"/gprs/{far.pk}/"))
    assert "You cannot approve your own request." in listed
    assert f"/gprs/{far.pk}/approve/" in text(admin.get("/approvals/"))


def test_the_navigation_counts_what_waits_for_those_who_decide(world: World, runner: User) -> None:
    his, teammate, shown = client_of(runner), world.client("teammate"), 'id="nav-approvals"'
    page = text(his.get("/"))
    assert shown in page
    assert "count-alert" not in page

    factories.gpr(world.slice, world.people.owner, name="near", **LONG)

    page = text(his.get("/"))
    assert '1<span class="visually-hidden"> request waits for you</span>' in page
    assert "count-alert" in page
    assert "count-alert" in text(his.get("/approvals/count/"))
    assert shown in text(world.client("admin").get("/"))
    assert shown not in text(teammate.get("/"))
    assert "count-alert" not in text(teammate.get("/approvals/count/"))


def test_several_are_decided_on_at_once_and_one_that_was_changed_is_looked_at_again(world: World, runner: User) -> None:
    his, teammate = client_of(runner), world.client("teammate")
    near, changed, far = (factories.gpr(world.slice, world.people.owner, name=name, **LONG) for name in ("near", "changed", "far"))
    own = factories.gpr(world.slice, runner, name="own", **LONG)
    asked = text(his.get("/approvals/approve/"))
    values = [f"{gpr.pk}.{gpr.version}" for gpr in (near, changed)]
    assert [f'value="{value}" checked' in asked for value in values] == [True, True]
    assert str(own.pk) not in asked
    assert his.post("/approvals/approve/", {}).status_code == 422
    assert teammate.post("/approvals/approve/", {"gprs": values}).status_code == 409

    Gpr.objects.filter(pk=changed.pk).update(version=changed.version + 1)
    again = his.post("/approvals/approve/", {"gprs": values})
    assert (again.status_code, "Look at it again" in again.content.decode()) == (422, True)
    assert his.post("/approvals/approve/", {"gprs": values[:1]}).status_code == 302
    assert his.post("/approvals/reject/", {"gprs": f"{far.pk}.{far.version}", "why": "Too long."}).status_code == 302

    states = {gpr.name: gpr.state for gpr in Gpr.objects.all()}
    assert states == {"near": "QUEUED", "changed": "PENDING_APPROVAL", "far": "REJECTED", "own": "PENDING_APPROVAL"}


def test_a_deputy_is_named_decides_on_the_page_and_is_withdrawn(world: World, runner: User) -> None:
    held = factories.gpr(world.slice, world.people.owner, name="held-back", **LONG)
    hidden = factories.gpr(world.slice, world.people.owner, name="quite-other")
    his, teammate = client_of(runner), world.client("teammate")
    ends = f"{db_now() + timedelta(days=3):%Y-%m-%dT%H:%M}"
    assert "/approvals/" not in text(teammate.get("/"))

    assert his.post("/approvals/deputies/new/", {"user": "nobody", "ends_at": ends}).status_code == 422
    assert teammate.post("/approvals/deputies/new/", {"user": "owner", "ends_at": ends}).status_code == 403
    assert his.post("/approvals/deputies/new/", {"user": "teammate", "ends_at": ends}).status_code == 302

    assert "/approvals/" in text(teammate.get("/"))
    page = text(teammate.get("/approvals/"))
    assert "held-back" in page
    assert "for runner" in page
    assert hidden.name not in page
    answer = teammate.post(f"/gprs/{held.pk}/approve/", {"version": held.version})
    assert (answer.status_code, Gpr.objects.get(pk=held.pk).state) == (302, "QUEUED")

    row = Deputy.objects.get()
    assert teammate.post(f"/approvals/deputies/{row.pk}/withdraw/").status_code == 403
    assert his.post(f"/approvals/deputies/{row.pk}/withdraw/").status_code == 302
    assert "/approvals/" not in text(teammate.get("/"))


def test_a_deputy_who_is_in_no_workspace_comes_back_to_the_page_of_approvals(world: World, runner: User) -> None:
    held, bob = factories.gpr(world.slice, world.people.owner, name="held-back", **LONG), factories.user("bob")
    now = db_now()
    Deputy.objects.create(approver=runner, user=bob, starts_at=now, ends_at=now + timedelta(hours=1), created_at=now)
    his = client_of(bob)

    assert his.get(f"/gprs/{held.pk}/").status_code == 404
    answer = his.post(f"/gprs/{held.pk}/reject/", {"version": held.version, "why": "Too long."})

    assert (answer.status_code, answer["Location"]) == (302, "/approvals/")
    assert Gpr.objects.get(pk=held.pk).state == "REJECTED"
