"""Keeps the bind guard: one object that lists, per node, the workspaces whose pods may be bound there.

A node's value is "@<fence>,<slice>,<slice>". Closing raises the fence and every write tests the value read before, so a delayed agent
cannot reopen a closed node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from protocol.cluster_names import GUARD_PATH, pointer
from worker_agent.cluster.base import ClusterError
from worker_agent.kube.api.client import Api, Op
from worker_agent.kube.api.objects import Guard

NOBODY = "@0"


def slices_in(value: str) -> frozenset[str]:
    return frozenset(word for word in value.split(",") if word and not word.startswith("@"))


def with_slices(value: str, slices: Iterable[str]) -> str:
    return ",".join((f"@{_fence(value)}", *sorted(slices)))


def closed_value(value: str, slices: Iterable[str]) -> str:
    return ",".join((f"@{_fence(value) + 1}", *sorted(slices_in(value) - set(slices))))


def _fence(value: str) -> int:
    first = value.split(",", 1)[0]
    return int(first[1:]) if first.startswith("@") and first[1:].isdecimal() else 0


class BindGuard:
    """It is not thread-safe."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._nodes: dict[str, str] | None = None
        self._before: dict[str, str] = {}  # the values before forget(), to detect changes by others
        self._changed: dict[str, tuple[str, str]] = {}

    def nodes(self) -> Mapping[str, str]:
        """Raises Missing if the guard is not installed."""
        if self._nodes is None:
            before, self._before = self._before, {}
            self._nodes = dict(self._api.get(GUARD_PATH, Guard).spec.nodes)
            now = self._nodes
            self._changed |= {node: (value, now.get(node, "")) for node, value in before.items() if now.get(node) != value}
        return self._nodes

    def take_changed(self) -> Mapping[str, tuple[str, str]]:
        """Returns (old, new) values that others changed, by node."""
        changed, self._changed = self._changed, {}
        return changed

    def value(self, node: str) -> str:
        return self.nodes().get(node, "")

    def forget(self) -> None:
        if self._nodes is not None:
            self._before = self._nodes
        self._nodes = None

    def write(self, changes: Mapping[str, tuple[str, str | None]]) -> None:
        """Maps nodes to (value read, new value or None); applies all or none."""
        wanted = {node: change for node, change in changes.items() if change[0] != (change[1] or "")}
        if not wanted:
            return
        # One patch covers many nodes, because its cost is set by the size of the object.
        ops = [op for node, (old, new) in sorted(wanted.items()) for op in _ops(node, old, new)]
        try:
            self._nodes = dict(self._api.patch(GUARD_PATH, ops, Guard).spec.nodes)
        except ClusterError:
            self._nodes, self._before = None, {}  # our own write may have been applied
            raise


def _ops(node: str, old: str, new: str | None) -> list[Op]:
    path = pointer("spec", "nodes", node)
    # JSON Patch "test" treats a missing key as null as long as the map itself exists.
    test = {"op": "test", "path": path, "value": old or None}
    return [test, {"op": "remove", "path": path} if new is None else {"op": "add", "path": path, "value": new}]
