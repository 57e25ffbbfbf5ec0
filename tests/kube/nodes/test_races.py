"""No version of the cluster's history has a pod of one slice on a node of another, whatever refills, ends, sleeps or dies."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.assignments import Assignment, Drain, Phase
from tests.e2e.processes import wait_for
from tests.effort import IS_SOAK
from tests.kube.cluster import SOON_S, Cluster
from tests.kube.corner import CornerApi
from tests.kube.faults import APIS, CLOCK_IS_SET
from tests.kube.nodes.recorder import Replay, recording
from tests.kube.site import Site, ended, moved_in
from worker_agent.boxes.records import new_records
from worker_agent.cluster.base import ClusterError, GpuPhase, NodeState, Records, WriteConflict, WriteKind
from worker_agent.kube.driver import KubernetesCluster
from worker_agent.kube.nodes.bind_guard import slices_in

TURNS = 6 if IS_SOAK else 3


@pytest.fixture
def site(cluster: Cluster) -> Iterator[Site]:
    with moved_in(cluster, nodes=2) as made:
        yield made


def refilling(site: Site) -> tuple[str, str]:
    """Two slices whose pods come back at once, more than fit."""
    slices = site.make_slice("red"), site.make_slice("blue")
    for slice_ in slices:
        site.deploy(slice_, replicas=18, gpus=1)
        site.until("pods wait", lambda slice_=slice_: len(site.gated(slice_)) >= 18)
    return slices


def turn(site: Site, slice_: str, rng: random.Random, *, dies: bool) -> None:
    """A box on both nodes lives from claim to release; its end comes in the middle of lifting or before.

    With `dies` the agent dies twice.
    """
    duration_s = rng.uniform(1.0, 6.0) if site.trouble == CLOCK_IS_SET else 600.0
    box = site.box(slice_, nodes=(0, 1), drain=Drain(grace_s=2.0, force_after_s=4.0), duration_s=duration_s)
    site.tell(*box)
    wanted = rng.randrange(17)

    def is_so_far() -> bool:
        if site.trouble == CLOCK_IS_SET:
            site.tell(*box)  # each exchange with the hub compares the clocks; nothing is begun while they differ much
        return len(site.lifted(slice_)) >= wanted or site.is_in(Phase.RELEASED, *box)

    site.until("pods in", is_so_far)
    if dies:
        site.stop()
        site.start()
        site.tell(*box)
    site.tell(*ended(*box))
    if dies:
        site.pass_()
        site.stop()
        site.start()
    site.until("released", lambda: site.is_in(Phase.RELEASED, *box))


# Quickly, an agent dies in one of three turns, and troubles of the network and the clock are those of test_exits.py and test_crashes.py,
# one box at a time.
OTHER_TROUBLES = [pytest.param(trouble, marks=pytest.mark.soak) for trouble in ("", CLOCK_IS_SET, *APIS)]


@pytest.mark.parametrize("trouble", ["the agent dies", *OTHER_TROUBLES])
def test_two_slices_that_refill_at_once_never_meet_on_a_node(site: Site, tmp_path: Path, trouble: str) -> None:
    rng = random.Random(5)
    slices = refilling(site)
    site.stop()
    site.trouble, site.rng = trouble, rng
    site.start()

    with recording(site.cluster, tmp_path) as record:
        for number in range(TURNS):
            turn(site, slices[number % 2], rng, dies=trouble == "the agent dies" and number % 3 == 1)

    replay = Replay(site.key).run(record.events())
    assert replay.overlaps == []
    assert replay.change_count >= 2 * TURNS
    assert replay.bound_count > TURNS


def test_the_replay_sees_an_overlap_where_a_node_is_freed_without_draining(site: Site, tmp_path: Path) -> None:
    """This shows that the tests above can fail."""
    slices = refilling(site)

    with recording(site.cluster, tmp_path) as record:
        (first,) = site.box(slices[0])
        site.tell(first)
        site.until("pods in", lambda: site.running(slices[0]))
        release_undrained(site, first)
        (second,) = site.box(slices[1])
        site.tell(second)
        site.until("active", lambda: site.is_in(Phase.ACTIVE, second))

    assert Replay(site.key).run(record.events()).overlaps


def written(driver: KubernetesCluster, kind: WriteKind, seen: NodeState, records: Records) -> NodeState:
    """Raises what it answers where it fails."""
    (answer,) = driver.write(kind, [(seen, records)])
    if isinstance(answer, ClusterError):
        raise answer
    return answer


def written_in_time(driver: KubernetesCluster, kind: WriteKind, node: str, records: Records) -> NodeState:
    """Tries again as often as somebody else, such as the node's controller, writes the node in between."""

    def attempt() -> NodeState | None:
        try:
            return written(driver, kind, driver.observe()[node], records)
        except WriteConflict:
            return None

    return wait_for(kind, attempt, within_s=SOON_S)


def release_undrained(site: Site, box: Assignment) -> None:
    state = site.states[box.node]
    written(site.driver, WriteKind.CLOSE, state, new_records(box, GpuPhase.CLOSED))
    written(site.driver, WriteKind.RELEASE, site.states[box.node], new_records(box, GpuPhase.FREE))
    site.tell(*ended(box))
    site.pass_()


def test_an_agent_that_slept_between_node_and_guard_opens_nothing_afterwards(site: Site) -> None:
    red, blue = site.make_slice("red"), site.make_slice("blue")
    (box,) = site.box(red)
    sleeper = KubernetesCluster(CornerApi(site.access), check=site.check, note=site.note)
    sleeper.start()
    claimed = written_in_time(sleeper, WriteKind.ISOLATE, box.node, new_records(box, GpuPhase.ISOLATED))
    written_in_time(sleeper, WriteKind.OPEN, box.node, new_records(box, GpuPhase.OPEN, active_s=box.not_before_s))

    # It sleeps. Another one ends this box, and gives the node to the next.
    site.tell(*ended(box))
    site.until("released", lambda: site.is_in(Phase.RELEASED, box))
    (next_box,) = site.box(blue)
    site.tell(next_box)
    site.until("active", lambda: slices_in(site.guard()) == {blue})  # its fence may have risen twice

    with pytest.raises(WriteConflict):
        sleeper.lift_gates([[box]])
    with pytest.raises(WriteConflict):
        written(sleeper, WriteKind.CLOSE, claimed, new_records(box, GpuPhase.CLOSED))
    assert slices_in(site.guard()) == {blue}
    assert site.box_taint() == [f"{next_box.gpr_id}.1"]
    sleeper.stop()
