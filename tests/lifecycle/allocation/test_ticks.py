"""A tick is right when it runs twice, and when none ran for an hour."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.test.utils import CaptureQueriesContext

from core.errors import StaleState
from gpr.allocation import allocator
from gpr.allocation import starts as starting
from gpr.allocation.allocator import tick
from gpr.models import EndReason, Gpr, GprState, Promise, PromiseMove
from gpr.requests.editing import gpr_cancel
from gpr.requests.ending import gpr_extend
from gpr.requests.services import gpr_submit
from inventory.models import Cluster, Node, Reservation
from inventory.services.clusters import cluster_resume, cluster_set_enabled
from inventory.services.nodes import node_cordon
from journal.models import Event
from planner.snapshot import Slot
from protocol.assignments import Observed, Phase
from tests.builders import HOUR, NOW, make_cluster, make_slice, make_user, spec
from tests.inventory.agent import Agent, seen
from tests.lifecycle.stage import ENTRY, EXIT, Stage, fresh, moves_of

pytestmark = pytest.mark.django_db

S = GprState


def starts() -> dict[str, object]:
    waiting = Promise.objects.filter(gpr__state=S.QUEUED).order_by("slot_start_at")
    return dict(waiting.values_list("gpr__name", "slot_start_at"))


@pytest.mark.both_databases
def test_a_start_between_two_seconds_delays_nobody() -> None:
    """The planner counts whole seconds. The books of a box that starts in the middle of one must not run into the next one's slot."""
    cluster, ann = make_cluster(nodes=1), make_user(is_admin=True)
    at = NOW + timedelta(seconds=0.4)
    for index, duration_s in enumerate([600, 600, 600, 100]):
        gpr_submit(actor=ann, spec=spec(make_slice(cluster), name=f"g{index}", duration_s=duration_s), now=at)

    tick(now=at + timedelta(seconds=1))
    after_start = starts()
    tick(now=at + timedelta(seconds=2))

    assert list(after_start) == ["g1", "g2", "g3"]
    assert starts() == after_start
    assert not PromiseMove.objects.exists()


def test_a_second_tick_at_the_same_moment_does_nothing() -> None:
    stage = Stage()
    gprs = [stage.submit(make_slice(stage.cluster, owner=stage.owner), name=f"g{number}") for number in range(3)]
    first = stage.tick()
    before = [fresh(gpr).version for gpr in gprs], starts(), Event.objects.count()

    second = stage.tick()

    assert (len(first.started), second.started, second.moved_count) == (2, [], 0)
    assert ([fresh(gpr).version for gpr in gprs], starts(), Event.objects.count()) == before


@pytest.mark.both_databases
def test_a_box_that_came_and_went_while_nobody_ticked_has_had_its_time() -> None:
    """The agent opened and closed it by its own clock; the slice is not given its time twice."""
    stage = Stage()
    gpr = stage.submit()
    stage.tick()
    stage.after(5)
    stage.say(gpr, *ENTRY)
    opened_at = stage.now
    stage.after(gpr.duration_s)
    stage.say(gpr, *EXIT)

    stage.after(1800)
    stage.tick()

    assert moves_of(gpr) == [
        (S.QUEUED, S.PROVISIONING, ""),
        (S.PROVISIONING, S.ACTIVE, ""),
        (S.ACTIVE, S.EXITING, EndReason.EXPIRED),
        (S.EXITING, S.COMPLETED, EndReason.EXPIRED),
    ]
    done = fresh(gpr)
    assert (done.active_at, done.ends_at, done.remaining_s) == (opened_at, opened_at + HOUR, 0)


def test_a_box_that_failed_while_nobody_ticked_waits_for_the_rest_only() -> None:
    stage = Stage()
    gpr = stage.submit()
    stage.tick()
    stage.say(gpr, *ENTRY)
    stage.after(600)
    stage.say(gpr, Phase.EXITING)

    stage.tick()

    assert (fresh(gpr).state, fresh(gpr).end_reason, fresh(gpr).remaining_s) == (S.EXITING, EndReason.NODE_FAILURE, 3000)


def test_what_is_due_for_several_moves_makes_them_in_one_tick() -> None:
    stage = Stage()
    gpr = stage.active()
    stage.after(gpr.duration_s + 1)
    stage.say(gpr, *EXIT)

    report = stage.tick()

    assert fresh(gpr).state == S.COMPLETED
    assert report.moved_count == 2


