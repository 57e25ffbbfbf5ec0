"""A node of a running box fails: a spare is checked and opened first, then the sick one leaves; the end stays, and people are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.test import override_settings

from core.errors import Conflict, IllegalTransition, NotFound
from gpr.models import EndReason, Gpr, GprState, Promise, PromiseMove
from gpr.queue.decisions import gpr_evict
from gpr.quotas.fairness import usage_at, usage_rows
from gpr.quotas.selectors import quota_usages
from gpr.replacement.services import node_replace
from gpr.requests.ending import gpr_extend, gpr_release
from inventory.models import Node, Reservation, ReservationState
from inventory.services.maintenance import window_announce, window_draft
from inventory.services.nodes import node_cordon
from inventory.services.reservations import reservation_force_release
from inventory.services.sync import desired_set
from journal.models import Event
from protocol.assignments import Assignment, Desired, Phase
from protocol.nodes import NodeView
from slices.quotas import quota_create
from tests.builders import SHAPE, make_slice, node_view, nodes_of
from tests.inventory.agent import seen
from tests.lifecycle.stage import ENTRY, EXIT, Stage, fresh
from tests.promises.feasible import faults

pytestmark = pytest.mark.django_db
S = GprState
GRACE_S, LEAST_S, WAIT_S = 60, 600, 300  # without the first here, but where it is about it


@pytest.fixture(autouse=True)
def rules() -> Iterator[None]:
    with override_settings(EGS_SPARE_GRACE_S=0, EGS_SPARE_LEAST_S=LEAST_S, EGS_SPARE_WAIT_S=WAIT_S, EGS_SPARE_TRIES_MAX=2):
        yield


@pytest.fixture(scope="module")
def built_stage(module_db: None) -> Stage:
    return Stage(nodes=3)


@pytest.fixture
def stage(built_stage: Stage, db: None) -> Stage:
    return deepcopy(built_stage)


def report(stage: Stage, *gone: Node, sick: Node | None = None, away: Node | None = None, dropped: Node | None = None) -> None:
    """The agent tells the inventory: these are gone, one has a sick GPU, one is not ready, one has lost a GPU."""
    stage.agent.inventory(*(view(node, sick, away, dropped) for node in nodes_of(stage.cluster) if node not in gone), at=stage.now)


def view(node: Node, sick: Node | None, away: Node | None, dropped: Node | None) -> NodeView:
    whole = node_view(node.name, ready=node != away, broken=node == away, rack=node.rack)
    gpus = [msgspec.structs.replace(gpu, healthy=node != sick or gpu.index != 1) for gpu in whole.gpus]
    return msgspec.structs.replace(whole, gpus=tuple(gpu for gpu in gpus if node != dropped or gpu.index != 1))


def rows_of(gpr: Gpr) -> tuple[Reservation, Reservation | None]:
    """What fails, and the last spare for it."""
    spares = list(Reservation.objects.filter(gpr=gpr, replaces__isnull=False).select_related("node", "replaces__node"))
    spare = max(spares, key=lambda row: (row.is_coming, row.starts_at), default=None)
    sick = spare.replaces if spare is not None else Reservation.objects.exclude(failing_at=None).select_related("node").get(gpr=gpr)
    assert sick is not None
    return sick, spare


def spare_of(gpr: Gpr) -> Reservation:
    _, spare = rows_of(gpr)
    assert spare is not None
    return spare


def told(gpr: Gpr, *kinds: str) -> list[str]:
    return list(Event.objects.filter(gpr_id=gpr.pk, kind__in=kinds).order_by("pk").values_list("message", flat=True))


def say(stage: Stage, row: Reservation, *phases: Phase, **changes: Any) -> None:
    """Its agent says so of this one node."""
    for phase in phases:
        given = {"active_s": fresh(row.gpr).active_at.timestamp()} if phase == Phase.ACTIVE else {}  # type: ignore[union-attr]
        stage.agent.sync(seen(row, phase, **{**given, **changes}), at=stage.now)


def wanted(stage: Stage) -> dict[str, Assignment]:
    """What the agent is told, by node."""
    return {each.node: each for each in desired_set(cluster_id=stage.cluster.pk, now=stage.now)}


def swapping(stage: Stage, **asked: Any) -> Gpr:
    """One whose node has a sick GPU, and whose spare is on its way."""
    gpr = stage.active(**asked)
    report(stage, sick=stage.held(gpr)[0].node)
    stage.tick()
    return fresh(gpr)


def replaced(stage: Stage, **asked: Any) -> Gpr:
    gpr = swapping(stage, **asked)
    stage.after(30)
    say(stage, spare_of(gpr), *ENTRY)
    stage.tick()
    return fresh(gpr)


# -- the way it goes ---------------------------------------------------------------------------------------------------


def test_a_spare_enters_the_open_box_and_the_sick_node_leaves_only_when_it_is_open(stage: Stage) -> None:
    gpr = swapping(stage)
    sick, spare = rows_of(gpr)
    assert spare is not None
    told_of = wanted(stage)

    assert {each.desired for each in told_of.values()} == {Desired.PRESENT}
    assert {each.gang_count for each in told_of.values()} == {2}, "the agent opens the spare beside the node that is open"
    assert told_of[spare.node.name].not_after_s == fresh(gpr).ends_at.timestamp()  # type: ignore[union-attr]
    assert spare.entry_steps == sick.entry_steps, "it is checked as for any entry"
    assert (told_of[spare.node.name].replaces, told_of[sick.node.name].replaces) == (str(sick.pk), ""), "not measured against that one"

    say(stage, spare, Phase.ENTERING, Phase.ENTERED)
    stage.tick()
    assert wanted(stage)[sick.node.name].desired == Desired.PRESENT

    say(stage, spare, Phase.ACTIVE)
    stage.tick()
    told_of = wanted(stage)
    assert (told_of[sick.node.name].desired, told_of[spare.node.name].desired) == (Desired.ABSENT, Desired.PRESENT)
    assert told_of[spare.node.name].gang_count == 1
    assert Node.objects.get(pk=sick.node_id).cordoned_at == stage.now

    say(stage, sick, *EXIT)
    stage.tick()
    assert [row.node.name for row in stage.held(gpr)] == [spare.node.name]


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


def test_its_members_are_told_what_fails_and_what_took_its_place(stage: Stage) -> None:
    gpr = replaced(stage)
    sick, spare = rows_of(gpr)
    assert spare is not None
    mine, other = sick.node.name, spare.node.name

    assert told(gpr, "gpr.node_failing", "gpr.spare_entering", "gpr.node_replaced") == [
        f"Node {mine} of job fails: 1 GPU of it is sick or gone. A spare is looked for; its end stays.",
        f"Node {other} is being prepared as a spare for {mine} of job.",
        f"Node {other} took the place of {mine} in job. 1 GPU of it is sick or gone. Its end stays.",
    ]
    assert Node.objects.get(pk=sick.node_id).cordon_reason == "Replaced in job. 1 GPU of it is sick or gone."


# The test below has one whose GPU has dropped out replaced as well.
@pytest.mark.parametrize("harm", ["gone", "not ready", pytest.param("dropped", marks=pytest.mark.soak)])
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
    """As when its GPU driver starts anew."""
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


def test_a_node_that_is_set_aside_in_its_cluster_is_no_failure(stage: Stage) -> None:
    """Not ready for anything new, but what runs on it runs."""
    gpr = stage.active()
    views = [node_view(node.name, ready=False) for node in nodes_of(stage.cluster)]
    stage.agent.inventory(*views, at=stage.now)
    stage.after(GRACE_S)
    stage.tick()

    assert told(gpr, "gpr.node_failing") == []


def test_a_cordon_alone_is_no_failure(stage: Stage) -> None:
    gpr = stage.active()
    node_cordon(node=stage.held(gpr)[0].node, actor=stage.admin, why="a look", now=stage.now)
    stage.after(GRACE_S)
    stage.tick()

    assert len(stage.held(gpr)) == 1


def test_a_sick_gpu_of_somebody_else_is_none_of_its_business() -> None:
    stage = Stage(nodes=2)
    gpr = stage.active(gpus_per_node=1)
    assert stage.held(gpr)[0].gpus.get().gpu.index == 0
    report(stage, sick=stage.held(gpr)[0].node)
    stage.tick()

    assert told(gpr, "gpr.node_failing") == []


def test_of_a_gone_node_the_agent_is_told_at_once_so_that_the_spare_opens_without_it(stage: Stage) -> None:
    gpr = stage.active(nodes=2)
    lost = stage.held(gpr)[0]
    report(stage, lost.node)
    stage.tick()

    told_of = wanted(stage)
    assert told_of[lost.node.name].desired == Desired.ABSENT
    assert {each.gang_count for each in told_of.values() if each.desired == Desired.PRESENT} == {2}


def test_a_gone_node_that_its_agent_has_let_go_is_still_replaced(stage: Stage) -> None:
    gpr = stage.active(nodes=2)
    lost = stage.held(gpr)[0]
    report(stage, lost.node)
    stage.tick()
    say(stage, lost, *EXIT)
    stage.after(5)
    stage.tick()
    assert fresh(gpr).state == S.ACTIVE

    say(stage, spare_of(gpr), *ENTRY)
    stage.tick()
    assert fresh(gpr).state == S.ACTIVE
    assert told(gpr, "gpr.node_replaced")
    assert {row.node_id for row in stage.held(gpr)} == {row.node_id for row in stage.held(gpr)} - {lost.node_id}


def test_the_spare_may_fail_in_its_turn(stage: Stage) -> None:
    gpr = replaced(stage)
    first, second = rows_of(gpr)
    assert second is not None
    say(stage, first, *EXIT)
    report(stage, sick=second.node)
    stage.tick()
    third = spare_of(gpr)
    assert (third.replaces_id, third.node_id not in {first.node_id, second.node_id}) == (second.pk, True)
    say(stage, third, *ENTRY)
    stage.tick()
    say(stage, second, *EXIT)

    assert [row.node_id for row in stage.held(gpr)] == [third.node_id]
    assert fresh(gpr).state == S.ACTIVE


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
    for _ in range(3):
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


def test_a_node_freed_by_force_before_it_was_replaced_waits_for_its_spare(stage: Stage) -> None:
    gpr = swapping(stage)
    sick, spare = rows_of(gpr)
    assert spare is not None
    reservation_force_release(reservation=sick, actor=stage.admin, why="it burnt", now=stage.now)
    stage.tick()
    assert fresh(gpr).state == S.ACTIVE
    assert wanted(stage)[spare.node.name].gang_count == 1, "it opens alone"
    say(stage, spare, *ENTRY)
    stage.tick()
    assert [row.pk for row in stage.held(gpr)] == [spare.pk]


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


# -- in the middle of it -----------------------------------------------------------------------------------------------

Do = Callable[[Stage, Gpr], None]
ENDS: dict[str, tuple[Do, GprState]] = {
    "its owner releases it": (lambda stage, gpr: gpr_release(gpr=fresh(gpr), actor=stage.owner, now=stage.now), S.RELEASED),
    "it is evicted": (
        lambda stage, gpr: gpr_evict(gpr=fresh(gpr), actor=stage.admin, why="", now=stage.now, requeue=False),
        S.EVICTED,
    ),
    "its time is over": (lambda stage, gpr: setattr(stage, "now", fresh(gpr).ends_at), S.COMPLETED),
}


# Each way of ending and each phase once; a soak takes every pair.
QUICK = {
    ("its owner releases it", Phase.PENDING),
    ("its owner releases it", Phase.ACTIVE),
    ("it is evicted", Phase.ENTERED),
    ("its time is over", Phase.ENTERING),
}


@pytest.mark.parametrize(
    ("how", "at"),
    [
        pytest.param(how, at, marks=() if (how, at) in QUICK else pytest.mark.soak)
        for how in ENDS
        for at in (Phase.PENDING, Phase.ENTERING, Phase.ENTERED, Phase.ACTIVE)
    ],
)
def test_however_it_ends_in_the_middle_of_a_swap_both_nodes_are_taken_back(stage: Stage, how: str, at: Phase) -> None:
    gpr = swapping(stage)
    for phase in (Phase.ENTERING, Phase.ENTERED, Phase.ACTIVE)[: [Phase.PENDING, *ENTRY].index(at)]:
        say(stage, spare_of(gpr), phase)
    end, becomes = ENDS[how]
    end(stage, gpr)
    stage.tick()

    assert fresh(gpr).state == S.EXITING
    assert [each.desired for each in wanted(stage).values()] == [Desired.ABSENT] * 2
    stage.say(gpr, *EXIT)
    stage.tick()
    assert fresh(gpr).state == becomes
    assert stage.held() == []


def test_an_extension_in_the_middle_of_a_swap_holds_for_the_spare_and_what_has_left_stays_as_it_is(stage: Stage) -> None:
    gpr = swapping(stage)
    gpr_extend(gpr=fresh(gpr), extra_s=600, actor=stage.owner, now=stage.now)
    ends_s = fresh(gpr).ends_at.timestamp()  # type: ignore[union-attr]
    assert {each.not_after_s for each in wanted(stage).values()} == {ends_s}

    say(stage, spare_of(gpr), *ENTRY)
    stage.tick()
    sick, spare = rows_of(gpr)
    assert spare is not None
    gpr_extend(gpr=fresh(gpr), extra_s=600, actor=stage.owner, now=stage.now)
    assert wanted(stage)[spare.node.name].not_after_s == ends_s + 600
    assert wanted(stage)[sick.node.name].not_after_s == ends_s
    (left,) = [row for row in stage.held(gpr) if row.pk == sick.pk]
    assert left.ends_at < fresh(gpr).ends_at  # type: ignore[operator]


def test_a_word_of_the_spare_that_comes_after_the_end_brings_nothing_back(stage: Stage) -> None:
    gpr = swapping(stage)
    spare = spare_of(gpr)
    gpr_release(gpr=fresh(gpr), actor=stage.owner, now=stage.now)
    say(stage, spare, *ENTRY)
    stage.tick()

    assert wanted(stage)[spare.node.name].desired == Desired.ABSENT
    assert Reservation.objects.get(pk=spare.pk).joined_at is None


# -- what others see of it ---------------------------------------------------------------------------------------------


def test_a_box_counts_once_for_quotas_and_for_its_share_while_it_swaps(stage: Stage) -> None:
    gpr = swapping(stage)
    quota = quota_create(owner=stage.slice.project, shape=SHAPE, change={"guaranteed_gpus": 4, "most_gpus": 4}, actor=None, now=stage.now)
    assert len(stage.held(gpr)) == 2
    assert quota_usages([quota])[0].held_gpus == 4

    say(stage, spare_of(gpr), *ENTRY)
    stage.tick()
    gpr_release(gpr=fresh(gpr), actor=stage.owner, now=stage.now)
    stage.say(gpr, *EXIT)
    stage.tick()
    used = usage_at(usage_rows(), stage.now)[str(stage.slice.project_id)]
    ran_s = (stage.now - fresh(gpr).provisioning_at).total_seconds()  # type: ignore[operator]
    assert used == pytest.approx(4 * ran_s, rel=0.01)


def test_at_its_ceiling_a_box_still_gets_a_spare_and_nobody_is_evicted_for_it(stage: Stage) -> None:
    gpr = stage.active()
    quota_create(owner=stage.slice.project, shape=SHAPE, change={"guaranteed_gpus": 4, "most_gpus": 4}, actor=None, now=stage.now)
    report(stage, sick=stage.held(gpr)[0].node)
    stage.tick()
    stage.tick()

    assert spare_of(gpr).is_coming
    assert fresh(gpr).state == S.ACTIVE


def test_nothing_starts_on_the_node_that_was_replaced(stage: Stage) -> None:
    gpr = replaced(stage)
    sick, _ = rows_of(gpr)
    say(stage, sick, *EXIT)
    report(stage)
    others = [stage.submit(make_slice(stage.cluster, owner=stage.owner)) for _ in range(2)]
    stage.tick()

    started = Reservation.objects.filter(gpr__in=others, state=ReservationState.HELD)
    assert sick.node_id not in set(started.values_list("node", flat=True))
    assert started.count() == 1


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
