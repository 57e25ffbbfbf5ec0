"""The builders at the real time, which is what the API sees: a world of tenants for tests that speak HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from accounts.models import ApiToken, Login, PlatformRole, Scope, User
from accounts.sessions import Proof, login_start
from accounts.tokens.services import TokenTerms, token_create
from core.clock import db_now
from core.rest.output import utc_text
from gpr.allocation.advance import advance
from gpr.allocation.allocator import tick
from gpr.models import Gpr, GprTemplate, UsageDay
from gpr.requests.ending import gpr_release
from gpr.requests.services import gpr_submit
from gpr.requests.spec import GprSpec
from inventory.models import CheckPolicy, Cluster, Gpu, Node, Reservation, ReservationState, Supply, SupplyKind, SupplyOrder
from inventory.services.checks import check_policy_create
from inventory.services.inventory import inventory_store
from inventory.services.nodes import node_mark_faulty
from inventory.services.supplies import supply_create
from observability.models import RemediationCase
from observability.remediation.cases import cases_review, fault_add
from observability.remediation.faults import COUNTS, faults_of
from protocol.assignments import Phase
from slices.models import Project, Slice
from tests import builders
from tests.builders import SHAPE, agent_says, node_view, unique

MEMBER_SCOPES = (Scope.READ, Scope.WRITE)


@dataclass(frozen=True, slots=True)
class People:
    """`owner` owns the slice of most tests, `teammate` only looks at it, `outsider` has a slice of his own."""

    owner: User
    teammate: User
    outsider: User
    admin: User


def make_people() -> People:
    return People(user("owner"), user("teammate"), user("outsider"), user("admin", is_admin=True))


def user(name: str, *, is_admin: bool = False) -> User:
    return builders.make_user(name, is_admin=is_admin, at=db_now())


def token(of: User, *scopes: Scope, life: timedelta = timedelta(hours=1), slices: Sequence[str] = ()) -> str:
    """The secret of a new token; without scopes: all that its user may have."""
    chosen = scopes or (tuple(Scope) if of.role != PlatformRole.MEMBER else MEMBER_SCOPES)
    return token_create(user=of, terms=TokenTerms(name="test", scopes=chosen, life=life, slices=slices), actor=of, now=db_now()).plain


def login(of: User, *scopes: Scope) -> Login:
    """A browser's session that a new token has opened."""
    return login_start(proof=Proof(token=row_of(token(of, *scopes))), address="127.0.0.1", browser="Firefox", now=db_now())


def row_of(secret: str) -> ApiToken:
    return ApiToken.objects.get(key_id=secret.split("_")[1])


def project(name: str = "") -> Project:
    return builders.make_project(name, at=db_now())


def cluster(name: str = "", *, nodes: int = 2, gpus: int = 8, shape: str = SHAPE, is_heard: bool = True) -> Cluster:
    """Makes one with nodes `<name>-0`, ...; `is_heard` gives it a live agent, so that the allocator may start boxes there."""
    # Heard in the future: the slowest file of tests that share it must not outlive it.
    made = builders.make_cluster(name, is_heard=is_heard, at=db_now() + timedelta(hours=1))
    add_nodes(made, nodes, gpus=gpus, shape=shape)
    return made


def add_nodes(to: Cluster, node_count: int, *, gpus: int = 8, shape: str = SHAPE, memory_gib: int = 80) -> None:
    rows = Node.objects.filter(cluster=to)
    known = [node_view(node.name, gpus=node.gpu_count, shape=node.shape, memory_gib=node.gpu_memory_gib) for node in rows]
    new = [node_view(f"{to.name}-{len(known) + n}", gpus=gpus, shape=shape, memory_gib=memory_gib) for n in range(node_count)]
    inventory_store(cluster=to, nodes=known + new, now=db_now())


def make_slice(
    *clusters: Cluster, name: str = "", owner: User | None = None, viewers: Sequence[User] = (), of: Project | None = None
) -> Slice:
    return builders.make_slice(*clusters, name=name, owner=owner, viewers=viewers, project=of, at=db_now())


def spec(of: Slice, **changes: Any) -> GprSpec:
    return builders.spec(of, **{"name": unique("gpr"), **changes})


def gpr(of: Slice, by: User, **changes: Any) -> Gpr:
    """Submitted: it waits in the queue with a promise, or for approval."""
    return gpr_submit(actor=by, spec=spec(of, **changes), now=db_now())


def template(of: Slice | None, **fields: Any) -> GprTemplate:
    """Makes a row: what it says is not checked."""
    return GprTemplate.objects.create(**{"slice": of, "name": unique("template"), "created_at": db_now(), **fields})


def started(of: Slice, by: User, **changes: Any) -> Gpr:
    """Makes a GPR that is PROVISIONING, with nodes."""
    made = gpr(of, by, **changes)
    tick(now=db_now())
    made.refresh_from_db()
    return made


def active(of: Slice, by: User, **changes: Any) -> Gpr:
    made = started(of, by, **changes)
    observe(made, Phase.ACTIVE)
    return made


