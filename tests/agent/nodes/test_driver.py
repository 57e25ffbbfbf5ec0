"""Many boxes on Kubernetes at once: none of them is in another's way, and no lock stays open behind one that is closed."""

from __future__ import annotations

import base64
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from protocol import cluster_names
from protocol.assignments import Assignment
from protocol.nodes.drift import Drift
from tests.agent.fake_kube import VERSION, FakeApi, Object, assignment, fill, free_calls, made, running_pod, state, waiting_pod
from worker_agent.boxes.records import new_records
from worker_agent.boxes.state import StateLost
from worker_agent.cluster.base import (
    ClusterError,
    GpuPhase,
    NodeState,
    StepCall,
    StepProgress,
    StepStatus,
    Unavailable,
    WriteConflict,
    WriteKind,
)
from worker_agent.kube.api.client import Forbidden
from worker_agent.kube.api.mirror import Mirror
from worker_agent.kube.api.objects import Meta, Namespace, Node
from worker_agent.kube.api.paging import PAGE_COUNT
from worker_agent.kube.driver import CALLS_AT_ONCE, STATE_PATH, KubernetesCluster
from worker_agent.kube.pods import draining, gate_lifter
from worker_agent.kube.pods.draining import PATIENCE_S
from worker_agent.kube.pods.lifting import NodeCapacity

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


def drain(driver: KubernetesCluster, box: Assignment, *, since_closed_s: float = 1.0) -> StepProgress:
    node = driver._observation.states()[box.node]
    return driver.run(StepCall(step="drain", attempt=1, assignment=box, node=node, since_closed_s=since_closed_s))


def test_a_guard_that_was_closed_to_one_box_is_closed_to_the_other_box_of_its_node_as_well() -> None:
    red, blue = assignment("a", "n1", "GPU-0"), assignment("b", "n1", "GPU-1", slice_="blue")
    api, driver = made({"n1": {**new_records(red, GpuPhase.OPEN), **new_records(blue, GpuPhase.OPEN)}}, guard={"n1": "@3,blue,red"})

    def fails(verb: str, path: str) -> None:
        if verb == "PATCH" and path == cluster_names.node_path("n1"):
            raise Unavailable("500")

    api.hook = fails
    (answer,) = driver.write(WriteKind.CLOSE, [(state(driver, "n1"), new_records(red, GpuPhase.CLOSED))])
    assert isinstance(answer, Unavailable)
    assert api.guard() == {"n1": "@4,blue"}

    api.hook = free_calls
    both = {**new_records(red, GpuPhase.CLOSED), **new_records(blue, GpuPhase.CLOSED)}
    (answer,) = driver.write(WriteKind.CLOSE, [(state(driver, "n1"), both)])

    assert isinstance(answer, NodeState)
    assert api.guard() == {"n1": "@5"}


def lift_count(api: FakeApi) -> int:
    return sum(verb == "PATCH" and "/pods/" in path for verb, path in api.calls)


def waiting(driver: KubernetesCluster) -> list[str]:
    driver.observe()
    return sorted(pod.label for pod in driver._observation.all_waiting())


def served(driver: KubernetesCluster, box: Assignment) -> list[str]:
    """Returns who waits after a pass."""
    driver.observe()
    driver.lift_gates([[box]])
    return waiting(driver)


def test_boxes_of_one_workspace_do_not_reach_for_the_same_pod() -> None:
    boxes = [[assignment(f"a{number}", f"n{number}", f"GPU-{number}")] for number in range(5)]
    api, driver = made(
        {box.node: new_records(box, GpuPhase.OPEN) for (box,) in boxes},
        guard={box.node: "@1,red" for (box,) in boxes},
        pods=[waiting_pod(f"p{number}") for number in range(5)],
    )
    driver.observe()

    driver.lift_gates(boxes)
    driver.lift_gates(boxes)

    assert soon(lambda: waiting(driver) == [])
    assert lift_count(api) == 5


