"""Reads which controllers a pod belongs to. Must not live here: any write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from protocol import cluster_names
from worker_agent.cluster.base import ClusterError, Throttled, Unavailable
from worker_agent.kube.api.client import Api, Missing
from worker_agent.kube.api.objects import Meta, Owner, Pod

READS_AT_ONCE: Final = 100  # reads of owners in one look
OWNERS_MOST: Final = 6  # the depth of a chain of owners
Key = tuple[str, str]  # namespace and UID; pods may name any owner UID, even one of another namespace
Kinds = Mapping[tuple[str, str], str]  # API version and kind -> the resource by which an owner of this kind is read

# Kinds whose own owner is looked up. Any other controller is itself the workload.
OWNED: Final[Kinds] = {
    ("apps/v1", "ReplicaSet"): "replicasets",
    ("apps/v1", "StatefulSet"): "statefulsets",
    ("batch/v1", "Job"): "jobs",
}
# The same for what people read. Automatic requests keep to the shorter list, since they are made for each run of such an owner.
SHOWN: Final[Kinds] = {
    **OWNED,
    ("apps/v1", "Deployment"): "deployments",
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): "jobsets",
    ("jobset.x-k8s.io/v1", "JobSet"): "jobsets",
    ("ray.io/v1", "RayCluster"): "rayclusters",
}


class NotRead(Exception):
    """The owner stays unknown in this look."""


class _Owned(msgspec.Struct, frozen=True):
    metadata: Meta


class OwnerChains:
    """It is not thread-safe. Each look reads some owners; what was read is kept while pods lead to it."""

    def __init__(self, api: Api, kinds: Kinds) -> None:
        self._api, self._kinds = api, kinds
        self.behind: set[str] = set()  # namespaces with owners left for the next looks
        self.refused: dict[str, ClusterError] = {}  # by namespace: why an owner could not be read
        self._above_of: dict[Key, Owner | None] = {}  # by owner seen in the last look: its own controller
        self._led_to: set[Key] = set()
        self._looks = 0
        self._read_at: dict[str, int] = {}  # by namespace: the number of the last look that read owners there
        self._reads: Counter[str] = Counter()  # by namespace: reads in this look
        self._share = READS_AT_ONCE

    def begin_look(self, namespaces: Iterable[str]) -> list[str]:
        """Returns the namespaces in turn: the one read longest ago comes first, so that one with thousands of owners delays no other."""
        self._looks += 1
        self._share = max(1, READS_AT_ONCE // max(1, len(self.behind)))
        self._read_at = {name: self._read_at.get(name, 0) for name in namespaces}
        self._reads.clear()
        self._led_to, self.behind, self.refused = set(), set(), {}
        return sorted(self._read_at, key=lambda name: self._read_at[name])

    def end_look(self) -> None:
        self._above_of = {key: self._above_of[key] for key in self._led_to}

    def of(self, pod: Pod, pods: Mapping[str, Pod]) -> list[Owner]:
        """Returns the nearest first. `pods`: those of its namespace by UID. Raises NotRead, Unavailable, Throttled."""
        chain: list[Owner] = []
        owner = pod.metadata.controller
        while owner is not None and len(chain) <= OWNERS_MOST:
            chain.append(owner)
            owner = self._above(owner, pod.metadata.namespace, pods)
        return chain

    def _above(self, owner: Owner, namespace: str, pods: Mapping[str, Pod]) -> Owner | None:
        """Raises NotRead."""
        # Returns the controller of the owner if it is part of the same workload; that never changes while the owner lives.
        if owner.kind == "Pod":
            return pods[owner.uid].metadata.controller if owner.uid in pods else None
        kind = self._kinds.get((owner.apiVersion, owner.kind))
        if kind is None or not cluster_names.is_object_name(owner.name):
            return None
        key = namespace, owner.uid
        if key not in self._above_of:
            self._above_of[key] = self._read(f"/apis/{owner.apiVersion}/namespaces/{namespace}/{kind}/{owner.name}", namespace, owner)
        self._led_to.add(key)
        return self._above_of[key]

    def _read(self, path: str, namespace: str, owner: Owner) -> Owner | None:
        if namespace in self.refused:
            raise NotRead
        if self._reads[namespace] >= self._share or self._reads.total() >= READS_AT_ONCE:
            self.behind.add(namespace)
            raise NotRead
        self._reads[namespace] += 1
        self._read_at[namespace] = self._looks
        try:
            found = self._api.get(path, _Owned).metadata
        except Missing:
            return None  # it is being deleted, and its pods with it
        except (Unavailable, Throttled):
            raise
        except ClusterError as error:
            self.refused[namespace] = error
            raise NotRead from error
        above = found.controller if found.uid == owner.uid else None
        # Each run of a CronJob is a workload of its own, which requests nodes when it starts and gives them back at its end.
        return None if above is None or above.kind == "CronJob" else above
