"""Small builders for tests that speak HTTP: a world of tenants, made by the services, at the real time that the API will see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from accounts.models import ApiToken, Scope, User
from accounts.services import token_issue, user_create
from egs.clock import db_now
from gpr.allocator import advance, tick
from gpr.models import Gpr
from gpr.services.requests import gpr_submit
from gpr.spec import GprSpec
from inventory.models import AgentSession, Cluster, Node, Reservation, ReservationState
from inventory.services.clusters import cluster_create
from inventory.services.nodes import inventory_store
from inventory.services.reservations import reservation_observe
from slices.models import Project, Role, Slice
from slices.services import member_set, project_create, slice_create
from worker_agent.protocol import GpuView, NodeView, Phase

SHAPE = "H100-80GB"
MEMBER_SCOPES = (Scope.READ, Scope.WRITE)
_number = count(1)


@dataclass(frozen=True, slots=True)
class People:
    """The personas. `owner` owns the slice of most tests, `teammate` only looks at it, `outsider` has a slice of his own."""

    owner: User
    teammate: User
    outsider: User
    admin: User


def make_people() -> People:
    return People(user("owner"), user("teammate"), user("outsider"), user("admin", is_admin=True))


def user(name: str, *, is_admin: bool = False) -> User:
    return user_create(name=name, is_admin=is_admin, now=db_now())


def token(of: User, *scopes: Scope, life: timedelta = timedelta(hours=1)) -> str:
    """The secret of a new token; without scopes: all that its user may have."""
    chosen = scopes or (tuple(Scope) if of.is_admin else MEMBER_SCOPES)
    return token_issue(user=of, name="test", scopes=chosen, life=life, now=db_now()).plain


def row_of(secret: str) -> ApiToken:
    return ApiToken.objects.get(key_id=secret.split("_")[1])


def project(name: str = "") -> Project:
    return project_create(name=name or f"project-{next(_number)}", actor=None, now=db_now())


def cluster(name: str = "", *, nodes: int = 2, gpus: int = 8, shape: str = SHAPE, is_heard: bool = True) -> Cluster:
    """With nodes `<name>-0`, ...; `is_heard`: with a live agent, so that the allocator may start boxes there."""
    made = cluster_create(name=name or f"cluster-{next(_number)}", actor=None, now=db_now())
    add_nodes(made, nodes, gpus=gpus, shape=shape)
    if is_heard:
        # Heard a little in the future: the slowest test must not outlive it.
        heard_at = db_now() + timedelta(minutes=1)
        AgentSession.objects.create(cluster=made, install_id="install", joined_at=db_now(), last_sync_at=heard_at)
    return made


def add_nodes(to: Cluster, node_count: int, *, gpus: int = 8, shape: str = SHAPE) -> None:
    known = [node_view(node.name, gpus=node.gpu_count, shape=node.shape) for node in Node.objects.filter(cluster=to)]
    new = [node_view(f"{to.name}-{len(known) + n}", gpus=gpus, shape=shape) for n in range(node_count)]
    inventory_store(cluster=to, nodes=known + new, now=db_now())


def node_view(name: str, *, gpus: int, shape: str) -> NodeView:
    views = tuple(GpuView(uuid=f"GPU-{name}-{i}", index=i, model=shape.split("-", maxsplit=1)[0], memory_gib=80) for i in range(gpus))
    return NodeView(name=name, uid=f"uid-{name}", shape=shape, node_type="hgx", gpus=views)


def make_slice(
    *clusters: Cluster, name: str = "", owner: User | None = None, viewers: Sequence[User] = (), of: Project | None = None
) -> Slice:
    made = slice_create(name=name or f"slice-{next(_number)}", project=of or project(), clusters=clusters, actor=None, now=db_now())
    if owner is not None:
        member_set(slice_=made, user=owner, role=Role.OWNER, actor=None, now=db_now())
    for viewer in viewers:
        member_set(slice_=made, user=viewer, role=Role.VIEWER, actor=None, now=db_now())
    return made


def spec(of: Slice, **changes: Any) -> GprSpec:
    return replace(GprSpec(name=f"gpr-{next(_number)}", slice=of, nodes=1, duration_s=3600, shape=SHAPE), **changes)


def gpr(of: Slice, by: User, **changes: Any) -> Gpr:
    """Submitted: it waits in the queue with a promise, or for approval."""
    return gpr_submit(actor=by, spec=spec(of, **changes), now=db_now())


def started(of: Slice, by: User, **changes: Any) -> Gpr:
    """PROVISIONING, with nodes."""
    made = gpr(of, by, **changes)
    tick(now=db_now())
    made.refresh_from_db()
    return made


def active(of: Slice, by: User, **changes: Any) -> Gpr:
    made = started(of, by, **changes)
    observe(made, Phase.ACTIVE)
    return made


def observe(of: Gpr, phase: Phase, *, at: datetime | None = None) -> None:
    """Its agent reports this phase of all its nodes, and the hub follows."""
    now = at or db_now()
    for row in held(of):
        reservation_observe(reservation=row, phase=phase, now=now, active_at=now if phase == Phase.ACTIVE else None)
    advance(now=now)
    of.refresh_from_db()


def held(of: Gpr) -> list[Reservation]:
    return list(Reservation.objects.filter(gpr=of, state=ReservationState.HELD).select_related("node").order_by("node__name"))
