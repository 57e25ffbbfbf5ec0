"""An agent of which nothing is to be done rests, and never beyond what comes due."""

from __future__ import annotations

import threading

import pytest

from protocol.assignments import Desired, Phase
from tests.agent.faulty import Fault
from tests.agent.stage import Stage
from worker_agent import process
from worker_agent.boxes.core import REST_MOST_S
from worker_agent.cluster.base import NodeState
from worker_agent.cluster.simulated import SimulatedCluster
from worker_agent.cluster.store import MemoryStore
from worker_agent.hub.dialog import Call
from worker_agent.hub.requests import SimulatedRequests
from worker_agent.hub.transport import NoAnswer
from worker_agent.hub.workloads import SimulatedWorkloads
from worker_agent.hub.workspaces import SimulatedTenancy
from worker_agent.log import Log
from worker_agent.process import Process
from worker_agent.telemetry.simulated import SimulatedTelemetry
from worker_agent.telemetry.simulated_pods import SimulatedPods


@pytest.fixture
def at_work() -> Stage:
    """Its one box is ACTIVE for a minute."""
    stage = Stage()
    stage.tell(stage.assignment())
    stage.run(30, until=lambda: stage.seen().phase is Phase.ACTIVE)
    return stage


def test_with_nothing_held_it_rests() -> None:
    stage = Stage()
    stage.core.reconcile()

    assert stage.core.rest_s() == REST_MOST_S


def test_while_a_box_is_at_work_it_rests(at_work: Stage) -> None:
    assert at_work.core.rest_s() == REST_MOST_S


def test_it_does_not_rest_while_nodes_enter() -> None:
    stage = Stage()
    stage.tell(stage.assignment())

    while stage.seen().phase is not Phase.ACTIVE:
        assert stage.core.rest_s() == 0.0
        stage.run(0.25)


def test_it_rests_no_longer_than_until_the_end_of_a_box(at_work: Stage) -> None:
    end_s = (at_work.seen().active_s or 0.0) + 60
    at_work.run(end_s - at_work.hub_clock.wall() - 0.4)

    left_s = end_s - at_work.hub_clock.wall()
    assert 0 < left_s < REST_MOST_S
    assert at_work.core.rest_s() == pytest.approx(left_s)


def test_it_does_not_rest_while_nodes_leave(at_work: Stage) -> None:
    at_work.tell(at_work.assignment(desired=Desired.ABSENT))

    while at_work.seen().phase is not Phase.RELEASED:
        assert at_work.core.rest_s() <= 0.0
        at_work.run(0.25)


def test_it_does_not_rest_while_what_it_was_told_is_not_on_record(at_work: Stage) -> None:
    at_work.choose = lambda call: Fault.ERROR if call == "save_state" else None
    at_work.tell(at_work.assignment(not_after_s=at_work.hub_clock.wall() + 500))

    assert at_work.core.rest_s() == 0.0


class StillCluster(SimulatedCluster):
    """Nothing changes there unless it is told so."""

    changes = 0

    def __init__(self, stage: Stage) -> None:
        super().__init__(fleet=stage.fleet, store=MemoryStore(), clock=stage.clock)
        self.passes = threading.Semaphore(0)

    def serial(self) -> int:
        return self.changes

    def observe(self) -> dict[str, NodeState]:
        self.passes.release()
        return super().observe()


class NoHub:
    def post(self, call: Call) -> tuple[int, bytes, float]:
        raise NoAnswer("away")


def test_a_pass_is_made_when_something_changes_and_when_the_rest_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "PERIOD_S", 0.01)
    stage, stop = Stage(), threading.Event()
    cluster = StillCluster(stage)
    runs = threading.Thread(
        target=Process(
            cluster=cluster,
            tenancy=SimulatedTenancy(),
            requests=SimulatedRequests(),
            workloads=SimulatedWorkloads(job_s=1),
            telemetry=SimulatedTelemetry(seed="test"),
            pods=SimulatedPods(SimulatedTelemetry(seed="test")),
            connect=NoHub,
            join_token=lambda: "token",
            clock=stage.clock,  # stands still
            log=Log(stage.clock),
            stop=stop,
        ).run
    )
    runs.start()
    while cluster.passes.acquire(timeout=0.5):
        pass

    cluster.changes += 1
    assert cluster.passes.acquire(timeout=10)
    stage.advance(REST_MOST_S)
    assert cluster.passes.acquire(timeout=10)

    stop.set()
    runs.join(10)
    assert not runs.is_alive()


class Naps:
    """It replaces the event for which the process waits: time passes while it waits, and only then."""

    def __init__(self, stage: Stage, stop: threading.Event) -> None:
        self._stage, self._stop = stage, stop

    def wait(self, timeout: float) -> bool:
        self._stage.advance(timeout)
        if self._stage.open_to() == set():
            self._stop.set()
        return False

    def set(self) -> None: ...

    def clear(self) -> None: ...


@pytest.mark.parametrize("off_s", [0.0, 0.05, 0.1, 0.15, 0.1999])
def test_while_the_hub_is_away_an_exit_begins_within_a_period_of_its_end(off_s: float, at_work: Stage) -> None:
    """Waiting takes a fifth of a second at most, and leaves the rest of the two promised seconds to the machine, which needs none here."""
    end_s = (at_work.seen().active_s or 0.0) + 60
    at_work.advance(off_s)  # wherever the end lies between two looks
    stop = threading.Event()
    agent = Process(
        cluster=at_work.cluster,
        tenancy=SimulatedTenancy(),
        requests=SimulatedRequests(),
        workloads=SimulatedWorkloads(job_s=1),
        telemetry=SimulatedTelemetry(seed="test"),
        pods=SimulatedPods(SimulatedTelemetry(seed="test")),
        connect=NoHub,
        join_token=lambda: "token",
        clock=at_work.clock,
        log=Log(at_work.clock),
        stop=stop,
    )
    agent._wake_main = Naps(at_work, stop)  # type: ignore[assignment]

    agent.run()

    closed = at_work.cluster.history[-1]
    assert 0.0 <= closed.at - end_s <= process.PERIOD_S + 1e-6
