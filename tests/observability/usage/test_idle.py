"""A box whose GPUs do nothing is warned, kept or released; readings that are missing or old are no idleness."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from core.errors import Conflict, IllegalTransition, NotAllowed
from gpr.idle.selectors import idleness_of
from gpr.idle.services import gpr_keep
from gpr.models import Gpr, GprState, IdleBox
from inventory.models import Reservation
from journal.models import Event
from protocol.agents.sync import IdleRelease
from protocol.assignments import Phase
from slices.policies.services import policy_change, policy_of
from tests.builders import make_user
from tests.lifecycle.stage import EXIT, Stage, fresh
from tests.observability.usage.working import count, work

pytestmark = pytest.mark.django_db

HOUR_S, TIMEOUT_S = 3600, 600  # warned after 300 and 450 s
S = GprState


@pytest.fixture
def stage() -> Stage:
    made = Stage(nodes=2, gpus=2)
    made.now = made.now.replace(second=0)
    return made


def box(stage: Stage, **asked: Any) -> Gpr:
    return stage.active(entry_s=0, **{"nodes": 1, "duration_s": 8 * HOUR_S, "idle_timeout_s": TIMEOUT_S, **asked})


def lives(stage: Stage, gpr: Gpr, minutes: int, *use: float | None) -> Gpr:
    """Its GPUs are used so much in these minutes, all but the last two of which EGS knows then."""
    for _ in range(minutes):
        work(stage, gpr, 1, lambda n: use[n % len(use)], wait_s=30)
        count(stage)
        stage.watched(30)
    return fresh(gpr)


def told(gpr: Gpr) -> list[str]:
    return list(Event.objects.filter(gpr_id=gpr.pk, kind__startswith="gpr.idle").order_by("pk").values_list("kind", flat=True))


def releases(stage: Stage) -> tuple[IdleRelease, ...] | None:
    return stage.agent.sync(at=stage.now).idle_releases


@pytest.mark.both_databases
def test_an_idle_box_is_warned_at_half_and_shortly_before_and_released_at_the_end_of_its_time_out(stage: Stage) -> None:
    gpr = lives(stage, box(stage), 6, 0, 3)
    assert told(gpr) == []

    assert releases(stage) == ()
    gpr = lives(stage, gpr, 1, 0, 3)
    assert told(gpr) == ["gpr.idle_warned"]
    idleness = idleness_of(gpr)
    assert idleness is not None
    assert releases(stage) == (IdleRelease(gpr_id=str(gpr.pk), run=gpr.run, at_s=idleness.ends_at.timestamp()),)
    gpr = lives(stage, gpr, 4, 0, 3)
    assert (told(gpr), gpr.state) == (["gpr.idle_warned"] * 2, S.ACTIVE)
    gpr = lives(stage, gpr, 1, 0, 3)

    assert (gpr.state, gpr.end_reason) == (S.EXITING, "IDLE")
    stage.say(gpr, *EXIT)
    stage.tick()
    assert (fresh(gpr).state, told(gpr)) == (S.RELEASED, ["gpr.idle_warned"] * 2)
    message = Event.objects.get(gpr_id=gpr.pk, new=S.EXITING).message
    assert message.endswith(", for 10 min.")


@pytest.mark.rotates
def test_freed_nodes_start_who_waits_at_once(stage: Stage) -> None:
    gpr = box(stage, nodes=2)
    waits = stage.submit(nodes=2, duration_s=HOUR_S)
    lives(stage, gpr, 12, 0)
    stage.say(gpr, *EXIT)

    stage.tick()

    assert fresh(waits).state == S.PROVISIONING


@pytest.mark.rotates
def test_work_of_a_single_gpu_begins_the_time_out_anew(stage: Stage) -> None:
    gpr = lives(stage, box(stage), 10, 0)
    gpr = lives(stage, gpr, 1, 0, 60)
    gpr = lives(stage, gpr, 8, 0)

    assert gpr.state == S.ACTIVE
    assert told(gpr) == ["gpr.idle_warned"] * 3  # the third one of the time-out that began with the work


@pytest.mark.parametrize("gap", [(None,), (0, None)], ids=["no reading", "no reading of one GPU"])
def test_time_without_readings_is_no_idleness(gap: tuple[float | None, ...], stage: Stage) -> None:
    gpr = lives(stage, box(stage), 9, 0)
    gpr = lives(stage, gpr, 6, *gap)
    assert (gpr.state, IdleBox.objects.count()) == (S.ACTIVE, 0)

    gpr = lives(stage, gpr, 9, 0)
    assert gpr.state == S.ACTIVE


def test_a_box_that_works_again_in_the_last_minutes_is_not_released(stage: Stage) -> None:
    """Minutes are counted some time after they passed."""
    gpr = lives(stage, box(stage), 11, 0)

    gpr = lives(stage, gpr, 2, 90)

    assert gpr.state == S.ACTIVE


def test_readings_that_are_old_release_nothing_though_the_time_out_is_over(stage: Stage) -> None:
    gpr = box(stage)
    work(stage, gpr, 12, lambda n: 0)  # EGS does not count meanwhile
    stage.after(600)

    count(stage)

    assert fresh(gpr).state == S.ACTIVE


@pytest.mark.rotates
def test_entry_and_replacement_of_a_node_are_no_idleness(stage: Stage) -> None:
    gpr = stage.submit(nodes=1, duration_s=8 * HOUR_S, idle_timeout_s=TIMEOUT_S)
    stage.tick()
    lives(stage, gpr, 3, 0)
    assert IdleBox.objects.count() == 0
    stage.say(gpr, Phase.ACTIVE)
    stage.tick()
    lives(stage, gpr, 11, 0)
    Reservation.objects.filter(gpr=gpr).update(failing_at=stage.now)

    assert lives(stage, gpr, 3, 0).state == S.ACTIVE


def test_keeping_it_begins_the_time_out_anew_for_whom_the_policy_allows_it(stage: Stage) -> None:
    gpr = lives(stage, box(stage), 10, 0)
    with pytest.raises(NotAllowed):
        gpr_keep(gpr=gpr, actor=make_user(), now=stage.now)
    gpr_keep(gpr=gpr, actor=stage.owner, now=stage.now)
    assert (told(gpr)[-1], gpr.idle_box.warned_count) == ("gpr.idle_kept", 0)
    gpr = lives(stage, gpr, 8, 0)
    assert gpr.state == S.ACTIVE

    policy_change(policy=policy_of(stage.slice), terms={"may_keep_idle": False}, actor=stage.admin, now=stage.now)
    gpr = fresh(gpr)
    with pytest.raises(NotAllowed, match="ask an administrator"):
        gpr_keep(gpr=gpr, actor=stage.owner, now=stage.now)
    gpr_keep(gpr=gpr, actor=stage.admin, now=stage.now)
    assert lives(stage, gpr, 11, 0).state == S.ACTIVE
    assert lives(stage, gpr, 2, 0).state == S.EXITING


@pytest.mark.rotates
def test_a_box_that_works_or_is_over_cannot_be_kept(stage: Stage) -> None:
    gpr = lives(stage, box(stage), 5, 80)
    with pytest.raises(Conflict):
        gpr_keep(gpr=gpr, actor=stage.owner, now=stage.now)
    gpr = lives(stage, gpr, 12, 0)
    with pytest.raises(IllegalTransition):
        gpr_keep(gpr=gpr, actor=stage.owner, now=stage.now)


@pytest.mark.rotates
def test_the_time_out_is_that_of_the_request_else_of_the_policy_and_zero_is_never(stage: Stage) -> None:
    policy_change(policy=policy_of(None), terms={"idle_timeout_s": 420}, actor=stage.admin, now=stage.now)
    by_policy = box(stage, idle_timeout_s=None)
    assert idleness_of(lives(stage, by_policy, 5, 0)).timeout_s == 420  # type: ignore[union-attr]
    assert lives(stage, by_policy, 5, 0).state == S.EXITING

    stage.say(by_policy, *EXIT)
    stage.tick()
    policy_change(policy=policy_of(None), terms={"idle_timeout_s": None}, actor=stage.admin, now=stage.now)
    never = box(stage, idle_timeout_s=0)
    assert (lives(stage, never, 9, 0).state, IdleBox.objects.count()) == (S.ACTIVE, 0)


@pytest.mark.rotates
def test_a_time_of_which_nothing_is_known_is_forgotten(stage: Stage) -> None:
    gpr = lives(stage, box(stage, duration_s=6 * 24 * HOUR_S), 5, 0)
    assert IdleBox.objects.count() == 1
    stage.after(timedelta(days=8).total_seconds())

    count(stage)

    assert (fresh(gpr).state, IdleBox.objects.count()) == (S.ACTIVE, 0)
