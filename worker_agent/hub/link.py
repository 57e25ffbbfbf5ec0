"""Keeps the hub's session, its lease and its last complete set. Must not live here: calls to the cluster, or the transport."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import msgspec

from protocol.agents.listings import LIFE, ReceivedList, set_digest
from protocol.agents.sync import SyncReply, SyncRequest
from protocol.agents.transport import CLOCK_OFFSET_REFUSE_S, CLOCK_OFFSET_WARN_S
from protocol.assignments import Assignment, Desired, Observed, Phase
from protocol.decoding import decoder
from protocol.nodes.inventory import NodeOrder
from worker_agent.boxes.state import Progress, State
from worker_agent.clock import Clock, HubTime, Instant
from worker_agent.cluster.base import Note
from worker_agent.hub.drift import DriftReport
from worker_agent.hub.requests import RequestExchange
from worker_agent.hub.waiting_pods import FailedJobsReport, Waiting, WaitingPodsReport
from worker_agent.hub.workloads import WorkloadExchange
from worker_agent.hub.workspaces import WorkspaceExchange

LIFE_EVERY_S = 5.0

# These fields never change after an assignment has begun: another node or epoch would be another assignment.
_FIXED = ("gpr_id", "run", "slice", "node", "node_uid", "gpus", "epoch")


@dataclass(frozen=True, slots=True)
class Sent:
    request: SyncRequest
    at: Instant


class Link:
    def __init__(self, *, clock: Clock, time: HubTime, state: State, note: Note) -> None:
        self._clock, self._time, self._state, self._note = clock, time, state, note
        self.session_epoch = 0
        self.is_rewound = False
        self.is_locked = False  # the hub saw two agents use our credential
        self.orders: tuple[NodeOrder, ...] = ()  # in memory only: the next answer has them again
        self.idle_releases: dict[tuple[str, int], float] | None = None  # by GPR and run, as orders; None: the hub has not said
        self.life = ReceivedList(LIFE)
        self._life_wanted_mono = float("-inf")
        self.tenancy = WorkspaceExchange()
        self.drifts = DriftReport()
        self._lost_taken_mono = float("-inf")  # when the hub last acknowledged lost steps
        self.waiting_pods = WaitingPodsReport()
        self.failed_jobs = FailedJobsReport()
        self.requests = RequestExchange(clock)
        self.workloads = WorkloadExchange(clock)
        self._wants_whole_set = False
        self._lease_from: Instant | None = None
        self._last_got_mono = float("-inf")
        self._last_sent_s = float("-inf")

    # -- what may begin ------------------------------------------------------------------------------------------------

    def entry_block(self) -> str:
        """Return why no entry may begin now, as a sentence without changing figures, or "". Exits never ask."""
        if self.is_locked:
            return "the hub locked this agent: its credential is used twice"
        if self.is_rewound:
            return f"HUB_REWIND: the hub is behind generation {self._state.generation}, which it gave before"
        if self._lease_from is None:
            return "no word from the hub since the agent started"
        if self.sync_age_s > self._state.lease_ttl_s:
            return f"no word from the hub for more than {self._state.lease_ttl_s:g} s"
        if abs(self._time.offset_s or 0.0) > CLOCK_OFFSET_REFUSE_S:
            return f"CLOCK_SKEW: the cluster's clock and the hub's differ by more than {CLOCK_OFFSET_REFUSE_S:g} s"
        return ""

    @property
    def sync_age_s(self) -> float:
        return self._lease_from.age_s(self._clock) if self._lease_from else float("inf")

    def life_wanted(self) -> str | None:
        # Not with every sync: gathering life marks costs the hub more than everything else that has not changed.
        if self._clock.mono() - self._life_wanted_mono < LIFE_EVERY_S:
            return None
        self._life_wanted_mono = self._clock.mono()
        return self.life.digest

    @property
    def waiting_untold(self) -> Waiting | None:
        return self.waiting_pods.untold(self.session_epoch, self.tenancy.workspaces.digest)

    @property
    def has_news_of_pods(self) -> bool:
        return self.waiting_untold is not None or bool(self.failed_jobs.untold or self.workloads.untold(self.session_epoch))

    # -- sync ----------------------------------------------------------------------------------------------------------

    def have_digest(self, digest: str) -> str:
        return "" if self._wants_whole_set or self.is_rewound else digest

    def accept(self, sent: Sent, reply: SyncReply, raw_digest: str) -> bool:
        """Take in an answer. Returns False if it is too old or its set is incomplete."""
        if sent.at.mono < self._last_got_mono and reply.sent_s < self._last_sent_s:
            return False  # a later answer came first
        self._last_got_mono, self._last_sent_s = self._clock.mono(), reply.sent_s
        self.session_epoch = reply.session_epoch
        self.is_locked = False
        self.drifts.take(sent.request.drifts)
        self.waiting_pods.take(sent.request)
        self.failed_jobs.take(sent.request.jobs_failed)
        self._take_lost(sent)
        self._keep_time(sent, reply)
        if not self._is_whole(reply, raw_digest):
            self._wants_whole_set = True
            self._note("set_refused", {"count": reply.count, "digest": reply.digest})
            return False
        self._wants_whole_set = False
        return self._take_set(sent, reply)

    def _take_lost(self, sent: Sent) -> None:
        # Subtract once, even if two syncs in flight reported it.
        if sent.request.steps_lost and sent.at.mono > self._lost_taken_mono:
            self._state.steps_lost -= sent.request.steps_lost
            self._lost_taken_mono = self._clock.mono()

    def _keep_time(self, sent: Sent, reply: SyncReply) -> None:
        self._time.sample(sent=sent.at, received_s=reply.received_s, sent_s=reply.sent_s)
        offset_s = self._time.offset_s or 0.0
        if self._state.offset_s is None or abs(offset_s - self._state.offset_s) > 0.1:
            self._state.offset_s = offset_s
        if abs(offset_s) > CLOCK_OFFSET_WARN_S:
            self._note("clock_differs", {"offset_s": round(offset_s, 3)})

    def _is_whole(self, reply: SyncReply, raw_digest: str) -> bool:
        if reply.assignments is None:
            return reply.digest == self._state.digest
        # A newer hub may send fields that our structs lack; then the digest over the wire format agrees.
        return len(reply.assignments) == reply.count and reply.digest in (set_digest(reply.assignments), raw_digest)

    def _take_set(self, sent: Sent, reply: SyncReply) -> bool:
        self.is_rewound = reply.generation < self._state.generation
        if self.is_rewound:
            self._note("hub_rewind", {"known": self._state.generation, "got": reply.generation, "hub_id": reply.hub_id})
            take_ends(self._state, reply.assignments or ())
            return True
        if self._state.hub_id not in ("", reply.hub_id):
            self._note("hub_changed", {"known": self._state.hub_id, "got": reply.hub_id})
        self._renew_lease(sent, reply)
        self.orders = reply.orders
        if reply.idle_releases is not None:
            self.idle_releases = {(each.gpr_id, each.run): each.at_s for each in reply.idle_releases}
        self.life.hear(sent.request, reply)
        self.tenancy.take(sent.request, reply)
        self.requests.take(sent.request, reply, asked_mono=sent.at.mono)
        self.workloads.take(sent.request, reply)
        state = self._state
        state.hub_id, state.generation, state.digest = reply.hub_id, reply.generation, reply.digest
        if reply.assignments is not None:
            take_set(state, reply.assignments, self._note)
        drop_unlisted(state, sent.request.observed)
        return True

    def _renew_lease(self, sent: Sent, reply: SyncReply) -> None:
        # From the earliest moment at which the hub can have answered: a process that has slept since then has no lease.
        held_s = min(max(0.0, reply.sent_s - reply.received_s), self._clock.mono() - sent.at.mono)
        lease_from = sent.at.later(held_s)
        if self._lease_from is None or lease_from.mono >= self._lease_from.mono:
            self._lease_from = lease_from
        self._state.lease_ttl_s = reply.lease_ttl_s
        self._state.repairs_drift = reply.repairs_drift
        self._state.warn_before_s = reply.warn_before_s


def take_set(state: State, assignments: tuple[Assignment, ...], note: Note) -> None:
    """Keep what the set no longer lists until it is over."""
    listed = {assignment.id for assignment in assignments}
    for known_id, progress in state.progress.items():
        progress.listed = known_id in listed
    for assignment in assignments:
        progress = state.progress.setdefault(assignment.id, Progress())
        known = state.assignments.get(assignment.id, assignment)
        if progress.phase is Phase.PENDING and not progress.is_leaving:
            known = assignment
        state.assignments[assignment.id] = _update(known, assignment, note)
        _take_end(state, assignment)


def take_ends(state: State, assignments: tuple[Assignment, ...]) -> None:
    """A hub that lost its memory counts only for ends."""
    for assignment in assignments:
        if assignment.id in state.assignments:
            _take_end(state, assignment)


def _take_end(state: State, assignment: Assignment) -> None:
    known = state.assignments[assignment.id]
    if assignment.desired == Desired.ABSENT and assignment.epoch == known.epoch:
        state.progress[assignment.id].absent = True


def _update(known: Assignment, new: Assignment, note: Note) -> Assignment:
    if any(getattr(known, field) != getattr(new, field) for field in _FIXED):
        note("assignment_changed", {"assignment": known.id, "known_epoch": known.epoch, "epoch": new.epoch})
        return known
    return new


def drop_unlisted(state: State, observed: tuple[Observed, ...]) -> None:
    for told in observed:
        progress = state.progress.get(told.assignment_id)
        if progress and told.phase is Phase.RELEASED and progress.is_over and not progress.listed:
            state.forget(told.assignment_id)


def observed_of(assignment: Assignment, progress: Progress, step: str, waits_for: str) -> Observed:
    begun = progress.phase not in (Phase.PENDING, Phase.ENTERING, Phase.ENTERED)
    return Observed(
        assignment_id=assignment.id,
        epoch=assignment.epoch,
        phase=progress.phase,
        step=step,
        active_s=progress.active_s if begun else None,
        exit_began_s=progress.exit_began_s,
        failure=progress.failure or waits_for,
    )


def encoded_digest(raw: list[msgspec.Raw]) -> str:
    """Computes `set_digest` on the wire format, including unknown fields."""
    read = decoder(_Id).decode
    ordered = sorted(raw, key=lambda item: read(item).id)
    return hashlib.sha256(b"[" + b",".join(bytes(item) for item in ordered) + b"]").hexdigest()


class _Id(msgspec.Struct):
    id: str
