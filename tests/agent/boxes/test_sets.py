"""A set of assignments counts only if it is newer, and changes only its own boxes."""

from __future__ import annotations

import hashlib

import msgspec
import pytest

from protocol.agents.listings import set_digest
from protocol.agents.sync import SyncReply
from protocol.assignments import Observed, Phase
from tests.agent.faulty import Fault
from tests.agent.stage import HUB_ID, T0, Stage, absent
from worker_agent.boxes.state import OtherWriter
from worker_agent.hub.wire import read_sync_reply


def tell_reply(stage: Stage, reply: SyncReply, raw_digest: str = "") -> None:
    stage.core.on_reply(stage.core.sync_request(0.0), reply, raw_digest)


def active(stage: Stage) -> None:
    stage.tell(stage.assignment())
    stage.run(3)
    assert stage.phase() is Phase.ACTIVE


def test_missing_is_not_released() -> None:
    stage = Stage()
    active(stage)
    stage.tell()
    stage.run(20)
    assert stage.open_to() == {"red"}
    stage.run(60)
    assert stage.phase() is Phase.RELEASED


def test_what_the_hub_no_longer_lists_is_not_begun() -> None:
    stage = Stage()
    stage.tell(stage.assignment(not_before_s=T0 + 2))
    stage.tell()
    stage.run(10)
    assert stage.gpu_phases() == set()


@pytest.mark.parametrize("lie", [{"count": 3}, {"digest": "0" * 64}, {"assignments": ()}])
def test_a_set_whose_count_or_digest_does_not_agree_changes_nothing_and_renews_no_lease(lie: dict[str, object]) -> None:
    stage = Stage()
    stage.tell()
    stage.advance(44)
    stage.generation += 1
    tell_reply(stage, msgspec.structs.replace(stage.reply(absent(stage.assignment()), stage.assignment(1)), **lie))
    assert stage.core.observed == ()
    assert stage.core.sync_request(0.0).request.have_digest == ""
    stage.advance(2)
    assert "no word" in stage.core.link.entry_block()


def test_an_unchanged_set_renews_the_lease_without_being_sent() -> None:
    stage = Stage()
    stage.tell(stage.assignment(not_before_s=T0 + 70))
    stage.advance(44)
    request = stage.core.sync_request(0.0).request
    assert request.have_digest == set_digest([stage.assignment(not_before_s=T0 + 70)])
    tell_reply(stage, msgspec.structs.replace(stage.reply(), assignments=None, count=1, digest=request.have_digest))
    stage.advance(30)
    assert stage.core.link.entry_block() == ""


def test_an_unchanged_set_with_another_digest_asks_for_the_whole() -> None:
    stage = Stage()
    stage.tell(stage.assignment(not_before_s=T0 + 70))
    tell_reply(stage, msgspec.structs.replace(stage.reply(), assignments=None, digest="0" * 64))
    assert stage.core.sync_request(0.0).request.have_digest == ""


def test_fields_of_a_newer_hub_are_ignored_but_counted_in_the_digest() -> None:
    stage = Stage()
    plain = msgspec.to_builtins(stage.assignment())
    newer = [plain | {"colour": "red", "topology": {"rings": 2}}]
    raw = msgspec.json.encode(newer)
    body = msgspec.json.encode(
        msgspec.to_builtins(stage.reply()) | {"assignments": newer, "count": 1, "digest": hashlib.sha256(raw).hexdigest(), "mood": "good"}
    )
    received = read_sync_reply(body)
    tell_reply(stage, received.reply, received.raw_digest)
    stage.run(3)
    assert stage.phase() is Phase.ACTIVE


@pytest.mark.parametrize("hub_id", [HUB_ID, "hub-2"])
def test_after_a_rewind_nothing_begins_and_every_known_end_is_kept(hub_id: str) -> None:
    stage = Stage()
    active(stage)
    stage.tell(stage.assignment(), generation=50)
    stage.tell(stage.assignment(duration_s=9e9), stage.assignment(1, slice="blue"), generation=40, hub_id=hub_id)
    assert stage.core.sync_request(0.0).request.known_generation == 50
    stage.run(30)
    assert stage.open_to(0) == {"red"}
    assert stage.gpu_phases(1) == set()
    stage.run(40)
    assert stage.phase() is Phase.RELEASED

    stage.tell(stage.assignment(1, slice="blue", gpr_id="gpr-2"), generation=51, hub_id=hub_id)
    stage.run(3)
    assert stage.open_to(1) == {"blue"}


def test_a_rewound_hub_may_still_end_something() -> None:
    stage = Stage()
    active(stage)
    stage.tell(stage.assignment(), generation=50)
    stage.tell(absent(stage.assignment()), generation=40)
    stage.run(5)
    assert stage.phase() is Phase.RELEASED


