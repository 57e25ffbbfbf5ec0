"""The life of GPRs under whatever people, agents and time do to it, in any order; and what must hold after each of them."""

from __future__ import annotations

import itertools
import os
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any, ClassVar
from uuid import UUID

import msgspec
from django.conf import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from accounts.models import User
from core.errors import EgsError
from gpr.allocation.allocator import tick
from gpr.allocation.live import LiveSnapshot, differences, live_forget, snapshot_load
from gpr.allocation.rows import plan_summaries
from gpr.allocation.snapshot import PROMISE_TOLERANCE_S
from gpr.allocation.stored_plan import plan_of, summary_of
from gpr.approvals.services import gpr_approve, gpr_reject
from gpr.models import ENDED, ENDED_WELL, PROVISIONED, TRANSITIONS, AfterCondition, Gpr, GprState, Promise, PromiseMove
from gpr.queue.decisions import gpr_evict, gpr_set_priority
from gpr.replacement.services import box_of, node_replace
from gpr.requests.editing import gpr_cancel, gpr_edit, spec_of
from gpr.requests.ending import gpr_extend, gpr_release
from gpr.requests.services import gpr_submit
from inventory.models import Cluster, Node, Reservation, ReservationState, ReservedGpu
from inventory.services.nodes import node_cordon, node_uncordon
from inventory.services.reservations import reservation_force_release
from inventory.services.sync import desired_set
from journal import guard
from journal.models import Event
from protocol.agents.events import Outcome
from protocol.agents.listings import set_digest
from protocol.assignments import Desired, Phase
from protocol.nodes.inventory import NodeView
from slices.models import Namespace, Slice
from slices.namespaces.services import namespace_bind, namespace_unbind
from tests.builders import NOW, make_cluster, make_slice, make_user, node_view, spec
from tests.databases import delete_all_rows
from tests.inventory.agent import Agent, seen, step
from tests.lifecycle.agent_model import ModelAgent
from tests.promises.feasible import faults

S = GprState
numbers = st.integers(0, 11)
requests = st.tuples(
    st.integers(0, 2),
    st.sampled_from([1, 1, 1, 2, 2, 3, 5]),
    st.sampled_from([None, None, 1, 2, 3]),
    st.sampled_from([60, 600, 601, 3600, 3600, 5400, 8 * 86_400, 10**9]),
    st.sampled_from([50, 101, 101, 101, 250]),
    st.sampled_from([True, True, False]),
    st.sampled_from([None, None, None, None, 900]),
)
# What the world does behind each rule, mostly nothing: seconds between two turns of it, and how many.
World = tuple[float, int]
worlds = st.sampled_from([(0.0, 0), (0.0, 0), (0.0, 0), (1.0, 1), (1.0, 4), (5.0, 2), (16.0, 2), (300.0, 3)])
FIRST = {S.QUEUED, S.PENDING_APPROVAL}
REST_ROUNDS = 80
SICK, AWAY = "a GPU is sick", "not ready"
TOLD_OF = ["gpr.node_failing", "gpr.spare_entering", "gpr.node_replaced", "gpr.replacement_failed", "gpr.node_recovered"]


def act(**strategies: Any) -> Callable[[Callable[..., None]], Any]:
    """A rule, and behind it whatever the world does."""

    def decorate(work: Callable[..., None]) -> Any:
        @wraps(work)
        def both(self: Life, then: World, **drawn: Any) -> None:
            work(self, **drawn)
            self._go_on(then)

        decorated: Any = rule(then=worlds, **strategies)
        return decorated(both)

    return decorate


class InternalError(AssertionError):
    """The hub met an exception that it had not thought of."""


class _Log:
    def info(self, what: str, **more: Any) -> None:
        pass

    def exception(self, what: str, **more: Any) -> None:
        raise InternalError(what)


