"""A queue of 100,000 in the database: its pages, a place in it, and what it takes to change it, on PostgreSQL and on SQLite.

Services are called as they are, but for the plan that follows some of them: `planner-large` times that. One request at a time.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.figures import Figure
from bench.hub.own_hub import figures_embedded, figures_from, migrated_database, tell
from bench.hub.queue_page import QUEUE, filled, times_ms

QUEUED: Final = 100_000
RUNS: Final = 20
LEVEL: Final = 0.95


def run(traces: Path | None) -> list[Figure]:
    return [*figures_from("bench.hub.queue_large", with_redis=False), *figures_embedded("bench.hub.queue_large")]


def main() -> None:
    with migrated_database():
        tell(measured(filled(QUEUED), QUEUED))


def measured(client: Any, queued: int) -> list[Figure]:
    """The changes come last: each takes rows of its own."""
    return [*_pages(client, queued), *_places(client, queued), *_changes(queued)]


def _pages(client: Any, queued: int) -> Iterator[Figure]:
    from gpr.requests.selectors import START_ORDER, STARTS_AT

    page = _cursor_at(queued // 2, START_ORDER, starts_at=STARTS_AT)
    for case, path in {
        "admin's page, the first": QUEUE,
        "admin's page, from the middle": f"{QUEUE}?cursor={page}",
        "API queue/, the first page": "/api/v1/queue/",
        "API queue/, from the middle": f"/api/v1/queue/?cursor={page}",
    }.items():
        yield _figure(queued, case, times_ms(client, path, runs=RUNS))


def _places(client: Any, queued: int) -> Iterator[Figure]:
    from gpr.requests.selectors import start_positions

    for where, offset in {"first": 0, "in the middle": queued // 2, "last": queued - 1}.items():
        gpr = _at(offset)
        yield _figure(queued, f"place of the one {where}", _each_ms(partial(start_positions, [gpr]), RUNS))
        yield _figure(queued, f"API gprs/ID/ of the one {where}", times_ms(client, f"/api/v1/gprs/{gpr.pk}/", runs=RUNS))


def _changes(queued: int) -> Iterator[Figure]:
    from accounts.models import PlatformRole, User
    from core.clock import db_now
    from gpr.models import Gpr, GprState
    from gpr.queue.decisions import gpr_set_priority
    from gpr.queue.moves import MoveTo, move_target
    from gpr.requests.editing import gpr_cancel, gpr_update

    now, admin, dice = db_now(), User.objects.get(role=PlatformRole.ADMIN), random.Random(11)
    middle = range(queued * 3 // 10, queued * 7 // 10)  # all of one priority, and with neighbors
    picked = iter([_at(offset) for offset in dice.sample(middle, RUNS * (2 + len(MoveTo)))])
    copied = Gpr.objects.select_related(None).filter(state=GprState.QUEUED).order_by("pk").first()

    def insert() -> None:
        fields = {field.attname: getattr(copied, field.attname) for field in Gpr._meta.concrete_fields if not field.primary_key}
        Gpr.objects.create(**fields | {"turn_key": dice.randrange(600, 400_000), "turn_at": now})

    def move(to: MoveTo) -> None:
        gpr = next(picked)
        gpr_update(gpr, move_target(gpr, to).changes)

    yield _figure(queued, "insert a row", _each_ms(insert, RUNS))
    yield _figure(queued, "cancel", _each_ms(lambda: gpr_cancel(gpr=next(picked), actor=admin, now=now), RUNS))
    raised = partial(gpr_set_priority, priority=150, actor=admin, why="", now=now)
    yield _figure(queued, "change the priority", _each_ms(lambda: raised(gpr=next(picked)), RUNS))
    for to in MoveTo:
        yield _figure(queued, f"move, {to.label.lower()}", _each_ms(partial(move, to), RUNS))


def _figure(queued: int, case: str, times: list[float]) -> Figure:
    database = "SQLite" if os.environ["EGS_DATABASE_URL"].startswith("sqlite") else "PostgreSQL"
    return Figure("queue-large", f"{queued:,} queued, {database}, {case}: p95", "ms", sorted(times)[int(len(times) * LEVEL)])


def _each_ms(work: Callable[[], object], runs: int) -> list[float]:
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        work()
        times.append((time.perf_counter() - began) * 1000)
    return times


def _at(offset: int) -> Any:
    from gpr.models import Gpr, GprState
    from gpr.requests.selectors import QUEUE_ORDER

    return Gpr.objects.select_related("slice").filter(state=GprState.QUEUED).order_by(*QUEUE_ORDER)[offset]


def _cursor_at(offset: int, order: Sequence[str], **annotations: Any) -> str:
    """Returns the cursor of the page that begins after this row in this order."""
    from core.rest.pagination import Cursor
    from gpr.models import Gpr, GprState

    row = Gpr.objects.filter(state=GprState.QUEUED).annotate(**annotations).order_by(*order)[offset]
    return Cursor(False, tuple(getattr(row, name.lstrip("-")) for name in order)).encode()


if __name__ == "__main__":
    main()