def usage_day(gpr: Gpr, day: date, *, held: float, measured: float = 0, worked: float = 0, **of: Any) -> UsageDay:
    """Hours that were counted of this GPR on this day. `of`: a workload."""
    hours = {"held_gpu_ms": held, "measured_gpu_ms": measured, "used_gpu_ms": worked}
    counted = {name: int(value * 3_600_000) for name, value in hours.items()}
    return UsageDay.objects.create(gpr=gpr, slice=gpr.slice, cluster=gpr.slice.clusters.all()[0], shape=SHAPE, day=day, **counted, **of)


def observe(of: Gpr, phase: Phase, *, at: datetime | None = None) -> None:
    """Its agent reports this phase of all its nodes, and the hub follows."""
    now = at or db_now()
    for row in held(of):
        agent_says(row, phase, now=now, active_at=now if phase == Phase.ACTIVE else None)
    advance(now=now)
    of.refresh_from_db()


def held(of: Gpr) -> list[Reservation]:
    return list(Reservation.objects.filter(gpr=of, state=ReservationState.HELD).select_related("node").order_by("node__name"))


def noticed(victim_of: Slice, owner: User, to: Slice, by: User, **changes: Any) -> tuple[Gpr, Gpr]:
    """One that holds two nodes for a day and has notice, and the one of `to` that it makes way for. The rules are the test's to set."""
    Slice.objects.filter(pk=to.pk).update(may_evict=True)
    to.refresh_from_db()
    victim = active(victim_of, owner, **{"name": "victim", "nodes": 2, "duration_s": 86_400, "priority": 50, **changes})
    beneficiary = gpr(to, by, name="canary", nodes=2, priority=150, may_evict=True)
    victim.refresh_from_db()
    return victim, beneficiary


def scattered(at: Cluster, by: User, to: Slice, waiter: User) -> tuple[Gpr, Gpr]:
    """Two nodes have eight GPUs each: a box could move from the first to the second, and one of `to` waits for a whole node.

    The rules are the test's to set.
    """
    leaves, stays, moves = (
        active(make_slice(at, owner=by), by, name=name, nodes=1, gpus_per_node=gpus, duration_s=86_400)
        for name, gpus in (("leaves", 6), ("stays", 4), ("scattered", 2))
    )
    gpr_release(gpr=leaves, actor=by, now=db_now())
    for phase in (Phase.EXITING, Phase.RELEASED):
        observe(leaves, phase)
    waits = gpr(to, waiter, name="whole-node", nodes=1, duration_s=4 * 3600)
    tick(now=db_now())
    for row in (stays, moves, waits):
        row.refresh_from_db()
    return moves, waits


def supply(of: Cluster, **changes: Any) -> Supply:
    """It brings two nodes of eight GPUs in twenty minutes, if a box starts ten minutes sooner by that."""
    given: dict[str, Any] = {"name": unique("supply"), "kind": SupplyKind.NODE_POOL, "shape": SHAPE, "gpus_per_node": 8}
    given |= {"gpu_memory_gib": 80, "node_count": 2, "lead_time_s": 1200, "gain_s": 600, "cluster": of}
    return supply_create(supply=Supply(**{**given, **changes}), actor=user(unique("buyer"), is_admin=True), now=db_now())


def check_policy(of: Cluster, **changes: Any) -> CheckPolicy:
    given: dict[str, Any] = {"limits": {"nccl_bandwidth": 430.0}, "cluster": of}
    actor = user(unique("checker"), is_admin=True)
    return check_policy_create(policy=CheckPolicy(**{**given, **changes}), actor=actor, now=db_now())


def case(of: Cluster, *, xid: int = 122) -> RemediationCase:
    """Makes the case of another free node, which reported this Xid. After 122 it needs a person."""
    now, name = db_now(), unique("aside")
    kind = {"shape": SHAPE, "gpu_count": 2, "gpu_memory_gib": 80, "seen_at": now}
    node = Node.objects.create(cluster=of, name=name, uid=f"uid-{name}", **kind)
    Gpu.objects.bulk_create(Gpu(node=node, uuid=f"{name}-{n}", index=n, model="H100", memory_gib=80) for n in range(2))
    fault = next(faults_of(dict.fromkeys(COUNTS, 0) | {"xid": xid, "xid_counts": ""}, None, {}, limits={}))
    node_mark_faulty(node=node, why=f"GPU 1 {fault.text}.", code=fault.code, now=now)
    evidence = {"at": utc_text(now), "gpu": 1, "uuid": "GPU-x", "metric": "xid", "value": xid, "before": 0}
    fault_add(node=node, evidence=[{**evidence, "text": fault.text, "action": str(fault.action)}], faults=[fault], now=now)
    cases_review(now=now)
    return RemediationCase.objects.get(node=node, closed_at=None)


def supply_order(of: Cluster, for_gpr: Gpr) -> SupplyOrder:
    """A bare row: no slot stands on it."""
    now, source = db_now(), supply(of)
    expected_at = now + timedelta(seconds=source.lead_time_s)
    return SupplyOrder.objects.create(supply=source, gpr=for_gpr, ordered_at=now, expected_at=expected_at)
