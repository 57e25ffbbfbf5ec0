"""Many boxes on Kubernetes at once: none of them is in another's way, and no lock stays open behind one that is closed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import msgspec
import pytest

from tests.agent.fake_kube import FakeApi, Object, assignment, free_calls, made, running_pod, state, waiting_pod
from worker_agent.cluster.base import GpuPhase, NodeState, StepCall, StepResult, StepStatus, Unavailable, Verb
from worker_agent.fences import new_records
from worker_agent.kube import names
from worker_agent.kube.driver import CALLS_AT_ONCE, KubernetesCluster
from worker_agent.protocol import Assignment

HANG_S = 30.0


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Calls that wait for it hang until the test is over."""
    event = threading.Event()
    yield event
    event.set()


def soon(holds: Callable[[], object]) -> bool:
    until = time.monotonic() + 10
    while time.monotonic() < until:
        if holds():
            return True
        time.sleep(0.01)
    return False


def drain(driver: KubernetesCluster, box: Assignment) -> StepResult:
    return driver.run(StepCall(step="drain", attempt=1, assignment=box, node=driver._sight.states()[box.node], since_closed_s=1.0))


def test_a_guard_that_was_closed_to_one_box_is_closed_to_the_other_box_of_its_node_as_well() -> None:
    red, blue = assignment("a", "n1", "GPU-0"), assignment("b", "n1", "GPU-1", slice_="blue")
    api, driver = made({"n1": {**new_records(red, GpuPhase.OPEN), **new_records(blue, GpuPhase.OPEN)}}, guard={"n1": "@3,blue,red"})

    def fails(verb: str, path: str) -> None:
        if verb == "PATCH" and path == names.node_path("n1"):
            raise Unavailable("500")

    api.hook = fails
    (answer,) = driver.write(Verb.CLOSE, [(state(driver, "n1"), new_records(red, GpuPhase.CLOSED))])
    assert isinstance(answer, Unavailable)
    assert api.guard() == {"n1": "@4,blue"}

    api.hook = free_calls
    both = {**new_records(red, GpuPhase.CLOSED), **new_records(blue, GpuPhase.CLOSED)}
    (answer,) = driver.write(Verb.CLOSE, [(state(driver, "n1"), both)])

    assert isinstance(answer, NodeState)
    assert api.guard() == {"n1": "@5"}


def lift_count(api: FakeApi) -> int:
    return sum(verb == "PATCH" and "/pods/" in path for verb, path in api.calls)


def waiting(driver: KubernetesCluster) -> list[str]:
    """As the next pass sees them."""
    driver.observe()
    return sorted(pod.label for pod in driver._sight.all_waiting())


def test_boxes_of_one_workspace_do_not_reach_for_the_same_pod() -> None:
    boxes = [[assignment(f"a{number}", f"n{number}", f"GPU-{number}")] for number in range(5)]
    api, driver = made(
        {box.node: new_records(box, GpuPhase.OPEN) for (box,) in boxes},
        guard={box.node: "@1,red" for (box,) in boxes},
        pods=[waiting_pod(f"p{number}") for number in range(5)],
    )
    driver.observe()

    driver.serve(boxes)
    driver.serve(boxes)

    assert soon(lambda: waiting(driver) == [])
    assert lift_count(api) == 5


def test_a_pod_that_cannot_be_let_in_keeps_no_other_from_its_box() -> None:
    boxes = [[assignment(f"a{number}", f"n{number}", f"GPU-{number}", slice_=f"s{number}")] for number in range(3)]
    api, driver = made(
        {box.node: new_records(box, GpuPhase.OPEN) for (box,) in boxes},
        guard={box.node: f"@1,{box.slice}" for (box,) in boxes},
        pods=[waiting_pod("train", f"s{number}") for number in range(3)],
    )

    def refuses(verb: str, path: str) -> None:
        if "/s0/" in path:
            raise Unavailable("a webhook says no")

    api.hook = refuses
    driver.observe()
    driver.serve(boxes)

    assert soon(lambda: waiting(driver) == ["s0/train"])


