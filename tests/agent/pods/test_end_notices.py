"""Pods know the end of their box: each annotation follows the end, and each pod is warned once for each end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import wait
from threading import Event

import msgspec
import pytest

from protocol import cluster_names
from protocol.assignments import Assignment
from tests.agent.fake_kube import FakeApi, assignment, fill, free_calls, made, running_pod, waiting_pod
from worker_agent.boxes.records import new_records
from worker_agent.cluster.base import BoxEnd, GpuPhase, Unavailable, WriteConflict
from worker_agent.kube.api.objects import Pod
from worker_agent.kube.driver import KubernetesCluster
from worker_agent.kube.pods import end_notices
from worker_agent.kube.requests.status import rfc3339

END_S = 1_800_000_000.0
BOX = assignment("a", "n1", "GPU-0")
OTHER = assignment("b", "n1", "GPU-1")
AGAIN = msgspec.structs.replace(BOX, run=2)


def box_end(ends_s: float = END_S, *, is_near: bool = False, box: Assignment = BOX, idle_release_s: float | None = None) -> BoxEnd:
    of = {"gpr_id": box.gpr_id, "gpr_name": box.gpr_name, "run": box.run}
    return BoxEnd(**of, ends_s=ends_s, is_near=is_near, idle_release_s=idle_release_s)  # type: ignore[arg-type]


class Box:
    """One that is open, with pods that run in it."""

    def __init__(self, *pods: str, again: Sequence[str] = (), others: Sequence[str] = ()) -> None:
        """`again` names pods of the next run, `others` those of another GPR."""
        there = [running_pod(name, box) for box, names_ in ((BOX, pods), (AGAIN, again), (OTHER, others)) for name in names_]
        records = {**new_records(BOX, GpuPhase.OPEN), **new_records(OTHER, GpuPhase.OPEN)}
        self.api, self.driver = made({"n1": records}, guard={"n1": "@1,red"}, pods=there)

    def announce(self, *said: BoxEnd, passes: int = 1) -> None:
        """Passes of the agent, and one more that takes in what came of them."""
        for _ in range(passes + 1):
            self.driver.observe()
            self.driver.publish_ends(said)
            wait(list(self.driver._end_notices._going.values()), timeout=10)

    def ends_at(self, name: str, annotation: str = cluster_names.ENDS_AT) -> str:
        return str(self.api.objects[f"/api/v1/namespaces/red/pods/{name}"]["metadata"].get("annotations", {}).get(annotation, ""))

    def events(self) -> int:
        return len([path for verb, path in self.api.calls if verb == "POST" and path.endswith("/events")])

    def patches(self) -> int:
        return len([path for verb, path in self.api.calls if verb == "PATCH" and "/pods/" in path])


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(end_notices, "AGAIN_S", 0.0)


@pytest.fixture
def box() -> Iterator[Box]:
    box = Box("p1", "p2")
    yield box
    for pool in box.driver._pools:
        pool.shutdown()


def test_a_pod_reads_when_its_box_ends_and_the_annotation_follows_the_end(box: Box) -> None:
    box.announce(box_end())
    assert box.ends_at("p1") == box.ends_at("p2") == rfc3339(END_S)

    box.announce(box_end(END_S + 3600))
    assert box.ends_at("p1") == rfc3339(END_S + 3600)

    box.announce(box_end(END_S - 60))
    assert box.ends_at("p1") == rfc3339(END_S - 60)


def test_an_end_that_stays_costs_no_more_calls(box: Box) -> None:
    box.announce(box_end(is_near=True), passes=2)
    calls = len(box.api.calls)

    box.announce(box_end(is_near=True), passes=5)

    assert len(box.api.calls) == calls


def test_nobody_is_warned_while_the_end_is_far(box: Box) -> None:
    box.announce(box_end(), passes=2)

    assert box.events() == 0


def test_each_pod_is_warned_once_of_each_end(box: Box) -> None:
    box.announce(box_end(is_near=True), passes=3)
    assert box.events() == 2

    box.announce(box_end(END_S - 120, is_near=True), passes=3)
    assert box.events() == 4


def test_a_warning_that_was_told_before_a_restart_is_taken_for_told(box: Box) -> None:
    """The API server knows the event by its name."""

    def is_there(verb: str, path: str) -> None:
        if verb == "POST":
            raise WriteConflict("409")

    box.api.hook = is_there
    box.announce(box_end(is_near=True), passes=3)

    assert box.events() == 2


def test_a_warning_that_did_not_arrive_is_sent_again(box: Box) -> None:
    def is_away(verb: str, path: str) -> None:
        if verb == "POST":
            raise Unavailable("503")

    box.api.hook = is_away
    box.announce(box_end(is_near=True))
    tried = box.events()
    box.api.hook = free_calls

    box.announce(box_end(is_near=True), passes=2)

    assert box.events() > tried


def test_however_many_pods_there_are_only_so_many_calls_are_on_their_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(end_notices, "AT_ONCE", 3)
    box = Box(*(f"p{number}" for number in range(20)))
    box.driver.observe()

    box.driver.publish_ends([box_end(is_near=True)])
    assert len(box.driver._end_notices._going) == 3

    box.announce(box_end(is_near=True), passes=20)
    assert {box.ends_at(f"p{number}") for number in range(20)} == {rfc3339(END_S)}
    assert box.events() == 20
    box.driver.stop()


def test_a_gpr_with_pods_that_cannot_be_told_keeps_no_warning_from_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often they are tried again, and though its end is the sooner one."""
    monkeypatch.setattr(end_notices, "AT_ONCE", 4)
    many = [f"many{number}" for number in range(20)]

    def of_many_is_away(verb: str, path: str) -> None:
        if verb == "POST" or "/pods/many" in path:
            raise Unavailable("503")

    box = Box(*many, others=["p1", "p2"])
    box.api.hook = of_many_is_away
    box.announce(box_end(END_S, is_near=True), box_end(END_S + 60, box=OTHER), passes=2)

    assert box.ends_at("p1") == box.ends_at("p2") == rfc3339(END_S + 60)
    box.driver.stop()


