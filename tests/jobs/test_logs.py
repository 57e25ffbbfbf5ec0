"""The output of a job: sent while somebody reads, stored once, kept in part, and for members alone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from core.errors import InvalidInput
from gpr.jobs.logs import KEPT_CHARS, READ_AT_ONCE, READ_MAX_CHARS, log_read, logs_prune
from gpr.models import Job, JobLog
from protocol.tenancy.workloads import WorkloadPhase
from tests.jobs.stage import JobStage

pytestmark = pytest.mark.both_databases


def read(stage: JobStage, job: Job, **asked: Any) -> Any:
    return log_read(job=stage.now_of(job), now=stage.now, **{"rank": 0, "since": 0, **asked})


def test_an_agent_sends_output_while_somebody_reads_and_no_longer(stage: JobStage) -> None:
    job = stage.opened(nodes=2)
    generation = stage.agent.sync(at=stage.now, have_workloads="").generation
    assert read(stage, job, rank=1).text == ""

    reply = stage.agent.sync(at=stage.now, have_workloads="")
    assert [(ask.id, ask.run, ask.rank) for ask in reply.log_asks] == [(str(job.pk), 1, 1)]
    assert reply.generation > generation, "the agent's sync is answered at once"
    stage.now += timedelta(seconds=61)
    assert stage.agent.sync(at=stage.now, have_workloads="").log_asks == ()


def test_each_line_is_stored_once_though_answers_are_lost(stage: JobStage) -> None:
    job = stage.opened()
    assert stage.prints(job, "one\n", until="t1").body == {"until": "t1"}
    assert stage.prints(job, "one\n", until="t1").body == {"until": "t1"}  # sent again
    assert stage.prints(job, "two\n", since="t1", until="t2").body == {"until": "t2"}
    assert stage.prints(job, "all anew\n", until="t3").body == {"until": "t2"}  # an agent that has just started

    part = read(stage, job)
    assert (part.text, part.is_live) == ("one\ntwo\n", True)
    assert read(stage, job, since=part.next).text == ""


def test_the_last_part_is_kept_and_a_reader_learns_what_is_missing(stage: JobStage) -> None:
    job = stage.opened()
    for number in range(6):
        stage.prints(job, f"{number}" * 60_000, since=f"t{number}" if number else "", until=f"t{number + 1}")

    assert len(JobLog.objects.get().text) == KEPT_CHARS
    part = read(stage, job, since=10)
    assert (len(part.text), part.dropped) == (READ_MAX_CHARS, True)
    rest = read(stage, job, since=part.next)
    assert (rest.dropped, rest.next) == (False, part.next + READ_MAX_CHARS)


def test_what_was_printed_stays_when_the_job_is_over(stage: JobStage) -> None:
    job = stage.opened()
    stage.prints(job, "loss 0.1\n", until="t1")
    stage.sees(job, WorkloadPhase.SUCCEEDED)
    stage.leave(stage.gpr_of(job))

    part = read(stage, job)
    assert (part.text, part.is_live) == ("loss 0.1\n", False)


def test_a_later_run_goes_on_behind_an_earlier_one(stage: JobStage) -> None:
    job = stage.opened()
    stage.prints(job, "first run\n", until="t9")
    stage.leave_and_return(job)

    assert stage.prints(job, "late\n", since="t9", until="t10", run=1).body == {"until": "t10"}
    assert stage.prints(job, "second run\n", until="t1", run=2).body == {"until": "t1"}
    assert read(stage, job).text == "first run\nsecond run\n"


@pytest.mark.parametrize("rank", [-1, 1])
def test_a_pod_that_a_job_does_not_have_has_no_output(stage: JobStage, rank: int) -> None:
    job = stage.opened()

    with pytest.raises(InvalidInput):
        read(stage, job, rank=rank)


def test_output_of_so_many_pods_alone_is_kept(stage: JobStage) -> None:
    job = stage.opened()
    now = stage.now
    JobLog.objects.bulk_create(JobLog(job=job, rank=rank + 1, wanted_until_at=now) for rank in range(READ_AT_ONCE))

    with pytest.raises(InvalidInput):
        read(stage, job)


def test_an_old_session_stores_no_output(stage: JobStage) -> None:
    job = stage.opened()
    stage.agent.session_epoch -= 1

    assert stage.prints(job, "x\n", until="t1").code == "agent_superseded"
    assert not JobLog.objects.exists()
    stage.agent.session_epoch += 1


def test_output_is_deleted_a_week_after_the_request_has_ended(stage: JobStage) -> None:
    job = stage.opened()
    stage.prints(job, "x\n", until="t1")
    stage.sees(job, WorkloadPhase.SUCCEEDED)
    stage.leave(stage.gpr_of(job))

    logs_prune(now=stage.now + timedelta(days=7))
    assert JobLog.objects.count() == 1
    logs_prune(now=stage.now + timedelta(days=7, seconds=1))
    assert JobLog.objects.count() == 0
