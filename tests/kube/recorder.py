"""Everything that happened to pods and nodes, in the order in which it happened, as the API server tells it to whoever watches.

Versions of one etcd are one order over all kinds: so two watches can be laid into one another.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.kube.cluster import Cluster, Object
from worker_agent.cluster.base import GpuPhase
from worker_agent.kube.marks import read_records


@dataclass(slots=True)
class Recording:
    files: list[Path] = field(default_factory=list)

    def events(self) -> list[tuple[int, str, Object]]:
        """(version, type, object), oldest first."""
        found = []
        for file in self.files:
            for line in file.read_text().splitlines():
                event = json.loads(line)
                if event["type"] != "BOOKMARK":
                    found.append((int(event["object"]["metadata"]["resourceVersion"]), str(event["type"]), event["object"]))
        return sorted(found, key=lambda each: each[0])


@contextmanager
def recording(cluster: Cluster, folder: Path) -> Iterator[Recording]:
    """By kubectl, which knows nothing of us."""
    made = Recording()
    children = []
    for kind in ("pods", "nodes"):
        file = folder / f"{kind}.json"
        path = f"/api/v1/{kind}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        command = [str(cluster.programs / "kubectl"), "--kubeconfig", str(cluster.kubeconfig), "get", "--raw", path]
        with file.open("wb") as out:
            children.append(subprocess.Popen(command, stdout=out))
        made.files.append(file)
    try:
        yield made
    finally:
        for child in children:
            child.terminate()
            child.wait()


@dataclass(slots=True)
class Replay:
    """`overlaps`: versions at which a node was marked for one slice while a pod of another was on it."""

    owners: dict[str, frozenset[str]] = field(default_factory=dict)  # by node
    inside: dict[str, dict[str, str]] = field(default_factory=dict)  # by node, by pod: its namespace
    overlaps: list[tuple[int, str, str]] = field(default_factory=list)
    bound_count: int = 0
    change_count: int = 0

    def run(self, events: list[tuple[int, str, Object]]) -> Replay:
        for version, type_, obj in events:
            node = obj["metadata"]["name"] if obj["kind"] == "Node" else obj["spec"].get("nodeName", "")
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
        owners = frozenset(record.slice for record in records.values() if record.phase in (GpuPhase.CLAIMED, GpuPhase.OPEN))
        self.change_count += owners != self.owners.get(node, frozenset())
        self.owners[node] = owners

    def _move(self, node: str, type_: str, obj: Object) -> None:
        if not node or obj["metadata"]["namespace"].startswith(("kube-", "egs-system")):
            return
        there, uid = self.inside.setdefault(node, {}), obj["metadata"]["uid"]
        if type_ == "DELETED" or obj["status"]["phase"] in ("Succeeded", "Failed"):
            there.pop(uid, None)
            return
        self.bound_count += uid not in there
        there[uid] = obj["metadata"]["namespace"]
