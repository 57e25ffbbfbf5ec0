from __future__ import annotations

from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps

from accounts.tokens.minting import TokenKind, token_parse
from core.clock import db_now
from inventory.models import Cluster, JoinToken
from inventory.services.agents import agent_register
from journal.models import Event
from protocol.agents.registration import RegisterRequest
from tests import factories
from tests.api.conftest import Caller, World, assert_problem
from tests.promises.database.books import is_refused, raw

INTERNALS = ("uid", "generation", "rewound_at", "agent")


def test_a_member_sees_those_of_his_slices_without_their_agents(owner: Caller, world: World) -> None:
    factories.cluster("strange")

    (row,) = owner.get("clusters/").json()["results"]

    assert (row["name"], row["is_enabled"], row["is_open"]) == ("aurora", True, True)
    assert [row[name] for name in INTERNALS] == [None] * 4
    assert owner.get("clusters/aurora/").json() == owner.get(f"clusters/{world.cluster.pk}/").json() == row


def test_an_administrator_sees_all_with_their_agents(admin: Caller, world: World) -> None:
    factories.cluster("strange", is_heard=False)

    aurora, strange = admin.get("clusters/").json()["results"]

    assert (aurora["is_open"], aurora["uid"], aurora["generation"], aurora["rewound_at"]) == (True, "", 0, None)
    assert aurora["agent"]["last_sync_at"] is not None
    assert "install_id" not in aurora["agent"]
    assert (strange["is_open"], strange["agent"]) == (False, None)


def test_one_of_no_slice_of_his_is_as_absent_as_none(owner: Caller, world: World) -> None:
    strange = factories.cluster("strange")

    assert len({owner.get(f"clusters/{ref}/").content for ref in ("strange", strange.pk, "nowhere", "%00")}) == 1
    assert_problem(owner.get("clusters/strange/"), 404, "not_found")


def test_an_administrator_adds_one_and_joins_its_agent(admin: Caller) -> None:
    assert admin.post("clusters/", {"name": "new"}, key="k").status_code == 201
    assert admin.post("clusters/", {"name": "new"}, key="k")["Idempotency-Replayed"] == "true"
    assert_problem(admin.post("clusters/", {"name": "new"}), 409, "conflict")

    response = admin.post("clusters/new/join-token/")

    assert response.status_code == 201
    body = response.json()
    parsed = token_parse(body["token"])
    assert parsed is not None
    assert (parsed.kind, body["name"]) == (TokenKind.JOIN, "new")
    message = RegisterRequest(join_token=body["token"], cluster_uid="uid", install_id="install", agent_version="1")
    assert agent_register(message=message, now=db_now()).cluster == "new"
    assert admin.get("clusters/new/").json()["agent"]["agent_version"] == "1"
    assert body["token"] not in str(list(Event.objects.values()))


def test_no_two_have_names_that_differ_only_in_case(admin: Caller, world: World) -> None:
    """A reader of `aurora` in an offer means one cluster. The refusal names the one that is there."""
    body = assert_problem(admin.post("clusters/", {"name": "AURORA"}), 409, "conflict")

    assert "There is already a cluster named aurora" in body["detail"]
    assert is_refused(lambda: Cluster.objects.create(name="Aurora", created_at=db_now()))
    assert Cluster.objects.count() == 1


def test_a_database_that_has_such_names_already_is_told_which_before_it_is_changed(world: World) -> None:
    """An update never picks the cluster that loses its name."""
    migration = import_module("inventory.migrations.0005_cluster_names")
    migration.refuse_twins(apps, None)
    raw("DROP INDEX cluster_name_once_in_any_case")
    Cluster.objects.create(name="AURORA", created_at=db_now())

    with pytest.raises(ValueError, match=r"AURORA and aurora|aurora and AURORA"):
        migration.refuse_twins(apps, None)


def test_a_new_join_token_ends_an_unused_one(admin: Caller, world: World) -> None:
    first = admin.post("clusters/aurora/join-token/").json()
    admin.post("clusters/aurora/join-token/")

    assert JoinToken.objects.get(pk=first["id"]).expires_at <= db_now()


