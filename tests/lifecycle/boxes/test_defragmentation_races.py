"""Administrators who agree at once, and a world that moves meanwhile, on a database that really lets them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Barrier

import pytest
from django.db import connection
from django.test import override_settings

from core.errors import EgsError
from gpr.models import Eviction, EvictionVictim, GprState, Promise, VictimOutcome
from gpr.requests.editing import gpr_cancel
from gpr.requests.ending import gpr_release
from journal.models import Event
from tests.lifecycle.boxes.test_defragmentation import Scattered
from tests.lifecycle.stage import fresh

pytestmark = [pytest.mark.postgres_only, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def world() -> Scattered:
    return Scattered()


@pytest.fixture(autouse=True)
def rules() -> object:
    with override_settings(EGS_EVICTION_NOTICE_S=600, EGS_EVICTION_LEAST_RUN_S=0, EGS_EVICTION_GAIN_S=600):
        yield


def at_once(*works: Callable[[], object]) -> list[bool]:
    barrier = Barrier(len(works))

    def one(work: Callable[[], object]) -> bool:
        with closing(connection):
            barrier.wait()
            try:
                work()
            except EgsError:
                return False
            return True

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(one, works))


def test_of_many_who_agree_at_once_one_is_heard(world: Scattered) -> None:
    shown = world.suggested.fingerprint

    done = at_once(*[lambda: world.make_room(shown)] * 6)

    assert sum(done) == 1
    assert Eviction.objects.count() == EvictionVictim.objects.count() == 1
    assert Event.objects.filter(kind="queue.defragmented").count() == 1


def test_whatever_its_owner_does_at_that_moment_nobody_has_notice_for_nothing(world: Scattered) -> None:
    shown, stage = world.suggested.fingerprint, world.stage

    def release() -> None:
        gpr_release(gpr=fresh(world.small), actor=stage.owner, now=stage.now)

    _, released = at_once(lambda: world.make_room(shown), release)
    if not released:  # the notice came between its reading and its release, so its owner is told to read again and decide again
        assert EvictionVictim.objects.filter(gpr=world.small, outcome=VictimOutcome.NOTICED).exists()
        release()

    small = fresh(world.small)
    assert small.state == GprState.EXITING
    assert not EvictionVictim.objects.filter(gpr=small, outcome=VictimOutcome.NOTICED).exists()


def test_canceled_at_that_moment_it_keeps_no_promise_and_those_who_had_notice_are_spared(world: Scattered) -> None:
    shown, stage = world.suggested.fingerprint, world.stage
    done = at_once(
        lambda: world.make_room(shown),
        lambda: gpr_cancel(gpr=fresh(world.waits), actor=stage.owner, now=stage.now),
    )
    stage.after(10)
    stage.tick()

    assert any(done)
    if fresh(world.waits).state == GprState.CANCELED:
        assert not Promise.objects.filter(gpr=world.waits).exists()
        assert not EvictionVictim.objects.filter(outcome=VictimOutcome.NOTICED).exists()