class Life(RuleBasedStateMachine):
    # What happened in any of the lives: a run in which nothing ever gets far proves nothing.
    seen: ClassVar[Counter[str]] = Counter()
    _was_begun = False

    @initialize(asks=st.lists(requests, min_size=2, max_size=5))
    def begin(self, asks: list[Any]) -> None:
        self._was_begun = True
        live_forget()
        self.other, self.states_count = LiveSnapshot(), 0
        # Ids are part of a run, since the planner orders by them: they are the same in each.
        rng, self._urandom = random.Random(1), os.urandom
        os.urandom = rng.randbytes
        self._log, guard.log = guard.log, _Log()
        self.now = NOW + timedelta(seconds=0.3)
        self.admin, self.owner = make_user("admin", is_admin=True), make_user("owner")
        self.clusters = [make_cluster("big", nodes=3, is_heard=False), make_cluster("small", nodes=1, gpus=2, is_heard=False)]
        self.agents = [ModelAgent(Agent.joined(cluster, at=self.now)) for cluster in self.clusters]
        self.slices: list[Slice] = [make_slice(*self.clusters, name=name, owner=self.owner) for name in ("red", "green", "blue")]
        self.gone: set[str] = set()
        self.troubles: dict[str, str] = {}
        self.ticked = False
        self.generations: dict[UUID, tuple[int, str]] = {}
        self.epochs: dict[UUID, int] = {}
        self.states: dict[UUID, str] = {}
        self.last_event = 0
        for ask in asks:
            self._submit(*ask)
        self.holds()

    def teardown(self) -> None:
        if not self._was_begun:
            return
        try:
            if sys.exc_info()[0] is None:
                self._come_to_rest()
        finally:
            os.urandom, guard.log = self._urandom, self._log
            delete_all_rows()

    # -- people --------------------------------------------------------------------------------------------------------

    @act(ask=requests)
    def submit(self, ask: Any) -> None:
        self._submit(*ask)

    @act(ask=requests, which=numbers, condition=st.sampled_from(AfterCondition.values))
    def submit_behind_another(self, ask: Any, which: int, condition: str) -> None:
        before = self._pick(which, {S.PENDING_APPROVAL, S.QUEUED, S.PROVISIONING, S.ACTIVE, S.EXITING})
        self._submit(*ask, after=before, after_condition=condition)

    @act(which=numbers, other=numbers)
    def edit_what_it_starts_after(self, which: int, other: int) -> None:
        before = self._pick(other, set(S) - ENDED)
        self._on(which, FIRST, lambda gpr: gpr_edit(gpr=gpr, actor=self.owner, spec=spec_of(gpr, after=before), now=self.now))

    def _submit(
        self,
        who: int,
        nodes: int,
        gpus: int | None,
        duration_s: int,
        priority: int,
        requeue: bool,
        later_s: int | None,
        **behind: Any,
    ) -> None:
        asked = spec(
            self.slices[who],
            nodes=nodes,
            gpus_per_node=gpus,
            duration_s=duration_s,
            priority=priority,
            requeue_on_failure=requeue,
            earliest_start_at=None if later_s is None else self.now + timedelta(seconds=later_s),
            **behind,
        )
        self._try(lambda: gpr_submit(actor=self.owner, spec=asked, now=self.now))

    @act(which=numbers)
    def approve(self, which: int) -> None:
        self._on(which, {S.PENDING_APPROVAL}, lambda gpr: gpr_approve(gpr=gpr, actor=self.admin, now=self.now))

    @act(which=numbers)
    def reject(self, which: int) -> None:
        self._on(which, FIRST, lambda gpr: gpr_reject(gpr=gpr, actor=self.admin, why="no", now=self.now))

    @act(which=numbers)
    def cancel(self, which: int) -> None:
        self._on(which, FIRST, lambda gpr: gpr_cancel(gpr=gpr, actor=self.owner, now=self.now))

    @act(
        which=numbers,
        changes=st.sampled_from(
            [
                {"duration_s": 300},
                {"duration_s": 5400},
                {"nodes": 2},
                {"nodes": 9},
                {"gpus_per_node": 1},
                {"name": "other"},
                {"priority": 201},
            ]
        ),
    )
    def edit(self, which: int, changes: dict[str, Any]) -> None:
        self._on(which, FIRST, lambda gpr: gpr_edit(gpr=gpr, actor=self.owner, spec=spec_of(gpr, **changes), now=self.now))

    @act(which=numbers)
    def edit_what_has_changed_since_it_was_read(self, which: int) -> None:
        gpr = self._pick(which, FIRST)
        if gpr is None:
            return
        stale = Gpr.objects.select_related("slice").get(pk=gpr.pk)
        self._try(lambda: gpr_set_priority(gpr=gpr, priority=60, actor=self.admin, why="", now=self.now))
        version = Gpr.objects.get(pk=gpr.pk).version
        if version == stale.version:
            return  # it could not be changed: it could never start now
        try:
            gpr_cancel(gpr=stale, actor=self.owner, now=self.now)
        except EgsError:
            assert Gpr.objects.get(pk=gpr.pk).version == version
        else:
            raise AssertionError("a stale copy was taken")

    @act(which=numbers, priority=st.sampled_from([1, 101, 300, 301]))
    def set_priority(self, which: int, priority: int) -> None:
        self._on(which, FIRST, lambda gpr: gpr_set_priority(gpr=gpr, priority=priority, actor=self.admin, why="", now=self.now))

    @act(which=numbers, is_admin=st.booleans())
    def release(self, which: int, is_admin: bool) -> None:
        actor: User = self.admin if is_admin else self.owner
        self._on(which, {S.PROVISIONING, S.ACTIVE}, lambda gpr: gpr_release(gpr=gpr, actor=actor, now=self.now))

    @act(which=numbers)
    def evict(self, which: int) -> None:
        self._on(which, {S.PROVISIONING, S.ACTIVE}, lambda gpr: gpr_evict(gpr=gpr, actor=self.admin, why="", now=self.now))

    @act(which=numbers, extra_s=st.sampled_from([1, 30, 600, 10**9]))
    def extend(self, which: int, extra_s: int) -> None:
        self._on(which, {S.ACTIVE}, lambda gpr: gpr_extend(gpr=gpr, extra_s=extra_s, actor=self.owner, now=self.now))

    @act(which=numbers)
    def bind_or_unbind_a_namespace(self, which: int) -> None:
        slice_, cluster = self.slices[which % 3], self.clusters[which % 2]
        bound = Namespace.objects.filter(slice=slice_, cluster=cluster).first()
        if bound:
            self._try(lambda: namespace_unbind(namespace=bound, actor=self.admin, now=self.now))
        else:
            self._try(lambda: namespace_bind(slice_=slice_, cluster=cluster, name=slice_.name, actor=self.admin, now=self.now))

    # -- agents and nodes ----------------------------------------------------------------------------------------------

    @act(which=numbers)
    def sync(self, which: int) -> None:
        self.agents[which % 2].sync(self.now)

    @act(which=numbers, number=numbers)
    def agent_goes_on(self, which: int, number: int) -> None:
        agent = self.agents[which % 2]
        agent.go_on(number, self.now)
        agent.sync(self.now)

    @act(times=st.integers(1, 4))
    def agents_go_on_with_everything(self, times: int) -> None:
        """They mostly do: most boxes get somewhere."""
        for agent in self.agents:
            for _ in range(times):
                agent.sync(self.now)
                agent.go_on_with_all(self.now)
            agent.sync(self.now)

    @act(which=numbers, number=numbers)
    def entry_fails(self, which: int, number: int) -> None:
        self.agents[which % 2].fail(number)
        self.agents[which % 2].sync(self.now)

    @act(which=numbers, number=numbers)
    def agent_gives_up_a_box(self, which: int, number: int) -> None:
        self.agents[which % 2].leave(number, self.now)
        self.agents[which % 2].sync(self.now)

    @act(which=numbers, number=st.integers(0, 400), count=st.integers(1, 3))
    def old_words_come_again(self, which: int, number: int, count: int) -> None:
        """Late, twice, and in any order: nothing of them may count."""
        agent = self.agents[which % 2]
        if not agent.said:
            return
        words = [agent.said[(number + index) % len(agent.said)] for index in range(count)]
        self._without_effect_on_released(lambda: agent.agent.sync(*words, *reversed(words), at=self.now))

    @act(which=numbers)
    def words_about_anothers_nodes(self, which: int) -> None:
        agent, other = self.agents[which % 2], self.agents[1 - which % 2]
        words = list(other.said[-3:])
        self._without_effect(lambda: agent.agent.sync(*words, at=self.now))

    @act(which=numbers, phase=st.sampled_from([Phase.ACTIVE, Phase.RELEASED]), off=st.sampled_from([-1, 1]))
    def words_of_another_epoch(self, which: int, phase: Phase, off: int) -> None:
        agent = self.agents[which % 2]
        rows = Reservation.objects.filter(cluster=agent.agent.cluster, state=ReservationState.HELD)
        words = [seen(row, phase, epoch=row.epoch + off) for row in rows]
        self._without_effect(lambda: agent.agent.sync(*words, at=self.now))

    @act(which=numbers)
    def agent_starts_anew(self, which: int) -> None:
        """Its new session supersedes the old one, whose words no longer count."""
        model = self.agents[which % 2]
        old = model.agent
        model.agent = Agent(old.cluster, old.credential, old.cred_gen, boot=f"{old.boot}+")
        model.agent.sync(at=self.now)
        words = model.said[-3:]
        self._without_effect(lambda: self._superseded(old, words))

    @act(which=numbers)
    def an_entry_check_is_reported_as_failed(self, which: int) -> None:
        agent = self.agents[which % 2].agent
        row = Reservation.objects.filter(cluster=agent.cluster, state=ReservationState.HELD).first()
        if row is not None:
            agent.seq += 1
            agent.events(step(row, agent.seq, outcome=Outcome.FAILED), at=self.now)

    @act(which=numbers)
    def a_node_goes_or_comes_back(self, which: int) -> None:
        """Mostly one that somebody is on."""
        busy = Reservation.objects.filter(state=ReservationState.HELD, cluster=self.clusters[0], node__gone_at=None).order_by("pk")
        names = list(busy.values_list("node__name", flat=True)) if which % 4 else []
        self.gone ^= {names[which % len(names)] if names else f"big-n{which % 3}"}
        self._report_inventory()

    @act(which=numbers, how=st.sampled_from([SICK, AWAY]))
    def a_node_of_a_running_box_gets_sick_or_well(self, which: int, how: str) -> None:
        """One GPU of it gets sick, or the whole node for a while."""
        busy = Reservation.objects.filter(state=ReservationState.HELD, gpr__state=S.ACTIVE, cluster=self.clusters[0]).order_by("pk")
        names = list(busy.values_list("node__name", flat=True)) or [f"big-n{which % 3}"]
        name = names[which % len(names)]
        self.troubles = {**self.troubles, name: how} if name not in self.troubles else {k: v for k, v in self.troubles.items() if k != name}
        self._report_inventory()

    @act(which=numbers)
    def a_node_is_replaced_by_hand(self, which: int) -> None:
        rows = list(Reservation.objects.filter(state=ReservationState.HELD, gpr__state=S.ACTIVE).select_related("gpr").order_by("pk"))
        if rows:
            row = rows[which % len(rows)]
            self._try(lambda: node_replace(gpr=row.gpr, node_id=row.node_id, actor=self.admin, why="a look", now=self.now))

    @act(which=numbers)
    def cordon_or_uncordon(self, which: int) -> None:
        node = Node.objects.order_by("name")[which % 4]
        if node.cordoned_at:
            self._try(lambda: node_uncordon(node=node, actor=self.admin, now=self.now))
        else:
            self._try(lambda: node_cordon(node=node, actor=self.admin, why="a look", now=self.now))

    @act(which=numbers)
    def force_a_release(self, which: int) -> None:
        rows = list(Reservation.objects.filter(state=ReservationState.HELD).order_by("pk"))
        if rows:
            row = rows[which % len(rows)]
            reservation_force_release(reservation=row, actor=self.admin, why="it burnt", now=self.now)

    # -- time ----------------------------------------------------------------------------------------------------------

    @act(seconds=st.sampled_from([0.4, 1.0, 1.7, 20.0, 50.0, 65.0, 600.0, 3700.0]))
    def nobody_does_anything_for_a_while(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    @act(seconds=st.sampled_from([0.4, 20.0, 65.0, 3700.0]), times=st.integers(1, 3))
    def only_the_hub_works(self, seconds: float, times: int) -> None:
        for _ in range(times):
            self.now += timedelta(seconds=seconds)
            self._tick()

    @act(seconds=st.sampled_from([0.4, 20.0, 65.0, 3700.0]), times=st.integers(1, 4))
    def only_the_agents_work(self, seconds: float, times: int) -> None:
        for _ in range(times):
            self.now += timedelta(seconds=seconds)
            self._agents()

    @act(seconds=st.sampled_from([1.0, 5.0, 16.0, 600.0]), times=st.integers(2, 6))
    def all_is_well(self, seconds: float, times: int) -> None:
        self._go_on((seconds, times))

    def _go_on(self, world: World) -> None:
        """The world turns: agents and hub do their part so many times, so many seconds apart."""
        seconds, times = world
        for _ in range(times):
            self.now += timedelta(seconds=seconds)
            self._agents()
            self._tick()
            self.holds()

    def _agents(self) -> None:
        for agent in self.agents:
            agent.sync(self.now)
            if agent.known:
                agent.go_on_with_all(self.now)
                agent.sync(self.now)

    def _tick(self) -> None:
        report = tick(now=self.now)
        assert report is not None
        assert "internal error" not in report.skipped.values()
        self.ticked = not report.skipped
        if not report.started:
            made = plan_of(snapshot_load(now=self.now), explained=None)
            assert plan_summaries() == {each.id: summary_of(each) for each in made.placements}

    # -- what must hold ------------------------------------------------------------------------------------------------

    @invariant()
    def holds(self) -> None:
        if not self._was_begun:
            return
        self._check_memory()
        self._check_reserved_once()
        self._check_events()
        self._check_rising()
        self._check_held()
        self._check_promises()
        self._check_time()
        self._check_chains()
        if self.ticked:
            self.ticked = False
            assert not (found := faults()), found

    def _check_memory(self) -> None:
        """This process, and another one that looks at every third state only, know what the database says."""
        self.states_count += 1
        fresh = LiveSnapshot().load(now=self.now, with_memory=True)
        assert differences(snapshot_load(now=self.now, with_memory=True), fresh) == []
        if self.states_count % 3 == 0:
            assert differences(self.other.load(now=self.now, with_memory=True), fresh) == []

    def _check_reserved_once(self) -> None:
        """Checks I1, I2 and I3."""
        live = (
            ReservedGpu.objects.exclude(state=ReservationState.RELEASED)
            .order_by("starts_at")
            .values_list("gpu", "starts_at", "ends_at", "state")
        )
        of_gpu: dict[UUID, list[Any]] = defaultdict(list)
        for gpu, *window in live:
            of_gpu[gpu].append(window)
        for windows in of_gpu.values():
            assert all(before[1] <= after[0] for before, after in itertools.pairwise(windows))
            assert sum(window[2] == ReservationState.HELD for window in windows) <= 1
        slices = list(Gpr.objects.filter(state__in=PROVISIONED).values_list("slice", flat=True))
        assert len(slices) == len(set(slices))

    def _check_events(self) -> None:
        """I6, I12: each move is legal, has one Event, and the Events tell the whole story."""
        news = Event.objects.filter(pk__gt=self.last_event, kind__in=["gpr.created", "gpr.transition"]).order_by("pk")
        for event in news:
            self.last_event = event.pk
            assert event.gpr_id is not None
            known = self.states.get(event.gpr_id)
            if event.kind == "gpr.created":
                assert known is None
                assert event.new in FIRST
            else:
                assert event.old == known
                assert event.new in TRANSITIONS.get(event.old, ())
            self.states[event.gpr_id] = event.new
            self.seen[f"{event.old}>{event.new} {event.reason}".strip()] += 1
        assert dict(Gpr.objects.values_list("pk", "state")) == self.states
        for kind in Event.objects.filter(kind__in=TOLD_OF).values_list("kind", flat=True).distinct():
            self.seen[kind] = 1

    def _check_rising(self) -> None:
        """I5, I16: and whatever changes of what an agent is told, changes with the generation."""
        for pk, generation in Cluster.objects.values_list("pk", "generation"):
            told = set_digest(desired_set(cluster_id=pk, now=NOW))
            before, told_before = self.generations.get(pk, (0, told))
            assert generation >= before
            assert generation > before or told == told_before, "the agent is told something else under the same generation"
            self.generations[pk] = generation, told
        for pk, epoch in Node.objects.values_list("pk", "epoch"):
            assert epoch >= self.epochs.get(pk, 0)
            self.epochs[pk] = epoch

    def _check_held(self) -> None:
        rows = list(Reservation.objects.filter(state=ReservationState.HELD).select_related("gpr"))
        for row in rows:
            assert row.gpr.state in PROVISIONED, f"{row} is held for a GPR that is {row.gpr.state}"
            assert row.run == row.gpr.run
            reserved = set(row.gpus.values_list("state", "ends_at"))
            assert reserved == {(ReservationState.HELD, row.ends_at)}
        for gpr in Gpr.objects.filter(state__in=PROVISIONED):
            assert gpr.reservations.filter(run=gpr.run, replaces=None).count() == gpr.nodes
        for gpr in Gpr.objects.filter(state=S.ACTIVE):
            rows = list(gpr.reservations.filter(run=gpr.run))
            assert len(box_of(rows)) == gpr.nodes, "a spare takes the place of one, no more and no less"
            wanted = [row.gang_count for row in rows if row.state == ReservationState.HELD and row.desired == Desired.PRESENT]
            # What is freed by force is counted out by the next tick.
            assert not self.ticked or set(wanted) <= {len(wanted)}, "else no spare would open"
        for row in Reservation.objects.filter(state=ReservationState.RELEASED):
            assert set(row.gpus.values_list("state", flat=True)) == {ReservationState.RELEASED}

    def _check_promises(self) -> None:
        moves: dict[UUID, list[PromiseMove]] = defaultdict(list)
        for move in PromiseMove.objects.all():
            assert move.cause
            self.seen["a promise was moved"] += 1
            moves[move.gpr_id].append(move)
        promises = {promise.gpr_id: promise for promise in Promise.objects.all()}
        edited = set(Event.objects.filter(kind="gpr.edited").values_list("gpr_id", flat=True))
        for promise in promises.values():
            # Nobody moved it in silence. What its owner asks for instead may have been promised sooner.
            said = {promise.first_promised_start_at, *(move.new_start_at for move in moves[promise.gpr_id] if move.at >= promise.made_at)}
            assert promise.promised_start_at in said or (promise.gpr_id in edited and promise.promised_start_at < max(said))
        for gpr in Gpr.objects.all():
            found = promises.get(gpr.pk)
            if gpr.state == S.QUEUED:
                assert gpr.has_no_place or (found is not None and found.slot_nodes), f"{gpr} waits with neither a promise nor a reason"
                assert gpr.explanation
            elif gpr.state in PROVISIONED:
                assert found is not None
                assert gpr.provisioning_at is not None
                late_s = (gpr.provisioning_at - found.promised_start_at).total_seconds()
                assert late_s <= PROMISE_TOLERANCE_S + 1, f"{gpr} started {late_s} s after its promise"
            elif gpr.state in {S.CANCELED, S.REJECTED, S.PENDING_APPROVAL}:
                assert found is None

    def _check_chains(self) -> None:
        """Each box began after the end of its request's predecessor. One that waits again may have been put behind another."""
        for gpr in Gpr.objects.filter(state__in=PROVISIONED).exclude(after=None).select_related("after"):
            assert gpr.after is not None
            self.seen["started behind another"] += 1
            assert gpr.after.state in (ENDED if gpr.after_condition == AfterCondition.ANY else ENDED_WELL)
            assert gpr.after.ended_at is not None
            assert gpr.provisioning_at is not None
            assert gpr.after.ended_at <= gpr.provisioning_at

    def _check_time(self) -> None:
        for gpr in Gpr.objects.all():
            assert 0 <= gpr.remaining_s <= gpr.duration_s
            assert (gpr.ended_at is not None) == (gpr.state in ENDED)
            if gpr.active_at is not None and gpr.ends_at is not None:
                assert (gpr.ends_at - gpr.active_at).total_seconds() <= gpr.duration_s
            if gpr.state == S.ACTIVE:
                assert gpr.ends_at is not None
                assert gpr.active_at is not None
                held = gpr.reservations.filter(run=gpr.run, state=ReservationState.HELD, desired=Desired.PRESENT)
                assert set(held.values_list("not_after_at", flat=True)) <= {gpr.ends_at}
                assert (gpr.ends_at - gpr.active_at).total_seconds() == gpr.remaining_s
            if gpr.state == S.COMPLETED:
                assert gpr.remaining_s < settings.EGS_EXIT_ALLOWANCE_S, "completed, but it had not had its time"

    # -- rest ----------------------------------------------------------------------------------------------------------

    def _come_to_rest(self) -> None:
        """I11: the trouble is over, and every entry and exit ends."""
        self.gone.clear()
        self.troubles.clear()
        self._report_inventory()
        for node in Node.objects.exclude(cordoned_at=None):
            node_uncordon(node=node, actor=self.admin, now=self.now)
        for _ in range(REST_ROUNDS):
            self.now += timedelta(seconds=20)
            self._agents()
            self._agents()
            self._tick()
            self.holds()
            left = Gpr.objects.filter(state__in=[S.PROVISIONING, S.EXITING])
            if not left.exists():
                return
        raise AssertionError(f"no rest: {[(gpr.name, gpr.state) for gpr in left]}")

    # -- how -----------------------------------------------------------------------------------------------------------

    def _pick(self, which: int, states: set[GprState]) -> Gpr | None:
        """Mostly one that may be moved so, sometimes one that may not."""
        rows = list(Gpr.objects.select_related("slice").order_by("created_at", "pk"))
        fitting = [gpr for gpr in rows if gpr.state in states]
        choice = fitting if which % 4 and fitting else rows
        return choice[which % len(choice)] if choice else None

    def _on(self, which: int, states: set[GprState], work: Callable[[Gpr], object]) -> None:
        gpr = self._pick(which, states)
        if gpr is not None:
            self._try(lambda: work(gpr))

    def _try(self, work: Callable[[], object]) -> None:
        """Refused or not; any other exception is a fault."""
        try:
            work()
        except EgsError:
            return

    def _report_inventory(self) -> None:
        agent = self.agents[0].agent
        views = (self._view(f"big-n{i}") for i in range(3) if f"big-n{i}" not in self.gone)
        agent.inventory(*views, at=self.now)

    def _view(self, name: str) -> NodeView:
        trouble = self.troubles.get(name)
        view = node_view(name, ready=trouble != AWAY, broken=trouble == AWAY)
        gpus = tuple(msgspec.structs.replace(gpu, healthy=trouble != SICK or gpu.index > 0) for gpu in view.gpus)
        return msgspec.structs.replace(view, gpus=gpus)

    def _superseded(self, old: Agent, words: Any) -> None:
        reply = old.try_sync(*words, at=self.now)
        assert (reply.status, reply.code) == (409, "agent_superseded")

    def _without_effect(self, work: Callable[[], object]) -> None:
        before = self._reservations()
        work()
        assert self._reservations() == before

    def _without_effect_on_released(self, work: Callable[[], object]) -> None:
        """The books of what is over stay as they were."""
        before = self._reservations()
        work()
        after = self._reservations()
        for pk, row in before.items():
            if row["state"] == ReservationState.RELEASED:
                assert {**after[pk], "phase": row["phase"]} == row

    def _reservations(self) -> dict[UUID, dict[str, Any]]:
        return {row["id"]: row for row in Reservation.objects.values()}