def test_pods_of_a_namespace_that_was_given_on_enter_no_box_of_the_workspace_that_had_it() -> None:
    red, blue = assignment("a", "n1", "GPU-0"), assignment("b", "n2", "GPU-1", slice_="blue")
    open_ = {box.node: new_records(box, GpuPhase.OPEN) for box in (red, blue)}
    api, driver = made(open_, guard={"n1": "@1,red", "n2": "@1,blue"}, pods=[waiting_pod("p1")])
    driver.observe()
    assert driver._observation.waiting("red")

    fill(driver._namespaces, {("", "red"): Namespace(metadata=Meta(name="red", labels={cluster_names.SLICE: "blue"}))})
    driver.observe()
    driver.lift_gates([[red]])
    assert lift_count(api) == 0

    driver.lift_gates([[red], [blue]])
    assert soon(lambda: waiting(driver) == [])
    assert [pod.label for pod in driver.lifted(blue.gpr_id)] == ["red/p1"]


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
    driver.lift_gates(boxes)

    assert soon(lambda: waiting(driver) == ["s0/train"])


@pytest.mark.parametrize("refusal", [WriteConflict("422: a policy of the cluster denies it"), Forbidden("403")])
def test_a_pod_that_is_always_refused_leaves_its_box_to_the_next_and_is_tried_again(refusal: ClusterError) -> None:
    box = assignment("a", "n1", "GPU-0")
    api, driver = made({"n1": new_records(box, GpuPhase.OPEN)}, guard={"n1": "@1,red"}, pods=[waiting_pod("p1"), waiting_pod("p2")])

    def refuses(verb: str, path: str) -> None:
        if verb == "PATCH" and path.endswith("/p1"):
            raise refusal

    api.hook = refuses
    driver.observe()

    assert soon(lambda: served(driver, box) == ["red/p1"])
    api.hook = free_calls
    left = {key: pod for key, pod in driver._pods.objects().items() if key[1] == "p1"}
    driver._pods._replica.replace(left, VERSION + 1)  # since p2 was let in, and is over
    assert soon(lambda: served(driver, box) == [])


def test_any_number_of_refused_pods_keep_no_younger_one_out_and_are_tried_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_lifter, "AGAIN_S", 0.05)
    box = assignment("a", "n1", "GPU-0")
    pods = [waiting_pod(f"p{number:02}") for number in range(21)]
    api, driver = made({"n1": new_records(box, GpuPhase.OPEN)}, guard={"n1": "@1,red"}, pods=pods)
    denied = WriteConflict("PATCH /api/v1/...: 422 denied")
    denied.words = "webhook says: no team label"
    tries: list[str] = []

    def refuses(verb: str, path: str) -> None:
        if verb == "PATCH" and not path.endswith("/p20"):
            tries.append(path)
            raise denied

    api.hook = refuses
    is_let_in = soon(lambda: len(served(driver, box)) == 20)
    assert is_let_in

    left = {key: pod for key, pod in driver._pods.objects().items() if key[1] == "p00"}
    driver._pods._replica.replace(left, VERSION + 1)
    tries.clear()
    until_mono = time.monotonic() + 1
    while time.monotonic() < until_mono:
        served(driver, box)
    assert 2 <= len(tries) <= 5  # 0.1, 0.2, 0.4 s later

    (refused,) = left.values()
    assert "no team label" in driver.why_it_waits(refused)
    assert "422" not in driver.why_it_waits(refused)
    driver.repair_drift(repairs=True)
    assert soon(lambda: any(event["reason"] == "LiftRefused" and event["type"] == "Warning" for event in api.made))


