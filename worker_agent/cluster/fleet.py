"""Reads a simulated cluster from FLEET.yaml: its nodes, step durations, failures and tenants."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Literal

import msgspec
import yaml

from protocol.decoding import convert
from protocol.nodes.inventory import GpuView, NodeOrder, NodeView

_NAMES = uuid.UUID("5a9f2f2e-3c0e-5d5e-9f0a-6a1b8f6f2d11")  # namespace of all generated ids, so that a fleet is the same each time


class FleetError(Exception):
    """The message says where the file is wrong."""


class NodeGroup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    count: int
    node_type: str
    gpu_model: str
    memory_gib: int
    gpus: int
    rdma: bool = False
    racks: tuple[str, ...] = ("rack-1",)
    nvlink_nodes: int = 0  # so many consecutive nodes share one NVLink fabric; 0: none do
    zone: str = ""

    @property
    def shape(self) -> str:
        return f"{self.gpu_model}-{self.memory_gib}GB"


class OrderableNodes(NodeGroup, frozen=True, kw_only=True, forbid_unknown_fields=True):
    lead_time_s: float  # after the order; at most `count` nodes come


class StepFailure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    node: str
    step: str
    times: int | Literal["always"] = 1  # the first attempts fail


class NodeFailure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    group: str
    what: Literal["gpu_sick", "not_ready", "gone", "xid"]
    xid: int = 79
    open_s: float  # strikes the first node of the group that has been open for so long, once and for good

    def view(self, node: NodeView) -> NodeView | None:
        """Returns the node with this failure, or None if it is gone."""
        if self.what == "gone":
            return None
        if self.what == "not_ready":
            return msgspec.structs.replace(node, ready=False, broken=True)
        if self.what == "xid":
            return node
        return msgspec.structs.replace(node, gpus=(msgspec.structs.replace(node.gpus[0], healthy=False), *node.gpus[1:]))


class TenantPods(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Makes pods that each slice runs on each of its nodes."""

    per_node: int = 1
    stop_s: float = 0.8  # how long a pod takes to end
    ignores_eviction: bool = False  # as with a disruption budget that refuses: the pod ends only when deleted


class SimulatedFleet(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    groups: tuple[NodeGroup, ...]
    uid: str = ""
    zone: str = ""
    step_s: dict[str, float] = {}  # by step; others take step_default_s
    step_default_s: float = 0.3
    failures: tuple[StepFailure, ...] = ()
    troubles: tuple[NodeFailure, ...] = ()
    pods: TenantPods = TenantPods()
    job_s: float = 20.0  # how long a job runs
    supplies: tuple[OrderableNodes, ...] = ()

    @property
    def cluster_uid(self) -> str:
        return self.uid or str(uuid.uuid5(_NAMES, self.name))

    def nodes(self) -> tuple[NodeView, ...]:
        return tuple(self._node(group, number) for group in self.groups for number in range(group.count))

    def group_of(self, node: str) -> str:
        """ "" for a node that was ordered."""
        return next((group.name for group in self.groups for number in range(group.count) if self._name(group, number) == node), "")

    def growth_for(self, order: NodeOrder) -> OrderableNodes | None:
        wanted = (order.supply, order.shape, order.gpus_per_node)
        fits = (each for each in self.supplies if (each.name, each.shape, each.gpus) == wanted and each.memory_gib >= order.gpu_memory_gib)
        return next(fits, None)

    def ordered_node(self, growth: OrderableNodes, number: int, order: NodeOrder) -> NodeView:
        return msgspec.structs.replace(self._node(growth, number), order=order.id, supply=order.supply)

    def _name(self, group: NodeGroup, number: int) -> str:
        return f"{self.name}-{group.name}-{number + 1:02d}"

    def _node(self, group: NodeGroup, number: int) -> NodeView:
        name = self._name(group, number)
        gpus = tuple(
            GpuView(
                uuid=f"GPU-{uuid.uuid5(_NAMES, f'{name}/{index}')}",
                index=index,
                model=group.gpu_model,
                memory_gib=group.memory_gib,
            )
            for index in range(group.gpus)
        )
        return NodeView(
            name=name,
            uid=str(uuid.uuid5(_NAMES, name)),
            shape=group.shape,
            node_type=group.node_type,
            gpus=gpus,
            rdma=group.rdma,
            zone=group.zone or self.zone,
            rack=group.racks[number * len(group.racks) // group.count],
            nvlink_domain=f"{group.name}-{number // group.nvlink_nodes + 1}" if group.nvlink_nodes else "",
        )


def read_fleet(path: Path) -> SimulatedFleet:
    try:
        fleet = convert(yaml.safe_load(path.read_text()), SimulatedFleet)
    except (OSError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise FleetError(f"{path}: {error}") from error
    names = {node.name for node in fleet.nodes()}
    groups = [group.name for group in (*fleet.groups, *fleet.supplies)]
    if len(set(groups)) < len(groups):
        raise FleetError(f"{path}: two groups have the same name")
    for failure in fleet.failures:
        if failure.node not in names:
            raise FleetError(f"{path}: failures: there is no node {failure.node}; nodes are {', '.join(sorted(names))}")
    for trouble in fleet.troubles:
        if trouble.group not in groups:
            raise FleetError(f"{path}: troubles: there is no group {trouble.group}; groups are {', '.join(groups)}")
    return fleet
