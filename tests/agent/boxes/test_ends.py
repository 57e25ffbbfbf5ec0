"""The cluster hears when each open box ends, as the hub says it now, and from when on that is near."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from protocol.agents.sync import IdleRelease
from protocol.assignments import Assignment, Phase
from tests.agent.stage import T0, Stage
from worker_agent.cluster.base import BoxEnd


class Heard:
    """It keeps what the cluster was told at the last pass."""

    def __init__(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ends: Sequence[BoxEnd] = ()
        monkeypatch.setattr(stage.cluster, "publish_ends", self.take)

    def take(self, ends: Sequence[BoxEnd]) -> None:
        self.ends = ends


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def heard(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Heard:
    return Heard(stage, monkeypatch)


def tell(stage: Stage, box: Assignment, *, warn_before_s: float = 600.0) -> None:
    stage.generation += 1
    reply = msgspec.structs.replace(stage.reply(box), warn_before_s=warn_before_s)
    stage.core.on_reply(stage.core.sync_request(0.0), reply)
    stage.core.reconcile()


def opened(stage: Stage, *, duration_s: float = 3600.0) -> Assignment:
    box = stage.assignment(duration_s=duration_s)
    tell(stage, box)
    stage.run(30, until=lambda: stage.phase() is Phase.ACTIVE)
    return box


def test_the_release_of_an_idle_box_is_what_the_hub_said_last_and_nothing_before_it_spoke(stage: Stage, heard: Heard) -> None:
    box = opened(stage)
    assert [end.idle_release_s for end in heard.ends] == [None]
    idle = IdleRelease(gpr_id=box.gpr_id, run=box.run, at_s=T0 + 900)
    for releases, known in [((idle,), T0 + 900), (None, T0 + 900), ((msgspec.structs.replace(idle, run=9),), 0.0), ((idle,), T0 + 900)]:
        stage.generation += 1
        stage.core.on_reply(stage.core.sync_request(0.0), msgspec.structs.replace(stage.reply(box), idle_releases=releases))
        stage.core.reconcile()
        assert [end.idle_release_s for end in heard.ends] == [known]


def test_the_end_of_an_open_box_follows_the_word_of_the_hub(stage: Stage, heard: Heard) -> None:
    box = opened(stage)
    stage.core.reconcile()
    (end,) = heard.ends
    active_s = stage.seen().active_s
    assert active_s is not None
    assert (end.gpr_id, end.ends_s, end.is_near) == (box.gpr_id, active_s + 3600, False)

    tell(stage, msgspec.structs.replace(box, not_after_s=T0 + 9000))
    assert [end.ends_s for end in heard.ends] == [T0 + 9000]


def test_an_end_is_that_of_one_run_of_its_request(stage: Stage, heard: Heard) -> None:
    tell(stage, stage.assignment(run=2))
    stage.run(30, until=lambda: stage.phase() is Phase.ACTIVE)
    stage.core.reconcile()

    assert [end.run for end in heard.ends] == [2]


def test_an_end_is_near_as_long_before_it_as_the_hub_says_also_after_a_restart(stage: Stage, heard: Heard) -> None:
    box = opened(stage)
    now_s = stage.clock.wall()
    tell(stage, msgspec.structs.replace(box, not_after_s=now_s + 900))
    assert [end.is_near for end in heard.ends] == [False]

    tell(stage, msgspec.structs.replace(box, not_after_s=now_s + 900), warn_before_s=1200)
    assert [end.is_near for end in heard.ends] == [True]
    stage.start()
    stage.core.reconcile()
    assert [end.is_near for end in heard.ends] == [True]

    tell(stage, msgspec.structs.replace(box, not_after_s=now_s + 900), warn_before_s=0)
    assert [end.is_near for end in heard.ends] == [False]


def test_of_a_box_that_is_not_open_or_ends_now_nothing_is_told(stage: Stage, heard: Heard) -> None:
    tell(stage, stage.assignment(not_before_s=T0 + 600))
    assert not heard.ends

    box = opened(stage)
    tell(stage, msgspec.structs.replace(box, not_after_s=stage.clock.wall() - 1))
    assert not heard.ends
