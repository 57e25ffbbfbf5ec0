"""Reads warnings about nodes from Events of Kubernetes: node-problem-detector tells so of Xids that are no lasting condition.

Kubernetes keeps Events of nodes in the namespace `default`, which is no workspace's, for an hour.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from worker_agent.cluster.base import Note
from worker_agent.kube.api.client import Api, Params
from worker_agent.kube.api.mirror import Mirror
from worker_agent.kube.api.objects import Meta, Node
from worker_agent.telemetry.told_xids import Telling, told_xids

PATH: Final = "/api/v1/namespaces/default/events"
OWN: Final = "egs.io/agent"  # what EGS tells itself is no news


class Involved(msgspec.Struct, frozen=True):
    name: str = ""


class EventSource(msgspec.Struct, frozen=True):
    component: str = ""


class Series(msgspec.Struct, frozen=True):
    count: int = 1
    lastObservedTime: datetime | None = None


class NodeEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Two APIs write Events, and fill in different fields."""

    metadata: Meta
    involvedObject: Involved
    reason: str = ""
    message: str = ""
    count: int | None = None
    firstTimestamp: datetime | None = None
    lastTimestamp: datetime | None = None
    eventTime: datetime | None = None
    series: Series | None = None
    source: EventSource = EventSource()
    reportingComponent: str = ""

    @property
    def last_at(self) -> datetime | None:
        return (self.series.lastObservedTime if self.series else None) or self.lastTimestamp or self.eventTime

    def telling(self) -> Telling:
        by, text = f"{self.source.component or self.reportingComponent} {self.reason}", f"{self.reason}: {self.message}"
        last_at = self.last_at
        if last_at is None:
            return Telling(by, text)
        first_at = self.firstTimestamp or self.eventTime or last_at
        return Telling(by, text, first_at.timestamp(), last_at.timestamp(), self.count or (self.series.count if self.series else 1))


class NodeEvents:
    def __init__(self, *, api: Api, nodes: Callable[[], Collection[Node]], note: Note) -> None:
        self._nodes = nodes
        about: Params = {"fieldSelector": "involvedObject.kind=Node,type=Warning"}
        self._mirror = Mirror(api=api, path=PATH, type_=NodeEvent, note=note, params=about, keeps=_tells_of_xids)

    def start(self) -> None:
        self._mirror.start()

    def stop(self) -> None:
        self._mirror.stop()

    def told(self) -> Mapping[str, Sequence[Telling]]:
        """Returns them by node, and only those of its present object: another machine may have had its name."""
        born = {node.metadata.name: node.metadata.creationTimestamp for node in self._nodes()}
        found: dict[str, list[Telling]] = defaultdict(list)
        for event in self._mirror.objects().values():
            name, at = event.involvedObject.name, event.last_at
            since = born.get(name)
            if at is not None and since is not None and since <= at:
                found[name].append(event.telling())
        return found


def _tells_of_xids(event: NodeEvent) -> bool:
    return event.reportingComponent != OWN and bool(told_xids([event.telling()]))
