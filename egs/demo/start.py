"""Makes tenants, users, two simulated clusters with real agents, and nodes to order."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from django.conf import settings
from django.db import connections, transaction
from msgspec import structs

from accounts.models import PlatformRole, Scope, User
from accounts.people.services import user_create
from accounts.tokens.services import token_issue
from core.clock import db_now
from inventory.models import Cluster, Supply, SupplyKind
from inventory.selectors import gpus_of_shape
from inventory.services.clusters import cluster_create, join_token_issue
from inventory.services.supplies import supply_create
from slices.models import Project, Quota, Role, Slice
from slices.namespaces.services import namespace_bind
from slices.policies.services import policy_change, policy_of
from slices.quotas.services import QuotaChange, quota_create
from slices.services import member_set, project_create, slice_create
from worker_agent.clock import SystemClock
from worker_agent.cluster.fleet import SimulatedFleet, read_fleet
from worker_agent.cluster.simulated import SimulatedCluster
from worker_agent.cluster.store import FileStore
from worker_agent.hub.requests import SimulatedRequests
from worker_agent.hub.transport import Http
from worker_agent.hub.workloads import SimulatedWorkloads
from worker_agent.hub.workspaces import SimulatedTenancy
from worker_agent.log import Log
from worker_agent.process import Process
from worker_agent.telemetry.simulated import SimulatedTelemetry
from worker_agent.telemetry.simulated_pods import SimulatedPods

ADMIN = "root"
FLEETS = {"aurora": "demo-a.yaml", "borealis": "demo-b.yaml"}
Tenants = Mapping[str, tuple[str, tuple[str, ...], dict[str, Role]]]
# slice -> (project, clusters, members)
SLICES: Tenants = {
    "vision": ("perception", ("aurora", "borealis"), {"ada": Role.OWNER, "ben": Role.EDITOR}),
    "speech": ("perception", ("aurora",), {"ben": Role.OWNER, "ada": Role.VIEWER}),
    "language": ("foundation", ("aurora", "borealis"), {"cleo": Role.OWNER}),
    "agents": ("foundation", ("borealis",), {"cleo": Role.OWNER, "dan": Role.EDITOR}),
}
# Each project is guaranteed half of the GPUs of borealis; what it takes beyond is borrowed until the other project asks.
QUOTA_SHAPE, QUOTA_GPUS = "A100-80GB", 32
QUOTAS: dict[str, QuotaChange] = {
    "perception": {"guaranteed_gpus": 16},
    "vision": {"guaranteed_gpus": 8, "most_gpus": 32},
    "foundation": {"guaranteed_gpus": 16},
    "language": {"guaranteed_gpus": 8},
    "agents": {"guaranteed_gpus": 8, "most_gpus": 16},
}
# Nodes that exist only after a request of this workspace orders them; the simulated cluster's fleet file describes them.
SUPPLY_CLUSTER, SUPPLY_SLICE = "aurora", "vision"
SUPPLY = {"name": "h200-pool", "kind": SupplyKind.NODE_POOL, "shape": "H200-141GB", "gpus_per_node": 8, "gpu_memory_gib": 141}
SUPPLY |= {"node_count": 2, "lead_time_s": 60, "gain_s": 600}
TOKEN_LIFE = timedelta(days=30)
JOIN_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class DemoTokens:
    admin: str
    user: str


def seed(*, now: datetime, tenants: Tenants = SLICES) -> None:
    """Makes tenants and users that do not exist yet."""
    admin = _user(ADMIN, role=PlatformRole.ADMIN, now=now)
    clusters = {name: _cluster(name, now) for name in FLEETS}
    for name, (project, cluster_names, members) in tenants.items():
        _slice(name, project, [clusters[c] for c in cluster_names], members, now)
    _supply(clusters[SUPPLY_CLUSTER], admin, now)


def tokens_issue(*, now: datetime) -> DemoTokens:
    """Issues new ones for one administrator and one user."""
    return DemoTokens(
        admin=_token(_user(ADMIN, now=now), list(Scope), now),
        user=_token(_user("ada", now=now), [Scope.READ, Scope.WRITE], now),
    )


def fleet_of(cluster: str) -> SimulatedFleet:
    return read_fleet(settings.BASE_DIR / "deploy" / "fleets" / FLEETS[cluster])


def store_of(cluster: str) -> FileStore:
    return FileStore(settings.EGS_VAR_DIR / "demo" / cluster)


def agents(*, url: str, now: datetime, works: Mapping[str, str], slowdown: float) -> list[Process]:
    """Makes one real agent for each simulated cluster.

    `works`: kinds of work by ids of workspaces; others get one by chance. `slowdown`: how much longer steps take than the file says.
    """
    made = []
    for name in FLEETS:
        _, join_token = join_token_issue(cluster=Cluster.objects.get(name=name), actor=None, now=now)
        clock, fleet = SystemClock(), fleet_of(name)
        fleet = structs.replace(fleet, step_s={step: slowdown * seconds for step, seconds in fleet.step_s.items()})
        cluster = SimulatedCluster(fleet=fleet, store=store_of(name), clock=clock)
        telemetry = SimulatedTelemetry(seed=name, works=works, xids=cluster.xids)
        made.append(
            Process(
                cluster=cluster,
                tenancy=SimulatedTenancy(),
                requests=SimulatedRequests(),
                workloads=SimulatedWorkloads(job_s=fleet.job_s),
                telemetry=telemetry,
                pods=SimulatedPods(telemetry),
                connect=lambda: Http(url),
                join_token=partial(str, join_token),
                clock=clock,
                log=Log(clock),
            )
        )
    return made


def agents_start(processes: Sequence[Process]) -> None:
    for process in processes:
        threading.Thread(target=process.run, name="egs-agent", daemon=True).start()


def when_joined(then: Callable[[], None], *, since: datetime) -> None:
    """Starts a thread that waits for the fleet, makes the quotas (they need GPUs that exist) and calls `then`."""
    threading.Thread(target=_when_joined, args=(then, since), name="egs-demo-joining", daemon=True).start()


def has_joined(*, since: datetime) -> bool:
    """Tell whether every agent has synced since then and has reported nodes."""
    heard = Cluster.objects.filter(name__in=FLEETS, agent__last_sync_at__gte=since)
    return heard.filter(nodes__gone_at=None, nodes__isnull=False).distinct().count() == len(FLEETS)


@transaction.atomic
def quotas_seed(*, now: datetime) -> bool:
    """Does nothing if there is a quota of this shape. False while its GPUs have not joined."""
    if Quota.objects.filter(shape=QUOTA_SHAPE).exists():
        return True
    if gpus_of_shape(QUOTA_SHAPE) < QUOTA_GPUS:
        return False
    for name, terms in QUOTAS.items():
        owner = Project.objects.filter(name=name).first() or Slice.objects.get(name=name)
        quota_create(owner=owner, shape=QUOTA_SHAPE, change=terms, actor=None, now=now)
    return True


def demo_json() -> Path:
    """Tells scripts the URL and the tokens while the demo is ready."""
    return Path(settings.EGS_VAR_DIR) / "demo.json"


def announce(*, url: str, tokens: DemoTokens) -> Path:
    path = demo_json()
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(json.dumps({"url": url, "admin_token": tokens.admin, "user_token": tokens.user}, indent=2) + "\n")
    return path


def _when_joined(then: Callable[[], None], since: datetime) -> None:
    try:
        while not (has_joined(since=since) and quotas_seed(now=db_now())):
            time.sleep(JOIN_LOOK_S)
        then()
    finally:
        connections.close_all()


def _user(name: str, *, now: datetime, role: PlatformRole = PlatformRole.MEMBER) -> User:
    return User.objects.filter(name=name).first() or user_create(name=name, role=role, now=now)


def _token(user: User, scopes: list[Scope], now: datetime) -> str:
    return token_issue(user=user, name="demo", scopes=scopes, life=TOKEN_LIFE, now=now).plain


def _cluster(name: str, now: datetime) -> Cluster:
    return Cluster.objects.filter(name=name).first() or cluster_create(name=name, actor=None, now=now)


def _slice(name: str, project: str, clusters: list[Cluster], members: dict[str, Role], now: datetime) -> None:
    if Slice.objects.filter(name=name).exists():
        return
    owner = Project.objects.filter(name=project).first() or project_create(name=project, actor=None, now=now)
    slice_ = slice_create(name=name, project=owner, clusters=clusters, actor=None, now=now)
    # Owners first: a workspace must always have one.
    for member, role in sorted(members.items(), key=lambda item: item[1] != Role.OWNER):
        member_set(slice_=slice_, user=_user(member, now=now), role=role, actor=None, now=now)
    for cluster in clusters:
        namespace_bind(slice_=slice_, cluster=cluster, name=name, actor=None, now=now)


def _supply(cluster: Cluster, admin: User, now: datetime) -> None:
    if Supply.objects.filter(cluster=cluster).exists():
        return
    supply_create(supply=Supply(cluster=cluster, **SUPPLY), actor=admin, now=now)
    policy_change(policy=policy_of(Slice.objects.get(name=SUPPLY_SLICE)), terms={"may_order": True}, actor=admin, now=now)
