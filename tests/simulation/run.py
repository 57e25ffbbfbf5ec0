"""One seed, one run."""

from __future__ import annotations

import gc
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

import msgspec
from django.db import transaction
from django.test import override_settings

from accounts.tokens.minting import token_parse
from gpr.models import Gpr, GprState
from inventory.models import AgentCredential, AgentSession, Cluster, Node
from inventory.services.clusters import cluster_resume
from protocol.agents.sync import SYNC_PATH, SyncRequest
from protocol.agents.transport import Code
from tests.simulation.agents import SimAgent
from tests.simulation.cluster import Violation, WatchedCluster
from tests.simulation.faults import Faults, Kind
from tests.simulation.hub import SimHub
from tests.simulation.judge import Judge
from tests.simulation.loop import Loop
from tests.simulation.workload import People, token_life
from worker_agent.cluster.fleet import NodeGroup, SimulatedFleet, TenantPods
from worker_agent.hub.dialog import Call

TROUBLE_UNTIL_S = 100.0
REST_STEP_S = 15.0
REST_LIMIT_S = 500.0

FAST_STEPS = {"node_ready": 0.0, "gpu_health": 1.2, "gpu_idle": 0.0}

SLOW_CHECKS = 0.15


@dataclass(slots=True)
class Report:
    seed: int
    faults: Counter[Kind] = field(default_factory=Counter)
    sometimes: set[str] = field(default_factory=set)
    trace: list[str] = field(default_factory=list)
    latest_exit_s: float = 0.0
    gpr_count: int = 0


class Failed(AssertionError):
    def __init__(self, seed: int, trace: list[str], why: str) -> None:
        super().__init__(f"seed {seed}: {why}\nreplay: python -m tests.simulation --seed {seed} --trace\n")
        self.trace = trace


def fleets(rng: random.Random) -> list[SimulatedFleet]:
    def group(count: int, gpus: int) -> NodeGroup:
        return NodeGroup(name="h", count=count, node_type="hgx", gpu_model="H100", memory_gib=80, gpus=gpus)

    pods = TenantPods(per_node=2, stop_s=1.5)
    # Checks that take longer than the lease lives, now and then.
    steps = FAST_STEPS | ({"gpu_health": rng.uniform(40.0, 60.0)} if rng.random() < SLOW_CHECKS else {})
    return [
        SimulatedFleet(name="east", groups=(group(3, 4),), step_s=steps, pods=pods),
        SimulatedFleet(name="west", groups=(group(2, 2),), step_s=steps, pods=pods),
    ]


