"""A job lives from the open box to its result, through an eviction."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpr.jobs.services import job_create
from gpr.jobs.spec import JobSpec
from gpr.models import EndReason, GprState, JobState
from gpr.queue.decisions import gpr_evict
from inventory.models import AgentSession
from journal.models import Event, Outbox
from protocol.tenancy.workloads import WorkloadPhase
from slices.models import Namespace
from tests.builders import make_cluster, make_slice, make_user, spec
from tests.cluster_requests.stage import other_cluster
from tests.jobs.stage import IMAGE, JobStage
from tests.lifecycle.stage import ENTRY
from tests.slices.kubeconfigs import ready_namespace

pytestmark = pytest.mark.both_databases


def test_an_agent_is_told_of_a_job_when_its_box_is_open_and_never_sooner(stage: JobStage) -> None:
    job = stage.filed(name="train", nodes=2)
    assert stage.workloads() == ()
    stage.tick()
    assert stage.workloads() == ()

    stage.say(job.gpr, *ENTRY)
    stage.tick()

    (work,) = stage.workloads() or ()
    assert (work.id, work.gpr_id, work.run, work.namespace, work.nodes, work.image) == (str(job.pk), str(job.gpr_id), 1, "train", 2, IMAGE)
    assert work.name == f"train-{job.pk.hex[:8]}-1"


def test_the_list_comes_when_it_changes_and_to_agents_that_want_it(stage: JobStage) -> None:
    stage.opened()
    reply = stage.agent.sync(at=stage.now, have_workloads="")

    assert reply.workloads is not None
    again = stage.agent.sync(at=stage.now, have_workloads=reply.workloads_digest, known_generation=reply.generation)
    assert again.workloads is None
    older = stage.agent.sync(at=stage.now)
    assert (older.workloads, older.log_asks) == (None, ())


def test_a_job_that_succeeds_gives_its_nodes_back_early(stage: JobStage) -> None:
    job = stage.opened(name="train")
    stage.sees(job, WorkloadPhase.RUNNING, pods=1)
    assert (stage.now_of(job).state, stage.now_of(job).pods_running) == (JobState.RUNNING, 1)

    stage.sees(job, WorkloadPhase.SUCCEEDED)

    gpr = stage.gpr_of(job)
    assert (gpr.state, gpr.end_reason) == (GprState.EXITING, EndReason.EARLY_RELEASE)
    assert stage.now_of(job).state == JobState.SUCCEEDED
    stage.leave(gpr)
    assert stage.gpr_of(job).state == GprState.RELEASED
    kinds = Event.objects.filter(gpr_id=gpr.pk, kind__startswith="job.").order_by("id").values_list("kind", flat=True)
    assert list(kinds) == ["job.created", "job.running", "job.succeeded"]
    assert Outbox.objects.filter(event__kind="job.succeeded").exists()


def test_a_job_that_fails_says_why_and_keeps_its_nodes_where_it_was_told_so(stage: JobStage) -> None:
    job = stage.opened(what=JobSpec(image=IMAGE, releases_box=False))

    stage.sees(job, WorkloadPhase.FAILED, "Pod 2 ended with exit code 1.")

    assert (stage.gpr_of(job).state, stage.now_of(job).state) == (GprState.ACTIVE, JobState.FAILED)
    assert stage.now_of(job).message == "Pod 2 ended with exit code 1."
    assert stage.workloads() == ()  # its objects stay in the cluster until the box closes
    stage.sees(job, WorkloadPhase.SUCCEEDED)
    assert stage.now_of(job).state == JobState.FAILED, "a result is final"


def test_an_evicted_job_comes_back_for_what_is_left(stage: JobStage) -> None:
    job = stage.opened(name="train", duration_s=3600)
    stage.watched(1200)
    stage.tick()
    gpr_evict(gpr=stage.gpr_of(job), actor=stage.admin, why="Needed.", requeue=True, now=stage.now)
    assert stage.now_of(job).state == JobState.STOPPING
    assert stage.workloads() == ()
    stage.sees(job, WorkloadPhase.FAILED, "Its pods were taken away.")
    assert stage.now_of(job).outcome == "", "while its box closes a job has no result"

    stage.leave(stage.gpr_of(job))
    assert stage.now_of(job).state == JobState.STARTING, "the nodes are free, so it starts at once"
    stage.open(stage.gpr_of(job))

    (work,) = stage.workloads() or ()
    gpr = stage.gpr_of(job)
    assert (work.run, work.name) == (2, f"train-{job.pk.hex[:8]}-2")
    assert gpr.ends_at is not None
    assert gpr.active_at is not None
    assert timedelta(seconds=2300) < gpr.ends_at - gpr.active_at <= timedelta(seconds=2400)
    stage.sees(job, WorkloadPhase.SUCCEEDED, run=1)
    assert stage.now_of(job).outcome == "", "a report on an earlier run says nothing of this one"
    stage.sees(job, WorkloadPhase.SUCCEEDED, run=2)
    assert stage.now_of(job).state == JobState.SUCCEEDED


def test_a_job_whose_time_is_over_was_stopped(stage: JobStage) -> None:
    job = stage.opened(duration_s=600)
    stage.sees(job, WorkloadPhase.RUNNING, pods=1)
    stage.watched(601)
    stage.tick()
    stage.leave(stage.gpr_of(job))

    assert (stage.gpr_of(job).state, stage.now_of(job).state) == (GprState.COMPLETED, JobState.STOPPED)


def test_an_agent_s_word_on_another_cluster_s_job_has_no_effect(stage: JobStage) -> None:
    job = stage.opened()
    _, other = other_cluster(stage.now)
    stage.agent, own = other, stage.agent

    stage.sees(job, WorkloadPhase.SUCCEEDED)

    assert stage.now_of(job).outcome == ""
    stage.agent = own


def test_a_namespace_that_went_to_another_workspace_is_none_of_the_job(stage: JobStage) -> None:
    job = stage.opened()
    slice_ = make_slice(stage.cluster, owner=make_user(), at=stage.now)
    Namespace.objects.filter(slice=stage.slice).update(slice=slice_)

    (work,) = stage.workloads() or ()

    assert work.namespace == ""
    stage.sees(job, WorkloadPhase.REFUSED, "The workspace has no namespace that is ready in this cluster.")
    stage.sees(job, WorkloadPhase.REFUSED, "The workspace has no namespace that is ready in this cluster.")
    assert Event.objects.filter(kind="job.refused").count() == 1


def test_kinds_that_a_cluster_serves_are_stored_with_its_agent(stage: JobStage) -> None:
    stage.agent.sync(at=stage.now, workload_kinds=("PyTorchJob", "Job"))
    stage.agent.sync(at=stage.now)

    assert AgentSession.objects.get(cluster=stage.cluster).workload_kinds == ["Job", "PyTorchJob"]


def test_a_job_goes_where_its_workspace_has_a_namespace(stage: JobStage) -> None:
    bare, user = make_cluster(nodes=1, is_heard=False), make_user()
    slice_ = make_slice(stage.cluster, bare, owner=user, at=stage.now)
    ready_namespace(slice_, stage.cluster, at=stage.now, name="theirs")

    job = job_create(actor=user, spec=spec(slice_), what=JobSpec(image=IMAGE), now=stage.now)

    assert list(job.gpr.clusters.all()) == [stage.cluster]
