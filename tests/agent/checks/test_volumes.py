"""The volumes of a workspace at the exit: what is still on the node is found, and no look at them keeps anybody else waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from protocol.nodes.checks import Verdict
from protocol.nodes.steps import ExitStep
from tests.agent.checks.step_calls import step_call
from worker_agent.cluster.base import StepCall, StepProgress, StepStatus, Unavailable
from worker_agent.kube.api import paging
from worker_agent.kube.api.client import Missing
from worker_agent.kube.checks import volumes
from worker_agent.kube.checks.steps import Checks

CLAIMS = "/api/v1/namespaces/red-ns/persistentvolumeclaims"
Object = dict[str, Any]


class FakeStorage:
    """Claims of red-ns, volumes by name with the namespace of their claim, and where they are attached."""

    def __init__(self) -> None:
        self.claims: list[Object] = []
        self.owners: dict[str, str] = {}
        self.attached: list[tuple[str, str]] = []  # node, volume
        self.calls: list[str] = []
        self.hook: Callable[[str], None] = lambda _: None

    def get(self, path: str, type_: Any, **params: Any) -> Any:
        self.calls.append(path)
        self.hook(path)
        if path.startswith("/api/v1/persistentvolumes/"):
            name = path.rpartition("/")[2]
            if name not in self.owners:
                raise Missing(f"404 {path}")
            return msgspec.convert({"spec": {"claimRef": {"namespace": self.owners[name]}}}, type_)
        return msgspec.convert(self._page(self._items(path, params), params), type_)

    def _items(self, path: str, params: Object) -> list[Object]:
        if path == volumes.ATTACHMENTS:
            return [{"spec": {"nodeName": node, "source": {"persistentVolumeName": volume}}} for node, volume in self.attached]
        if path == "/api/v1/namespaces":
            return [{"metadata": {"name": "red-ns"}}] if params["labelSelector"] == "egs.io/slice=red" else []
        return self.claims if path == CLAIMS else []

    @staticmethod
    def _page(items: list[Object], params: Object) -> Object:
        begin, limit = int(params.get("continue", 0)), int(params["limit"])
        more = {"continue": str(begin + limit)} if len(items) > begin + limit else {}
        return {"items": items[begin : begin + limit], "metadata": more}


def agent_of(storage: FakeStorage) -> Checks:
    return Checks(storage, image="i")  # type: ignore[arg-type]


def call(node: str = "node-1", *, namespaces: tuple[str, ...] = ("red-ns",), attempt: int = 1) -> StepCall:
    found = step_call(ExitStep.VOLUMES, ("GPU-0",), node=node, id=f"a-{node}", attempt=attempt)
    return msgspec.structs.replace(found, assignment=msgspec.structs.replace(found.assignment, namespaces=namespaces))


def ended(agent: Checks, of: StepCall) -> StepProgress:
    until = time.monotonic() + 10
    while time.monotonic() < until:
        result = agent.run(of)
        if result.status is not StepStatus.RUNNING:
            return result
        time.sleep(0.01)
    raise AssertionError("it runs for ever")


@pytest.mark.parametrize("namespaces", [("red-ns",), ()], ids=["the hub's word", "known from the node alone"])
def test_a_volume_that_is_still_attached_holds_the_node_though_its_claim_is_gone(namespaces: tuple[str, ...]) -> None:
    storage = FakeStorage()
    storage.owners = {"pv-red": "red-ns", "pv-other": "other-ns"}
    storage.attached = [("node-1", "pv-red"), ("node-1", "pv-other"), ("node-2", "pv-red")]
    agent = agent_of(storage)

    held = ended(agent, call(namespaces=namespaces))

    assert (held.status, held.results[0].value, held.results[0].text) == (StepStatus.FAILED, 1.0, "pv-red")
    storage.attached = [("node-1", "pv-other")]
    assert ended(agent, call(namespaces=namespaces, attempt=2)).status is StepStatus.OK


def test_of_an_attached_volume_that_was_deleted_nobody_knows_whose_it_was_and_it_is_told() -> None:
    storage = FakeStorage()
    storage.attached = [("node-1", "pv-gone")]

    result = ended(agent_of(storage), call())

    assert (result.status, result.results[0].verdict) == (StepStatus.OK, Verdict.WARN)
    assert "pv-gone" in result.results[0].text


def test_nodes_of_a_box_share_a_look_that_begins_after_they_asked_for_it() -> None:
    storage, gate = FakeStorage(), threading.Event()
    storage.hook = lambda _: (gate.wait(10), None)[1]
    agent = agent_of(storage)

    calls = [call(f"node-{number}") for number in range(32)]
    assert [agent.run(each).status for each in calls] == [StepStatus.RUNNING] * len(calls)
    gate.set()
    assert {ended(agent, each).status for each in calls} == {StepStatus.OK}

    assert storage.calls.count(volumes.ATTACHMENTS) == 2  # for the first, and for those that came while it was under way


def test_a_look_that_hangs_keeps_no_pass_waiting() -> None:
    storage, gate = FakeStorage(), threading.Event()
    storage.hook = lambda _: (gate.wait(10), None)[1]
    agent = agent_of(storage)

    began = time.monotonic()
    assert agent.run(call()).status is StepStatus.RUNNING
    assert time.monotonic() - began < 5

    gate.set()
    assert ended(agent, call()).status is StepStatus.OK


def test_a_look_that_fails_is_told_and_the_next_attempt_looks_again() -> None:
    storage = FakeStorage()

    def fails(path: str) -> None:
        if path == volumes.ATTACHMENTS:
            raise Unavailable("GET volumeattachments: ReadTimeout")

    storage.hook = fails
    agent = agent_of(storage)

    failed = ended(agent, call())
    storage.hook = lambda _: None

    assert (failed.status, failed.blames_node) == (StepStatus.FAILED, False)
    assert "ReadTimeout" in failed.log
    assert ended(agent, call(attempt=2)).status is StepStatus.OK


def test_claims_that_a_workspace_has_made_unreadable_hold_no_node() -> None:
    storage = FakeStorage()

    def fails(path: str) -> None:
        if path == CLAIMS:
            raise Unavailable("GET persistentvolumeclaims: ReadTimeout")

    storage.hook = fails

    result = ended(agent_of(storage), call())

    assert result.status is StepStatus.OK
    assert [(each.check, each.verdict) for each in result.results] == [("volumes_attached", Verdict.PASS), ("volumes_lost", Verdict.SKIP)]


def test_claims_are_read_page_by_page_and_those_that_lost_their_volume_are_told() -> None:
    storage = FakeStorage()
    storage.claims = [
        {"metadata": {"name": f"data-{number}"}, "status": {"phase": "Lost" if number == paging.PAGE_COUNT + 5 else "Bound"}}
        for number in range(paging.PAGE_COUNT * 2 + 10)
    ]

    result = ended(agent_of(storage), call())

    assert storage.calls.count(CLAIMS) == 3
    lost = result.results[1]
    assert (result.status, lost.verdict, lost.text) == (StepStatus.OK, Verdict.WARN, f"data-{paging.PAGE_COUNT + 5}")
