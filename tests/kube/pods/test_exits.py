"""An exit on a real cluster ends: whatever the tenant does about it, by its force deadline, or it says exactly what holds it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from protocol.agents.events import Outcome, StepEvent
from protocol.assignments import Assignment, Drain, Phase
from tests.kube.api import outage
from tests.kube.callers import Caller
from tests.kube.cluster import Cluster, Object
from tests.kube.faults import LOST_ANSWER, REFUSALS, HeardApi, StillClock, StumblingApi
from tests.kube.isolation.attacks.attack import eviction
from tests.kube.policies import refusing
from tests.kube.site import Site, ended, moved_in
from tests.kube.world import pods_path
from worker_agent.boxes.actions import RETRY_MAX_S
from worker_agent.cluster.base import ClusterError, Unavailable
from worker_agent.kube.api.client import DisruptionBudget

SOON = Drain(grace_s=1.0, force_after_s=3.0)
LATE = Drain(grace_s=100.0, force_after_s=200.0)  # where the test's own clock decides
STUBBORN = {"egs.test/stops": "never"}


@pytest.fixture
def site(cluster: Cluster) -> Iterator[Site]:
    with moved_in(cluster) as made:
        yield made


@pytest.fixture
def frail_site(frail: Cluster) -> Iterator[Site]:
    with moved_in(frail) as made:
        yield made


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Caller]:
    made = Caller(cluster)
    yield made
    made.close()


def active(site: Site, slice_: str, *, pods: int, **changes: Any) -> Assignment:
    (box,) = site.box(slice_, drain=changes.pop("drain", SOON), **changes)
    site.tell(box)
    site.until("pods running", lambda: len(site.running(slice_)) == pods)
    return box


def left(site: Site, slice_: str) -> list[Object]:
    """Pods that may still run on a node: the kubelet has not said that they ended."""
    return [pod for pod in site.pods(slice_) if pod["spec"].get("nodeName") and pod["status"]["phase"] == "Running"]


def drains(site: Site, box: Assignment) -> list[StepEvent]:
    """Returns what was told of them since the last look."""
    return [event for event in site.take_events() if event.step == "drain" and event.assignment_id == box.id]


def drained(site: Site, box: Assignment) -> StepEvent:
    (event,) = drains(site, box)
    return event


def budget(name: str, slice_: str) -> Object:
    spec = {"minAvailable": "100%", "selector": {"matchLabels": {"app": "train"}}}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name, "namespace": slice_}, "spec": spec}


# As the API server answers an eviction that so many budgets are against: status, the reason in its body, and what it is to the agent.
ANSWERS: dict[int, tuple[int, str, type[ClusterError]]] = {1: (429, "TooManyRequests", DisruptionBudget), 2: (500, "", Unavailable)}


@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.soak)])  # quickly, a fault of the server's: below
def test_disruption_budgets_delay_an_exit_by_its_grace_and_no_more(site: Site, admin: Caller, count: int) -> None:
    """No answer says when to try again: with one that would mean never, and two on a pod are a fault of the server's."""
    red = site.make_slice("red")
    site.deploy(red, replicas=2, gpus=4)
    clock = StillClock()
    site.restart(api_of=HeardApi, clock=clock)
    box = active(site, red, pods=2, drain=LATE)
    site.cluster.apply(*(budget(f"budget-{number}", red) for number in range(count)))
    site.until("budgets in force", lambda: all(b["status"].get("currentHealthy") == 2 for b in site.cluster.list("pdb", namespace=red)))
    name = site.running(red)[0]["metadata"]["name"]
    path = pods_path(red, name, "eviction")

    answer = admin.call("POST", path, eviction(name, 5))
    with pytest.raises(ClusterError) as refused:
        site.agent_api.create(path, eviction(name, 5), msgspec.Raw)
    assert (answer.status, answer.body.get("reason", ""), type(refused.value)) == ANSWERS[count]
    assert "retry-after" not in answer.headers

    site.tell(*ended(box))
    slowly(site, clock, "closed", lambda: site.is_in(Phase.EXITING, box))
    clock.advance(90.0)
    slowly(site, clock, "each refused twice", lambda: all(refusals(site, "POST", pod, "eviction") >= 2 for pod in site.running(red)))
    assert len(site.running(red)) == 2
    clock.advance(10.0)
    slowly(site, clock, "released", lambda: site.is_in(Phase.RELEASED, box))

    assert left(site, red) == []
    assert drained(site, box).evidence["stage"] == "delete"


