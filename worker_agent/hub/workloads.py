"""Jobs in open boxes: what the hub wants, how they go, and who reads their output. Must not live here: any call."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from protocol.agents.listings import WORKLOADS, ReceivedList
from protocol.agents.sync import SyncReply, SyncRequest
from protocol.assignments import Drain
from protocol.tenancy.workloads import (
    WORKLOADS_SEEN_MAX,
    JobWorkload,
    LogAsk,
    LogChunk,
    LogReply,
    WorkloadKind,
    WorkloadPhase,
    WorkloadSeen,
)
from worker_agent.clock import Clock

OVER: Final = frozenset({WorkloadPhase.SUCCEEDED, WorkloadPhase.FAILED})
LAST_WORDS_S: Final = 10.0  # how long a result waits for the output before it

Run = tuple[str, int]  # a GPR and the number of its run


@dataclass(frozen=True, slots=True)
class OpenBox:
    """Describes a box whose window is open, by the agent's own clock. Times are by the hub's clock."""

    gpr_id: str
    run: int
    slice: str  # the label value on its namespaces
    nodes: tuple[str, ...]
    gpus_per_node: int
    active_s: float
    ends_s: float | None
    drain: Drain


class BoxJob(NamedTuple):
    workload: JobWorkload
    box: OpenBox


class PodLogPart(NamedTuple):
    text: str
    until: str  # the time of its last line, as the cluster writes it


class WorkloadDriver(Protocol):
    def kinds(self) -> tuple[str, ...] | None:
        """Return the kinds that the cluster serves, or None if they could not be read. Raises nothing."""

    def reconcile(self, jobs: Sequence[BoxJob], runs: Collection[Run], *, now_s: float) -> Sequence[WorkloadSeen]:
        """Make what these jobs need, delete what was made for other runs than `runs`, and return how the jobs go. Raises nothing."""

    def log(self, job: BoxJob, rank: int, since: str) -> PodLogPart | None:
        """Return what a pod printed after that time, or None if it cannot be read now. Raises nothing."""


@dataclass(slots=True)
class WorkloadExchange:
    """The state is in memory only. The process guards it with its lock."""

    clock: Clock
    listed: ReceivedList[JobWorkload] = field(default_factory=lambda: ReceivedList(WORKLOADS))
    asks: tuple[LogAsk, ...] = ()
    kinds: tuple[str, ...] | None = None
    _seen: dict[str, WorkloadSeen] = field(default_factory=dict)
    _told: dict[str, tuple[WorkloadSeen, int]] = field(default_factory=dict)  # with the session in which the hub was told

    def jobs(self, boxes: Iterable[OpenBox]) -> list[BoxJob]:
        open_ = {(box.gpr_id, box.run): box for box in boxes}
        runs = ((workload, open_.get((workload.gpr_id, workload.run))) for workload in self.listed.items)
        return [BoxJob(workload, box) for workload, box in runs if box is not None and box.slice == workload.slice]

    def see(self, seen: Iterable[WorkloadSeen]) -> None:
        listed = {workload.id for workload in self.listed.items}
        self._seen = {id_: each for id_, each in self._seen.items() if id_ in listed} | {
            each.id: each for each in seen if each.id in listed
        }
        self._told = {id_: told for id_, told in self._told.items() if id_ in self._seen}

    def untold(self, session_epoch: int) -> tuple[WorkloadSeen, ...]:
        untold = (each for id_, each in self._seen.items() if self._told.get(id_) != (each, session_epoch))
        return tuple(untold)[:WORKLOADS_SEEN_MAX]

    def take(self, asked: SyncRequest, reply: SyncReply) -> bool:
        """Return whether there is other work to do."""
        self._told |= {each.id: (each, asked.session_epoch) for each in asked.workloads_seen}
        had_asks, self.asks = self.asks, reply.log_asks
        return self.listed.hear(asked, reply) or had_asks != self.asks


@dataclass(slots=True)
class LogSender:
    """Remembers how much of the output of each pod was sent. One thread uses it."""

    clock: Clock
    _until: dict[LogAsk, str] = field(default_factory=dict)
    _over_mono: dict[Run, float] = field(default_factory=dict)  # since when a result waits for its output

    def wanted(self, jobs: Sequence[BoxJob], seen: Mapping[str, WorkloadSeen], asks: Sequence[LogAsk]) -> list[tuple[BoxJob, LogAsk]]:
        """Returns the logs that somebody reads, and those of jobs that have just ended."""
        by_id = {(job.workload.id, job.workload.run): job for job in jobs}
        over = [LogAsk(id=job.workload.id, run=job.workload.run, rank=0) for job in jobs if is_over(seen.get(job.workload.id))]
        found = [(by_id[ask.id, ask.run], ask) for ask in dict.fromkeys((*asks, *over)) if (ask.id, ask.run) in by_id]
        self._until = {ask: until for ask, until in self._until.items() if (ask.id, ask.run) in by_id}
        return found

    def since(self, ask: LogAsk) -> str:
        return self._until.get(ask, "")

    def chunk(self, ask: LogAsk, part: PodLogPart, session_epoch: int) -> LogChunk:
        return LogChunk(
            session_epoch=session_epoch, id=ask.id, run=ask.run, rank=ask.rank, since=self.since(ask), until=part.until, text=part.text
        )

    def on_reply(self, ask: LogAsk, reply: LogReply) -> None:
        self._until[ask] = reply.until

    def tellable(self, seen: Iterable[WorkloadSeen], unsent: Collection[str]) -> list[WorkloadSeen]:
        """Leaves out results whose last output is not with the hub yet, for a while."""
        now_mono, found, over = self.clock.mono(), [], {}
        for each in seen:
            if is_over(each):
                since_mono = over[each.id, each.run] = self._over_mono.get((each.id, each.run), now_mono)
                if each.id in unsent and now_mono - since_mono < LAST_WORDS_S:
                    continue
            found.append(each)
        self._over_mono = over
        return found


def is_over(seen: WorkloadSeen | None) -> bool:
    return seen is not None and seen.phase in OVER


class SimulatedWorkloads:
    """Each job prints a line a second, runs `job_s`, and ends well, or fails if its command is `false`. A notebook never ends."""

    def __init__(self, *, job_s: float) -> None:
        self._job_s, self._now_s = job_s, 0.0

    def kinds(self) -> tuple[str, ...] | None:
        return tuple(kind for kind in WorkloadKind if kind is not WorkloadKind.MANIFEST)

    def reconcile(self, jobs: Sequence[BoxJob], runs: Collection[Run], *, now_s: float) -> Sequence[WorkloadSeen]:
        self._now_s = now_s
        return [self._seen(job) for job in jobs]

    def _seen(self, job: BoxJob) -> WorkloadSeen:
        work = job.workload
        if not work.namespace:
            return WorkloadSeen(id=work.id, run=work.run, phase=WorkloadPhase.REFUSED, message=NO_NAMESPACE)
        if self._now_s - job.box.active_s < self._job_s or work.kind == WorkloadKind.NOTEBOOK:
            return WorkloadSeen(id=work.id, run=work.run, phase=WorkloadPhase.RUNNING, pods_running=work.nodes, namespace=work.namespace)
        if work.command[:1] == ("false",):
            return WorkloadSeen(id=work.id, run=work.run, phase=WorkloadPhase.FAILED, message="Its command ended with exit code 1.")
        return WorkloadSeen(id=work.id, run=work.run, phase=WorkloadPhase.SUCCEEDED)

    def log(self, job: BoxJob, rank: int, since: str) -> PodLogPart | None:
        lines = int(min(max(0.0, self._now_s - job.box.active_s), self._job_s))
        begin = int(since or 0)
        text = "".join(f"node {rank} of {job.workload.nodes}: step {line + 1} of {int(self._job_s)}\n" for line in range(begin, lines))
        return PodLogPart(text, str(max(begin, lines)))


NO_NAMESPACE: Final = "The workspace has no namespace that is ready in this cluster."
