"""A node that enters an open box: it opens at the box's own time, beside the others, and the one that it replaces leaves after it."""

from __future__ import annotations

import pytest

from protocol.assignments import Assignment, Phase
from tests.agent.faulty import WRITES, Crash, Fault, each_write
from tests.agent.stage import T0, Stage, absent, small_fleet
from worker_agent.cluster.base import GpuPhase
from worker_agent.cluster.fleet import StepFailure

DURATION_S = 120.0
END_S = T0 + 200.0
HUNG_S = 4.0


def open_box(stage: Stage, **changes: object) -> Assignment:
    """It has one node, which is open."""
    member = stage.assignment(0, duration_s=DURATION_S, **changes)
    stage.tell(member)
    stage.run(5, until=lambda: stage.phase("a0") is Phase.ACTIVE)
    return member


def with_spare(stage: Stage, **changes: object) -> list[Assignment]:
    """Returns what the hub tells of the box from then on: its end is known, and there are two of it."""
    end_s = T0 + DURATION_S
    spare = stage.assignment(1, epoch=2, gang_count=2, not_after_s=end_s, duration_s=DURATION_S, **changes)
    return [stage.assignment(0, gang_count=2, not_after_s=end_s, duration_s=DURATION_S), spare]


def test_a_spare_opens_into_the_running_box_at_the_boxs_own_time() -> None:
    stage = Stage()
    open_box(stage)
    began_s = stage.seen("a0").active_s
    stage.advance(20)
    stage.tell(*with_spare(stage))
    stage.run(5)

    assert stage.phase("a1") is Phase.ACTIVE
    assert stage.seen("a1").active_s == began_s, "no window of its own"
    assert stage.open_to(0) == stage.open_to(1) == {"red"}


def test_while_the_spare_is_checked_the_open_node_serves_on() -> None:
    stage = Stage()
    open_box(stage)
    stage.fleet.step_s["gpu_count"] = 30.0
    stage.tell(*with_spare(stage))
    stage.run(20)

    assert stage.phase("a1") is Phase.ENTERING
    assert stage.open_to(0) == {"red"}
    assert stage.open_to(1) == set()
    assert stage.running_pods() == 1


def test_when_the_other_leaves_its_pods_run_on_the_spare_and_the_end_is_kept_at_the_second() -> None:
    stage = Stage()
    open_box(stage)
    member, spare = with_spare(stage)
    stage.tell(member, spare)
    stage.run(5)
    stage.tell(absent(member), stage.assignment(1, epoch=2, gang_count=1, not_after_s=spare.not_after_s, duration_s=DURATION_S))
    stage.run(5)
    assert stage.phase("a0") is Phase.RELEASED
    assert stage.open_to(1) == {"red"}

    assert spare.not_after_s is not None
    stage.run(spare.not_after_s - stage.clock.wall())
    assert stage.open_to(1) == {"red"}
    stage.run(0.5)
    assert stage.open_to(1) == set()


def test_a_spare_that_fails_its_checks_leaves_the_box_as_it_is() -> None:
    stage = Stage(small_fleet(failures=(StepFailure(node="test-h-02", step="gpu_count", times="always"),)))
    open_box(stage)
    stage.tell(*with_spare(stage))
    stage.run(20)

    assert stage.phase("a1") is Phase.RELEASED
    assert "GPU count" in stage.seen("a1").failure
    assert stage.phase("a0") is Phase.ACTIVE
    assert stage.open_to(0) == {"red"}


def test_of_two_spares_the_good_one_opens_once_the_hub_counts_without_the_bad_one() -> None:
    stage = Stage(small_fleet(count=3, failures=(StepFailure(node="test-h-02", step="gpu_count", times="always"),)))
    open_box(stage)
    end_s = T0 + DURATION_S
    both = [stage.assignment(node, epoch=2, gang_count=3, not_after_s=end_s) for node in (1, 2)]
    stage.tell(stage.assignment(0, gang_count=3, not_after_s=end_s), *both)
    stage.run(20)
    assert (stage.phase("a1"), stage.phase("a2")) == (Phase.RELEASED, Phase.ENTERED)

    good = stage.assignment(2, epoch=2, gang_count=2, not_after_s=end_s)
    stage.tell(stage.assignment(0, gang_count=2, not_after_s=end_s), absent(both[0]), good)
    stage.run(2)
    assert stage.phase("a2") is Phase.ACTIVE


def test_a_spare_that_is_not_open_at_the_end_of_the_box_never_opens() -> None:
    stage = Stage()
    open_box(stage)
    stage.fleet.step_s["gpu_count"] = 1e9
    stage.tell(*with_spare(stage))
    stage.run(DURATION_S + 5)

    assert stage.phase("a1") is Phase.RELEASED
    assert "window ended" in stage.seen("a1").failure
    assert not [change for change in stage.cluster.history if change.gpu in with_spare(stage)[1].gpus and change.slice]


