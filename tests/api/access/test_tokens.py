from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from accounts.models import ApiToken, Scope
from core.clock import db_now
from slices.models import ProjectAdmin
from tests import factories
from tests.api.conftest import Caller, World, assert_problem, faults
from tests.builders import SHAPE
from tests.databases import travel
from tests.journal.notices import notices

KINDS = ("token.issued", "token.revoked")
NEW = {"name": "laptop", "scopes": ["read", "write"]}


def test_a_new_one_tells_its_secret_once_and_works(owner: Caller) -> None:
    response = owner.post("tokens/", NEW)

    assert response.status_code == 201
    made = response.json()
    assert Caller(made["token"]).get("me/").json()["token"]["name"] == "laptop"
    seen = owner.get(f"tokens/{made['id']}/").json()
    assert "token" not in seen
    assert {name: value for name, value in made.items() if name not in {"token", "last_used_at", "last_address"}}.items() <= seen.items()
    row = ApiToken.objects.get(pk=made["id"])
    assert made["token"].split("_")[2] not in row.digest


def test_it_lives_for_ninety_days_or_as_asked(owner: Caller) -> None:
    def life(body: dict[str, Any]) -> timedelta:
        made = owner.post("tokens/", body).json()
        return datetime.fromisoformat(made["expires_at"]) - datetime.fromisoformat(made["created_at"])

    assert life(NEW) == timedelta(days=90)
    assert life({**NEW, "expires_in_s": 60}) == timedelta(seconds=60)


BAD: list[dict[str, Any]] = [{"scopes": []}, {"scopes": ["king"]}, {"scopes": "read"}, {"scopes": None}, {"name": ""}, {"name": "x" * 64}]
BAD += [
    {"expires_in_s": 0},
    {"expires_in_s": 366 * 86_400},
    {"expires_in_s": True},
    {"expires_in_s": "1h"},
    {"user": "admin"},
    {"name": "a\u0000"},
]


def test_one_that_means_nothing_is_refused(owner: Caller) -> None:
    for change in BAD:
        before = ApiToken.objects.count()

        assert faults(owner.post("tokens/", {**NEW, **change})) == list(change)
        assert ApiToken.objects.count() == before


def test_nobody_gives_more_than_he_has(owner: Caller, half_admin: Caller, reader: Caller) -> None:
    assert_problem(owner.post("tokens/", {**NEW, "scopes": ["admin"]}), 403, "not_allowed")
    assert_problem(half_admin.post("tokens/", {**NEW, "scopes": ["admin"]}), 403, "not_allowed")
    assert_problem(reader.post("tokens/", NEW), 403, "not_allowed")


def test_the_list_is_one_s_own(owner: Caller, admin: Caller, world: World) -> None:
    factories.token(world.people.outsider)

    assert len(owner.get("tokens/").json()["results"]) == 1
    assert len(admin.get("tokens/").json()["results"]) == 1


def test_a_revoked_one_ends_at_once_and_stays_in_the_list(owner: Caller) -> None:
    made = owner.post("tokens/", NEW).json()

    assert owner.delete("tokens/laptop/").status_code == 204

    assert_problem(Caller(made["token"]).get("me/"), 401, "authentication_failed")
    revoked_at = owner.get(f"tokens/{made['id']}/").json()["revoked_at"]
    assert revoked_at is not None
    owner.delete(f"tokens/{made['id']}/")
    assert owner.get(f"tokens/{made['id']}/").json()["revoked_at"] == revoked_at


def test_another_s_is_as_absent_as_none_even_to_an_administrator(owner: Caller, admin: Caller, world: World) -> None:
    other = factories.row_of(factories.token(world.people.outsider))

    for caller in (owner, admin):
        for method in ("GET", "DELETE"):
            answers = {caller.call(method, f"tokens/{ref}/").content for ref in (other.pk, "nothing", other.key_id)}
            assert len(answers) == 1
            assert_problem(caller.call(method, f"tokens/{other.pk}/"), 404, "not_found")
    other.refresh_from_db()
    assert other.revoked_at is None


def test_a_name_that_several_have_needs_the_id(owner: Caller) -> None:
    owner.post("tokens/", NEW)
    owner.post("tokens/", NEW)

    assert_problem(owner.delete("tokens/laptop/"), 409, "conflict")


def test_a_replayed_creation_has_no_secret_to_tell(owner: Caller) -> None:
    first, second = owner.post("tokens/", NEW, key="k"), owner.post("tokens/", NEW, key="k")

    assert second["Idempotency-Replayed"] == "true"
    assert (second.json()["id"], second.json()["token"]) == (first.json()["id"], None)


def test_an_administrator_sees_who_issued_and_revoked_what_and_others_do_not(owner: Caller, admin: Caller) -> None:
    made = owner.post("tokens/", NEW).json()
    owner.delete(f"tokens/{made['id']}/")
    owner.delete(f"tokens/{made['id']}/")

    told = {kind: [event["message"] for event in admin.get(f"events/?kind={kind}").json()["results"]] for kind in KINDS}
    assert [len([text for text in texts if made["key_id"] in text]) for texts in told.values()] == [1, 1]
    assert not any(made["token"] in text for texts in told.values() for text in texts)
    assert all(owner.get(f"events/?kind={kind}").json()["results"] == [] for kind in KINDS)