class Simulation:
    def __init__(self, seed: int, *, can_restore: bool = True) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.loop = Loop()
        self.faults = Faults(seed, random.Random(self.rng.getrandbits(64)))
        if not can_restore:
            self.faults.kinds.discard(Kind.HUB_RESTORED)
        self.fleets = fleets(self._fork())
        self.judge = Judge([])
        self.clusters = [
            WatchedCluster(fleet=fleet, loop=self.loop, faults=self.faults, hub_is_restored=self.judge.is_restored) for fleet in self.fleets
        ]
        self.judge = Judge(self.clusters)
        for cluster in self.clusters:
            cluster._hub_is_restored = self.judge.is_restored
        self.hub = SimHub(loop=self.loop, faults=self.faults, rng=self._fork(), check=self.judge.check)
        self.people = People(fleets=self.fleets, loop=self.loop, hub=self.hub, rng=self._fork())
        self.agents = [self._agent(f"agent-{i}", i) for i in range(len(self.clusters))]
        self.sometimes: set[str] = set()

    def _fork(self) -> random.Random:
        """A stream of its own for each part, so that a change in one does not move all the others."""
        return random.Random(self.rng.getrandbits(64))

    def _agent(self, name: str, index: int) -> SimAgent:
        agent = SimAgent(name=name, cluster=self.clusters[index], hub=self.hub, loop=self.loop, faults=self.faults, rng=self._fork())
        agent.join_token = self.people.tokens[index]
        return agent

    # -- trouble -------------------------------------------------------------------------------------------------------

    def plan_trouble(self) -> None:
        for number, agent in enumerate(self.rng.sample(self.agents, len(self.agents))):
            self._set_clock(agent)
            for kind, low_s, high_s in [
                (Kind.CUT_TO_HUB, 5, 60),
                (Kind.CUT_FROM_HUB, 5, 60),
                (Kind.PARTITION, 20, 90),
                (Kind.AGENT_KILLED, 1, 20),
                (Kind.AGENT_PAUSED, 46, 80),
                (Kind.MACHINE_SUSPENDED, 46, 80),
                (Kind.CLOCK_STEP, 0, 0),
            ]:
                self._plan(kind, 0.3 if number else 1.0, partial(self._hurt, kind, agent, low_s, high_s))
        for kind in (Kind.NODE_SICK, Kind.NODE_SICK, Kind.NODE_GONE):
            self._plan(kind, 1.0, partial(self._spoil, kind))
        self._plan(Kind.HUB_DOWN, 1.0, lambda: self._hub_down(self.rng.uniform(5, 70)))
        self._plan(Kind.AGENT_TWIN, 1.0, self._start_twin)
        if Kind.OLD_CREDENTIAL_USED in self.faults.kinds:
            self.loop.after(self.rng.uniform(123.0, 126.0), self._use_old_credential)
        if Kind.HUB_RESTORED in self.faults.kinds:
            self.loop.after(self.rng.uniform(20, 60), self._back_up)

    def _plan(self, kind: Kind, chance: float, work: Callable[[], None]) -> None:
        if kind in self.faults.kinds and self.rng.random() < chance:
            self.loop.after(self.rng.uniform(5.0, TROUBLE_UNTIL_S - 5), work)

    def _set_clock(self, agent: SimAgent) -> None:
        if self.faults.strikes(Kind.CLOCK_SKEW, 0.8):
            agent.clock.skew_s = self.rng.uniform(-10, 10)
        if self.faults.strikes(Kind.CLOCK_DRIFT, 0.8):
            agent.clock.drift = self.rng.uniform(-5e-4, 5e-4)

    def _hurt(self, kind: Kind, agent: SimAgent, low_s: float, high_s: float) -> None:
        if not self.faults.is_on:
            return
        seconds = self.rng.uniform(low_s, high_s)
        self.faults.saw(kind)
        self.loop.note(f"{agent.name} {kind} {seconds:.0f} s")
        until = self.loop.now + seconds
        if kind in (Kind.CUT_TO_HUB, Kind.PARTITION):
            agent.wire.to_hub_cut_until = until
        if kind in (Kind.CUT_FROM_HUB, Kind.PARTITION):
            agent.wire.from_hub_cut_until = until
        if kind is Kind.AGENT_KILLED and agent.core is not None:
            agent.die("killed", seconds)
        if kind in (Kind.AGENT_PAUSED, Kind.MACHINE_SUSPENDED):
            agent.pause(seconds, is_suspend=kind is Kind.MACHINE_SUSPENDED)
        if kind is Kind.CLOCK_STEP:
            agent.clock.skew_s += self.rng.uniform(-8, 8)
            agent.health.since = float("inf")

    def _spoil(self, kind: Kind) -> None:
        """A node on which something runs, if there is one by then; for a while."""
        if not self.faults.is_on:
            return
        busy = [(cluster, name) for cluster in self.clusters for name in cluster.busy_nodes()]
        if not busy:
            self.loop.after(5.0, partial(self._spoil, kind))
            return
        cluster, name = self.rng.choice(busy)
        self.faults.saw(kind)
        self.loop.note(f"{kind} {name}")
        if kind is Kind.NODE_GONE:
            cluster.lose(name)
        else:
            cluster.spoil(name, is_ready=self.rng.random() < 0.5)
        self.loop.after(self.rng.uniform(10.0, 60.0), lambda: cluster.repair(name))

    def _hub_down(self, seconds: float) -> None:
        if self.faults.is_on and self.hub.is_up:
            self.faults.saw(Kind.HUB_DOWN)
            self.hub.go_down(seconds)

    def _start_twin(self) -> None:
        """Starts a second agent, as Kubernetes does while the old pod only seems dead."""
        if not self.faults.is_on:
            return
        self.faults.saw(Kind.AGENT_TWIN)
        index = self.rng.randrange(len(self.agents))
        twin = self._agent(f"twin-{index}", index)
        twin.clock.skew_s = self.rng.uniform(-1, 1)
        self.agents.append(twin)
        if self.rng.random() < 0.7:
            self.agents[index].pause(self.rng.uniform(46, 70), is_suspend=False)
        twin.start()

    def _use_old_credential(self) -> None:
        agent = next((agent for agent in self.agents if len(agent.health.bearers) > 1), None)
        if agent is None:
            return
        self.faults.saw(Kind.OLD_CREDENTIAL_USED)
        self.loop.note(f"a copy of {agent.name} uses an old credential")
        body = msgspec.json.encode(SyncRequest(session_epoch=0, boot_id="copy"))
        call = Call(SYNC_PATH, body, 10.0, bearer=agent.health.bearers[0])
        parsed = token_parse(call.bearer)
        assert parsed is not None
        row = AgentCredential.objects.filter(key_id=parsed.key_id).first()
        # The hub may not have heard the new one yet, or may have been restored since: then the old one is still good.
        is_dead = row is not None and row.superseded_at is not None
        self.hub.receive(call, partial(self._copy_was_answered, is_dead), lambda: None)

    def _copy_was_answered(self, is_dead: bool, status: int, body: bytes) -> None:
        self.loop.note(f"the copy gets {status}")
        if Code.CLONED.encode() in body:
            self.sometimes.add("a clone was noticed")
        if status == 200 and is_dead:
            raise Violation("a replaced credential was accepted")

    # -- an old copy of the database -----------------------------------------------------------------------------------

    def _back_up(self) -> None:
        if not self.hub.is_up:
            self.loop.after(3.0, self._back_up)
            return
        self.loop.note("hub is backed up")
        point = transaction.savepoint()
        self.loop.after(1.0, self.people.submit)  # something that the copy does not know
        self.loop.after(self.rng.uniform(10, 40), lambda: self._restore(point))

    def _restore(self, point: str) -> None:
        self.faults.saw(Kind.HUB_RESTORED)
        transaction.savepoint_rollback(point)
        self.loop.note("hub is restored from the older copy")
        self.judge.forget()
        for cluster in self.clusters:
            cluster.restored_at = self.loop.now
        self.hub.go_down(self.rng.uniform(1, 4))

    # -- healing -------------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        self.loop.note("all is healed")
        self.faults.is_on = False
        for agent in self.agents[len(self.clusters) :]:
            agent.retire()
        for agent in self.agents[: len(self.clusters)]:
            agent.wire.to_hub_cut_until = agent.wire.from_hub_cut_until = 0.0
            agent.clock.skew_s -= agent.clock.wall() - self.loop.now
        self.hub._come_up()
        self.loop.after(5.0, self.care)

    def care(self) -> None:
        """Does what administrators do while something is wrong."""
        for index, cluster in enumerate(Cluster.objects.order_by("name")):
            if cluster.rewound_at is not None:
                self.sometimes.add("a rewind was resumed")
                self.hub.act("resume", partial(self._resume, cluster))
            if AgentSession.objects.filter(cluster=cluster, locked_at__isnull=False).exists() or self.agents[index].is_refused:
                self._join_anew(index, cluster)
        if Node.objects.filter(cordoned_at__isnull=False, gone_at=None).exists():
            self.hub.act("uncordon", self.people.uncordon)
        if Gpr.objects.filter(state=GprState.PENDING_APPROVAL).exists():
            self.hub.act("approve", self.people.approve)
        self.loop.after(15.0, self.care)

    def _resume(self, cluster: Cluster, now: datetime) -> None:
        cluster_resume(cluster=cluster, actor=self.people.admin, now=now)

    def _join_anew(self, index: int, cluster: Cluster) -> None:
        agent = self.agents[index]
        self.sometimes.add("an agent was readmitted")
        agent.join_token = self.people.issue_token(cluster, self.loop.at)
        if agent.core is not None and not agent.is_refused:  # which finds it by itself
            agent.die("restarted with a new join token", 1.0)

    # -- the run -------------------------------------------------------------------------------------------------------

    def run(self) -> Report:
        self.hub.start()
        for agent in self.agents:
            agent.start()
        self.people.plan_day(until_s=70.0, count=self.rng.randint(2, 5))
        self.plan_trouble()
        self.loop.run(TROUBLE_UNTIL_S)
        self.heal()
        self._come_to_rest()
        self.judge.check()
        return self.report()

    def _come_to_rest(self) -> None:
        until_s = TROUBLE_UNTIL_S + 2 * REST_STEP_S
        self.loop.run(until_s)
        while unrest := self.judge.unrest():
            until_s += REST_STEP_S
            if until_s > TROUBLE_UNTIL_S + REST_LIMIT_S:
                raise Violation(f"not at rest {REST_LIMIT_S:.0f} s after all was healed: {unrest}")
            self.loop.run(until_s)

    def report(self) -> Report:
        self.sometimes |= self.people.seen.union(*(cluster.seen for cluster in self.clusters))
        self.sometimes |= {f"a GPR ended {state}" for state in set(Gpr.objects.values_list("state", flat=True)) if state}
        self.sometimes |= {f"an agent stopped: {why.split(' at ')[0]}" for agent in self.agents for why in agent.stops}
        told = "\n".join(self.loop.trace)
        for word, name in WORDS.items():
            if word in told:
                self.sometimes.add(name)
        return Report(
            seed=self.seed,
            faults=self.faults.counts,
            sometimes=self.sometimes,
            trace=self.loop.trace,
            latest_exit_s=max(cluster.latest_exit_s for cluster in self.clusters),
            gpr_count=Gpr.objects.count(),
        )


