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

from tests.e2e.processes import wait_for
from tests.kube.cluster import SOON_S, Cluster, Object
from worker_agent.cluster.base import GpuPhase
from worker_agent.kube.marks import read_records

KINDS = "pods", "nodes"


@dataclass(slots=True)
class Recording:
    files: list[Path] = field(default_factory=list)

    def events(self) -> list[tuple[int, str, Object]]:
        """(version, type, object), oldest first."""
        return sorted((event for file in self.files for event in _events(file)), key=lambda each: each[0])

    def has_come_to(self, newest: dict[str, int]) -> bool:
        """`newest`: versions by kind."""
        return all(max((each[0] for each in _events(file)), default=0) >= newest[file.stem] for file in self.files)


def _events(file: Path) -> list[tuple[int, str, Object]]:
    """Of whole lines; kubectl may be in the middle of one, or was ended there."""
    lines = file.read_text().split("\n")[:-1]
    told = (json.loads(line) for line in lines)
    return [(_version(event["object"]), str(event["type"]), event["object"]) for event in told if event["type"] != "BOOKMARK"]


def _newest(cluster: Cluster, kind: str) -> int:
    return max((_version(each) for each in cluster.list(kind, namespace="")), default=0)


def _version(obj: Object) -> int:
    return int(obj["metadata"]["resourceVersion"])


@contextmanager
def recording(cluster: Cluster, folder: Path) -> Iterator[Recording]:
    """By kubectl, which knows nothing of us: all that has happened when the block ends without a fault."""
    made = Recording()
    children = []
    for kind in KINDS:
        file = folder / f"{kind}.json"
        path = f"/api/v1/{kind}?watch=true"  # begins with all that there is
        command = [str(cluster.programs / "kubectl"), "--kubeconfig", str(cluster.kubeconfig), "get", "--raw", path]
        with file.open("wb") as out:
            children.append(subprocess.Popen(command, stdout=out))
        made.files.append(file)
    try:
        yield made
        newest = {kind: _newest(cluster, kind) for kind in KINDS}
        wait_for("the last of the record", lambda: made.has_come_to(newest), within_s=SOON_S)
    finally:
        for child in children:
            child.terminate()
            child.wait()


@dataclass(slots=True)
class Replay:
    """Of nodes with `key` in their name. `overlaps`: versions at which one was marked for a slice while a pod of another was on it."""

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
        owners = frozenset(record.slice for record in records.values() if record.phase in (GpuPhase.CLAIMED, GpuPhase.OPEN))
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