def test_the_clock_of_a_box_runs_from_the_last_of_its_nodes() -> None:
    stage = Stage()
    gpr = stage.submit(nodes=2)
    stage.tick()
    stage.say(gpr, Phase.ENTERED)
    first, second = stage.held(gpr)
    stage.agent.sync(_active(first, stage), at=stage.now)
    stage.tick()
    assert fresh(gpr).state == S.PROVISIONING

    stage.after(3)
    stage.agent.sync(_active(second, stage), at=stage.now)
    stage.tick()

    opened = fresh(gpr)
    assert (opened.state, opened.active_at, opened.ends_at) == (S.ACTIVE, stage.now, stage.now + HOUR)
    assert {row.not_after_at for row in stage.held(gpr)} == {stage.now + HOUR}


def _active(row: Reservation, stage: Stage) -> Observed:
    return seen(row, Phase.ACTIVE, active_s=stage.now.timestamp())


@pytest.mark.parametrize("silence_s", [settings.EGS_AGENT_STALE_S + 1, settings.EGS_AGENT_UNREACHABLE_S + 1])
def test_nothing_starts_where_the_agent_has_not_been_heard_lately(silence_s: int) -> None:
    stage = Stage()
    gpr = stage.submit()
    stage.after(silence_s)

    tick(now=stage.now)
    assert fresh(gpr).state == S.QUEUED

    stage.tick()
    assert fresh(gpr).state == S.PROVISIONING


def test_a_short_silence_of_the_agent_moves_no_promise() -> None:
    stage = Stage()
    gpr = stage.submit()
    stage.after(settings.EGS_AGENT_STALE_S + 1)

    tick(now=stage.now)
    stage.tick()

    assert fresh(gpr).state == S.PROVISIONING
    assert not PromiseMove.objects.exists()


def test_nothing_starts_in_a_cluster_that_was_rewound_until_it_is_resumed() -> None:
    stage = Stage()
    stage.agent.sync(known_hub_id=stage.agent.sync().hub_id, known_generation=9)
    gpr = stage.submit()

    stage.tick()
    assert fresh(gpr).state == S.QUEUED

    cluster_resume(cluster=stage.cluster, actor=stage.admin, now=stage.now)
    stage.tick()
    assert fresh(gpr).state == S.PROVISIONING


def test_what_runs_in_a_rewound_cluster_runs_to_its_end() -> None:
    stage = Stage()
    gpr = stage.active()
    stage.agent.sync(known_hub_id=stage.agent.sync().hub_id, known_generation=99)

    stage.after(gpr.duration_s)
    stage.tick()
    stage.say(gpr, *EXIT)
    stage.tick()

    assert fresh(gpr).state == S.COMPLETED


def test_nothing_starts_in_a_disabled_cluster() -> None:
    stage = Stage()
    gpr = stage.submit()
    cluster_set_enabled(cluster=stage.cluster, is_enabled=False, actor=stage.admin, now=stage.now)

    stage.tick()
    assert fresh(gpr).state == S.QUEUED

    cluster_set_enabled(cluster=Cluster.objects.get(), is_enabled=True, actor=stage.admin, now=stage.now)
    stage.tick()
    assert fresh(gpr).state == S.PROVISIONING


@pytest.mark.both_databases
def test_a_start_that_meets_a_conflict_is_skipped_and_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node is set aside between the plan and the start."""
    stage = Stage(nodes=1)
    gpr = stage.submit()
    start = starting.gprs_start

    def start_too_late(*arguments: Any, **named: Any) -> None:
        node_cordon(node=stage.cluster.nodes.get(), actor=None, why="a smell", now=stage.now)
        start(*arguments, **named)

    monkeypatch.setattr(allocator, "gprs_start", start_too_late)

    report = stage.tick()

    assert list(report.skipped) == [gpr.pk]
    assert (fresh(gpr).state, fresh(gpr).run) == (S.QUEUED, 0)
    assert moves_of(gpr) == []
    assert not Reservation.objects.exists()


@pytest.mark.both_databases
@pytest.mark.parametrize(("trouble", "stays"), [("it is canceled", S.CANCELED), ("its node is set aside", S.QUEUED)])
def test_of_many_that_start_one_that_meets_a_conflict_is_skipped_alone(
    trouble: str, stays: GprState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The conflict arises between the plan and the start.

    One over a node is noticed when they have been moved, and all of that is undone.
    """
    stage = Stage(nodes=3)
    gprs = [stage.submit(make_slice(stage.cluster, owner=stage.owner), name=f"job-{number}") for number in range(3)]
    start, asked = starting.gprs_start, list[int]()

    def start_too_late(slots: Mapping[Gpr, Slot], **named: Any) -> None:
        if not asked and stays == S.CANCELED:
            gpr_cancel(gpr=fresh(gprs[1]), actor=stage.owner, now=stage.now)
        elif not asked:
            node_cordon(node=Node.objects.get(pk=slots[gprs[1]].nodes[0]), actor=None, why="a smell", now=stage.now)
        asked.append(len(slots))
        start(slots, **named)

    monkeypatch.setattr(allocator, "gprs_start", start_too_late)

    report = stage.tick()

    assert set(report.started) == {gprs[0].pk, gprs[2].pk}
    assert set(report.skipped) == {gprs[1].pk}
    assert [fresh(gpr).state for gpr in gprs] == [S.PROVISIONING, stays, S.PROVISIONING]
    assert [len(stage.held(gpr)) for gpr in gprs] == [1, 0, 1]
    assert [fresh(gpr).run for gpr in gprs] == [1, 0, 1]
    assert asked == [3, 1, 1, 1]


