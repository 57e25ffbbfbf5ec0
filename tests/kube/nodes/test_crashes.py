"""The agent dies at any write that it makes on a real cluster, before the write is done or after: the next one ends what it began."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import pytest

from protocol import cluster_names
from protocol.agents.events import Outcome, StepEvent
from protocol.assignments import Assignment, Drain, Phase
from protocol.nodes.steps import Milestone
from tests.e2e.processes import wait_for
from tests.kube.callers import Caller
from tests.kube.cluster import SOON_S, Cluster, Object
from tests.kube.faults import Crash, MortalApi
from tests.kube.site import NODE_GPUS, Site, ended, moved_in
from tests.kube.world import is_gated, pods_path
from worker_agent.cluster.base import GpuPhase
from worker_agent.kube.nodes.bind_guard import slices_in

pytestmark = pytest.mark.xdist_group("crashes")  # one site for all of them

# Of one whole life, in their order; each may come more than once.
WRITES = (
    "saved the set",
    "node CLAIMED",
    "saved claim",
    "node OPEN",
    "guard opened",
    "lifted",
    "saved open",
    "guard closed",
    "node CLOSED",
    "evicted",
    "saved close",
    "node FREE",
    "saved release",
)
BY_OTHER_THREADS = {"lifted", "evicted"}  # a moment before or after what is saved of the same pass
Death = tuple[str, bool]  # at which write, and whether it is done


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> Iterator[Site]:
    """One for all lives: each is a box of its own."""
    with moved_in(cluster) as made:
        yield made


@pytest.fixture(scope="module")
def admin(cluster: Cluster) -> Iterator[Caller]:
    made = Caller(cluster)
    yield made
    made.close()


@pytest.fixture(scope="module")
def red(site: Site) -> str:
    slice_ = site.make_slice("red")
    site.deploy(slice_, replicas=2, gpus=4)
    return slice_


class Life:
    """It is the life of a box, from claim to release. `deaths` come one after the other."""

    def __init__(self, site: Site, admin: Caller, slice_: str, *deaths: Death) -> None:
        self.site, self.admin, self.slice, self.deaths = site, admin, slice_, list(deaths)
        self.written: list[str] = []
        self.told: list[StepEvent] = []
        self.active_s: set[float] = set()
        site.take_events()
        (self.box,) = site.box(slice_, drain=Drain(grace_s=30.0, force_after_s=60.0))
        self.start_anew()

    @property
    def api(self) -> MortalApi:
        assert isinstance(self.site.agent_api, MortalApi)
        return self.site.agent_api

    def start_anew(self) -> None:
        """The new agent knows nothing of the last one's memory. The hub tells it once what it wants."""
        self.heard: Assignment | None = None
        name, is_after = self.deaths[0] if self.deaths else ("", False)
        self.site.restart(api_of=partial(MortalApi, box=str(self.box.id), dies_at=name, is_after=is_after))

    def live(self) -> None:
        self.until(Phase.ACTIVE, self.box)
        wait_for("pods placed", lambda: self.is_past(self.box) and self.site.placed_count(self.box.gpr_id) == 2, within_s=SOON_S)
        self.until(Phase.RELEASED, *ended(self.box))
        self.is_past(*ended(self.box))

    def until(self, phase: Phase, wanted: Assignment) -> None:
        wait_for(f"{phase} past {self.deaths}", lambda: self.is_past(wanted) and self.site.is_in(phase, wanted), within_s=SOON_S)

    def is_past(self, wanted: Assignment) -> bool:
        """A pass, and whether the agent lives."""
        with suppress(Crash):  # in whatever thread it was
            if self.heard != wanted:
                self.site.tell(wanted)
                self.heard = wanted
            self.site.pass_()
            self.told += self.site.take_events()
        if not self.api.is_dead:
            seen = self.site.observed(wanted)
            self.active_s |= {seen.active_s} if seen and seen.active_s is not None else set()
            return True
        self.written += self.api.written
        self.deaths.pop(0)
        self.start_anew()
        return False

    def pods(self) -> list[Object]:
        return list(self.admin.get(pods_path(self.slice))["items"])

    def check_end(self) -> None:
        """Nothing of the box is left, and what was done was told."""
        assert self.deaths == []
        assert len(self.active_s) == 1
        wait_for("pods wait again", lambda: len(pods := self.pods()) == 2 and all(map(is_gated, pods)), within_s=SOON_S)
        node = self.admin.get(cluster_names.node_path(self.box.node))
        assert [taint["value"] for taint in node["spec"]["taints"] if taint["key"] == cluster_names.TAINT] == [cluster_names.FREE]
        assert [key for key in node["metadata"]["labels"] if cluster_names.is_box_label(key)] == []
        assert slices_in(self.admin.get(cluster_names.GUARD_PATH)["spec"]["nodes"][self.box.node]) == frozenset()
        assert [(record.phase, record.epoch) for record in self.site.records().values()] == [(GpuPhase.FREE, self.box.epoch)] * NODE_GPUS
        told = {(event.step, event.outcome) for event in self.told if event.assignment_id == self.box.id}
        assert {outcome for _, outcome in told} == {Outcome.OK}
        # A check that was over a moment before may have been told to nobody yet; what was done to the node is written on it.
        assert {step for step, _ in told} >= set(Milestone)


def test_a_life_makes_the_writes_at_which_the_agent_dies_below(site: Site, admin: Caller, red: str) -> None:
    life = Life(site, admin, red)
    life.live()

    life.check_end()
    assert set(life.api.written) == set(WRITES)
    in_order = [each for each in dict.fromkeys(life.api.written) if each not in BY_OTHER_THREADS]
    assert in_order == [each for each in WRITES if each not in BY_OTHER_THREADS]


# Quickly, before it is done: tests/agent/boxes/test_crashes.py, in a simulated cluster.
BEFORE = pytest.param(False, marks=pytest.mark.soak, id="before it is done")


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("is_done", [BEFORE, pytest.param(True, id="after it was done")])
def test_an_agent_that_dies_at_a_write_leaves_nothing_undone(site: Site, admin: Caller, red: str, write: str, is_done: bool) -> None:
    life = Life(site, admin, red, (write, is_done))
    life.live()

    life.check_end()
