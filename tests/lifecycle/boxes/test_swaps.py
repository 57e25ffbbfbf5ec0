"""A box while its sick node is swapped for a spare: both are held until the spare is open, and whatever happens both are let go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy

import pytest
from django.test import override_settings

from gpr.models import Gpr, GprState
from gpr.queue.decisions import gpr_evict
from gpr.requests.ending import gpr_extend, gpr_release
from inventory.models import Node, Reservation, ReservationState
from inventory.services.reservations import reservation_force_release
from protocol.assignments import Desired, Phase
from tests.builders import make_slice
from tests.lifecycle.boxes.spares import RULES, report, rows_of, say, spare_of, swapping, told, wanted
from tests.lifecycle.stage import ENTRY, EXIT, Stage, fresh

pytestmark = pytest.mark.django_db
S = GprState


@pytest.fixture(autouse=True)
def rules() -> Iterator[None]:
    with override_settings(**RULES):
        yield


@pytest.fixture(scope="module")
def built(module_db: None) -> tuple[Stage, Gpr]:
    with override_settings(**RULES):
        stage = Stage(nodes=3)
        return stage, swapping(stage)


@pytest.fixture
def stage_and_gpr(built: tuple[Stage, Gpr], db: None) -> tuple[Stage, Gpr]:
    return deepcopy(built)


@pytest.fixture
def stage(stage_and_gpr: tuple[Stage, Gpr]) -> Stage:
    return stage_and_gpr[0]


@pytest.fixture
def gpr(stage_and_gpr: tuple[Stage, Gpr]) -> Gpr:
    return stage_and_gpr[1]


def replaced(stage: Stage, gpr: Gpr) -> None:
    stage.after(30)
    say(stage, spare_of(gpr), *ENTRY)
    stage.tick()


def test_a_spare_enters_the_open_box_and_the_sick_node_leaves_only_when_it_is_open(stage: Stage, gpr: Gpr) -> None:
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


def test_its_members_are_told_what_fails_and_what_took_its_place(stage: Stage, gpr: Gpr) -> None:
    replaced(stage, gpr)
    sick, spare = rows_of(gpr)
    assert spare is not None
    mine, other = sick.node.name, spare.node.name

    assert told(gpr, "gpr.node_failing", "gpr.spare_entering", "gpr.node_replaced") == [
        f"Node {mine} of job fails: 1 GPU of it is sick or gone. A spare is looked for; its end stays.",
        f"Node {other} is being prepared as a spare for {mine} of job.",
        f"Node {other} took the place of {mine} in job. 1 GPU of it is sick or gone. Its end stays.",
    ]
    assert Node.objects.get(pk=sick.node_id).cordon_reason == "Replaced in job. 1 GPU of it is sick or gone."


def test_the_spare_may_fail_in_its_turn(stage: Stage, gpr: Gpr) -> None:
    replaced(stage, gpr)
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


def test_a_node_freed_by_force_before_it_was_replaced_waits_for_its_spare(stage: Stage, gpr: Gpr) -> None:
    sick, spare = rows_of(gpr)
    assert spare is not None
    reservation_force_release(reservation=sick, actor=stage.admin, why="it burnt", now=stage.now)
    stage.tick()
    assert fresh(gpr).state == S.ACTIVE
    assert wanted(stage)[spare.node.name].gang_count == 1, "it opens alone"
    say(stage, spare, *ENTRY)
    stage.tick()
    assert [row.pk for row in stage.held(gpr)] == [spare.pk]


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
def test_however_it_ends_in_the_middle_of_a_swap_both_nodes_are_taken_back(stage: Stage, gpr: Gpr, how: str, at: Phase) -> None:
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


def test_an_extension_in_the_middle_of_a_swap_holds_for_the_spare_and_what_has_left_stays_as_it_is(stage: Stage, gpr: Gpr) -> None:
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


def test_a_word_of_the_spare_that_comes_after_the_end_brings_nothing_back(stage: Stage, gpr: Gpr) -> None:
    spare = spare_of(gpr)
    gpr_release(gpr=fresh(gpr), actor=stage.owner, now=stage.now)
    say(stage, spare, *ENTRY)
    stage.tick()

    assert wanted(stage)[spare.node.name].desired == Desired.ABSENT
    assert Reservation.objects.get(pk=spare.pk).joined_at is None


def test_nothing_starts_on_the_node_that_was_replaced(stage: Stage, gpr: Gpr) -> None:
    replaced(stage, gpr)
    sick, _ = rows_of(gpr)
    say(stage, sick, *EXIT)
    report(stage)
    others = [stage.submit(make_slice(stage.cluster, owner=stage.owner)) for _ in range(2)]
    stage.tick()

    started = Reservation.objects.filter(gpr__in=others, state=ReservationState.HELD)
    assert sick.node_id not in set(started.values_list("node", flat=True))
    assert started.count() == 1