@pytest.mark.both_databases
def test_that_many_start_costs_little_more_than_that_few_do() -> None:
    stage = Stage(nodes=16)

    def query_count(count: int) -> int:
        for number in range(count):
            stage.submit(make_slice(stage.cluster, owner=stage.owner), name=f"job-{number}")
        with CaptureQueriesContext(connection) as made:
            report = stage.tick()
        assert len(report.started) == count
        return len(made)

    few_count = query_count(4)
    assert query_count(12) <= few_count + 2


@pytest.mark.both_databases
def test_boxes_that_share_a_node_start_together_each_with_gpus_of_its_own() -> None:
    stage = Stage(nodes=1, gpus=8)
    gprs = [stage.submit(make_slice(stage.cluster, owner=stage.owner), name=f"job-{n}", gpus_per_node=2) for n in range(3)]

    report = stage.tick()

    assert set(report.started) == {gpr.pk for gpr in gprs}
    rows = Reservation.objects.order_by("epoch")
    assert [row.epoch for row in rows] == [1, 2, 3]
    assert len({reserved.gpu_id for row in rows for reserved in row.gpus.all()}) == 6


@pytest.mark.both_databases
def test_that_many_nodes_open_costs_little_more_than_that_few_do() -> None:
    """This counts the agent's report of them and the tick after it."""
    stage = Stage(nodes=16)

    def query_count(count: int) -> int:
        gprs = [stage.submit(make_slice(stage.cluster, owner=stage.owner), name=f"job-{n}", duration_s=600 + n) for n in range(count)]
        stage.tick()
        rows = [row for gpr in gprs for row in stage.held(gpr)]
        with CaptureQueriesContext(connection) as made:
            stage.agent.sync(*(seen(row, Phase.ACTIVE, active_s=stage.now.timestamp()) for row in rows), at=stage.now)
            stage.tick()
        assert {fresh(gpr).ends_at for gpr in gprs} == {stage.now + timedelta(seconds=600 + n) for n in range(count)}
        return len(made)

    few_count = query_count(4)
    assert query_count(12) <= few_count + 2


@pytest.mark.both_databases
def test_that_many_boxes_pass_a_mark_and_end_costs_little_more_than_that_few_do() -> None:
    """This counts the agent's last report of them, too."""
    stage = Stage(nodes=16)

    def query_count(count: int) -> int:
        gprs = [stage.submit(make_slice(stage.cluster, owner=stage.owner), name=f"job-{n}", duration_s=600) for n in range(count)]
        stage.tick()
        rows = [row for gpr in gprs for row in stage.held(gpr)]
        stage.agent.sync(*(seen(row, Phase.ACTIVE, active_s=stage.now.timestamp()) for row in rows), at=stage.now)
        stage.tick()
        with CaptureQueriesContext(connection) as made:
            stage.after(300)
            stage.tick()
            stage.after(300)
            stage.tick()
            stage.agent.sync(*(seen(row, Phase.RELEASED) for row in rows), at=stage.now)
            stage.tick()
        done = [fresh(gpr) for gpr in gprs]
        assert [(gpr.state, gpr.marks_passed, gpr.remaining_s) for gpr in done] == [(S.COMPLETED, 2, 0)] * count
        return len(made)

    few_count = query_count(4)
    assert query_count(12) <= few_count + 2


def test_marks_are_told_once_and_after_a_pause_only_the_latest() -> None:
    stage = Stage()
    gpr = stage.active()
    told = Event.objects.filter(kind="gpr.mark", gpr_id=gpr.pk).order_by("id")

    for _ in range(3):
        stage.after(gpr.duration_s * 0.09)
        stage.tick()
    assert list(told.values_list("reason", flat=True)) == ["25%"]

    stage.after(gpr.duration_s * 0.5)
    stage.tick()
    stage.tick()
    assert list(told.values_list("reason", flat=True)) == ["25%", "75%"]
    assert fresh(gpr).marks_passed == 3


