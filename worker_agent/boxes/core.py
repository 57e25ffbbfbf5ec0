"""This is the agent's core. `reconcile` is one pass of observe, decide and act, right at any time and after any crash."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from protocol.agents.events import AgentEvent
from protocol.agents.registration import Credential
from protocol.agents.sync import SyncReply, SyncRequest
from protocol.assignments import Assignment, Desired, Observed, Phase
from protocol.nodes.steps import Milestone
from worker_agent import VERSION
from worker_agent.boxes import records
from worker_agent.boxes.actions import Actions
from worker_agent.boxes.entry import Box, Entries
from worker_agent.boxes.exit import Exits, exit_steps
from worker_agent.boxes.state import Progress, StateStore
from worker_agent.clock import Clock, HubTime, Instant
from worker_agent.cluster.base import BoxEnd, ClusterDriver, GpuPhase, NodeState, Note
from worker_agent.hub.link import Link, Sent, observed_of
from worker_agent.hub.outbox import EventOutbox, event_key
from worker_agent.hub.workloads import OpenBox

REST_MOST_S: Final = 1.0  # between passes while nothing changes


def _silent(event: str, fields: dict[str, object]) -> None:
    return None


@dataclass(frozen=True, slots=True)
class DurableReport:
    """Lists facts that may be reported to the hub."""

    hub_id: str = ""
    generation: int = 0
    digest: str = ""
    observed: tuple[Observed, ...] = ()
    credential: Credential | None = None


class Core:
    def __init__(self, *, cluster: ClusterDriver, clock: Clock, rng: random.Random, note: Note = _silent) -> None:
        self._clock = clock
        self._store = StateStore(cluster, note)
        state = self._store.state
        self._time = HubTime(clock, state.offset_s)
        self.link = Link(clock=clock, time=self._time, state=state, note=note)
        self._actions = Actions(cluster=cluster, clock=clock, time=self._time, store=self._store, rng=rng, note=note)
        self._entries = Entries(actions=self._actions, link=self.link, clock=clock, time=self._time)
        self._exits = Exits(actions=self._actions, clock=clock, time=self._time)
        self._outbox = EventOutbox()
        self._rng = rng
        self._boot_id = f"{rng.getrandbits(64):016x}"
        self._reported = DurableReport()
        if not state.install_id:
            state.install_id = f"{rng.getrandbits(128):032x}"
        self._publish(self._store.save())

    # -- the hub -------------------------------------------------------------------------------------------------------

    def sync_request(self, wait_s: float) -> Sent:
        at = Instant.of(self._clock)
        reported = self._reported
        request = SyncRequest(
            session_epoch=self.link.session_epoch,
            boot_id=self._boot_id,
            known_hub_id=reported.hub_id,
            known_generation=reported.generation,
            have_digest=self.link.have_digest(reported.digest),
            wait_s=wait_s,
            agent_wall_s=at.wall,
            clock_offset_s=self._time.offset_s,
            agent_version=VERSION,
            observed=reported.observed,
            have_workspaces=self.link.tenancy.workspaces.digest,
            accounts_left=self.link.tenancy.accounts_left,
            have_claims=self.link.requests.states.digest,
            have_life=self.link.life_wanted(),
            have_templates=self.link.requests.templates.digest,
            bindings=self.link.tenancy.bindings_untold,
            tokens=self.link.tenancy.tokens_untold,
            drifts=self.link.drifts.untold,
            waiting=self.link.waiting_untold,
            steps_lost=self._store.state.steps_lost,
            jobs_failed=self.link.failed_jobs.untold,
            have_workloads=self.link.workloads.listed.digest,
            workload_kinds=self.link.workloads.kinds,
            workloads_seen=self.link.workloads.untold(self.link.session_epoch),
        )
        return Sent(request=request, at=at)

    def on_reply(self, sent: Sent, reply: SyncReply, raw_digest: str = "") -> None:
        """`raw_digest` is over the assignments as they came on the wire, if known."""
        if not self.is_of_this_boot(sent):
            return
        self.link.accept(sent, reply, raw_digest)
        self._outbox.open_session(self.link.session_epoch, self._clock.mono())
        self._publish(self._store.save())

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
        state = self._store.state
        state.events = [event for event in state.events if event_key(event) not in done]
        return stored_seq >= pending[0].seq

    def is_of_this_boot(self, sent: Sent) -> bool:
        return sent.request.boot_id == self._boot_id

    def _begin_session(self) -> None:
        self._boot_id = f"{self._rng.getrandbits(64):016x}"
        self.link.session_epoch = 0

    @property
    def observed(self) -> tuple[Observed, ...]:
        return self._reported.observed

    @property
    def hub_now_s(self) -> float:
        return self._time.now()

    def in_use(self) -> frozenset[str]:
        """Return ids and names of workspaces, and namespaces, with something on a node."""
        held = [assignment for assignment, progress in self._store.state.held() if progress.phase is not Phase.PENDING]
        return frozenset(word for assignment in held for word in (assignment.slice, *assignment.namespaces))

    def open_boxes(self) -> list[OpenBox] | None:
        """Return the boxes that workloads may use now; None before the cluster was read."""
        if not self._actions.nodes:
            return None
        return [open_ for box in self._boxes() if (open_ := _open_box(box)) is not None]

    @property
    def nodes(self) -> dict[str, NodeState]:
        """Returns nodes as the last pass saw them."""
        return dict(self._actions.nodes)

    @property
    def repairs_drift(self) -> bool:
        return self._store.state.repairs_drift

    # -- credential ----------------------------------------------------------------------------------------------------

    @property
    def install_id(self) -> str:
        return self._store.state.install_id

    @property
    def credential(self) -> Credential | None:
        """It returns a credential only once that is durable: the hub drops the old one once it sees the new one."""
        return self._reported.credential

    @property
    def is_joining(self) -> bool:
        # There is a credential that is not durable yet.
        return self._reported.credential is None and self._store.state.credential is not None

    @property
    def renew_at_s(self) -> float:
        state = self._store.state
        life_s = state.credential.expires_s - state.credential_since_s if state.credential else 0.0
        return state.credential_since_s + life_s / 2

    def used_join_token(self, digest: str) -> bool:
        return self._store.state.join_token_digest == digest

    def is_registerable(self) -> bool:
        return self._store.is_durable or self._store.save()  # the install id must be durable: it identifies a repeated register

    def take_credential(self, credential: Credential, *, join_token_digest: str = "") -> bool:
        state = self._store.state
        state.credential, state.credential_since_s = credential, self._time.now()
        state.join_token_digest = join_token_digest or state.join_token_digest
        return self._publish(self._store.save())

    def drop_credential(self) -> None:
        self._store.state.credential = None
        self._publish(self._store.save())

    # -- one pass ------------------------------------------------------------------------------------------------------

    def reconcile(self) -> None:
        """Raises OtherWriter when another agent writes this cluster's document."""
        # The order keeps a pass safe: ends are decided and saved first; exits come before entries and need only the cluster; nothing begins
        # before it is durable, and only durable facts are reported.
        if not self._actions.observe():
            return
        self._take_over()
        self._decide_ends()
        is_durable = self._store.save()
        held = self._store.state.held()
        leaving = [each for each in held if each[1].is_leaving]
        with self._actions.guard("fence"):
            self._actions.prepare_close(self._exits.to_close(leaving))
        self._exits.advance(leaving)
        if is_durable:
            self._entries.advance([each for each in held if not each[1].is_leaving and not self._actions.is_broken(each)])
        self._run_boxes()
        with self._actions.guard("order_nodes"):
            self._order_nodes()
        with self._actions.guard("repair_drift"):
            self._repair_drift()
        with self._actions.guard("record_life_marks"):
            self._actions.record_life_marks(self.link.life.items)
        self._publish(self._store.save())
        self._prune()
        views = tuple(node.view for _, node in sorted(self._actions.nodes.items()))
        self._outbox.see_inventory(views, self._clock.mono())

    def rest_s(self) -> float:
        """Return how long the next pass may wait if nothing changes."""
        held = self._store.state.held()
        if not self._store.is_durable or any(progress.phase is not Phase.ACTIVE or progress.is_leaving for _, progress in held):
            return 0.0
        ends_s = [end_s for each in held if (end_s := end_of(*each)) is not None]
        return min(REST_MOST_S, min(ends_s, default=float("inf")) - self._time.latest())

    def _repair_drift(self) -> None:
        found = self._actions.repair_drift(repairs=self.repairs_drift)
        if found is not None:
            self.link.drifts.see("nodes", found, self._clock.mono())

    def _prune(self) -> None:
        held = {assignment.id for assignment, _ in self._store.state.held()}
        self._actions.prune(held)
        self._exits.prune(held)

    def _take_over(self) -> None:
        state = self._store.state
        for node, record, gpus in list(self._actions.orphans()):
            if record.phase is GpuPhase.CLOSED:
                assignment = records.assignment_of_closed(node, record, gpus)
                state.assignments[assignment.id] = assignment
                state.progress[assignment.id] = Progress(absent=True, listed=False)
        for member in state.held():
            with self._actions.guard("reflect", member):
                self._actions.reflect(*member)

    def _decide_ends(self) -> None:
        now_s = self._time.latest()
        for assignment, progress in self._store.state.held():
            if assignment.desired not in list(Desired):
                self._actions.report_unsupported(assignment, progress, assignment.desired, "value of desired")
            with self._actions.guard("end", (assignment, progress)):
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
        for assignment, progress in self._store.state.held():
            if not progress.absent and not progress.failure:
                boxes.setdefault((assignment.gpr_id, assignment.run), []).append((assignment, progress))
        return iter(boxes.values())

    def _run_boxes(self) -> None:
        boxes = [box for box in self._boxes() if not any(each[1].ending or self._actions.is_broken(each) for each in box)]
        for box in boxes:
            with self._actions.guard("open", box[0]):
                self._entries.mark_active(box)
        if self._store.save():
            self._entries.open(boxes)
        with self._actions.guard("publish_ends"):
            self._actions.publish_ends([end for box in boxes if (end := self._box_end(box)) is not None])
        with self._actions.guard("serve"):
            self._entries.serve(boxes)

    def _box_end(self, box: Box) -> BoxEnd | None:
        ends_s = min((end_s for each in box if each[1].active_s is not None and (end_s := end_of(*each)) is not None), default=None)
        if ends_s is None:
            return None
        is_near = ends_s - self._time.now() <= self._store.state.warn_before_s
        of = box[0][0]
        releases = self.link.idle_releases
        idle_release_s = None if releases is None else releases.get((of.gpr_id, of.run), 0.0)
        return BoxEnd(gpr_id=of.gpr_id, gpr_name=of.gpr_name, run=of.run, ends_s=ends_s, is_near=is_near, idle_release_s=idle_release_s)

    def _order_nodes(self) -> None:
        """Orders nodes that are due, only while the hub can be reached. Orders are not withdrawn here."""
        if not self.link.entry_block():
            now_s = self._time.earliest()
            self._actions.order_nodes([order for order in self.link.orders if order.order_by_s <= now_s])

    # -- reports -------------------------------------------------------------------------------------------------------

    def _publish(self, is_durable: bool) -> bool:
        if is_durable:
            state = self._store.state
            self._reported = DurableReport(state.hub_id, state.generation, state.digest, tuple(self._observed()), state.credential)
            self._outbox.add_steps(state.events)
        # After `add_steps`: one pass may produce more events than the document keeps.
        self._outbox.drop(self._store.drop_surplus())
        return is_durable

    def _observed(self) -> Iterator[Observed]:
        state = self._store.state
        for known_id, assignment in sorted(state.assignments.items()):
            progress = state.progress[known_id]
            waits_for = self._entries.waits_for(assignment, progress)
            yield observed_of(assignment, progress, current_step(assignment, progress), waits_for)
        for _, record, _ in self._actions.orphans():
            yield records.observed_orphan(record)


def _open_box(box: Box) -> OpenBox | None:
    if any(progress.ending for _, progress in box):
        return None
    members = [each for each in box if each[1].phase is Phase.ACTIVE]
    if not members:
        return None
    of = members[0][0]
    ends_s = [end_s for each in members if (end_s := end_of(*each)) is not None]
    return OpenBox(
        gpr_id=of.gpr_id,
        run=of.run,
        slice=of.slice_key,
        nodes=tuple(sorted(assignment.node for assignment, _ in members)),
        gpus_per_node=min(len(assignment.gpus) for assignment, _ in members),
        active_s=min(progress.active_s or 0.0 for _, progress in members),
        ends_s=min(ends_s, default=None),
        drain=of.drain,
    )


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
