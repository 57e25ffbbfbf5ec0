# `make client` writes this file. Do not edit it.

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct

from egs_client.models.shared import Holder


class Agent(Struct, kw_only=True):
    agent_version: str
    capabilities: Any
    joined_at: datetime
    last_sync_at: datetime | None
    known_generation: int
    clock_offset_s: float | None
    locked_at: datetime | None


class CheckPolicy(Struct, kw_only=True):
    id: str
    name: str
    cluster: str
    cluster_id: str
    shape: str
    limits: dict[str, float]
    images: dict[str, str]
    skipped_steps: list[str]
    storage_class: str
    rdma_subnet: str
    runtime_class: str
    pull_secret: str
    created_at: datetime


class Cluster(Struct, kw_only=True):
    """Fields for administrators are null for others."""

    id: str
    name: str
    created_at: datetime
    is_enabled: bool
    is_open: bool
    uid: str | None
    generation: int | None
    rewound_at: datetime | None
    agent: Agent | None
    api_url: str | None
    repairs_drift: bool | None
    drain_grace_s: int
    drain_force_after_s: int


class Span(Struct, kw_only=True):
    gpr_id: str
    gpr: str
    slice: str
    since_at: datetime
    until_at: datetime | None


class Point(Struct, kw_only=True):
    at: datetime
    temperature_c: int | None
    memory_temperature_c: int | None
    utilization_percent: int | None
    memory_used_mib: int | None
    power_w: int | None
    sm_clock_mhz: int | None
    tensor_percent: int | None
    memory_bandwidth_percent: int | None
    nvlink_mib_s: int | None
    pcie_mib_s: int | None
    throttled_percent: int | None
    new_faults: int | None


class Course(Struct, kw_only=True):
    step_s: int
    since_at: datetime
    until_at: datetime
    spans: list[Span]
    points: list[Point]
    is_of_prometheus: bool
    why_own: str


class Gpu(Struct, kw_only=True):
    id: str
    name: str
    uuid: str
    hardware_uuid: str
    index: int
    node_id: str
    node: str
    cluster_id: str
    cluster: str
    shape: str
    model: str
    memory_gib: int
    is_healthy: bool
    state: str
    held_by: Holder | None


class JoinToken(Struct, kw_only=True):
    id: str
    name: str
    token: str | None
    expires_at: datetime


class NodeCondition(Struct, kw_only=True):
    type: str
    status: str
    reason: str
    message: str
    since_at: datetime | None


class NodeHolder(Struct, kw_only=True):
    id: str
    gpr_id: str
    gpr: str
    slice_id: str
    slice: str
    phase: str
    ends_at: datetime
    gpu_count: int


class Node(Struct, kw_only=True):
    """`held_by` names only holders that the caller may see, so it can be empty for a held node."""

    id: str
    name: str
    cluster_id: str
    cluster: str
    shape: str
    node_type: str
    gpu_count: int
    gpu_memory_gib: int
    gpus_free: int
    state: str
    rdma: bool
    zone: str
    rack: str
    nvlink_domain: str
    is_ready: bool
    is_cordoned: bool
    cordon_reason: str | None
    conditions: list[NodeCondition] | None
    seen_at: datetime
    held_by: list[NodeHolder]


class Schedule(Struct, kw_only=True):
    """For other workspaces' reservations only node and window are given; the name is "busy" and all else null."""

    id: str | None
    name: str
    node_id: str
    node: str
    cluster_id: str
    cluster: str
    state: str
    starts_at: datetime
    ends_at: datetime
    gpus: list[str]
    gpr_id: str | None
    gpr: str | None
    slice_id: str | None
    slice: str | None
    run: int | None
    phase: str | None
    failure: str | None
    active_at: datetime | None
    not_after_at: datetime | None
    exit_began_at: datetime | None
    released_at: datetime | None


class ShapeInCluster(Struct, kw_only=True):
    id: str
    name: str
    node_types: list[str]
    rdma: bool
    gpus_per_node: int
    nodes: int
    nodes_free: int
    gpus: int
    gpus_free: int


class Shape(Struct, kw_only=True):
    id: str
    name: str
    gpu_memory_gib: int
    clusters: list[ShapeInCluster]
