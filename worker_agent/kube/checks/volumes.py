"""Carries out the exit step `volumes`: which volumes of the workspace are still attached to the node, and which claims have lost theirs.

One look serves all waiting nodes of a box. It runs in a thread of its own, so that a workspace with many claims delays no other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

import msgspec

from protocol import cluster_names
from protocol.nodes.check_limits import expect, skipped
from protocol.nodes.checks import CheckResult, Verdict
from worker_agent.cluster.base import ClusterError, StepCall
from worker_agent.kube.api.client import Api, Missing
from worker_agent.kube.api.objects import Namespace, VolumeAttachment, VolumeClaim
from worker_agent.kube.api.paging import ObjectPage, listed

ATTACHMENTS: Final = "/apis/storage.k8s.io/v1/volumeattachments"
LOOKS_AT_ONCE: Final = 4
LOST_WITHIN_S: Final = 20.0  # how long claims are read: a lost one is reported, and keeps no node

Results = list[CheckResult]


class _Owner(msgspec.Struct, frozen=True):
    namespace: str = ""


class _VolumeSpec(msgspec.Struct, frozen=True):
    claimRef: _Owner = _Owner()


class _Volume(msgspec.Struct, frozen=True):
    spec: _VolumeSpec = _VolumeSpec()


@dataclass(slots=True)
class _BoxLook:
    asked: set[str] = field(default_factory=set)  # nodes that wait for the next look
    nodes: frozenset[str] = frozenset()  # of the look that is under way
    look: Future[dict[str, Results]] | None = None
    ended: dict[str, Future[dict[str, Results]]] = field(default_factory=dict)  # by node


class Volumes:
    """It is not thread-safe."""

    def __init__(self, api: Api, *, mono: Callable[[], float] = time.monotonic) -> None:
        self._api, self._mono = api, mono
        self._pool = ThreadPoolExecutor(LOOKS_AT_ONCE, thread_name_prefix="egs-volumes")
        self._boxes: dict[str, _BoxLook] = {}

    def poll(self, call: StepCall) -> Results | None:
        """Returns None while volumes are being read. Raises ClusterError if that failed."""
        key, node = cluster_names.box_of(call.assignment.gpr_id, call.assignment.run), call.node.view.name
        box = self._boxes.setdefault(key, _BoxLook())
        self._take(box)
        if (ended := box.ended.pop(node, None)) is not None:
            if not (box.asked or box.look or box.ended):
                del self._boxes[key]
            return ended.result()[node]
        if node not in box.nodes:
            box.asked.add(node)
        if box.look is None:
            box.nodes, box.asked = frozenset(box.asked), set()
            assignment = call.assignment
            box.look = self._pool.submit(self._look, assignment.namespaces, assignment.slice_key, box.nodes)
        return None

    @staticmethod
    def _take(box: _BoxLook) -> None:
        if box.look is not None and box.look.done():
            box.ended |= dict.fromkeys(box.nodes, box.look)
            box.look, box.nodes = None, frozenset()

    def _look(self, namespaces: Sequence[str], slice_key: str, nodes: Iterable[str]) -> dict[str, Results]:
        known = set(namespaces) or self._bound_to(slice_key)  # an assignment that was rebuilt from its node has none
        lost = self._lost(sorted(known))
        attached: dict[str, list[str]] = {node: [] for node in nodes}
        for each in listed(self._api, ATTACHMENTS, ObjectPage[VolumeAttachment]):
            if each.spec.nodeName in attached and each.spec.source.persistentVolumeName:
                attached[each.spec.nodeName].append(each.spec.source.persistentVolumeName)
        return {node: [self._attached(volumes, known), lost] for node, volumes in attached.items()}

    def _bound_to(self, slice_key: str) -> set[str]:
        found = listed(self._api, "/api/v1/namespaces", ObjectPage[Namespace], labelSelector=f"{cluster_names.SLICE}={slice_key}")
        return {namespace.metadata.name for namespace in found}

    def _attached(self, volumes: Sequence[str], namespaces: set[str]) -> CheckResult:
        owners = {name: self._owner(name) for name in sorted(volumes)}
        left = [name for name, owner in owners.items() if owner in namespaces]
        unknown = [name for name, owner in owners.items() if owner is None]
        told = expect("volumes_attached", len(left), 0, text=", ".join([*left, *(f"whose {name} was is not known" for name in unknown)]))
        return msgspec.structs.replace(told, verdict=Verdict.WARN) if unknown and not left else told

    def _owner(self, name: str) -> str | None:
        """Returns the namespace of its claim. Returns None if the volume was deleted."""
        try:
            # Tenants cannot write to a volume, and it names its claim even after that was deleted.
            return self._api.get(f"/api/v1/persistentvolumes/{name}", _Volume).spec.claimRef.namespace
        except Missing:
            return None

    def _lost(self, namespaces: Sequence[str]) -> CheckResult:
        until_mono, lost = self._mono() + LOST_WITHIN_S, []
        try:
            for namespace in namespaces:
                for claim in listed(self._api, f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", ObjectPage[VolumeClaim]):
                    lost += [claim.metadata.name] if claim.status.phase == "Lost" else []
                    if self._mono() >= until_mono:
                        return skipped("volumes_lost", f"too many claims to be read within {LOST_WITHIN_S:.0f} s")
        except ClusterError as error:
            return skipped("volumes_lost", str(error))
        told = expect("volumes_lost", len(lost), 0, text=", ".join(sorted(lost)))
        return msgspec.structs.replace(told, verdict=Verdict.WARN) if lost else told
