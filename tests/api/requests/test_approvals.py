"""approvals/ and deputies/: who may decide on what waits, for whom, and until when."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from accounts.models import PlatformRole, User
from core.clock import db_now
from gpr.approvals.expiry import overdue
from gpr.approvals.services import approvals_expire
from gpr.models import Gpr
from journal.models import Event, Notice
from journal.notices.outbox import outbox_expand
from slices.models import Deputy, Membership, Project, ProjectAdmin, Role
from slices.policies.services import policy_change, policy_of
from tests import factories
from tests.api.conftest import Caller, World, assert_problem, faults

LONG = {"duration_s": 7 * 86_400 + 1}


@pytest.fixture
def runner(world: World) -> User:
    made = factories.user("runner")
    ProjectAdmin.objects.create(project=world.slice.project, user=made, created_at=db_now())
    return made


def caller(user: User) -> Caller:
    return Caller(factories.token(user))


def stand_in(user: User, approver: User, **times: Any) -> Deputy:
    now = db_now()
    given = {"starts_at": now - timedelta(hours=1), "ends_at": now + timedelta(hours=1), "created_at": now, **times}
    return Deputy.objects.create(approver=approver, user=user, **given)


def waiting(of: Caller, **query: Any) -> dict[str, tuple[bool, str | None]]:
    """Name -> whether the caller may approve it, and for whom."""
    return {row["name"]: (not row["why_not"], row["deputy_for"]) for row in of.get("approvals/", **query).json()["results"]}


def test_each_approver_sees_what_waits_for_him_and_which_of_it_he_may_approve(
    world: World, admin: Caller, owner: Caller, runner: User
) -> None:
    people = world.people
    factories.gpr(world.slice, people.owner, name="long", **LONG)
    factories.gpr(world.slice, people.owner, name="far", priority=300)
    factories.gpr(world.slice, runner, name="own", **LONG)
    factories.gpr(world.foreign_slice, people.outsider, name="foreign", **LONG)
    bob, eve, ann = (factories.user(name) for name in ("bob", "eve", "ann"))
    stand_in(bob, runner)
    stand_in(eve, people.admin)
    stand_in(ann, runner, starts_at=db_now() + timedelta(minutes=1))

    assert waiting(owner) == waiting(caller(ann)) == {}
    assert waiting(admin) == dict.fromkeys(("long", "far", "own", "foreign"), (True, None))
    assert waiting(caller(runner)) == {"long": (True, None), "far": (False, None), "own": (False, None)}
    assert waiting(caller(bob)) == {"long": (True, "runner"), "far": (False, "runner"), "own": (False, "runner")}
    assert waiting(caller(eve)) == dict.fromkeys(("long", "far", "own", "foreign"), (True, "admin"))
    assert set(waiting(admin, slice="vision")) == set(waiting(admin, project=world.slice.project.name)) == {"long", "far", "own"}
    assert waiting(admin, before=db_now().isoformat()) == {}


def test_a_deputy_decides_in_his_time_sees_nothing_else_and_the_event_says_for_whom(world: World, runner: User) -> None:
    first, second, third = (factories.gpr(world.slice, world.people.owner, name=name, **LONG) for name in ("a", "b", "c"))
    queued = factories.gpr(world.slice, world.people.owner, name="queued")
    bob, deputy = factories.user("bob"), stand_in(factories.user("bob2"), runner)
    Deputy.objects.filter(pk=deputy.pk).update(user=bob)
    his = caller(bob)

    assert his.post(f"gprs/{first.pk}/approve/", {"why": "Fine."}).json()["state"] == "QUEUED"
    assert his.post(f"gprs/{second.pk}/reject/", {"why": "Too long."}).json()["state"] == "REJECTED"
    assert his.get(f"gprs/{third.pk}/").status_code == his.get(f"gprs/{queued.pk}/").status_code == 404
    assert his.post(f"gprs/{queued.pk}/reject/", {"why": "No."}).status_code == 404
    assert his.post(f"gprs/{third.pk}/evict/", {"why": "No."}).status_code == 404
    told = Event.objects.filter(kind="gpr.transition", actor=bob).values_list("message", flat=True).order_by("pk")
    assert list(told) == ["a was approved by the deputy of runner. Fine.", "b was rejected by the deputy of runner. Too long."]

    for ends in ({"ends_at": db_now()}, {"starts_at": db_now() + timedelta(minutes=5)}):
        Deputy.objects.filter(pk=deputy.pk).update(**{"ends_at": db_now() + timedelta(hours=1), **ends})
        assert his.post(f"gprs/{third.pk}/approve/").status_code == 404
    Deputy.objects.filter(pk=deputy.pk).update(starts_at=db_now() - timedelta(hours=2), ends_at=db_now() + timedelta(hours=1))
    User.objects.filter(pk=bob.pk).update(role=PlatformRole.AUDITOR)
    assert his.post(f"gprs/{third.pk}/approve/").status_code in {403, 404}
    User.objects.filter(pk=bob.pk).update(role=PlatformRole.MEMBER)
    ProjectAdmin.objects.all().delete()  # who named him runs nothing any more
    assert his.post(f"gprs/{third.pk}/approve/").status_code == 404


def test_a_deputy_approves_nothing_of_his_own_and_a_bound_token_gives_no_deputys_rights(world: World, runner: User) -> None:
    bob = factories.user("bob")
    Membership.objects.create(slice=world.slice, user=bob, role=Role.EDITOR)
    stand_in(bob, runner)
    own = factories.gpr(world.slice, bob, **LONG)
    others = factories.gpr(world.slice, world.people.owner, **LONG)

    assert_problem(caller(bob).post(f"gprs/{own.pk}/approve/"), 403, "not_allowed")
    bound = Caller(factories.token(bob, slices=[str(world.slice.pk)]))
    assert_problem(bound.post(f"gprs/{others.pk}/approve/"), 403, "not_allowed")
    assert caller(bob).post(f"gprs/{others.pk}/approve/").status_code == 200
    # By now it waits in the queue, from which only administrators take it.
    assert_problem(caller(bob).post(f"gprs/{others.pk}/reject/", {"why": "After all."}), 403, "not_allowed")


def test_nobody_gets_his_own_request_through_by_his_deputy_or_by_changing_that_of_another(
    world: World, runner: User, owner: Caller, admin: Caller
) -> None:
    bob, second = factories.user("bob"), factories.user("second")
    stand_in(bob, runner)
    own = factories.gpr(world.slice, runner, **LONG)
    taken = factories.gpr(world.slice, world.people.owner)

    assert_problem(caller(bob).post(f"gprs/{own.pk}/approve/"), 403, "not_allowed")
    assert caller(runner).patch(f"gprs/{taken.pk}/", LONG).json()["state"] == "PENDING_APPROVAL"
    assert_problem(caller(runner).post(f"gprs/{taken.pk}/approve/"), 403, "not_allowed")
    assert waiting(caller(runner))[taken.name] == (False, None)
    assert caller(bob).post(f"gprs/{taken.pk}/approve/").status_code == 200
    ProjectAdmin.objects.create(project=world.slice.project, user=second, created_at=db_now())
    stand_in(bob, second)
    assert waiting(caller(bob)) == {own.name: (True, "second")}
    assert caller(bob).post(f"gprs/{own.pk}/approve/").status_code == 200


def test_an_approver_names_a_deputy_among_those_he_knows_and_withdraws_him(
    world: World, runner: User, owner: Caller, admin: Caller
) -> None:
    now = db_now()
    times = {"ends_at": (now + timedelta(days=7)).isoformat()}
    his = caller(runner)
    factories.user("stranger")
    User.objects.filter(pk=factories.user("checker").pk).update(role=PlatformRole.AUDITOR)

    assert_problem(owner.post("deputies/", {"user": "teammate", **times}), 403, "not_allowed")
    assert faults(his.post("deputies/", {"user": "stranger", **times})) == faults(his.post("deputies/", {"user": "nobody", **times}))
    assert faults(admin.post("deputies/", {"user": "checker", **times})) == ["user"]
    assert faults(his.post("deputies/", {"user": "runner", **times})) == ["user"]
    for ends_at in (now - timedelta(days=1), now + timedelta(days=400)):
        assert faults(his.post("deputies/", {"user": "owner", "ends_at": ends_at.isoformat()})) == ["ends_at"]
    made = his.post("deputies/", {"user": "teammate", **times}, key="once").json()
    assert his.post("deputies/", {"user": "teammate", **times}, key="once").json() == made
    assert admin.post("deputies/", {"user": "stranger", **times}).status_code == 201

    teammate = caller(world.people.teammate)
    assert [row["approver"] for row in teammate.get("deputies/").json()["results"]] == ["runner"]
    assert owner.get("deputies/").json()["results"] == []
    assert len(admin.get("deputies/", since=now.isoformat()).json()["results"]) == 2
    assert teammate.delete(f"deputies/{made['id']}/").status_code == 403
    assert his.delete(f"deputies/{made['id']}/").status_code == 204
    assert teammate.get("approvals/").json()["results"] == []
    kinds = Event.objects.filter(kind__startswith="deputy.", data__user="teammate").values_list("kind", flat=True).order_by("pk")
    assert list(kinds) == ["deputy.named", "deputy.withdrawn"]


def test_approvers_and_deputies_are_told_of_what_waits_and_the_deputy_of_his_task(world: World, runner: User) -> None:
    bob = factories.user("bob")
    Membership.objects.create(slice=world.slice, user=bob, role=Role.VIEWER)
    caller(runner).post("deputies/", {"user": "bob", "ends_at": (db_now() + timedelta(days=1)).isoformat()})
    stand_in(factories.user("ann"), world.people.admin)
    factories.gpr(world.slice, world.people.owner, name="long", **LONG)

    outbox_expand(now=db_now())

    asked = Notice.objects.filter(kind="approval_wanted")
    assert {notice.user.name for notice in asked.select_related("user")} == {"admin", "runner", "bob", "ann"}
    assert Notice.objects.filter(kind="workspace", user=bob).exists()
    assert len(caller(User.objects.get(name="ann")).get("notices/").json()["results"]) == 1


def test_what_nobody_decides_on_in_the_time_of_the_policy_is_rejected_and_its_owner_told(world: World, owner: Caller) -> None:
    project: Project = world.slice.project
    policy_change(policy=policy_of(project), terms={"decide_within_s": 3600}, actor=None, now=db_now())
    world.slice.refresh_from_db()
    late = factories.gpr(world.slice, world.people.owner, name="late", **LONG)
    foreign = factories.gpr(world.foreign_slice, world.people.outsider, **LONG)
    assert late.decide_by_at is not None
    assert abs((late.decide_by_at - db_now()).total_seconds() - 3600) < 60
    assert owner.get(f"gprs/{late.pk}/").json()["decide_by_at"] is not None

    before_at = late.decide_by_at - timedelta(seconds=1)
    approvals_expire(overdue(before_at), now=before_at)
    assert {gpr.state for gpr in Gpr.objects.all()} == {"PENDING_APPROVAL"}
    for _ in range(2):
        approvals_expire(overdue(late.decide_by_at), now=late.decide_by_at)

    assert owner.get(f"gprs/{late.pk}/").json()["state"] == "REJECTED"
    foreign.refresh_from_db()
    assert foreign.state == "PENDING_APPROVAL"
    event = Event.objects.get(kind="gpr.transition", gpr_id=late.pk)
    assert (event.actor, event.reason) == (None, "UNDECIDED")
    assert event.message.startswith("late was rejected. Nobody decided on it by ")
    outbox_expand(now=db_now())
    assert Notice.objects.filter(user=world.people.owner, kind="decision").count() == 1


def test_an_edit_gives_the_whole_time_again_and_a_decision_ends_it(world: World, owner: Caller, admin: Caller) -> None:
    gpr = factories.gpr(world.slice, world.people.owner, **LONG)
    Gpr.objects.filter(pk=gpr.pk).update(decide_by_at=db_now() + timedelta(seconds=5))

    edited = owner.patch(f"gprs/{gpr.pk}/", {"duration_s": LONG["duration_s"] + 1}).json()

    assert edited["decide_by_at"] > (db_now() + timedelta(days=13)).isoformat()
    assert admin.post(f"gprs/{gpr.pk}/approve/").json()["decide_by_at"] is None
