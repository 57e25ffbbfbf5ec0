"""A job that is a Kubernetes object: filed with its request, told as it goes, ended with the object, and never made twice."""

from __future__ import annotations

import pytest

from gpr.models import ClusterRequestRecord, Gpr, GprState, Job, JobOutcome
from protocol.tenancy.cluster_requests import ClusterRequestVerdict, JobAsk, JobProgress
from protocol.tenancy.workloads import WorkloadPhase, WorkloadSeen
from tests.cluster_requests.stage import ClusterRequestStage, claim, gone

pytestmark = pytest.mark.django_db
RUNS = JobAsk(image="a/b:1", command=("torchrun", "train.py"), env={"LR": "3e-4"}, volumes={"data": "/data"}, retries=2, user_id=2000)
MANIFEST = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: own}\nspec:\n  template: {spec: {hostPID: true, containers: []}}\n"


@pytest.fixture
def stage() -> ClusterRequestStage:
    return ClusterRequestStage()


def sees(stage: ClusterRequestStage, job: Job, phase: WorkloadPhase, message: str = "", *, pods: int = 0) -> None:
    seen = WorkloadSeen(id=str(job.pk), run=1, phase=phase, message=message, pods_running=pods)
    stage.agent.sync(at=stage.now, workloads_seen=(seen,))


def test_a_job_is_filed_once_with_its_request_and_told_until_it_is_complete(stage: ClusterRequestStage) -> None:
    gpr = stage.filed(job=RUNS)
    stage.filed(job=RUNS)  # its answer was lost, or the agent is another

    job = Job.objects.get()
    assert (Gpr.objects.count(), ClusterRequestRecord.objects.count()) == (1, 1)
    assert (job.gpr_id, job.image, job.command, job.namespace) == (gpr.pk, "a/b:1", ["torchrun", "train.py"], "train")
    assert (job.env, job.volumes, job.retries, job.user_id, job.releases_box) == ({"LR": "3e-4"}, {"data": "/data"}, 2, 2000, True)
    assert list(gpr.clusters.all()) == [stage.cluster]
    assert stage.states()["uid-train"].job == JobProgress(state="WAITING")
    stage.open(gpr)
    sees(stage, job, WorkloadPhase.PENDING, "0 of 1 pods run. No such image.")
    told = stage.states()["uid-train"]
    assert (told.job, told.message) == (JobProgress(state="STARTING"), "0 of 1 pods run. No such image.")
    sees(stage, job, WorkloadPhase.RUNNING, pods=1)
    assert stage.states()["uid-train"].job == JobProgress(state="RUNNING", pods_running=1)
    sees(stage, job, WorkloadPhase.SUCCEEDED)
    stage.leave(gpr)
    told = stage.states()["uid-train"]
    assert told.is_ended
    assert told.job is not None
    assert told.job.state == "SUCCEEDED"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (JobAsk(image="no image"), "image: Must be a reference of an image"),
        (JobAsk(image="a/b:1", user_id=0), "userId: Must be from 1 to"),
        (JobAsk(image="a/b:1", pull_secret="No"), "pullSecret: Must be a name of Kubernetes"),
        (JobAsk(image="a/b:1", kind="MPIJob"), "kind: No cluster where this may run serves MPIJob"),
        (
            JobAsk(kind="Manifest", manifest=MANIFEST),
            "Line 5, spec.template.spec.hostPID: Pods of a workspace",
        ),
        (JobAsk(image="a/b:1", manifest=MANIFEST), "manifest: Line 5"),
        (JobAsk(kind="Manifest"), "manifest: Give at least one object."),
    ],
)
def test_wrong_fields_are_refused_in_the_words_of_the_api_and_nothing_is_filed(
    asked: JobAsk, words: str, stage: ClusterRequestStage
) -> None:
    answer = stage.claim(job=asked)

    assert answer.verdict == ClusterRequestVerdict.REFUSED
    assert words in answer.message
    assert not Gpr.objects.exists()


def test_another_workspace_s_name_is_refused(stage: ClusterRequestStage) -> None:
    answer = stage.claim(job=RUNS, workspace="theirs")

    assert (answer.verdict, answer.reason) == (ClusterRequestVerdict.REFUSED, "other_workspace")
    assert not Job.objects.exists()


def test_a_deleted_object_ends_its_job_and_what_runs_cannot_be_changed(stage: ClusterRequestStage) -> None:
    gpr = stage.filed(job=RUNS)
    changed = stage.claim(job=JobAsk(image="a/b:2"), generation=2)
    assert (changed.verdict, changed.message) == (ClusterRequestVerdict.REFUSED, "job: It cannot be changed any more. Make a new object.")
    stage.open(gpr)

    stage.claims(gone())
    stage.leave(gpr)

    assert gpr.state == GprState.RELEASED
    assert stage.states()["uid-train"].job == JobProgress(state="STOPPED")
    assert Job.objects.get().outcome == ""


def test_a_failed_job_says_why_in_the_status(stage: ClusterRequestStage) -> None:
    gpr = stage.filed(job=RUNS)
    stage.open(gpr)
    sees(stage, Job.objects.get(), WorkloadPhase.FAILED, "Pod 0 ended with exit code 1.")
    stage.leave(gpr)

    told = stage.states()["uid-train"]
    assert told.job is not None
    assert (told.job.state, Job.objects.get().outcome) == ("FAILED", JobOutcome.FAILED)
    assert told.message.endswith("Pod 0 ended with exit code 1.")


def test_requests_without_a_job_are_told_as_before(stage: ClusterRequestStage) -> None:
    (answer, _) = stage.claims(claim("plain"), claim("other", job=RUNS))

    assert answer.verdict == ClusterRequestVerdict.TAKEN
    assert stage.states()["uid-plain"].job is None
