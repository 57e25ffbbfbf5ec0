"""Every crash point of a whole life, one by one: a gang of two nodes enters, runs, ends, and nothing is wrong whenever it died.

A crash before or after each write; after it the agent starts again from what is durable. Also twice in a row, with the hub away for
the exit, and with each write failing in each of the ways that an API server fails.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from protocol.agents.events import Outcome, StepEvent
from protocol.assignments import Phase
from tests.agent.faulty import WRITES, Crash, Fault, each_write
from tests.agent.stage import T0, Stage
from tests.effort import IS_SOAK
from worker_agent.cluster.base import GpuPhase

DURATION_S = 20.0
CRASHES = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER)
HUNG = 6.0  # how long the agent is down


class Life:
    """One life of one gang, with a fault at the writes numbered in `faults`."""

    def __init__(self, faults: dict[int, Fault], *, hub_leaves_at_s: float = float("inf")) -> None:
        self.write_count = 0
        self.faults = faults
        self.crash_count = 0
        self.hub_leaves_at_s = hub_leaves_at_s
        self.stored: dict[tuple[str, str, int], StepEvent] = {}
        self.active_s: set[float] = set()
        self.stage = Stage(choose=self.choose, starts=False)
        self.survive(self.stage.start)

    def choose(self, call: str) -> Fault | None:
        if call not in WRITES or call == "serve":
            return None
        self.write_count += 1
        return self.faults.get(self.write_count)

    def live(self, until_s: float) -> None:
        while self.stage.clock.wall() < T0 + until_s:
            try:
                self.one_pass()
            except Crash:
                self.crash_count += 1
                self.stage.advance(HUNG)
                self.survive(self.stage.start)
            self.stage.advance(0.25)

    def survive(self, work: Callable[[], None]) -> None:
        """A start may crash again: its first write is one too."""
        try:
            work()
        except Crash:
            self.crash_count += 1
            self.stage.start()

    def one_pass(self) -> None:
        stage = self.stage
        if stage.clock.wall() < T0 + self.hub_leaves_at_s:
            over = all(stage.phase(i) is Phase.RELEASED for i in ("a0", "a1"))
            if over and self.active_s:
                stage.tell(generation=2)
            else:
                stage.tell(*stage.gang(duration_s=DURATION_S), generation=1)
            for event in stage.take_events():
                self.store(event)
        stage.core.reconcile()
        self.check()

    def store(self, event: StepEvent) -> None:
        key = (event.assignment_id, event.step, event.attempt)
        known = self.stored.setdefault(key, event)
        assert known.outcome is event.outcome, "one attempt is told with two outcomes"

    def check(self) -> None:
        stage = self.stage
        doc = stage.cluster.load_state()
        if any(stage.open_to(node) for node in (0, 1)):
            assert doc is not None
            assert b'"active_s"' in doc.body, "open before it was written down when"
        for seen in stage.core.observed:
            if seen.phase is Phase.ACTIVE:
                assert seen.active_s is not None
                self.active_s.add(seen.active_s)

    def check_end(self) -> None:
        stage = self.stage
        assert len(self.active_s) == 1, "the window started once"
        assert stage.gpu_phases(0) == stage.gpu_phases(1) == {GpuPhase.FREE}
        assert stage.running_pods() == 0
        closes = [change.at for change in stage.cluster.history if change.slice is None]
        opens = [change.at for change in stage.cluster.history if change.slice]
        assert len(opens) == len(closes) == 8
        (active_s,) = self.active_s
        slack_s = 0.25 + (HUNG + 0.25) * self.crash_count
        assert min(closes) >= active_s + DURATION_S
        assert max(closes) <= active_s + DURATION_S + slack_s


def count_writes() -> int:
    life = Life({})
    life.live(60)
    return life.write_count


WRITE_COUNT = count_writes()


def test_a_life_has_enough_writes_for_the_enumeration_to_mean_something() -> None:
    assert WRITE_COUNT >= 20


@pytest.mark.rotates  # each day: every third write
@pytest.mark.parametrize("write", range(1, WRITE_COUNT + 1))
@pytest.mark.parametrize("fault", CRASHES)
def test_a_crash_at_any_write_heals(write: int, fault: Fault) -> None:
    life = Life({write: fault})
    life.live(90)
    assert life.crash_count == 1
    life.check_end()
    told = {(step, outcome) for (_, step, _), outcome in ((k, e.outcome) for k, e in life.stored.items())}
    assert {("claim", Outcome.OK), ("open", Outcome.OK), ("close", Outcome.OK), ("release", Outcome.OK)} <= told


@pytest.mark.rotates  # each day: every third write
@pytest.mark.parametrize("write", range(1, WRITE_COUNT + 1))
def test_a_crash_and_another_right_after_the_restart_heal(write: int) -> None:
    for gap in (1, 2, 3) if IS_SOAK else (1 + write % 3,):
        life = Life({write: Fault.CRASH_AFTER, write + gap: Fault.CRASH_BEFORE})
        life.live(110)
        life.check_end()


@pytest.mark.rotates  # each day: every third write
@pytest.mark.parametrize(("write", "fault"), each_write(WRITE_COUNT, *CRASHES))
def test_a_crash_at_any_write_heals_though_the_hub_leaves_once_the_window_is_open(write: int, fault: Fault) -> None:
    life = Life({write: fault}, hub_leaves_at_s=16.0)
    life.live(120)
    life.check_end()


@pytest.mark.rotates  # each day: every third write
@pytest.mark.parametrize(("write", "fault"), each_write(WRITE_COUNT, Fault.CONFLICT, Fault.THROTTLED, Fault.ERROR, Fault.LOST_ANSWER))
def test_a_write_that_fails_or_whose_answer_is_lost_heals(write: int, fault: Fault) -> None:
    life = Life({write: fault})
    life.live(60)
    assert life.crash_count == 0
    closes = [change.at for change in life.stage.cluster.history if change.slice is None]
    (active_s,) = life.active_s
    assert max(closes) <= active_s + DURATION_S + 1.5
    assert life.stage.gpu_phases(0) == life.stage.gpu_phases(1) == {GpuPhase.FREE}
