"""The GPUs of a node as their driver calls them: what checks read there, kept in an annotation of the node.

A box may have a part of the node's GPUs, and its checks see no others: they are known by their place on the bus. Only once all are known
it is known which of them comes first. Kept with the node, so that a node that is made anew is known anew.
Must not live here: the names by which boxes hold GPUs (view.py). Those stay the same while a GPU is replaced.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from protocol import cluster_names
from protocol.cluster_names import node_path, pointer
from worker_agent.kube.api.client import Api, Op
from worker_agent.kube.api.objects import Node
from worker_agent.kube.checks.readings import Gpu

Hardware = Mapping[str, str]  # UUIDs by place on the bus

_UUID: Final = re.compile(r"GPU-[0-9A-Za-z-]+")  # a GPU that is lost says "[N/A]" or "[Unknown Error]"


def known_of(node: Node) -> Hardware:
    """As far as checks have read it."""
    pairs = (pair.partition("=") for pair in node.metadata.annotation(cluster_names.GPU_HARDWARE).split(","))
    return {bus_id: uuid for bus_id, _, uuid in pairs if bus_id and uuid}


def in_order(known: Hardware, gpu_count: int) -> list[str]:
    """The UUID of each GPU of the node, by index, which is the order on the bus; none before all are known."""
    return [known[bus_id] for bus_id in sorted(known)] if len(known) == gpu_count else []


def with_read(known: Hardware, read: Sequence[Gpu], gpu_count: int) -> Hardware:
    """A check that reads all GPUs of the node says which there are. One that reads some says nothing of the others: they stay known, also
    where that makes more than the node has, and which of them is gone is not known until all are read.
    """
    new = {gpu.bus_id: gpu.uuid for gpu in read if _UUID.fullmatch(gpu.uuid)}
    if len(new) == gpu_count:
        return new
    return {bus_id: uuid for bus_id, uuid in known.items() if uuid not in new.values()} | new


def remember(api: Api, name: str, read: Sequence[Gpu], gpu_count: int) -> None:
    """Raises ClusterError."""
    node = api.get(node_path(name), Node)
    known = known_of(node)
    new = with_read(known, read, gpu_count)
    if new == known or node.metadata.annotations is None:
        return
    text = ",".join(f"{bus_id}={uuid}" for bus_id, uuid in sorted(new.items()))
    path = pointer("metadata", "annotations", cluster_names.GPU_HARDWARE)
    # The checks of two boxes on a node may end at once: neither writes over what the other has read.
    was = node.metadata.annotations.get(cluster_names.GPU_HARDWARE)
    ops: list[Op] = [
        {"op": "test", "path": "/metadata/uid", "value": node.metadata.uid},
        {"op": "test", "path": path, "value": was},
        {"op": "add", "path": path, "value": text},
    ]
    api.patch(node_path(name), ops, Node)
