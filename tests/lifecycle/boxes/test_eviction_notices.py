"""A box that has notice makes way for another: what its owner is told, when it ends, and when it is spared."""

from __future__ import annotations

from copy import deepcopy
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
from django.conf import settings
from django.test import override_settings

from core.errors import Conflict
from gpr.models import EndReason, Eviction, EvictionVictim, Gpr, GprState, VictimOutcome
from gpr.requests.editing import gpr_cancel, gpr_edit, spec_of
from gpr.requests.ending import gpr_extend, gpr_release
from gpr.requests.extensions import ExtensionTrial
from journal.models import Event
from planner.engine import plan
from tests.builders import make_slice
from tests.lifecycle.boxes.evictions import DAY_S, LEAST_RUN_S, NOTICE_S, RULES, evicting_slice, noticed
from tests.lifecycle.stage import EXIT, Stage, fresh, moves_of

# Each day: test_evictions.py
pytestmark = [pytest.mark.django_db, pytest.mark.rotates]
S = GprState


@pytest.fixture(autouse=True)
def rules() -> Any:
    with override_settings(**RULES):
        yield


@pytest.fixture(scope="module")
def built(module_db: None) -> tuple[Stage, Gpr, Gpr]:
    with override_settings(**RULES):
        stage = Stage(nodes=1)
        return stage, *noticed(stage, evicting_slice(stage))


@pytest.fixture
def world(built: tuple[Stage, Gpr, Gpr], db: None) -> tuple[Stage, Gpr, Gpr]:
    return deepcopy(built)


@pytest.fixture
def stage(world: tuple[Stage, Gpr, Gpr]) -> Stage:
    return world[0]


@pytest.fixture
def victim(world: tuple[Stage, Gpr, Gpr]) -> Gpr:
    return world[1]


@pytest.fixture
def beneficiary(world: tuple[Stage, Gpr, Gpr]) -> Gpr:
    return world[2]


def test_the_owner_has_notice_and_the_other_a_start(stage: Stage, victim: Gpr, beneficiary: Gpr) -> None:

    ends_at = stage.now + timedelta(seconds=NOTICE_S)
    assert fresh(victim).ends_at == ends_at
    assert {row.not_after_at for row in stage.held(victim)} == {ends_at}
    (eviction,) = Eviction.objects.all()
    (row,) = eviction.victims.all()
    assert (eviction.gpr, row.gpr, row.kind, row.outcome) == (beneficiary, victim, "priority", VictimOutcome.NOTICED)
    assert row.lost_gpu_s == 4 * (LEAST_RUN_S + 5)
    start_at = ends_at + timedelta(seconds=settings.EGS_EXIT_ALLOWANCE_S)
    assert eviction.start_at == fresh(beneficiary).promise.promised_start_at == start_at
    assert eviction.instead_at is not None
    assert eviction.instead_at > start_at + timedelta(hours=23)


def test_neither_side_learns_who_the_other_is_and_a_story_begins_with_its_request(stage: Stage, victim: Gpr, beneficiary: Gpr) -> None:

    (to_victim,) = Event.objects.filter(kind="gpr.eviction_noticed")
    (to_other,) = Event.objects.filter(kind="gpr.eviction_planned")
    assert (to_victim.gpr_id, to_victim.slice_id) == (victim.pk, victim.slice_id)
    assert (to_other.gpr_id, to_other.slice_id) == (beneficiary.pk, beneficiary.slice_id)
    assert beneficiary.name not in to_victim.message or beneficiary.name == victim.name
    assert beneficiary.slice.name not in to_victim.message
    assert stage.slice.name not in to_other.message

    told = Event.objects.filter(gpr_id=beneficiary.pk).order_by("pk").values_list("kind", flat=True)
    assert list(told)[:2] == ["gpr.created", "gpr.eviction_planned"]


def restart_at(victim: Gpr) -> Any:
    return EvictionVictim.objects.get(gpr=victim, outcome=VictimOutcome.NOTICED).restart_at


def test_a_notice_says_when_what_is_left_would_start_and_follows_the_queue(stage: Stage, victim: Gpr, beneficiary: Gpr) -> None:
    stage.after(1)
    stage.tick()
    first_at = restart_at(victim)
    assert first_at >= beneficiary.promise.promised_start_at + timedelta(seconds=beneficiary.duration_s)

    longer = stage.submit(make_slice(stage.cluster, owner=stage.owner), priority=140, duration_s=7200)
    stage.after(1)
    stage.tick()
    assert restart_at(victim) >= first_at + timedelta(hours=2)

    gpr_cancel(gpr=fresh(longer), actor=stage.admin, now=stage.now)
    stage.after(1)
    stage.tick()
    assert restart_at(victim) == first_at


def test_all_notices_share_one_plan_and_none_is_made_while_nothing_happens(stage: Stage, victim: Gpr) -> None:
    with patch("gpr.evictions.restarts.plan", wraps=plan) as planned:
        for _ in range(4):
            stage.after(1)
            stage.tick()

    assert planned.call_count <= 2
    assert restart_at(victim) is not None


