"""A maintenance is announced while the allocator starts a box there, whoever is first: either nothing starts into it, or it names the box.

The announcement's answer is what is held against the books: an administrator who reads it knows of every box that reaches in.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest
from django.db import connection

from core.clock import db_now
from gpr.allocation import starts
from gpr.allocation.allocator import TickReport, tick
from gpr.models import Gpr, GprState
from gpr.requests.editing import gpr_cancel
from gpr.requests.ending import gpr_release
from inventory.models import Cluster, MaintenanceWindow, Reservation, ReservationState
from inventory.services import maintenance as maintenance_module
from inventory.services.maintenance import window_cancel
from protocol.assignments import Phase
from tests import factories
from tests.api.conftest import Caller
from tests.builders import nodes_of
from tests.effort import repeats
from tests.factories import People
from tests.promises.races.test_lock_order import Other, stopped_after

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres_only]

HOUR = timedelta(hours=1)
ROUNDS = repeats(24)
EITHER = pytest.mark.parametrize("place", ["node", "cluster"])


@pytest.fixture
def people() -> People:
    return factories.make_people()


@pytest.fixture
def cluster() -> Cluster:
    return factories.cluster("aurora", nodes=1)


@pytest.fixture
def admin(people: People) -> Caller:
    return Caller(factories.token(people.admin))


def waiting(cluster: Cluster, people: People) -> Gpr:
    """A box of an hour, which the next tick starts on the only node."""
    return factories.gpr(factories.make_slice(cluster, owner=people.owner), people.owner)


def closing_of(cluster: Cluster, place: str) -> dict[str, Any]:
    """Half an hour from now, in the middle of a box that starts now."""
    at = db_now() + HOUR / 2
    of = {"node": str(nodes_of(cluster)[0].pk)} if place == "node" else {"cluster": cluster.name}
    return {**of, "starts_at": at.isoformat(), "ends_at": (at + HOUR).isoformat(), "reason": "firmware"}


def announced(admin: Caller, cluster: Cluster, place: str) -> set[str]:
    """The names of the boxes that the answer tells of."""
    answer = admin.post("maintenance/", closing_of(cluster, place))
    assert answer.status_code == 201, answer.content
    return {box["gpr"] for box in answer.json()["effects"]["boxes"]}


def reaching_in() -> set[str]:
    """Returns by the books, apart from the selector, what holds the place beyond the beginning of its closure."""
    window = MaintenanceWindow.objects.get(canceled_at=None)
    held = Reservation.objects.filter(state=ReservationState.HELD, cluster=window.cluster, ends_at__gt=window.starts_at)
    return set(held.values_list("gpr__name", flat=True))


def noted(told: list[set[str]], admin: Caller, cluster: Cluster, place: str) -> Callable[[], None]:
    return lambda: told.append(announced(admin, cluster, place))


@EITHER
def test_an_announcement_that_comes_while_a_box_starts_waits_for_it_and_names_it(
    place: str, cluster: Cluster, people: People, admin: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpr = waiting(cluster, people)
    told: list[set[str]] = []
    other = Other(noted(told, admin, cluster, place))
    stopped_after(monkeypatch, starts, "reservations_hold", other)

    tick(now=db_now())

    other.end()
    gpr.refresh_from_db()
    assert gpr.state == GprState.PROVISIONING
    assert told == [{gpr.name}] == [reaching_in()]


@EITHER
def test_a_start_that_comes_while_a_maintenance_is_announced_waits_for_it_and_is_refused(
    place: str, cluster: Cluster, people: People, admin: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The allocator had planned without it. The next plan knows it, and starts the box behind it."""
    gpr = waiting(cluster, people)
    reports: list[TickReport | None] = []
    other = Other(lambda: reports.append(tick(now=db_now())))
    stopped_after(monkeypatch, maintenance_module, "_record_event", other)

    told = announced(admin, cluster, place)

    other.end()
    assert told == reaching_in() == set()
    assert [report.skipped for report in reports if report] == [
        {gpr.pk: "A node of the plan is closed for maintenance before the box would be over."}
    ]

    tick(now=db_now())
    gpr.refresh_from_db()
    assert gpr.state == GprState.QUEUED
    assert gpr.planned_start_at is not None
    assert gpr.planned_start_at >= MaintenanceWindow.objects.get().ends_at


@EITHER
def test_one_after_the_other_each_sees_what_was_done(place: str, cluster: Cluster, people: People, admin: Caller) -> None:
    """Started, then announced: the preview names it, and the answer. Announced, then started: nothing starts."""
    gpr = waiting(cluster, people)
    tick(now=db_now())
    preview = admin.post("maintenance/preview/", closing_of(cluster, place)).json()
    assert {box["gpr"] for box in preview["boxes"]} == announced(admin, cluster, place) == {gpr.name}
    factories.observe(gpr, Phase.RELEASED)

    late = waiting(cluster, people)
    report = tick(now=db_now())

    late.refresh_from_db()
    assert report is not None
    assert (report.started, late.state, reaching_in()) == ([], GprState.QUEUED, set())


@EITHER
def test_at_the_same_moment_again_and_again(place: str, cluster: Cluster, people: People, admin: Caller) -> None:
    """The announcement begins at ever other moments of a tick. Its answer agrees with the books when both are done."""
    tick_s, seen = length_of_a_start(cluster, people), Counter[str]()
    for number in range(ROUNDS):
        gpr = waiting(cluster, people)

        told = beside_a_tick(lambda: announced(admin, cluster, place), after_s=tick_s * 1.5 * number / ROUNDS)

        assert told == reaching_in()
        seen["named" if told else "kept out"] += 1
        clear(gpr, people)
    sys.stdout.write(f"\nmaintenance and start: {dict(seen)}\n")
    assert seen.total() == ROUNDS


def length_of_a_start(cluster: Cluster, people: People) -> float:
    gpr = waiting(cluster, people)
    began_s = time.perf_counter()
    tick()
    took_s = time.perf_counter() - began_s
    clear(gpr, people)
    return took_s


def clear(gpr: Gpr, people: People) -> None:
    """The node is free and open again, and nobody waits for it."""
    gpr.refresh_from_db()
    if gpr.state == GprState.QUEUED:
        gpr_cancel(gpr=gpr, actor=people.owner, now=db_now())
    else:
        gpr_release(gpr=gpr, actor=people.owner, now=db_now())
        factories.observe(gpr, Phase.RELEASED)
    for window in MaintenanceWindow.objects.filter(canceled_at=None):
        window_cancel(window=window, actor=people.admin, now=db_now())


def beside_a_tick(announce: Callable[[], set[str]], *, after_s: float) -> set[str]:
    """Returns what the announcement tells that begins so much later than the tick."""
    barrier = Barrier(2)

    def one(work: Callable[[], Any], after_s: float = 0.0) -> Any:
        with closing(connection):
            barrier.wait()
            time.sleep(after_s)
            return work()

    with ThreadPoolExecutor(2) as pool:
        told, ticked = pool.submit(one, announce, after_s), pool.submit(one, tick)
        assert ticked.result() is not None
        found: set[str] = told.result()
    return found
