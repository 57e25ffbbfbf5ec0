"""A drain that is overdue says what holds each pod, for as long as it is held: by what was answered last, not by what is asked just now."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.agent.fake_kube import FakeApi, assignment, made, running_pod
from worker_agent.boxes.records import new_records
from worker_agent.cluster.base import GpuPhase, StepCall, StepStatus, Unavailable
from worker_agent.kube.driver import KubernetesCluster
from worker_agent.kube.pods import draining
from worker_agent.kube.pods.draining import PATIENCE_S

HANG_S = 30.0
BOX = assignment("a", "n1", "GPU-0")
REFUSAL = "422 Invalid: not before the audit"


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Calls that wait for it hang until the test is over."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def held() -> tuple[FakeApi, KubernetesCluster]:
    pod = running_pod("stays", BOX)
    api, driver = made({"n1": new_records(BOX, GpuPhase.CLOSED)}, guard={}, pods=[pod])
    api.pods = lambda _: [pod]
    return api, driver


def told(driver: KubernetesCluster) -> str:
    driver.observe()
    node = driver._observation.states()["n1"]
    overdue_s = BOX.drain.force_after_s + PATIENCE_S
    result = driver.run(StepCall(step="drain", attempt=1, assignment=BOX, node=node, since_closed_s=overdue_s))
    assert result.status is StepStatus.FAILED
    return result.log


def soon(holds: Callable[[], bool]) -> bool:
    until_mono = time.monotonic() + 10
    while not holds() and time.monotonic() < until_mono:
        time.sleep(0.01)
    return holds()


def deletes(api: FakeApi) -> int:
    return sum(verb == "DELETE" for verb, _ in api.calls)


def test_a_refusal_is_told_on_while_the_pod_is_asked_to_go_again_and_again(
    held: tuple[FakeApi, KubernetesCluster], monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> None:
    monkeypatch.setattr(draining, "AGAIN_S", 0.0)
    monkeypatch.setattr(draining, "KEPT_S", 0.2)
    api, driver = held

    def refuses_once(verb: str, _: str) -> None:
        if verb == "DELETE" and deletes(api) > 1:
            gate.wait(HANG_S)
        elif verb == "DELETE":
            raise Unavailable(REFUSAL)

    api.hook = refuses_once
    assert "no answer yet" in told(driver)

    assert soon(lambda: REFUSAL in told(driver))
    assert soon(lambda: deletes(api) == 2)
    time.sleep(0.3)  # longer than what was refused is kept of a pod that nobody asks to go any more

    assert [REFUSAL in told(driver) for _ in range(3)] == [True] * 3


def test_a_pod_that_was_never_refused_is_told_as_such(held: tuple[FakeApi, KubernetesCluster]) -> None:
    _, driver = held

    assert soon(lambda: told(driver).endswith("pod red/stays (no refusal)"))
