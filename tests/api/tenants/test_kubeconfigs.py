"""Kubeconfigs over the API: asked for, read once by who asked, seen by the members, revoked by their owners."""

from __future__ import annotations

import json

import pytest
import yaml

from core.clock import db_now
from inventory.models import AgentSession
from protocol.tenancy.workspaces import BindingState
from slices.models import Kubeconfig, Namespace
from tests.api.conftest import Caller, World, assert_problem, faults
from tests.slices.kubeconfigs import SECRET, answer, ready_namespace

PATH = "slices/vision/kubeconfig/"
ASK = {"cluster": "aurora"}


@pytest.fixture
def namespace(world: World) -> Namespace:
    return ready_namespace(world.slice, world.cluster, at=db_now())


def made(caller: Caller) -> str:
    """Asks for a kubeconfig, lets the agent answer, and returns its address."""
    response = caller.post(PATH, ASK)
    assert response.status_code == 201
    answer(Kubeconfig.objects.get(pk=response.json()["id"]), at=db_now())
    return f"{PATH}{response.json()['id']}/"


def test_a_member_asks_waits_and_reads_it_once(owner: Caller, namespace: Namespace) -> None:
    asked = owner.post(PATH, {**ASK, "duration_s": 3600}).json()
    path = f"{PATH}{asked['id']}/"

    assert (asked["name"], asked["state"], asked["user"], asked["duration_s"]) == ("vision@aurora", "asked", "owner", 3600)
    assert_problem(owner.post(f"{path}read/"), 409, "kubeconfig_not_made")
    answer(Kubeconfig.objects.get(), at=db_now())
    read = owner.post(f"{path}read/")
    assert read["Cache-Control"] == "no-store"
    assert yaml.safe_load(read.json()["kubeconfig"])["users"][0]["user"]["token"] == SECRET
    assert read.json()["expires_at"] == owner.get(path).json()["expires_at"]
    assert_problem(owner.post(f"{path}read/"), 409, "wrong_state")


def test_no_other_answer_holds_the_secret(owner: Caller, admin: Caller, namespace: Namespace) -> None:
    path = made(owner)

    for caller in (owner, admin):
        for read in (PATH, path, "events/", "slices/vision/", "slices/vision/namespaces/", "clusters/aurora/"):
            assert SECRET not in json.dumps(caller.get(read).json())


def test_the_members_see_who_has_one_and_until_when(owner: Caller, teammate: Caller, namespace: Namespace) -> None:
    made(owner)

    (seen,) = teammate.get(PATH).json()["results"]

    assert (seen["user"], seen["state"], seen["cluster"], seen["namespace"]) == ("owner", "made", "aurora", "train")
    assert seen["expires_at"] > seen["asked_at"]


def test_one_is_revoked_by_who_has_it_and_by_an_owner_but_by_no_other_member(
    owner: Caller, teammate: Caller, admin: Caller, namespace: Namespace
) -> None:
    owners, teammates, third = made(owner), made(teammate), made(teammate)

    assert teammate.delete(owners).status_code == 403
    assert [teammate.delete(teammates).status_code, owner.delete(third).status_code, admin.delete(owners).status_code] == [204] * 3

    assert {row["state"] for row in owner.get(PATH).json()["results"]} == {"revoked"}
    assert_problem(owner.delete(owners), 409, "wrong_state")
    assert "admin" in owner.get(owners).json()["detail"]


def test_the_same_wish_sent_twice_is_one_kubeconfig(owner: Caller, namespace: Namespace) -> None:
    first, second = (owner.post(PATH, ASK, key="once").json() for _ in range(2))

    assert first["id"] == second["id"]
    assert Kubeconfig.objects.count() == 1


def test_why_there_can_be_none_is_a_problem_with_a_code_of_its_own(
    owner: Caller, admin: Caller, world: World, namespace: Namespace
) -> None:
    assert_problem(admin.post(PATH, ASK), 403, "not_allowed")
    assert_problem(owner.post(PATH, {**ASK, "duration_s": 30 * 86_400}), 400, "over_policy")
    assert_problem(owner.post(PATH, {"cluster": "nowhere"}), 404, "not_found")
    assert faults(owner.post(PATH, {**ASK, "duration_s": 60})) == ["duration_s"]
    Namespace.objects.update(state=BindingState.CONFLICT, detail="There was a namespace of this name before.")
    assert "before" in assert_problem(owner.post(PATH, ASK), 409, "namespace_not_ready")["detail"]
    AgentSession.objects.all().delete()
    assert_problem(owner.post(PATH, ASK), 409, "cluster_not_connected")


def test_a_namespace_says_how_its_agent_finds_it(owner: Caller, namespace: Namespace) -> None:
    Namespace.objects.update(state=BindingState.CONFLICT, detail="There was one before.")

    (seen,) = owner.get("slices/vision/namespaces/").json()["results"]

    assert (seen["state"], seen["detail"], seen["may_adopt"]) == ("CONFLICT", "There was one before.", False)


def test_only_an_administrator_lets_a_workspace_adopt_what_was_there_before(owner: Caller, admin: Caller, world: World) -> None:
    wish = {"name": "old", "cluster": "aurora", "may_adopt": True}

    assert_problem(owner.post("slices/vision/namespaces/", wish), 403, "not_allowed")
    assert owner.post("slices/vision/namespaces/", {**wish, "may_adopt": False}).status_code == 201
    assert owner.post("slices/vision/namespaces/old/adopt/").status_code == 403
    assert admin.post("slices/vision/namespaces/old/adopt/").json()["may_adopt"] is True
    assert admin.post("slices/vision/namespaces/", {**wish, "name": "older"}).json()["may_adopt"] is True


def test_an_administrator_says_where_users_reach_a_cluster(admin: Caller, owner: Caller, world: World) -> None:
    assert admin.patch("clusters/aurora/", {"api_url": "https://api.example.org:6443"}).json()["api_url"] == "https://api.example.org:6443"

    assert owner.get("clusters/aurora/").json()["api_url"] is None
    for wrong in ("http://plain.example.org", "https://", "https://user@host", "example.org", "https://a b", "https://a\u202eb", 5):
        assert faults(admin.patch("clusters/aurora/", {"api_url": wrong})) == ["api_url"]
    assert admin.patch("clusters/aurora/", {"api_url": ""}).json()["api_url"] == ""
