"""Reads the output of all pods of a gang's Job, a few at a time: a kubelet may be slow."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from worker_agent.cluster.base import ClusterError
from worker_agent.kube.api.objects import Pod

TRY_S: Final = 30.0  # a log that cannot be read by then counts as empty
# After READ_S of reading, and at least one log, reading rests for REST_S, so that the rest of a pass goes on.
READ_S: Final = 0.2
REST_S: Final = 0.5


class PodOutput(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    node: str  # "" where the pod got none
    text: str


@dataclass(slots=True)
class _Gang:
    ended_mono: float
    outputs: dict[int, PodOutput] = field(default_factory=dict)  # by index
    failed: dict[int, tuple[float, str]] = field(default_factory=dict)  # by index: when reading failed, and why
    whole: tuple[PodOutput, ...] | None = None  # the same answer for each node, whatever becomes of the pods

    def due(self, pods: Mapping[int, Pod], now_mono: float) -> list[int]:
        """Returns the pods to read next. The least recently tried come first."""
        is_late = now_mono - self.ended_mono >= TRY_S
        left = [index for index in pods if index not in self.outputs and not (is_late and index in self.failed)]
        return sorted(left, key=lambda index: (self.failed.get(index, (float("-inf"), ""))[0], index))

    def all_outputs(self, pods: Mapping[int, Pod]) -> tuple[PodOutput, ...]:
        return tuple(self.outputs.get(index) or _output(index, pod, self.failed[index][1]) for index, pod in sorted(pods.items()))


class GangLogs:
    def __init__(self, words: Callable[[Pod], str], *, mono: Callable[[], float]) -> None:
        # `words` returns the output of a pod that has ended, or raises ClusterError.
        self._words, self._mono = words, mono
        self._gangs: dict[str, _Gang] = {}  # by Job
        self._spent_s, self._rests_until_mono = 0.0, float("-inf")

    def forget_all_but(self, jobs: Collection[str]) -> None:
        self._gangs = {name: gang for name, gang in self._gangs.items() if name in jobs}

    def read(self, job: str, pods: Mapping[int, Pod]) -> tuple[PodOutput, ...] | None:
        """Reads the logs of all pods of a Job that ended, each once. Returns None until it has read all."""
        gang = self._gangs.setdefault(job, _Gang(self._mono()))
        if gang.whole is None and self._is_read(gang, pods):
            gang.whole = gang.all_outputs(pods)
        return gang.whole

    def _is_read(self, gang: _Gang, pods: Mapping[int, Pod]) -> bool:
        for index in gang.due(pods, self._mono()):
            if self._mono() < self._rests_until_mono:
                return False
            self._try(gang, index, pods[index])
        return not gang.due(pods, self._mono())

    def _try(self, gang: _Gang, index: int, pod: Pod) -> None:
        began = self._mono()
        try:
            gang.outputs[index] = _output(index, pod, self._words(pod) if pod.is_over else "")
        except ClusterError as error:
            gang.failed[index] = (began, f"its log cannot be read: {error}")
        ended = self._mono()
        self._spent_s += ended - began
        if self._spent_s >= READ_S:
            self._spent_s, self._rests_until_mono = 0.0, ended + REST_S


def _output(index: int, pod: Pod, text: str) -> PodOutput:
    return PodOutput(index=index, node=pod.spec.nodeName, text=text)
