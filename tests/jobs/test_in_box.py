"""A job in the box of a request that is there: one, where it can run, in its time."""

from __future__ import annotations

import pytest

from core.errors import Conflict, IllegalTransition, InvalidInput
from gpr.jobs.services import job_start_in
from gpr.jobs.spec import JobSpec
from gpr.models import GprState, Job
from gpr.requests.ending import gpr_release
from gpr.requests.services import gpr_submit
from protocol.tenancy.workloads import WorkloadPhase
from slices.models import Namespace
from tests.builders import spec
from tests.jobs.stage import IMAGE, JobStage

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]
WHAT = JobSpec(image=IMAGE, releases_box=False)


@pytest.fixture
def stage() -> JobStage:
    return JobStage()


def test_a_box_that_is_open_runs_a_job_at_once_and_keeps_its_nodes_after_it(stage: JobStage) -> None:
    gpr = gpr_submit(actor=stage.owner, spec=spec(stage.slice), now=stage.now)
    stage.open(gpr)
    assert stage.workloads() == ()

    job = job_start_in(gpr=gpr, what=WHAT, actor=stage.owner, now=stage.now)

    (work,) = stage.workloads() or ()
    assert (work.id, work.gpr_id, work.image) == (str(job.pk), str(gpr.pk), IMAGE)
    stage.sees(job, WorkloadPhase.SUCCEEDED)
    gpr.refresh_from_db()
    assert gpr.state == GprState.ACTIVE
    with pytest.raises(Conflict, match="has a job already"):
        job_start_in(gpr=gpr, what=WHAT, actor=stage.owner, now=stage.now)


def test_a_request_that_waits_takes_one_and_one_that_is_over_takes_none(stage: JobStage) -> None:
    waits, over = (gpr_submit(actor=stage.owner, spec=spec(stage.slice, name=name), now=stage.now) for name in ("waits", "over"))
    stage.open(waits)
    job_start_in(gpr=over, what=WHAT, actor=stage.owner, now=stage.now)
    waits.refresh_from_db()
    gpr_release(gpr=waits, actor=stage.owner, now=stage.now)

    with pytest.raises(IllegalTransition):
        job_start_in(gpr=waits, what=WHAT, actor=stage.owner, now=stage.now)

    assert Job.objects.get().gpr_id == over.pk


def test_where_it_cannot_run_it_is_refused(stage: JobStage) -> None:
    gpr = gpr_submit(actor=stage.owner, spec=spec(stage.slice), now=stage.now)

    for what, field in ((JobSpec(image="no image"), "image"), (JobSpec(image=IMAGE, kind="MPIJob"), "kind")):
        with pytest.raises(InvalidInput) as refused:
            job_start_in(gpr=gpr, what=what, actor=stage.owner, now=stage.now)
        assert set(refused.value.extra["errors"]) == {field}
    Namespace.objects.all().delete()
    with pytest.raises(InvalidInput):
        job_start_in(gpr=gpr, what=WHAT, actor=stage.owner, now=stage.now)
    assert not Job.objects.exists()
