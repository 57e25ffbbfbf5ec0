"""A GPR that was filed as an object of a cluster says so to those who may see it."""

from __future__ import annotations

import pytest

from core.clock import db_now
from gpr.cluster_requests.services import cluster_requests_take
from gpr.models import Gpr
from protocol.tenancy.cluster_requests import ClusterRequestVerdict
from tests import factories
from tests.api.conftest import Caller, World, assert_problem
from tests.cluster_requests.stage import claim
from tests.slices.kubeconfigs import ready_namespace

ORIGIN = {"cluster": "aurora", "namespace": "train", "name": "llama", "requester": "ci", "is_auto": False}


@pytest.fixture
def filed(world: World) -> Gpr:
    ready_namespace(world.slice, world.cluster, at=db_now())
    (answer,) = cluster_requests_take(cluster=world.cluster, requests=[claim("llama", requester="ci")], now=db_now())
    assert answer.verdict == ClusterRequestVerdict.TAKEN, answer
    return Gpr.objects.get(pk=answer.gpr_id)


@pytest.mark.parametrize("persona", ["owner", "teammate", "admin"])
def test_members_and_administrators_see_of_which_object_it_is(persona: str, filed: Gpr, request: pytest.FixtureRequest) -> None:
    caller: Caller = request.getfixturevalue(persona)

    assert caller.get(f"gprs/{filed.pk}/").json()["origin"] == ORIGIN
    assert [row["origin"] for row in caller.get("gprs/").json()["results"]] == [ORIGIN]
    messages = [event["message"] for event in caller.get("events/", gpr=str(filed.pk)).json()["results"]]
    assert "llama was filed as object train/llama of cluster aurora, made by ci." in messages


def test_an_outsider_sees_nothing_of_it(filed: Gpr, outsider: Caller) -> None:
    assert_problem(outsider.get(f"gprs/{filed.pk}/"), 404, "not_found")
    assert outsider.get("gprs/").json()["results"] == []
    assert outsider.get("events/", gpr=str(filed.pk)).json()["results"] == []


def test_what_was_filed_here_has_no_origin(owner: Caller, world: World) -> None:
    gpr = factories.gpr(world.slice, world.people.owner)

    assert owner.get(f"gprs/{gpr.pk}/").json()["origin"] is None


def test_it_is_changed_and_ended_here_as_any_other(filed: Gpr, owner: Caller, teammate: Caller, outsider: Caller) -> None:
    path = f"gprs/{filed.pk}/"
    assert_problem(teammate.delete(path), 403, "not_allowed")
    assert_problem(outsider.delete(path), 404, "not_found")

    assert owner.patch(path, {"duration_s": 7200}).json()["duration_s"] == 7200
    assert owner.delete(path).status_code == 204
    assert owner.get(path).json()["state"] == "CANCELED"
