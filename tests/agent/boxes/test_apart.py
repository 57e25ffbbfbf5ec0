"""A fault of the agent's own, in the work on one box or in one part of a pass, is logged and told; all others have their turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from protocol.agents.events import Outcome, StepEvent
from protocol.assignments import Assignment, Phase
from tests.agent.stage import EXIT, Stage, absent, small_fleet
from worker_agent.boxes.entry import Entries
from worker_agent.boxes.exit import Exits
from worker_agent.cluster.base import NodeChange, StepCall, WriteKind

BAD, BYSTANDER = "a0", "b1"


def two_boxes(stage: Stage) -> tuple[Assignment, Assignment]:
    return stage.assignment(0), stage.assignment(1, id=BYSTANDER, gpr_id="gpr-2", gpr_name="other", slice="blue")


def at_work() -> tuple[Stage, Assignment, Assignment]:
    stage = Stage(small_fleet(count=3))
    bad, bystander = two_boxes(stage)
    stage.tell(bad, bystander)
    stage.run(10, until=lambda: all(seen.phase is Phase.ACTIVE for seen in stage.core.observed))
    stage.take_events()
    return stage, bad, bystander


def breaks_for_bad(real: Callable[..., Any], of: Callable[..., str]) -> Callable[..., Any]:
    def call(*args: Any, **more: Any) -> Any:
        if of(*args) == BAD:
            raise TypeError("nobody thought of this")
        return real(*args, **more)

    return call


def told(stage: Stage) -> list[StepEvent]:
    return [event for event in stage.take_events() if event.assignment_id == BAD and event.outcome is Outcome.FAILED]


@pytest.mark.parametrize("part", ["lift_gates", "repair_drift", "record_life_marks", "publish_ends", "order_nodes", "prepare_close"])
def test_a_part_of_a_pass_that_breaks_keeps_no_box_from_its_end_and_nothing_from_the_hub(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, _, bystander = at_work()

    def broken(*args: object, **more: object) -> None:
        raise TypeError("nobody thought of this")

    monkeypatch.setattr(stage.cluster, part, broken)
    node = stage.cluster.world.nodes.pop(stage.views[2].name)
    stage.tell(stage.assignment(0), absent(bystander))
    stage.run(10)

    assert stage.phase(BYSTANDER) is Phase.RELEASED
    stage.take_events()
    assert node.view.name not in {view.name for view in stage.inventory}
    assert "broke" in stage.notes


@pytest.mark.parametrize("step", EXIT)
def test_an_exit_step_that_breaks_is_told_and_other_boxes_leave(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage, bad, bystander = at_work()

    def of(call: StepCall) -> str:
        return call.assignment.id if call.step == step else ""

    monkeypatch.setattr(stage.cluster, "run", breaks_for_bad(stage.cluster.run, of))
    stage.tell(absent(bad), absent(bystander))
    stage.run(10)

    assert (stage.phase(BAD), stage.phase(BYSTANDER)) == (Phase.EXITING, Phase.RELEASED)
    failed = told(stage)
    assert {event.step for event in failed} == {step}
    assert all("TypeError: nobody thought of this" in event.log and not event.blames_node for event in failed)

    monkeypatch.undo()
    stage.run(35)
    assert stage.phase(BAD) is Phase.RELEASED


def test_an_entry_check_that_breaks_fails_its_box_blames_no_node_and_others_enter(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(small_fleet(count=3))
    monkeypatch.setattr(stage.cluster, "run", breaks_for_bad(stage.cluster.run, lambda call: call.assignment.id))
    stage.tell(*two_boxes(stage))
    stage.run(10)

    assert stage.phase(BYSTANDER) is Phase.ACTIVE
    assert "Node ready failed 2 times" in stage.seen(BAD).failure
    assert {event.blames_node for event in told(stage)} == {False}


@pytest.mark.parametrize("kind", [WriteKind.ISOLATE, WriteKind.OPEN, WriteKind.CLOSE, WriteKind.RELEASE])
def test_a_write_that_breaks_for_one_node_is_made_for_the_others(kind: WriteKind, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(small_fleet(count=3))
    bad, bystander = two_boxes(stage)
    real = stage.cluster.write

    def write(asked: WriteKind, changes: Sequence[NodeChange]) -> Any:
        if asked is kind and any(seen.view.name == bad.node for seen, _ in changes):
            raise TypeError("nobody thought of this")
        return real(asked, changes)

    # All nodes at once, as the driver for Kubernetes does.
    monkeypatch.setattr(stage.core._actions, "_cluster", stage.cluster)
    monkeypatch.setattr(stage.cluster, "write", write)
    stage.tell(bad, bystander)
    stage.run(10)
    stage.tell(absent(bad), absent(bystander))
    stage.run(10)

    assert stage.phase(BYSTANDER) is Phase.RELEASED


@pytest.mark.parametrize(("stages", "method"), [(Exits, "_release"), (Exits, "_is_there"), (Exits, "_close")])
def test_one_box_s_exit_that_breaks_holds_up_no_other_s_and_is_told_once(
    stages: type[Any], method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, bad, bystander = at_work()
    real = getattr(stages, method)
    monkeypatch.setattr(stages, method, breaks_for_bad(real, lambda _, assignment, progress: assignment.id))
    stage.tell(absent(bad), absent(bystander))
    stage.run(10)

    assert stage.phase(BYSTANDER) is Phase.RELEASED
    (event,) = told(stage)
    assert (event.step, event.blames_node) == ("exit", False)
    assert "TypeError: nobody thought of this" in event.log


@pytest.mark.parametrize("method", ["_isolate", "_check"])
def test_one_box_s_entry_that_breaks_holds_up_no_other_s(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(small_fleet(count=3))
    monkeypatch.setattr(Entries, method, breaks_for_bad(getattr(Entries, method), lambda _, assignment, *rest: assignment.id))
    stage.tell(*two_boxes(stage))
    stage.run(10)

    assert stage.phase(BYSTANDER) is Phase.ACTIVE
    assert [event.step for event in told(stage)] == ["entry"]


@pytest.mark.parametrize("method", ["mark_active", "_opens"])
def test_one_box_s_opening_that_breaks_holds_up_no_other_s(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(small_fleet(count=3))
    monkeypatch.setattr(Entries, method, breaks_for_bad(getattr(Entries, method), lambda _, box: box[0][0].id))
    stage.tell(*two_boxes(stage))
    stage.run(10)

    assert stage.phase(BYSTANDER) is Phase.ACTIVE
    assert [event.step for event in told(stage)] == ["open"]


def test_a_box_of_which_nothing_can_be_decided_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, bad, bystander = at_work()
    monkeypatch.setattr(stage.core, "_decide_end", breaks_for_bad(stage.core._decide_end, lambda assignment, *rest: assignment.id))
    monkeypatch.setattr(stage.core._actions, "reflect", breaks_for_bad(stage.core._actions.reflect, lambda assignment, _: assignment.id))
    stage.tell(bad, absent(bystander))
    stage.run(10)

    assert stage.phase(BYSTANDER) is Phase.RELEASED
    assert {event.step for event in told(stage)} == {"reflect", "end"}


def test_a_box_whose_end_cannot_be_decided_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(small_fleet(count=3))
    monkeypatch.setattr(stage.core, "_decide_end", breaks_for_bad(stage.core._decide_end, lambda assignment, *rest: assignment.id))
    stage.tell(*two_boxes(stage))
    stage.run(10)

    assert stage.phase(BYSTANDER) is Phase.ACTIVE
    assert stage.phase(BAD) is not Phase.ACTIVE