WORDS = {
    "hub_rewind": "an agent noticed a rewind",
    "set_refused": "a set was refused",
    "clock_differs": "a clock differed",
    "CLONED": "an agent was locked",
}


def run_seed(seed: int, *, can_restore: bool = True) -> Report:
    """Raises Failed. The database is as before afterwards, unless the caller's transaction is real."""
    simulation: Simulation | None = None
    try:
        with seeded(seed):
            simulation = Simulation(seed, can_restore=can_restore)
            return simulation.run()
    except Exception as error:
        trace = simulation.loop.trace if simulation else []
        raise Failed(seed, trace, f"{type(error).__name__}: {error}") from error


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Ids are part of a run: the planner orders by them. So they come from the seed too."""
    rng = random.Random(f"ids {seed}")
    real = os.urandom
    gc.disable()  # a run is short, and collecting in it takes a tenth of its time
    os.urandom = rng.randbytes
    settings = override_settings(
        EGS_AGENT_CREDENTIAL_LIFE=token_life(),
        EGS_ENTRY_TIMEOUT_S=90,
        EGS_ENTRY_ALLOWANCE_S=10,
        EGS_EXIT_ALLOWANCE_S=10,
        EGS_ENTRY_STEPS=("node_ready", "gpu_health"),
        EGS_EXIT_STEPS=("drain", "gpu_idle"),
        EGS_SPARE_GRACE_S=2,
        EGS_SPARE_LEAST_S=4,
        EGS_SPARE_WAIT_S=15,
    )
    try:
        with settings:
            yield
    finally:
        os.urandom = real
        gc.enable()
