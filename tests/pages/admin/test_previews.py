"""A preview says what an act would change; then the act is done on the frozen queue, and that is what happens."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from datetime import datetime, timedelta
from uuid import UUID

import pytest
from django.conf import settings
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from gpr.allocation.allocator import tick
from gpr.allocation.live import snapshot_load
from gpr.approvals.services import gpr_approve, gpr_reject
from gpr.models import EvictionVictim, Gpr, GprState, Promise
from gpr.queue.decisions import gpr_evict, gpr_set_priority
from gpr.queue.previews import DecisionPreview, preview_approval, preview_eviction, preview_priority, preview_withdrawal
from gpr.requests.selectors import start_positions
from gpr.requests.services import gpr_submit
from inventory.models import Cluster, Reservation, ReservationState
from portal_admin.pages.plan.question import Effects
from protocol.assignments import Phase
from slices.models import Slice
from tests import builders
from tests.builders import NOW, agent_heard, agent_says

# Each day: tests/api/requests/test_decisions.py, and test_every_page.py
pytestmark = [pytest.mark.django_db, pytest.mark.rotates]


class Stage:
    """Four nodes and a clock that stands still; every GPR has a workspace of its own.

    One box holds all nodes for three hours; behind it wait a wide one and three narrow ones.
    """

    def __init__(self) -> None:
        self.cluster: Cluster = builders.make_cluster("aurora", nodes=4)
        self.admin: User = builders.make_user("admin", is_admin=True)
        self.filed_count = 0
        self.runs = self.file("runs", nodes=4, hours=3)
        self.tick()
        self.runs.refresh_from_db()
        self.activate(self.runs)
        self.waiting = [self.file("wide", nodes=4, hours=2), *(self.file(f"narrow-{n}", nodes=2) for n in range(3))]
        self.tick()
        for gpr in self.waiting:
            gpr.refresh_from_db()

    def slice(self, name: str, **policy: int) -> Slice:
        made = builders.make_slice(self.cluster, name=name, owner=self.admin)
        for field, value in policy.items():
            setattr(made, field, value)
        made.save()
        return made

    def file(self, name: str, *, nodes: int = 1, hours: int = 1, of: Slice | None = None, **changes: object) -> Gpr:
        """Files a request a second after the one before it, all shortly before NOW."""
        spec = builders.spec(of or self.slice(name), name=name, nodes=nodes, duration_s=hours * 3600, **changes)
        self.filed_count += 1
        return gpr_submit(actor=self.admin, spec=spec, now=NOW + timedelta(seconds=self.filed_count - 30))

    def tick(self, at: datetime = NOW) -> None:
        agent_heard(self.cluster, at)
        tick(now=at)

    def activate(self, gpr: Gpr, at: datetime = NOW) -> None:
        for row in Reservation.objects.filter(gpr=gpr, state=ReservationState.HELD):
            agent_says(row, Phase.ACTIVE, now=at, active_at=at)
        self.tick(at)
        gpr.refresh_from_db()

    def free(self, gpr: Gpr, at: datetime) -> None:
        """Its agent gives the nodes back."""
        for row in Reservation.objects.filter(gpr=gpr, state=ReservationState.HELD):
            agent_says(row, Phase.RELEASED, now=at)
        self.tick(at)

    def starts(self) -> dict[UUID, datetime | None]:
        """Returns when each starts by the plan, or when it did start."""
        rows = Gpr.objects.filter(state__in=[GprState.QUEUED, GprState.PROVISIONING])
        return {gpr.pk: gpr.planned_start_at or gpr.provisioning_at for gpr in rows}


@pytest.fixture(scope="module")
def built_stage(module_db: None) -> Stage:
    return Stage()


@pytest.fixture
def stage(built_stage: Stage, db: None) -> Stage:
    return deepcopy(built_stage)


def check(stage: Stage, before: dict[UUID, datetime | None], preview: DecisionPreview) -> None:
    """Asserts that the preview named exactly those that moved, and where they moved to."""
    after = stage.starts()
    own = preview.own.gpr.pk
    moved = {pk: (start, after[pk]) for pk, start in before.items() if pk in after and pk != own and start != after[pk]}
    assert {shift.gpr.pk: (shift.old_start_at, shift.new_start_at) for shift in preview.others} == moved
    assert after.get(own) == preview.own.new_start_at


def test_an_eviction_frees_the_nodes_early_and_all_behind_it_move_up(stage: Stage) -> None:
    runs = stage.runs
    before = stage.starts()

    preview = preview_eviction(gpr=runs, now=NOW)
    gpr_evict(gpr=runs, actor=stage.admin, why="maintenance", now=NOW)
    stage.free(runs, NOW + timedelta(seconds=settings.EGS_EXIT_ALLOWANCE_S))

    assert preview.earlier
    assert not preview.later
    assert preview.new_position == 5  # of equals it brings the most work
    check(stage, before, preview)


def test_an_evicted_one_that_does_not_come_back_leaves_no_trace_in_the_queue(stage: Stage) -> None:
    runs = stage.runs
    runs.requeue_on_failure = False
    runs.save()
    before = stage.starts()

    preview = preview_eviction(gpr=runs, now=NOW)
    gpr_evict(gpr=runs, actor=stage.admin, why="maintenance", now=NOW)
    stage.free(runs, NOW + timedelta(seconds=settings.EGS_EXIT_ALLOWANCE_S))

    assert (preview.own.new_start_at, preview.new_position) == (None, None)
    check(stage, before, preview)


def test_a_rejected_one_makes_room_for_those_behind_it(stage: Stage) -> None:
    wide = stage.waiting[0]
    before = stage.starts()

    preview = preview_withdrawal(gpr=wide, now=NOW)
    gpr_reject(gpr=wide, actor=stage.admin, why="no longer funded", now=NOW)
    stage.tick()

    assert len(preview.earlier) == 3
    check(stage, before, preview)


def test_one_that_waits_for_approval_takes_no_room_so_its_rejection_moves_nobody(stage: Stage) -> None:
    held = stage.file("large", of=stage.slice("strict", nodes_approval=1), nodes=2)

    preview = preview_withdrawal(gpr=held, now=NOW)

    assert preview.others == ()


@pytest.mark.parametrize("priority", [1, 101, 300])
def test_a_priority_changes_the_place_and_only_what_the_plan_then_gives(stage: Stage, priority: int) -> None:
    last = stage.waiting[-1]
    before = stage.starts()

    preview = preview_priority(gpr=last, priority=priority, now=NOW)
    gpr_set_priority(gpr=last, priority=priority, actor=stage.admin, why="", now=NOW)
    stage.tick()

    last.refresh_from_db()
    assert (preview.old_position, preview.new_position) == (4, start_positions([last])[last.pk])
    check(stage, before, preview)


def test_a_raised_priority_is_first_to_take_what_came_free_since_the_last_plan(stage: Stage) -> None:
    """Two could use the same free nodes: the preview says who gets them."""
    runs, (_, first, _, last) = stage.runs, stage.waiting
    Reservation.objects.filter(gpr=runs).update(ends_at=NOW + timedelta(hours=1))
    before = stage.starts()

    preview = preview_priority(gpr=last, priority=300, now=NOW)
    gpr_set_priority(gpr=last, priority=300, actor=stage.admin, why="", now=NOW)
    stage.tick()

    assert preview.own.later_s < 0
    assert first.pk in before
    check(stage, before, preview)


def test_an_approval_adds_one_and_delays_nobody(stage: Stage) -> None:
    held = stage.file("large", of=stage.slice("strict", nodes_approval=1), nodes=2)
    before = stage.starts()

    preview = preview_approval(gpr=held, now=NOW)
    gpr_approve(gpr=held, actor=stage.admin, now=NOW)
    stage.tick()

    assert not preview.later
    held.refresh_from_db()
    assert (preview.old_position, preview.new_position) == (None, start_positions([held])[held.pk])
    check(stage, before, preview)


def test_a_priority_that_leaves_nothing_to_approve_lets_it_join(stage: Stage) -> None:
    held = stage.file("urgent", of=stage.slice("strict", priority_approval=150), priority=200)
    before = stage.starts()

    preview = preview_priority(gpr=held, priority=140, now=NOW)
    gpr_set_priority(gpr=held, priority=140, actor=stage.admin, why="", now=NOW)
    stage.tick()

    held.refresh_from_db()
    assert preview.new_position == start_positions([held])[held.pk]
    check(stage, before, preview)


def test_whom_an_approval_would_evict_is_told_before(stage: Stage) -> None:
    runs = stage.runs
    Gpr.objects.filter(pk=runs.pk).update(priority=50)
    held = stage.file("urgent", nodes=4, priority=150, may_evict=True)
    assert held.state == GprState.PENDING_APPROVAL

    with override_settings(EGS_EVICTION_LEAST_RUN_S=0):
        preview = preview_approval(gpr=held, now=NOW)
        told = Effects.of("", preview).evicted
        gpr_approve(gpr=held, actor=stage.admin, now=NOW)
        stage.tick()

    assert preview.evicted == (runs,)
    assert told == f"It would evict, after notice: {runs.name} of {runs.slice.name}."
    assert [row.gpr for row in EvictionVictim.objects.all()] == [runs]


def test_what_could_never_start_is_told_before_it_is_approved(stage: Stage) -> None:
    held = stage.file("large", of=stage.slice("strict", nodes_approval=1), nodes=2)
    stage.cluster.nodes.update(gone_at=NOW)

    assert preview_approval(gpr=held, now=NOW).own.new_start_at is None


PREVIEWS: dict[str, Callable[[Gpr, Gpr, Gpr], DecisionPreview]] = {
    "priority": lambda runs, waits, held: preview_priority(gpr=waits, priority=300, now=NOW),
    "withdrawal": lambda runs, waits, held: preview_withdrawal(gpr=waits, now=NOW),
    "eviction": lambda runs, waits, held: preview_eviction(gpr=runs, now=NOW),
    "approval": lambda runs, waits, held: preview_approval(gpr=held, now=NOW),
}


@pytest.mark.parametrize("name", PREVIEWS)
def test_a_preview_writes_nothing(stage: Stage, name: str) -> None:
    runs, waits = stage.runs, stage.waiting[0]
    held = stage.file("large", of=stage.slice("strict", nodes_approval=1), nodes=2)
    promises = list(Promise.objects.order_by("pk").values())
    runs.refresh_from_db()
    waits.refresh_from_db()

    with CaptureQueriesContext(connection) as queries:
        PREVIEWS[name](runs, waits, held)

    # PostgreSQL gives no text of statements that are sent together.
    assert {query["sql"].split(maxsplit=1)[0] for query in queries.captured_queries if query["sql"]} <= {"SELECT"}
    assert list(Promise.objects.order_by("pk").values()) == promises
    assert [ask.priority for ask in snapshot_load(now=NOW).requests.values()] == [101] * 4
