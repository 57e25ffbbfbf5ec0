"""The lane of telemetry is bounded, may lose readings, and never delays sync and events."""

from __future__ import annotations

import msgspec

from protocol.agents.registration import Credential
from protocol.gpus.telemetry import EVERY_S, GPUS_MAX, NAMES, GpuReading, TelemetryReply, TelemetryRequest
from tests.agent.stage import T0
from worker_agent.hub.dialog import Call
from worker_agent.telemetry.lane import PAUSE_S, QUEUE_MAX, TelemetryLane

CREDENTIAL = Credential(agent_id="a", cluster="c", credential="secret", cred_gen=1, expires_s=T0)


def some(count: int) -> list[GpuReading]:
    return [GpuReading("node-1", f"gpu-{n}", T0, (None,) * len(NAMES)) for n in range(count)]


def lane() -> tuple[TelemetryLane, list[str]]:
    notes: list[str] = []
    return TelemetryLane(note=lambda event, _: notes.append(event)), notes


def sent(call: Call | None) -> TelemetryRequest:
    assert call is not None
    return msgspec.json.decode(call.body, type=TelemetryRequest)


def reply(**fields: float) -> bytes:
    return msgspec.json.encode(TelemetryReply(stored=1, **fields))  # type: ignore[arg-type]


def test_readings_go_out_in_batches_and_none_twice() -> None:
    queue, _ = lane()
    queue.put(some(GPUS_MAX + 5))

    first = sent(queue.next_call(CREDENTIAL, 0))
    queue.on_answer(200, reply(), 0, 0)
    second = sent(queue.next_call(CREDENTIAL, 0))

    assert [len(first.gpus), len(second.gpus)] == [GPUS_MAX, 5]
    assert queue.next_call(CREDENTIAL, 0) is None


def test_a_full_queue_drops_the_oldest_and_says_how_many() -> None:
    queue, _ = lane()
    queue.put(some(QUEUE_MAX + 30))

    message = sent(queue.next_call(CREDENTIAL, 0))

    assert (message.dropped, message.gpus[0].gpu) == (30, "gpu-30")


def test_a_hub_that_is_overloaded_gets_no_call_until_it_said() -> None:
    queue, notes = lane()
    queue.put(some(10))
    queue.next_call(CREDENTIAL, 0)
    queue.on_answer(429, b"", 40, 0)
    queue.put(some(3))

    assert queue.next_call(CREDENTIAL, 39) is None
    assert (sent(queue.next_call(CREDENTIAL, 40)).dropped, notes) == (10, ["telemetry_refused"])


def test_without_an_answer_the_readings_are_lost_and_told_once() -> None:
    queue, notes = lane()
    for moment in (0.0, PAUSE_S, 2 * PAUSE_S):
        queue.put(some(4))
        assert queue.next_call(CREDENTIAL, moment) is not None
        queue.on_no_answer("ConnectError: refused", moment)

    assert notes == ["telemetry_refused"]


def test_the_hub_may_ask_for_longer_pauses_but_not_for_shorter_ones() -> None:
    queue, _ = lane()
    for asked_s, pause_s in ((60.0, 60.0), (0.0, EVERY_S), (1e9, 600.0)):
        queue.put(some(1))
        queue.next_call(CREDENTIAL, 0)
        queue.on_answer(200, reply(every_s=asked_s), 0, 0)
        assert queue.every_s == pause_s


def test_what_is_no_message_of_the_protocol_counts_as_no_answer() -> None:
    queue, notes = lane()
    queue.put(some(1))
    queue.next_call(CREDENTIAL, 0)
    queue.on_answer(200, b"<html>", 0, 0)

    assert notes == ["telemetry_refused"]


def test_nothing_is_sent_without_a_credential() -> None:
    queue, _ = lane()
    queue.put(some(1))

    assert queue.next_call(None, 0) is None
