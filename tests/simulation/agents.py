"""Agent processes: the real core and dialog, as the real process runs them, with a network and a machine that fail."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from protocol.agents.listings import set_digest
from protocol.agents.sync import SYNC_PATH, SyncReply
from tests.agent.faulty import Crash, Fault, FaultyCluster
from tests.simulation.faults import Faults, Kind
from tests.simulation.loop import AgentClock, Loop
from worker_agent.boxes.core import Core
from worker_agent.boxes.state import OtherWriter
from worker_agent.hub.dialog import Call, Dialog, Lane

if TYPE_CHECKING:
    from tests.simulation.cluster import WatchedCluster
    from tests.simulation.hub import SimHub

PERIOD_S = 0.5  # between passes while anything is held; longer than in the real process, to save time here
IDLE_PERIOD_S = 2.0
WRITE_FAULTS = [
    (Kind.AGENT_CRASH_BEFORE_WRITE, Fault.CRASH_BEFORE, 0.03),
    (Kind.AGENT_CRASH_AFTER_WRITE, Fault.CRASH_AFTER, 0.03),
    (Kind.DRIVER_CONFLICT, Fault.CONFLICT, 0.06),
    (Kind.DRIVER_THROTTLED, Fault.THROTTLED, 0.06),
    (Kind.DRIVER_ERROR, Fault.ERROR, 0.06),
    (Kind.DRIVER_ANSWER_LOST, Fault.LOST_ANSWER, 0.06),
]


@dataclass(slots=True)
class Wire:
    """It stands for the network between one agent and the hub."""

    to_hub_cut_until: float = 0.0
    from_hub_cut_until: float = 0.0
    last_sent: float = 0.0


@dataclass(slots=True)
class Exchange:
    """One call on its way; it ends once: with an answer or without."""

    is_over: bool = False


@dataclass(slots=True)
class Health:
    """It knows since when every pass ran without a fault: from then on the agent has no excuse."""

    since: float = float("inf")
    faults_in_pass: int = 0
    last_heard_sent_at: float = float("-inf")  # when the hub sent the last answer that this process took in
    bearers: list[str] = field(default_factory=list)


class SimAgent:
    def __init__(self, *, name: str, cluster: WatchedCluster, hub: SimHub, loop: Loop, faults: Faults, rng: random.Random) -> None:
        self.name, self.cluster = name, cluster
        self._hub, self._loop, self._faults, self._rng = hub, loop, faults, rng
        self.clock = AgentClock(loop, rng)
        self.wire, self.health = Wire(), Health()
        self.join_token = ""
        self.core: Core | None = None
        self._dialog: Dialog | None = None
        self._life = 0
        self._paused_until = float("-inf")
        self.stops: list[str] = []
        self.is_retired = False

    # -- life and death ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        if self.is_retired or self.core is not None:
            return
        self._life += 1
        life = self._life
        self.health = Health(bearers=self.health.bearers)
        try:
            driver = FaultyCluster(self.cluster, self._choose)
            core_rng = random.Random(self._rng.getrandbits(64))
            self.core = Core(cluster=driver, clock=self.clock, rng=core_rng, note=self._note)
            self._dialog = Dialog(
                core=self.core,
                cluster_uid=self.cluster.uid(),
                join_token=lambda: self.join_token,
                clock=self.clock,
                rng=core_rng,
                note=self._note,
            )
        except Crash:
            self.die("crash at start", self._rng.uniform(0.5, 5.0))
            return
        self._loop.note(f"{self.name} started")
        for lane in Lane:
            self._later(life, 0.0, partial(self._talk, lane))
        self._later(life, 0.0, self._pass)

    def die(self, why: str, restart_after_s: float) -> None:
        self._loop.note(f"{self.name} dies: {why}")
        self.stops.append(why)
        self._life += 1
        self.core = self._dialog = None
        self._loop.after(restart_after_s, self.start)

    def retire(self) -> None:
        """This process is not started again."""
        self.is_retired = True
        self._life += 1
        self.core = self._dialog = None

    def pause(self, seconds: float, *, is_suspend: bool) -> None:
        self._loop.note(f"{self.name} sleeps for {seconds:.0f} s{' with its machine' if is_suspend else ''}")
        self._paused_until = self._loop.now + seconds
        self.health.since = float("inf")
        if is_suspend:
            self._loop.after(seconds, lambda: self._wake_machine(seconds))

    def _wake_machine(self, seconds: float) -> None:
        self.clock.slept_s += seconds

    @property
    def is_running(self) -> bool:
        return self.core is not None and self._loop.now >= self._paused_until

    @property
    def is_refused(self) -> bool:
        return self._dialog is not None and bool(self._dialog.refusal)

    def _later(self, life: int, seconds: float, work: Callable[[], None]) -> None:
        self._loop.after(seconds, lambda: self._run(life, work))

    def _run(self, life: int, work: Callable[[], None]) -> None:
        if life != self._life:
            return
        if self._loop.now < self._paused_until:
            self._later(life, self._paused_until - self._loop.now + 0.001, work)
            return
        self.cluster.actor = self
        try:
            work()
        except Crash as crash:
            self.die(f"crash at {crash}", self._rng.uniform(0.5, 8.0))
        except OtherWriter:
            self.die("other writer", self._rng.uniform(3.0, 10.0))
        finally:
            self.cluster.actor = None
        if self._dialog and (stop := self._dialog.stop):
            self.die(str(stop), self._rng.uniform(3.0, 10.0))

    # -- passes --------------------------------------------------------------------------------------------------------

    def _pass(self) -> None:
        life, core = self._life, self.core
        assert core is not None
        self._later(life, PERIOD_S if core.observed else IDLE_PERIOD_S, self._pass)
        self._reconcile(core)

    def _reconcile(self, core: Core) -> None:
        self.health.faults_in_pass = 0
        core.reconcile()
        if self.health.faults_in_pass:
            self.health.since = float("inf")
            return
        self.health.since = min(self.health.since, self._loop.now)
        self.cluster.judge_pass(self, core)

    def _choose(self, call: str) -> Fault | None:
        if call == "observe":
            stale = self._faults.strikes(Kind.DRIVER_STALE_VIEW, 0.05)
            self.health.faults_in_pass += stale
            return Fault.STALE_VIEW if stale else None
        if call == "run":
            return None
        for kind, fault, chance in WRITE_FAULTS:
            if self._faults.strikes(kind, chance):
                self.health.faults_in_pass += 1
                # A throttled agent may be quiet for a second, a lost state document for a pass.
                self.health.since = float("inf")
                return fault
        return None

    def _note(self, event: str, fields: dict[str, object]) -> None:
        self._loop.note(f"{self.name} {event} {fields}")

    # -- the network ---------------------------------------------------------------------------------------------------

    def _talk(self, lane: Lane) -> None:
        assert self._dialog is not None
        life = self._life
        call = self._dialog.next_call(lane)
        if not isinstance(call, Call):
            self._later(life, min(max(call, 0.05), 1.0), lambda: self._talk(lane))
            return
        if call.bearer and call.bearer not in self.health.bearers:
            self.health.bearers.append(call.bearer)
        self._send(life, lane, call)

    def _send(self, life: int, lane: Lane, call: Call) -> None:
        exchange = Exchange()
        sent_at = self._loop.now

        def answer(status: int, body: bytes) -> None:
            if self._loop.now < self.wire.from_hub_cut_until:
                return
            if self._faults.strikes(Kind.REPLY_LOST, 0.05):
                return
            hub_sent_at = self._loop.now
            body = self._tamper(call, status, body)
            self._later(life, self._travel_s(), lambda: self._answered(exchange, lane, call, status, body, hub_sent_at))

        def hang_up() -> None:
            self._later(life, 0.02, lambda: self._unanswered(exchange, lane, call, "connection refused"))

        self._later(life, call.timeout_s, lambda: self._unanswered(exchange, lane, call, "time-out"))
        if self._loop.now < self.wire.to_hub_cut_until or self._faults.strikes(Kind.REQUEST_LOST, 0.05):
            return
        self._loop.after(self._travel_s(), lambda: self._arrive(call, sent_at, answer, hang_up))
        if self._faults.strikes(Kind.DUPLICATE, 0.08):
            late_s = self._rng.uniform(0.1, 25.0)
            self._loop.after(late_s, lambda: self._arrive(call, sent_at, lambda *_: None, lambda: None))

    def _arrive(self, call: Call, sent_at: float, answer: Callable[[int, bytes], None], hang_up: Callable[[], None]) -> None:
        if sent_at < self.wire.last_sent:
            self._faults.saw(Kind.REORDER)
        self.wire.last_sent = max(self.wire.last_sent, sent_at)
        self._hub.receive(call, answer, hang_up)

    def _tamper(self, call: Call, status: int, body: bytes) -> bytes:
        if call.path != SYNC_PATH or status != 200 or not self._faults.strikes(Kind.EMPTY_SET, 0.08):
            return body
        reply = msgspec.json.decode(body, type=SyncReply)
        empty = msgspec.structs.replace(reply, assignments=(), count=0, digest=set_digest(()))
        return msgspec.json.encode(empty)

    def _travel_s(self) -> float:
        if self._faults.strikes(Kind.DELAY, 0.06):
            return self._rng.uniform(0.5, 12.0)
        return self._rng.uniform(0.005, 0.03)

    def _answered(self, exchange: Exchange, lane: Lane, call: Call, status: int, body: bytes, hub_sent_at: float) -> None:
        if exchange.is_over or self._dialog is None or self.core is None:
            return
        exchange.is_over = True
        if call.path == SYNC_PATH and status == 200:
            self.health.last_heard_sent_at = max(self.health.last_heard_sent_at, hub_sent_at)
        self._dialog.on_answer(lane, call, status, body)
        self._later(self._life, 0.0, lambda: self._talk(lane))
        self._reconcile(self.core)

    def _unanswered(self, exchange: Exchange, lane: Lane, call: Call, why: str) -> None:
        if exchange.is_over or self._dialog is None:
            return
        exchange.is_over = True
        self._dialog.on_no_answer(lane, call, why)
        self._later(self._life, 0.0, lambda: self._talk(lane))
