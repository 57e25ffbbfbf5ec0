"""Roles of the platform: who has one, what it allows, and how groups of an identity provider give and take it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from accounts.models import ApiToken, GroupRole, Identity, Login, PlatformRole, Scope, User
from accounts.oidc.backend import Claims, SignInRefused, claims_from
from accounts.oidc.people import identity_sign_in, may_link
from accounts.oidc.providers import Provider
from accounts.people.services import (
    group_role_add,
    group_role_remove,
    identity_unlink,
    user_disable,
    user_enable,
    user_set_role,
)
from accounts.people.setup import setup_token
from accounts.sessions import Proof, login_start
from core.clock import db_now
from core.errors import Conflict, NotAllowed
from journal.models import Notice
from journal.notices.outbox import outbox_expand
from slices.models import Membership, Role, Slice, SliceGroup
from slices.roles.groups import group_add, group_remove, groups_watch
from slices.services import member_remove, member_set, project_admin_add
from tests import factories
from tests.api.conftest import Caller
from tests.pages.user_world import client_of

pytestmark = pytest.mark.django_db

LONG = timedelta(hours=9)
CORP = Provider(key="corp", label="Corp", issuer="https://id.example.org", client_id="egs", client_secret="x")
FORGE = Provider(key="forge", label="Forge", issuer="https://forge.example.org", client_id="egs", client_secret="x")


def sign_in(
    subject: str, *groups: str, name: str = "", link_to: User | None = None, email: str = "", provider: Provider = CORP
) -> Identity:
    claims = Claims(provider.issuer, subject, session="s", name=name or subject, email=email, groups=groups)
    return identity_sign_in(provider=provider, claims=claims, link_to=link_to, now=db_now())


@pytest.fixture
def root() -> User:
    return factories.user("root", is_admin=True)


@pytest.fixture
def vision(root: User) -> Slice:
    return factories.make_slice(factories.cluster("aurora"), name="vision", owner=factories.user("owner"))


def role_in(slice_: Slice, user: User) -> str | None:
    return Membership.objects.filter(slice=slice_, user=user).values_list("role", flat=True).first()


def test_a_person_is_known_by_issuer_and_subject_and_never_by_name_or_mail(root: User) -> None:
    first = sign_in("1", name="Root", email="root@example.org")
    again = sign_in("1", name="other", email="new@example.org")
    stranger = sign_in("2", name="root", email="root@example.org")

    assert again.user == first.user
    assert (first.user.name, stranger.user.name) == ("root-2", "root-3")
    assert {first.user.role, stranger.user.role} == {PlatformRole.MEMBER}


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("Åsa Öberg", "asa-oberg"),
        ("\u0430d\u0430", "d"),  # Cyrillic look-alikes of a
        ("a\nb: c", "a-b-c"),
        ("", "user"),
        ("x" * 900, "x" * 50),
    ],
)
def test_a_name_from_a_provider_becomes_a_plain_one(given: str, name: str) -> None:
    assert sign_in("1", name=given or " ").user.name == name


def test_a_group_gives_a_role_at_sign_in_and_takes_it_when_it_is_left(root: User, vision: Slice) -> None:
    group_role_add(provider="corp", group="admins", role=PlatformRole.ADMIN, actor=root, now=db_now())
    group_add(slice_=vision, provider="corp", group="team", role=Role.VIEWER, actor=root, now=db_now())
    group_add(slice_=vision, provider="corp", group="leads", role=Role.EDITOR, actor=root, now=db_now())

    user = sign_in("1", "admins", "team", "leads").user
    assert (user.role, role_in(vision, user)) == (PlatformRole.ADMIN, Role.EDITOR)

    sign_in("1", "team")
    user.refresh_from_db()
    assert (user.role, role_in(vision, user)) == (PlatformRole.MEMBER, Role.VIEWER)


def test_a_program_tells_who_has_left_a_group_and_the_person_loses_it_without_signing_in(root: User, vision: Slice) -> None:
    group_add(slice_=vision, provider="corp", group="team", role=Role.VIEWER, actor=root, now=db_now())
    user = sign_in("00u1", "team", name="ada").user
    sign_in("00u2", "team")
    program, terminal, browser = Caller(factories.token(root)), Caller(factories.token(user)), client_of(user)
    assert (terminal.get("slices/vision/").status_code, browser.get("/workspaces/vision/").status_code) == (200, 200)

    sign_in("00u1", link_to=sign_in("00u3", name="eve").user, provider=FORGE)  # another person has the same subject there
    (found,) = program.get("users/?provider=corp&subject=00u1").json()["results"]
    for _ in range(2):  # a second time it changes nothing
        told = program.post(f"users/{found['name']}/groups/", {"provider": "corp", "groups": ["lunch"]})
        assert (told.status_code, told.json()["identities"][0]["groups"]) == (200, ["lunch"])

    assert role_in(vision, user) is None
    assert (terminal.get("slices/vision/").status_code, browser.get("/workspaces/vision/").status_code) == (404, 404)
    (event,) = program.get("audit/?kind=slice.member_removed").json()["results"]
    assert ("ada" in event["message"], event["actor"]) == (True, "root")
    assert role_in(vision, User.objects.get(name="00u2")) == Role.VIEWER


def test_roles_by_groups_rest_after_a_while_until_the_person_signs_in_again(root: User, vision: Slice, settings: Any) -> None:
    group_role_add(provider="corp", group="ops", role=PlatformRole.AUDITOR, actor=root, now=db_now())
    group_add(slice_=vision, provider="corp", group="team", role=Role.VIEWER, actor=root, now=db_now())
    user, at = sign_in("1", "team", "ops").user, db_now()
    member_set(
        slice_=factories.make_slice(factories.cluster("borealis"), name="audio", owner=root),
        user=user,
        role=Role.EDITOR,
        actor=root,
        now=at,
    )
    caller = Caller(factories.token(user))

    groups_watch(now=at + LONG)
    assert role_in(vision, user) == Role.VIEWER  # it is off
    settings.EGS_GROUPS_MAX_AGE_H = 24
    groups_watch(now=at + 2 * LONG)
    assert role_in(vision, user) == Role.VIEWER
    groups_watch(now=at + 3 * LONG)
    groups_watch(now=at + 4 * LONG)
    user.refresh_from_db()
    assert (user.role, role_in(vision, user)) == (PlatformRole.MEMBER, None)
    assert [row["name"] for row in caller.get("slices/").json()["results"]] == ["audio"]
    outbox_expand(now=db_now())
    (notice,) = Notice.objects.filter(user=user, event__kind="identity.groups_rest")
    assert "Signing in through corp brings them back." in notice.event.message

    sign_in("1", "team", "ops")
    user.refresh_from_db()
    assert (user.role, role_in(vision, user)) == (PlatformRole.AUDITOR, Role.VIEWER)


def test_what_people_gave_stays_when_groups_change(root: User, vision: Slice) -> None:
    group = group_add(slice_=vision, provider="corp", group="team", role=Role.VIEWER, actor=root, now=db_now())
    user = sign_in("1", "team").user
    member_set(slice_=vision, user=user, role=Role.EDITOR, actor=root, now=db_now())
    user_set_role(user=user, role=PlatformRole.AUDITOR, actor=root, now=db_now())

    sign_in("1")
    group_remove(group=group, actor=root, now=db_now())

    user.refresh_from_db()
    assert (user.role, role_in(vision, user)) == (PlatformRole.AUDITOR, Role.EDITOR)


def test_a_group_that_gets_or_loses_a_role_counts_at_once_for_those_who_are_in_it(root: User, vision: Slice) -> None:
    user = sign_in("1", "team").user

    row = group_role_add(provider="corp", group="team", role=PlatformRole.AUDITOR, actor=root, now=db_now())
    group = group_add(slice_=vision, provider="corp", group="team", role=Role.OWNER, actor=root, now=db_now())
    user.refresh_from_db()
    assert (user.role, role_in(vision, user)) == (PlatformRole.AUDITOR, Role.OWNER)

    group_role_remove(row=row, actor=root, now=db_now())
    group_remove(group=group, actor=root, now=db_now())
    user.refresh_from_db()
    assert (user.role, role_in(vision, user)) == (PlatformRole.MEMBER, None)


def test_an_owner_gives_a_role_only_to_a_group_that_he_is_in_since_its_people_become_known(root: User, vision: Slice) -> None:
    sign_in("1", "secret-team")
    owner = User.objects.get(name="owner")

    with pytest.raises(NotAllowed, match="not in the group"):
        group_add(slice_=vision, provider="corp", group="secret-team", role=Role.VIEWER, actor=owner, now=db_now())
    sign_in("2", "secret-team", link_to=owner)
    group_add(slice_=vision, provider="corp", group="secret-team", role=Role.VIEWER, actor=owner, now=db_now())


@pytest.mark.parametrize("is_added", [True, False])
def test_a_group_waits_for_a_sign_in_that_is_under_way(is_added: bool, root: User, vision: Slice, monkeypatch: pytest.MonkeyPatch) -> None:
    group = SliceGroup.objects.create(slice=vision, provider="corp", group="team", role=Role.VIEWER, created_at=db_now())
    monkeypatch.setattr("slices.roles.groups.transaction_lock", lambda name: sign_in("1", "team", "new-team"))

    if is_added:
        group_add(slice_=vision, provider="corp", group="new-team", role=Role.EDITOR, actor=root, now=db_now())
    else:
        group_remove(group=group, actor=root, now=db_now())

    assert role_in(vision, User.objects.get(name="1")) == (Role.EDITOR if is_added else None)


def test_a_group_of_the_same_name_at_another_provider_gives_nothing(root: User, vision: Slice) -> None:
    group_add(slice_=vision, provider="other", group="team", role=Role.OWNER, actor=root, now=db_now())
    GroupRole.objects.create(provider="other", group="team", role=PlatformRole.ADMIN, created_at=db_now())

    user = sign_in("1", "team").user

    assert (user.role, role_in(vision, user)) == (PlatformRole.MEMBER, None)


@pytest.mark.parametrize("groups", [[f"g{number}" for number in range(10_000)], ["x" * 300]])
def test_too_many_or_too_long_groups_are_refused_with_a_clear_text(groups: Sequence[str]) -> None:
    with pytest.raises(SignInRefused, match="fewer groups"):
        sign_in("1", *groups)


@pytest.mark.parametrize(
    "told",
    [
        {"groups": 5},
        {"groups": True},
        {"groups": {"admins": 1}},
        {"groups": ["admins", {"id": 1}]},
        {"groups": ["a\x00b"]},
        {"sid": "s\x00"},
        {"_claim_names": {"groups": "src1"}},
    ],
)
def test_claims_that_cannot_be_read_are_refused_with_a_clear_text(told: dict[str, Any]) -> None:
    with pytest.raises(SignInRefused, match="Ask an administrator"):
        claims_from(CORP, {"sub": "1", **told})


def test_claims_of_odd_types_that_no_rights_follow_from_are_left_out() -> None:
    told = {"sub": 7, "groups": "team", "_claim_names": 5, "preferred_username": {"a": 1}, "name": "Ada", "email": ["x"]}

    assert claims_from(CORP, told) == Claims(CORP.issuer, "7", session="", name="Ada", email="", groups=("team",))


def test_a_role_that_an_administrator_set_by_hand_holds_whatever_groups_say(root: User) -> None:
    group_role_add(provider="corp", group="admins", role=PlatformRole.ADMIN, actor=root, now=db_now())
    user = sign_in("1", "admins").user
    user_set_role(user=user, role=PlatformRole.MEMBER, actor=root, now=db_now())

    assert sign_in("1", "admins").user.role == PlatformRole.MEMBER


def test_a_member_by_a_group_is_not_removed_by_hand_only_to_come_back(root: User, vision: Slice) -> None:
    group_add(slice_=vision, provider="corp", group="team", role=Role.VIEWER, actor=root, now=db_now())
    user = sign_in("1", "team").user

    with pytest.raises(Conflict, match="by a group"):
        member_remove(slice_=vision, user=user, actor=root, now=db_now())


def test_the_last_administrator_keeps_the_role_when_he_leaves_his_group() -> None:
    GroupRole.objects.create(provider="corp", group="admins", role=PlatformRole.ADMIN, created_at=db_now())
    assert sign_in("1", "admins").user.role == PlatformRole.ADMIN

    assert sign_in("1").user.role == PlatformRole.ADMIN
    sign_in("2", "admins")
    assert sign_in("1").user.role == PlatformRole.MEMBER


def test_an_identity_that_is_unlinked_opens_nothing_and_its_roles_are_lost(root: User, vision: Slice) -> None:
    group_add(slice_=vision, provider="corp", group="team", role=Role.VIEWER, actor=root, now=db_now())
    identity = sign_in("1", "team")
    login = login_start(proof=Proof(identity=identity), address="", browser="", now=db_now())

    identity_unlink(identity=identity, actor=identity.user, now=db_now())

    assert not Login.objects.filter(pk=login.pk).exists()
    assert role_in(vision, identity.user) is None
    assert sign_in("1").user != identity.user


def test_only_a_session_with_all_rights_of_its_person_may_link_an_identity(root: User) -> None:
    assert may_link(factories.login(root))
    assert not may_link(factories.login(root, Scope.READ))
    assert not may_link(factories.login(root, Scope.READ, Scope.WRITE))
    assert may_link(factories.login(factories.user("ada")))


def test_a_session_goes_on_only_in_the_networks_of_its_token(root: User) -> None:
    browser = client_of(root)
    ApiToken.objects.filter(user=root).update(networks=["10.0.0.0/8"])

    assert browser.get("/", REMOTE_ADDR="10.1.1.1").status_code == 200
    assert browser.get("/", REMOTE_ADDR="::ffff:10.1.1.1").status_code == 200
    assert browser.get("/", REMOTE_ADDR="203.0.113.5").status_code == 302
    assert browser.get("/", REMOTE_ADDR="junk").status_code == 302


def test_an_identity_can_be_linked_to_a_person_once(root: User) -> None:
    assert sign_in("1", link_to=root).user == root
    assert sign_in("1").user == root

    with pytest.raises(SignInRefused, match="another account"):
        sign_in("1", link_to=factories.user("ada"))


def test_a_disabled_person_loses_token_session_and_sign_in_at_once(root: User) -> None:
    user = sign_in("1").user
    secret, browser = factories.token(user), client_of(user)
    assert (Caller(secret).get("me/").status_code, browser.get("/").status_code) == (200, 200)

    user_disable(user=user, actor=root, now=db_now())

    assert (Caller(secret).get("me/").status_code, browser.get("/").status_code) == (401, 302)
    with pytest.raises(SignInRefused, match="disabled"):
        sign_in("1")

    user_enable(user=user, actor=root, now=db_now())
    assert (Caller(secret).get("me/").status_code, browser.get("/").status_code) == (200, 302)


def test_the_last_administrator_cannot_be_lost(root: User) -> None:
    with pytest.raises(Conflict, match="needs an active administrator"):
        user_disable(user=root, actor=root, now=db_now())
    with pytest.raises(Conflict, match="needs an active administrator"):
        user_set_role(user=root, role=PlatformRole.MEMBER, actor=root, now=db_now())
    root.refresh_from_db()
    assert (root.role, root.is_active) == (PlatformRole.ADMIN, True)


def test_an_auditor_sees_everything_and_changes_nothing(root: User, vision: Slice) -> None:
    auditor = factories.user("eye")
    user_set_role(user=auditor, role=PlatformRole.AUDITOR, actor=root, now=db_now())
    auditor.refresh_from_db()
    gpr = factories.gpr(vision, factories.user("editor", is_admin=True), priority=300)
    caller, browser = Caller(factories.token(auditor, Scope.READ, Scope.WRITE, Scope.ADMIN)), client_of(auditor, *Scope)

    for path in ("gprs/", "users/", "supplies/", "check-policies/", "nodes/", f"gprs/{gpr.pk}/", "slices/vision/", "projects/"):
        assert caller.get(path).status_code == 200, path
    assert caller.get("gprs/").json()["results"][0]["name"] == gpr.name
    for path, body in {
        f"gprs/{gpr.pk}/approve/": {},
        f"gprs/{gpr.pk}/priority/": {"priority": 5},
        "users/": {"name": "new"},
        "slices/vision/members/": {"user": "root", "role": "viewer"},
        "gprs/": {"name": "x", "slice": "vision", "shape": "H100-80GB", "nodes": 1, "duration_s": 3600},
    }.items():
        assert caller.post(path, body).status_code == 403, path
    for path in ("/admin/queue/", "/admin/people/", f"/gprs/{gpr.pk}/"):
        assert browser.get(path).status_code == 200, path
    assert b"Add a person" not in browser.get("/admin/people/").content
    assert browser.post("/admin/people/add/", {"name": "new", "role": "admin"}).status_code == 403
    assert Caller(factories.token(auditor, Scope.READ)).get("users/").status_code == 403


def test_a_project_administrator_runs_his_project_and_no_other(root: User, vision: Slice) -> None:
    runner = factories.user("runner")
    other = factories.make_slice(*vision.clusters.all(), name="other", owner=factories.user("stranger"))
    foreign = factories.gpr(other, root, priority=300)
    own = factories.gpr(vision, root, duration_s=vision.duration_approval_s + 1)
    project_admin_add(project=vision.project, user=runner, actor=root, now=db_now())
    caller = Caller(factories.token(runner))

    assert caller.get("me/").json()["role"] == "member"
    assert [row["name"] for row in caller.get("slices/").json()["results"]] == ["vision"]
    assert caller.post("slices/vision/members/", {"user": "runner", "role": "viewer"}).status_code == 201
    page = client_of(runner).get(f"/gprs/{own.pk}/")
    assert b"Approve" in page.content
    assert b"Approve" not in client_of(Membership.objects.get(slice=vision, role=Role.OWNER).user).get(f"/gprs/{own.pk}/").content
    approval = client_of(runner).post(f"/gprs/{own.pk}/approve/", {"version": own.version})
    assert (approval.status_code, caller.get(f"gprs/{own.pk}/").json()["state"]) == (302, "QUEUED")
    assert caller.get("nodes/").json()["results"]
    assert (caller.get(f"gprs/{foreign.pk}/").status_code, caller.post(f"gprs/{foreign.pk}/approve/").status_code) == (404, 404)
    assert caller.post(f"gprs/{own.pk}/priority/", {"priority": 5}).status_code == 403


def test_the_first_administrator_sets_up_by_a_token_that_works_once(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("egs_setup_token")
    address = capsys.readouterr().out.strip()
    token = address.partition("=")[2]

    assert client.get(address).status_code == 200
    assert client.post("/setup/", {"token": "x" + token, "name": "ada"}).status_code == 400
    assert client.post("/setup/", {"token": token, "name": "a b"}).status_code == 400
    done = client.post("/setup/", {"token": token, "name": "ada"})

    assert b"egsu_" in done.content
    assert client.get("/admin/people/").status_code == 200
    assert client.post("/setup/", {"token": setup_token(), "name": "eve"})["Location"] == "/login/"
    assert [user.name for user in User.objects.filter(role=PlatformRole.ADMIN)] == ["ada"]
    with pytest.raises(Exception, match="administrator already"):
        call_command("egs_setup_token")


def test_a_session_ends_when_it_is_idle_too_long_at_its_end_and_when_its_owner_ends_it(root: User) -> None:
    browser, other = client_of(root), client_of(root)
    assert b"this one" in browser.get("/account/").content

    Login.objects.filter(pk=other.session["login"]).update(last_seen_at=db_now() - LONG)
    assert other.get("/").status_code == 302
    other = client_of(root)
    Login.objects.filter(pk=other.session["login"]).update(expires_at=db_now())
    assert other.get("/").status_code == 302
    other = client_of(root)
    assert browser.post("/account/sessions/others/end/").status_code == 302
    assert (other.get("/").status_code, browser.get("/").status_code) == (302, 200)


def test_nobody_ends_anothers_session(root: User) -> None:
    login = factories.login(root)
    eve = factories.user("eve")

    assert client_of(eve).post(f"/account/sessions/{login.pk}/end/").status_code == 404
    assert Caller(factories.token(eve)).delete(f"logins/{login.pk}/").status_code == 404
    assert Login.objects.get(pk=login.pk).ended_at is None


def test_a_setup_token_of_another_installation_is_refused(client: Client, settings: Any) -> None:
    settings.SECRET_KEY = "another"
    foreign = setup_token()
    settings.SECRET_KEY = "this one"

    assert client.post("/setup/", {"token": foreign, "name": "eve"}).status_code == 400
    assert not User.objects.exists()
