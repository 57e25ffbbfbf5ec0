"""Asking for a workspace: what an approval sets up, and what happens when something of it does not fit."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from accounts.models import User
from core.clock import db_now
from journal.models import Event
from slices.models import Invitation, Membership, Namespace, Project, Quota, Role, Slice, WorkspaceRequest
from tests import factories
from tests.api.conftest import Caller, faults
from tests.builders import SHAPE
from tests.pages.user_world import client_of

pytestmark = pytest.mark.django_db
ASK = {
    "name": "robots",
    "project": "motion",
    "purpose": "Training of a gripper.",
    "clusters": ["aurora"],
    "namespaces": ["robots", "robots-test"],
    "people": {"ben": "editor", "nobody-yet": "viewer"},
    "quota": {SHAPE: 8},
}


@pytest.fixture
def ada() -> User:
    return factories.user("ada")


@pytest.fixture
def root() -> User:
    factories.cluster("aurora")
    return factories.user("root", is_admin=True)


def asked(user: User, **changes: Any) -> str:
    answer = Caller(factories.token(user)).post("workspace-requests/", ASK | changes)
    assert answer.status_code == 201, answer.content
    return str(answer.json()["id"])


def test_an_approval_sets_all_of_it_up_and_the_requester_owns_it(ada: User, root: User) -> None:
    factories.user("ben")
    until = (db_now() + timedelta(days=30)).isoformat()
    pk = asked(ada, ends_at=until)

    told = Caller(factories.token(root)).post(f"workspace-requests/{pk}/approve/", {"quota": {SHAPE: 16}, "why": "Welcome."}).json()

    slice_ = Slice.objects.get(name="robots")
    assert (told["state"], told["slice"], told["decided_by"], told["quota"]) == ("APPROVED", "robots", "root", {SHAPE: 16})
    assert (slice_.project.name, [cluster.name for cluster in slice_.clusters.all()]) == ("motion", ["aurora"])
    assert list(Membership.objects.filter(slice=slice_).values_list("user__name", "role")) == [("ada", Role.OWNER)]
    # Neither shared a workspace with ada, so both are invited: the answer does not tell who exists.
    assert sorted(Invitation.objects.filter(slice=slice_).values_list("name", "role")) == [("ben", "editor"), ("nobody-yet", "viewer")]
    assert sorted(Namespace.objects.filter(slice=slice_).values_list("name", flat=True)) == ["robots", "robots-test"]
    assert Quota.objects.get(slice=slice_).guaranteed_gpus == 16
    assert slice_.ends_at is not None
    assert Caller(factories.token(ada)).get("slices/robots/").json()["role"] == "owner"


@pytest.mark.parametrize(
    ("changes", "status"),
    [({"clusters": ["nowhere"]}, 400), ({"quota": {"H900": 8}}, 400), ({"quota": {SHAPE: 999}}, 400), ({"name": "taken"}, 409)],
)
def test_an_approval_that_does_not_fit_sets_up_nothing_and_can_be_repeated(changes: Any, status: int, ada: User, root: User) -> None:
    factories.make_slice(name="taken", of=factories.project("other"))
    pk, admin = asked(ada, **changes), Caller(factories.token(root))

    assert admin.post(f"workspace-requests/{pk}/approve/").status_code == status

    assert WorkspaceRequest.objects.get(pk=pk).state == "PENDING"
    assert not Slice.objects.filter(name="robots").exists()
    assert not Project.objects.filter(name="motion").exists()
    fitting = {"clusters": ["aurora"], "quota": {}, "name": "robots"}
    assert admin.post(f"workspace-requests/{pk}/approve/", fitting).status_code == 200


def test_what_is_decided_or_withdrawn_is_not_decided_again(ada: User, root: User) -> None:
    admin = Caller(factories.token(root))
    refused, withdrawn = asked(ada), asked(ada)
    assert admin.post(f"workspace-requests/{refused}/refuse/", {"why": "No room."}).json()["why"] == "No room."
    assert Caller(factories.token(ada)).delete(f"workspace-requests/{withdrawn}/").status_code == 204

    for pk in (refused, withdrawn):
        assert admin.post(f"workspace-requests/{pk}/approve/").status_code == 409
        assert Caller(factories.token(ada)).delete(f"workspace-requests/{pk}/").status_code == 409


def test_a_request_tells_nothing_of_what_others_have(ada: User, root: User) -> None:
    factories.make_slice(name="secret-slice", of=factories.project("secret-project"))
    eve = Caller(factories.token(factories.user("eve")))

    answers = [
        eve.post("workspace-requests/", ASK | {"name": name, "project": project, "clusters": [cluster]}).json()
        for name, project, cluster in (("secret-slice", "secret-project", "aurora"), ("free", "free", "nowhere"))
    ]

    assert [answer["state"] for answer in answers] == ["PENDING", "PENDING"]
    assert eve.get(f"workspace-requests/{asked(ada)}/").status_code == 404


def test_a_workspace_takes_no_requests_after_its_end(ada: User, root: User) -> None:
    slice_ = factories.make_slice(factories.cluster("borealis"), name="old", owner=ada)
    Slice.objects.filter(pk=slice_.pk).update(ends_at=db_now() - timedelta(minutes=1))

    answer = Caller(factories.token(ada)).post("gprs/", {"name": "late", "slice": "old", "shape": SHAPE, "nodes": 1, "duration_s": 600})

    assert (answer.status_code, answer.json()["code"]) == (400, "over_policy")


def test_nobody_books_beyond_the_end_of_his_workspace_and_reads_how_long_it_may_be(ada: User, root: User) -> None:
    slice_, now = factories.make_slice(factories.cluster("borealis"), name="short", owner=ada), db_now().replace(microsecond=0)
    Slice.objects.filter(pk=slice_.pk).update(ends_at=now + timedelta(hours=10))
    caller, ask = Caller(factories.token(ada)), {"name": "a", "slice": "short", "shape": SHAPE, "nodes": 1, "duration_s": 7200}
    booked = ask | {"is_booking": True}

    late, after = (
        caller.post("gprs/", booked | {"earliest_start_at": (now + timedelta(hours=hours)).isoformat()}).json() for hours in (9, 11)
    )
    assert (late["code"], late["most"], after["most"]) == ("over_policy", 3600, 0)
    assert "1 h at most" in late["detail"]
    assert caller.post("gprs/", ask | {"duration_s": 11 * 3600}).json()["code"] == "over_policy"
    assert caller.post("gprs/", ask).status_code == 201


def test_what_would_wait_until_it_ends_after_its_workspace_is_refused_and_so_is_such_an_edit_and_extension(ada: User, root: User) -> None:
    """Both nodes run for three hours, and the workspace ends in five."""
    cluster, now = factories.cluster("borealis"), db_now().replace(microsecond=0)
    slice_, other = (factories.make_slice(cluster, name=name, owner=ada) for name in ("short", "other"))
    runs = factories.active(other, ada, nodes=2, duration_s=3 * 3600)
    Slice.objects.filter(pk__in=[slice_.pk, other.pk]).update(ends_at=now + timedelta(hours=5))
    caller, ask = Caller(factories.token(ada)), {"name": "a", "slice": "short", "shape": SHAPE, "nodes": 1, "duration_s": 3 * 3600}

    refused = [caller.post(path, ask).json() for path in ("gprs/", "gprs/estimate/")]
    assert [(body["code"], body["limit"]) for body in refused] == [("over_policy", "ends_at")] * 2
    assert 3600 < refused[0]["most"] == refused[1]["most"] < 2 * 3600
    assert not slice_.gprs.exists()

    made = caller.post("gprs/", ask | {"duration_s": refused[0]["most"]})
    assert made.status_code == 201
    assert caller.patch(f"gprs/{made.json()['id']}/", {"duration_s": 3 * 3600}).json()["code"] == "over_policy"
    longer = caller.post(f"gprs/{runs.pk}/extend/", {"extra_s": 4 * 3600}).json()
    assert (longer["code"], longer["limit"]) == ("over_policy", "ends_at")
    assert longer["max_ends_at"] == f"{now + timedelta(hours=5):%Y-%m-%dT%H:%M:%SZ}"


@pytest.mark.parametrize("name", ["", "a\x00b", "a\nb", "a b"])
def test_people_and_shapes_of_a_request_are_names(name: str, ada: User) -> None:
    caller = Caller(factories.token(ada))

    for wrong in ({"people": {name: "viewer"}}, {"quota": {name: 1}}):
        assert faults(caller.post("workspace-requests/", ASK | wrong)) == list(wrong)


def test_the_request_of_an_administrator_invites_people_who_are_not_there_yet(root: User) -> None:
    pk = asked(root, people={"newcomer": "editor"})

    assert Caller(factories.token(root)).post(f"workspace-requests/{pk}/approve/").status_code == 200

    assert [row.name for row in Invitation.objects.all()] == ["newcomer"]


def test_it_can_be_asked_for_and_approved_on_pages(ada: User, root: User) -> None:
    user, admin = client_of(ada), client_of(root)
    form = {"name": "robots", "project": "motion", "purpose": "Gripper.", "clusters": "aurora", "namespaces": "robots"}
    form |= {"people": "ben editor, cleo", "quota": f"8 {SHAPE}", "days": "30"}

    assert user.post("/workspace-requests/new/", form).status_code == 302
    assert b"Waits for a decision" in user.get("/").content
    row = WorkspaceRequest.objects.get()
    assert (row.people, row.quota) == ({"ben": "editor", "cleo": "editor"}, {SHAPE: 8})
    assert b"8 H100-80GB" in admin.get(f"/admin/workspace-requests/{row.pk}/approve/").content
    assert admin.post(f"/admin/workspace-requests/{row.pk}/approve/", form | {"why": "Go."}).status_code == 302

    assert user.get("/workspaces/robots/").status_code == 200
    assert b"Approved" in user.get("/").content
    assert [event.actor and event.actor.name for event in Event.objects.filter(kind="workspace.request_approved")] == ["root"]


@pytest.mark.parametrize(
    ("field", "text"), [("people", "ben boss"), ("quota", "many H100"), ("namespaces", "Robots!"), ("days", "0"), ("name", "a b")]
)
def test_a_wrong_field_says_what_to_write(field: str, text: str, ada: User) -> None:
    form = {"name": "robots", "project": "motion", "purpose": "Gripper."} | {field: text}

    answer = client_of(ada).post("/workspace-requests/new/", form)

    assert answer.status_code == 422
    assert b"is-invalid" in answer.content
    assert not WorkspaceRequest.objects.exists()