def test_an_end_in_the_middle_of_a_swap_takes_both_nodes() -> None:
    stage = Stage()
    open_box(stage)
    member, spare = with_spare(stage)
    stage.tell(member, spare)
    stage.run(0.5)
    stage.tell(absent(member), absent(spare))
    stage.run(5)

    assert stage.gpu_phases(0) == stage.gpu_phases(1) == {GpuPhase.FREE}


def test_in_the_place_of_the_only_node_which_is_gone_the_spare_opens_and_the_end_of_the_box_stays() -> None:
    stage = Stage()
    member = open_box(stage)
    del stage.cluster.world.nodes[member.node]
    counted = stage.assignment(1, epoch=2, gang_count=1, not_after_s=T0 + DURATION_S)
    stage.tell(absent(member), counted)
    stage.run(5)

    assert stage.phase("a1") is Phase.ACTIVE
    stage.run(T0 + DURATION_S - stage.clock.wall())
    assert stage.open_to(1) == {"red"}
    stage.run(0.5)
    assert stage.open_to(1) == set()
    assert stage.phase("a0") is Phase.RELEASED


def test_a_spare_of_an_old_epoch_enters_nothing() -> None:
    stage = Stage()
    open_box(stage)
    view = stage.views[1]
    newer = stage.assignment(1, id="later", gpr_id="gpr-2", slice="blue", epoch=3)
    stage.tell(*with_spare(stage)[:1], newer)
    stage.run(5)
    assert stage.cluster.world.nodes[view.name].records[view.gpus[0].uuid].epoch == 3

    member, spare = with_spare(stage)
    stage.tell(member, spare, absent(newer))
    stage.run(10)
    assert "too old" in stage.seen("a1").failure
    assert "red" not in stage.open_to(1)


# -- killed at any step ------------------------------------------------------------------------------------------------


class Swap:
    """A box of one node; a spare enters it, and the first leaves once the hub has heard that the spare is open. Then the box ends."""

    def __init__(self, fault_at: int = 0, fault: Fault = Fault.CRASH_BEFORE) -> None:
        self.fault_at, self.fault = fault_at, fault
        self.write_count = self.crash_count = 0
        self.is_joined = self.has_opened = False
        self.stage = Stage(choose=self.choose, starts=False)
        self.survive(self.stage.start)

    def choose(self, call: str) -> Fault | None:
        if call not in WRITES or call == "serve":
            return None
        self.write_count += 1
        return self.fault if self.write_count == self.fault_at else None

    def survive(self, work: object) -> None:
        try:
            work()  # type: ignore[operator]
        except Crash:
            self.crash_count += 1
            self.stage.advance(HUNG_S)
            self.stage.start()

    def live(self) -> None:
        while self.stage.clock.wall() < END_S:
            self.survive(self.one_pass)
            self.stage.advance(0.25)

    def one_pass(self) -> None:
        stage = self.stage
        self.has_opened |= stage.phase("a0") is Phase.ACTIVE
        self.is_joined |= stage.phase("a1") is Phase.ACTIVE
        count = 1 if self.is_joined or not self.has_opened else 2
        end_s = T0 + DURATION_S if self.has_opened else None
        member = stage.assignment(0, gang_count=count, not_after_s=end_s, duration_s=DURATION_S)
        spare = stage.assignment(1, epoch=2, gang_count=count, not_after_s=end_s, duration_s=DURATION_S)
        told = [absent(member) if self.is_joined else member, *([spare] if self.has_opened else [])]
        stage.tell(*told, generation=1 + self.has_opened + self.is_joined)
        stage.take_events()
        stage.core.reconcile()

    def check(self) -> None:
        stage = self.stage
        assert self.is_joined, "the spare took its place"
        assert stage.gpu_phases(0) == stage.gpu_phases(1) == {GpuPhase.FREE}
        assert stage.running_pods() == 0
        of_node = {gpu.uuid: node for node in (0, 1) for gpu in stage.views[node].gpus}
        opened = {node: [c.at for c in stage.cluster.history if of_node[c.gpu] == node and c.slice] for node in (0, 1)}
        closed = {node: [c.at for c in stage.cluster.history if of_node[c.gpu] == node and not c.slice] for node in (0, 1)}
        counts = [(len(opened[node]), len(closed[node])) for node in (0, 1)]
        assert counts == [(4, 4), (4, 4)], "each opened once, and closed once"
        assert max(opened[1]) <= min(closed[0]), "the first left only when the spare was open"
        assert T0 + DURATION_S <= min(closed[1]) <= max(closed[1]) <= T0 + DURATION_S + 0.5 + self.crash_count * (HUNG_S + 0.25)


def writes_of_a_swap() -> int:
    swap = Swap()
    swap.live()
    swap.check()
    return swap.write_count


WRITE_COUNT = writes_of_a_swap()
FAULTS = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.CONFLICT, Fault.LOST_ANSWER)


@pytest.mark.rotates  # each day: every third write
@pytest.mark.parametrize(("write", "fault"), each_write(WRITE_COUNT, *FAULTS))
def test_a_fault_at_any_write_of_a_swap_heals(write: int, fault: Fault) -> None:
    swap = Swap(write, fault)
    swap.live()
    assert swap.write_count >= write
    swap.check()
