"""Records everything that the API server tells about pods and nodes, in the order in which it happened.

One etcd counts versions over all kinds, so the versions put the events of two watches into one order.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

from tests.e2e.processes import wait_for
from tests.kube.cluster import SOON_S, Cluster, Object
from worker_agent.cluster.base import GpuPhase
from worker_agent.kube.nodes.marks import read_records

KINDS = "pods", "nodes"


class Watch:
    """kubectl, which knows nothing of us, writes what the API server tells.

    The server ends the watch of a slow reader; a new kubectl then goes on at the last version.
    """

    def __init__(self, cluster: Cluster, kind: str, folder: Path) -> None:
        self._cluster, self._kind, self._folder = cluster, kind, folder
        self._files: list[Path] = []
        self._is_over = False
        self._child = self._begin()
        self._thread = Thread(target=self._go_on)
        self._thread.start()

    def _begin(self) -> subprocess.Popen[bytes]:
        since = f"&resourceVersion={self.version}" if self._files else ""  # at first all that there is
        self._files.append(self._folder / f"{self._kind}.{len(self._files)}.json")
        command = [str(self._cluster.programs / "kubectl"), "--kubeconfig", str(self._cluster.kubeconfig), "get", "--raw"]
        with self._files[-1].open("wb") as out:
            return subprocess.Popen([*command, f"/api/v1/{self._kind}?watch=true{since}"], stdout=out)

    def _go_on(self) -> None:
        self._child.wait()
        while not self._is_over:
            self._child = self._begin()
            self._child.wait()

    def end(self) -> None:
        self._is_over = True
        while self._thread.is_alive():
            self._child.terminate()
            self._thread.join(timeout=1.0)

    def events(self) -> list[tuple[int, str, Object]]:
        """Returns version, type and object of each event. Only whole lines count: kubectl may write one now, or was ended in the middle."""
        lines = [line for file in self._files for line in file.read_text().split("\n")[:-1]]
        told = (json.loads(line) for line in lines)
        return [(_version(event["object"]), str(event["type"]), event["object"]) for event in told]

    @property
    def version(self) -> int:
        return max((version for version, _, _ in self.events()), default=0)


def _version(obj: Object) -> int:
    return int(obj["metadata"]["resourceVersion"])


class Recording:
    def __init__(self, watches: list[Watch]) -> None:
        self._watches = watches

    def events(self) -> list[tuple[int, str, Object]]:
        """Returns version, type and object of each event, the oldest first."""
        return sorted((event for watch in self._watches for event in watch.events()), key=lambda each: each[0])


@contextmanager
def recording(cluster: Cluster, folder: Path) -> Iterator[Recording]:
    """All that has happened when the block ends without a fault."""
    watches = {kind: Watch(cluster, kind, folder) for kind in KINDS}
    try:
        yield Recording(list(watches.values()))
        for kind, watch in watches.items():
            newest = max(_version(each) for each in cluster.list(kind, namespace=""))
            wait_for("the last of the record", lambda watch=watch, newest=newest: watch.version >= newest, within_s=SOON_S)
    finally:
        for watch in watches.values():
            watch.end()


@dataclass(slots=True)
class Replay:
    """It replays what happened to nodes with `key` in their name.

    `overlaps` has the versions at which a node was marked for one slice and had a pod of another.
    """

    key: str
    owners: dict[str, frozenset[str]] = field(default_factory=dict)  # by node
    inside: dict[str, dict[str, str]] = field(default_factory=dict)  # by node, by pod: its namespace
    overlaps: list[tuple[int, str, str]] = field(default_factory=list)
    bound_count: int = 0
    change_count: int = 0

    def run(self, events: list[tuple[int, str, Object]]) -> Replay:
        for version, type_, obj in events:
            node = obj["metadata"]["name"] if obj["kind"] == "Node" else obj["spec"].get("nodeName", "")
            if self.key not in node:
                continue
            if obj["kind"] == "Node":
                self._own(node, obj)
            else:
                self._move(node, type_, obj)
            strangers = set(self.inside.get(node, {}).values()) - self.owners.get(node, frozenset())
            if strangers and self.owners.get(node):
                self.overlaps.append((version, node, ", ".join(sorted(strangers))))
        return self

    def _own(self, node: str, obj: Object) -> None:
        records = read_records(obj["metadata"].get("annotations", {}).get("egs.io/records", ""))
        owners = frozenset(record.slice for record in records.values() if record.phase in (GpuPhase.ISOLATED, GpuPhase.OPEN))
        self.change_count += owners != self.owners.get(node, frozenset())
        self.owners[node] = owners

    def _move(self, node: str, type_: str, obj: Object) -> None:
        if obj["metadata"]["namespace"].startswith(("kube-", "egs-system")):
            return
        there, uid = self.inside.setdefault(node, {}), obj["metadata"]["uid"]
        if type_ == "DELETED" or obj["status"]["phase"] in ("Succeeded", "Failed"):
            there.pop(uid, None)
            return
        self.bound_count += uid not in there
        there[uid] = obj["metadata"]["namespace"]
