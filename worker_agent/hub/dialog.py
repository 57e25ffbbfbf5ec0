"""Decides the agent's next call to the hub, and takes answers. It has no network and no threads: the process and the simulation drive it.

POLL registers, renews and holds the long sync; PUSH sends news meanwhile. Each lane has one call at a time.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from protocol.agents.events import EVENTS_PATH, EventsReply, EventsRequest
from protocol.agents.registration import REGISTER_PATH, RENEW_PATH, Credential, RegisterRequest, RenewRequest
from protocol.agents.sync import SYNC_PATH, WAIT_MAX_S
from protocol.agents.transport import Code, Problem
from protocol.assignments import Observed
from protocol.decoding import decode
from protocol.nodes.steps import CAPABILITIES
from protocol.tenancy.cluster_requests import CLUSTER_REQUESTS_PATH, ClusterRequest, ClusterRequestsMessage, ClusterRequestsReply
from worker_agent import VERSION
from worker_agent.boxes.core import Core
from worker_agent.clock import Clock
from worker_agent.cluster.base import Note
from worker_agent.hub.link import Sent
from worker_agent.hub.wire import read_problem, read_sync_reply

BACKOFF_MIN_S, BACKOFF_MAX_S = 1.0, 30.0
SLOW_S = 30.0  # between retries that only an administrator can make succeed
TIMEOUT_S = 10.0  # beyond the time that the hub may hold the call
REFUSED_S = 120.0  # between retries of a refused agent; a new join token ends the wait
# How long an agent with a refused credential keeps asking: if a thief renewed it, only calls beyond the hub's grace of a minute show the
# hub that two have it.
REFUSED_PATIENCE_S = 180.0
TO_DO = "an administrator issues a join token for this cluster and puts it into the agent's token file; the agent finds it there"
TOKEN_LOOK_S = 1.0  # between checks for a new join token
IDLE_S = 0.2  # when a lane has nothing to say
PACE_S = 1.0  # between syncs when the hub answers at once without news


class Lane(StrEnum):
    POLL = "poll"
    PUSH = "push"


class Stop(StrEnum):
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True)
class Call:
    path: str
    body: bytes
    timeout_s: float
    bearer: str = ""
    sent: Sent | None = None
    session_epoch: int = 0
    requests: tuple[ClusterRequest, ...] = ()
    join_token_digest: str = ""


@dataclass(slots=True)
class _LaneState:
    failures: int = 0
    not_before_mono: float = float("-inf")
    is_busy: bool = False
    last_asked: tuple[object, ...] = ()


class Dialog:
    # `join_token` returns the current one, or ""; an administrator may provide a new one at any time.
    def __init__(self, *, core: Core, cluster_uid: str, join_token: Callable[[], str], clock: Clock, rng: random.Random, note: Note):
        self._core, self._cluster_uid, self._join_token = core, cluster_uid, join_token
        self._clock, self._rng, self._note = clock, rng, note
        self._lanes = {lane: _LaneState() for lane in Lane}
        self._told: tuple[Observed, ...] | None = None
        self._requests_not_before_mono = float("-inf")
        self._stop: Stop | None = None
        self.refusal = ""  # why the hub refuses this agent, for people
        self._refused_since_mono = 0.0
        self._token_tried = ""  # digest of the last join token that was tried

    @property
    def stop(self) -> Stop | None:
        return self._stop  # a refusal does not stop the agent: it must close what it holds at its end

    # -- calls ---------------------------------------------------------------------------------------------------------

    def next_call(self, lane: Lane) -> Call | float:
        """Return a call to make now, or how many seconds to wait."""
        state = self._lanes[lane]
        wait_s = state.not_before_mono - self._clock.mono()
        if wait_s > 0 and not (lane is Lane.POLL and self._takes_new_token()):
            return min(wait_s, TOKEN_LOOK_S) if self.refusal else wait_s
        call = self._poll() if lane is Lane.POLL else self._push()
        if call is None:
            return IDLE_S
        state.is_busy = True
        return call

    def _poll(self) -> Call | None:
        credential = self._core.credential
        if credential is None:
            return None if self._core.is_joining else self._register()
        if self._core.hub_now_s >= self._core.renew_at_s:
            renewal = msgspec.json.encode(RenewRequest(cred_gen=credential.cred_gen))
            # Waits until the other lane has no call: the hub takes the use of an old credential after the new one for theft.
            quiet = not self._lanes[Lane.PUSH].is_busy
            return Call(RENEW_PATH, renewal, TIMEOUT_S, bearer=credential.credential) if quiet else None
        wait_s = WAIT_MAX_S * self._rng.uniform(0.8, 1.0) if self._core.link.session_epoch else 0.0
        return self._sync(credential, wait_s)

    def _push(self) -> Call | None:
        credential, session_epoch = self._core.credential, self._core.link.session_epoch
        if credential is None or not session_epoch or self._core.hub_now_s >= self._core.renew_at_s:
            return None
        if events := self._core.pending_events():
            body = msgspec.json.encode(EventsRequest(session_epoch=session_epoch, events=events))
            return Call(EVENTS_PATH, body, TIMEOUT_S, bearer=credential.credential, session_epoch=session_epoch)
        link = self._core.link
        has_news = self._told != self._core.observed or link.tenancy.has_news or bool(link.drifts.untold)
        return self._sync(credential, 0.0) if has_news or link.has_news_of_pods else self._send_requests(credential)

    def _register(self) -> Call | None:
        token = self._fresh_token()
        if not token:
            self._be_refused(self.refusal or "there is no credential, and no fresh join token to get one with")
            return None
        if not self._core.is_registerable():
            return None
        self._token_tried = _digest(token)
        request = RegisterRequest(
            join_token=token,
            cluster_uid=self._cluster_uid,
            install_id=self._core.install_id,
            agent_version=VERSION,
            capabilities=CAPABILITIES,
        )
        return Call(REGISTER_PATH, msgspec.json.encode(request), TIMEOUT_S, join_token_digest=self._token_tried)

    def _send_requests(self, credential: Credential) -> Call | None:
        requests, session_epoch = self._core.link.requests.batch(), self._core.link.session_epoch
        if not requests or self._clock.mono() < self._requests_not_before_mono:
            return None
        body = msgspec.json.encode(ClusterRequestsMessage(session_epoch=session_epoch, claims=requests))
        return Call(CLUSTER_REQUESTS_PATH, body, TIMEOUT_S, bearer=credential.credential, session_epoch=session_epoch, requests=requests)

    def _sync(self, credential: Credential, wait_s: float) -> Call:
        sent = self._core.sync_request(wait_s)
        self._told = sent.request.observed
        body = msgspec.json.encode(sent.request)
        return Call(SYNC_PATH, body, wait_s + TIMEOUT_S, bearer=credential.credential, sent=sent)

    # -- answers -------------------------------------------------------------------------------------------------------

    def on_no_answer(self, lane: Lane, call: Call, why: str, retry_after_s: float = 0.0) -> None:
        state = self._lanes[lane]
        state.is_busy = False
        state.failures += 1
        if call.sent:
            self._told = None  # perhaps the hub never received it
        most_s = min(BACKOFF_MAX_S, BACKOFF_MIN_S * 2.0 ** min(state.failures - 1, 10))
        pause_s = max(retry_after_s, self._rng.uniform(0.0, most_s))
        state.not_before_mono = self._clock.mono() + pause_s
        self._note("hub_no_answer", {"path": call.path, "why": why, "failures": state.failures})

    def on_answer(self, lane: Lane, call: Call, status: int, body: bytes, retry_after_s: float = 0.0) -> None:
        if not 200 <= status < 300:
            self._on_problem(lane, call, read_problem(status, body), retry_after_s)
            return
        try:
            self._take(lane, call, body)
        except msgspec.DecodeError as error:
            self.on_no_answer(lane, call, f"not a message of this protocol: {error}")
            return
        state = self._lanes[lane]
        state.is_busy, state.failures = False, 0
        self.refusal = ""

    def _take(self, lane: Lane, call: Call, body: bytes) -> None:
        if call.path == EVENTS_PATH:
            reply = decode(body, EventsReply)
            if not self._core.acknowledge(session_epoch=call.session_epoch, stored_seq=reply.stored_seq):
                self._lanes[lane].not_before_mono = self._clock.mono() + PACE_S
        elif call.path == CLUSTER_REQUESTS_PATH:
            answers = decode(body, ClusterRequestsReply).answers
            if not self._core.link.requests.take_answers(call.requests, answers):
                self._requests_not_before_mono = self._clock.mono() + SLOW_S
        elif call.sent:
            self._take_set(lane, call.sent, body)
        else:
            credential = decode(body, Credential)
            self._core.take_credential(credential, join_token_digest=call.join_token_digest)
            for state in self._lanes.values():
                state.failures, state.not_before_mono = 0, float("-inf")  # both waited because of the old credential

    def _take_set(self, lane: Lane, sent: Sent, body: bytes) -> None:
        received = read_sync_reply(body)
        self._core.on_reply(sent, received.reply, received.raw_digest)
        request = sent.request
        asked = (request.session_epoch, request.known_generation, request.have_digest, request.observed)
        if asked == self._lanes[lane].last_asked:
            # The hub answers at once and nothing changes (a rewind, a document that cannot be written), so slow down.
            self._lanes[lane].not_before_mono = sent.at.mono + PACE_S
        self._lanes[lane].last_asked = asked

    def _on_problem(self, lane: Lane, call: Call, problem: Problem, retry_after_s: float) -> None:
        if call.path == CLUSTER_REQUESTS_PATH and problem.status < 500 and problem.status != 429 and problem.code not in list(Code):
            # An older hub, or one that refuses them; the lane continues with other news.
            self._requests_not_before_mono = self._clock.mono() + SLOW_S
            self._lanes[lane].is_busy = False
            self._note("cluster_requests_refused", {"why": f"{problem.status} {problem.code} {problem.detail}".strip()})
            return
        if problem.code == Code.SUPERSEDED:
            self._stop = Stop.SUPERSEDED if self._is_current(call) else self._stop
        elif problem.code == Code.CLONED:
            self._core.link.is_locked = True
            retry_after_s = max(retry_after_s, 0.0 if self._join_anew(call) else SLOW_S)
        elif problem.code in (Code.BAD_TOKEN, Code.WRONG_CLUSTER):
            retry_after_s = max(retry_after_s, self._on_refusal(call, problem))
        elif problem.code == Code.UNSUPPORTED_PROTO:
            retry_after_s = max(retry_after_s, SLOW_S)
        self.on_no_answer(lane, call, f"{problem.status} {problem.code} {problem.detail}".strip(), retry_after_s)

    def _is_current(self, call: Call) -> bool:
        if call.sent:
            return self._core.is_of_this_boot(call.sent)
        return call.session_epoch == self._core.link.session_epoch  # not a session that this agent has left

    def _on_refusal(self, call: Call, problem: Problem) -> float:
        credential = self._core.credential
        if credential and call.bearer != credential.credential:
            return 0.0  # it concerns a credential that has been replaced meanwhile
        if self._join_anew(call):
            return 0.0
        self._be_refused(problem.detail or f"the hub refuses this agent: {problem.code}")
        is_patient = credential is not None and self._clock.mono() - self._refused_since_mono < REFUSED_PATIENCE_S
        return SLOW_S if is_patient else REFUSED_S

    def _be_refused(self, why: str) -> None:
        if why == self.refusal:
            return
        if not self.refusal:
            self._refused_since_mono = self._clock.mono()
        self.refusal = why
        self._note("refused", {"why": why, "to_do": TO_DO})

    def _join_anew(self, call: Call) -> bool:
        """Register again if an administrator has provided an unused join token."""
        if call.path == REGISTER_PATH or not self._fresh_token():
            return False
        self._core.drop_credential()
        self._lanes[Lane.POLL].failures = 0
        return True

    def _fresh_token(self) -> str:
        """Return "" for a token that was used already."""
        token = self._join_token()
        return "" if token and self._core.used_join_token(_digest(token)) else token

    def _takes_new_token(self) -> bool:
        token = self._fresh_token() if self.refusal else ""
        if not token or _digest(token) == self._token_tried:
            return False
        self._note("join_token_found", {"was": self.refusal})
        self.refusal, self._lanes[Lane.POLL].not_before_mono = "", float("-inf")
        return True


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
