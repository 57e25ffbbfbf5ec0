from __future__ import annotations

from datetime import timedelta

from accounts.models import Scope
from slices.models import Life, Slice
from tests import factories
from tests.api.conftest import Caller, World


def test_it_says_who_one_is_in_which_open_slices_and_what_the_token_may(world: World) -> None:
    factories.make_slice(world.cluster, name="speech", owner=world.people.outsider, viewers=[world.people.owner])
    archived = factories.make_slice(world.cluster, name="arms", owner=world.people.owner)
    Slice.objects.filter(pk=archived.pk).update(life=Life.ARCHIVED, closed_at=archived.created_at)
    caller = Caller(factories.token(world.people.owner, Scope.READ, life=timedelta(hours=2)))

    me = caller.get("me/").json()

    assert (me["name"], me["is_admin"], me["id"]) == ("owner", False, str(world.people.owner.pk))
    assert [(row["name"], row["role"]) for row in me["slices"]] == [("speech", "viewer"), ("vision", "owner")]
    assert me["slices"][1]["project"] == world.slice.project.name
    assert me["token"]["scopes"] == ["read"]
    assert me["token"]["expires_at"] > me["token"]["created_at"]


def test_an_administrator_is_one_with_the_scope_only(admin: Caller, half_admin: Caller) -> None:
    assert admin.get("me/").json()["is_admin"] is True
    assert half_admin.get("me/").json()["is_admin"] is False


def test_no_secret_is_ever_told(owner: Caller) -> None:
    body = owner.get("me/").content.decode()

    assert "digest" not in body
    assert "pepper" not in body
    assert "egsu_" not in body
