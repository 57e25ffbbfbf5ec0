"""Two runs of one GPR at once, as when a node of the first died in its exit: neither takes, counts nor holds up what is the other's."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import msgspec
import pytest

from protocol import cluster_names
from protocol.assignments import Assignment
from tests.agent.fake_kube import FakeApi, Object, assignment, made, running_pod, waiting_pod
from worker_agent.boxes.records import new_records
from worker_agent.cluster.base import GpuPhase, StepCall, StepProgress, StepStatus
from worker_agent.kube.checks.steps import Checks
from worker_agent.kube.driver import CALLS_AT_ONCE, KubernetesCluster

HANG_S = 30.0

FIRST = assignment("a", "n1", "GPU-0")
SECOND = msgspec.structs.replace(assignment("b", "n2", "GPU-1"), gpr_id=FIRST.gpr_id, run=2)
BESIDE = msgspec.structs.replace(SECOND, node=FIRST.node, node_uid=FIRST.node_uid)  # on the node of the first, with another GPU of it

FORCED_S = FIRST.drain.force_after_s


def let_in(name: str, box: Assignment, *, node: str) -> Object:
    """Returns a pod as a lift into the box leaves it. `node` is "" before the scheduler gives it one."""
    pod = running_pod(name, box)
    pod["spec"] |= {"nodeName": node, "nodeSelector": {cluster_names.box_label(box.gpr_id): str(box.run)}}
    return pod


def at_the_exit_of_the_first(
    second: Assignment, *, phase: GpuPhase = GpuPhase.OPEN, pods: list[Object]
) -> tuple[FakeApi, KubernetesCluster]:
    nodes = {FIRST.node: new_records(FIRST, GpuPhase.CLOSED)}
    nodes[second.node] = {**nodes.get(second.node, {}), **new_records(second, phase)}
    api, driver = made(nodes, guard={FIRST.node: "@2", second.node: "@1,red"}, pods=pods)
    api.pods = lambda _: [pod for pod in pods if cluster_names.POD_GPR in pod["metadata"]["labels"]]
    driver.observe()
    return api, driver


def drained(driver: KubernetesCluster, box: Assignment, *, since_closed_s: float) -> StepProgress:
    node = driver._observation.states()[box.node]
    return driver.run(StepCall(step="drain", attempt=1, assignment=box, node=node, since_closed_s=since_closed_s))


def soon(holds: Callable[[], object]) -> bool:
    until_mono = time.monotonic() + 10
    while not holds() and time.monotonic() < until_mono:
        time.sleep(0.01)
    return bool(holds())


def lift_count(api: FakeApi) -> int:
    return sum(verb == "PATCH" and "/pods/" in path for verb, path in api.calls)


def forced_away(api: FakeApi, driver: KubernetesCluster) -> set[str]:
    """All that the passes so far deleted by force."""
    driver._draining._force._pool.shutdown()  # whatever was begun is over
    return {path.rsplit("/", 1)[1] for verb, path in api.calls if verb == "DELETE"}


def test_a_pod_that_a_later_run_let_in_is_not_touched_by_the_exit_of_an_earlier_one_before_it_has_a_node_either() -> None:
    own, others = let_in("own", FIRST, node=""), let_in("precious", SECOND, node="")
    api, driver = at_the_exit_of_the_first(SECOND, pods=[own, others])

    drained(driver, FIRST, since_closed_s=FORCED_S)

    assert forced_away(api, driver) == {"own"}


def test_an_exit_is_over_though_pods_of_a_later_run_wait_for_their_place() -> None:
    _, driver = at_the_exit_of_the_first(SECOND, pods=[let_in("precious", SECOND, node="")])

    assert drained(driver, FIRST, since_closed_s=FORCED_S).status is StepStatus.OK


@pytest.mark.parametrize("phase", [GpuPhase.OPEN, GpuPhase.CLOSED])
def test_where_two_runs_share_a_node_each_exit_takes_its_own_pods_and_leaves_the_other_its_grace(phase: GpuPhase) -> None:
    own, others = let_in("own", FIRST, node="n1"), let_in("precious", BESIDE, node="n1")
    api, driver = at_the_exit_of_the_first(BESIDE, phase=phase, pods=[own, others])

    drained(driver, FIRST, since_closed_s=FORCED_S)

    assert forced_away(api, driver) == {"own"}


@pytest.mark.parametrize("run", ["7", None])
def test_a_pod_on_the_node_that_is_of_no_run_which_has_gpus_there_does_not_outlast_the_exit(run: str | None) -> None:
    """Its selector does not matter: nobody else would take it."""
    strange = let_in("strange", FIRST, node="n1")
    strange["spec"]["nodeSelector"] = {} if run is None else {cluster_names.box_label(FIRST.gpr_id): run}
    api, driver = at_the_exit_of_the_first(SECOND, pods=[strange])

    assert drained(driver, FIRST, since_closed_s=FORCED_S).status is StepStatus.RUNNING
    assert forced_away(api, driver) == {"strange"}


def test_pods_of_an_earlier_run_that_cannot_be_removed_take_no_room_from_the_later_one() -> None:
    api, driver = at_the_exit_of_the_first(SECOND, pods=[let_in("stuck", FIRST, node="n1"), waiting_pod("next")])

    driver.lift_gates([[SECOND]])

    assert soon(lambda: lift_count(api) == 1)


def test_the_exit_of_an_earlier_run_neither_gives_up_the_lifts_of_a_later_one_nor_waits_for_them() -> None:
    gate = threading.Event()
    wide = msgspec.structs.replace(SECOND, gpus=tuple(f"GPU-{number}" for number in range(1, 31)))
    api, driver = at_the_exit_of_the_first(wide, pods=[waiting_pod(f"p{number:02}") for number in range(30)])
    api.hook = lambda verb, path: (gate.wait(HANG_S), None)[1] if verb == "PATCH" and "/pods/" in path else None

    driver.lift_gates([[wide]])
    assert soon(lambda: lift_count(api) == CALLS_AT_ONCE)
    result = drained(driver, FIRST, since_closed_s=1.0)
    gate.set()

    assert result.status is StepStatus.OK
    assert soon(lambda: lift_count(api) == 30)


def test_a_node_is_clean_of_one_run_though_another_is_at_work_on_it() -> None:
    api, driver = at_the_exit_of_the_first(BESIDE, pods=[let_in("theirs", BESIDE, node="n1")])
    checks = Checks(api, image="python:3.13-slim")  # type: ignore[arg-type]
    call = StepCall(step="node_clean", attempt=1, assignment=FIRST, node=driver._observation.states()["n1"])

    result = checks.run(call)

    assert result.status is StepStatus.OK, result.log
