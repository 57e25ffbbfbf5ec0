"""Pages of a long queue, places in it, and moves, which are read off the index instead of sorting what waits."""

from __future__ import annotations

import random
import re
from contextlib import suppress
from datetime import timedelta
from itertools import chain
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from core.clock import db_now
from core.errors import Conflict
from core.rest.pagination import page_behind
from gpr.models import Gpr, GprState
from gpr.queue.moves import MoveTo, move_target
from gpr.requests.selectors import QUEUE_ORDER, queue_visible_to, start_positions
from slices.models import Slice
from tests import factories

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]
PAGE = 7


@pytest.fixture
def admin() -> User:
    return factories.make_people().admin


@pytest.fixture
def queue(admin: User) -> list[Gpr]:
    """The requests have three priorities, and many have their share, work or time in common. They come in the order of the whole queue."""
    slice_ = factories.make_slice(factories.cluster("aurora", nodes=1), name="vision", owner=admin)
    queue_up(slice_, admin, 60)
    return list(Gpr.objects.order_by(*QUEUE_ORDER))


def queue_up(slice_: Slice, owner: User, count: int) -> None:
    now, dice = db_now(), random.Random(5)
    given: dict[str, Any] = {"slice": slice_, "owner": owner, "shape": "H100", "nodes": 1, "duration_s": 60, "remaining_s": 60}
    Gpr.objects.bulk_create(
        Gpr(
            name=f"g{number}",
            state=GprState.QUEUED,
            priority=dice.choice((50, 101, 201)),
            turn_share=dice.choice((-1, 0, 3)),
            turn_key=dice.choice((60, 120)),
            turn_at=now - timedelta(seconds=dice.randrange(3)),
            created_at=now - timedelta(seconds=dice.randrange(3)),
            state_changed_at=now,
            **given,
        )
        for number in range(count)
    )


@pytest.mark.parametrize(
    "order", [QUEUE_ORDER, ("turn_key", "turn_at", "id"), ("-turn_at", "-id"), ("-created_at", "id"), ("turn_share", "-turn_at", "id")]
)
def test_pages_in_any_order_show_each_row_once_forward_and_backward(order: tuple[str, ...], queue: list[Gpr]) -> None:
    rows = Gpr.objects.filter(pk__in=[gpr.pk for gpr in queue])
    cursor, ahead = None, list[list[Gpr]]()
    while not ahead or cursor:
        page = page_behind(rows, order, cursor=cursor, size=PAGE)
        ahead.append(page.rows)
        cursor = page.next
    cursor, back = page.previous, [ahead[-1]]
    while cursor:
        page = page_behind(rows, order, cursor=cursor, size=PAGE)
        back.append(page.rows)
        cursor = page.previous

    assert list(chain(*ahead)) == list(rows.order_by(*order))
    assert list(chain(*reversed(back))) == list(chain(*ahead))


def test_a_place_counts_planned_starts_of_everybody_and_who_has_none_has_no_place(admin: User, queue: list[Gpr]) -> None:
    starts = dict(zip((gpr.pk for gpr in queue[:-3]), (db_now() + timedelta(hours=number // 2) for number in range(60)), strict=False))
    for pk, start_at in starts.items():
        Gpr.objects.filter(pk=pk).update(planned_start_at=start_at)
    Gpr.objects.filter(pk=queue[5].pk).update(state=GprState.CANCELED)

    listed = list(queue_visible_to(admin))

    assert set(listed[-3:]) == set(queue[-3:])
    assert start_positions(listed) == {gpr.pk: place for place, gpr in enumerate(listed[:-3], start=1)}
    assert start_positions(listed[7:9]) == {listed[7].pk: 8, listed[8].pk: 9}
    assert start_positions([]) == start_positions(queue[-1:]) == start_positions(queue[5:6]) == {}


def spot(gpr: Gpr, to: MoveTo) -> None:
    with suppress(Conflict):  # some came at the same moment: there is no room between those
        move_target(gpr, to)


@pytest.mark.parametrize("to", MoveTo)
def test_a_move_is_read_off_the_index_and_nothing_is_sorted(to: MoveTo, queue: list[Gpr]) -> None:
    middle = [gpr for gpr in queue if gpr.priority == 101][8]
    with CaptureQueriesContext(connection) as made:
        spot(middle, to)

    asked = [query["sql"] for query in made.captured_queries if '"gpr_gpr"."priority"' in query["sql"] and "WHERE" in query["sql"]]
    plans = [plan_of(sql) for sql in asked]

    assert plans
    for plan in plans:
        assert "gpr_queue" in plan, plan
        assert not re.search(r"Sort|TEMP B-TREE|Seq Scan on gpr_gpr|SCAN gpr_gpr(?! USING)", plan), plan


def plan_of(sql: str) -> str:
    """Returns the database's plan for a table so large that a whole scan is never cheaper."""
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute(f"EXPLAIN QUERY PLAN {sql}")
            return "\n".join(str(row[3]) for row in cursor.fetchall())
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off; SET LOCAL enable_bitmapscan = off")
        cursor.execute(f"EXPLAIN {sql}")
        return "\n".join(str(row[0]) for row in cursor.fetchall())
