"""The GPUs of a node as their driver calls them: what checks read there, kept in an annotation of the node.

A box may have a part of the node's GPUs, and its checks see no others: they are known by their place on the bus. Only once all are known
it is known which of them comes first. Kept with the node, so that a node that is made anew is known anew.
Must not live here: the names by which boxes hold GPUs (view.py). Those stay the same while a GPU is replaced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from worker_agent.kube import names
from worker_agent.kube.client import Api, Op
from worker_agent.kube.names import node_path, pointer
from worker_agent.kube.objects import Node
from worker_agent.kube.readings import Gpu

Hardware = Mapping[str, str]  # UUIDs by place on the bus


def known_of(node: Node) -> Hardware:
    """As far as checks have read it."""
    pairs = (pair.partition("=") for pair in node.metadata.annotation(names.GPU_HARDWARE).split(","))
    return {bus_id: uuid for bus_id, _, uuid in pairs if bus_id and uuid}


def in_order(known: Hardware, gpu_count: int) -> list[str]:
    """The UUID of each GPU of the node, by index, which is the order on the bus; none before all are known."""
    return [known[bus_id] for bus_id in sorted(known)] if len(known) == gpu_count else []


def with_read(known: Hardware, read: Sequence[Gpu], gpu_count: int) -> Hardware:
    """Where there are more than the node has, some are not there any more: what was read last is."""
    new = {gpu.bus_id: gpu.uuid for gpu in read}
    others = {bus_id: uuid for bus_id, uuid in known.items() if bus_id not in new and uuid not in new.values()}
    return {**others, **new} if len(others) + len(new) <= gpu_count else new


def remember(api: Api, name: str, read: Sequence[Gpu], gpu_count: int) -> None:
    """Raises ClusterError."""
    node = api.get(node_path(name), Node)
    known = known_of(node)
    new = with_read(known, read, gpu_count)
    if new == known or node.metadata.annotations is None:
        return
    text = ",".join(f"{bus_id}={uuid}" for bus_id, uuid in sorted(new.items()))
    ops: list[Op] = [
        {"op": "test", "path": "/metadata/uid", "value": node.metadata.uid},
        {"op": "add", "path": pointer("metadata", "annotations", names.GPU_HARDWARE), "value": text},
    ]
    api.patch(node_path(name), ops, Node)