def test_a_tick_goes_on_where_it_cannot_be_said_when_the_rest_would_start(stage: Stage, victim: Gpr) -> None:
    with patch("gpr.evictions.restarts.plan", side_effect=ValueError):
        stage.after(1)
        stage.tick()

    assert restart_at(victim) is None


def test_one_plan_gives_notice_once(stage: Stage) -> None:
    for _ in range(2):
        stage.after(10)
        stage.tick()

    assert Eviction.objects.count() == EvictionVictim.objects.count() == 1
    assert Event.objects.filter(kind="promise.moved").count() == 0


def test_it_ends_evicted_waits_again_with_what_is_left_and_the_other_starts(stage: Stage, victim: Gpr, beneficiary: Gpr) -> None:
    queued_at = victim.queued_at

    stage.after(NOTICE_S)
    stage.tick()
    assert moves_of(victim)[-1] == (S.ACTIVE, S.EXITING, EndReason.EVICTED)
    stage.say(victim, *EXIT)
    stage.tick()

    victim, beneficiary = fresh(victim), fresh(beneficiary)
    assert beneficiary.state == S.PROVISIONING
    assert (victim.state, victim.remaining_s) == (S.QUEUED, DAY_S - LEAST_RUN_S - NOTICE_S)
    assert victim.queued_at == queued_at  # its place by age
    assert victim.planned_start_at is not None  # the new estimate
    assert EvictionVictim.objects.get().outcome == VictimOutcome.EVICTED


def test_one_that_ends_by_itself_before_the_notice_is_over_was_not_evicted(stage: Stage, victim: Gpr) -> None:
    gpr_release(gpr=fresh(victim), actor=stage.owner, now=stage.after(10))

    assert EvictionVictim.objects.get().outcome == VictimOutcome.LEFT
    assert fresh(victim).end_reason == EndReason.EARLY_RELEASE


def test_when_the_other_is_canceled_it_is_spared(stage: Stage, victim: Gpr, beneficiary: Gpr) -> None:
    ends_at = victim.ends_at
    gpr_cancel(gpr=fresh(beneficiary), actor=stage.owner, now=stage.after(10))
    stage.tick()

    assert EvictionVictim.objects.get().outcome == VictimOutcome.SPARED
    assert fresh(victim).ends_at == ends_at
    assert {row.not_after_at for row in stage.held(victim)} == {ends_at}
    assert Event.objects.filter(kind="gpr.eviction_withdrawn", gpr_id=victim.pk).count() == 1


def test_it_is_not_spared_when_a_third_has_been_promised_its_gpus(stage: Stage, beneficiary: Gpr) -> None:
    third = stage.submit(make_slice(stage.cluster, owner=stage.owner), priority=40, duration_s=600)
    gpr_cancel(gpr=fresh(beneficiary), actor=stage.owner, now=stage.after(10))
    promised_at = fresh(third).promise.promised_start_at
    stage.tick()

    assert EvictionVictim.objects.get().outcome == VictimOutcome.NOTICED
    assert fresh(third).promise.promised_start_at <= promised_at
    assert Event.objects.filter(kind="promise.moved").count() == 0


def test_who_has_notice_cannot_be_extended(stage: Stage, victim: Gpr) -> None:

    with pytest.raises(Conflict, match="to be evicted"):
        gpr_extend(gpr=fresh(victim), extra_s=60, actor=stage.owner, now=stage.now)


def test_nobody_is_spared_so_late_that_its_agent_may_not_hear_of_it(stage: Stage, victim: Gpr, beneficiary: Gpr) -> None:
    """It would close by its own clock, and that would look like a failed node."""
    gpr_cancel(gpr=fresh(beneficiary), actor=stage.owner, now=stage.after(NOTICE_S - 2))
    stage.tick()

    assert EvictionVictim.objects.get().outcome == VictimOutcome.NOTICED
    stage.after(3)
    stage.tick()
    assert fresh(victim).end_reason == EndReason.EVICTED


def test_it_is_spared_when_the_other_asks_for_something_else_now(stage: Stage, victim: Gpr, beneficiary: Gpr) -> None:
    later = spec_of(fresh(beneficiary), earliest_start_at=stage.now + timedelta(days=30))
    gpr_edit(gpr=fresh(beneficiary), actor=stage.owner, spec=later, now=stage.after(5))
    stage.tick()

    assert EvictionVictim.objects.get().outcome == VictimOutcome.SPARED
    assert fresh(victim).state == S.ACTIVE


def test_one_that_cannot_be_reviewed_stops_neither_the_others_nor_the_tick(
    stage: Stage, beneficiary: Gpr, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpr_cancel(gpr=fresh(beneficiary), actor=stage.owner, now=stage.after(5))

    def broken(*args: object) -> None:
        raise RuntimeError("poison")

    monkeypatch.setattr(ExtensionTrial, "obstacle", broken)
    assert stage.tick().queued_count == 0
