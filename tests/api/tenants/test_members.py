from __future__ import annotations

from typing import Any

import pytest

from accounts.models import User
from accounts.oidc.backend import Claims
from accounts.oidc.people import identity_sign_in
from accounts.oidc.providers import Provider
from core.clock import db_now
from journal.models import Event
from slices.invitations.services import invitation_accept
from slices.models import Invitation, Membership
from tests import factories
from tests.api.conftest import Caller, World, assert_problem


def test_members_see_each_other_by_name(owner: Caller, teammate: Caller, world: World) -> None:
    rows = teammate.get("slices/vision/members/").json()["results"]

    assert [(row["name"], row["role"]) for row in rows] == [("owner", "owner"), ("teammate", "viewer")]
    assert rows == owner.get(f"slices/{world.slice.pk}/members/").json()["results"]
    assert rows[0]["id"] == str(world.people.owner.pk)


@pytest.mark.parametrize("by", ["name", "pk"])
def test_an_owner_takes_in_whom_he_knows_and_it_is_recorded(by: str, owner: Caller, outsider: Caller, world: World) -> None:
    factories.make_slice(world.cluster, name="speech", owner=world.people.owner, viewers=[world.people.outsider])
    user = str(getattr(world.people.outsider, by))

    response = owner.post("slices/vision/members/", {"user": user, "role": "editor"})

    assert (response.status_code, response.json()["name"], response.json()["role"]) == (201, "outsider", "editor")
    assert outsider.get("slices/vision/").json()["role"] == "editor"
    event = Event.objects.filter(kind="slice.member_set").latest("pk")
    assert event.actor == world.people.owner


@pytest.mark.parametrize("by", ["name", "pk"])
def test_whom_an_owner_does_not_know_he_invites_and_learns_nothing_by_it(by: str, owner: Caller, outsider: Caller, world: World) -> None:
    User.objects.create(name="gone", is_active=False, created_at=db_now())
    names = {"outsider": str(getattr(world.people.outsider, by)), "nobody": "nobody", "gone": "gone"}

    answers = {name: owner.post("slices/vision/members/", {"user": given, "role": "editor"}) for name, given in names.items()}

    for name, answer in answers.items():
        assert (answer.status_code, answer.json()) == (201, {"id": None, "name": names[name], "role": "editor", "is_by_group": False})
    assert {row["name"] for row in owner.get("slices/vision/invitations/").json()["results"]} == set(names.values())
    assert world.slice.memberships.count() == 2
    assert_problem(outsider.get("slices/vision/"), 404, "not_found")

    (invitation,) = outsider.get("invitations/").json()["results"]
    assert (invitation["slice"], invitation["role"], invitation["invited_by"]) == ("vision", "editor", "owner")
    assert_problem(owner.post(f"invitations/{invitation['id']}/accept/"), 404, "not_found")
    assert outsider.post(f"invitations/{invitation['id']}/accept/").json()["role"] == "editor"
    assert outsider.get("slices/vision/").json()["role"] == "editor"
    assert outsider.get("invitations/").json()["results"] == []
    assert owner.delete("slices/vision/invitations/nobody/").status_code == 204


def test_a_name_that_somebody_takes_after_the_invitation_opens_nothing(owner: Caller, world: World) -> None:
    owner.post("slices/vision/members/", {"user": "ben", "role": "owner"})
    thief = Caller(factories.token(factories.user("ben")))

    assert thief.get("invitations/").json()["results"] == []
    assert_problem(thief.post(f"invitations/{Invitation.objects.get(name='ben').pk}/accept/"), 404, "not_found")

    owner.post("slices/vision/members/", {"user": "ben", "role": "owner"})
    assert [row["slice"] for row in thief.get("invitations/").json()["results"]] == ["vision"]  # asked anew, by the name that he has now
    assert Event.objects.filter(kind="slice.member_invited").count() == 1  # a second one would tell that somebody has the name meanwhile


def test_an_address_opens_an_invitation_only_for_whoever_the_provider_says_it_is(owner: Caller, outsider: Caller, world: World) -> None:
    sent = owner.post("slices/vision/members/", {"user": "Ben@Corp.example", "role": "editor"})
    User.objects.filter(pk=world.people.outsider.pk).update(email="ben@corp.example")  # nobody has verified it

    assert (sent.status_code, sent.json()) == (201, {"id": None, "name": "ben@corp.example", "role": "editor", "is_by_group": False})
    assert outsider.get("invitations/").json()["results"] == []
    stranger, ben = signs_in("1", verified_email=""), signs_in("2", verified_email="BEN@corp.example")
    assert stranger.get("invitations/").json()["results"] == []
    (invitation,) = ben.get("invitations/").json()["results"]
    assert ben.post(f"invitations/{invitation['id']}/accept/").json()["role"] == "editor"
    for fault in ("ben@", "ben@c\u043erp.example", "ben\u212a@corp.example"):  # the second has a Cyrillic letter, the third a Kelvin sign
        assert_problem(owner.post("slices/vision/members/", {"user": fault, "role": "editor"}), 400, "invalid_input")


