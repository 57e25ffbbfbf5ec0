"""Pods that waited before their namespace was a workspace's, or before EGS came: what becomes of them on a real cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from protocol.assignments import Phase
from tests.kube.cluster import Cluster
from tests.kube.requests.counter import Counter, template
from tests.kube.requests.test_autogpr import AUTO, deployment, requests
from tests.kube.site import Site, moved_in


@pytest.fixture
def site(cluster: Cluster) -> Iterator[Site]:
    with moved_in(cluster) as made:
        yield made


@pytest.fixture
def counter(cluster: Cluster) -> Iterator[Counter]:
    made = Counter(cluster)
    made.cluster.wait_for_account(made.namespace)
    yield made
    made.leave()


def told(site: Site, namespace: str) -> list[str]:
    found = site.cluster.list("events", namespace=namespace)
    return [each["message"] for each in found if each["reason"] == "WaitsForGpus"]


def test_a_pod_from_before_its_namespace_was_bound_is_told_so_and_runs_in_the_first_box_after(site: Site) -> None:
    red = site.make_slice("red")
    site.cluster.label("namespace", red, "egs.io/slice-")
    site.run_pod(red, "early", gpus=2)
    site.until(
        "it is told",
        lambda: f"Namespace {red} is bound to no workspace: bind it in EGS, or take the GPUs out of the pod." in told(site, red),
    )

    site.cluster.label("namespace", red, f"egs.io/slice={red}")
    site.until("it is told anew", lambda: any(message.startswith("Waits for GPUs") for message in told(site, red)))
    (box,) = site.box(red)
    site.tell(box)

    site.until("it runs", lambda: [pod["spec"]["nodeName"] for pod in site.running(red)] == [box.node])


def test_for_pods_from_before_their_namespace_was_bound_a_request_is_made_once_it_is(counter: Counter) -> None:
    bound = dict(counter.bound)
    counter.bound.clear()
    counter.make(template(**AUTO), deployment(replicas=2, gpus=8))
    counter.until("its template is told", lambda: counter.condition("Auto", "standard", "gprtemplate") == ("False", "NamespaceNotBound"))
    counter.for_a_while(3.0)  # longer than it takes for pods to be all there
    assert requests(counter) == []

    counter.bound.update(bound)

    counter.until("the request", lambda: [each["spec"]["nodes"] for each in requests(counter)] == [2])


def test_a_pod_that_waited_before_egs_came_stays_pending_takes_no_room_and_runs_once_it_is_made_anew(site: Site) -> None:
    red = site.make_slice("red")
    site.run_pod_on(red, "early", number=0)
    for name in ("one", "two"):
        site.run_pod(red, name, gpus=4)
    (box,) = site.box(red)
    site.tell(box)

    site.until("the others run", lambda: len(site.running(red)) == 2)
    assert site.is_in(Phase.ACTIVE, box)
    assert {pod["metadata"]["name"] for pod in site.running(red)} == {"one", "two"}
    (early,) = [pod for pod in site.pods(red) if pod["metadata"]["name"] == "early"]
    assert (early["status"]["phase"], early["spec"].get("nodeName")) == ("Pending", None)

    site.cluster.delete("pod", "early", "two", namespace=red, waits=True)
    site.run_pod(red, "early", gpus=1)

    site.until("it runs", lambda: {pod["metadata"]["name"] for pod in site.running(red)} == {"one", "early"})
