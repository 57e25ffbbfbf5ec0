"""Makes a hub with 10,000 GPUs on PostgreSQL: 500 boxes with pods, readings of some hours, 30 days of usage, and lists of 10,000 rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from bench.hub.world import ENTRY, agent_says, cluster_made, slices_made, statistics_renewed

if TYPE_CHECKING:
    from tests.inventory.agent import Agent

SHAPE: Final = "H100-80GB"
NODES, GPUS = 1250, 8
BOXES, NODES_OF_BOX = 500, 2
BOXES_SINCE: Final = timedelta(minutes=30)
DAYS, BOXES_A_DAY, DAYS_OF_BOX = 30, 500, 3
ROWS: Final = 10_000  # of each list
ROWS_AT_ONCE: Final = 2_000
# How far back each course is filled: what the longest window of a default rule reads.
REACH: Final = {"15s": ("15 seconds", "31 minutes"), "1m": ("1 minute", "90 minutes"), "10m": ("10 minutes", "8 hours")}


@dataclass(frozen=True, slots=True)
class LargeFleet:
    admin: Any
    member: Any  # an owner of ten workspaces
    cluster: Any
    slices: list[Any]
    agent: Agent


def fleet_made() -> LargeFleet:
    from accounts.models import PlatformRole
    from accounts.people.services import user_create
    from core.clock import db_now
    from slices.models import Role
    from slices.services import member_set

    now = db_now()
    admin = user_create(name="root", role=PlatformRole.ADMIN, now=now)
    member = user_create(name="mia", now=now)
    cluster, agent = cluster_made("aurora", shape=SHAPE, node_count=NODES, gpus=GPUS, now=now)
    _racks(cluster)
    _, slices = slices_made("p", BOXES, cluster, now=now, nodes_approval=NODES, gpus_approval=NODES * GPUS, idle_timeout_s=86_400)
    for slice_ in slices[:10]:
        member_set(slice_=slice_, user=member, role=Role.OWNER, actor=None, now=now)
    statistics_renewed()
    fleet = LargeFleet(admin, member, cluster, slices, agent)
    _boxes(fleet)
    _readings()
    _workloads(fleet)
    _past(fleet)
    _alerts(fleet)
    _vacuum()
    return fleet


def _vacuum() -> None:
    """Does what autovacuum does meanwhile: it also summarizes the indexes of times."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")


def _racks(cluster: Any) -> None:
    from inventory.models import Node

    nodes = list(Node.objects.filter(cluster=cluster).order_by("name"))
    for number, node in enumerate(nodes):
        node.rack = f"rack-{number // 8:03}"
    Node.objects.bulk_update(nodes, ["rack"], batch_size=ROWS_AT_ONCE)


def _boxes(fleet: LargeFleet) -> None:
    from core.clock import db_now
    from gpr.allocation.allocator import tick
    from gpr.models import Gpr, GprState
    from gpr.requests.services import gprs_submit
    from gpr.requests.spec import GprSpec
    from inventory.models import AgentSession, Reservation, ReservationState, ReservedGpu

    def ticked() -> None:
        AgentSession.objects.filter(cluster=fleet.cluster).update(last_sync_at=db_now() + timedelta(hours=3))
        if tick() is None:
            raise RuntimeError("somebody else ticks")

    asks: dict[str, Any] = {"nodes": NODES_OF_BOX, "duration_s": 86_400, "shape": SHAPE}
    gprs_submit(actor=fleet.admin, specs=[GprSpec(name="train", slice=slice_, **asks) for slice_ in fleet.slices], now=db_now())
    ticked()
    agent_says(fleet.agent, list(Reservation.objects.filter(state=ReservationState.HELD, active_at=None)), ENTRY, now=db_now())
    ticked()
    if Gpr.objects.filter(state=GprState.ACTIVE).count() != BOXES:
        raise RuntimeError("not all boxes are active")
    began_at = db_now() - BOXES_SINCE
    Reservation.objects.update(starts_at=began_at, active_at=began_at)
    ReservedGpu.objects.update(starts_at=began_at)
    Gpr.objects.filter(state=GprState.ACTIVE).update(active_at=began_at)


