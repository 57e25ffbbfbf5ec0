# `make client` writes this file. Do not edit it.

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct

from egs_client.models.shared import Token


class Ending(Struct, kw_only=True):
    count: int
    names: list[str]


class Endings(Struct, kw_only=True):
    """Lists everything that archiving or removing ends. Namespaces, members, invitations and workspaces are given up only by a
    removal.
    """

    running: Ending
    waiting: Ending
    booked: Ending
    series: Ending
    kubeconfigs: Ending
    namespaces: Ending
    members: Ending
    invitations: Ending
    workspaces: Ending


class Closing(Struct, kw_only=True):
    life: str
    closed_at: datetime | None
    is_drained: bool
    settled_at: datetime | None
    ends: Endings


class Deputy(Struct, kw_only=True):
    id: str
    name: str
    approver: str
    user: str
    starts_at: datetime
    ends_at: datetime
    created_at: datetime


class Invitation(Struct, kw_only=True):
    id: str
    name: str
    slice: str
    project: str
    role: str
    invited_by: str
    created_at: datetime


class Kubeconfig(Struct, kw_only=True):
    """A kubeconfig says who may access which cluster until when. These answers contain no secret."""

    id: str
    name: str
    cluster: str
    cluster_id: str
    namespace: str
    user: str
    user_id: str
    state: str
    detail: str
    duration_s: int
    asked_at: datetime
    expires_at: datetime | None
    ended_at: datetime | None
    closed_at: datetime | None


class KubeconfigText(Struct, kw_only=True):
    id: str
    name: str
    kubeconfig: str
    expires_at: datetime


class OwnSlice(Struct, kw_only=True):
    id: str
    name: str
    project: str
    role: str


class Me(Struct, kw_only=True):
    id: str
    name: str
    email: str
    role: str
    is_admin: bool
    slices: list[OwnSlice]
    token: Token


class Member(Struct, kw_only=True):
    id: str | None
    name: str
    role: str
    is_by_group: bool


class Namespace(Struct, kw_only=True):
    id: str
    name: str
    cluster: str
    cluster_id: str
    created_at: datetime
    state: str
    detail: str
    may_adopt: bool


class NoticeSettings(Struct, kw_only=True):
    unwanted_kinds: list[str]
    muted_slices: list[str]
    zone: str
    quiet_from: str | None
    quiet_until: str | None


class Project(Struct, kw_only=True):
    id: str
    name: str
    created_at: datetime
    ends_at: datetime | None
    in_league: bool
    life: str
    closed_at: datetime | None
    is_drained: bool
    settled_at: datetime | None


class ProjectAdmin(Struct, kw_only=True):
    id: str
    name: str
    created_at: datetime


class ServiceAccount(Struct, kw_only=True):
    id: str
    name: str
    role: str | None
    is_active: bool
    cluster: str | None = None
    cluster_user: str
    created_by: str | None = None
    created_at: datetime


class Slice(Struct, kw_only=True):
    id: str
    name: str
    project: str
    project_id: str
    clusters: list[str]
    home: str | None = None
    created_at: datetime
    ends_at: datetime | None
    life: str
    closed_at: datetime | None
    is_drained: bool
    settled_at: datetime | None
    role: str | None
    policy_version: int
    nodes_approval: int
    gpus_approval: int
    duration_approval_s: int
    duration_max_s: int
    priority_approval: int
    queued_max: int
    ahead_max_s: int
    shapes: Any
    may_evict: bool
    may_skip_checks: bool
    may_order: bool
    idle_timeout_s: int
    may_keep_idle: bool
    burst_gain_s: int
    decide_within_s: int
    pods_max: int
    may_reach_out: bool
    kubeconfig_max_s: int
    namespace_patterns: Any
    namespaces_max: int


class SliceGroup(Struct, kw_only=True):
    id: str
    provider: str
    group: str
    role: str
    created_at: datetime


class WorkspaceRequest(Struct, kw_only=True):
    id: str
    name: str
    project: str
    purpose: str
    clusters: Any
    namespaces: Any
    people: dict[str, str]
    quota: dict[str, int]
    ends_at: datetime | None
    state: str
    why: str
    requester: str
    created_at: datetime
    decided_by: str | None = None
    decided_at: datetime | None
    slice: str | None = None
