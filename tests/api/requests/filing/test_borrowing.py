"""`borrows` of a GPR: its members read that it may be evicted for whom its GPUs are guaranteed to; strangers read nothing."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from core.clock import db_now
from gpr.models import Gpr
from slices.models import Slice
from slices.quotas.services import quota_create
from tests import factories
from tests.api.conftest import Caller, World
from tests.builders import SHAPE


@pytest.fixture
def lent(world: World) -> World:
    """All GPUs are guaranteed to the stranger, who uses none."""
    quota_create(owner=world.foreign_slice.project, shape=SHAPE, change={"guaranteed_gpus": 16}, actor=None, now=db_now())
    return world


@pytest.fixture
def runs(lent: World) -> Gpr:
    return factories.active(lent.slice, lent.people.owner)


@pytest.fixture
def waits(runs: Gpr, lent: World) -> Gpr:
    return factories.gpr(lent.slice, lent.people.owner)


@pytest.mark.parametrize("persona", ["owner", "teammate", "admin"])
def test_whoever_may_read_it_reads_that_it_borrows(persona: str, runs: Gpr, waits: Gpr, request: pytest.FixtureRequest) -> None:
    caller: Caller = request.getfixturevalue(persona)

    assert [caller.get(f"gprs/{gpr.pk}/").json()["borrows"] for gpr in (runs, waits)] == [True, True]
    assert [row["borrows"] for row in caller.get("gprs/").json()["results"]] == [True, True]


def test_a_stranger_reads_nothing_of_it(runs: Gpr, waits: Gpr, outsider: Caller) -> None:
    assert [outsider.get(f"gprs/{gpr.pk}/").status_code for gpr in (runs, waits)] == [404, 404]
    assert outsider.get("gprs/").json()["results"] == []


def test_who_uses_what_is_guaranteed_to_him_borrows_nothing(lent: World, outsider: Caller) -> None:
    gprs = [build(lent.foreign_slice, lent.people.outsider) for build in (factories.active, factories.gpr)]

    assert [outsider.get(f"gprs/{gpr.pk}/").json()["borrows"] for gpr in gprs] == [False, False]


def test_it_is_as_the_offer_said(lent: World, owner: Caller, ask: dict[str, Any]) -> None:
    (offer,) = owner.post("gprs/estimate/", ask).json()["offers"]

    assert owner.post("gprs/", ask).json()["borrows"] is offer["borrows"] is True


def test_a_list_of_borrowers_of_many_projects_costs_what_one_costs(lent: World, admin: Caller) -> None:
    def others() -> Slice:
        return factories.make_slice(lent.cluster, owner=lent.people.owner, of=factories.project())

    factories.active(others(), lent.people.owner, gpus_per_node=1)
    admin.get("gprs/")  # the first call with a token writes that it was used
    with CaptureQueriesContext(connection) as few:
        assert [row["borrows"] for row in admin.get("gprs/").json()["results"]] == [True]
    for _ in range(4):
        factories.active(others(), lent.people.owner, gpus_per_node=1)
    with CaptureQueriesContext(connection) as many:
        assert [row["borrows"] for row in admin.get("gprs/").json()["results"]] == [True] * 5
    assert len(many) == len(few)