def refusals(site: Site, method: str, pod: Object, sub: str = "") -> int:
    """Counts how often the agent asked for this in vain."""
    call = method, pods_path(pod["metadata"]["namespace"], pod["metadata"]["name"], sub)
    assert isinstance(site.agent_api, HeardApi)
    return sum((called, path) == call and bool(refusal) for called, path, refusal in tuple(site.agent_api.heard))


# Quickly, the other refusals: tests/agent/boxes/test_exit.py, in a simulated cluster.
OTHER_REFUSALS = [pytest.param(fault, marks=pytest.mark.soak) for fault in REFUSALS if fault != "429"]


@pytest.mark.parametrize("fault", ["429", LOST_ANSWER, *OTHER_REFUSALS])
def test_whatever_the_api_server_answers_an_exit_is_patient_until_its_deadline_and_over_by_then(site: Site, fault: str) -> None:
    red = site.make_slice("red")
    site.run_pod(red, "stubborn", gpus=8, labels=STUBBORN)
    box = active(site, red, pods=1, drain=LATE)
    clock = StillClock()
    site.restart(api_of=StumblingApi, clock=clock)
    assert isinstance(site.agent_api, StumblingApi)
    site.agent_api.fault = fault
    site.tell(*ended(box))
    slowly(site, clock, "asked to go", lambda: not site.running(red))
    clock.advance(190.0)
    for _ in range(5):
        site.pass_()
    assert len(left(site, red)) == 1

    clock.advance(10.0)
    slowly(site, clock, "released", lambda: site.is_in(Phase.RELEASED, box))

    assert left(site, red) == []
    assert drained(site, box).evidence["stage"] == "force"


def slowly(site: Site, clock: StillClock, what: str, holds: Callable[[], Any]) -> None:
    """Pass after pass, while less than ten seconds go by for the agent."""

    def look() -> Any:
        clock.advance(0.01)
        return holds()

    site.until(what, look)


def test_an_api_server_that_is_away_at_the_deadline_holds_an_exit_up_until_it_is_back_and_no_longer(frail_site: Site) -> None:
    site = frail_site
    red = site.make_slice("red")
    site.run_pod(red, "stubborn", gpus=8, labels=STUBBORN)
    clock = StillClock()
    site.restart(api_of=HeardApi, clock=clock)
    box = active(site, red, pods=1, drain=LATE)
    site.tell(*ended(box))
    site.until("asked to go", lambda: not site.running(red))
    (pod,) = left(site, red)

    with outage.without(site.cluster, "kube-apiserver"):
        site.pass_()
        clock.advance(200.0)
        site.until("the force in vain", lambda: refusals(site, "DELETE", pod))
        clock.advance(10.0)
        for _ in range(3):
            site.pass_()
        assert site.is_in(Phase.EXITING, box)
    clock.advance(RETRY_MAX_S)
    slowly(site, clock, "released", lambda: site.is_in(Phase.RELEASED, box))

    assert left(site, red) == []
    assert site.box_taint() == ["free"]
    *held, over = drains(site, box)
    assert {event.outcome for event in held} == {Outcome.FAILED}
    assert re.search(rf"pod {red}/stubborn \(DELETE \S+: \w+(Error|Timeout)", held[0].log)  # whichever end of the connection broke it off
    assert over.evidence["stage"] == "force"


