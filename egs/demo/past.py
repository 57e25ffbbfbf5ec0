"""Plays a past through the real services and the agents' real cores, on a clock that is set back and jumps from one event to the next.

Must not live here: who asks for what (company.py).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from django.db import transaction
from django.db.models import Exists, Min, OuterRef, Q
from msgspec import structs

from core.locks import transaction_lock
from egs.demo.start import FLEETS, fleet_of, quotas_seed, store_of
from gpr.allocation.allocator import tick
from gpr.models import AllocatorRecord, Gpr, GprState
from inventory import agent_hub
from inventory.models import Cluster, Reservation, ReservationState
from inventory.services.agents import AgentIdentity
from inventory.services.clusters import join_token_issue
from inventory.services.sync import generation_now
from journal.notices.outbox import outbox_expand
from observability.alerts.defaults import defaults_ensure
from observability.alerts.evaluation import LOCK, judge
from observability.alerts.models import AlertRule, RuleKind
from observability.alerts.sources.readings import gpu_readings
from observability.alerts.telling import tell
from observability.remediation.models import CaseState, RemediationCase
from observability.remediation.services import remediation_step
from observability.telemetry.services import telemetry_store
from protocol.gpus.telemetry import EVERY_S, NAMES, GpuReading, TelemetryRequest, XidCount
from worker_agent.boxes.core import Core
from worker_agent.cluster.simulated import STATE, WORLD, SimulatedCluster
from worker_agent.cluster.store import MemoryStore
from worker_agent.hub.dialog import Call, Dialog, Lane
from worker_agent.hub.workspaces import SimulatedTenancy
from worker_agent.telemetry.simulated import SimulatedTelemetry

PASS_S: Final = 2.0
PASSES: Final = 12  # between two exchanges with the hub
HEARD_S: Final = 40.0  # an agent that is silent for longer gets no new box
ROUNDS_MAX: Final = 30  # until all boxes have arrived where they are going
PUSHES_MAX: Final = 5
RENEWED: Final = timedelta(hours=11)  # so often agents are heard, since their credentials last a day
SECOND: Final = timedelta(seconds=1)
# So long after boxes changed alerts are judged: once GPUs are warm or cool again, once alerts fire or end, and once people are told.
LOOKS: Final = (timedelta(minutes=5), timedelta(minutes=11), timedelta(minutes=12))
GPU_SIGNALS: Final = ("temperature_c", "memory_temperature_c", "throttled_percent")
THROTTLED: Final = NAMES.index("throttled_percent")


@dataclass(frozen=True, slots=True)
class PastAct:
    at: datetime
    do: Callable[[datetime], object]  # takes the time


class PastClock:
    def __init__(self, begin: datetime) -> None:
        self._now_s = begin.timestamp()

    def wall(self) -> float:
        return self._now_s

    def mono(self) -> float:
        return self._now_s

    @property
    def at(self) -> datetime:
        return datetime.fromtimestamp(self._now_s, UTC)

    def pass_by(self, seconds: float) -> None:
        self._now_s += seconds

    def jump(self, to: datetime) -> None:
        self._now_s = max(self._now_s, to.timestamp())


class Past:
    def __init__(self, *, begin: datetime, seed: int, works: Mapping[str, str]) -> None:
        """`works`: the kind of work by id of workspace."""
        self.clock = PastClock(begin)
        self._agents = [_Agent(name, self.clock, seed, works) for name in FLEETS]
        self._told_on = begin.date()

    def join(self) -> None:
        """The fleet joins, and the tenants get their quotas."""
        for _ in range(PUSHES_MAX):
            self._exchange(is_forced=True)
            self.clock.pass_by(PASS_S)
        for agent in self._agents:
            agent.bind()
        defaults_ensure(now=self.clock.at)
        if not quotas_seed(now=self.clock.at):
            raise RuntimeError("The simulated fleet has not joined.")

    def play(self, acts: Sequence[PastAct], *, until: datetime) -> None:
        ahead = sorted(acts, key=lambda act: act.at, reverse=True)
        while (due_at := min(self._next_change(), ahead[-1].at if ahead else until)) < until:
            self._wait(due_at)
            self._exchange()  # or a promise made now would be of a silent cluster
            while ahead and ahead[-1].at <= self.clock.at:
                ahead.pop().do(self.clock.at)
            self._settle()
            self._tell_people()
        self._wait(until)
        self._exchange(is_forced=True)
        self._tick()

    def fail_gpu(self, cluster: str, node: str, xid: int) -> None:
        """Lets a GPU of the node throw an Xid, which sets it aside."""
        agent = next(agent for agent in self._agents if agent.name == cluster)
        for xids in ((), ((xid, 1),)):
            agent.tell_xids(node, xids)
            remediation_step(now=self.clock.at)
            self.clock.pass_by(EVERY_S)

    def repair(self) -> None:
        """Brings all cases forward until each is closed or waits for a person."""
        at_work = RemediationCase.objects.filter(state__in=(CaseState.OPEN, CaseState.ACTING, CaseState.PROVING))
        for _ in range(ROUNDS_MAX):
            remediation_step(now=self.clock.at)
            if not at_work.exists():
                return
            self._settle()

    def hand_over(self) -> None:
        """Agents of the real time take up where these stop."""
        for agent in self._agents:
            agent.hand_over()

    def _wait(self, until: datetime) -> None:
        self._watch_alerts(until)
        while self.clock.at + RENEWED < until:
            self.clock.jump(self.clock.at + RENEWED)
            self._exchange(is_forced=True)
        self.clock.jump(until)

    def _watch_alerts(self, until: datetime) -> None:
        """Judges alerts at LOOKS if other GPUs than before are slow, and nothing else happens until then."""
        looks = [self.clock.at + after for after in LOOKS]
        if looks[-1] >= until or not any([agent.has_news_of_gpus(looks[0]) for agent in self._agents]):  # noqa: C419  # each takes note
            return
        for at in looks:
            self.clock.jump(at)
            self._exchange()
            for agent in self._agents:
                agent.tell_slow()
            _gpus_judge(at)

    def _next_change(self) -> datetime:
        """Returns the time at which the next box ends or begins."""
        is_due = Q(state=GprState.ACTIVE, ends_at__gt=self.clock.at)
        rows = Gpr.objects.aggregate(
            ends_at=Min("ends_at", filter=is_due),
            starts_at=Min("planned_start_at", filter=Q(state=GprState.QUEUED, planned_start_at__gt=self.clock.at)),
        )
        return min((at + SECOND for at in rows.values() if at), default=datetime.max.replace(tzinfo=UTC))

    def _settle(self) -> None:
        for _ in range(ROUNDS_MAX):
            self._tick()
            self._exchange()
            for _ in range(PASSES):
                self.clock.pass_by(PASS_S)
                for agent in self._agents:
                    agent.core.reconcile()
            for agent in self._agents:
                agent.push()
            self._exchange()
            if not self._is_moving():
                return

    def _exchange(self, *, is_forced: bool = False) -> None:
        for agent in self._agents:
            agent.sync(is_forced=is_forced)

    def _tick(self) -> None:
        # The clock jumps; the allocator was not away.
        AllocatorRecord.objects.update(began_at=self.clock.at, last_tick_at=self.clock.at)
        tick(now=self.clock.at)

    def _is_moving(self) -> bool:
        is_failing = Exists(Reservation.objects.filter(gpr=OuterRef("pk"), state=ReservationState.HELD, failing_at__isnull=False))
        return Gpr.objects.filter(Q(state__in=(GprState.PROVISIONING, GprState.EXITING)) | is_failing).exists()

    def _tell_people(self) -> None:
        if self.clock.at.date() != self._told_on:
            self._told_on = self.clock.at.date()
            outbox_expand(now=self.clock.at)


def _gpus_judge(at: datetime) -> None:
    """Judges the readings of GPUs alone: all other sources would take as long as the rest of the past."""
    rules = AlertRule.objects.filter(kind=RuleKind.THRESHOLD, signal__in=GPU_SIGNALS)
    with transaction.atomic():
        transaction_lock(LOCK)
        judge(gpu_readings, list(rules), at)
        tell(now=at)


class _Agent:
    """Runs the core and the dialog of a real agent, without threads and network."""

    def __init__(self, name: str, clock: PastClock, seed: int, works: Mapping[str, str]) -> None:
        self._cluster = Cluster.objects.get(name=name)
        _, join_token = join_token_issue(cluster=self._cluster, actor=None, now=clock.at)
        self.name, self._clock, self._tenancy, self._store = name, clock, SimulatedTenancy(), MemoryStore()
        rng = random.Random(f"{seed} {name}")  # noqa: S311  # jitter, not secrets
        driver = SimulatedCluster(fleet=fleet_of(name), store=self._store, clock=clock)
        self.core = Core(cluster=driver, clock=clock, rng=rng)
        token = partial(str, join_token)
        self._dialog = Dialog(core=self.core, cluster_uid=driver.uid(), join_token=token, clock=clock, rng=rng, note=lambda *_: None)
        self._known, self._heard_s = -1, 0.0
        self._telemetry = SimulatedTelemetry(seed=name, works=works)
        self._slow: set[str] = set()  # UUIDs of GPUs
        self._told: set[str] = set()

    def sync(self, *, is_forced: bool = False) -> None:
        """Says that it is there, unless it has just done so and the hub has no news for it."""
        has_news = generation_now(cluster_id=self._cluster.pk) != self._known
        if is_forced or has_news or self._clock.mono() > self._heard_s + HEARD_S:
            asked_s = self._clock.mono()
            while self._call(Lane.POLL) and self._heard_s < asked_s:  # it may have to join or to renew its credential first
                continue
            self.core.reconcile()

    def push(self) -> None:
        for _ in range(PUSHES_MAX):
            if not self._call(Lane.PUSH):
                return

    def bind(self) -> None:
        link = self.core.link
        in_use, has_token, repairs = self.core.in_use(), link.tenancy.has_token, self.core.repairs_drift
        wanted = link.tenancy.wanted
        link.tenancy.report(wanted, self._tenancy.reconcile(wanted, in_use=in_use, has_token=has_token, repairs=repairs))
        self.push()

    def has_news_of_gpus(self, at: datetime) -> bool:
        """Returns whether other GPUs will be slow then; readings of these, and of those that were slow, are told from now on."""
        before, self._slow = self._slow, {reading.gpu for reading in self._readings(at) if (reading.values[THROTTLED] or 0) > 0}
        self._told = before | self._slow
        return before != self._slow

    def tell_slow(self) -> None:
        self._tell(reading for reading in self._readings(self._clock.at) if reading.gpu in self._told)

    def tell_xids(self, node: str, xids: tuple[XidCount, ...]) -> None:
        reading = next(reading for reading in self._readings(self._clock.at) if reading.node == node)
        self._tell([structs.replace(reading, xids=xids)])

    def _tell(self, readings: Iterable[GpuReading]) -> None:
        gpus = tuple(readings)
        message = TelemetryRequest(metrics=NAMES, gpus=gpus)
        telemetry_store(agent=AgentIdentity(self._cluster, 0), message=message, now=self._clock.at)

    def _readings(self, at: datetime) -> Iterator[GpuReading]:
        return self._telemetry.read(self.core.nodes, at.timestamp)

    def hand_over(self) -> None:
        store = store_of(self.name)
        for document in (STATE, WORLD):
            if body := self._store.read(document):
                store.write(document, body)

    def _call(self, lane: Lane) -> bool:
        call = self._dialog.next_call(lane)
        if not isinstance(call, Call):
            return False
        answer = agent_hub.answer(path=call.path, bearer=call.bearer, body=call.body, now=self._clock.at)
        self._dialog.on_answer(lane, call, answer.status, answer.body)
        if call.sent:
            self._known = generation_now(cluster_id=self._cluster.pk)
            self._heard_s = self._clock.mono()
        return True
