"""Pages of a long queue, and places in it: right for any page, and read off the index instead of sorting what waits."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from itertools import chain
from typing import Any

import pytest
from django.db import connection
from django.db.models import QuerySet
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from egs.clock import db_now
from egs.errors import Conflict
from egs.rest.pagination import Cursor, page_behind
from gpr.models import Gpr, GprState
from gpr.selectors import QUEUE_ORDER, queue_positions, queue_visible_to
from gpr.services.moving import MoveTo, spot_for
from slices.models import Slice
from tests import factories

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]
PAGE = 7


@pytest.fixture
def admin() -> User:
    return factories.make_people().admin


@pytest.fixture
def queue(admin: User) -> list[Gpr]:
    """Of three priorities, with shares, work and times that many have in common; as the whole queue is read."""
    slice_ = factories.make_slice(factories.cluster("aurora", nodes=1), name="vision", owner=admin)
    queue_up(slice_, admin, 60)
    return list(queue_visible_to(admin))


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


def test_a_place_is_the_same_alone_on_any_page_and_among_any_others(queue: list[Gpr]) -> None:
    places = {gpr.pk: place for place, gpr in enumerate(queue, start=1)}
    dice = random.Random(6)

    assert queue_positions(queue) == places
    assert all(queue_positions([gpr]) == {gpr.pk: places[gpr.pk]} for gpr in queue)
    for count in (2, 5, 20):
        some = dice.sample(queue, count)
        assert queue_positions(some) == {gpr.pk: places[gpr.pk] for gpr in some}
    assert queue_positions([]) == {}


def test_a_place_is_told_of_one_that_a_plan_puts_elsewhere_while_the_page_is_read(admin: User, queue: list[Gpr]) -> None:
    page = queue[20:27]
    Gpr.objects.filter(pk=page[3].pk).update(turn_share=-9, priority=201)
    Gpr.objects.filter(pk=page[5].pk).update(state=GprState.CANCELED)

    told = queue_positions(page)

    assert told.keys() == {gpr.pk for gpr in page} - {page[5].pk}
    assert told[page[3].pk] == 1 + list(queue_visible_to(admin)).index(page[3])


def after(rows: QuerySet[Gpr], gpr: Gpr) -> Any:
    return page_behind(
        rows, QUEUE_ORDER, cursor=Cursor(False, tuple(getattr(gpr, name.lstrip("-")) for name in QUEUE_ORDER)).encode(), size=3
    )


def spot(gpr: Gpr, to: MoveTo) -> None:
    with suppress(Conflict):  # some came at the same moment: there is no room between those
        spot_for(gpr, to)


READS: dict[str, Callable[[User, Gpr], Any]] = {
    "first page": lambda admin, gpr: page_behind(queue_visible_to(admin), QUEUE_ORDER, cursor=None, size=3),
    "later page": lambda admin, gpr: after(queue_visible_to(admin), gpr),
    "place": lambda admin, gpr: queue_positions([gpr]),
    "places of a page": lambda admin, gpr: queue_positions(after(queue_visible_to(admin), gpr).rows),
    **{f"move {to}": lambda admin, gpr, to=to: spot(gpr, to) for to in MoveTo},
}


@pytest.mark.parametrize("read", READS)
def test_it_is_read_off_the_index_and_nothing_is_sorted(read: str, admin: User, queue: list[Gpr]) -> None:
    middle = [gpr for gpr in queue if gpr.priority == 101][8]
    with CaptureQueriesContext(connection) as made:
        READS[read](admin, middle)

    asked = [query["sql"] for query in made.captured_queries if '"gpr_gpr"."priority"' in query["sql"] and "WHERE" in query["sql"]]
    plans = [plan_of(sql) for sql in asked]

    assert plans
    for plan in plans:
        assert "gpr_queue" in plan, plan
        assert not re.search(r"Sort|TEMP B-TREE|Seq Scan on gpr_gpr|SCAN gpr_gpr(?! USING)", plan), plan


def plan_of(sql: str) -> str:
    """As for a table so large that a whole scan is never cheaper."""
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute(f"EXPLAIN QUERY PLAN {sql}")
            return "\n".join(str(row[3]) for row in cursor.fetchall())
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off; SET LOCAL enable_bitmapscan = off")
        cursor.execute(f"EXPLAIN {sql}")
        return "\n".join(str(row[0]) for row in cursor.fetchall())