def test_an_extended_gpr_ends_later_and_its_books_with_it() -> None:
    stage = Stage()
    gpr = stage.active()

    gpr_extend(gpr=gpr, extra_s=600, actor=stage.owner, now=stage.now)

    longer = fresh(gpr)
    assert longer.ends_at is not None
    (row,) = stage.held(gpr)
    assert (longer.duration_s, longer.remaining_s, row.not_after_at) == (4200, 4200, longer.ends_at)
    assert row.ends_at == longer.ends_at + timedelta(seconds=settings.EGS_EXIT_ALLOWANCE_S)
    stage.after(3601)
    stage.tick()
    assert fresh(gpr).state == S.ACTIVE
    stage.after(600)
    stage.tick()
    assert fresh(gpr).state == S.EXITING


def test_an_extension_of_a_gpr_that_moved_meanwhile_is_refused_as_stale() -> None:
    stage = Stage()
    gpr = stage.active()
    Gpr.objects.filter(pk=gpr.pk).update(version=gpr.version + 1)

    with pytest.raises(StaleState):
        gpr_extend(gpr=gpr, extra_s=600, actor=stage.owner, now=stage.now)


def test_a_box_does_not_wait_for_a_silent_agent_while_another_cluster_could_serve() -> None:
    """Its agent is only silent for a while, not away; but nothing can start there now."""
    stage = Stage(nodes=1)
    other = make_cluster("other", nodes=1, is_heard=False)
    its_agent = Agent.joined(other, at=stage.now)
    slice_ = make_slice(stage.cluster, other, owner=stage.owner)
    stage.after(settings.EGS_AGENT_STALE_S + 1)
    its_agent.sync(at=stage.now)

    gpr = stage.submit(slice_)
    report = tick(now=stage.now)

    assert report is not None
    assert (report.skipped, fresh(gpr).state, fresh(gpr).cluster) == ({}, S.PROVISIONING, other)


def test_an_extension_that_would_move_a_promise_is_refused_and_changes_nothing() -> None:
    stage = Stage(nodes=1)
    gpr = stage.active()
    stage.submit(make_slice(stage.cluster, owner=stage.owner), name="next")
    before = fresh(gpr), starts()

    with pytest.raises(Exception, match="promised"):
        gpr_extend(gpr=gpr, extra_s=3600, actor=stage.owner, now=stage.now)

    assert (fresh(gpr).version, fresh(gpr).ends_at, starts()) == (before[0].version, before[0].ends_at, before[1])


def test_an_exit_that_does_not_end_is_told_once_to_its_owner_and_to_whoever_waits() -> None:
    stage = Stage(nodes=1)
    gpr = stage.active()
    late = stage.submit(make_slice(stage.cluster, owner=stage.owner), name="late")
    stage.after(3600)
    stage.tick()
    stage.after(settings.EGS_EXIT_ALLOWANCE_S + 1)
    for _ in range(3):
        stage.tick()
        stage.after(1)

    told = Event.objects.get(kind="gpr.exit_overdue")
    assert (told.gpr_id, "by force" in told.message) == (gpr.pk, True)
    assert fresh(gpr).explanation["reason"] == "nodes_not_back"
    (blocker,) = fresh(late).explanation["blockers"]
    assert (blocker["id"], blocker["is_overdue"]) == (str(gpr.pk), True)

    stage.say(gpr, *EXIT)
    stage.tick()
    assert (fresh(gpr).state, fresh(gpr).explanation) == (S.COMPLETED, {})


def test_while_a_cluster_is_silent_an_overdue_box_there_moves_no_promise_but_puts_it_at_risk() -> None:
    stage = Stage(nodes=1)
    stage.active()
    late = stage.submit(make_slice(stage.cluster, owner=stage.owner), name="late")
    stage.after(3600)
    stage.tick()
    for _ in range(40):
        stage.after(30)
        tick(now=stage.now)

    assert not PromiseMove.objects.exists()
    assert Promise.objects.get(gpr=late).risk == "silence"


def test_nothing_is_freed_because_time_has_passed() -> None:
    """I8: only the agent's RELEASED, or an administrator's word, releases a node; not an exit that the agent tells late."""
    stage = Stage(nodes=1)
    gpr = stage.active()
    late = stage.submit(make_slice(stage.cluster, owner=stage.owner), name="late")

    for _ in range(5):
        stage.after(7200)
        stage.tick()
    stage.say(gpr, Phase.EXITING)
    stage.tick()

    assert fresh(gpr).state == S.EXITING
    assert fresh(late).state == S.QUEUED
    assert [row.gpr_id for row in stage.held()] == [gpr.pk]
    stage.say(gpr, Phase.RELEASED)
    stage.tick()
    assert (fresh(gpr).state, fresh(late).state) == (S.COMPLETED, S.PROVISIONING)
