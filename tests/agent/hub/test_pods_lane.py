"""The lane of pods: changes alone, again when they were lost, and all anew for a hub that has forgotten."""

from __future__ import annotations

import msgspec

from protocol.agents.registration import Credential
from protocol.pods import PODS_MAX, PodSeen, PodsReply, PodsRequest
from tests.agent.stage import T0
from worker_agent.hub.dialog import Call
from worker_agent.hub.pods import PAUSE_S, WHOLE_EVERY_S, PodsLane

CREDENTIAL = Credential(agent_id="a", cluster="c", credential="secret", cred_gen=1, expires_s=T0)


def some(count: int, **fields: object) -> list[PodSeen]:
    return [PodSeen(uid=f"u{n}", namespace="red", name=f"p{n}", **fields) for n in range(count)]  # type: ignore[arg-type]


def lane(*pods: PodSeen) -> PodsLane:
    made = PodsLane(note=lambda *_: None)
    made.see(pods, 1)
    return made


def sent(call: Call | None) -> PodsRequest:
    assert call is not None
    return msgspec.json.decode(call.body, type=PodsRequest)


def take(made: PodsLane, mono: float = 0.0, *, again: bool = False) -> PodsRequest:
    message = sent(made.next_call(CREDENTIAL, mono))
    made.on_answer(200, msgspec.json.encode(PodsReply(again=again)), 0, mono)
    return message


def test_all_are_told_once_in_batches_and_then_changes_alone() -> None:
    made = lane(*some(PODS_MAX + 5))
    assert [len(take(made).pods), len(take(made).pods)] == [PODS_MAX, 5]
    assert made.next_call(CREDENTIAL, 0) is None

    made.see([*some(1, phase="Running"), *some(PODS_MAX)[1:]], 1)
    message = take(made)

    assert [pod.uid for pod in message.pods] == ["u0"]
    assert set(message.gone) == {f"u{PODS_MAX + n}" for n in range(5)}


def test_a_call_without_an_answer_is_made_again_after_a_pause() -> None:
    made = lane(*some(2))
    made.next_call(CREDENTIAL, 0)
    made.on_no_answer("no route", 0)

    assert made.next_call(CREDENTIAL, PAUSE_S - 1) is None
    assert len(take(made, PAUSE_S).pods) == 2


def test_all_uids_are_told_at_first_and_now_and_then_and_to_a_hub_that_lost_some_all_pods() -> None:
    made = lane(*some(2))
    assert take(made).there == ("u0", "u1")
    assert made.next_call(CREDENTIAL, WHOLE_EVERY_S - 1) is None
    assert take(made, WHOLE_EVERY_S, again=True).pods == ()
    assert len(take(made, WHOLE_EVERY_S + PAUSE_S).pods) == 2


def test_a_new_session_is_told_all_and_without_one_nothing_is() -> None:
    made = lane(*some(2))
    take(made)
    made.see(some(2), 0)
    assert made.next_call(CREDENTIAL, 0) is None
    made.see(some(2), 2)
    assert len(take(made).pods) == 2
