"""Describes nodes of a cluster, and nodes that the hub orders for it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from protocol.scalars import Count, Id, Moment, NodeName, Word

CONDITIONS_MAX = 16  # of one node
CONDITION_TEXT_MAX_CHARS = 300


class NodeOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The agent asks for the node at `order_by_s`, and it should join at `expected_s` with the label egs.io/order. The order ends when the
    hub has seen the node or does not need it any more.
    """

    id: str
    supply: str  # its name
    kind: str
    shape: str
    gpus_per_node: int
    gpu_memory_gib: int
    order_by_s: float
    expected_s: float


class GpuView(msgspec.Struct, frozen=True, kw_only=True):
    uuid: Id  # the id in records and assignments; it stays when the hardware is replaced
    index: Count
    model: Word
    memory_gib: Count
    healthy: bool = True
    hardware_uuid: Word = ""  # the driver's UUID as a check read it, or ""


class NodeCondition(msgspec.Struct, frozen=True, kw_only=True):
    """Names a bad condition. One that is well again is left out."""

    type: Word
    status: Word
    reason: Word = ""
    message: Annotated[str, msgspec.Meta(max_length=CONDITION_TEXT_MAX_CHARS)] = ""
    since_s: Moment | None = None  # by the cluster's clock


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    name: NodeName
    uid: Id
    shape: Word
    node_type: Word
    gpus: tuple[GpuView, ...]
    ready: bool = True  # Kubernetes calls it ready, and it is schedulable for EGS
    rdma: bool = False
    zone: Word = ""
    rack: Word = ""
    nvlink_domain: Word = ""
    order: Word = ""  # label egs.io/order: the id of its order
    supply: Word = ""  # label egs.io/supply: the name or id of its supply
    broken: bool = False  # the cluster reports a fault; a cordoned node is not ready, but not broken
    conditions: Annotated[tuple[NodeCondition, ...], msgspec.Meta(max_length=CONDITIONS_MAX)] = ()  # bad ones