def test_once_absent_always_absent() -> None:
    stage = Stage()
    one = stage.assignment(not_before_s=T0 + 1)
    stage.tell(absent(one))
    stage.tell(one)
    stage.run(5)
    assert stage.cluster.history == []


def test_an_answer_overtaken_by_a_later_one_has_no_effect_and_is_no_rewind() -> None:
    stage = Stage()
    early = stage.core.sync_request(0.0)
    stage.generation = 3
    late_reply = stage.reply(stage.assignment())
    stage.advance(1)
    stage.tell(absent(stage.assignment()), generation=4)
    stage.core.on_reply(early, late_reply)
    assert stage.core.link.entry_block() == ""
    stage.run(5)
    assert stage.cluster.history == []


def test_an_assignment_that_was_begun_does_not_change_its_node_or_epoch() -> None:
    stage = Stage()
    active(stage)
    stage.tell(stage.assignment(epoch=9))
    stage.run(2)
    assert "assignment_changed" in stage.notes
    assert stage.open_to() == {"red"}
    assert stage.observed() == stage.observed("a0")
    seen = stage.seen()
    assert seen.epoch == 1


def test_what_is_not_durable_is_not_told() -> None:
    stage = Stage()
    stage.choose = lambda call: Fault.ERROR if call == "save_state" else None
    stage.tell(stage.assignment())
    request = stage.core.sync_request(0.0).request
    assert (request.known_generation, request.observed) == (0, ())


def test_a_save_whose_answer_was_lost_is_recognized_as_our_own() -> None:
    stage = Stage()
    faults = iter([Fault.LOST_ANSWER, Fault.LOST_ANSWER])
    stage.choose = lambda call: next(faults, None) if call == "save_state" else None
    stage.tell(stage.assignment())
    stage.run(4)
    assert stage.phase() is Phase.ACTIVE


def test_a_second_agent_on_the_same_cluster_makes_the_first_one_stop() -> None:
    stage = Stage()
    stage.tell(stage.assignment(not_before_s=T0 + 5))
    first = stage.core
    stage.start()
    stage.tell(stage.assignment(not_before_s=T0 + 5))
    stage.run(8)
    with pytest.raises(OtherWriter):
        first.on_reply(first.sync_request(0.0), stage.reply())


def test_an_agent_that_slept_through_an_extension_given_to_its_successor_does_not_close() -> None:
    stage = Stage()
    active(stage)
    sleeper = stage.core
    stage.start()
    stage.tell(stage.assignment(not_after_s=T0 + 500))
    stage.run(1)
    stage.advance(100)
    with pytest.raises(OtherWriter):
        sleeper.reconcile()
    assert stage.open_to() == {"red"}


def test_events_are_numbered_from_one_in_each_session_and_sent_until_stored() -> None:
    stage = Stage()
    active(stage)
    first = stage.core.pending_events()
    assert [event.seq for event in first] == list(range(1, len(first) + 1))
    stage.core.acknowledge(session_epoch=1, stored_seq=2)
    assert [event.seq for event in stage.core.pending_events()] == list(range(3, len(first) + 1))
    stage.session_epoch = 2
    stage.tell(stage.assignment())
    again = stage.core.pending_events()
    assert [event.seq for event in again] == list(range(1, len(again) + 1))
    stage.core.acknowledge(session_epoch=1, stored_seq=99)
    assert stage.core.pending_events() == again


def test_steps_that_the_hub_has_not_stored_survive_a_restart() -> None:
    stage = Stage()
    active(stage)
    stage.start()
    stage.tell(stage.assignment())
    assert [event.step for event in stage.take_events()] == ["claim", "node_ready", "gpu_count", "open"]


def test_the_inventory_comes_at_the_start_of_a_session_on_change_and_every_ten_minutes() -> None:
    stage = Stage()

    def inventories() -> int:
        stage.core.reconcile()
        events = stage.core.pending_events()
        if events:
            stage.core.acknowledge(session_epoch=stage.session_epoch, stored_seq=events[-1].seq)
        return sum(not hasattr(event, "step") for event in events)

    stage.tell()
    assert (inventories(), inventories()) == (1, 0)
    del stage.cluster.world.nodes[stage.views[1].name]
    assert (inventories(), inventories()) == (1, 0)
    stage.advance(601)
    assert (inventories(), inventories()) == (1, 0)
    stage.session_epoch = 2
    stage.tell()
    assert (inventories(), inventories()) == (1, 0)


def test_why_an_assignment_waits_is_told_in_words_that_stay_the_same() -> None:
    stage = Stage()
    stage.tell(stage.assignment(not_before_s=T0 + 60))
    told: set[Observed] = set()
    for _ in range(20):
        stage.run(0.5)
        told.update(stage.core.observed)
    assert [seen.failure for seen in told] == ["its window has not begun"]
