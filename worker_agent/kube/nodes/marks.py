"""Computes the marks of EGS on a node: records in an annotation, and the taint and labels that follow from them.

It is pure and builds JSON Patches, each of which tests the node's UID and the annotation as read. Must not live here: any call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from protocol import cluster_names
from protocol.cluster_names import pointer
from protocol.decoding import decode
from worker_agent.cluster.base import ClusterError, GpuPhase, GpuRecord, Records
from worker_agent.kube.api.client import Op
from worker_agent.kube.api.objects import Node, Taint

_ISOLATED = (GpuPhase.ISOLATED, GpuPhase.OPEN)  # phases in which the node is marked for the box of the record


# A box takes and releases its GPUs together, so one record is stored for many.
class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    record: GpuRecord
    gpus: tuple[str, ...]


class UnreadableRecords(ClusterError):
    """An administrator alone may overwrite such an annotation."""


def read_records(text: str) -> dict[str, GpuRecord]:
    if not text:
        return {}
    try:
        entries = decode(text, tuple[_Entry, ...])
    except msgspec.DecodeError as error:
        raise UnreadableRecords(f"the annotation {cluster_names.RECORDS} cannot be read: {error}") from error
    return {gpu: entry.record for entry in entries for gpu in entry.gpus}


def records_text(records: Records) -> str:
    by_record: dict[GpuRecord, list[str]] = {}
    for gpu, record in sorted(records.items()):
        by_record.setdefault(record, []).append(gpu)
    return msgspec.json.encode([_Entry(record=record, gpus=tuple(gpus)) for record, gpus in by_record.items()]).decode()


@dataclass(frozen=True, slots=True)
class NodeMarks:
    taint: str  # the taint's value
    labels: Mapping[str, str]


def marks_for_records(uid: str, records: Records, gpus: Iterable[str]) -> NodeMarks:
    """`gpus` holds all of the node and is empty if they are unnamed."""
    held = {gpu: record for gpu, record in records.items() if record.phase in _ISOLATED}
    boxes = {(record.gpr_id, record.run): record.slice for record in held.values()}
    labels = {cluster_names.box_label(gpr_id): str(run) for gpr_id, run in boxes}
    labels[cluster_names.NODE_UID] = uid
    if not boxes:
        is_draining = any(record.phase is GpuPhase.CLOSED for record in records.values())
        return NodeMarks(cluster_names.DRAINING if is_draining else cluster_names.FREE, labels)
    named = set(gpus)
    if len(boxes) > 1 or not named or not named <= set(held):
        return NodeMarks(cluster_names.SHARED, labels)
    ((gpr_id, run), slice_) = next(iter(boxes.items()))
    return NodeMarks(cluster_names.box_of(gpr_id, run), labels | {cluster_names.NODE_SLICE: slice_})


def box_taint(node: Node) -> str:
    return next((taint.value for taint in node.spec.taints if taint.key == cluster_names.TAINT), "")


def describe_difference(node: Node, marks: NodeMarks) -> str:
    """Describes the difference in sentences; "" if none."""
    ours, labels = [taint for taint in node.spec.taints if taint.key == cluster_names.TAINT], _our_labels(node)
    wrong = sorted(key for key in labels.keys() | marks.labels.keys() if labels.get(key) != marks.labels.get(key))
    parts = []
    if ours != [_taint(marks.taint)]:
        was = ", ".join(f"{taint.value}:{taint.effect}" for taint in ours) or "gone"
        parts.append(f"The taint {cluster_names.TAINT} was {was} instead of {marks.taint}:{cluster_names.TAINT_EFFECT}.")
    if wrong:
        parts.append(f"Not as they should be were the labels {', '.join(wrong)}.")
    return " ".join(parts)


def write_ops(node: Node, seen: str, new: str, marks: NodeMarks) -> list[Op]:
    """`seen` ("" if absent) and `new` are annotation texts."""
    meta = node.metadata
    ops: list[Op] = [{"op": "test", "path": "/metadata/uid", "value": meta.uid}]
    if meta.annotations is None:
        ops += _first("/metadata/annotations", {})
    path = pointer("metadata", "annotations", cluster_names.RECORDS)
    ops.append({"op": "test", "path": path, "value": seen or None})
    ops.append({"op": "add", "path": path, "value": new})
    return [*ops, *_label_ops(node, marks.labels), *_taint_ops(node, marks.taint)]


def removal_ops(node: Node, seen: str) -> list[Op]:
    """Removes all marks; all GPUs must be free."""
    ops: list[Op] = [{"op": "test", "path": "/metadata/uid", "value": node.metadata.uid}]
    path = pointer("metadata", "annotations", cluster_names.RECORDS)
    ops += [{"op": "test", "path": path, "value": seen}, {"op": "remove", "path": path}]
    if cluster_names.GPU_HARDWARE in (node.metadata.annotations or {}):
        ops.append({"op": "remove", "path": pointer("metadata", "annotations", cluster_names.GPU_HARDWARE)})
    places = [number for number, taint in enumerate(node.spec.taints) if taint.key == cluster_names.TAINT]
    for number in reversed(places):
        ops += [_test_taint(number), {"op": "remove", "path": pointer("spec", "taints", number)}]
    return [*ops, *_label_ops(node, {})]


def _label_ops(node: Node, wanted: Mapping[str, str]) -> list[Op]:
    there = _our_labels(node)
    ops = [] if node.metadata.labels is not None else _first("/metadata/labels", {})
    ops += [{"op": "remove", "path": pointer("metadata", "labels", key)} for key in sorted(there.keys() - wanted.keys())]
    changed = sorted((key, value) for key, value in wanted.items() if there.get(key) != value)
    return ops + [{"op": "add", "path": pointer("metadata", "labels", key), "value": value} for key, value in changed]


def _taint_ops(node: Node, value: str) -> list[Op]:
    # Keeps exactly one EGS taint: the first is replaced, others are removed.
    new = msgspec.to_builtins(_taint(value))
    places = [number for number, taint in enumerate(node.spec.taints) if taint.key == cluster_names.TAINT]
    if not places:
        return [{"op": "add", "path": "/spec/taints/-", "value": new}] if node.spec.taints else _first("/spec/taints", [new])
    ops: list[Op] = []
    for number in reversed(places[1:]):
        ops += [_test_taint(number), {"op": "remove", "path": pointer("spec", "taints", number)}]
    return [*ops, _test_taint(places[0]), {"op": "replace", "path": pointer("spec", "taints", places[0]), "value": new}]


def _first(path: str, value: object) -> list[Op]:
    # The test fails if somebody else created the map meanwhile, so theirs is not overwritten.
    return [{"op": "test", "path": path, "value": None}, {"op": "add", "path": path, "value": value}]


def _test_taint(number: int) -> Op:
    return {"op": "test", "path": pointer("spec", "taints", number, "key"), "value": cluster_names.TAINT}


def _taint(value: str) -> Taint:
    return Taint(key=cluster_names.TAINT, value=value, effect=cluster_names.TAINT_EFFECT)


def _our_labels(node: Node) -> dict[str, str]:
    exact = (cluster_names.NODE_SLICE, cluster_names.NODE_UID)
    return {key: value for key, value in (node.metadata.labels or {}).items() if key in exact or cluster_names.is_box_label(key)}
