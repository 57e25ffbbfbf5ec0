"""Remembers the pods that the hub knows, and sends changes. A lost call is made again with what is there then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, Protocol

import msgspec

from protocol.agents.registration import Credential
from protocol.decoding import decode
from protocol.pods import EVERY_S, PODS_MAX, PODS_PATH, PODS_TOLD_MAX, PodSeen, PodsReply, PodsRequest
from protocol.tenancy.workspaces import Workspace
from worker_agent.cluster.base import NodeState, Note
from worker_agent.hub.dialog import Call

TIMEOUT_S: Final = 10.0
PAUSE_S: Final = 30.0  # after a refusal without a time
PAUSE_MAX_S: Final = 600.0
WHOLE_EVERY_S: Final = 600.0  # the hub is told all uids, in case it has lost some


class PodSource(Protocol):
    def look(self, nodes: Mapping[str, NodeState], workspaces: Sequence[Workspace]) -> Iterable[PodSeen]:
        """Returns all pods in namespaces of workspaces that hold GPUs or ask for them. Raises nothing."""


class PodsLane:
    """It is not thread-safe: one thread looks and sends."""

    def __init__(self, *, note: Note) -> None:
        self._note = note
        self._session_epoch = 0
        self._there: dict[str, PodSeen] = {}
        self._told: dict[str, PodSeen] = {}
        self._sent: PodsRequest | None = None
        self._whole_due_mono = float("-inf")
        self._not_before_mono = float("-inf")
        self._said = ""
        self.every_s = EVERY_S

    def see(self, pods: Iterable[PodSeen], session_epoch: int) -> None:
        """A new session tells all anew."""
        self._there = {pod.uid: pod for pod in pods}
        if session_epoch != self._session_epoch:
            self._session_epoch = session_epoch
            self._begin_anew()

    def next_call(self, credential: Credential | None, mono: float) -> Call | None:
        if credential is None or not self._session_epoch or mono < self._not_before_mono:
            return None
        self._sent = message = self._message(mono)
        if message is None:
            return None
        return Call(PODS_PATH, msgspec.json.encode(message), TIMEOUT_S, bearer=credential.credential)

    def _message(self, mono: float) -> PodsRequest | None:
        news = (pod for uid, pod in self._there.items() if self._told.get(uid) != pod)
        pods = tuple(islice(news, PODS_MAX))
        gone = tuple(islice((uid for uid in self._told if uid not in self._there), PODS_TOLD_MAX))
        is_whole_due = mono >= self._whole_due_mono and len(pods) < PODS_MAX
        if not pods and not gone and not is_whole_due:
            return None
        there = tuple(self._there) if is_whole_due else None
        return PodsRequest(session_epoch=self._session_epoch, pods=pods, gone=gone, there=there)

    def on_answer(self, status: int, body: bytes, retry_after_s: float, mono: float) -> None:
        try:
            reply = decode(body, PodsReply) if 200 <= status < 300 else None
        except msgspec.DecodeError:
            reply = None
        if reply is None or self._sent is None:
            self.on_no_answer(f"the hub answers {status}", mono, retry_after_s)
            return
        self._told.update({pod.uid: pod for pod in self._sent.pods})
        for uid in self._sent.gone:
            self._told.pop(uid, None)
        if self._sent.there is not None:
            self._whole_due_mono = mono + WHOLE_EVERY_S
        if reply.again:
            self._begin_anew()
            self._not_before_mono = mono + PAUSE_S
        self._tell("")

    def on_no_answer(self, why: str, mono: float, retry_after_s: float = 0.0) -> None:
        self._not_before_mono = mono + min(retry_after_s or PAUSE_S, PAUSE_MAX_S)
        self._tell(why)

    def _begin_anew(self) -> None:
        self._told, self._whole_due_mono = {}, float("-inf")

    def _tell(self, why: str) -> None:
        if why != self._said:
            self._said = why
            self._note("pods_refused" if why else "pods_taken", {"why": why})