def _readings() -> None:
    """GPUs of every tenth box do nothing."""
    from django.db import connection

    from core.clock import db_now
    from inventory.models import Gpu
    from observability.models import LEVELS, LatestReading, RollUpProgress
    from observability.telemetry.partitions import AHEAD, partitions_ensure

    now = db_now()
    for model in LEVELS:
        partitions_ensure(model, (now - timedelta(days=day) for day in range(-AHEAD.days, 5)))
    names = "temperature_c, utilization_percent, power_w, memory_used_mib, sm_clock_mhz, throttled_percent, new_faults"
    values = "40 + (h * 7 + n) % 38, CASE WHEN h % 10 = 0 THEN 0 ELSE 60 + h % 40 END, 300 + (h + n) % 300, 40000 + h % 40000, 1500, 0, 0"
    gpus = "SELECT id, abs(hashtext(node_id::text)) % 1000 AS h, index AS n FROM inventory_gpu"
    later = values.replace("+ n)", "+ n + extract(epoch FROM step)::int / 60)")
    told = {"at": now, "xid": 0, "ecc_corrected": 0, "rows_failed": 0}
    LatestReading.objects.bulk_create((LatestReading(gpu=gpu, **told) for gpu in Gpu.objects.all()), batch_size=ROWS_AT_ONCE)
    with connection.cursor() as cursor:
        latest = f"UPDATE observability_latestreading SET ({names}) = ROW({values}) FROM ({gpus}) AS gpu WHERE gpu.id = gpu_id"  # noqa: S608
        cursor.execute(latest)
        for level, (step, reach) in REACH.items():
            steps = f"generate_series(date_bin('{step}', now() - interval '{reach}', 'epoch'), now(), interval '{step}') AS step"
            course = f"INSERT INTO observability_reading{level} (series_id, at, {names}) SELECT latest.id, step, {later}"
            rows = f"observability_latestreading AS latest JOIN ({gpus}) AS gpu ON gpu.id = gpu_id, {steps}"
            cursor.execute(f"{course} FROM {rows} ORDER BY step")
    done_at = now.replace(second=0, microsecond=0) - timedelta(minutes=2)
    for model in LEVELS[1:]:
        at = done_at.replace(minute=done_at.minute // 10 * 10) if model is LEVELS[2] else done_at
        RollUpProgress.objects.create(table=model._meta.db_table, done_at=at)


def readings_renewed() -> None:
    """The newest reading of each GPU is of now, as agents would have it."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("UPDATE observability_latestreading SET at = now()")


def _workloads(fleet: LargeFleet) -> None:
    """Makes one for each box, with a pod for each GPU; the others have ended."""
    from core.clock import db_now
    from inventory.models import Reservation
    from observability.workloads.models import Pod, Workload, WorkloadState

    now = db_now()
    began_at = now - BOXES_SINCE
    running, pods = [], []
    boxes: dict[Any, list[Any]] = {}
    for row in Reservation.objects.select_related("node", "gpr").prefetch_related("gpus").order_by("node__name"):
        boxes.setdefault(row.gpr, []).append(row)
    common = {"cluster": fleet.cluster, "api": "kubeflow.org/v1", "kind": "PyTorchJob", "model": "llama", "framework": "PyTorch"}
    for gpr, rows in boxes.items():
        count = len(rows) * GPUS
        one = Workload(
            slice_id=gpr.slice_id, namespace=f"ns-{gpr.slice_id}"[:63], uid=str(uuid4()), name="train", created_at=now,
            state=WorkloadState.RUNNING, pods_running=count, gpus_held=count, config={"gpus": 1}, **common,
        )  # fmt: skip
        running.append((one, gpr))
        gpus = [(row.node.name, reserved.gpu_id) for row in rows for reserved in row.gpus.all()]
        pods += [
            Pod(
                workload=one, cluster=fleet.cluster, uid=str(uuid4()), name=f"train-{rank}", created_at=began_at, started_at=began_at,
                phase="Running", gpr=gpr, node=node, gpu_count=1, gpus=[str(gpu_id)], rank=rank, role="worker",
            )
            for rank, (node, gpu_id) in enumerate(gpus)
        ]  # fmt: skip
    slices = [slice_.pk for slice_ in fleet.slices]
    ended = [
        Workload(
            slice_id=slices[number % len(slices)], namespace="old", uid=str(uuid4()), name=f"old-{number}",
            created_at=now - timedelta(minutes=number), ended_at=now - timedelta(seconds=number), state=WorkloadState.ENDED, **common,
        )
        for number in range(ROWS - len(running))
    ]  # fmt: skip
    pods += [
        Pod(
            workload=ended[number], cluster=fleet.cluster, uid=str(uuid4()), name=f"old-{number}-0", created_at=now, gone_at=now,
            phase="Succeeded", gpu_count=1,
        )
        for number in range(ROWS - len(pods))
    ]  # fmt: skip
    Workload.objects.bulk_create([one for one, _ in running] + ended, batch_size=ROWS_AT_ONCE)
    Workload.gprs.through.objects.bulk_create(Workload.gprs.through(workload=one, gpr=gpr) for one, gpr in running)
    Pod.objects.bulk_create(pods, batch_size=ROWS_AT_ONCE)


def _past(fleet: LargeFleet) -> None:
    """Makes boxes of DAYS_OF_BOX days each, which ended, and their usage."""
    from core.clock import db_now
    from gpr.models import Gpr, GprState, ShapePrice, UsageDay, UsageProgress

    now = db_now()
    today = now.date()
    gprs, usage = [], []
    for first in range(DAYS, 0, -DAYS_OF_BOX):
        begin = now - timedelta(days=first)
        times = {"created_at": begin, "queued_at": begin, "state_changed_at": begin, "state": GprState.QUEUED}
        length_s = DAYS_OF_BOX * 86_400
        for number in range(BOXES_A_DAY):
            slice_ = fleet.slices[number % len(fleet.slices)]
            ask = {"shape": SHAPE, "nodes": NODES_OF_BOX, "duration_s": length_s, "remaining_s": length_s}
            gpr = Gpr(name=f"past-{first}-{number}", slice=slice_, owner=fleet.admin, cluster=fleet.cluster, **ask, **times)
            gprs.append(gpr)
            held_ms = NODES_OF_BOX * GPUS * 86_400_000
            figures = {"held_gpu_ms": held_ms, "measured_gpu_ms": held_ms * 9 // 10, "used_gpu_ms": held_ms * (number % 9) // 10}
            usage += [
                UsageDay(gpr=gpr, slice=slice_, cluster=fleet.cluster, shape=SHAPE, day=today - timedelta(days=first - day), **figures)
                for day in range(DAYS_OF_BOX)
            ]
    Gpr.objects.bulk_create(gprs, batch_size=ROWS_AT_ONCE)
    # The database allows no shorter way to an end.
    Gpr.objects.filter(name__startswith="past-").update(state=GprState.CANCELED, ended_at=now - timedelta(days=1))
    UsageDay.objects.bulk_create(usage, batch_size=ROWS_AT_ONCE)
    ShapePrice.objects.create(shape=SHAPE, from_day=today - timedelta(days=60), gpu_hour_price="2.50", set_at=now, set_by=fleet.admin)

    midnight, minute = now.replace(hour=0, minute=0, second=0, microsecond=0), now.replace(second=0, microsecond=0)
    UsageProgress.objects.create(pk=1, held_until_at=midnight, measured_until_at=minute - timedelta(minutes=12))


def _alerts(fleet: LargeFleet) -> None:
    """All but some are over."""
    from core.clock import db_now
    from observability.alerts.defaults import defaults_ensure
    from observability.alerts.models import Alert, AlertRule, AlertState

    now = db_now()
    defaults_ensure(now=now)
    rules = list(AlertRule.objects.filter(is_on=True))
    rows = []
    for number in range(ROWS):
        at = now - timedelta(minutes=number * 4)
        of = {"rule": rules[number % len(rules)], "severity": rules[number % len(rules)].severity, "cluster": fleet.cluster}
        over = {"state": AlertState.RESOLVED, "resolved_at": at + timedelta(minutes=20)}
        rows.append(Alert(began_at=at, joined_at=at, fired_at=at, places=f"n{number} GPU 0", most_count=1, **of, **over))
    Alert.objects.bulk_create(rows, batch_size=ROWS_AT_ONCE)