def test_what_not_even_force_removes_is_told_by_name_with_what_holds_it(site: Site, admin: Caller) -> None:
    red = site.make_slice("red")
    for name, labels in (("held", STUBBORN), ("gone", {})):
        site.run_pod(red, name, gpus=4, labels=labels)
    clock = StillClock()
    site.restart(api_of=HeardApi, clock=clock)
    box = active(site, red, pods=2, drain=LATE)
    site.patch_pod(red, "held", [{"op": "add", "path": "/metadata/finalizers", "value": ["example.com/one", "example.com/two"]}])
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE", "DELETE"], "resources": ["pods"], "resourceNames": ["held"]}

    site.tell(*ended(box))
    site.until("closed", lambda: site.box_taint() == ["draining"])

    with refusing(admin, rule, namespace=red, message="not before the audit"):
        clock.advance(210.0)
        site.until("the other gone", lambda: [pod["metadata"]["name"] for pod in left(site, red)] == ["held"])
        (held,) = left(site, red)
        told: list[StepEvent] = []

        def is_asked_again_and_again() -> bool:
            clock.advance(RETRY_MAX_S)
            told.extend(drains(site, box))
            return refusals(site, "DELETE", held) >= 4

        site.until("asked again and again", is_asked_again_and_again)
        named = ["not before the audit" in event.log for event in told]
        assert all(named[named.index(True) :]), [event.log for event in told]  # not only while no other call was on its way
        assert told[-1].outcome is Outcome.FAILED
        assert told[-1].evidence == {"pods_left": 1}
        assert f"pod {red}/held (finalizers example.com/one, example.com/two, DELETE " in told[-1].log
        assert "gone" not in told[-1].log

    def is_released() -> bool:
        clock.advance(RETRY_MAX_S)  # the call that it was refused last may have been a moment ago
        return site.is_in(Phase.RELEASED, box)

    site.until("released", is_released)


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
    assert site.box_taint() == ["draining"]  # closed all the same
    assert not site.states[box.node].view.ready

    site.mend_node()
    site.until("released", lambda: site.is_in(Phase.RELEASED, box))


def test_the_exit_of_a_node_that_died_takes_nothing_of_a_later_run_of_the_same_request(frail: Cluster) -> None:
    with moved_in(frail, nodes=2) as site:
        red = site.make_slice("red")
        site.run_pod(red, "lost", gpus=8, labels=STUBBORN)
        box = active(site, red, pods=1)
        site.break_node()
        site.tell(*ended(box))
        site.until("told", lambda: any("does not answer" in event.log for event in drains(site, box)))
        (again,) = site.box(red, nodes=(1,), gpr_id=box.gpr_id, run=2)
        site.tell(*ended(box), again)
        site.until("open elsewhere", lambda: site.is_in(Phase.ACTIVE, again))

        with outage.without(site.cluster, "kube-scheduler"):
            site.run_pod(red, "precious", gpus=1)
            site.until("let in", lambda: not site.gated(red))
            for _ in range(20):
                site.pass_()
                time.sleep(0.1)
        site.until("it runs", lambda: [pod["metadata"]["name"] for pod in site.running(red)] == ["precious"])

        site.mend_node()
        site.until("released", lambda: site.is_in(Phase.RELEASED, box))
        assert len(site.running(red)) == 1


def test_pods_that_were_let_in_but_never_placed_wait_behind_the_gate_again(site: Site) -> None:
    red = site.make_slice("red")
    site.deploy(red, replicas=2, gpus=4)
    site.until("both wait", lambda: len(site.gated(red)) == 2)
    name = site.gated(red)[0]["metadata"]["name"]
    site.patch_pod(red, name, [{"op": "add", "path": "/spec/nodeSelector", "value": {"zone": "nowhere"}}])  # the scheduler alone reads it
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


def test_without_the_hub_a_box_ends_at_its_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent's own clock decides: the box ends in the first pass after its end, however slow the machine is, and not before.

    The agent makes a pass each fifth of a second.
    """
    passes: list[tuple[float, float]] = []

    def timed_pass() -> None:
        begun_s = site.clock.wall()
        site.core.reconcile()
        passes.append((begun_s, site.clock.wall()))

    monkeypatch.setattr(site, "pass_", timed_pass)
    red = site.make_slice("red")
    site.deploy(red, replicas=2, gpus=4)
    box = active(site, red, pods=2, duration_s=4.0)

    site.until("released", lambda: site.is_in(Phase.RELEASED, box))

    seen = site.observed(box)
    assert seen is not None
    assert seen.active_s is not None
    assert seen.exit_began_s is not None
    end_s = seen.active_s + 4.0
    first_ended_s = next(ended_s for begun_s, ended_s in passes if begun_s >= end_s)
    assert end_s <= seen.exit_began_s <= first_ended_s
