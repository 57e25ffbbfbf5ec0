"""Pods on a real API server, whose controllers make the chains of owners: told to the hub, and grouped there by what people made."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from protocol.pods import PodSeen
from tests.kube.cluster import Cluster
from tests.kube.requests.counter import Counter
from tests.kube.requests.test_autogpr import cronjob, deployment, job, job_set, kinds, owned, stateful
from tests.kube.world import container, pod
from worker_agent.kube.pods.reporting import PodReporter
from worker_agent.telemetry.pod_devices import PodDevices

__all__ = ["kinds"]


@pytest.fixture
def counter(cluster: Cluster) -> Iterator[Counter]:
    made = Counter(cluster)
    made.cluster.wait_for_account(made.namespace)
    yield made
    made.leave()


@pytest.fixture
def reporter(counter: Counter) -> PodReporter:
    return PodReporter(
        api=counter.api,
        pods=counter.pods.objects().values,
        workspace_of=lambda name: counter.bound.get(name, ""),
        why=lambda _: "Waits for GPUs.",
        devices=PodDevices(),
        note=counter.note,
    )


def told(counter: Counter, reporter: PodReporter) -> list[PodSeen]:
    reporter.pods = counter.pods.objects().values
    return list(reporter.look({}, counter.workspaces))


def chains(seen: list[PodSeen]) -> set[tuple[str, ...]]:
    return {tuple(f"{owner.kind}/{owner.name.rpartition('-')[0] or owner.name}" for owner in pod.owners) for pod in seen}


@pytest.mark.usefixtures("kinds")
def test_pods_are_told_with_the_owners_that_controllers_gave_them(counter: Counter, reporter: PodReporter) -> None:
    counter.make(job_set("llama-70b"), cronjob("nightly"))
    jobset = counter.found("llama-70b", "jobset")
    counter.make(owned(job("llama-worker-0", pods=2), jobset), owned(job("llama-leader-0", pods=1), jobset))
    counter.make(deployment("serve-it", replicas=2, gpus=1), stateful("note-book"), pod("alone", containers=[container(1)]))
    counter.kubectl("create", "job", "nightly-1", "--from=cronjob/nightly")

    seen = counter.until("all pods", lambda: len(found := told(counter, reporter)) == 9 and found)

    assert chains(seen) == {
        ("Job/llama-worker", "JobSet/llama"),
        ("Job/llama-leader", "JobSet/llama"),
        ("ReplicaSet/serve-it", "Deployment/serve"),
        ("StatefulSet/note",),
        ("Job/nightly",),
        (),
    }
    assert len({pod.owners[-1].uid for pod in seen if len(pod.owners) == 2 and pod.owners[-1].kind == "JobSet"}) == 1
    assert {pod.hold for pod in seen} == {"gate"}
    assert {pod.rank for pod in seen if pod.name.startswith("note-book")} == {0}
    assert not counter.noted("owners_unread")


def test_a_deployment_of_kserve_is_told_with_its_service_and_a_pod_made_anew_with_another_uid(
    counter: Counter, reporter: PodReporter
) -> None:
    served = deployment("chat-predictor", replicas=1, gpus=1)
    served["spec"]["template"]["metadata"]["labels"]["serving.kserve.io/inferenceservice"] = "chat"
    counter.make(served, stateful("note-book"))
    seen = counter.until("both pods", lambda: len(found := told(counter, reporter)) == 2 and found)
    assert {pod.owners[-1].kind: pod.owners[-1].name for pod in seen} == {"InferenceService": "chat", "StatefulSet": "note-book"}
    (before,) = [pod for pod in seen if pod.name == "note-book-0"]

    counter.delete("pod", "note-book-0", waits=False)

    def anew() -> list[PodSeen]:
        return [pod for pod in told(counter, reporter) if pod.name == "note-book-0" and pod.uid != before.uid]

    (after,) = counter.until("the new pod", anew)
    assert after.owners == before.owners
