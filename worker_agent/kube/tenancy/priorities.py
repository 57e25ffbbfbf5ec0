"""Reports a default PriorityClass that works against workspaces.

The policy egs-pod lets a workspace's pod have priority 0, or a positive one that preempts nobody.
"""

from __future__ import annotations

from typing import Final

import msgspec

from protocol.nodes.drift import Drift
from worker_agent.cluster.base import ClusterError, Note
from worker_agent.kube.api.client import Api
from worker_agent.kube.api.objects import Meta

PATH: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
NEVER: Final = "Never"
REMEDY: Final = "Take globalDefault from it, or make one with preemptionPolicy: Never the default."


class _Class(msgspec.Struct, frozen=True, kw_only=True):
    metadata: Meta
    value: int = 0
    globalDefault: bool = False
    preemptionPolicy: str = "PreemptLowerPriority"

    @property
    def why_bad(self) -> str:
        """Returns why the class works against workspaces, or ""."""
        if not self.globalDefault or self.value == 0:
            return ""
        if self.preemptionPolicy != NEVER:
            return "it preempts"
        return "" if self.value > 0 else "its value is below 0"


class _Classes(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[_Class, ...] = ()


class DefaultPriority:
    def __init__(self, api: Api, *, note: Note) -> None:
        self._api, self._note = api, note
        self._found: tuple[Drift, ...] = ()
        self._is_unseen = False

    def look(self) -> tuple[Drift, ...]:
        """Repeats the last result when the API server does not answer."""
        try:
            self._found = tuple(_drift(each, why) for each in self._api.get(PATH, _Classes).items if (why := each.why_bad))
            self._is_unseen = False
        except ClusterError as error:
            if not self._is_unseen:
                self._note("priority_classes_unseen", {"why": str(error)})
            self._is_unseen = True
        return self._found


def _drift(found: _Class, why: str) -> Drift:
    detail = (
        f"It is given to all pods that name no class, and {why}: pods of workspaces, and all that ask for GPUs, are refused until they "
        f"name another, and others' pods may push out theirs. {REMEDY}"
    )
    return Drift(what=f"PriorityClass {found.metadata.name}", detail=detail, is_foreign=True)
