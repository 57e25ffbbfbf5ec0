"""A workspace with a namespace, and an agent that runs its jobs."""

from __future__ import annotations

from typing import Any

from gpr.jobs.selectors import jobs_visible_to
from gpr.jobs.services import job_create
from gpr.jobs.spec import JobSpec
from gpr.models import Gpr, Job
from gpr.queue.decisions import gpr_evict
from protocol.assignments import Phase
from protocol.tenancy.workloads import LOGS_PATH, JobWorkload, LogChunk, WorkloadPhase, WorkloadSeen
from tests.builders import spec
from tests.inventory.agent import Reply
from tests.lifecycle.stage import EXIT, Stage, fresh
from tests.slices.kubeconfigs import ready_namespace

IMAGE = "registry.example/team/train:1.0"


class JobStage(Stage):
    def __init__(self) -> None:
        super().__init__()
        ready_namespace(self.slice, self.cluster, at=self.now)

    def filed(self, *, what: JobSpec | None = None, **asked: Any) -> Job:
        return job_create(actor=self.owner, spec=spec(self.slice, **asked), what=what or JobSpec(image=IMAGE), now=self.now)

    def opened(self, **asked: Any) -> Job:
        job = self.filed(**asked)
        self.open(job.gpr)
        return job

    def open(self, gpr: Gpr) -> None:
        self.tick()
        self.after(5)
        self.say(gpr, Phase.ACTIVE)
        self.tick()

    def leave(self, gpr: Gpr) -> None:
        self.say(gpr, *EXIT)
        self.tick()

    def leave_and_return(self, job: Job) -> None:
        """It is evicted, and runs again."""
        gpr_evict(gpr=self.gpr_of(job), actor=self.admin, why="Needed.", requeue=True, now=self.now)
        self.leave(self.gpr_of(job))
        self.open(self.gpr_of(job))

    def workloads(self, **known: Any) -> tuple[JobWorkload, ...] | None:
        """Returns what the agent is told."""
        return self.agent.sync(at=self.now, **{"have_workloads": "", **known}).workloads

    def sees(self, job: Job, phase: WorkloadPhase, message: str = "", *, run: int = 1, pods: int = 0) -> None:
        seen = WorkloadSeen(id=str(job.pk), run=run, phase=phase, message=message, pods_running=pods)
        self.agent.sync(at=self.now, workloads_seen=(seen,))

    def prints(self, job: Job, text: str, *, since: str = "", until: str, run: int = 1, rank: int = 0) -> Reply:
        chunk = LogChunk(session_epoch=self.agent.session_epoch, id=str(job.pk), run=run, rank=rank, since=since, until=until, text=text)
        return self.agent.post(LOGS_PATH, chunk, at=self.now)

    def now_of(self, job: Job) -> Any:
        """The job with its state, as its owner sees it."""
        return jobs_visible_to(self.owner).get(pk=job.pk)

    def gpr_of(self, job: Job) -> Gpr:
        return fresh(job.gpr)
