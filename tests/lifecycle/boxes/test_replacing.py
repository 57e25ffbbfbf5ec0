"""A node of a running box fails: a spare is checked and opened first, then the sick one leaves; the end stays, and people are told."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from datetime import timedelta

import pytest
from django.test import override_settings

from core.errors import Conflict, IllegalTransition, NotFound
from gpr.models import EndReason, GprState, Promise, PromiseMove
from gpr.quotas.fairness import usage_at, usage_rows
from gpr.quotas.selectors import quota_usages
from gpr.replacement.services import node_replace
from gpr.requests.ending import gpr_release
from inventory.models import Node, Reservation
from inventory.services.maintenance import window_announce, window_draft
from inventory.services.nodes import node_cordon
from inventory.services.reservations import reservation_force_release
from journal.models import Event
from protocol.assignments import Desired, Phase
from slices.quotas.services import quota_create
from tests.builders import SHAPE, make_slice, node_view, nodes_of
from tests.lifecycle.boxes.spares import LEAST_S, RULES, WAIT_S, report, rows_of, say, spare_of, swapping, told, wanted
from tests.lifecycle.stage import ENTRY, EXIT, Stage, fresh
from tests.promises.feasible import faults

pytestmark = pytest.mark.django_db
S = GprState
GRACE_S = 60


@pytest.fixture(autouse=True)
def rules() -> Iterator[None]:
    with override_settings(**RULES):
        yield


@pytest.fixture(scope="module")
def built_stage(module_db: None) -> Stage:
    return Stage(nodes=3)


@pytest.fixture
def stage(built_stage: Stage, db: None) -> Stage:
    return deepcopy(built_stage)


# -- the way it goes ---------------------------------------------------------------------------------------------------


def test_the_end_stays_whatever_is_replaced(stage: Stage) -> None:
    gpr = stage.active()
    ends_at = gpr.ends_at
    report(stage, sick=stage.held(gpr)[0].node)
    stage.tick()
    stage.after(100)
    say(stage, spare_of(gpr), *ENTRY)
    stage.tick()

    assert (fresh(gpr).state, fresh(gpr).ends_at, fresh(gpr).active_at) == (S.ACTIVE, ends_at, gpr.active_at)
    assert ends_at is not None
    stage.now = ends_at
    stage.tick()
    assert (fresh(gpr).state, fresh(gpr).end_reason) == (S.EXITING, EndReason.EXPIRED)
    assert {each.desired for each in wanted(stage).values()} == {Desired.ABSENT}
    stage.say(gpr, *EXIT)
    stage.tick()
    assert fresh(gpr).state == S.COMPLETED


# The tests below have one that is gone, and one whose GPU has dropped out, replaced as well.
@pytest.mark.parametrize("harm", ["not ready", *(pytest.param(other, marks=pytest.mark.soak) for other in ("gone", "dropped"))])
def test_whatever_a_node_suffers_from_it_is_replaced(stage: Stage, harm: str) -> None:
    gpr = stage.active(nodes=2)
    sick = stage.held(gpr)[0]
    if harm == "gone":
        report(stage, sick.node)
    else:
        report(stage, **{"dropped" if harm == "dropped" else "away": sick.node})
    stage.after(GRACE_S)
    stage.tick()

    say(stage, spare_of(gpr), *ENTRY)
    stage.tick()

    assert fresh(gpr).state == S.ACTIVE
    assert wanted(stage)[sick.node.name].desired == Desired.ABSENT
    box = {each.node: each.gang_count for each in wanted(stage).values() if each.desired == Desired.PRESENT}
    assert set(box.values()) == {2}
    assert len(box) == 2


# The test above has one that is not ready replaced, most others one that is sick.
@override_settings(EGS_SPARE_GRACE_S=GRACE_S)
@pytest.mark.parametrize("how", ["dropped", *(pytest.param(other, marks=pytest.mark.soak) for other in ("away", "sick"))])
def test_a_node_that_suffers_for_a_moment_only_is_not_replaced(stage: Stage, how: str) -> None:
    gpr = stage.active()
    node = stage.held(gpr)[0].node
    report(stage, **{how: node})
    stage.after(GRACE_S - 1)
    stage.tick()
    report(stage)
    stage.after(GRACE_S)
    stage.tick()
    assert not Reservation.objects.exclude(replaces=None).exists()
    assert told(gpr, "gpr.node_failing") == []

    report(stage, **{how: node})
    stage.after(GRACE_S)
    report(stage, **{how: node})
    stage.tick()
    assert spare_of(gpr).is_coming


def test_a_node_that_is_cordoned_or_set_aside_in_its_cluster_is_no_failure(stage: Stage) -> None:
    """It takes nothing new, but what runs on it runs."""
    gpr = stage.active()
    node_cordon(node=stage.held(gpr)[0].node, actor=stage.admin, why="a look", now=stage.now)
    stage.agent.inventory(*(node_view(node.name, ready=False) for node in nodes_of(stage.cluster)), at=stage.now)
    stage.after(GRACE_S)
    stage.tick()

    assert told(gpr, "gpr.node_failing") == []
    assert len(stage.held(gpr)) == 1


def test_of_a_gone_node_the_agent_is_told_at_once_and_when_it_has_let_go_the_spare_still_takes_its_place(stage: Stage) -> None:
    gpr = stage.active(nodes=2)
    lost = stage.held(gpr)[0]
    report(stage, lost.node)
    stage.tick()
    told_of = wanted(stage)
    assert told_of[lost.node.name].desired == Desired.ABSENT
    assert {each.gang_count for each in told_of.values() if each.desired == Desired.PRESENT} == {2}, "the spare opens without it"

    say(stage, lost, *EXIT)
    stage.after(5)
    stage.tick()
    assert fresh(gpr).state == S.ACTIVE

    say(stage, spare_of(gpr), *ENTRY)
    stage.tick()
    assert fresh(gpr).state == S.ACTIVE
    assert told(gpr, "gpr.node_replaced")
    assert lost.node_id not in {row.node_id for row in stage.held(gpr)}


def test_a_sick_gpu_of_somebody_else_is_none_of_its_business() -> None:
    stage = Stage(nodes=2)
    gpr = stage.active(gpus_per_node=1)
    assert stage.held(gpr)[0].gpus.get().gpu.index == 0
    report(stage, sick=stage.held(gpr)[0].node)
    stage.tick()

    assert told(gpr, "gpr.node_failing") == []


# -- when it does not go so --------------------------------------------------------------------------------------------


def test_a_spare_that_fails_its_checks_goes_and_the_next_is_tried_until_the_limit() -> None:
    stage = Stage(nodes=4)
    gpr = swapping(stage)
    tried = []
    for _ in range(2):
        spare = spare_of(gpr)
        tried.append(spare.node_id)
        say(stage, spare, Phase.ENTERING, Phase.FAILED, failure="check gpu_health failed 2 times")
        stage.tick()
        say(stage, spare, *EXIT)
        stage.after(20)
        stage.tick()

    assert len(set(tried)) == 2
    assert not any(row.is_coming for row in Reservation.objects.filter(gpr=gpr))
    assert {each.gang_count for each in wanted(stage).values()} == {1}
    assert fresh(gpr).state == S.ACTIVE, "the box goes on where it can"
    failed = told(gpr, "gpr.replacement_failed")
    assert len(failed) == 3
    assert "check gpu_health failed 2 times" in failed[0]
    assert failed[2].endswith("2 spares failed on the way in.")


def test_a_spare_that_goes_away_on_the_way_in_is_given_up(stage: Stage) -> None:
    gpr = stage.active()
    sick = stage.held(gpr)[0]
    report(stage, sick=sick.node)
    stage.tick()
    first = spare_of(gpr)
    report(stage, first.node, sick=sick.node)
    stage.tick()

    second = spare_of(gpr)
    assert second.node_id not in {first.node_id, sick.node_id}
    assert wanted(stage)[first.node.name].desired == Desired.ABSENT


def test_where_no_node_is_free_it_is_told_once_and_tried_again() -> None:
    stage = Stage(nodes=2)
    gpr, other = stage.active(), stage.active(slice_=make_slice(stage.cluster, owner=stage.owner))
    report(stage, sick=stage.held(gpr)[0].node)
    for _ in range(2):
        stage.after(20)
        stage.tick()
    assert told(gpr, "gpr.replacement_failed") == [
        f"There is no spare for node {stage.held(gpr)[0].node.name} of job. No other node of its kind is free until its end."
    ]
    assert fresh(gpr).state == S.ACTIVE

    gpr_release(gpr=fresh(other), actor=stage.owner, now=stage.now)
    stage.say(other, *EXIT)
    stage.after(20)
    stage.tick()
    assert spare_of(gpr).node_id != stage.held(gpr)[0].node_id or len(stage.held(gpr)) == 2


def test_a_spare_that_is_promised_to_somebody_is_not_taken() -> None:
    stage = Stage(nodes=2)
    gpr = stage.active(duration_s=7200)
    waits = stage.submit(make_slice(stage.cluster, owner=stage.owner), earliest_start_at=stage.now + timedelta(seconds=1800))
    promised_at = Promise.objects.get(gpr=waits).promised_start_at
    report(stage, sick=stage.held(gpr)[0].node)
    stage.after(5)
    stage.tick()

    assert len(stage.held(gpr)) == 1
    assert told(gpr, "gpr.replacement_failed")[0].endswith("The free nodes of its kind are promised to others before its end.")
    assert Promise.objects.get(gpr=waits).promised_start_at == promised_at
    assert not PromiseMove.objects.exists()


def test_a_swap_leaves_a_plan_that_can_be_kept() -> None:
    stage = Stage(nodes=4)
    for _ in range(3):
        stage.submit(make_slice(stage.cluster, owner=stage.owner), nodes=2, duration_s=3600)
    gpr = stage.active(duration_s=1800)
    row = stage.held(gpr)[:1]
    report(stage, sick=row[0].node if row else None)
    for _ in range(4):
        stage.after(20)
        stage.tick()
        assert faults() == []
    assert not PromiseMove.objects.exclude(cause="node_failure").exists()


def test_a_node_closed_for_maintenance_before_the_end_is_no_spare() -> None:
    stage = Stage(nodes=2)
    gpr = stage.active()
    held = stage.held(gpr)[0].node
    (free,) = [node for node in nodes_of(stage.cluster) if node != held]
    starts_at = stage.now + timedelta(seconds=1800)
    draft = window_draft(
        cluster=stage.cluster, node=free, starts_at=starts_at, ends_at=starts_at + timedelta(hours=1), reason="fans", now=stage.now
    )
    window_announce(window=draft, actor=stage.admin, now=stage.now)
    report(stage, sick=held)
    stage.tick()

    assert len(stage.held(gpr)) == 1
    assert told(gpr, "gpr.replacement_failed")


def test_within_a_rack_the_spare_is_of_that_rack() -> None:
    stage = Stage(nodes=4)
    racks = {node.name: f"r{index // 2}" for index, node in enumerate(nodes_of(stage.cluster))}
    stage.agent.inventory(*(node_view(name, rack=rack) for name, rack in racks.items()), at=stage.now)
    gpr = stage.active(nodes=2, within="rack")
    report(stage, sick=stage.held(gpr)[0].node)
    stage.tick()

    assert len(stage.held(gpr)) == 2
    assert told(gpr, "gpr.replacement_failed")[0].endswith("is near enough to its other nodes.")


def test_late_in_the_window_no_spare_is_brought_in(stage: Stage) -> None:
    gpr = stage.active()
    stage.after(gpr.duration_s - LEAST_S + 1)
    report(stage, sick=stage.held(gpr)[0].node)
    stage.tick()

    assert len(stage.held(gpr)) == 1
    assert told(gpr, "gpr.replacement_failed")[0].endswith("It ends within 10 min: a spare would hardly be ready before.")


def test_with_a_node_gone_and_no_spare_it_waits_for_one_and_then_goes_back_to_the_queue() -> None:
    stage = Stage(nodes=2)
    gpr = stage.active(nodes=2)
    report(stage, stage.held(gpr)[0].node)
    stage.tick()
    stage.after(WAIT_S - 1)
    stage.tick()
    assert fresh(gpr).state == S.ACTIVE

    stage.after(2)
    stage.tick()
    assert (fresh(gpr).state, fresh(gpr).end_reason) == (S.EXITING, EndReason.NODE_FAILURE)
    stage.say(gpr, *EXIT)
    stage.tick()
    assert fresh(gpr).state == S.QUEUED


def test_with_all_its_nodes_gone_and_no_spare_it_does_not_wait() -> None:
    stage = Stage(nodes=1)
    gpr = stage.active()
    report(stage, stage.held(gpr)[0].node)
    stage.tick()
    stage.tick()

    assert (fresh(gpr).state, fresh(gpr).end_reason) == (S.EXITING, EndReason.NODE_FAILURE)


@override_settings(EGS_SPARE_TRIES_MAX=0)
def test_switched_off_a_lost_node_ends_the_box_at_once(stage: Stage) -> None:
    gpr = stage.active()
    report(stage, stage.held(gpr)[0].node)
    stage.tick()

    assert (fresh(gpr).state, fresh(gpr).end_reason) == (S.EXITING, EndReason.NODE_FAILURE)


def test_a_node_that_recovers_before_a_spare_was_found_stays() -> None:
    stage = Stage(nodes=1)
    gpr = stage.active()
    report(stage, sick=stage.held(gpr)[0].node)
    stage.tick()
    report(stage)
    stage.tick()

    assert Reservation.objects.get(gpr=gpr).failing_at is None
    assert told(gpr, "gpr.node_recovered") == [f"Node {stage.held(gpr)[0].node.name} of job is well again; it stays."]


def test_a_spare_freed_by_force_is_counted_out_though_there_is_no_other() -> None:
    stage = Stage(nodes=2)
    gpr = swapping(stage)
    sick, spare = rows_of(gpr)
    assert spare is not None
    node_cordon(node=spare.node, actor=stage.admin, why="a look", now=stage.now)
    reservation_force_release(reservation=spare, actor=stage.admin, why="it burnt", now=stage.now)
    stage.tick()

    assert told(gpr, "gpr.replacement_failed")
    assert wanted(stage)[sick.node.name].gang_count == 1


# -- what others see of it ---------------------------------------------------------------------------------------------


def test_at_its_ceiling_a_box_still_gets_a_spare_and_counts_once_for_quotas_and_for_its_share_while_it_swaps(stage: Stage) -> None:
    gpr = stage.active()
    quota = quota_create(owner=stage.slice.project, shape=SHAPE, change={"guaranteed_gpus": 4, "most_gpus": 4}, actor=None, now=stage.now)
    report(stage, sick=stage.held(gpr)[0].node)
    stage.tick()
    stage.tick()
    assert spare_of(gpr).is_coming
    assert fresh(gpr).state == S.ACTIVE
    assert len(stage.held(gpr)) == 2
    assert quota_usages([quota])[0].held_gpus == 4

    stage.after(30)
    say(stage, spare_of(gpr), *ENTRY)
    stage.tick()
    gpr_release(gpr=fresh(gpr), actor=stage.owner, now=stage.now)
    stage.say(gpr, *EXIT)
    stage.tick()
    used = usage_at(usage_rows(), stage.now)[str(stage.slice.project_id)]
    ran_s = (stage.now - fresh(gpr).provisioning_at).total_seconds()  # type: ignore[operator]
    assert used == pytest.approx(4 * ran_s, rel=0.01)


# -- by hand -----------------------------------------------------------------------------------------------------------


def test_an_administrator_may_ask_for_another_node_though_this_one_is_well(stage: Stage) -> None:
    gpr = stage.active()
    node = stage.held(gpr)[0].node
    node_replace(gpr=gpr, node_id=node.pk, actor=stage.admin, why="Its fan is loud.", now=stage.now)
    stage.tick()
    assert spare_of(gpr).is_coming
    with pytest.raises(Conflict, match="on its way already"):
        node_replace(gpr=gpr, node_id=node.pk, actor=stage.admin, why="again", now=stage.now)

    say(stage, spare_of(gpr), *ENTRY)
    stage.tick()
    assert Node.objects.get(pk=node.pk).cordon_reason == "Replaced in job. Its fan is loud."
    asked = Event.objects.get(kind="gpr.replacement_asked")
    assert (asked.actor, asked.message) == (stage.admin, f"Node {node.name} of job is to be replaced: Its fan is loud.")


def test_by_hand_the_reason_is_answered_and_nothing_stored_where_there_is_no_spare() -> None:
    stage = Stage(nodes=1)
    gpr = stage.active()
    with pytest.raises(Conflict, match="No other node of its kind is free"):
        node_replace(gpr=gpr, node_id=stage.held(gpr)[0].node_id, actor=stage.admin, why="a look", now=stage.now)

    assert Reservation.objects.get(gpr=gpr).failing_at is None
    assert told(gpr, "gpr.replacement_asked") == []


def test_by_hand_only_a_node_of_an_active_gpr(stage: Stage) -> None:
    gpr = stage.submit()
    stage.tick()
    (row,) = stage.held(gpr)
    other = next(node for node in nodes_of(stage.cluster) if node != row.node)
    with pytest.raises(IllegalTransition):
        node_replace(gpr=fresh(gpr), node_id=row.node_id, actor=stage.admin, why="a look", now=stage.now)
    with pytest.raises(NotFound):
        node_replace(gpr=fresh(gpr), node_id=other.pk, actor=stage.admin, why="a look", now=stage.now)
