"""Claims between hub and agent: told until they are answered, never with two credentials, and in nobody's way."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence

import msgspec

from protocol.agents.listings import set_digest
from protocol.agents.registration import Credential
from protocol.agents.sync import SYNC_PATH, SyncReply, SyncRequest
from protocol.agents.transport import Code, Problem
from protocol.tenancy.cluster_requests import (
    CLUSTER_REQUESTS_AT_ONCE,
    CLUSTER_REQUESTS_PATH,
    AutoTemplate,
    ClusterRequest,
    ClusterRequestAnswer,
    ClusterRequestsMessage,
    ClusterRequestSpec,
    ClusterRequestsReply,
    ClusterRequestState,
    ClusterRequestVerdict,
)
from protocol.tenancy.waiting_pods import JobFailed, PodsWaiting
from tests.agent.stage import Stage
from worker_agent.clock import SystemClock
from worker_agent.hub.dialog import SLOW_S, Call, Dialog, Lane
from worker_agent.hub.requests import AnsweredRequest, HubNews, RequestExchange
from worker_agent.hub.transport import NoAnswer
from worker_agent.hub.workloads import SimulatedWorkloads
from worker_agent.hub.workspaces import SimulatedTenancy
from worker_agent.log import Log
from worker_agent.process import Process
from worker_agent.telemetry.simulated import SimulatedTelemetry
from worker_agent.telemetry.simulated_pods import SimulatedPods

CLAIM = ClusterRequest(uid="u1", namespace="ns1", name="train", generation=1)
STATE = ClusterRequestState(id="u1", gpr_id="g1", state="QUEUED", position=1)


def answer(claim: ClusterRequest = CLAIM, verdict: ClusterRequestVerdict = ClusterRequestVerdict.TAKEN) -> ClusterRequestAnswer:
    return ClusterRequestAnswer(uid=claim.uid, generation=claim.generation, verdict=verdict, gpr_id="g1")


def replies(*answers: ClusterRequestAnswer) -> bytes:
    return msgspec.json.encode(ClusterRequestsReply(answers=answers))


class Talk(Stage):
    """A stage whose agent talks, with a session and nothing else to say."""

    def start(self) -> None:
        super().start()
        rng, note = random.Random(1), lambda event, _: self.notes.append(event)
        self.dialog = Dialog(core=self.core, cluster_uid="c", join_token=str, clock=self.clock, rng=rng, note=note)
        self.tell()
        self.core.take_credential(Credential(agent_id="a", cluster="c", credential="x", cred_gen=1, expires_s=self.clock.wall() + 1000))
        self.say(SYNC_PATH, msgspec.json.encode(self.reply()))

    @property
    def exchange(self) -> RequestExchange:
        return self.core.link.requests

    def call(self) -> Call:
        call = self.dialog.next_call(Lane.PUSH)
        assert isinstance(call, Call)
        return call

    def say(self, path: str, body: bytes, status: int = 200) -> Call:
        """The agent makes this call, and this is the answer."""
        call = self.call()
        assert call.path == path
        self.dialog.on_answer(Lane.PUSH, call, status, body)
        return call

    def is_quiet(self) -> bool:
        return not isinstance(self.dialog.next_call(Lane.PUSH), Call)

    def list_claims(self, *states: ClusterRequestState, is_known: bool = False) -> SyncRequest:
        sent = self.core.sync_request(0.0)
        claims = None if is_known else states
        digest = self.exchange.states.digest if is_known else set_digest(states)
        self.core.on_reply(sent, msgspec.structs.replace(self.reply(), claims=claims, claims_digest=digest))
        return sent.request


H100 = ClusterRequestSpec(shape="H100-80GB")


def tell_templates(stage: Stage, templates: tuple[AutoTemplate, ...] | None, digest: str) -> None:
    reply = msgspec.structs.replace(stage.reply(), templates=templates, templates_digest=digest)
    stage.core.on_reply(stage.core.sync_request(0.0), reply)


def test_templates_end_with_the_hub_that_told_them_and_come_back_with_it() -> None:
    """A hub that was set back to a version without templates tells no digest of any: requests by what nobody can see or change are made
    for nobody.
    """
    stage = Stage()
    exchange, template = stage.core.link.requests, AutoTemplate(id="red", name="standard", spec=H100)
    tell_templates(stage, (template,), "d")

    tell_templates(stage, None, "")

    assert exchange.collect(None).autos == {}
    assert stage.core.sync_request(0.0).request.have_templates == ""  # so that a newer one tells them anew, though they are the same
    tell_templates(stage, (template,), "d")
    assert exchange.collect(None).autos == {"red": template}


def test_a_claim_is_told_and_its_answer_handed_over_once() -> None:
    talk = Talk()
    talk.exchange.put([CLAIM])

    call = talk.say(CLUSTER_REQUESTS_PATH, replies(answer()))

    told = msgspec.json.decode(call.body, type=ClusterRequestsMessage)
    assert (told.session_epoch, told.claims) == (1, (CLAIM,))
    assert talk.is_quiet()
    assert talk.exchange.collect(None).answers == (AnsweredRequest(answer(), talk.clock.mono()),)
    assert talk.exchange.collect(None).answers == ()


def test_a_claim_whose_answer_is_lost_is_told_again() -> None:
    talk = Talk()
    talk.exchange.put([CLAIM])

    talk.dialog.on_no_answer(Lane.PUSH, talk.call(), "away")
    talk.advance(31)

    assert talk.call().requests == (CLAIM,)


def test_what_was_answered_in_the_meantime_is_not_told_again() -> None:
    """The thread that reads the objects looked before the answer came."""
    talk = Talk()
    talk.exchange.put([CLAIM])
    talk.say(CLUSTER_REQUESTS_PATH, replies(answer()))

    talk.exchange.put([CLAIM])

    assert talk.is_quiet()
    talk.exchange.put([msgspec.structs.replace(CLAIM, generation=2)])
    assert talk.call().requests[0].generation == 2


def test_many_claims_go_a_message_at_a_time() -> None:
    talk = Talk()
    claims = [msgspec.structs.replace(CLAIM, uid=f"u{number}") for number in range(CLUSTER_REQUESTS_AT_ONCE + 1)]
    talk.exchange.put(claims)

    first = talk.say(CLUSTER_REQUESTS_PATH, replies(*map(answer, claims[:CLUSTER_REQUESTS_AT_ONCE])))

    assert (len(first.requests), talk.call().requests) == (CLUSTER_REQUESTS_AT_ONCE, (claims[-1],))


def test_no_claim_goes_out_while_the_credential_is_renewed() -> None:
    talk = Talk()
    talk.exchange.put([CLAIM])
    talk.advance(600)

    assert talk.is_quiet()


def test_a_hub_that_takes_no_claims_does_not_hold_up_the_rest() -> None:
    """An older hub answers 404."""
    talk = Talk()
    talk.exchange.put([CLAIM])

    talk.say(CLUSTER_REQUESTS_PATH, msgspec.json.encode(Problem(status=404, code="not_found")), status=404)

    assert talk.is_quiet()
    talk.tell(talk.assignment(0))
    talk.say(SYNC_PATH, msgspec.json.encode(talk.reply(talk.assignment(0))))
    talk.advance(SLOW_S + 1)
    assert talk.call().requests == (CLAIM,)


def test_answers_to_what_nobody_asked_do_not_count_and_are_no_reason_to_hurry() -> None:
    talk = Talk()
    talk.exchange.put([CLAIM])
    stranger = ClusterRequestAnswer(uid="u2", generation=1, verdict=ClusterRequestVerdict.TAKEN)
    old = ClusterRequestAnswer(uid="u1", generation=7, verdict=ClusterRequestVerdict.TAKEN)

    talk.say(CLUSTER_REQUESTS_PATH, replies(stranger, old))

    assert talk.exchange.collect(None).answers == ()
    assert talk.is_quiet()
    talk.advance(SLOW_S + 1)
    assert talk.call().requests == (CLAIM,)


def test_an_agent_that_is_superseded_stops_at_a_claim_too() -> None:
    talk = Talk()
    talk.exchange.put([CLAIM])

    talk.say(CLUSTER_REQUESTS_PATH, msgspec.json.encode(Problem(status=409, code=Code.SUPERSEDED)), status=409)

    assert talk.dialog.stop is not None


def test_the_hubs_list_is_asked_for_by_its_digest_and_kept_until_it_changes() -> None:
    talk = Talk()
    assert talk.exchange.collect(None).states is None

    assert talk.list_claims(STATE).have_claims == ""
    assert talk.list_claims(is_known=True).have_claims == set_digest([STATE])

    assert talk.exchange.collect(None).states == {"u1": STATE}


def test_when_the_list_was_asked_for_is_known() -> None:
    """A claim that was answered before and is missing in the list has ended."""
    talk = Talk()
    talk.list_claims(STATE)
    asked_mono = talk.exchange.collect(None).asked_mono
    talk.advance(5)

    talk.list_claims(is_known=True)

    assert talk.exchange.collect(None).asked_mono == asked_mono + 5


class StuckRequests:
    """A cluster whose API hangs while objects are looked at."""

    def __init__(self) -> None:
        self.is_in, self.may_go = threading.Event(), threading.Event()

    def watch(self, on_change: Callable[[], None]) -> None:
        return None

    def look(self, news: HubNews) -> Sequence[ClusterRequest]:
        self.is_in.set()
        self.may_go.wait()
        return ()

    def waiting(self) -> tuple[PodsWaiting, ...] | None:
        return None

    def jobs_failed(self) -> tuple[JobFailed, ...]:
        return ()


class NoHub:
    def post(self, call: Call) -> tuple[int, bytes, float]:
        raise NoAnswer("away")


def test_passes_go_on_while_requests_hang() -> None:
    stage, requests = Stage(), StuckRequests()
    passes = threading.Semaphore(0)
    observe = stage.cluster.observe

    def counted() -> object:
        passes.release()
        return observe()

    stage.cluster.observe = counted  # type: ignore[method-assign, assignment]
    clock, stop = SystemClock(), threading.Event()
    process = Process(
        cluster=stage.cluster,
        tenancy=SimulatedTenancy(),
        requests=requests,
        workloads=SimulatedWorkloads(job_s=1),
        telemetry=SimulatedTelemetry(seed="test"),
        pods=SimulatedPods(SimulatedTelemetry(seed="test")),
        connect=NoHub,
        join_token=lambda: "token",
        clock=clock,
        log=Log(clock),
        stop=stop,
    )
    running = threading.Thread(target=process.run)
    running.start()
    assert requests.is_in.wait(10)

    assert all(passes.acquire(timeout=10) for _ in range(10))

    stop.set()
    requests.may_go.set()
    running.join(10)
    assert not running.is_alive()


def test_a_sync_reply_of_a_hub_without_claims_leaves_them_unknown() -> None:
    assert msgspec.json.decode(msgspec.json.encode(Stage().reply()), type=SyncReply).claims is None