def test_disabled_nothing_new_starts_there_until_it_is_enabled(admin: Caller, owner: Caller, world: World, ask: dict[str, Any]) -> None:
    assert admin.post("clusters/aurora/disable/").json()["is_open"] is False
    assert admin.post("clusters/aurora/disable/").status_code == 200
    assert owner.get("clusters/aurora/").json()["is_enabled"] is False
    assert owner.get("shapes/").json()["results"][0]["clusters"][0]["gpus_free"] == 0
    (offer,) = owner.post("gprs/estimate/", ask).json()["offers"]
    assert offer["explanation"]["reason"] == "waits_for_nodes"

    assert admin.post("clusters/aurora/enable/").json()["is_open"] is True
    assert Event.objects.filter(kind__in=["cluster.disabled", "cluster.enabled"]).count() == 2


def test_an_administrator_says_whether_changes_by_others_are_put_right(admin: Caller, owner: Caller, world: World) -> None:
    assert admin.get("clusters/aurora/").json()["repairs_drift"] is True
    assert owner.get("clusters/aurora/").json()["repairs_drift"] is None

    assert admin.patch("clusters/aurora/", {"repairs_drift": False}).json()["repairs_drift"] is False
    assert owner.patch("clusters/aurora/", {"repairs_drift": True}).status_code == 403
    assert admin.get("clusters/aurora/").json()["repairs_drift"] is False


def test_an_administrator_says_how_long_pods_may_hold_a_box_beyond_its_end_and_its_owner_reads_it(
    admin: Caller, owner: Caller, world: World
) -> None:
    gpr = factories.active(world.slice, world.people.owner)
    assert owner.get(f"gprs/{gpr.pk}/").json()["drain"] == {"grace_s": 30, "force_after_s": 120}

    assert admin.patch("clusters/aurora/", {"drain_force_after_s": 600}).json()["drain_force_after_s"] == 600
    assert owner.get(f"gprs/{gpr.pk}/").json()["drain"] == {"grace_s": 30, "force_after_s": 600}
    assert owner.get("clusters/aurora/").json()["drain_grace_s"] == 30
    assert owner.patch("clusters/aurora/", {"drain_grace_s": 0}).status_code == 403
    for change in ({"drain_force_after_s": 29}, {"drain_grace_s": 601}, {"drain_force_after_s": 86_401}):
        assert_problem(admin.patch("clusters/aurora/", change), 400, "invalid_input")


def test_a_silent_agent_closes_it(owner: Caller, world: World) -> None:
    world.cluster.agent.last_sync_at = db_now() - timedelta(hours=1)
    world.cluster.agent.save()

    assert owner.get("clusters/aurora/").json()["is_open"] is False
    assert {row["state"] for row in owner.get("nodes/").json()["results"]} == {"unusable"}


def test_after_a_rewind_an_administrator_resumes_it_above_all_that_its_agent_knows(admin: Caller, world: World) -> None:
    assert_problem(admin.post("clusters/aurora/resume/"), 409, "conflict")
    world.cluster.agent.known_generation = 40
    world.cluster.agent.save()
    Cluster.objects.update(rewound_at=db_now())
    assert admin.get("clusters/aurora/").json()["is_open"] is False

    body = admin.post("clusters/aurora/resume/").json()

    assert (body["rewound_at"], body["generation"], body["is_open"]) == (None, 41, True)
    assert Event.objects.get(kind="cluster.resumed").actor == world.people.admin


@pytest.mark.parametrize("action", ["join-token", "resume", "enable", "disable"])
def test_what_is_not_there_or_asks_too_much_is_refused(action: str, admin: Caller, world: World) -> None:
    assert_problem(admin.post(f"clusters/nowhere/{action}/"), 404, "not_found")
    assert_problem(admin.post(f"clusters/aurora/{action}/", {"force": True}), 400, "invalid_input")