def test_a_token_is_used_only_from_the_networks_that_it_names(world: World, owner: Caller) -> None:
    inside, outside = (
        Caller(owner.post("tokens/", {"name": "ci", "scopes": ["read"], "networks": [network]}).json()["token"])
        for network in ("127.0.0.0/8", "10.1.0.0/16")
    )

    assert (inside.get("me/").status_code, outside.get("me/").status_code) == (200, 401)
    claimed = dict.fromkeys(("X-Forwarded-For", "X-Real-IP", "Forwarded", "Client-IP"), "10.1.0.1")
    assert outside.client.get("/api/v1/me/", headers=claimed).status_code == 401
    assert owner.post("tokens/", {"name": "ci", "scopes": ["read"], "networks": ["everywhere"]}).status_code == 400


def test_a_token_bound_to_a_workspace_sees_and_makes_nothing_beyond_it(world: World, owner: Caller) -> None:
    second = factories.make_slice(world.cluster, name="second", owner=world.people.owner)
    made = owner.post("tokens/", {"name": "ci", "scopes": ["read", "write"], "slices": [str(world.slice.pk)]})
    bound = Caller(made.json()["token"])

    assert [row["name"] for row in bound.get("slices/").json()["results"]] == ["vision"]
    assert [row["name"] for row in bound.get("me/").json()["slices"]] == ["vision"]
    assert bound.get(f"slices/{second.pk}/").status_code == 404
    assert bound.post("tokens/", {"name": "wider", "scopes": ["read"]}).status_code == 403
    assert owner.post("tokens/", {"name": "x", "scopes": ["read"], "slices": [str(world.foreign_slice.pk)]}).status_code == 400


def test_a_bound_token_touches_no_channel_beyond_its_workspaces_and_nothing_personal(world: World, owner: Caller) -> None:
    second = factories.make_slice(world.cluster, name="second", owner=world.people.owner)
    ProjectAdmin.objects.create(project=second.project, user=world.people.owner, created_at=db_now())
    hook = {"name": "hook", "kind": "webhook", "target": "https://example.org/x"}
    here, there, personal = (owner.post("channels/", {**hook, **of}).json()["id"] for of in ({"slice": "vision"}, {"slice": "second"}, {}))
    bound = Caller(factories.token(world.people.owner, Scope.READ, Scope.WRITE, slices=[str(world.slice.pk)]))
    notices.told(world.people.owner)

    assert [row["id"] for row in bound.get("channels/").json()["results"]] == [here]
    assert [bound.patch(f"channels/{pk}/", {"name": "x"}).status_code for pk in (here, there, personal)] == [200, 404, 404]
    assert [row["name"] for row in bound.get("projects/").json()["results"]] == [world.slice.project.name]
    assert bound.get("notices/").json()["results"] == []
    assert_problem(bound.post("channels/", hook), 403, "not_allowed")
    for path in ("me/notices/", "invitations/", "logins/", "workspace-requests/"):
        assert_problem(bound.get(path), 403, "not_allowed")


def test_a_token_for_requests_changes_requests_and_nothing_else(world: World, owner: Caller) -> None:
    pipeline = Caller(factories.token(world.people.owner, Scope.GPR_WRITE))

    assert pipeline.post("gprs/", {"name": "t", "slice": "vision", "shape": SHAPE, "nodes": 1, "duration_s": 600}).status_code == 201
    assert pipeline.post("slices/vision/members/", {"user": "teammate", "role": "editor"}).status_code == 403
    assert pipeline.post("tokens/", {"name": "x", "scopes": ["read"]}).status_code == 403


def test_a_rotated_token_leaves_no_gap(world: World, owner: Caller) -> None:
    old = owner.post("tokens/", {"name": "ci", "scopes": ["read"], "networks": ["127.0.0.1"]}).json()
    new = owner.post(f"tokens/{old['id']}/rotate/", {"overlap_s": 60}).json()

    assert new["token"] != old["token"]
    assert (new["scopes"], new["networks"]) == (["read"], ["127.0.0.1/32"])
    assert [Caller(each["token"]).get("me/").status_code for each in (old, new)] == [200, 200]
    with travel(db_now() + timedelta(minutes=2)):
        assert [Caller(each["token"]).get("me/").status_code for each in (old, new)] == [401, 200]


def test_no_token_makes_rotates_or_revokes_one_that_may_do_more(world: World, admin: Caller) -> None:
    root = world.people.admin
    strong = admin.get("tokens/").json()["results"][0]["id"]
    weak = Caller(factories.token(root, Scope.READ, Scope.WRITE))
    second = factories.make_slice(world.cluster, name="second", owner=world.people.owner)
    owner = Caller(factories.token(world.people.owner))
    free = owner.get("tokens/").json()["results"][0]["id"]
    terms = {"name": "ci", "scopes": ["write"], "slices": [str(second.pk)], "networks": ["127.0.0.0/8"]}
    bound = Caller(owner.post("tokens/", terms).json()["token"])

    assert (weak.post(f"tokens/{strong}/rotate/").status_code, weak.delete(f"tokens/{strong}/").status_code) == (403, 403)
    assert (bound.post(f"tokens/{free}/rotate/").status_code, bound.delete(f"tokens/{free}/").status_code) == (403, 403)
    assert bound.post("tokens/", terms | {"networks": []}).status_code == 403
    assert bound.post("tokens/", terms | {"networks": ["127.0.0.1"], "scopes": ["read"]}).status_code == 201


def test_a_token_that_only_reads_ends_itself_and_none_that_may_more(owner: Caller) -> None:
    made = owner.post("tokens/", {"name": "reads", "scopes": ["read"]}).json()
    reads, strong = Caller(made["token"]), owner.post("tokens/", NEW).json()["id"]

    assert_problem(reads.delete(f"tokens/{strong}/"), 403, "not_allowed")
    assert reads.delete(f"tokens/{made['id']}/").status_code == 204
    assert reads.get("me/").status_code == 401
