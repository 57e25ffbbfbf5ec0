"""Keeps the driver's UUIDs of a node's GPUs in an annotation of the node.

Must not live here: the names by which boxes hold GPUs (view.py); those stay when a GPU is replaced.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from protocol import cluster_names
from protocol.cluster_names import node_path, pointer
from worker_agent.kube.api.client import Api, Op
from worker_agent.kube.api.objects import Node
from worker_agent.kube.checks.readings import SmiReading

# The checks of a box see only its own GPUs, so UUIDs are stored by bus ID. The index of a GPU is its place in the order of
# all bus IDs, and so is known once all are read.
Hardware = Mapping[str, str]  # UUIDs by PCI bus ID

_UUID: Final = re.compile(r"GPU-[0-9A-Za-z-]+")  # a lost GPU reports "[N/A]" or "[Unknown Error]" instead


def stored_uuids(node: Node) -> Hardware:
    pairs = (pair.partition("=") for pair in node.metadata.annotation(cluster_names.GPU_HARDWARE).split(","))
    return {bus_id: uuid for bus_id, _, uuid in pairs if bus_id and uuid}


def uuids_by_index(known: Hardware, gpu_count: int) -> list[str]:
    """Returns UUIDs by GPU index; the mapping is empty until all are known."""
    return [known[bus_id] for bus_id in sorted(known)] if len(known) == gpu_count else []


def merge_readings(known: Hardware, read: Sequence[SmiReading], gpu_count: int) -> Hardware:
    new = {gpu.bus_id: gpu.uuid for gpu in read if _UUID.fullmatch(gpu.uuid)}
    if len(new) == gpu_count:
        return new
    # A partial reading says nothing about the other GPUs. They stay known, even if that makes more than the node has,
    # until a full reading shows which ones are gone.
    return {bus_id: uuid for bus_id, uuid in known.items() if uuid not in new.values()} | new


def store_uuids(api: Api, name: str, read: Sequence[SmiReading], gpu_count: int) -> None:
    """Raises ClusterError."""
    node = api.get(node_path(name), Node)
    known = stored_uuids(node)
    new = merge_readings(known, read, gpu_count)
    if new == known or node.metadata.annotations is None:
        return
    text = ",".join(f"{bus_id}={uuid}" for bus_id, uuid in sorted(new.items()))
    path = pointer("metadata", "annotations", cluster_names.GPU_HARDWARE)
    # The checks of two boxes on a node may end at once: neither may overwrite the other's readings.
    was = node.metadata.annotations.get(cluster_names.GPU_HARDWARE)
    ops: list[Op] = [
        {"op": "test", "path": "/metadata/uid", "value": node.metadata.uid},
        {"op": "test", "path": path, "value": was},
        {"op": "add", "path": path, "value": text},
    ]
    api.patch(node_path(name), ops, Node)
