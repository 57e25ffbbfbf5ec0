"""Finds the exporters of a Kubernetes cluster and reads them.

Pods of workspaces are never asked, whatever their labels say: they could claim anything about their node's GPUs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from protocol.cluster_names import POD_GPR
from protocol.gpus.telemetry import GpuReading
from worker_agent.cluster.base import ClusterError, NodeState, Note
from worker_agent.kube.api.client import Api
from worker_agent.kube.api.objects import Pod, PodList
from worker_agent.telemetry.exporters import EXPORTER
from worker_agent.telemetry.pod_devices import PodDevices
from worker_agent.telemetry.readings import Buses, Counters, Unread, readings
from worker_agent.telemetry.scrape import Exporter, Scraper
from worker_agent.telemetry.told_xids import Telling, told_xids

LOOK_EVERY_S: Final = 60.0  # for exporters that came or went


class ExporterTelemetry:
    def __init__(
        self,
        *,
        api: Api,
        words: Sequence[str],
        pods: Callable[[], Collection[Pod]],
        workspace_of: Callable[[str], str],
        warnings: Callable[[], Mapping[str, Sequence[Telling]]],
        note: Note,
    ) -> None:
        self._api, self._words, self._pods, self._workspace_of, self._note = api, words, pods, workspace_of, note
        self._warnings = warnings
        self._scraper, self._counters, self._unread = Scraper(note=note), Counters(), Unread()
        self.devices = PodDevices()
        self._buses: Buses = {}
        self._exporters: list[Exporter] = []
        self._looked_mono = float("-inf")

    def read(self, nodes: Mapping[str, NodeState], now: Callable[[], float]) -> Iterator[GpuReading]:
        self._look()
        boxes = {(pod.metadata.namespace, pod.metadata.name): gpr for pod in self._pods() if (gpr := pod.metadata.label(POD_GPR))}
        read: set[tuple[str, str]] = set()
        warnings = self._warnings()
        found = {name: told_xids((*map(Telling.of, state.view.conditions), *warnings.get(name, ()))) for name, state in nodes.items()}
        told_of = {name: told for name, told in found.items() if told}
        with self.devices.one_look():
            for scrape in self._scraper.scrape(self._exporters):
                for reading in readings(
                    scrape.rows,
                    nodes,
                    node=scrape.exporter.node,
                    box_of_pod=lambda namespace, name: boxes.get((namespace, name), ""),
                    counters=self._counters,
                    devices=self.devices,
                    told_of=told_of,
                    buses=self._buses,
                    at_s=now(),
                ):
                    read.add((reading.node, reading.gpu))
                    yield reading
        yield from self._unread.readings(nodes, told_of, read, self._buses, now())
        self._buses = {(node, gpu): bus for (node, gpu), bus in self._buses.items() if node in nodes}
        self._counters.forget(now())

    def close(self) -> None:
        self._scraper.close()

    def _look(self) -> None:
        if time.monotonic() - self._looked_mono < LOOK_EVERY_S:
            return
        self._looked_mono = time.monotonic()
        try:
            self._exporters = list(dict.fromkeys(exporter for word in self._words for exporter in self._found(word)))
        except ClusterError as error:
            self._note("exporters_unlisted", {"why": str(error)})  # those of before are asked on

    def _found(self, word: str) -> Iterator[Exporter]:
        parts = EXPORTER.fullmatch(word)
        if parts is None:
            return
        if parts["url"]:
            yield Exporter(parts["url"])
            return
        for pod in self._api.get("/api/v1/pods", PodList, labelSelector=parts["label"]).items:
            if pod.status.phase == "Running" and pod.status.podIP and pod.spec.nodeName and not self._workspace_of(pod.metadata.namespace):
                host = f"[{pod.status.podIP}]" if ":" in pod.status.podIP else pod.status.podIP
                yield Exporter(f"http://{host}:{parts['port']}{parts['path']}", node=pod.spec.nodeName)
