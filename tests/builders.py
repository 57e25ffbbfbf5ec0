"""A small world, made by the real services: people, clusters with nodes and agents, workspaces, GPRs and what they hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID

from accounts.models import PlatformRole, User
from accounts.people.services import user_create
from gpr.models import Gpr, GprState
from gpr.requests.spec import GprSpec
from inventory.models import AgentSession, Cluster, Node, Reservation
from inventory.services.clusters import cluster_create
from inventory.services.inventory import inventory_store
from inventory.services.reservations import ReservationReport, reservations_hold, reservations_observe
from protocol.assignments import Phase
from protocol.nodes.inventory import GpuView, NodeView
from slices.models import Project, Role, Slice
from slices.services import member_set, project_create, slice_create

# Noon of the day of the run: some tests meet the real clock as well, by which nothing of theirs may have expired.
NOW = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
HOUR = timedelta(hours=1)
SHAPE = "H100-80GB"
_number = count(1)


def unique(prefix: str) -> str:
    return f"{prefix}-{next(_number)}"


def make_user(name: str = "", *, is_admin: bool = False, at: datetime = NOW) -> User:
    return user_create(name=name or unique("user"), now=at, role=PlatformRole.ADMIN if is_admin else PlatformRole.MEMBER)


def node_view(name: str, *, gpus: int = 4, memory_gib: int = 80, **changes: Any) -> NodeView:
    """Its UID and its GPUs' are named after it."""
    seen = tuple(GpuView(uuid=f"GPU-{name}-{index}", index=index, model="H100", memory_gib=memory_gib) for index in range(gpus))
    return NodeView(**{"name": name, "uid": f"uid-{name}", "shape": SHAPE, "node_type": "hgx", "gpus": seen, **changes})


def make_cluster(name: str = "", *, nodes: int = 0, gpus: int = 4, is_heard: bool = True, at: datetime = NOW) -> Cluster:
    """`nodes` nodes named `<cluster>-n0`, ...; `is_heard`: its agent has just synced."""
    cluster = cluster_create(name=name or unique("cluster"), actor=None, now=at)
    if nodes:
        inventory_store(cluster=cluster, nodes=[node_view(f"{cluster.name}-n{i}", gpus=gpus) for i in range(nodes)], now=at)
    if is_heard:
        AgentSession.objects.create(cluster=cluster, install_id="install", joined_at=at, last_sync_at=at)
    return cluster


def agent_heard(cluster: Cluster, at: datetime) -> None:
    AgentSession.objects.filter(cluster=cluster).update(last_sync_at=at)


def nodes_of(cluster: Cluster) -> list[Node]:
    return list(Node.objects.filter(cluster=cluster).order_by("name"))


def make_project(name: str = "", *, at: datetime = NOW) -> Project:
    return project_create(name=name or unique("project"), actor=None, now=at)


def make_slice(
    *clusters: Cluster,
    name: str = "",
    owner: User | None = None,
    viewers: Sequence[User] = (),
    project: Project | None = None,
    at: datetime = NOW,
) -> Slice:
    chosen = project or make_project(at=at)
    slice_ = slice_create(name=name or unique("slice"), project=chosen, clusters=clusters, actor=None, now=at)
    if owner is not None:
        member_set(slice_=slice_, user=owner, role=Role.OWNER, actor=None, now=at)
    for viewer in viewers:
        member_set(slice_=slice_, user=viewer, role=Role.VIEWER, actor=None, now=at)
    return slice_


def spec(slice_: Slice, **changes: Any) -> GprSpec:
    return replace(GprSpec(name="job", slice=slice_, nodes=1, duration_s=3600, shape=SHAPE), **changes)


def make_gpr(slice_: Slice, *, state: GprState = GprState.QUEUED, owner: User | None = None, **fields: Any) -> Gpr:
    """A bare row without a promise; for whatever needs a GPR to exist, not to be planned."""
    given: dict[str, Any] = {
        "name": unique("gpr"),
        "slice": slice_,
        "owner": owner or make_user(),
        "created_at": NOW,
        "shape": SHAPE,
        "nodes": 1,
        "duration_s": 3600,
        "remaining_s": 3600,
        "state": state,
        "state_changed_at": NOW,
        "queued_at": NOW,
        "turn_at": NOW,
    }
    return Gpr.objects.create(**{**given, **fields})


def new_rows(gpr: Gpr, nodes: Iterable[Node], *, gpus_per_node: int | None = None, **changes: Any) -> list[Reservation]:
    """Rows reserve all GPUs of the nodes for an hour from NOW, unless told otherwise. None is held yet."""
    gpr.gpus_per_node = gpus_per_node
    node_ids = sorted(node.pk for node in nodes)
    given: dict[str, Any] = {
        "gpr": gpr,
        "slice_id": gpr.slice_id,
        "run": max(gpr.run, 1),
        "gang_count": len(node_ids),
        "starts_at": NOW,
        "ends_at": NOW + HOUR,
        "enter_by_at": NOW + timedelta(minutes=15),
        "duration_s": gpr.remaining_s,
        "entry_steps": ["node_ready"],
        "exit_steps": ["drain"],
    }
    return [Reservation(**{**given, **changes, "node_id": node_id}) for node_id in node_ids]


def hold(gpr: Gpr, *nodes: Node, **changes: Any) -> list[Reservation]:
    rows = new_rows(gpr, nodes, **changes)
    reservations_hold(rows)
    return rows


def agent_says(row: Reservation, phase: Phase, *, now: datetime = NOW, **said: Any) -> None:
    reservations_observe([ReservationReport(row, phase, **said)], now=now)


def generation_of(cluster: Cluster | UUID) -> int:
    return Cluster.objects.values_list("generation", flat=True).get(pk=getattr(cluster, "pk", cluster))


def pks(rows: Sequence[Any]) -> set[Any]:
    return {row.pk for row in rows}