def test_a_node_that_went_away_keeps_no_other_from_being_opened() -> None:
    gone, here = assignment("a", "n1", "GPU-0"), assignment("b", "n2", "GPU-1", slice_="blue")
    api, driver = made({"n1": new_records(gone, GpuPhase.OPEN), "n2": new_records(here, GpuPhase.CLAIMED)}, guard={"n1": "@3", "n2": "@1"})
    del api.objects[names.node_path("n1")]
    seen = state(driver, "n2")
    driver.write(Verb.OPEN, [(seen, new_records(here, GpuPhase.OPEN))])

    driver.serve([[gone], [here]])

    assert api.guard() == {"n1": "@3", "n2": "@1,blue"}


def test_where_the_guard_is_not_as_expected_boxes_that_it_lists_are_served_still() -> None:
    red, blue = assignment("a", "n1", "GPU-0"), assignment("b", "n2", "GPU-1", slice_="blue")
    api, driver = made(
        {"n1": new_records(red, GpuPhase.OPEN), "n2": new_records(blue, GpuPhase.OPEN)},
        guard={"n1": "@3,red", "n2": "@1"},
        pods=[waiting_pod("train")],
    )

    def refuses(verb: str, path: str) -> None:
        if verb == "PATCH" and path == names.GUARD_PATH:
            raise Unavailable("500")

    api.hook = refuses
    driver.observe()
    with pytest.raises(Unavailable):
        driver.serve([[red], [blue]])

    assert soon(lambda: waiting(driver) == [])


def test_pods_are_let_in_while_evictions_of_others_hang(gate: threading.Event) -> None:
    full, box = assignment("a", "n1", "GPU-0"), assignment("b", "n2", "GPU-1", slice_="blue")
    pods = [*(running_pod(f"p{number}", full) for number in range(20)), waiting_pod("late", "blue")]
    api, driver = made(
        {"n1": new_records(full, GpuPhase.CLOSED), "n2": new_records(box, GpuPhase.OPEN)}, guard={"n1": "@3", "n2": "@1,blue"}, pods=pods
    )
    api.hook = lambda _, path: (gate.wait(HANG_S), None)[1] if path.endswith("/eviction") else None
    driver.observe()
    drain(driver, full)

    driver.serve([[box]])

    assert soon(lambda: waiting(driver) == [])


def test_a_lift_that_hangs_keeps_nobody_waiting_and_its_box_takes_no_more_than_it_holds(gate: threading.Event) -> None:
    red, blue = assignment("a", "n1", "GPU-0"), assignment("b", "n2", "GPU-1", slice_="blue")
    api, driver = made(
        {"n1": new_records(red, GpuPhase.OPEN), "n2": new_records(blue, GpuPhase.OPEN)},
        guard={"n1": "@1,red", "n2": "@1,blue"},
        pods=[waiting_pod("first"), waiting_pod("second"), waiting_pod("train", "blue")],
    )
    api.hook = lambda _, path: (gate.wait(HANG_S), None)[1] if "/red/" in path else None
    driver.observe()

    driver.serve([[red], [blue]])
    assert soon(lambda: waiting(driver) == ["red/first", "red/second"])
    driver.serve([[red], [blue]])
    gate.set()

    assert soon(lambda: waiting(driver) == ["red/second"])
    driver.serve([[red], [blue]])
    assert [path for _, path in api.calls if "/red/" in path] == ["/api/v1/namespaces/red/pods/first"]


