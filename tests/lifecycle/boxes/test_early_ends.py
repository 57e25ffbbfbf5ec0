"""A box that is given back early helps a gang that has waited long."""

from __future__ import annotations

import pytest
from django.test import override_settings

from gpr.models import Gpr, PlanRecord, Promise, PromiseMove
from gpr.requests.editing import gpr_cancel, gpr_edit
from gpr.requests.ending import gpr_release
from gpr.requests.estimates import gpr_estimate
from tests.builders import make_slice, spec
from tests.lifecycle.stage import EXIT, Stage, fresh

pytestmark = pytest.mark.django_db
HOUR_S = 3600


@pytest.fixture
def stage() -> Stage:
    """It has two nodes."""
    return Stage()


def box(stage: Stage, hours: int) -> Gpr:
    return stage.active(slice_=make_slice(stage.cluster, owner=stage.owner), nodes=1, duration_s=hours * HOUR_S)


def gang_behind(stage: Stage, *hours: int) -> tuple[list[Gpr], Gpr]:
    boxes = [box(stage, each) for each in hours]
    return boxes, stage.submit(nodes=2, duration_s=HOUR_S)


def give_back(stage: Stage, gpr: Gpr) -> None:
    gpr_release(gpr=gpr, actor=stage.owner, now=stage.now)
    stage.say(gpr, *EXIT)


def slot_hours(stage: Stage, gpr: Gpr) -> int:
    return round((Promise.objects.get(gpr=gpr).slot_start_at - stage.now).total_seconds() / HOUR_S)


def test_a_gang_that_has_waited_long_is_planned_for_the_end_of_the_box_that_is_left(stage: Stage) -> None:
    (_, long), gang = gang_behind(stage, 4, 8)
    promised_at = Promise.objects.get(gpr=gang).promised_start_at
    stage.after(3 * HOUR_S)
    assert slot_hours(stage, gang) == 5

    give_back(stage, long)
    stage.tick()

    assert slot_hours(stage, gang) == 1
    assert Promise.objects.get(gpr=gang).promised_start_at == promised_at
    assert not PromiseMove.objects.exists()


def test_one_that_has_just_come_keeps_its_slot(stage: Stage) -> None:
    (_, long), gang = gang_behind(stage, 4, 8)
    stage.after(HOUR_S)

    give_back(stage, long)
    stage.tick()

    assert slot_hours(stage, gang) == 7


@override_settings(EGS_GANG_PATIENCE_PERCENT=100)
def test_none_is_moved_up_where_the_settings_say_so(stage: Stage) -> None:
    (_, long), gang = gang_behind(stage, 4, 8)
    stage.after(3 * HOUR_S)

    give_back(stage, long)
    stage.tick()

    assert slot_hours(stage, gang) == 5


def test_it_is_moved_once_and_not_by_what_comes_later(stage: Stage) -> None:
    """The room of an hour ago is not looked at again by a gang that has become old since."""
    (_, long), gang = gang_behind(stage, 4, 8)
    stage.after(HOUR_S)
    give_back(stage, long)
    stage.tick()
    assert not PlanRecord.objects.filter(has_freed=True).exists()

    stage.after(2 * HOUR_S)
    stage.submit(make_slice(stage.cluster, owner=stage.owner), nodes=1, duration_s=20 * HOUR_S)
    stage.tick()

    assert slot_hours(stage, gang) == 5


def test_it_is_not_forgotten_where_nobody_planned_when_the_box_ended(stage: Stage) -> None:
    (_, long), gang = gang_behind(stage, 4, 8)
    stage.after(3 * HOUR_S)
    give_back(stage, long)

    stage.after(600)
    stage.tick()

    assert slot_hours(stage, gang) == 1


def test_an_edit_of_one_that_was_moved_up_is_promised_what_its_offer_says(stage: Stage) -> None:
    """The move itself promised no more."""
    (_, long), gang = gang_behind(stage, 4, 8)
    before = Promise.objects.get(gpr=gang)
    stage.after(3 * HOUR_S)
    give_back(stage, long)
    stage.tick()
    assert Promise.objects.get(gpr=gang).promised_start_at == before.promised_start_at

    asked = spec(stage.slice, nodes=2, duration_s=2 * HOUR_S)
    offer = gpr_estimate(actor=stage.owner, spec=asked, now=stage.now, edited=fresh(gang))[0]
    gpr_edit(gpr=fresh(gang), spec=asked, actor=stage.owner, now=stage.now)

    after = Promise.objects.get(gpr=gang)
    assert slot_hours(stage, gang) == 1
    assert offer.promised_start_at == after.promised_start_at < before.promised_start_at


def test_a_box_that_ends_at_its_time_moves_nobody(stage: Stage) -> None:
    """The other is free by the books before the slot, since a third was withdrawn: there would be room."""
    (short, _), third = gang_behind(stage, 4, 8)
    gang = stage.submit(make_slice(stage.cluster, owner=stage.owner), nodes=2, duration_s=2 * HOUR_S)
    gpr_cancel(gpr=third, actor=stage.owner, now=stage.now)
    stage.after(4 * HOUR_S)
    stage.tick()
    stage.say(short, *EXIT)
    assert not PlanRecord.objects.filter(has_freed=True).exists()

    stage.tick()

    assert slot_hours(stage, gang) == 5
