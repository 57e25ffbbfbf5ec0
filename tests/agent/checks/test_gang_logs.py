"""CheckJobs of several nodes whose kubelets are slow or away: logs are read a few at a time, and no Job is waited for that has failed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from protocol import cluster_names
from protocol.cluster_names import CHECK_OF
from worker_agent.cluster.base import Unavailable
from worker_agent.kube.checks import jobs
from worker_agent.kube.checks.gang_logs import READ_S, TRY_S
from worker_agent.kube.checks.jobs import FAILING_S, STUCK_S, VIEW_S, CheckJob, CheckJobOutcome, CheckJobs

Object = dict[str, Any]
FAILING = {"type": "FailureTarget", "status": "True", "reason": "DeadlineExceeded"}


class SlowKubelets:
    """One Job, and its pods, which are over but for those of `running`. Each log takes `log_s`; those of `away` do not come."""

    def __init__(self, work: CheckJob, *, log_s: float = 0.0, running: tuple[int, ...] = ()) -> None:
        self.work, self.log_s, self.running, self.now_s = work, log_s, running, 1000.0
        self.away: set[str] = set()
        self.are_pods_gone = False
        self.read: list[str] = []
        self.condition: Object = {"type": "Complete", "status": "True"}

    def mono(self) -> float:
        return self.now_s

    def get(self, path: str, type_: Any, **_: Any) -> Any:
        labels = {CHECK_OF: self.work.owner}
        if path == jobs.JOBS:
            about = {"name": self.work.name, "labels": labels}
            return msgspec.convert({"items": [{"metadata": about, "status": {"conditions": [self.condition]}}]}, type_)
        pods = [self._pod(index, labels) for index in range(len(self.work.nodes))]
        return msgspec.convert({"items": [] if self.are_pods_gone else pods}, type_)

    def _pod(self, index: int, labels: dict[str, str]) -> Object:
        more = {cluster_names.JOB_OF_POD: self.work.name, cluster_names.INDEX_OF_POD: str(index)}
        phase = "Running" if index in self.running else "Succeeded"
        return {
            "metadata": {"name": f"pod-{index}", "labels": labels | more},
            "spec": {"nodeName": f"n{index}"},
            "status": {"phase": phase},
        }

    def text(self, path: str, **_: Any) -> str:
        self.now_s += self.log_s
        name = path.split("/")[-2]
        self.read.append(name)
        if name in self.away:
            raise Unavailable("502")
        return f"words of {name}"


def work(*, nodes: int) -> CheckJob:
    names = tuple(f"n{index}" for index in range(nodes))
    return CheckJob(owner="box", epoch=1, step="s", attempt=1, nodes=names, image="i", command=(), deadline_s=180)


def polled(api: SlowKubelets, agent: CheckJobs, *, within_s: float) -> CheckJobOutcome | None:
    """Runs passes, in each of which each node of the box polls."""
    until_s = api.now_s + within_s
    while api.now_s < until_s:
        for ended in [agent.poll(api.work) for _ in api.work.nodes]:
            if ended is not None:
                return ended
        api.now_s += VIEW_S
    return None


def of(api: SlowKubelets) -> CheckJobs:
    return CheckJobs(api, mono=api.mono)  # type: ignore[arg-type]


def test_one_pass_waits_for_one_slow_log_at_most_however_many_nodes_a_box_has() -> None:
    api = SlowKubelets(work(nodes=8), log_s=1.0)
    agent = of(api)

    assert [agent.poll(api.work) for _ in range(8)] == [None] * 8
    assert len(api.read) == 1

    ended = polled(api, agent, within_s=60)
    assert ended is not None
    assert [said.text for said in ended.gang] == [f"words of pod-{index}" for index in range(8)]
    assert sorted(api.read) == [f"pod-{index}" for index in range(8)]  # each of them once


def test_quick_logs_are_read_together() -> None:
    api = SlowKubelets(work(nodes=8), log_s=READ_S / 10)

    ended = of(api).poll(api.work)

    assert ended is not None
    assert len(ended.gang) == 8


def test_each_node_of_a_box_is_told_the_same_though_its_pods_are_taken_away_meanwhile() -> None:
    api = SlowKubelets(work(nodes=3))
    agent = of(api)
    first = agent.poll(api.work)

    api.are_pods_gone = True
    api.now_s += VIEW_S

    assert first is not None
    assert agent.poll(api.work) == first


def test_a_log_that_does_not_come_holds_up_no_other_and_counts_as_nothing_said_in_the_end() -> None:
    api = SlowKubelets(work(nodes=3), log_s=1.0)
    api.away = {"pod-0"}
    agent = of(api)

    assert polled(api, agent, within_s=TRY_S - 3) is None
    assert set(api.read[:3]) == {"pod-0", "pod-1", "pod-2"}
    ended = polled(api, agent, within_s=10)

    assert ended is not None
    assert [said.text for said in ended.gang] == ["its log cannot be read: 502", "words of pod-1", "words of pod-2"]


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_job_that_failed_is_not_waited_for_when_a_node_does_not_answer(nodes: int) -> None:
    """Kubernetes calls it failed once all its pods have ended, and that one never does."""
    api = SlowKubelets(work(nodes=nodes), running=(0,))
    api.condition = FAILING
    agent = of(api)

    assert polled(api, agent, within_s=FAILING_S - VIEW_S) is None
    ended = polled(api, agent, within_s=5)

    assert ended is not None
    assert ended.why == "it did not end within 180 s"
    assert [said.text for said in ended.gang] == ([""] + [f"words of pod-{index}" for index in (1, 2)] if nodes > 1 else [])
    assert ended.blames_node
    assert FAILING_S < STUCK_S
