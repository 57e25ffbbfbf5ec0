"""The agent's core. `reconcile` is one pass of observe, decide and act, right at any time and after any crash."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from protocol.assignments import Assignment, Desired, Observed, Phase
from protocol.events import AgentEvent
from protocol.registration import Credential
from protocol.steps import Milestone
from protocol.sync import SyncReply, SyncRequest
from worker_agent import VERSION
from worker_agent.boxes import records
from worker_agent.boxes.actions import Hands
from worker_agent.boxes.entry import Box, Entering
from worker_agent.boxes.exit import Leaving, exit_steps
from worker_agent.boxes.state import Memory, Progress
from worker_agent.clock import Clock, HubTime, Instant
from worker_agent.cluster.base import BoxEnd, Cluster, GpuPhase, Note
from worker_agent.hub.link import Link, Sent, observed_of
from worker_agent.hub.outbox import Outbox, event_key

REST_MOST_S: Final = 1.0  # between passes while nothing changes


def _silent(event: str, fields: dict[str, object]) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Told:
    """Durable facts that the hub may be told."""

    hub_id: str = ""
    generation: int = 0
    digest: str = ""
    observed: tuple[Observed, ...] = ()
    credential: Credential | None = None


class Core:
    def __init__(self, *, cluster: Cluster, clock: Clock, rng: random.Random, note: Note = _silent) -> None:
        self._clock = clock
        self._memory = Memory(cluster, note)
        state = self._memory.state
        self._time = HubTime(clock, state.offset_s)
        self.link = Link(clock=clock, time=self._time, state=state, note=note)
        self._hands = Hands(cluster=cluster, clock=clock, time=self._time, memory=self._memory, rng=rng, note=note)
        self._entering = Entering(hands=self._hands, link=self.link, clock=clock, time=self._time)
        self._leaving = Leaving(hands=self._hands, clock=clock, time=self._time)
        self._outbox = Outbox()
        self._rng = rng
        self._boot_id = f"{rng.getrandbits(64):016x}"
        self._told = Told()
        if not state.install_id:
            state.install_id = f"{rng.getrandbits(128):032x}"
        self._publish(self._memory.save())

    # -- the hub -------------------------------------------------------------------------------------------------------

    def sync_request(self, wait_s: float) -> Sent:
        at = Instant.of(self._clock)
        told = self._told
        request = SyncRequest(
            session_epoch=self.link.session_epoch,
            boot_id=self._boot_id,
            known_hub_id=told.hub_id,
            known_generation=told.generation,
            have_digest=self.link.have_digest(told.digest),
            wait_s=wait_s,
            agent_wall_s=at.wall,
            clock_offset_s=self._time.offset_s,
            agent_version=VERSION,
            observed=told.observed,
            have_workspaces=self.link.board.workspaces.digest,
            accounts_left=self.link.board.accounts_left,
            have_claims=self.link.desk.claims.digest,
            have_life=self.link.life_wanted(),
            have_templates=self.link.desk.templates.digest,
            bindings=self.link.board.bindings_untold,
            tokens=self.link.board.tokens_untold,
            drifts=self.link.drifts.untold,
            waiting=self.link.waiting_untold,
            steps_lost=self._memory.state.steps_lost,
            jobs_failed=self.link.failures.untold,
        )
        return Sent(request=request, at=at)

    def on_reply(self, sent: Sent, reply: SyncReply, raw_digest: str = "") -> None:
        """`raw_digest` is over the assignments as they came on the wire, if known."""
        if not self.is_of_this_boot(sent):
            return
        self.link.accept(sent, reply, raw_digest)
        self._outbox.open_session(self.link.session_epoch, self._clock.mono())
        self._publish(self._memory.save())

    def pending_events(self) -> tuple[AgentEvent, ...]:
        return self._outbox.pending()

    def acknowledge(self, *, session_epoch: int, stored_seq: int) -> bool:
        """Return False if nothing was stored, or if the session is over and the numbers now mean other events."""
        pending = self._outbox.pending()
        if session_epoch != self.link.session_epoch or not pending:
            return False
        if stored_seq < pending[0].seq - 1:
            self._begin_session()  # the hub was restored and lost events that it had stored; it would wait for them for ever
        done = self._outbox.acknowledge(stored_seq)
        state = self._memory.state
        state.events = [event for event in state.events if event_key(event) not in done]
        return stored_seq >= pending[0].seq

    def is_of_this_boot(self, sent: Sent) -> bool:
        return sent.request.boot_id == self._boot_id

    def _begin_session(self) -> None:
        self._boot_id = f"{self._rng.getrandbits(64):016x}"
        self.link.session_epoch = 0

    @property
    def observed(self) -> tuple[Observed, ...]:
        return self._told.observed

    @property
    def hub_now_s(self) -> float:
        return self._time.now()

    def in_use(self) -> frozenset[str]:
        """Return ids and names of workspaces, and namespaces, with something on a node."""
        held = [assignment for assignment, progress in self._memory.state.held() if progress.phase is not Phase.PENDING]
        return frozenset(word for assignment in held for word in (assignment.slice, *assignment.namespaces))

    @property
    def repairs_drift(self) -> bool:
        return self._memory.state.repairs_drift

    # -- credential ----------------------------------------------------------------------------------------------------

    @property
    def install_id(self) -> str:
        return self._memory.state.install_id

    @property
    def credential(self) -> Credential | None:
        """Only a durable credential is used: the hub drops the old one once it sees the new one."""
        return self._told.credential

    @property
    def is_joining(self) -> bool:
        # There is a credential that is not durable yet.
        return self._told.credential is None and self._memory.state.credential is not None

    @property
    def renew_at_s(self) -> float:
        state = self._memory.state
        life_s = state.credential.expires_s - state.credential_since_s if state.credential else 0.0
        return state.credential_since_s + life_s / 2

    def used_join_token(self, digest: str) -> bool:
        return self._memory.state.join_token_digest == digest

    def is_registerable(self) -> bool:
        return self._memory.is_durable or self._memory.save()  # the install id must be durable: it identifies a repeated register

    def take_credential(self, credential: Credential, *, join_token_digest: str = "") -> bool:
        state = self._memory.state
        state.credential, state.credential_since_s = credential, self._time.now()
        state.join_token_digest = join_token_digest or state.join_token_digest
        return self._publish(self._memory.save())

    def drop_credential(self) -> None:
        self._memory.state.credential = None
        self._publish(self._memory.save())

    # -- one pass ------------------------------------------------------------------------------------------------------

    def reconcile(self) -> None:
        """Raises OtherWriter when another agent writes this cluster's document."""
        # The order keeps a pass safe: ends are decided and saved first; exits come before entries and need only the cluster; nothing begins
        # before it is durable, and only durable facts are reported.
        if not self._hands.observe():
            return
        self._take_over()
        self._decide_ends()
        is_durable = self._memory.save()
        held = self._memory.state.held()
        leaving = [each for each in held if each[1].is_leaving]
        with self._hands.apart("fence"):
            self._hands.fence(self._leaving.to_close(leaving))
        self._leaving.advance(leaving)
        if is_durable:
            self._entering.advance([each for each in held if not each[1].is_leaving and not self._hands.is_struck(each)])
        self._run_boxes()
        with self._hands.apart("provide"):
            self._order_nodes()
        with self._hands.apart("tend"):
            self._tend()
        with self._hands.apart("herald"):
            self._hands.herald(self.link.life.items)
        self._publish(self._memory.save())
        self._prune()
        views = tuple(node.view for _, node in sorted(self._hands.nodes.items()))
        self._outbox.see_inventory(views, self._clock.mono())

    def rest_s(self) -> float:
        """Return how long the next pass may wait if nothing changes."""
        held = self._memory.state.held()
        if not self._memory.is_durable or any(progress.phase is not Phase.ACTIVE or progress.is_leaving for _, progress in held):
            return 0.0
        ends_s = [end_s for each in held if (end_s := end_of(*each)) is not None]
        return min(REST_MOST_S, min(ends_s, default=float("inf")) - self._time.latest())

    def _tend(self) -> None:
        found = self._hands.tend(repairs=self.repairs_drift)
        if found is not None:
            self.link.drifts.see("nodes", found, self._clock.mono())

    def _prune(self) -> None:
        held = {assignment.id for assignment, _ in self._memory.state.held()}
        self._hands.prune(held)
        self._leaving.prune(held)

    def _take_over(self) -> None:
        state = self._memory.state
        for node, record, gpus in list(self._hands.orphans()):
            if record.phase is GpuPhase.CLOSED:
                assignment = records.assignment_of_closed(node, record, gpus)
                state.assignments[assignment.id] = assignment
                state.progress[assignment.id] = Progress(absent=True, listed=False)
        for member in state.held():
            with self._hands.apart("reflect", member):
                self._hands.reflect(*member)

    def _decide_ends(self) -> None:
        now_s = self._time.latest()
        for assignment, progress in self._memory.state.held():
            if assignment.desired not in list(Desired):
                self._hands.report_unsupported(assignment, progress, assignment.desired, "value of desired")
            with self._hands.apart("end", (assignment, progress)):
                if not progress.is_leaving:
                    self._decide_end(assignment, progress, now_s)
        for box in self._boxes():
            # A box ends as a whole: after a crash during this decision an extension must not split the box.
            if any(progress.ending for _, progress in box):
                for _, progress in box:
                    progress.ending = progress.ending or progress.active_s is not None

    def _decide_end(self, assignment: Assignment, progress: Progress, now_s: float) -> None:
        end_s = end_of(assignment, progress)
        if progress.active_s is not None:
            progress.ending = end_s is not None and now_s >= end_s
        elif now_s >= assignment.enter_by_s:
            progress.fail("the entry was not complete in time")
        elif end_s is not None and now_s >= end_s:
            progress.fail("the window ended before the entry was complete")

    def _boxes(self) -> Iterator[Box]:
        boxes: dict[tuple[str, int], Box] = {}
        for assignment, progress in self._memory.state.held():
            if not progress.absent and not progress.failure:
                boxes.setdefault((assignment.gpr_id, assignment.run), []).append((assignment, progress))
        return iter(boxes.values())

    def _run_boxes(self) -> None:
        boxes = [box for box in self._boxes() if not any(each[1].ending or self._hands.is_struck(each) for each in box)]
        for box in boxes:
            with self._hands.apart("open", box[0]):
                self._entering.mark_active(box)
        if self._memory.save():
            self._entering.open(boxes)
        with self._hands.apart("announce"):
            self._hands.announce([end for box in boxes if (end := self._announced(box)) is not None])
        with self._hands.apart("serve"):
            self._entering.serve(boxes)

    def _announced(self, box: Box) -> BoxEnd | None:
        ends_s = min((end_s for each in box if each[1].active_s is not None and (end_s := end_of(*each)) is not None), default=None)
        if ends_s is None:
            return None
        is_near = ends_s - self._time.now() <= self._memory.state.warn_before_s
        of = box[0][0]
        return BoxEnd(gpr_id=of.gpr_id, gpr_name=of.gpr_name, run=of.run, ends_s=ends_s, is_near=is_near)

    def _order_nodes(self) -> None:
        """As with entries, nothing begins without the hub, and nothing that began is taken back."""
        if not self.link.entry_block():
            now_s = self._time.earliest()
            self._hands.provide([order for order in self.link.orders if order.order_by_s <= now_s])

    # -- reports -------------------------------------------------------------------------------------------------------

    def _publish(self, is_durable: bool) -> bool:
        if is_durable:
            state = self._memory.state
            self._told = Told(state.hub_id, state.generation, state.digest, tuple(self._observed()), state.credential)
            self._outbox.add_steps(state.events)
        # After `add_steps`: one pass may produce more events than the document keeps.
        self._outbox.drop(self._memory.drop_surplus())
        return is_durable

    def _observed(self) -> Iterator[Observed]:
        state = self._memory.state
        for known_id, assignment in sorted(state.assignments.items()):
            progress = state.progress[known_id]
            waits_for = self._entering.waits_for(assignment, progress)
            yield observed_of(assignment, progress, current_step(assignment, progress), waits_for)
        for _, record, _ in self._hands.orphans():
            yield records.observed_orphan(record)


def end_of(assignment: Assignment, progress: Progress) -> float | None:
    """Return None while the end is not known."""
    if assignment.not_after_s is not None:
        return assignment.not_after_s
    return progress.active_s + assignment.duration_s if progress.active_s is not None else None


def current_step(assignment: Assignment, progress: Progress) -> str:
    if progress.phase is Phase.ENTERING:
        return next((step for step in assignment.entry_steps if step not in progress.entry_done), "")
    if progress.phase in (Phase.FAILED, Phase.EXITING):
        return next((step for step in exit_steps(assignment) if step not in progress.exit_done), Milestone.RELEASE)
    return ""