def test_a_pod_whose_lift_was_not_answered_holds_its_gpus_until_it_was_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was applied, and the watch is late."""
    monkeypatch.setattr(gate_lifter, "TIMEOUT_S", 0.1)
    red, blue = assignment("a", "n1", "GPU-0"), assignment("b", "n1", "GPU-1", slice_="blue")
    api, driver = made(
        {"n1": {**new_records(red, GpuPhase.OPEN), **new_records(blue, GpuPhase.OPEN)}},
        guard={"n1": "@1,blue,red"},
        pods=[waiting_pod("p1"), waiting_pod("p2")],
    )
    answers_of_p1: list[str] = []

    def loses(verb: str, path: str) -> None:
        if path.endswith(("/p1", "/red/pods")) and len(answers_of_p1) < 3:  # the lift, and two looks
            answers_of_p1.append(verb)
            raise Unavailable("the connection broke")

    api.after = loses
    driver.observe()

    assert soon(lambda: served(driver, red) == ["red/p2"])
    assert answers_of_p1 == ["PATCH", "GET", "GET"]
    assert [served(driver, red) for _ in range(5)] == [["red/p2"]] * 5
    assert [path for verb, path in api.calls if verb == "PATCH"] == ["/api/v1/namespaces/red/pods/p1"]


def test_a_node_that_went_away_keeps_no_other_from_being_opened() -> None:
    gone, here = assignment("a", "n1", "GPU-0"), assignment("b", "n2", "GPU-1", slice_="blue")
    api, driver = made({"n1": new_records(gone, GpuPhase.OPEN), "n2": new_records(here, GpuPhase.ISOLATED)}, guard={"n1": "@3", "n2": "@1"})
    del api.objects[cluster_names.node_path("n1")]
    seen = state(driver, "n2")
    driver.write(WriteKind.OPEN, [(seen, new_records(here, GpuPhase.OPEN))])

    driver.lift_gates([[gone], [here]])

    assert api.guard() == {"n1": "@3", "n2": "@1,blue"}


def test_where_the_guard_is_not_as_expected_boxes_that_it_lists_are_served_still() -> None:
    red, blue = assignment("a", "n1", "GPU-0"), assignment("b", "n2", "GPU-1", slice_="blue")
    api, driver = made(
        {"n1": new_records(red, GpuPhase.OPEN), "n2": new_records(blue, GpuPhase.OPEN)},
        guard={"n1": "@3,red", "n2": "@1"},
        pods=[waiting_pod("train")],
    )

    def refuses(verb: str, path: str) -> None:
        if verb == "PATCH" and path == cluster_names.GUARD_PATH:
            raise Unavailable("500")

    api.hook = refuses
    driver.observe()
    with pytest.raises(Unavailable):
        driver.lift_gates([[red], [blue]])

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

    driver.lift_gates([[box]])

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

    driver.lift_gates([[red], [blue]])
    assert soon(lambda: waiting(driver) == ["red/first", "red/second"])
    driver.lift_gates([[red], [blue]])
    gate.set()

    assert soon(lambda: waiting(driver) == ["red/second"])
    driver.lift_gates([[red], [blue]])
    driver._gate_lifter._pool.shutdown()  # whatever was begun is over
    assert [path for _, path in api.calls if "/red/" in path] == ["/api/v1/namespaces/red/pods/first"]


def test_its_serial_rises_while_a_lift_is_on_its_way_and_with_what_comes_of_it_and_else_stays(gate: threading.Event) -> None:
    """Passes wait for that."""
    red = assignment("a", "n1", "GPU-0")
    api, driver = made({"n1": new_records(red, GpuPhase.OPEN)}, guard={"n1": "@1,red"}, pods=[waiting_pod("p")])
    api.hook = lambda _, path: (gate.wait(HANG_S), None)[1] if "/red/" in path else None
    driver.observe()
    still = driver.serial()
    assert driver.serial() == still

    driver.lift_gates([[red]])
    assert driver.serial() < driver.serial()
    gate.set()

    assert soon(lambda: waiting(driver) == [])
    assert driver.serial() == driver.serial() > still


def test_a_box_that_ends_lifts_no_more_and_is_not_over_while_a_lift_is_on_its_way(gate: threading.Event) -> None:
    gpus = [f"GPU-{number}" for number in range(20)]
    box = msgspec.structs.replace(assignment("a", "n1", "GPU-0"), gpus=tuple(gpus))
    pods = [waiting_pod(f"p{number:02}") for number in range(20)]
    api, driver = made({"n1": new_records(box, GpuPhase.OPEN)}, guard={"n1": "@1,red"}, pods=pods)
    api.hook = lambda verb, path: (gate.wait(HANG_S), None)[1] if verb == "PATCH" and "/pods/" in path else None
    driver.observe()
    driver.lift_gates([[box]])

    assert soon(lambda: lift_count(api) == CALLS_AT_ONCE)
    driver.write(WriteKind.CLOSE, [(state(driver, "n1"), new_records(box, GpuPhase.CLOSED))])
    assert drain(driver, box).status is StepStatus.RUNNING
    gate.set()

    assert soon(lambda: len(waiting(driver)) == 20 - CALLS_AT_ONCE)
    assert drain(driver, box).status is StepStatus.RUNNING  # until those that came in are gone
    driver._pods._replica.replace({}, 1000)
    driver.observe()
    assert drain(driver, box).status is StepStatus.OK
    assert lift_count(api) == CALLS_AT_ONCE


def of_gpus(count: int, box: Assignment) -> Assignment:
    return msgspec.structs.replace(box, gpus=tuple(f"{box.id}-{number}" for number in range(count)))


def red_pods(count: int) -> list[Object]:
    return [waiting_pod(f"p{number:03}") for number in range(count)]


@pytest.mark.parametrize("is_closed", [False, True])
def test_nothing_is_let_in_after_the_end_though_the_node_cannot_be_written(gate: threading.Event, *, is_closed: bool) -> None:
    box = of_gpus(100, assignment("a", "n1", "GPU-0"))
    api, driver = made({"n1": new_records(box, GpuPhase.OPEN)}, guard={"n1": "@1,red"}, pods=red_pods(100))

    def hangs(verb: str, path: str) -> None:
        if verb == "PATCH" and "/pods/" in path:
            gate.wait(HANG_S)
        elif verb == "PATCH" and path == cluster_names.node_path("n1"):
            raise Unavailable("500")

    api.hook = hangs
    driver.observe()
    driver.lift_gates([[box]])
    assert soon(lambda: lift_count(api) == CALLS_AT_ONCE)

    if is_closed:
        driver.prepare_close([(state(driver, "n1"), new_records(box, GpuPhase.CLOSED))])
    else:
        driver.lift_gates([])
    gate.set()
    driver._gate_lifter._pool.shutdown()

    assert lift_count(api) == CALLS_AT_ONCE


def test_an_agent_that_stops_lets_nobody_in_while_it_waits_for_other_calls(gate: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    box = of_gpus(100, assignment("a", "n1", "GPU-0"))
    api, driver = made({"n1": new_records(box, GpuPhase.OPEN)}, guard={"n1": "@1,red"}, pods=red_pods(100))

    def stop_slowly(_: object) -> None:
        """A stream that takes its time, while lifts are answered."""
        gate.set()
        time.sleep(0.2)

    monkeypatch.setattr(Mirror, "stop", stop_slowly)
    api.hook = lambda _, path: (gate.wait(HANG_S), None)[1] if "/pods/" in path else None
    driver.observe()
    driver.lift_gates([[box]])
    assert soon(lambda: lift_count(api) == CALLS_AT_ONCE)

    driver.stop()

    assert lift_count(api) == CALLS_AT_ONCE


def test_a_box_whose_lifts_hang_leaves_room_for_another() -> None:
    red, blue = of_gpus(200, assignment("a", "n1", "GPU-0")), assignment("b", "n2", "GPU-1", slice_="blue")
    api, driver = made(
        {"n1": new_records(red, GpuPhase.OPEN), "n2": new_records(blue, GpuPhase.OPEN)},
        guard={"n1": "@1,red", "n2": "@1,blue"},
        pods=[*red_pods(200), waiting_pod("train", "blue")],
    )
    lasts = threading.Semaphore(0)
    api.hook = lambda _, path: (lasts.acquire(timeout=HANG_S), None)[1] if "/red/" in path else None
    driver.observe()
    driver.lift_gates([[red], [blue]])

    lasts.release(gate_lifter.LIFTS_OF_BOX)  # each of those that were sent first is answered, once

    assert soon(lambda: any("/blue/" in path for _, path in api.calls))
    lasts.release(1000)


def test_no_more_lifts_are_on_their_way_than_there_is_room_for(gate: threading.Event) -> None:
    boxes = [[of_gpus(40, assignment(f"a{number}", f"n{number}", "GPU", slice_=f"s{number}"))] for number in range(6)]
    pods = [waiting_pod(f"p{number}", box.slice) for (box,) in boxes for number in range(40)]
    api, driver = made(
        {box.node: new_records(box, GpuPhase.OPEN) for (box,) in boxes}, guard={box.node: f"@1,{box.slice}" for (box,) in boxes}, pods=pods
    )
    api.hook = lambda verb, _: (gate.wait(HANG_S), None)[1] if verb == "PATCH" else None
    driver.observe()
    driver.lift_gates(boxes)

    assert driver._gate_lifter.free_count == 0
    assert len(driver._gate_lifter.unavailable_uids()) == gate_lifter.LIFTS_AT_ONCE


def test_while_one_node_of_a_box_is_drained_pods_are_let_into_the_rest_of_it(gate: threading.Event) -> None:
    old = assignment("a", "n1", "GPU-0")
    rest = msgspec.structs.replace(of_gpus(30, assignment("c", "n2", "GPU-1")), gpr_id=old.gpr_id)
    api, driver = made(
        {"n1": new_records(old, GpuPhase.CLOSED), "n2": new_records(rest, GpuPhase.OPEN)},
        guard={"n1": "@2", "n2": "@1,red"},
        pods=red_pods(30),
    )
    api.hook = lambda verb, path: (gate.wait(HANG_S), None)[1] if verb == "PATCH" and "/pods/" in path else None
    driver.observe()
    driver.lift_gates([[rest]])
    assert soon(lambda: lift_count(api) == CALLS_AT_ONCE)

    drain(driver, old)
    gate.set()

    assert soon(lambda: lift_count(api) == 30)


def on_shared_nodes(pods: list[Object]) -> tuple[FakeApi, KubernetesCluster, Assignment, Assignment]:
    """A box of one GPU on n1, and what takes its place on n2; each shares its node with a box of another workspace."""
    old = assignment("a", "n1", "GPU-0")
    new = msgspec.structs.replace(assignment("c", "n2", "GPU-2"), gpr_id=old.gpr_id)
    others = {"n1": assignment("x", "n1", "GPU-1", slice_="blue"), "n2": assignment("y", "n2", "GPU-3", slice_="blue")}
    records = {box.node: {**new_records(box, GpuPhase.OPEN), **new_records(others[box.node], GpuPhase.OPEN)} for box in (old, new)}
    api, driver = made(records, guard={"n1": "@1,blue,red", "n2": "@1,blue,red"}, pods=pods)
    return api, driver, old, new


def test_a_pod_that_was_given_a_node_which_its_box_has_left_is_sent_back_behind_the_gate() -> None:
    api, driver, old, new = on_shared_nodes([waiting_pod("p1")])
    driver.observe()
    driver.lift_gates([[old]])
    assert soon(lambda: waiting(driver) == [])

    driver.write(WriteKind.CLOSE, [(state(driver, "n1"), new_records(old, GpuPhase.CLOSED))])
    driver.write(WriteKind.RELEASE, [(state(driver, "n1"), new_records(old, GpuPhase.FREE))])
    driver.observe()
    driver.lift_gates([[new]])
    driver.repair_drift(repairs=True)

    assert soon(lambda: ("POST", "/api/v1/namespaces/red/pods/p1/eviction") in api.calls)


@pytest.mark.parametrize(
    ("placed_at", "records_are_there", "is_ended"),
    [
        ("2026-01-01T00:00:00Z", False, True),
        ("2026-01-01T12:00:00Z", False, True),  # in the very second in which the node was made
        ("2026-01-02T00:00:00Z", False, False),  # only its records were wiped off
        ("2026-01-01T00:00:00Z", True, False),  # of a box that the node has, whatever clocks say
    ],
)
def test_a_pod_is_ended_on_a_node_that_was_made_anew_under_it_and_on_no_other(
    placed_at: str, records_are_there: bool, is_ended: bool
) -> None:
    box = assignment("a", "n1", "GPU-0")
    pod = running_pod("p1", box)
    pod["status"] = {"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": placed_at}]}
    records = new_records(box, GpuPhase.OPEN) if records_are_there else {"GPU-0": None}
    api, driver = made({"n1": records}, guard={"n1": "@1"}, pods=[pod])
    api.objects[cluster_names.node_path("n1")]["metadata"]["creationTimestamp"] = "2026-01-01T12:00:00Z"
    fill(driver._nodes, {("", "n1"): msgspec.convert(api.objects[cluster_names.node_path("n1")], Node)})

    assert state(driver, "n1").view.ready is not is_ended
    found = driver.repair_drift(repairs=True)

    assert [drift.what for drift in found or ()] == (["pods on node n1"] if is_ended else [])
    deleted = ("DELETE", "/api/v1/namespaces/red/pods/p1")
    assert soon(lambda: deleted in api.calls) if is_ended else deleted not in api.calls


@pytest.mark.parametrize("fault", ["not ready", "cordoned"])
def test_no_pod_is_given_a_node_that_is_away_though_another_of_the_box_has_room(fault: str) -> None:
    api, driver, old, new = on_shared_nodes([waiting_pod("p1")])
    away = api.objects[cluster_names.node_path("n1")]
    if fault == "cordoned":
        away["spec"]["unschedulable"] = True
    else:
        away["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    fill(driver._nodes, {("", name): msgspec.convert(api.objects[cluster_names.node_path(name)], Node) for name in ("n1", "n2")})
    driver.observe()

    driver.lift_gates([[old, new]])

    assert soon(lambda: waiting(driver) == [])
    assert api.objects["/api/v1/namespaces/red/pods/p1"]["spec"]["nodeSelector"][cluster_names.NODE_UID] == "uid-n2"


def two_boxes_with_a_waiting_pod_each() -> tuple[FakeApi, KubernetesCluster, list[Assignment]]:
    boxes = [assignment("a", "n1", "GPU-0", slice_="red"), assignment("b", "n2", "GPU-1", slice_="blue")]
    opened = {box.node: new_records(box, GpuPhase.OPEN) for box in boxes}
    pods = [waiting_pod("train", box.slice) for box in boxes]
    api, driver = made(opened, guard={box.node: f"@1,{box.slice}" for box in boxes}, pods=pods)
    return api, driver, boxes


def test_a_box_of_which_no_node_can_take_a_pod_lets_none_in_and_keeps_no_other_box_waiting() -> None:
    api, driver, boxes = two_boxes_with_a_waiting_pod_each()
    api.objects[cluster_names.node_path("n1")]["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    fill(driver._nodes, {("", name): msgspec.convert(api.objects[cluster_names.node_path(name)], Node) for name in ("n1", "n2")})
    driver.observe()

    driver.lift_gates([[box] for box in boxes])

    assert soon(lambda: waiting(driver) == ["red/train"])


def test_a_box_whose_pods_cannot_be_counted_keeps_no_other_box_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    _, driver, boxes = two_boxes_with_a_waiting_pod_each()
    real = driver._box_capacity

    def no_capacity(box: Sequence[Assignment]) -> list[NodeCapacity]:
        if box[0].id == "a":
            raise TypeError("nobody thought of this")
        return real(box)

    monkeypatch.setattr(driver, "_box_capacity", no_capacity)
    driver.observe()

    driver.lift_gates([[box] for box in boxes])

    assert soon(lambda: waiting(driver) == ["red/train"])


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
    driver._draining._listed_mono = dict.fromkeys(pods, float("-inf"))  # long ago
    driver._draining._asked_mono = dict.fromkeys(pods, time.monotonic())

    driver.observe()
    answers = [drain(driver, box).status for box in (*stuck, done)]

    assert answers == [StepStatus.RUNNING] * 6 + [StepStatus.OK]


def test_a_box_that_has_its_turn_in_some_passes_only_is_looked_at_as_soon_as_any() -> None:
    """The watch still shows its pod, which is gone."""
    box = assignment("a", "n1", "GPU-0")
    api, driver = made({"n1": new_records(box, GpuPhase.CLOSED)}, guard={}, pods=[running_pod("gone", box)])
    api.pods = lambda _: []
    driver.observe()
    drain(driver, box)
    driver.observe()  # a pass without a turn for it
    driver._draining._listed_mono = {known: float("-inf") for known in driver._draining._listed_mono}  # long ago
    driver.observe()

    assert drain(driver, box).status is StepStatus.OK


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


def no_lists(verb: str, path: str) -> None:
    if (verb, path) == ("GET", "/api/v1/pods"):
        raise Unavailable("GET /api/v1/pods: ReadTimeout")


def test_pods_are_sent_away_by_force_in_time_though_no_list_of_them_can_be_had() -> None:
    box = assignment("a", "n1", "GPU-0")
    api, driver = made({"n1": new_records(box, GpuPhase.CLOSED)}, guard={}, pods=[running_pod("stays", box)])
    api.hook = no_lists
    driver._draining._listed_mono = {box.gpr_id: float("-inf")}  # long ago
    driver._draining._asked_mono = {box.gpr_id: time.monotonic()}
    driver.observe()

    drain(driver, box, since_closed_s=box.drain.force_after_s)

    assert soon(lambda: ("DELETE", "/api/v1/namespaces/red/pods/stays") in api.calls)


def test_a_drain_of_which_nobody_can_see_whether_it_is_over_fails_and_says_so() -> None:
    box = assignment("a", "n1", "GPU-0")
    api, driver = made({"n1": new_records(box, GpuPhase.CLOSED)}, guard={})
    api.hook = no_lists
    driver.observe()

    result = drain(driver, box, since_closed_s=box.drain.force_after_s + PATIENCE_S)

    assert (result.status, result.blames_node) == (StepStatus.FAILED, False)
    assert "ReadTimeout" in result.log


def test_pods_that_are_too_many_for_a_list_keep_no_pass_waiting_and_are_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "LIST_WITHIN_S", 0.2)
    box = assignment("a", "n1", "GPU-0")
    api, driver = made({"n1": new_records(box, GpuPhase.CLOSED)}, guard={}, pods=[running_pod("stays", box)])
    real, pages = api.get, 0

    def get(path: str, type_: Any, **params: Any) -> Any:
        nonlocal pages
        if path != "/api/v1/pods":
            return real(path, type_, **params)
        pages += 1
        time.sleep(0.1)
        return msgspec.convert({"items": [running_pod("one of many", box)] * PAGE_COUNT, "metadata": {"continue": "on and on"}}, type_)

    api.get = get  # type: ignore[method-assign]
    driver._draining._listed_mono = {box.gpr_id: float("-inf")}  # long ago
    driver._draining._asked_mono = {box.gpr_id: time.monotonic()}
    driver.observe()

    assert drain(driver, box).status is StepStatus.RUNNING
    assert 1 < pages <= 4
    assert soon(lambda: ("POST", "/api/v1/namespaces/red/pods/stays/eviction") in api.calls)


def test_a_list_of_the_pods_of_a_box_leaves_out_those_that_are_over_and_comes_by_pages() -> None:
    box = assignment("a", "n1", "GPU-0")
    api, driver = made({"n1": new_records(box, GpuPhase.CLOSED)}, guard={})
    asked: list[Object] = []
    real = api.get

    def get(path: str, type_: Any, **params: Any) -> Any:
        if path == "/api/v1/pods":
            asked.append(params)
        return real(path, type_, **params)

    api.get = get  # type: ignore[method-assign]
    driver.observe()

    assert drain(driver, box).status is StepStatus.OK
    selectors = {"labelSelector": f"egs.io/gpr={box.gpr_id}", "fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
    assert asked == [{**selectors, "limit": PAGE_COUNT}]


def test_the_last_nodes_of_a_watch_that_lags_are_freed_by_a_list() -> None:
    box = assignment("a", "n1", "GPU-0")
    _, driver = made({"n1": new_records(box, GpuPhase.CLOSED)}, guard={}, pods=[running_pod("gone", box)])
    driver.observe()
    assert drain(driver, box).status is StepStatus.RUNNING

    driver._draining._listed_mono[box.gpr_id] = float("-inf")  # long ago
    driver.observe()

    assert drain(driver, box).status is StepStatus.OK


@pytest.mark.parametrize("repairs", [True, False])
@pytest.mark.parametrize(("left", "words"), [({"n1": "@1"}, "did not name red any more"), ({}, "took the node out of the box")])
def test_what_somebody_takes_off_the_guard_is_put_back_and_told_once(left: dict[str, str], words: str, repairs: bool) -> None:
    """This holds also where the policy says to repair nothing: a node that is not listed is open to all."""
    box = assignment("a", "n1", "GPU-0")
    api, driver = made({"n1": new_records(box, GpuPhase.OPEN)}, guard={"n1": "@1,red"})

    def look() -> Sequence[Drift] | None:
        driver._drift_repair._last_mono = driver._drift_repair._guard_mono = float("-inf")
        driver.observe()
        driver.lift_gates([[box]])
        return driver.repair_drift(repairs=repairs)

    assert look() == []
    api.objects[cluster_names.GUARD_PATH]["spec"]["nodes"] = left

    told = [drift for _ in range(3) for drift in look() or ()]

    assert [(drift.what, drift.node, drift.is_repaired) for drift in told] == [("bind guard of node n1", "n1", True)]
    assert words in told[0].detail
    assert api.guard() == {"n1": "@1,red" if left else "@0,red"}


def test_a_write_of_the_guard_whose_answer_is_lost_is_no_change_by_somebody() -> None:
    box = assignment("a", "n1", "GPU-0")
    api, driver = made({"n1": new_records(box, GpuPhase.OPEN)}, guard={"n1": "@1"})
    driver.observe()

    def lose(verb: str, path: str) -> None:
        if (verb, path) == ("PATCH", cluster_names.GUARD_PATH):
            api.after = free_calls
            raise Unavailable("lost")

    api.after = lose
    with suppress(Unavailable):
        driver.lift_gates([[box]])

    assert driver.repair_drift(repairs=True) == []
    assert api.guard() == {"n1": "@1,red"}


@pytest.mark.parametrize("state", ["bm8gemxpYg==", "no base64!", base64.b64encode(zlib.compress(b"{}")[:-3]).decode()])
def test_a_damaged_state_document_is_said_to_be_one(state: str) -> None:
    """The agent ends with that sentence: an operator has to look."""
    api, driver = made({}, guard={})
    api.objects[STATE_PATH] = {"metadata": {"resourceVersion": "7"}, "data": {"state": state}}

    with pytest.raises(StateLost, match="egs-agent-state, is damaged"):
        driver.load_state()
