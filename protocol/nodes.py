"""Nodes of a cluster as the agent sees them, and nodes that the hub orders for it."""

from __future__ import annotations

import msgspec

from protocol.scalars import Count, Id, NodeName, Word


class NodeOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A node that the cluster shall get: asked for by `order_by_s`, not before it, and there by `expected_s`.

    It joins with the label egs.io/order; once the hub has seen it, or has done without it, it is no order any more. `supply` is a name.
    """

    id: str
    supply: str
    kind: str
    shape: str
    gpus_per_node: int
    gpu_memory_gib: int
    order_by_s: float
    expected_s: float


class GpuView(msgspec.Struct, frozen=True, kw_only=True):
    """`uuid`: by which boxes hold it, the same however often it is replaced. `hardware_uuid`: as its driver told a check, or empty."""

    uuid: Id
    index: Count
    model: Word
    memory_gib: Count
    healthy: bool = True
    hardware_uuid: Word = ""


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU node as the cluster shows it. `ready`: the cluster calls it ready and schedulable for us. `broken`: the cluster says that it
    does not work; one that somebody only set aside is not ready, and not broken.

    `order`: its label egs.io/order, the id of the order that it comes of. `supply`: its label egs.io/supply, the name or id of the
    supply that it is from. Empty where it has none.
    """

    name: NodeName
    uid: Id
    shape: Word
    node_type: Word
    gpus: tuple[GpuView, ...]
    ready: bool = True
    rdma: bool = False
    zone: Word = ""
    rack: Word = ""
    nvlink_domain: Word = ""
    order: Word = ""
    supply: Word = ""
    broken: bool = False
