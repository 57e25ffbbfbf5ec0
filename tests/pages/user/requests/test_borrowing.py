"""A request on borrowed GPUs says so on its own page, while it waits and while it runs: to its members, and to administrators."""

from __future__ import annotations

from copy import deepcopy

import pytest

from core.clock import db_now
from gpr.models import Gpr
from gpr.quotas.borrowing import BORROWS, WILL_BORROW
from slices.quotas.services import quota_create
from tests import factories
from tests.builders import SHAPE
from tests.pages.user_world import World, make_world, text

# Each day: tests/api/requests/filing/test_borrowing.py
pytestmark = [pytest.mark.django_db, pytest.mark.rotates]


@pytest.fixture(scope="module")
def built_world(module_db: None) -> World:
    """All GPUs are guaranteed to the stranger, who uses none."""
    made = make_world()
    quota_create(owner=made.foreign.project, shape=SHAPE, change={"guaranteed_gpus": 16}, actor=None, now=db_now())
    return made


@pytest.fixture(autouse=True, scope="module")
def built_runs(built_world: World) -> Gpr:
    return factories.active(built_world.slice, built_world.people.owner)


@pytest.fixture
def runs(built_runs: Gpr, db: None) -> Gpr:
    return deepcopy(built_runs)


@pytest.fixture
def waits(runs: Gpr, world: World) -> Gpr:
    return factories.gpr(world.slice, world.people.owner)


@pytest.mark.parametrize("persona", ["owner", "teammate", "admin"])
@pytest.mark.parametrize("part", ["", "?part=why"])
def test_members_see_it_beforehand_and_while_it_runs(persona: str, part: str, world: World, runs: Gpr, waits: Gpr) -> None:
    client = world.client(persona)

    assert BORROWS in text(client.get(f"/gprs/{runs.pk}/{part}"))
    assert WILL_BORROW in text(client.get(f"/gprs/{waits.pk}/{part}"))


@pytest.mark.parametrize("part", ["", "?part=body"])
def test_the_administrator_sees_it_in_focus(part: str, world: World, runs: Gpr, waits: Gpr) -> None:
    admin = world.client("admin")

    assert BORROWS in text(admin.get(f"/admin/queue/{runs.pk}/{part}"))
    assert WILL_BORROW in text(admin.get(f"/admin/queue/{waits.pk}/{part}"))


@pytest.mark.daily
def test_a_stranger_sees_nothing(world: World, runs: Gpr, waits: Gpr) -> None:
    for gpr in (runs, waits):
        assert world.client("outsider").get(f"/gprs/{gpr.pk}/").status_code == 404


def test_who_has_what_is_guaranteed_to_him_is_told_nothing(world: World) -> None:
    gpr = factories.active(world.foreign, world.people.outsider)

    assert BORROWS not in text(world.client("outsider").get(f"/gprs/{gpr.pk}/"))
    assert BORROWS not in text(world.client("admin").get(f"/admin/queue/{gpr.pk}/"))
