"""Holds the agent's document: what must survive a restart, besides the records on the nodes.

The agent reports only durable facts, so that a crash never takes back a report.
"""

from __future__ import annotations

import hashlib

import msgspec

from protocol.agents.events import Outcome, StepEvent
from protocol.agents.registration import Credential
from protocol.assignments import LEASE_TTL_S, Assignment, Phase
from protocol.decoding import decode
from protocol.nodes.steps import EXIT_CHECKS, EntryStep, RepairStep
from worker_agent.cluster.base import ClusterDriver, ClusterError, Note, StateDoc, WriteConflict

FORMAT = 1
# Limits in memory of what the hub has not stored; about 100 MiB at most. Failed checks are kept first, then the newest events.
EVENTS_HELD, RESULTS_HELD = 20_000, 100_000
# Limits in the document, which must fit into one object of the cluster.
EVENTS_KEPT, RESULTS_KEPT, LOG_CHARS_KEPT = 2_000, 2_000, 200_000

_RANK = {phase: rank for rank, phase in enumerate(Phase)}
_CHECKS = frozenset(EntryStep) | frozenset(RepairStep) | EXIT_CHECKS


class Progress(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Times are by the hub's clock."""

    phase: Phase = Phase.PENDING
    listed: bool = True  # whether the hub's last set lists it
    absent: bool = False  # the hub sent ABSENT, which is final
    ending: bool = False  # its window has ended; no extension counts any more
    failure: str = ""
    active_s: float | None = None
    exit_began_s: float | None = None
    repaired_s: float | None = None  # when the step that repairs had ended
    entry_done: list[str] = []
    exit_done: list[str] = []
    attempts: dict[str, int] = {}
    asked: tuple[str, ...] = ()  # names of the working nodes that a spare's running attempt is measured against
    reported: list[str] = []  # what is reported only once: milestones, unsupported words

    def advance(self, phase: Phase) -> None:
        """Phases only move forward, whatever an old view of the cluster shows."""
        if _RANK[phase] > _RANK[self.phase]:
            self.phase = phase

    def fail(self, why: str) -> None:
        self.failure = why
        self.advance(Phase.FAILED)

    def first(self, word: str) -> bool:
        if word in self.reported:
            return False
        self.reported.append(word)
        return True

    @property
    def is_leaving(self) -> bool:
        return self.absent or self.ending or bool(self.failure)

    @property
    def is_over(self) -> bool:
        return self.phase is Phase.RELEASED


Member = tuple[Assignment, Progress]  # a member of a box


class State(msgspec.Struct, kw_only=True, omit_defaults=True):
    format: int = FORMAT
    install_id: str = ""
    join_token_digest: str = ""  # of the used join token, so that a new one is recognized
    credential: Credential | None = None
    credential_since_s: float = 0.0
    hub_id: str = ""
    generation: int = 0  # the highest accepted so far
    digest: str = ""  # of the last accepted set
    lease_ttl_s: float = LEASE_TTL_S
    repairs_drift: bool = True  # the cluster's policy, as the hub last said
    warn_before_s: float = 0.0  # see SyncReply
    offset_s: float | None = None
    assignments: dict[str, Assignment] = {}
    progress: dict[str, Progress] = {}
    events: list[StepEvent] = []  # not yet stored by the hub
    steps_lost: int = 0  # at most this many events were dropped since the last report of such losses

    def held(self) -> list[Member]:
        """Return what is not over, in a fixed order."""
        return [(a, self.progress[i]) for i, a in sorted(self.assignments.items()) if not self.progress[i].is_over]

    def forget(self, assignment_id: str) -> None:
        del self.assignments[assignment_id], self.progress[assignment_id]


class StateLost(Exception):
    """The document is damaged or of a newer format."""


class OtherWriter(Exception):
    """Another agent writes this document, so this one must stop."""


class StateStore:
    def __init__(self, cluster: ClusterDriver, note: Note) -> None:
        self._cluster, self._note = cluster, note
        self._encoded: dict[str, tuple[Assignment, msgspec.Raw]] = {}  # by assignment id, as last encoded
        self._tried: set[str] = set()  # digests of bodies that may have been written although the answer was lost
        doc = cluster.load_state()
        self._body, self._version = (doc.body, doc.version) if doc else (b"", "")
        self.state = _decode(doc) if doc else State()
        self.is_durable = doc is not None

    def save(self) -> bool:
        """Make the state durable. Returns False if that is not possible now. Raises OtherWriter."""
        body = self._encode()
        self.is_durable = body == self._body or self._write(body)
        return self.is_durable

    def drop_surplus(self) -> list[StepEvent]:
        """Drop and return the events beyond the limits in memory."""
        state = self.state
        kept, dropped = _fitting(state.events, EVENTS_HELD, RESULTS_HELD)
        state.events, state.steps_lost = kept, state.steps_lost + len(dropped)
        return dropped

    def _encode(self) -> bytes:
        encoded = {}
        for id_, assignment in self.state.assignments.items():
            known = self._encoded.get(id_)
            is_known = known is not None and known[0] is assignment  # every pass encodes several times
            encoded[id_] = known if known and is_known else (assignment, msgspec.Raw(msgspec.json.encode(assignment)))
        self._encoded = encoded
        written = {id_: raw for id_, (_, raw) in encoded.items()}
        kept, unkept = _fitting(self.state.events, EVENTS_KEPT)
        # After a restart from it, the events left out are lost unless the hub has stored them meanwhile.
        state = msgspec.structs.replace(self.state, events=_thinned(kept), steps_lost=self.state.steps_lost + len(unkept))
        state.assignments = written  # type: ignore[assignment]  # encoded already
        return msgspec.json.encode(state)

    def _write(self, body: bytes) -> bool:
        self._tried.add(_digest(body))
        try:
            version = self._cluster.save_state(body, self._version)
        except WriteConflict:
            return self._resolve() and (self._body == body or self._write(body))
        except ClusterError as error:
            self._note("state_not_saved", {"why": f"{error}; until it is, nothing new begins"})
            return False
        self._body, self._version, self._tried = body, version, set()
        return True

    def _resolve(self) -> bool:
        """Find out after a conflict whether our own write succeeded."""
        try:
            doc = self._cluster.load_state()
        except ClusterError:
            return False
        if doc is not None and doc.version == self._version:
            return False  # nobody wrote: the next pass tries again
        if doc is not None and _digest(doc.body) not in self._tried:
            raise OtherWriter("another agent wrote the state of this cluster")
        self._body, self._version = (doc.body, doc.version) if doc else (b"", "")
        return True


def _fitting(events: list[StepEvent], most: int, results_most: int | None = None) -> tuple[list[StepEvent], list[StepEvent]]:
    """Splits into events that fit the limits and the others."""
    if len(events) <= most and (results_most is None or sum(len(event.results) for event in events) <= results_most):
        return events, []
    kept: set[int] = set()
    results_left = results_most
    for place in sorted(range(len(events)), key=lambda place: (_counts_against_node(events[place]), place), reverse=True)[:most]:
        if results_left is not None and (results_left := results_left - len(events[place].results)) < 0:
            break
        kept.add(place)
    fit = [event for place, event in enumerate(events) if place in kept]
    return fit, [event for place, event in enumerate(events) if place not in kept]


def _counts_against_node(event: StepEvent) -> bool:
    # The hub cordons the node for such an event. An assignment has only a few of them.
    return event.outcome == Outcome.FAILED and event.blames_node and event.step in _CHECKS


def _thinned(events: list[StepEvent]) -> list[StepEvent]:
    """Remove results and logs from the oldest events beyond the limits. The outbox keeps them whole."""
    results_left, chars_left, kept = RESULTS_KEPT, LOG_CHARS_KEPT, []
    for event in reversed(events):
        results_left -= len(event.results)
        chars_left -= len(event.log)
        if results_left < 0 or chars_left < 0:
            results, log = event.results if results_left >= 0 else (), event.log if chars_left >= 0 else ""
            kept.append(msgspec.structs.replace(event, results=results, log=log))
        else:
            kept.append(event)
    return kept[::-1]


def _decode(doc: StateDoc) -> State:
    try:
        state = decode(doc.body, State)
    except msgspec.DecodeError as error:
        raise StateLost(f"the agent's state document cannot be read: {error}") from error
    if state.format > FORMAT:
        raise StateLost(f"the agent's state document has format {state.format}, this version knows {FORMAT}")
    return state


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
