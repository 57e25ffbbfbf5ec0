"""Pods that wait, on a real API server: told to the hub by namespace, with the reasons, and with the Jobs that will fail for it.

Jobs that failed with their box are told, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec
import pytest

from protocol import cluster_names
from protocol.tenancy.waiting_pods import JobFailed, PodsWaiting
from tests.kube.cluster import Cluster, Object
from tests.kube.requests.counter import Counter
from tests.kube.requests.test_autogpr import job
from worker_agent.kube.pods import waiting


@pytest.fixture
def counter(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter]:
    monkeypatch.setattr(waiting, "EVERY_S", 0.0)
    monkeypatch.setattr(waiting, "EVERY_NAMESPACE_S", 0.0)
    monkeypatch.setattr(waiting, "JOB_AGAIN_S", 0.5)
    made = Counter(cluster)
    made.cluster.wait_for_account(made.namespace)
    yield made
    made.leave()


def with_deadline(body: Object, seconds: int | None) -> Object:
    return body | {"spec": body["spec"] | {"activeDeadlineSeconds": seconds}}


def told(counter: Counter) -> PodsWaiting | None:
    return next((each for each in counter.agent.waiting() or () if each.namespace == counter.namespace), None)


def fails_s(counter: Counter, name: str, after_s: int) -> float:
    return datetime.fromisoformat(counter.found(name, "job")["status"]["startTime"]).timestamp() + after_s


def test_pods_that_wait_are_counted_by_reason_and_some_of_them_named(counter: Counter) -> None:
    counter.make(job(pods=4))

    seen = counter.until("all four", lambda: (seen := told(counter)) and seen.count == 4 and seen)

    (reason,) = seen.reasons
    assert (reason.text, reason.count, len(reason.names)) == ("Waits for GPUs.", 4, 3)
    assert set(reason.names) < {pod["metadata"]["name"] for pod in counter.cluster.list("pods", namespace=counter.namespace)}
    assert seen.jobs == ()


def test_a_job_whose_deadline_runs_while_its_pods_wait_is_told_with_the_time_at_which_it_fails(counter: Counter) -> None:
    counter.make(with_deadline(job("short"), 3600), with_deadline(job("long"), 10**12), job("patient"))
    paused = with_deadline(job("paused"), 3600)
    counter.make(paused | {"spec": paused["spec"] | {"suspend": True}})

    seen = counter.until("both jobs", lambda: (seen := told(counter)) and len(seen.jobs) == 2 and seen.count == 6 and seen)

    assert [(each.name, each.count) for each in seen.jobs] == [("short", 2), ("long", 2)]
    assert seen.jobs[0].fails_s == fails_s(counter, "short", 3600)
    counter.delete("job", "short", waits=False)
    counter.until("the other alone", lambda: (seen := told(counter)) and [each.name for each in seen.jobs] == ["long"])


def test_pods_of_namespaces_that_are_no_workspace_s_are_not_told(counter: Counter) -> None:
    counter.make(job())
    counter.until("its pods", lambda: (seen := told(counter)) and seen.count == 2)

    counter.bound.clear()

    assert counter.agent.waiting() == ()


def test_without_the_right_to_read_jobs_pods_are_told_all_the_same(counter: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "TROUBLE_S", 3600.0)
    get = counter.api.get
    monkeypatch.setattr(counter.api, "get", lambda path, *more, **asked: get(path.replace("/jobs/", "/cronjobs/"), *more, **asked))
    counter.make(with_deadline(job(), 3600))

    seen = counter.until("its pods", lambda: (seen := told(counter)) and seen.count == 2 and seen)

    assert seen.jobs == ()
    assert len(counter.noted("job_unread")) == 1


def test_a_job_that_failed_when_its_pod_was_sent_out_of_a_box_is_told_with_the_request_of_the_box(counter: Counter) -> None:
    body = job(pods=1)
    counter.make(body | {"spec": body["spec"] | {"backoffLimit": 0}})
    counter.until("its pod", lambda: (seen := told(counter)) and seen.count == 1)
    (pod,) = (pod for pod in counter.pods.objects().values() if pod.metadata.namespace == counter.namespace)
    in_box = msgspec.structs.replace(pod.metadata, labels={cluster_names.POD_GPR: "g"})
    counter.others.append(msgspec.structs.replace(pod, metadata=in_box))
    told(counter)

    counter.delete("pod", pod.metadata.name)
    counter.others.clear()

    failed = counter.until("the Job", lambda: (counter.agent.waiting(), counter.agent.jobs_failed())[1])
    assert failed == (JobFailed(gpr_id="g", namespace=counter.namespace, name="train"),)
