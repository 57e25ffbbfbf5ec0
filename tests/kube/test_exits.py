"""An exit on a real cluster ends: whatever the tenant does about it, by its force deadline, or it says exactly what holds it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.kube.cluster import Cluster, Object
from tests.kube.site import Site, ended
from worker_agent.protocol import Assignment, Drain, Outcome, Phase, StepEvent

SOON = Drain(grace_s=1.0, force_after_s=3.0)


@pytest.fixture
def site(managed: Cluster) -> Iterator[Site]:
    made = Site(managed)
    made.start()
    made.move_in()
    yield made
    made.stop()
    made.move_out()


def active(site: Site, slice_: str, *, pods: int, **changes: Any) -> Assignment:
    (box,) = site.box(slice_, drain=changes.pop("drain", SOON), **changes)
    site.tell(box)
    site.until("pods running", lambda: len(site.running(slice_)) == pods)
    return box


def left(site: Site, slice_: str) -> list[Object]:
    """Pods that may still run on a node: the kubelet has not said that they ended."""
    return [pod for pod in site.pods(slice_) if pod["spec"].get("nodeName") and pod["status"]["phase"] == "Running"]


def drained(site: Site, box: Assignment) -> StepEvent:
    return next(event for event in site.take_events() if event.step == "drain" and event.assignment_id == box.id)


def budget(name: str, slice_: str) -> Object:
    spec = {"minAvailable": "100%", "selector": {"matchLabels": {"app": "train"}}}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name, "namespace": slice_}, "spec": spec}


@pytest.mark.parametrize("count", [1, 2])
def test_disruption_budgets_delay_an_exit_by_its_grace_and_no_more(site: Site, count: int) -> None:
    """One answers 429, two on the same pod answer 500."""
    red = site.make_slice("red")
    site.deploy(red, replicas=2, gpus=4)
    box = active(site, red, pods=2)
    site.cluster.apply(*(budget(f"budget-{number}", red) for number in range(count)))
    site.until("budgets in force", lambda: all(b["status"].get("currentHealthy") == 2 for b in site.cluster.list("pdb", namespace=red)))

    site.tell(*ended(box))
    site.until("released", lambda: site.is_in(Phase.RELEASED, box))

    assert left(site, red) == []
    assert drained(site, box).evidence["stage"] == "delete"


def test_a_pod_that_never_stops_is_deleted_by_force(site: Site) -> None:
    red = site.make_slice("red")
    site.run_pod(red, "stubborn", gpus=8, labels={"egs.test/stops": "never"})
    box = active(site, red, pods=1)

    site.tell(*ended(box))
    site.until("released", lambda: site.is_in(Phase.RELEASED, box))

    assert left(site, red) == []
    assert drained(site, box).evidence["stage"] == "force"


def test_a_finalizer_that_hangs_is_taken_off_by_force(site: Site) -> None:
    """Policies let nobody put one on; one that is there all the same must not hold the node."""
    red = site.make_slice("red")
    site.run_pod(red, "held", gpus=8, labels={"egs.test/stops": "never"})
    box = active(site, red, pods=1)
    site.patch_pod(red, "held", [{"op": "add", "path": "/metadata/finalizers", "value": ["example.com/holds"]}])

    site.tell(*ended(box))
    site.until("released", lambda: site.is_in(Phase.RELEASED, box))

    assert left(site, red) == []


def test_the_exit_of_a_node_that_does_not_answer_says_so_and_frees_nothing(site: Site) -> None:
    red = site.make_slice("red")
    site.run_pod(red, "lost", gpus=8, labels={"egs.test/stops": "never"})
    box = active(site, red, pods=1)
    site.break_node()
    failed = (box.id, Outcome.FAILED)

    site.tell(*ended(box))
    event = site.until("said", lambda: next((e for e in site.take_events() if (e.assignment_id, e.outcome) == failed), None))

    assert "does not answer" in event.log
    assert not site.is_in(Phase.RELEASED, box)
    assert site.box_taint() == ["free"]  # closed all the same
    assert not site.states[box.node].view.ready

    site.mend_node()
    site.until("released", lambda: site.is_in(Phase.RELEASED, box))


def test_pods_that_were_let_in_but_never_placed_wait_behind_the_gate_again(site: Site) -> None:
    red = site.make_slice("red")
    site.deploy(red, replicas=2, gpus=4, cpu="100")  # of 128: the second fits nowhere
    box = active(site, red, pods=1)
    site.until("the second let in", lambda: not site.gated(red))

    site.tell(*ended(box))
    site.until("released", lambda: site.is_in(Phase.RELEASED, box))
    site.until("both wait again", lambda: len(site.gated(red)) == 2)


def test_an_agent_that_starts_anew_in_the_middle_of_an_exit_ends_it(site: Site) -> None:
    red = site.make_slice("red")
    site.run_pod(red, "slow", gpus=8, labels={"egs.test/stops": "never"})
    box = active(site, red, pods=1)
    site.tell(*ended(box))
    site.pass_()
    assert site.is_in(Phase.EXITING, box)

    site.stop()
    site.start()  # without a word from the hub
    site.until("released", lambda: site.is_in(Phase.RELEASED, box))

    assert left(site, red) == []


def test_without_the_hub_a_box_ends_at_its_time(site: Site) -> None:
    red = site.make_slice("red")
    site.deploy(red, replicas=2, gpus=4)
    box = active(site, red, pods=2, duration_s=4.0)

    site.until("released", lambda: site.is_in(Phase.RELEASED, box))

    seen = site.observed(box)
    assert seen is not None
    assert seen.active_s is not None
    assert seen.exit_began_s is not None
    assert 0.0 <= seen.exit_began_s - (seen.active_s + 4.0) <= 2.0
