"""The memory of a process says what the database says. tests/lifecycle/machine.py compares them after all that people and agents do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.db.models import QuerySet

from core.clock import db_now
from gpr.allocation import change_log, live
from gpr.allocation.allocator import tick
from gpr.allocation.live import LiveSnapshot, differences, live_check, snapshot_load
from gpr.allocation.rows import GprRow, HeldRow, plan_summaries
from gpr.allocation.stored_plan import plan_of, summary_of
from gpr.models import Gpr, PlanChange, PlanRecord, ProjectUsage
from gpr.quotas.fairness import UsageRow
from gpr.requests.editing import gpr_cancel
from gpr.requests.services import gpr_submit
from gpr.triggers import WATCHED
from inventory.models import MaintenanceWindow, Node, Supply
from inventory.rows import WindowRow
from journal.models import Event
from slices.models import Quota, Slice
from tests.builders import NOW, SHAPE, make_cluster, make_slice, make_user, spec
from tests.factories import supply

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]

HOUR = timedelta(hours=1)


def fresh_and_known() -> list[str]:
    return differences(snapshot_load(now=NOW, with_memory=True), LiveSnapshot().load(now=NOW, with_memory=True))


def test_what_is_rolled_back_is_forgotten() -> None:
    cluster, user = make_cluster(nodes=2), make_user(is_admin=True)
    kept = gpr_submit(actor=user, spec=spec(make_slice(cluster), name="kept"), now=NOW)
    assert [request.id for request in snapshot_load(now=NOW).snapshot.queue] == [str(kept.pk)]

    with transaction.atomic():
        gpr_submit(actor=user, spec=spec(make_slice(cluster), name="lost"), now=NOW)
        gpr_cancel(gpr=kept, actor=user, now=NOW)
        Node.objects.update(is_ready=False)
        assert len(snapshot_load(now=NOW).snapshot.queue) == 1
        transaction.set_rollback(True)

    assert fresh_and_known() == []
    assert [request.id for request in snapshot_load(now=NOW).snapshot.queue] == [str(kept.pk)]


def test_a_tick_explains_what_may_have_changed_and_all_when_another_process_explained_some() -> None:
    cluster, user = make_cluster(nodes=2), make_user(is_admin=True)
    gprs = [gpr_submit(actor=user, spec=spec(make_slice(cluster), nodes=2), now=NOW) for _ in range(3)]
    for _ in range(2):  # the first starts the first one, which explains the others otherwise
        tick(now=NOW)
    waiting = plan_summaries()
    assert len(waiting) == len(gprs) - 1

    Gpr.objects.filter(pk__in=waiting).update(explanation={})
    tick(now=NOW)
    assert [summary.explanation for summary in plan_summaries().values()] == [{}, {}]  # it knows that they would be the same

    PlanRecord.objects.update(explained=uuid4())
    tick(now=NOW)
    assert plan_summaries() == waiting

    gpr_cancel(gpr=Gpr.objects.get(pk=next(iter(waiting))), actor=user, now=NOW)
    tick(now=NOW)
    made = plan_of(snapshot_load(now=NOW), explained=None)
    assert plan_summaries() == {each.id: summary_of(each) for each in made.placements}


def test_a_setting_that_another_process_changes_holds_for_the_next_plan() -> None:
    cluster = make_cluster(nodes=2)
    slice_ = make_slice(cluster)
    snapshot_load(now=NOW)

    changes: list[Callable[[], object]] = [
        lambda: Quota.objects.create(slice=slice_, shape=SHAPE, guaranteed_gpus=1, created_at=NOW),
        lambda: Quota.objects.update(most_gpus=2),
        lambda: make_slice(cluster),  # in a project of its own
        lambda: ProjectUsage.objects.create(project=slice_.project, gpu_s=1e6, summed_at=NOW),
        lambda: ProjectUsage.objects.update(gpu_s=2e6),
        lambda: MaintenanceWindow.objects.create(
            cluster=cluster, starts_at=NOW + HOUR, ends_at=NOW + 2 * HOUR, reason="disks", created_at=NOW
        ),
        lambda: MaintenanceWindow.objects.update(canceled_at=NOW),
        lambda: supply(cluster),
        lambda: Quota.objects.all().delete(),
        lambda: Supply.objects.all().delete(),
    ]
    for change in changes:
        before = LiveSnapshot().load(now=NOW, with_memory=True)
        change()
        assert differences(before, LiveSnapshot().load(now=NOW, with_memory=True)), "the change matters"
        assert fresh_and_known() == []


def test_maintenance_that_is_on_closes_nodes_also_when_a_clock_was_far_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = make_cluster(nodes=2)
    MaintenanceWindow.objects.create(cluster=cluster, starts_at=NOW, ends_at=NOW + 6 * HOUR, reason="disks", created_at=NOW)
    with monkeypatch.context() as ahead:
        ahead.setattr("gpr.allocation.live_rows.db_now", lambda: NOW + 48 * HOUR)
        make_slice(cluster)
        snapshot_load(now=NOW + 48 * HOUR)

    (pool,) = snapshot_load(now=NOW).snapshot.pools

    assert all(node.closed for node in pool.nodes)


def test_a_read_that_fails_is_made_good_even_when_an_older_one_is_confirmed_later() -> None:
    known = change_log.ChangeLog()
    read: list[change_log.Changes] = []

    def fail(_: change_log.Changes) -> None:
        raise ConnectionError

    known.catch_up(read.append)
    with transaction.atomic():
        known.catch_up(read.append)
        with pytest.raises(ConnectionError):
            known.catch_up(fail)

    known.catch_up(read.append)

    assert read[-1].everything


@pytest.mark.postgres_only  # SQLite has one writer at a time
def test_a_request_that_commits_late_is_read_although_a_later_one_was_read_before() -> None:
    """Two writers at once: the ids of their changes say nothing of the order in which they commit."""
    cluster = make_cluster(nodes=1)
    slice_ = make_slice(cluster)
    wrote, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        with transaction.atomic():
            Node.objects.update(is_ready=False)
            wrote.set()
            go_on.wait(20)
        connection.close()

    thread = threading.Thread(target=slow)
    thread.start()
    wrote.wait(20)
    Slice.objects.filter(pk=slice_.pk).update(burst_gain_s=9)
    assert fresh_and_known() == []
    go_on.set()
    thread.join()

    assert snapshot_load(now=NOW).snapshot.pools[0].nodes[0].closed
    assert fresh_and_known() == []


def test_a_process_that_missed_too_much_reads_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_log, "KEPT_COUNT", 2)
    cluster, user = make_cluster(nodes=2), make_user(is_admin=True)
    idle = LiveSnapshot()
    idle.load(now=NOW)
    tick(now=NOW)
    for name in ("a", "b", "c"):
        gpr_submit(actor=user, spec=spec(make_slice(cluster), name=name), now=NOW)

    change_log.changes_prune()

    assert PlanChange.objects.count() == 2
    assert len(idle.load(now=NOW).snapshot.queue) == 3


@pytest.mark.postgres_only  # SQLite has one writer at a time
def test_a_change_that_commits_while_old_ones_are_deleted_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_log, "KEPT_COUNT", 1)
    PlanChange.objects.bulk_create(PlanChange(pk=pk, kind="gpr", key=uuid4(), transaction_id=pk) for pk in (1_000_001, 1_000_003))
    real_update = QuerySet.update

    def commit_late(rows: QuerySet[Any], **values: Any) -> int:
        PlanChange.objects.bulk_create([PlanChange(pk=1_000_000, kind="gpr", key=uuid4(), transaction_id=1_000_002)])
        return real_update(rows, **values)

    monkeypatch.setattr(QuerySet, "update", commit_late)

    change_log.changes_prune()

    assert set(PlanChange.objects.values_list("pk", flat=True)) == {1_000_000, 1_000_003}


def test_a_memory_that_is_wrong_is_found_reported_and_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "CHECK_EVERY_S", -1.0)
    cluster, user = make_cluster(nodes=1), make_user(is_admin=True)
    gpr = gpr_submit(actor=user, spec=spec(make_slice(cluster)), now=NOW)
    snapshot_load(now=NOW)
    live_check(now=db_now())
    assert not Event.objects.filter(kind=live.MEMORY).exists()

    live._Process.live._rows.requests[str(gpr.pk)] = GprRow.of(Gpr(pk=gpr.pk, slice=gpr.slice, nodes=9))
    live_check(now=db_now())

    assert "queue" not in fresh_and_known()
    assert "rows" in Event.objects.get(kind=live.MEMORY).message


def test_the_database_records_changes_of_every_column_that_is_read() -> None:
    before = import_module("gpr.migrations.0033_plan_changes").WATCHED
    on_postgresql = {table: set(columns.split()) for table, (_, _, columns) in before.items()}
    on_postgresql["gpr_gpr"] |= {"after_id", "after_condition"}
    assert on_postgresql == {table: set(WATCHED[table][2]) for table in on_postgresql}
    held = {"ends_at" if name == "end_s" else name for name in HeldRow._fields if "__" not in name} - {"pk", "gpr_id", "started_s"}
    assert held | {"state"} == set(WATCHED["inventory_reservation"][2])
    assert set(WindowRow._fields) - {"pk"} | {"canceled_at"} == set(WATCHED["inventory_maintenancewindow"][2])
    assert set(UsageRow._fields) - {"project_id"} == set(WATCHED["gpr_projectusage"][2])
