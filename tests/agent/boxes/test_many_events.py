"""The agent reports the outcome of each step, however many end at once; its queue for an absent hub is bounded, in memory and in the
document.
"""

from __future__ import annotations

import base64
import random
import zlib
from collections import Counter

import msgspec
import pytest

from protocol.agents.events import Outcome, StepEvent
from protocol.assignments import Phase
from tests.agent.boxes.test_results_kept import Shelf, event
from tests.agent.stage import Stage, small_fleet
from worker_agent.boxes import state
from worker_agent.boxes.state import EVENTS_HELD, EVENTS_KEPT, RESULTS_HELD, State, StateStore
from worker_agent.hub.outbox import EventOutbox

OBJECT_MAX_BYTES = 1024 * 1024  # what Kubernetes takes
BOXES = 120  # more in one pass than the document keeps events


def of_steps(seqs: range, *, results: int = 0, log: str = "") -> list[StepEvent]:
    return [msgspec.structs.replace(event(seq, results), log=log) for seq in seqs]


def test_each_step_of_many_boxes_that_begin_and_end_at_once_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "EVENTS_KEPT", 100)
    stage = Stage(small_fleet(count=BOXES))
    stage.tell()
    stage.core.reconcile()
    stage.tell(*(stage.assignment(node, gpr_id=f"g{node}", entry_steps=("node_ready",), duration_s=30.0) for node in range(BOXES)))
    told: Counter[str] = Counter()

    for _ in range(600):
        stage.core.reconcile()
        stage.advance(0.25)
        while events := stage.take_events():
            told.update(event.step for event in events)
        if all(seen.phase is Phase.RELEASED for seen in stage.core.observed):
            break

    assert told == dict.fromkeys(("claim", "node_ready", "open", "close", "drain", "gpu_idle", "release"), BOXES)


@pytest.mark.parametrize(("results", "kept"), [(0, EVENTS_HELD), (100, RESULTS_HELD // 100)])
def test_while_the_hub_is_away_the_oldest_make_room(results: int, kept: int) -> None:
    memory = StateStore(Shelf(), note=lambda *_: None)  # type: ignore[arg-type]
    one = event(0, results)
    memory.state.events = [msgspec.structs.replace(one, attempt=number) for number in range(kept + 7)]

    dropped = memory.drop_surplus()

    assert [each.attempt for each in dropped] == list(range(7))
    assert [each.attempt for each in memory.state.events] == list(range(7, kept + 7))
    assert memory.drop_surplus() == []


def test_of_what_was_dropped_nothing_is_told_but_what_the_hub_may_know_by_its_number() -> None:
    outbox = EventOutbox()
    outbox.open_session(7, 0.0)
    steps = of_steps(range(300))
    outbox.add_steps(steps)
    handed = outbox.pending()

    outbox.drop(steps[:250])

    assert outbox.pending() == handed
    outbox.acknowledge(handed[-1].seq)
    rest = outbox.pending()
    assert [each.seq for each in rest] == list(range(len(handed) + 1, len(handed) + 51))
    assert [each.attempt for each in rest if isinstance(each, StepEvent)] == list(range(250, 300))
    outbox.add_steps(steps[250:])
    assert outbox.pending() == rest


def test_what_is_written_down_of_the_events_fits_into_one_object_whatever_is_in_them() -> None:
    """The newest events keep their words, the oldest lose them. The object also has room for what four thousand boxes need."""
    shelf, rng = Shelf(), random.Random(1)  # words that nothing can compress
    memory = StateStore(shelf, note=lambda *_: None)  # type: ignore[arg-type]
    memory.state.events = [
        msgspec.structs.replace(
            each, log=f"{rng.getrandbits(16_000):x}", assignment_id=f"{rng.getrandbits(128):032x}", started_s=rng.random()
        )
        for each in of_steps(range(EVENTS_KEPT + 1), results=10)
    ]

    assert memory.save()

    assert shelf.doc is not None
    assert len(base64.b64encode(zlib.compress(shelf.doc.body))) < OBJECT_MAX_BYTES / 2
    kept = msgspec.json.decode(shelf.doc.body, type=State).events
    assert [each.attempt for each in kept] == list(range(1, EVENTS_KEPT + 1))
    assert kept[-1] == memory.state.events[-1]
    assert (kept[0].log, kept[0].results) == ("", ())


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "EVENTS_KEPT", 5)
    monkeypatch.setattr(state, "EVENTS_HELD", 10)


def ended_while_the_hub_was_away() -> Stage:
    stage = Stage(small_fleet(count=6))
    boxes = [stage.assignment(node, gpr_id=f"g{node}", entry_steps=(), duration_s=30.0) for node in range(6)]
    stage.tell(*boxes)
    stage.run(90, until=lambda: all(seen.phase is Phase.RELEASED for seen in stage.core.observed))
    return stage


@pytest.mark.usefixtures("little_room")
def test_how_far_each_box_is_and_when_it_began_and_ended_is_told_whatever_was_dropped_and_lost() -> None:
    """The hub goes on by this, not by what was reported of each step."""
    stage = ended_while_the_hub_was_away()

    stage.start()
    stage.core.reconcile()

    assert len(stage.core.observed) == 6
    for seen in stage.core.observed:
        assert (seen.phase, seen.active_s is not None, seen.exit_began_s is not None) == (Phase.RELEASED, True, True)


@pytest.mark.usefixtures("little_room")
def test_what_counts_against_a_node_is_dropped_last_of_all() -> None:
    """The hub sets the node aside by it, or the next box would get the node."""
    shelf = Shelf()
    memory = StateStore(shelf, note=lambda *_: None)  # type: ignore[arg-type]
    passed = of_steps(range(20))
    failed = [msgspec.structs.replace(event(100 + number, 0), outcome=Outcome.FAILED) for number in range(3)]
    drain = msgspec.structs.replace(event(200, 0), step="drain", outcome=Outcome.FAILED)  # of which there may be any number
    memory.state.events = [*failed, drain, *passed]

    dropped = memory.drop_surplus()
    assert memory.state.events == [*failed, *passed[13:]]
    assert dropped == [drain, *passed[:13]]

    assert memory.save()
    assert StateStore(shelf, note=lambda *_: None).state.events == [*failed, *passed[18:]]  # type: ignore[arg-type]


@pytest.mark.usefixtures("little_room")
def test_the_hub_is_told_once_how_many_steps_it_will_never_hear_of() -> None:
    """It counts those that there was no room for, and those that a restart lost."""
    stage = ended_while_the_hub_was_away()
    happened = 6 * len(("claim", "open", "close", "drain", "gpu_idle", "release"))
    assert stage.core.sync_request(0.0).request.steps_lost == happened - 10

    stage.start()
    stage.core.reconcile()
    first, second = stage.core.sync_request(0.0), stage.core.sync_request(0.0)
    assert first.request.steps_lost == happened - 5
    stage.core.on_reply(first, stage.reply())
    stage.core.on_reply(second, stage.reply())  # what was asked at once
    assert stage.core.sync_request(0.0).request.steps_lost == 0

    assert len(stage.take_events()) == 5
    stage.start()
    assert stage.core.sync_request(0.0).request.steps_lost == 0
