"""DELETE gprs/{id}/: withdraw a request while it waits."""

from __future__ import annotations

import pytest

from gpr.models import Gpr, GprState, Promise
from tests import factories
from tests.api.conftest import Caller, World, assert_problem


@pytest.mark.parametrize(
    ("persona", "status", "state"),
    [
        ("owner", 204, GprState.CANCELED),
        ("teammate", 403, GprState.QUEUED),
        ("outsider", 404, GprState.QUEUED),
        ("admin", 204, GprState.CANCELED),
        ("reader", 403, GprState.QUEUED),
        ("anonymous", 401, GprState.QUEUED),
    ],
)
def test_only_its_owner_and_an_administrator_may_cancel_it(
    persona: str, status: int, state: GprState, world: World, request: pytest.FixtureRequest
) -> None:
    gpr = factories.gpr(world.slice, world.people.owner)

    response = request.getfixturevalue(persona).delete(f"gprs/{gpr.pk}/")

    assert response.status_code == status
    assert bool(response.content) is (status != 204)
    gpr.refresh_from_db()
    assert gpr.state == state
    assert Promise.objects.filter(gpr=gpr).exists() is (state == GprState.QUEUED)


def test_a_canceled_one_stays_to_be_seen(owner: Caller, world: World) -> None:
    path = f"gprs/{factories.gpr(world.slice, world.people.owner).pk}/"
    owner.delete(path)

    seen = owner.get(path).json()

    assert (seen["state"], seen["position"], seen["estimate"], seen["explanation"]) == ("CANCELED", None, None, None)
    assert seen["ended_at"] is not None
    assert_problem(owner.delete(path), 409, "wrong_state")


def test_one_that_waits_for_approval_can_be_canceled(owner: Caller, world: World) -> None:
    gpr = factories.gpr(world.slice, world.people.owner, priority=300)

    assert owner.delete(f"gprs/{gpr.pk}/").status_code == 204


def test_one_that_holds_nodes_cannot_be_canceled(owner: Caller, world: World) -> None:
    gpr = factories.started(world.slice, world.people.owner)

    assert assert_problem(owner.delete(f"gprs/{gpr.pk}/"), 409, "wrong_state")["state"] == "PROVISIONING"


def test_a_version_may_be_named_in_the_query(owner: Caller, world: World) -> None:
    gpr = factories.gpr(world.slice, world.people.owner)

    assert_problem(owner.delete(f"gprs/{gpr.pk}/?version=7"), 409, "stale_version")
    for nonsense in ("x", "-1", "1.0", "", "9" * 30):
        assert_problem(owner.delete(f"gprs/{gpr.pk}/?version={nonsense}"), 400, "invalid_input")
    assert Gpr.objects.get().state == GprState.QUEUED
    assert owner.delete(f"gprs/{gpr.pk}/?version=1").status_code == 204