def test_an_invitation_gives_the_role_that_it_names_when_it_is_accepted(owner: Caller, world: World) -> None:
    owner.post("slices/vision/members/", {"user": "outsider", "role": "owner"})
    read_before = Invitation.objects.get()
    owner.post("slices/vision/members/", {"user": "outsider", "role": "viewer"})

    invitation_accept(invitation=read_before, actor=world.people.outsider, now=db_now())

    assert world.slice.memberships.get(user=world.people.outsider).role == "viewer"


def signs_in(subject: str, *, verified_email: str) -> Caller:
    provider = Provider(key="corp", label="Corp", issuer="https://id.example", client_id="egs", client_secret="x")
    claims = Claims(provider.issuer, subject, session="", name="ben", email=verified_email, groups=())
    return Caller(factories.token(identity_sign_in(provider=provider, claims=claims, link_to=None, now=db_now()).user))


def test_an_invitation_is_declined_without_a_word(owner: Caller, outsider: Caller, admin: Caller, world: World) -> None:
    owner.post("slices/vision/members/", {"user": "outsider", "role": "viewer"})
    (invitation,) = outsider.get("invitations/").json()["results"]

    assert outsider.post(f"invitations/{invitation['id']}/decline/").status_code == 204

    assert owner.get("slices/vision/invitations/").json()["results"] == []
    owner.post("slices/vision/members/", {"user": "outsider", "role": "viewer"})
    admin.post("slices/vision/members/", {"user": "outsider", "role": "viewer"})
    assert owner.get("slices/vision/invitations/").json()["results"] == []  # he is in
    assert_problem(outsider.post(f"invitations/{invitation['id']}/accept/"), 404, "not_found")


def test_taking_a_member_in_again_gives_him_the_new_role(owner: Caller, world: World) -> None:
    owner.post("slices/vision/members/", {"user": "teammate", "role": "editor"})

    assert Membership.objects.get(slice=world.slice, user=world.people.teammate).role == "editor"
    recorded = Event.objects.filter(kind="slice.member_set")
    told_count = recorded.count()
    assert owner.post("slices/vision/members/", {"user": "teammate", "role": "editor"}).json()["role"] == "editor"
    assert recorded.count() == told_count  # he has it already


def test_who_is_removed_sees_nothing_any_more(owner: Caller, teammate: Caller, world: World) -> None:
    assert owner.delete("slices/vision/members/teammate/").status_code == 204

    assert_problem(teammate.get("slices/vision/"), 404, "not_found")
    assert_problem(owner.delete("slices/vision/members/teammate/"), 404, "not_found")


def test_a_slice_keeps_an_owner(owner: Caller, admin: Caller, world: World) -> None:
    assert_problem(owner.delete("slices/vision/members/owner/"), 409, "conflict")
    assert_problem(owner.post("slices/vision/members/", {"user": "owner", "role": "viewer"}), 409, "conflict")
    assert_problem(admin.delete(f"slices/vision/members/{world.people.owner.pk}/"), 409, "conflict")

    owner.post("slices/vision/members/", {"user": "teammate", "role": "owner"})
    assert owner.delete("slices/vision/members/owner/").status_code == 204


def test_the_first_member_must_be_an_owner(admin: Caller, world: World) -> None:
    admin.post("slices/", {"name": "new", "project": world.slice.project.name})

    assert_problem(admin.post("slices/new/members/", {"user": "owner", "role": "editor"}), 409, "conflict")
    assert admin.post("slices/new/members/", {"user": "owner", "role": "owner"}).status_code == 201


BAD: list[dict[str, Any]] = [
    {},
    {"user": "teammate"},
    {"role": "owner"},
    {"user": "teammate", "role": "king"},
    {"user": 5, "role": "owner"},
]
BAD += [{"user": "teammate", "role": "owner", "x": 1}, {"user": "a\u0000", "role": "owner"}, {"user": "teammate", "role": None}]


def test_a_membership_that_means_nothing_is_refused(owner: Caller, world: World) -> None:
    for body in BAD:
        assert_problem(owner.post("slices/vision/members/", body), 400, "invalid_input")
        assert world.slice.memberships.count() == 2


def test_an_administrator_takes_in_users_who_may_sign_in_and_invites_nobody(admin: Caller, world: World) -> None:
    User.objects.filter(name="outsider").update(is_active=False)

    for name in ("outsider", "nobody"):
        assert_problem(admin.post("slices/vision/members/", {"user": name, "role": "viewer"}), 404, "not_found")


@pytest.mark.parametrize(
    ("persona", "status"), [("teammate", 403), ("outsider", 404), ("reader", 403), ("half_admin", 404), ("anonymous", 401)]
)
def test_who_may_not_change_members(persona: str, status: int, world: World, request: pytest.FixtureRequest) -> None:
    caller = request.getfixturevalue(persona)

    assert caller.post("slices/vision/members/", {"user": "outsider", "role": "owner"}).status_code == status
    assert caller.delete("slices/vision/members/teammate/").status_code == status
    assert world.slice.memberships.count() == 2


def test_a_viewer_reads_no_mail_address_of_people_who_are_invited(owner: Caller, teammate: Caller, world: World) -> None:
    owner.post("slices/vision/members/", {"user": "Ben@Corp.example", "role": "editor"})
    owner.delete("slices/vision/invitations/ben@corp.example/")

    said = teammate.get("events/", slice="vision").content.decode()
    assert "b…@corp.example was invited" in said
    assert "ben@corp.example" not in said.lower()
