"""The dialog decides the agent's next message to the hub, and interprets answers."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
import pytest

from inventory.services.agents import RENEWAL_GRACE
from protocol.agents.events import EVENTS_PATH, EventsReply, EventsRequest
from protocol.agents.registration import REGISTER_PATH, RENEW_PATH, Credential, RegisterRequest, RenewRequest
from protocol.agents.sync import SYNC_PATH, SyncRequest
from protocol.agents.transport import Code, Problem
from protocol.assignments import Phase
from tests.agent.faulty import Fault
from tests.agent.stage import Stage
from worker_agent.hub.dialog import REFUSED_PATIENCE_S, Call, Dialog, Lane, Stop

POLL, PUSH = Lane.POLL, Lane.PUSH


class Talk(Stage):
    """The agent of this stage talks through its dialog."""

    def __init__(self, token: str = "join-1") -> None:
        self.token = token
        super().__init__()

    def start(self) -> None:
        super().start()
        self.dialog = Dialog(
            core=self.core,
            cluster_uid=self.cluster.uid(),
            join_token=lambda: self.token,
            clock=self.clock,
            rng=random.Random(1),
            note=lambda event, _: self.notes.append(event),
        )

    def call(self, lane: Lane = POLL) -> Call:
        call = self.dialog.next_call(lane)
        assert isinstance(call, Call)
        return call

    def credential(self, number: int = 1, life_s: float = 1000.0) -> bytes:
        return msgspec.json.encode(
            Credential(agent_id="a", cluster="c", credential=f"cred-{number}", cred_gen=number, expires_s=self.hub_clock.wall() + life_s)
        )

    def join(self) -> None:
        self.dialog.on_answer(POLL, self.call(), 201, self.credential())
        self.answer_sync(self.call())

    def answer_sync(self, call: Call, lane: Lane = POLL) -> None:
        self.dialog.on_answer(lane, call, 200, msgspec.json.encode(self.reply()))

    def refuse(self, call: Call, status: int, code: str, lane: Lane = POLL) -> None:
        body = msgspec.json.encode(Problem(status=status, code=code, detail=f"because {code}"))
        self.dialog.on_answer(lane, call, status, body)


def test_a_new_agent_registers_then_asks_for_a_session_then_waits_long() -> None:
    talk = Talk()
    register = talk.call()
    assert register.path == REGISTER_PATH
    message = msgspec.json.decode(register.body, type=RegisterRequest)
    assert (message.join_token, message.cluster_uid) == ("join-1", talk.fleet.cluster_uid)
    talk.dialog.on_answer(POLL, register, 201, talk.credential())

    first = talk.call()
    assert (first.path, first.bearer) == (SYNC_PATH, "cred-1")
    asked = msgspec.json.decode(first.body, type=SyncRequest)
    assert (asked.session_epoch, asked.wait_s) == (0, 0.0)
    talk.answer_sync(first)

    asked = msgspec.json.decode(talk.call().body, type=SyncRequest)
    assert asked.session_epoch == 1
    assert 16.0 <= asked.wait_s <= 20.0


def test_a_register_whose_answer_was_lost_is_repeated_by_the_same_install_even_after_a_restart() -> None:
    talk = Talk()
    first = msgspec.json.decode(talk.call().body, type=RegisterRequest)
    talk.start()
    second = msgspec.json.decode(talk.call().body, type=RegisterRequest)
    assert first.install_id == second.install_id


def test_a_restart_needs_no_join_token() -> None:
    talk = Talk()
    talk.join()
    talk.token = ""
    talk.start()
    assert talk.call().bearer == "cred-1"


def test_a_credential_that_could_not_be_saved_at_once_is_used_later_and_not_asked_for_again() -> None:
    talk = Talk()
    register = talk.call()
    talk.choose = lambda call: Fault.ERROR if call == "save_state" else None
    talk.dialog.on_answer(POLL, register, 201, talk.credential())
    assert not isinstance(talk.dialog.next_call(POLL), Call)
    assert talk.dialog.stop is None
    talk.choose = lambda _: None
    talk.core.reconcile()
    assert talk.call().bearer == "cred-1"


def test_a_credential_is_renewed_at_half_its_life_and_used_only_once_it_is_durable() -> None:
    talk = Talk()
    talk.join()
    talk.advance(499)
    assert talk.call().path == SYNC_PATH
    talk.advance(2)
    renew = talk.call()
    assert (renew.path, renew.bearer) == (RENEW_PATH, "cred-1")
    assert msgspec.json.decode(renew.body, type=RenewRequest).cred_gen == 1
    talk.choose = lambda call: Fault.ERROR if call == "save_state" else None
    talk.dialog.on_answer(POLL, renew, 200, talk.credential(2))
    credential = talk.core.credential
    assert credential
    assert credential.credential == "cred-1"
    talk.choose = lambda _: None
    talk.core.reconcile()
    assert talk.call().bearer == "cred-2"
    talk.start()
    assert talk.call().bearer == "cred-2"


def test_two_credentials_are_never_on_the_way_at_once() -> None:
    talk = Talk()
    talk.join()
    talk.core.reconcile()
    talk.advance(600)
    talk.core.link.session_epoch = 1
    push = Call(EVENTS_PATH, b"", 1.0, bearer="cred-1")
    talk.dialog._lanes[PUSH].is_busy = True
    assert not isinstance(talk.dialog.next_call(POLL), Call)  # waits for the other lane
    talk.dialog.on_no_answer(PUSH, push, "time-out")
    assert talk.call().path == RENEW_PATH
    talk.advance(60)
    assert not isinstance(talk.dialog.next_call(PUSH), Call)  # waits for the renewal


def test_news_goes_out_while_a_sync_is_parked() -> None:
    talk = Talk()
    talk.join()
    parked = talk.call()
    talk.tell(talk.assignment())
    talk.run(3)
    events = talk.call(PUSH)
    assert events.path == EVENTS_PATH
    sent = msgspec.json.decode(events.body, type=EventsRequest)
    talk.dialog.on_answer(PUSH, events, 200, msgspec.json.encode(EventsReply(stored_seq=sent.events[-1].seq)))
    push = msgspec.json.decode(talk.call(PUSH).body, type=SyncRequest)
    assert (push.wait_s, push.observed[0].phase) == (0.0, Phase.ACTIVE)
    assert parked.sent
    assert parked.sent.request.observed == ()


def test_what_was_told_in_a_sync_that_failed_is_told_again() -> None:
    talk = Talk()
    talk.join()
    talk.tell(talk.assignment())
    talk.take_events()
    push = talk.call(PUSH)
    talk.dialog.on_no_answer(PUSH, push, "reset")
    talk.advance(1.1)
    assert talk.call(PUSH).path == SYNC_PATH


def test_errors_are_answered_with_longer_and_longer_pauses_of_at_most_half_a_minute() -> None:
    talk = Talk()
    most: list[float] = []
    for _ in range(200):
        talk.dialog.on_no_answer(POLL, talk.call(), "down")
        pause = talk.dialog.next_call(POLL)
        assert isinstance(pause, float)
        most.append(pause)
        talk.advance(pause + 0.001)
    assert max(most[:1]) <= 1.0
    assert 25.0 < max(most) <= 30.0
    assert min(most[20:]) < 5.0  # full jitter: not all agents come back at once


def test_retry_after_is_obeyed() -> None:
    talk = Talk()
    talk.dialog.on_answer(POLL, talk.call(), 503, b"overloaded", 17.0)
    pause = talk.dialog.next_call(POLL)
    assert isinstance(pause, float)
    assert pause >= 16.9


def test_an_agent_that_is_superseded_stops() -> None:
    talk = Talk()
    talk.join()
    talk.refuse(talk.call(), 409, Code.SUPERSEDED)
    assert talk.dialog.stop is Stop.SUPERSEDED


REFUSALS = pytest.mark.parametrize("code", [Code.BAD_TOKEN, Code.WRONG_CLUSTER])


@REFUSALS
def test_a_refused_agent_stays_says_once_what_the_hub_said_and_asks_on_at_a_pace_of_minutes(code: str) -> None:
    """An agent that ended would be started anew and ask at once: that is a crash loop."""
    talk = Talk()
    asked_s: list[float] = []
    while talk.clock.mono() < 500.0 + 600.0:
        call = talk.dialog.next_call(POLL)
        if isinstance(call, Call):
            asked_s.append(talk.clock.mono())
            talk.refuse(call, 401, code)
        talk.run(5)

    assert talk.dialog.stop is None
    assert talk.dialog.refusal == f"because {code}"
    assert talk.notes.count("refused") == 1
    assert 4 <= len(asked_s) <= 6


@REFUSALS
def test_a_new_join_token_ends_the_wait_of_a_refused_agent(code: str) -> None:
    talk = Talk()
    talk.refuse(talk.call(), 401, code)
    talk.run(5)
    assert not isinstance(talk.dialog.next_call(POLL), Call)

    talk.token = "join-2"
    again = talk.call()
    assert b"join-2" in again.body

    talk.dialog.on_no_answer(POLL, again, "down")  # the next try waits as ever
    assert not isinstance(talk.dialog.next_call(POLL), Call)
    talk.advance(31)
    talk.refuse(talk.call(), 401, code)
    assert talk.notes.count("refused") == 2  # of each token once
    talk.advance(60)
    assert not isinstance(talk.dialog.next_call(POLL), Call)


def test_after_a_new_join_token_neither_lane_waits_for_what_the_old_credential_was_refused() -> None:
    talk = Talk()
    talk.join()
    talk.tell(talk.assignment())
    talk.run(3)
    talk.refuse(talk.call(), 401, Code.BAD_TOKEN)
    talk.advance(200)
    talk.refuse(talk.call(PUSH), 401, Code.BAD_TOKEN, PUSH)
    assert not isinstance(talk.dialog.next_call(PUSH), Call)

    talk.token = "join-2"
    talk.refuse(talk.call(), 401, Code.BAD_TOKEN)
    talk.advance(1.1)
    talk.dialog.on_answer(POLL, talk.call(), 201, talk.credential(2))
    talk.answer_sync(talk.call())

    assert talk.call(PUSH).bearer == "cred-2"


def test_an_agent_without_a_join_token_waits_until_there_is_one() -> None:
    talk = Talk(token="")
    for _ in range(20):
        assert not isinstance(talk.dialog.next_call(POLL), Call)
    assert (talk.dialog.stop, talk.notes.count("refused")) == (None, 1)

    talk.token = "join-1"

    assert talk.call().path == REGISTER_PATH


def test_a_refused_agent_that_holds_nodes_keeps_their_end() -> None:
    talk = Talk()
    talk.join()
    talk.tell(talk.assignment())
    talk.run(3)
    talk.token = ""
    talk.start()
    talk.run(0.25)
    talk.refuse(talk.call(), 401, Code.BAD_TOKEN)

    talk.run(70)

    assert talk.phase() is Phase.RELEASED
    assert talk.dialog.stop is None


def test_an_agent_whose_credential_is_refused_joins_anew_as_soon_as_it_has_a_fresh_join_token() -> None:
    talk = Talk()
    talk.join()
    for _ in range(30):
        call = talk.dialog.next_call(POLL)
        if isinstance(call, Call):
            assert call.path == SYNC_PATH  # not with the token that it used
            talk.refuse(call, 401, Code.BAD_TOKEN)
        talk.run(10)

    talk.token = "join-2"
    talk.refuse(talk.call(), 401, Code.BAD_TOKEN)
    talk.advance(1.1)

    again = talk.call()
    assert again.path == REGISTER_PATH
    assert b"join-2" in again.body
    talk.dialog.on_answer(POLL, again, 201, talk.credential(2))
    assert talk.dialog.refusal == ""
    assert talk.call().bearer == "cred-2"


@pytest.mark.parametrize(("status", "code"), [(401, Code.BAD_TOKEN), (403, Code.CLONED)])
def test_a_fresh_join_token_readmits_an_agent_whose_credential_is_refused(status: int, code: str) -> None:
    talk = Talk()
    talk.join()
    talk.token = "join-2"
    talk.start()
    talk.refuse(talk.call(), status, code)
    talk.advance(1.1)
    again = talk.call()
    assert again.path == REGISTER_PATH
    assert b"join-2" in again.body


def test_an_idle_agent_asks_on_with_a_refused_credential_until_the_hub_must_have_seen_two_with_it() -> None:
    """Had a thief renewed it, the hub takes our first words within its grace for late ones."""
    talk = Talk()
    talk.join()
    asked_s: list[float] = []
    since = talk.clock.mono()
    while talk.clock.mono() - since < REFUSED_PATIENCE_S:
        call = talk.dialog.next_call(POLL)
        if isinstance(call, Call):
            asked_s.append(talk.clock.mono() - since)
            talk.refuse(call, 401, Code.BAD_TOKEN)
        talk.run(5)

    assert len([asked for asked in asked_s if asked > RENEWAL_GRACE.total_seconds() + 30]) >= 2


def test_a_locked_agent_begins_nothing_keeps_its_ends_and_goes_on_trying_slowly() -> None:
    talk = Talk()
    talk.join()
    talk.tell(talk.assignment(), talk.assignment(1, slice="blue", gpr_id="g2", not_before_s=talk.clock.wall() + 10))
    talk.run(5)
    talk.refuse(talk.call(), 403, Code.CLONED)
    assert talk.dialog.stop is None
    pause = talk.dialog.next_call(POLL)
    assert isinstance(pause, float)
    assert pause >= 29.0
    talk.run(70)
    assert talk.gpu_phases(1) == set()
    assert talk.phase("a0") is Phase.RELEASED
    talk.answer_sync(talk.call())
    assert talk.core.link.entry_block() == ""


def test_a_hub_that_forgot_what_it_stored_gets_a_new_session() -> None:
    talk = Talk()
    talk.join()
    talk.tell(talk.assignment())
    talk.run(3)
    talk.take_events()
    talk.tell()
    talk.run(70)
    late = talk.call(PUSH)
    talk.dialog.on_answer(PUSH, late, 200, msgspec.json.encode(EventsReply(stored_seq=2)))
    assert talk.core.link.session_epoch == 0
    talk.session_epoch = 2
    talk.answer_sync(talk.call())
    assert talk.core.pending_events()[0].seq == 1


@pytest.mark.parametrize("make", [lambda _: b"<html>", lambda _: b"{}", lambda body: body[:-3]])
def test_an_answer_that_is_no_message_counts_as_none(make: Callable[[bytes], bytes]) -> None:
    talk = Talk()
    talk.join()
    talk.dialog.on_answer(POLL, talk.call(), 200, make(msgspec.json.encode(talk.reply())))
    assert isinstance(talk.dialog.next_call(POLL), float)


def test_a_hub_that_answers_at_once_without_news_is_not_asked_without_pause() -> None:
    talk = Talk()
    talk.join()
    for _ in range(3):
        call = talk.dialog.next_call(POLL)
        if isinstance(call, Call):
            talk.answer_sync(call)
    assert isinstance(talk.dialog.next_call(POLL), float)