def test_what_is_on_its_way_for_one_gpr_counts_when_the_next_calls_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that comes later, too, gets its share, not what the first leaves."""
    monkeypatch.setattr(end_notices, "AT_ONCE", 4)
    box = Box(*(f"p{number}" for number in range(20)), others=["q1", "q2", "q3"])
    hold = Event()
    box.api.hook = lambda verb, path: None if "/pods/q" in path else _held(hold)
    box.driver.observe()
    box.driver.publish_ends([box_end()])
    monkeypatch.setattr(end_notices, "AT_ONCE", 8)

    box.driver.publish_ends([box_end(), box_end(END_S + 60, box=OTHER)])

    assert sorted(key.gpr_id for key in box.driver._end_notices._going) == [BOX.gpr_id] * 5 + [OTHER.gpr_id] * 3
    hold.set()
    box.driver.stop()


def _held(hold: Event) -> None:
    hold.wait(10)


def test_a_pod_that_cannot_be_told_keeps_no_warning_from_others_of_its_gpr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(end_notices, "AT_ONCE", 2)

    def first_are_away(verb: str, path: str) -> None:
        if path.endswith(("/p1", "/p2")):
            raise Unavailable("503")

    box = Box("p1", "p2", "p3")
    box.api.hook = first_are_away
    box.announce(box_end(), passes=3)

    assert box.ends_at("p3") == rfc3339(END_S)
    box.driver.stop()


def test_of_a_request_that_runs_again_each_pod_is_told_the_end_of_its_own_run() -> None:
    """Pods of the first run leave while those of the second begin."""
    box = Box("p1", again=["p2"])

    box.announce(box_end(is_near=True))
    assert (box.ends_at("p1"), box.ends_at("p2"), box.events()) == (rfc3339(END_S), "", 1)

    box.announce(box_end(END_S + 3600, is_near=True, box=AGAIN))
    assert (box.ends_at("p1"), box.ends_at("p2"), box.events()) == (rfc3339(END_S), rfc3339(END_S + 3600), 2)

    box.announce(box_end(END_S + 7200, box=AGAIN), box_end(END_S + 60))
    assert (box.ends_at("p1"), box.ends_at("p2"), box.events()) == (rfc3339(END_S + 60), rfc3339(END_S + 7200), 2)
    box.driver.stop()


@pytest.mark.parametrize(
    ("ends_s", "told"),
    [
        (-62_167_219_200.0, "1970-01-01T00:00:00Z"),  # the year 0
        (3_093_527_980_800.0, "9999-12-31T23:46:40Z"),  # the year 99999
        (float("inf"), "9999-12-31T23:46:40Z"),
        (float("-inf"), "1970-01-01T00:00:00Z"),
        (float("nan"), "1970-01-01T00:00:00Z"),
    ],
)
def test_an_end_beyond_the_calendar_is_told_as_the_nearest_that_it_has_and_keeps_no_warning_from_others(ends_s: float, told: str) -> None:
    box = Box("p1", others=["q1"])

    box.announce(box_end(ends_s, is_near=True), box_end(box=OTHER))

    assert (box.ends_at("p1"), box.ends_at("q1")) == (told, rfc3339(END_S))
    box.driver.stop()


def test_a_pod_that_is_let_in_knows_the_end_before_it_starts() -> None:
    api, driver = made({"n1": new_records(BOX, GpuPhase.OPEN)}, guard={"n1": "@1,red"}, pods=[waiting_pod("p1")])
    driver.observe()

    driver.publish_ends([box_end()])
    driver.lift_gates([[BOX]])

    assert wait_for_annotation(api) == rfc3339(END_S)
    driver.stop()


def test_a_pod_that_is_let_into_the_next_run_knows_the_end_of_that_one() -> None:
    api, driver = made({"n1": new_records(AGAIN, GpuPhase.OPEN)}, guard={"n1": "@1,red"}, pods=[waiting_pod("p1")])
    driver.observe()

    driver.publish_ends([box_end(END_S + 3600, box=AGAIN), box_end()])
    driver.lift_gates([[AGAIN]])

    assert wait_for_annotation(api) == rfc3339(END_S + 3600)
    driver.stop()


def wait_for_annotation(api: FakeApi) -> str:
    until_mono = time.monotonic() + 10
    found = ""
    while not found and time.monotonic() < until_mono:
        found = api.objects["/api/v1/namespaces/red/pods/p1"]["metadata"].get("annotations", {}).get(cluster_names.ENDS_AT, "")
        time.sleep(0.005)
    return str(found)


def test_pods_of_an_idle_box_read_when_it_is_released_until_it_is_not_any_more(box: Box) -> None:
    def said() -> list[str]:
        return [box.ends_at(name, cluster_names.IDLE_RELEASE_AT) for name in ("p1", "p2")]

    for idle_release_s, expected in [(0.0, ""), (END_S - 60, "then"), (END_S, "later"), (None, "later"), (0.0, "")]:
        box.announce(box_end(idle_release_s=idle_release_s), passes=2)
        assert said() == [{"then": rfc3339(END_S - 60), "later": rfc3339(END_S)}.get(expected, "")] * 2
    assert box.ends_at("p1") == rfc3339(END_S)
    patches = box.patches()
    box.announce(box_end(idle_release_s=0.0), passes=3)
    assert box.patches() == patches


def test_an_annotation_that_somebody_wrote_meanwhile_is_not_lost(box: Box) -> None:
    """The pod had none when it was read."""
    path = "/api/v1/namespaces/red/pods/p1"
    box.api.objects[path]["metadata"]["annotations"] = {"team": "red"}

    box.announce(box_end())
    assert box.api.objects[path]["metadata"]["annotations"] == {"team": "red"}

    read_again(box.driver, box.api)
    box.announce(box_end())
    assert box.api.objects[path]["metadata"]["annotations"] == {"team": "red", cluster_names.ENDS_AT: rfc3339(END_S)}


def read_again(driver: KubernetesCluster, api: FakeApi) -> None:
    pods = {path: msgspec.convert(each, Pod) for path, each in api.objects.items() if "/pods/" in path}
    fill(driver._pods, {(pod.metadata.namespace, pod.metadata.name): pod for pod in pods.values()})
