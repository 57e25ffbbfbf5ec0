"""The pods that wait are told to the hub when that is news, and to each that may not know."""

from __future__ import annotations

import msgspec

from tests.agent.stage import Stage
from worker_agent.protocol import PodsWaiting, Workspace, set_digest

WAITING = (PodsWaiting(namespace="red-ns", count=2),)
RED = Workspace(id="red", name="red", bindings=())


def say(stage: Stage, **changes: object) -> tuple[PodsWaiting, ...] | None:
    """One sync; what it told."""
    sent = stage.core.sync_request(0.0)
    stage.generation += 1
    stage.core.on_reply(sent, msgspec.structs.replace(stage.reply(), **changes))
    return sent.request.waiting


def test_nothing_is_told_before_the_pods_were_looked_at() -> None:
    assert say(Stage()) is None


def test_they_are_told_once_and_again_when_others_wait() -> None:
    stage = Stage()
    say(stage)
    stage.core.link.waits.see(WAITING)
    assert [say(stage), say(stage)] == [WAITING, None]

    stage.core.link.waits.see(WAITING)
    assert say(stage) is None
    stage.core.link.waits.see(())
    assert [say(stage), say(stage)] == [(), None]


def test_a_message_that_no_answer_came_to_is_told_again() -> None:
    stage = Stage()
    say(stage)
    stage.core.link.waits.see(WAITING)

    stage.core.sync_request(0.0)

    assert say(stage) == WAITING


def test_a_hub_of_another_session_and_one_that_bound_other_namespaces_hear_it_anew() -> None:
    stage = Stage()
    say(stage)
    stage.core.link.waits.see(WAITING)
    say(stage)

    stage.session_epoch = 2
    say(stage)
    assert say(stage) == WAITING
    say(stage, workspaces=(RED,), workspaces_digest=set_digest([RED]))
    assert [say(stage), say(stage)] == [WAITING, None]
