"""The beginning of Kueue's load test "baseline" through the whole hub: services and ticks on PostgreSQL and Redis, ready agents.

The hub counts in seconds, so a millisecond of the scenario is a second here, on a clock that jumps from event to event: what is measured
is how long the hub works for so many workloads, not how long they wait. HTTP and the agents' own work are not in it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from bench.figures import Figure
from bench.hub.own_hub import migrated_database, tell
from bench.hub.world import ENTRY, EXIT, agent_says, cluster_made, slices_made, statistics_renewed
from bench.peers.kueue_scenarios import BASELINE, Arrival, Scenario, arrivals

if TYPE_CHECKING:
    from tests.inventory.agent import Agent

# One cohort, and so many times fewer workloads of each kind and queue.
PART: Final = 50
# What the hub is told: no minimum run, and the shortest notice and exit.
CREDENTIAL_EVERY: Final = timedelta(hours=6)
SETTINGS: Final = {"EGS_EXIT_ALLOWANCE_S": 1, "EGS_EVICTION_NOTICE_S": 1, "EGS_EVICTION_LEAST_RUN_S": 0, "EGS_EVICTION_GAIN_S": 1}


def main() -> None:
    scenario = replace(BASELINE, cohort_count=1, kinds=tuple(replace(kind, count=kind.count // PART) for kind in BASELINE.kinds))
    with migrated_database():
        from django.test import override_settings

        with override_settings(**SETTINGS):
            tell(figures_of(scenario))


def figures_of(scenario: Scenario) -> list[Figure]:
    from core.clock import db_now

    world = _World(scenario, db_now().replace(microsecond=0))
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    world.run()
    wall_s, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    case = f"{scenario.name}, its first {scenario.workload_count:,} workloads, end to end on PostgreSQL, simulated clock"
    published = BASELINE.workload_count / BASELINE.published_wall_s
    peer = "Kueue published, all 15,000, with its API server"
    return [
        Figure("kueue", f"{case}: workloads done in a second of work", "/s", scenario.workload_count / wall_s, peer, published),
        Figure("kueue", f"{case}: the hub's own CPU time for one", "s", cpu_s / scenario.workload_count),
        Figure("kueue", f"{case}: evictions", "", _evicted_count()),
    ]


def _evicted_count() -> int:
    from gpr.models import EvictionVictim, VictimOutcome

    return EvictionVictim.objects.filter(outcome=VictimOutcome.EVICTED).count()


@dataclass(slots=True)
class _Cohort:
    agent: Agent
    shape: str
    slices: dict[int, list[Any]]  # of each queue; those that are not taken yet


class _World:
    """Makes a cluster with one node for each cohort, a project with its quota for each queue, a workspace for each workload."""

    def __init__(self, scenario: Scenario, now: datetime) -> None:
        from accounts.models import PlatformRole
        from accounts.people.services import user_create
        from slices.models import Quota

        self._began_at = self._now = self._renewed_at = now
        self._admin = user_create(name="root", role=PlatformRole.ADMIN, now=now)
        self._coming = list(arrivals(scenario))[::-1]
        self._cohorts = []
        for number in range(scenario.cohort_count):
            shape = f"cohort{number}"
            cluster, agent = cluster_made(shape, shape=shape, node_count=1, gpus=scenario.cohort_cpus, now=now)
            slices = {}
            for queue in range(scenario.queue_count):
                project, slices[queue] = slices_made(f"{shape}-queue{queue}", sum(kind.count for kind in scenario.kinds), cluster, now=now)
                Quota.objects.create(project=project, shape=shape, guaranteed_gpus=scenario.quota, created_at=now)
            self._cohorts.append(_Cohort(agent, shape, slices))
        statistics_renewed()

    def run(self) -> None:
        """Runs until all are done."""
        while (now := self._next_at()) is not None:
            self._now = now
            self._hear()
            while self._coming and self._at(self._coming[-1]) <= now:
                self._submit(self._coming.pop())
            self._settle()

    def _at(self, arrival: Arrival) -> datetime:
        return self._began_at + timedelta(seconds=arrival.at_ms)

    def _next_at(self) -> datetime | None:
        """Returns the next arrival, end or planned start, a second from now at the soonest."""
        from gpr.models import Gpr, GprState

        active, queued = Gpr.objects.filter(state=GprState.ACTIVE), Gpr.objects.filter(state=GprState.QUEUED)
        found = [*active.values_list("ends_at", flat=True), *queued.values_list("planned_start_at", flat=True)]
        times = [at for at in found if at is not None] + [self._at(arrival) for arrival in self._coming[-1:]]
        return max(min(times), self._now + timedelta(seconds=1)) if times else None

    def _submit(self, arrival: Arrival) -> None:
        from gpr.requests.services import gpr_submit
        from gpr.requests.spec import GprSpec

        cohort, kind = self._cohorts[arrival.cohort], arrival.kind
        spec = GprSpec(
            name=kind.name,
            slice=cohort.slices[arrival.queue].pop(),
            nodes=1,
            gpus_per_node=kind.cpus,
            duration_s=kind.length_ms,
            shape=cohort.shape,
            priority=kind.priority,
            run_checks=False,
        )
        gpr_submit(actor=self._admin, spec=spec, now=self._now)

    def _settle(self) -> None:
        """Ticks and lets agents report until neither has news."""
        self._tick()
        while self._agents_say():
            self._tick()

    def _tick(self) -> None:
        from gpr.allocation.allocator import tick

        if tick(now=self._now) is None:
            raise RuntimeError("somebody else ticks")

    def _agents_say(self) -> bool:
        """Opens held nodes and leaves nodes at once; returns False when there is none of either."""
        from gpr.models import Gpr, GprState
        from inventory.models import Reservation, ReservationState

        state_of = dict(Gpr.objects.filter(state__in=(GprState.PROVISIONING, GprState.EXITING)).values_list("pk", "state"))
        rows = Reservation.objects.filter(state=ReservationState.HELD, gpr__in=state_of).select_related("cluster")
        words: dict[tuple[str, str], list[Any]] = defaultdict(list)
        for row in rows:
            words[row.cluster.name, state_of[row.gpr_id]].append(row)
        for cohort in self._cohorts:
            agent_says(cohort.agent, words[cohort.shape, GprState.PROVISIONING], ENTRY, now=self._now)
            agent_says(cohort.agent, words[cohort.shape, GprState.EXITING], EXIT, now=self._now)
        return bool(state_of)

    def _hear(self) -> None:
        """Hears all agents, so that nodes are open; each renews its credential in time."""
        is_due = self._now >= self._renewed_at + CREDENTIAL_EVERY
        self._renewed_at = self._now if is_due else self._renewed_at
        for cohort in self._cohorts:
            agent = cohort.agent
            if is_due:
                credential = agent.renew(at=self._now)
                agent.credential, agent.cred_gen = credential.credential, credential.cred_gen
            agent.sync(at=self._now)


if __name__ == "__main__":
    main()
