"""The list of evictions: both sides, what it cost and what it won."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext

from core.clock import db_now
from gpr.evictions.withdrawals import notices_review
from gpr.models import Eviction, EvictionVictim, Gpr, VictimOutcome
from gpr.queue.decisions import gpr_evict
from gpr.requests.editing import gpr_cancel
from portal_shared.parts.paging import PAGE_ROWS
from tests import factories
from tests.pages.admin_world import HTMX
from tests.pages.user_world import World, client_of, text

# Each day: tests/api/queue/test_evictions.py, and test_every_page.py
pytestmark = [pytest.mark.django_db, pytest.mark.rotates]
EVICTIONS = "/admin/evictions/"


@pytest.fixture(autouse=True)
def rules() -> Iterator[None]:
    with override_settings(EGS_EVICTION_NOTICE_S=600, EGS_EVICTION_LEAST_RUN_S=0, EGS_EVICTION_GAIN_S=60):
        yield


@pytest.fixture
def admin(world: World) -> Client:
    return client_of(world.people.admin)


@pytest.fixture
def sides(world: World) -> tuple[Gpr, Gpr]:
    return factories.noticed(world.slice, world.people.owner, world.foreign, world.people.outsider)


def test_it_tells_for_whom_whose_what_it_cost_and_what_it_won(admin: Client, sides: tuple[Gpr, Gpr]) -> None:
    EvictionVictim.objects.update(lost_gpu_s=9_000)

    for markup in (text(admin.get(EVICTIONS)), text(admin.get(EVICTIONS, {"part": "rows"}, headers=HTMX))):
        for told in ("canary-slice", "vision", ">victim<", "of lower priority", "will be evicted", "23 h", "earlier", "2.5 <small>GPU h"):
            assert told in markup, told
    assert EVICTIONS in text(admin.get("/admin/queue/"))


def test_it_tells_the_priority_that_a_victim_had_when_it_was_chosen_whatever_it_has_now(admin: Client, sides: tuple[Gpr, Gpr]) -> None:
    Gpr.objects.filter(pk=sides[0].pk).update(priority=120)

    assert "priority 50, of lower priority," in text(admin.get(EVICTIONS))
    EvictionVictim.objects.update(priority=None)  # as of those before it was kept
    assert ">of lower priority," in text(admin.get(EVICTIONS))


def test_whoever_was_spared_lost_nothing(admin: Client, world: World, sides: tuple[Gpr, Gpr]) -> None:
    EvictionVictim.objects.update(lost_gpu_s=9_000)
    gpr_cancel(gpr=sides[1], actor=world.people.outsider, now=db_now())
    notices_review(now=db_now())

    markup = text(admin.get(EVICTIONS))

    assert "spared" in markup
    assert "0 <small>GPU h" in markup


def test_where_there_are_none_it_says_so(admin: Client) -> None:
    assert "No evictions yet" in text(admin.get(EVICTIONS))


def test_a_page_of_them_costs_what_one_of_them_costs(admin: Client, world: World, sides: tuple[Gpr, Gpr]) -> None:
    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            admin.get(EVICTIONS)
        return len(queries)

    one, now = cost(), db_now()
    made = Eviction.objects.bulk_create(Eviction(gpr=sides[1], made_at=now, start_at=now, instead_at=now) for _ in range(PAGE_ROWS))
    EvictionVictim.objects.bulk_create(
        EvictionVictim(eviction=each, gpr=sides[0], kind="reclaim", ends_at=now, lost_gpu_s=1, outcome=VictimOutcome.EVICTED)
        for each in made
    )
    assert cost() == one
    assert 'rel="next"' in text(admin.get(EVICTIONS))


def test_what_an_administrator_evicted_stands_there_for_nobody(admin: Client, world: World) -> None:
    gpr = factories.active(world.slice, world.people.owner, name="taken")
    gpr_evict(gpr=gpr, actor=world.people.admin, why="Maintenance.", now=db_now())

    markup = text(admin.get(EVICTIONS))
    for told in ('<span class="soft">an administrator</span>', ">taken<", "by an administrator,", "evicted "):
        assert told in markup, told
