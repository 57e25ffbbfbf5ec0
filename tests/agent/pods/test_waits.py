"""The pods that wait, and the Jobs that failed with their box, are told to the hub when that is news; whatever people write into them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from protocol import cluster_names
from protocol.agents.listings import set_digest
from protocol.tenancy.waiting_pods import JobFailed, PodsWaiting
from protocol.tenancy.workspaces import Workspace
from tests.agent.fake_kube import Object, waiting_pod
from tests.agent.stage import Stage
from worker_agent.cluster.base import ClusterError
from worker_agent.kube.api.client import Missing
from worker_agent.kube.api.objects import Pod
from worker_agent.kube.pods import waiting
from worker_agent.kube.pods.waiting import WaitingPodsReporter

WAITING = (PodsWaiting(namespace="red-ns", count=2),)
RED = Workspace(id="red", name="red", bindings=())


def say(stage: Stage, **changes: object) -> tuple[PodsWaiting, ...] | None:
    """Runs one sync and returns what it told."""
    sent = stage.core.sync_request(0.0)
    stage.generation += 1
    stage.core.on_reply(sent, msgspec.structs.replace(stage.reply(), **changes))
    return sent.request.waiting


def test_nothing_is_told_before_the_pods_were_looked_at() -> None:
    assert say(Stage()) is None


def test_they_are_told_once_and_again_when_others_wait() -> None:
    stage = Stage()
    say(stage)
    stage.core.link.waiting_pods.see(WAITING)
    assert [say(stage), say(stage)] == [WAITING, None]

    stage.core.link.waiting_pods.see(WAITING)
    assert say(stage) is None
    stage.core.link.waiting_pods.see(())
    assert [say(stage), say(stage)] == [(), None]


def test_a_message_that_no_answer_came_to_is_told_again() -> None:
    stage = Stage()
    say(stage)
    stage.core.link.waiting_pods.see(WAITING)

    stage.core.sync_request(0.0)

    assert say(stage) == WAITING


def test_a_hub_of_another_session_and_one_that_bound_other_namespaces_hear_it_anew() -> None:
    stage = Stage()
    say(stage)
    stage.core.link.waiting_pods.see(WAITING)
    say(stage)

    stage.session_epoch = 2
    say(stage)
    assert say(stage) == WAITING
    say(stage, workspaces=(RED,), workspaces_digest=set_digest([RED]))
    assert [say(stage), say(stage)] == [WAITING, None]


def test_a_job_that_failed_is_told_until_the_hub_took_it() -> None:
    stage, failed = Stage(), JobFailed(gpr_id="g", namespace="red-ns", name="train")
    say(stage)
    stage.core.link.failed_jobs.see((failed,))

    stage.core.sync_request(0.0)  # no answer comes
    sent = stage.core.sync_request(0.0)
    stage.core.on_reply(sent, stage.reply())

    assert sent.request.jobs_failed == (failed,)
    assert stage.core.sync_request(0.0).request.jobs_failed == ()


# -- what is read of the cluster ---------------------------------------------------------------------------------------


class JobsApi:
    """It answers by path, and raises what is an error."""

    def __init__(self, jobs: dict[str, Object | ClusterError]) -> None:
        self.jobs, self.asked = jobs, list[str]()

    def get(self, path: str, type_: Any) -> Any:
        self.asked.append(path)
        found = self.jobs.get(path, Missing("404"))
        if isinstance(found, ClusterError):
            raise found
        return msgspec.convert(found, type_)


def path_of(name: str, namespace: str = "red") -> str:
    return f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}"


def job(name: str, uid: str, *, started: str = "2027-01-01T00:00:00Z") -> Object:
    return {"metadata": {"name": name, "uid": uid}, "spec": {"activeDeadlineSeconds": 60}, "status": {"startTime": started}}


def pod_of(job_name: str, uid: str, namespace: str = "red") -> Object:
    return of_job(waiting_pod(f"{namespace}-{len(job_name)}", namespace), job_name, uid)


def of_job(pod: Object, job_name: str, uid: str) -> Object:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job_name, "uid": uid, "controller": True}
    return {**pod, "metadata": {**pod["metadata"], "ownerReferences": [owner]}}


def looked(api: JobsApi, *pods: Object) -> tuple[PodsWaiting, ...]:
    read = [msgspec.convert(pod, Pod) for pod in pods]
    made = WaitingPodsReporter(api=api, bound=str, pods=lambda: read, why=lambda _: "Waits for GPUs.", note=lambda *_: None)  # type: ignore[arg-type]
    return msgspec.json.decode(msgspec.json.encode(made.look()), type=tuple[PodsWaiting, ...])


@pytest.mark.parametrize("name", ["a" * 254, "../../secrets", "Fit", ""])
def test_a_name_that_is_none_of_a_job_is_neither_asked_for_nor_told(name: str) -> None:
    api = JobsApi({})

    (told,) = looked(api, pod_of(name, "uid-fit"))

    assert (told.count, told.jobs, api.asked) == (1, (), [])


def test_a_pod_that_claims_the_job_of_another_namespace_hides_it_from_nobody() -> None:
    api = JobsApi({path_of("fit"): job("fit", "uid-fit")})

    blue, red = looked(api, pod_of("fit", "uid-fit", "red"), pod_of("fit", "uid-fit", "blue"))

    assert (blue.jobs, [each.name for each in red.jobs]) == ((), ["fit"])


def test_a_job_is_told_by_its_own_name_whatever_its_pods_call_it() -> None:
    api = JobsApi({path_of("fit"): job("fit", "uid-fit")})

    (told,) = looked(api, pod_of("another", "uid-fit"), pod_of("fit", "uid-fit"))

    assert [(each.name, each.count) for each in told.jobs] == [("fit", 2)]


def test_a_job_that_began_before_all_clocks_has_failed_since_their_beginning() -> None:
    (told,) = looked(JobsApi({path_of("fit"): job("fit", "uid-fit", started="0001-01-01T00:00:00Z")}), pod_of("fit", "uid-fit"))

    assert [each.fails_s for each in told.jobs] == [0.0]


def test_a_job_that_cannot_be_read_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "TROUBLE_S", 0.0)
    monkeypatch.setattr(waiting, "EVERY_S", 0.0)
    monkeypatch.setattr(waiting, "EVERY_NAMESPACE_S", 0.0)
    api = JobsApi({path_of("bad"): ClusterError("400"), path_of("good"): job("good", "uid-b")})
    read = [msgspec.convert(pod_of(name, uid), Pod) for name, uid in (("bad", "uid-a"), ("good", "uid-b"))]
    made = WaitingPodsReporter(api=api, bound=str, pods=lambda: read, why=lambda _: "", note=lambda *_: None)  # type: ignore[arg-type]
    made.look()

    (told,) = made.look() or ()

    assert [each.name for each in told.jobs] == ["good"]


def test_a_pod_that_has_no_place_yet_is_told_in_our_words_and_not_in_those_of_the_scheduler() -> None:
    """They name the labels of nodes, and so other boxes."""
    message = "0/9 nodes are available: 1 node(s) had untolerated taint {egs.io/box: 5e6f7081.1}."
    unplaced = waiting_pod("fit")
    unplaced["metadata"]["labels"] = {cluster_names.POD_GPR: "own"}
    unplaced["spec"]["schedulingGates"] = []
    unplaced["status"] = {"conditions": [{"type": "PodScheduled", "status": "False", "message": message}]}

    (told,) = looked(JobsApi({}), unplaced)

    assert "the scheduler has not placed it yet" in told.reasons[0].text
    assert "5e6f7081" not in told.reasons[0].text


@pytest.mark.parametrize(
    ("ends", "told"),
    [("Failed", [JobFailed(gpr_id="g", namespace="red", name="fit")]), ("Complete", []), ("", []), (None, [])],
    ids=["failed", "complete", "goes on", "deleted"],
)
def test_of_jobs_that_had_pods_in_a_box_those_that_failed_are_told_once(
    ends: str | None, told: list[JobFailed], monkeypatch: pytest.MonkeyPatch
) -> None:
    for pause in ("EVERY_S", "EVERY_NAMESPACE_S", "JOB_AGAIN_S"):
        monkeypatch.setattr(waiting, pause, 0.0)
    api, pods = JobsApi({}), list[Pod]()
    made = WaitingPodsReporter(api=api, bound=str, pods=lambda: pods, why=lambda _: "", note=lambda *_: None)  # type: ignore[arg-type]
    pod = of_job(waiting_pod("fit-0"), "fit", "uid-fit")
    pod["metadata"]["labels"] = {cluster_names.POD_GPR: "g"}
    pod["spec"] |= {"schedulingGates": [], "nodeName": "gpu-1"}
    pods[:] = [msgspec.convert(pod, Pod)]
    made.look()
    assert api.asked == []  # it has a pod

    pods.clear()
    if ends is not None:
        api.jobs[path_of("fit")] = job("fit", "uid-fit") | {"status": {"conditions": [{"type": ends, "status": "True"}] if ends else None}}
    made.look()
    made.look()

    assert [list(made.take_failed()), made.take_failed()] == [told, ()]
    assert len(api.asked) == (2 if ends == "" else 1)  # what is over is read no more
