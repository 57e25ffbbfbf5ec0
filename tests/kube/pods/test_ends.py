"""A job on a real API server reads the end of its box, and saves its work in time."""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec
import pytest

from protocol.agents.sync import IdleRelease
from protocol.assignments import Assignment
from tests.kube.cluster import Cluster, Object
from tests.kube.site import Site, moved_in
from worker_agent.kube.requests.status import rfc3339

FAR_S = 3 * 3600.0


@pytest.fixture
def site(cluster: Cluster) -> Iterator[Site]:
    with moved_in(cluster) as made:
        yield made


def opened(site: Site, slice_: str, *, ends_s: float) -> Assignment:
    site.deploy(slice_, replicas=2, gpus=2)
    (box,) = site.box(slice_, not_after_s=ends_s)
    site.tell(box)
    site.until("pods running", lambda: len(site.running(slice_)) == 2)
    return box


def moved(site: Site, box: Assignment, ends_s: float) -> None:
    site.tell(msgspec.structs.replace(box, not_after_s=ends_s))


def ends_of(site: Site, slice_: str) -> set[str]:
    return {str(pod["metadata"].get("annotations", {}).get("egs.io/ends-at", "")) for pod in site.running(slice_)}


def warnings(site: Site, slice_: str) -> list[Object]:
    return [each for each in site.cluster.list("events", namespace=slice_) if each["reason"] == "EndsSoon"]


def test_pods_read_the_end_of_their_box_from_their_start_on_and_it_moves_with_the_box(site: Site) -> None:
    red = site.make_slice("red")
    now_s = time.time()
    box = opened(site, red, ends_s=now_s + FAR_S)
    assert ends_of(site, red) == {rfc3339(now_s + FAR_S)}

    moved(site, box, now_s + 2 * FAR_S)  # an extension
    site.until("the later end", lambda: ends_of(site, red) == {rfc3339(now_s + 2 * FAR_S)})

    moved(site, box, now_s + FAR_S / 2)  # an eviction
    site.until("the sooner end", lambda: ends_of(site, red) == {rfc3339(now_s + FAR_S / 2)})
    assert warnings(site, red) == []


@pytest.mark.rotates
def test_pods_of_an_idle_box_read_when_it_is_released_and_an_agent_that_starts_again_keeps_it(site: Site) -> None:
    def read() -> set[str]:
        return {pod["metadata"]["annotations"].get("egs.io/idle-release-at", "") for pod in site.running(red)}

    red = site.make_slice("red")
    box = opened(site, red, ends_s=time.time() + FAR_S)
    at_s = time.time() + 900
    site.tell(box, idle_releases=(IdleRelease(gpr_id=box.gpr_id, run=box.run, at_s=at_s),))
    site.until("the release", lambda: read() == {rfc3339(at_s)})
    site.restart()
    for _ in range(3):
        site.pass_()
    assert read() == {rfc3339(at_s)}

    site.tell(box)  # its GPUs work again, or somebody keeps it
    site.until("no release", lambda: read() == {""})


def test_each_pod_is_warned_once_when_the_end_is_near_also_by_an_agent_that_starts_again(site: Site) -> None:
    red = site.make_slice("red")
    ends_s = time.time() + FAR_S
    box = opened(site, red, ends_s=ends_s)

    ends_s = time.time() + 300
    moved(site, box, ends_s)
    site.until("both warned", lambda: len(warnings(site, red)) == 2)
    site.restart()
    for _ in range(5):
        site.pass_()
        time.sleep(0.2)

    found = warnings(site, red)
    assert {each["involvedObject"]["name"] for each in found} == {pod["metadata"]["name"] for pod in site.running(red)}
    assert len(found) == 2
    assert {(each["type"], rfc3339(ends_s) in each["message"]) for each in found} == {("Warning", True)}
