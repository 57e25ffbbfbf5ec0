"""What is stored of one cluster, of its agent, or by EGS for itself makes no sense: all others are planned and start."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from django.db import connection
from django.db.models import Model
from django.test import override_settings

from gpr.allocator import tick
from gpr.models import AllocatorRecord, Gpr, GprState, Promise, Witness
from gpr.services.ending import gpr_extend, gpr_release
from inventory.models import AgentSession, Cluster, Node, Reservation, Supply, SupplyKind, SupplyOrder
from inventory.services.reservations import reservation_force_release
from inventory.services.supplies import supply_create
from inventory.services.sync import desired_set
from journal.models import Event, Severity
from slices.models import Slice
from tests.builders import SHAPE, make_cluster, make_slice, node_view, nodes_of
from tests.inventory.agent import Agent, seen
from tests.lifecycle.stage import ENTRY, EXIT, Stage, fresh
from worker_agent.protocol import Phase

pytestmark = pytest.mark.django_db

S = GprState
# No calendar has it: PostgreSQL stores one such time, SQLite any text.
NO_TIME = {"postgresql": "infinity", "sqlite": "9999-99-99 00:00:00"}
BEFORE_ALL = {"postgresql": "-infinity", "sqlite": "0000-00-00 00:00:00"}


def spoil(model: type[Model], column: str, at: Mapping[str, str] = NO_TIME, /, **which: object) -> None:
    """Of rows that are there, a time that is none."""
    key = model._meta.pk
    assert key is not None
    ids = list(model._default_manager.filter(**which).values_list("pk", flat=True))
    assert ids
    with connection.cursor() as cursor:
        for id_ in ids:
            stored = key.get_db_prep_value(id_, connection)
            cursor.execute(f"UPDATE {model._meta.db_table} SET {column} = %s WHERE {key.column} = %s", [at[connection.vendor], stored])  # noqa: S608


class Two:
    """Clusters of one node each, whose agents were just heard; and a workspace that may use either."""

    def __init__(self) -> None:
        self.stage = Stage(nodes=1)
        self.other = make_cluster("other", nodes=1, is_heard=False)
        self.its_agent = Agent.joined(self.other, at=self.stage.now)
        self.its_agent.sync(at=self.stage.now)
        self.stage.agent.sync(at=self.stage.now)
        self.both = self.slice(self.stage.cluster, self.other)

    def slice(self, *clusters: Cluster) -> Slice:
        return make_slice(*clusters, owner=self.stage.owner)

    def tick(self) -> None:
        self.stage.after(1)
        assert tick(now=self.stage.now) is not None


CLOSING = {
    "rewound": (Cluster, "rewound_at", "pk"),
    "heard": (AgentSession, "last_sync_at", "cluster"),
    "locked": (AgentSession, "locked_at", "cluster"),
}


@pytest.mark.parametrize(("model", "column", "key"), CLOSING.values(), ids=CLOSING)
def test_a_cluster_whose_row_cannot_be_read_starts_nothing_and_the_others_do_and_administrators_are_told_once(
    model: type[Model], column: str, key: str
) -> None:
    two = Two()
    spoil(model, column, **{key: two.stage.cluster.pk})

    anywhere, only_there = two.stage.submit(two.both), two.stage.submit(two.slice(two.stage.cluster))
    two.tick()
    two.tick()

    assert (fresh(anywhere).state, Gpr.objects.values_list("cluster", flat=True).get(pk=anywhere.pk)) == (S.PROVISIONING, two.other.pk)
    assert fresh(only_there).state == S.QUEUED
    assert Promise.objects.filter(gpr=only_there).exists()
    (told,) = Event.objects.filter(kind="cluster.spoiled")
    assert (told.cluster_id, told.severity, told.slice_id) == (two.stage.cluster.pk, Severity.ERROR, None)


HARMLESS = {
    "born": (Cluster, "created_at", "pk"),
    "failed": (Cluster, "node_failed_at", "pk"),
    "joined": (AgentSession, "joined_at", "cluster"),
}


@pytest.mark.parametrize(("model", "column", "key"), HARMLESS.values(), ids=HARMLESS)
def test_a_time_that_decides_nothing_about_starts_hinders_none_where_it_cannot_be_read(model: type[Model], column: str, key: str) -> None:
    two = Two()
    spoil(model, column, **{key: two.stage.cluster.pk})

    gpr = two.stage.submit(two.slice(two.stage.cluster))
    two.tick()

    assert fresh(gpr).state == S.PROVISIONING


def test_a_supply_of_a_cluster_that_cannot_be_read_orders_nothing_and_stops_nobody() -> None:
    two = Two()
    terms = {"shape": SHAPE, "gpus_per_node": 4, "gpu_memory_gib": 80, "node_count": 3, "lead_time_s": 60, "gain_s": 0}
    supply = Supply(cluster=two.stage.cluster, name="pool", kind=SupplyKind.NODE_POOL, **terms)
    supply_create(supply=supply, actor=two.stage.admin, now=two.stage.now)
    spoil(Cluster, "rewound_at", pk=two.stage.cluster.pk)
    Slice.objects.update(may_order=True)

    first, second = two.stage.submit(two.both), two.stage.submit(two.slice(two.stage.cluster, two.other))
    two.tick()

    assert {fresh(first).state, fresh(second).state} == {S.PROVISIONING, S.QUEUED}
    assert not SupplyOrder.objects.exists()


def test_a_node_of_which_it_cannot_be_read_since_when_it_is_set_aside_is_set_aside_and_the_others_are_used() -> None:
    stage = Stage(nodes=2)
    aside, open_ = nodes_of(stage.cluster)
    spoil(Node, "cordoned_at", pk=aside.pk)

    first, second = stage.submit(), stage.submit(make_slice(stage.cluster, owner=stage.owner))
    stage.tick()

    assert (fresh(first).state, fresh(second).state) == (S.PROVISIONING, S.QUEUED)
    assert [row.node_id for row in stage.held(first)] == [open_.pk]


def starts_beside(stage: Stage, closed: Node, open_: Node) -> None:
    """Of two requests the one starts on the open node at once, the other waits, and administrators are told once."""
    first, second = stage.submit(stage.slice), stage.submit(make_slice(stage.cluster, owner=stage.owner))
    reports = [stage.tick(), stage.tick()]

    assert (fresh(first).state, fresh(second).state) == (S.PROVISIONING, S.QUEUED)
    assert [row.node_id for row in stage.held(first)] == [open_.pk]
    assert [report.skipped for report in reports] == [{}, {}]
    assert closed.name not in {row.node.name for row in stage.held()}
    (told,) = Event.objects.filter(kind="cluster.spoiled")
    assert (told.reason, told.cluster_id, told.severity, told.slice_id) == ("node", stage.cluster.pk, Severity.ERROR, None)


@pytest.mark.parametrize("column", ["broken_at", "sick_gpus_at"])
def test_a_node_of_which_it_cannot_be_read_since_when_it_fails_is_set_aside_and_the_others_are_used(column: str) -> None:
    stage = Stage(nodes=2)
    closed, open_ = nodes_of(stage.cluster)
    spoil(Node, column, pk=closed.pk)

    starts_beside(stage, closed, open_)


@pytest.mark.parametrize("column", ["broken_at", "sick_gpus_at"])
def test_what_the_agent_reports_of_a_node_mends_since_when_it_fails_and_counts_for_all_others(column: str) -> None:
    stage = Stage(nodes=2)
    spoiled, other = nodes_of(stage.cluster)
    spoil(Node, column, pk=spoiled.pk)

    stage.agent.inventory(node_view(spoiled.name), node_view(other.name, broken=True), at=stage.now)

    assert list(Node.objects.order_by("name").values_list("broken_at", "sick_gpus_at")) == [(None, None), (stage.now, None)]


def test_a_node_that_went_at_no_time_comes_back() -> None:
    stage = Stage(nodes=2)
    spoiled, other = nodes_of(stage.cluster)
    spoil(Node, "gone_at", pk=spoiled.pk)

    stage.agent.inventory(node_view(spoiled.name), node_view(other.name), at=stage.now)

    assert list(Node.objects.values_list("gone_at", flat=True)) == [None, None]


@pytest.mark.parametrize("column", ["seen_at", "cordoned_at"])
def test_a_time_of_a_node_that_no_report_tells_keeps_none_from_being_stored(column: str) -> None:
    stage = Stage(nodes=2)
    spoiled, other = nodes_of(stage.cluster)
    spoil(Node, column, pk=spoiled.pk)

    stage.agent.inventory(node_view(spoiled.name, ready=False), node_view(other.name, ready=False), at=stage.now)

    assert list(Node.objects.values_list("is_ready", flat=True)) == [False, False]


def test_a_node_of_which_it_cannot_be_read_whether_it_is_held_is_set_aside_and_the_others_are_used() -> None:
    """No word of it says that its GPUs are free."""
    stage = Stage(nodes=2)
    runs = stage.active(slice_=make_slice(stage.cluster, owner=stage.owner))
    (held,) = stage.held(runs)
    (open_,) = (node for node in nodes_of(stage.cluster) if node.pk != held.node_id)
    Reservation.objects.filter(pk=held.pk).update(state="LOST")

    starts_beside(stage, held.node, open_)


def test_a_node_with_more_gpus_than_any_has_is_not_there_and_the_others_are_used() -> None:
    stage = Stage(nodes=2)
    Node.objects.filter(pk=nodes_of(stage.cluster)[0].pk).update(gpu_count=2**31 - 1)

    slices = stage.slice, make_slice(stage.cluster, owner=stage.owner)
    first, second = (stage.submit(slice_, gpus_per_node=4) for slice_ in slices)
    stage.tick()

    assert (fresh(first).state, fresh(second).state) == (S.PROVISIONING, S.QUEUED)


def test_when_a_node_was_last_seen_decides_nothing_and_boxes_run_on_it() -> None:
    stage = Stage(nodes=1)
    spoil(Node, "seen_at")

    assert stage.active().state == S.ACTIVE


def test_a_node_with_more_gpus_than_any_has_makes_no_request_need_approval() -> None:
    stage = Stage(nodes=2)
    Node.objects.filter(pk=nodes_of(stage.cluster)[0].pk).update(gpu_count=2**31 - 1)

    assert stage.submit().state == S.QUEUED


@pytest.mark.parametrize("took_s", [1e308, -1e308, float("inf"), 1e9, -1.0])
def test_a_tick_that_took_as_long_as_none_can_took_no_time(took_s: float) -> None:
    stage = Stage(nodes=1)
    stage.tick()
    AllocatorRecord.objects.update(last_duration_s=took_s)

    stage.after(1)
    gpr = stage.submit()
    stage.tick()

    assert fresh(gpr).state == S.PROVISIONING
    assert AllocatorRecord.objects.get().last_duration_s < 60


def test_a_rest_until_the_first_of_all_days_is_over() -> None:
    stage = Stage(nodes=1)
    stage.tick()
    AllocatorRecord.objects.update(rests_until_at=datetime(1, 1, 1, tzinfo=UTC))

    report = tick(now=stage.now, may_rest=True)

    assert report is not None
    assert not report.rested


@pytest.mark.parametrize("column", ["last_tick_at", "away_at", "back_at", "rests_until_at"])
def test_what_ticks_keep_for_themselves_is_written_anew_where_it_cannot_be_read(column: str) -> None:
    stage = Stage(nodes=1)
    stage.tick()
    spoil(AllocatorRecord, column)

    gpr = stage.submit()
    stage.agent.sync(at=stage.now)
    tick(now=stage.now)

    assert fresh(gpr).state == S.PROVISIONING
    assert AllocatorRecord.objects.get().last_tick_at == stage.now


def test_what_is_remembered_of_the_past_may_be_unreadable() -> None:
    stage = Stage(nodes=1)
    stage.active(duration_s=600)
    spoil(Witness, "summed_at")

    waits = stage.submit(make_slice(stage.cluster, owner=stage.owner))
    stage.tick()

    assert Promise.objects.filter(gpr=waits).exists()


HUGE = 2**62


@pytest.mark.parametrize("asked", [{"nodes": HUGE}, {"gpus_per_node": HUGE}], ids=lambda asked: next(iter(asked)))
def test_a_request_for_more_than_there_could_be_is_left_out_and_the_others_start(asked: dict[str, int]) -> None:
    if connection.vendor == "postgresql":
        asked = {name: min(value, 2**31 - 1) for name, value in asked.items()}
    stage = Stage(nodes=1)
    running = stage.active(duration_s=600)
    spoiled, waits = (stage.submit(make_slice(stage.cluster, owner=stage.owner), duration_s=600) for _ in range(2))
    Gpr.objects.filter(pk=spoiled.pk).update(**asked)

    stage.tick()
    stage.submit(make_slice(stage.cluster, owner=stage.owner), duration_s=600)
    Gpr.objects.filter(pk=running.pk).update(**asked)
    stage.tick()

    assert (fresh(spoiled).state, fresh(waits).state) == (S.QUEUED, S.QUEUED)
    told = Event.objects.filter(kind="gpr.spoiled").values_list("gpr_id", flat=True)
    assert list(told) == [spoiled.pk]


@pytest.mark.parametrize("column", ["broken_at", "sick_gpus_at", "cordoned_at", "seen_at"])
def test_a_box_on_a_node_that_cannot_be_read_is_told_to_its_agent_and_ends(column: str) -> None:
    """Nothing but its end frees the node; no time of it but that at which it went says anything of the box."""
    stage = Stage(nodes=1)
    runs = stage.active()
    spoil(Node, column, pk=stage.held(runs)[0].node_id)

    gpr_extend(gpr=fresh(runs), extra_s=60, actor=stage.owner, now=stage.now)
    gpr_release(gpr=fresh(runs), actor=stage.owner, now=stage.now)
    assert [told.desired for told in desired_set(cluster_id=stage.cluster.pk)] == ["ABSENT"]
    stage.say(runs, *EXIT)
    stage.tick()

    assert fresh(runs).state == S.RELEASED


@pytest.mark.parametrize("column", ["broken_at", "sick_gpus_at", "cordoned_at", "seen_at", "gone_at"])
def test_an_administrator_frees_a_node_that_cannot_be_read_by_force(column: str) -> None:
    stage = Stage(nodes=1)
    (held,) = stage.held(stage.active())
    spoil(Node, column, pk=held.node_id)

    reservation_force_release(reservation=held, actor=stage.admin, why="Its hardware is gone.", now=stage.now)

    assert stage.held() == []


@pytest.mark.parametrize("column", ["broken_at", "sick_gpus_at"])
def test_a_spare_enters_a_box_of_which_another_node_cannot_be_read(column: str) -> None:
    stage = Stage(nodes=3)
    runs = stage.active(nodes=2)
    sick, other = (row.node for row in stage.held(runs))
    with override_settings(EGS_SPARE_GRACE_S=0):
        stage.agent.inventory(*(node_view(node.name, broken=node == sick) for node in nodes_of(stage.cluster)), at=stage.now)
        spoil(Node, column, pk=other.pk)
        stage.tick()

    assert Reservation.objects.get(gpr=runs, replaces__node=sick).node_id not in {sick.pk, other.pk}


@pytest.mark.parametrize("column", ["broken_at", "sick_gpus_at", "cordoned_at", "seen_at"])
def test_a_spare_takes_the_place_of_a_node_that_cannot_be_read_any_more(column: str) -> None:
    stage = Stage(nodes=2)
    runs = stage.active()
    (sick,) = (row.node for row in stage.held(runs))
    with override_settings(EGS_SPARE_GRACE_S=0):
        stage.agent.inventory(*(node_view(node.name, broken=node == sick) for node in nodes_of(stage.cluster)), at=stage.now)
        stage.tick()
    spare = Reservation.objects.get(gpr=runs, replaces__node=sick)
    stage.after(30)
    for phase in ENTRY:
        opened = {"active_s": fresh(runs).active_at.timestamp()} if phase == Phase.ACTIVE else {}  # type: ignore[union-attr]
        stage.agent.sync(seen(spare, phase, **opened), at=stage.now)
    spoil(Node, column, pk=sick.pk)

    stage.tick()

    assert Reservation.objects.get(pk=spare.pk).joined_at == stage.now
    assert Node.objects.get(pk=spare.node_id).cordoned_at is None