def test_a_box_that_ends_lifts_no_more_and_is_not_over_while_a_lift_is_on_its_way(gate: threading.Event) -> None:
    gpus = [f"GPU-{number}" for number in range(20)]
    box = msgspec.structs.replace(assignment("a", "n1", "GPU-0"), gpus=tuple(gpus))
    pods = [waiting_pod(f"p{number:02}") for number in range(20)]
    api, driver = made({"n1": new_records(box, GpuPhase.OPEN)}, guard={"n1": "@1,red"}, pods=pods)
    api.hook = lambda verb, path: (gate.wait(HANG_S), None)[1] if verb == "PATCH" and "/pods/" in path else None
    driver.observe()
    driver.serve([[box]])

    assert soon(lambda: lift_count(api) == CALLS_AT_ONCE)
    driver.write(Verb.CLOSE, [(state(driver, "n1"), new_records(box, GpuPhase.CLOSED))])
    assert drain(driver, box).status is StepStatus.RUNNING
    gate.set()

    assert soon(lambda: len(waiting(driver)) == 20 - CALLS_AT_ONCE)
    assert drain(driver, box).status is StepStatus.RUNNING  # until those that came in are gone
    driver._pods._replica.replace({}, 1000)
    driver.observe()
    assert drain(driver, box).status is StepStatus.OK
    assert lift_count(api) == CALLS_AT_ONCE


def test_a_box_whose_evictions_hang_leaves_room_for_another(gate: threading.Event) -> None:
    stuck, box = assignment("a", "n1", "GPU-0"), assignment("b", "n2", "GPU-1", slice_="blue")
    pods: list[Object] = [*(running_pod(f"p{number}", stuck) for number in range(200)), running_pod("other", box)]
    api, driver = made({"n1": new_records(stuck, GpuPhase.CLOSED), "n2": new_records(box, GpuPhase.CLOSED)}, guard={}, pods=pods)
    lasts = threading.Semaphore(0)
    api.hook = lambda _, path: (lasts.acquire(timeout=HANG_S), None)[1] if "/red/" in path else None
    for _ in range(3):
        driver.observe()
        drain(driver, stuck)
    driver.observe()
    drain(driver, box)

    lasts.release(64)  # each of those that were sent first is answered, once

    assert soon(lambda: any("/blue/" in path for _, path in api.calls))
    lasts.release(1000)


def test_a_box_whose_pods_are_gone_is_looked_at_though_those_of_others_stay() -> None:
    stuck = [assignment(f"a{number}", f"n{number}", f"GPU-{number}") for number in range(6)]
    done = assignment("z", "n9", "GPU-9")
    nodes = {box.node: new_records(box, GpuPhase.CLOSED) for box in (*stuck, done)}
    pods = {box.gpr_id: running_pod(f"p-{box.id}", box) for box in stuck}
    api, driver = made(nodes, guard={}, pods=list(pods.values()))
    api.pods = lambda gpr_id: [pods[gpr_id]] if gpr_id in pods else []
    driver._draining._looked_mono = dict.fromkeys(pods, float("-inf"))  # long ago
    driver._draining._asked = set(pods)

    driver.observe()
    answers = [drain(driver, box).status for box in (*stuck, done)]

    assert answers == [StepStatus.RUNNING] * 6 + [StepStatus.OK]


def test_a_drain_is_over_only_when_a_list_shows_no_pod_whatever_the_watch_says() -> None:
    box = assignment("a", "n1", "GPU-0")
    api, driver = made({"n1": new_records(box, GpuPhase.CLOSED)}, guard={})
    api.pods = lambda _: [running_pod("unseen", box)]
    driver.observe()

    assert drain(driver, box).status is StepStatus.RUNNING
    assert soon(lambda: ("POST", "/api/v1/namespaces/red/pods/unseen/eviction") in api.calls)

    api.pods = lambda _: []
    driver.observe()
    assert drain(driver, box).status is StepStatus.OK


def test_the_last_nodes_of_a_watch_that_lags_are_freed_by_a_list() -> None:
    box = assignment("a", "n1", "GPU-0")
    _, driver = made({"n1": new_records(box, GpuPhase.CLOSED)}, guard={}, pods=[running_pod("gone", box)])
    driver.observe()
    assert drain(driver, box).status is StepStatus.RUNNING

    driver._draining._looked_mono[box.gpr_id] = float("-inf")  # long ago
    driver.observe()

    assert drain(driver, box).status is StepStatus.OK
