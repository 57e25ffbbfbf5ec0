"""Writes readings of the two weeks that were played, as roll-ups leave them, since no service takes readings of long ago; and tells the
workloads that ran meanwhile.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from math import ceil
from operator import add
from typing import Final
from uuid import UUID

from django.db import connection, transaction

from core.clock import db_now
from egs.demo.start import FLEETS, fleet_of
from gpr.usage.services import NOTHING, UsageKey, Work, day_of, measured_add, progress_lock
from inventory.models import Cluster, Gpu, ReservedGpu
from inventory.services.agents import AgentIdentity
from observability.models import LEVELS, LatestReading, Reading, Reading1m, Reading10m, Reading15s, RollUpProgress
from observability.telemetry.services import step_floor
from observability.usage.services import usage_step
from observability.workloads.holders import names_of
from observability.workloads.models import Pod, Workload
from observability.workloads.services import pods_store
from protocol.gpus.telemetry import NAMES, SERIES
from protocol.nodes.inventory import GpuView
from protocol.pods import PodSeen, PodsRequest
from slices.models import Namespace
from worker_agent.cluster.base import GpuPhase, GpuRecord
from worker_agent.telemetry.simulated import SimulatedTelemetry
from worker_agent.telemetry.simulated_pods import SimulatedBox, SimulatedPods

# The newest come first.
REACH: Final[Mapping[type[Reading], timedelta]] = {
    Reading15s: timedelta(hours=1),
    Reading1m: timedelta(hours=12),
    Reading10m: timedelta(days=14),
}
HOUR_S: Final = 3600
DAY_S: Final = 86_400
FIRST_LOOK_S: Final = 1234  # into a box, neither while it loads nor at a checkpoint
ROWS_AT_ONCE: Final = 500
PAUSE_S: Final = 0.03  # between them: the visitor's pages come first
_PLACES: Final = tuple(NAMES.index(metric.name) for metric in SERIES)
_USE: Final = NAMES.index("utilization_percent")
_NAMES: Final = ", ".join(metric.name for metric in SERIES)
RunKey = tuple[str, int]  # request and run
Row = tuple[int | str | None, ...]  # series, time, values
_MARKS: Final = ", ".join(["%s"] * len(SERIES))


@dataclass(frozen=True, slots=True)
class _PastBox:
    begin_s: float
    end_s: float
    record: GpuRecord

    @property
    def run_key(self) -> RunKey:
        return self.record.gpr_id, self.record.run


@dataclass(frozen=True, slots=True)
class _Course:
    """Holds of one GPU the id of its rows, and the boxes that held it, in order."""

    series_id: int
    cluster: str
    node: str
    gpu: GpuView
    telemetry: SimulatedTelemetry
    boxes: list[_PastBox] = field(default_factory=list)

    def row(self, at_s: float) -> Row:
        record = next((box.record for box in self.boxes if box.begin_s <= at_s < box.end_s), None)
        values = self.telemetry.values(self.gpu, record, at_s)
        at = connection.ops.adapt_datetimefield_value(datetime.fromtimestamp(at_s, UTC))
        return self.series_id, at, *(None if (value := values[place]) is None else round(value) for place in _PLACES)


@dataclass(slots=True)
class _PastRun:
    record: GpuRecord  # of any of its GPUs
    simulated: SimulatedPods
    gpus: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))  # by node
    end_s: float = 0.0

    def pods(self, namespace: str) -> Iterator[PodSeen]:
        return self.simulated.pods_of(SimulatedBox(self.record, {node: tuple(gpus) for node, gpus in self.gpus.items()}), namespace)


def old_readings_write(*, works: Mapping[str, str]) -> None:
    while Gpu.objects.filter(gone_at=None, latest_reading=None).exists():
        time.sleep(PAUSE_S)
    now = db_now()
    courses = _courses_of(dict(LatestReading.objects.values_list("gpu__uuid", "pk")), works, now)
    for model, reach in REACH.items():
        rows = _rows(model, courses, now - reach, now)
        while some := list(islice(rows, ROWS_AT_ONCE)):
            sql = f"INSERT INTO {model._meta.db_table} (series_id, at, {_NAMES}) VALUES (%s, %s, {_MARKS}) ON CONFLICT DO NOTHING"  # noqa: S608
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.executemany(sql, some)
            time.sleep(PAUSE_S)


def old_use_count(*, works: Mapping[str, str], now: datetime) -> None:
    """Counts what the boxes of the past used, by one reading in each hour of a box."""
    found: dict[UsageKey, Work] = defaultdict(lambda: NOTHING)
    shapes = dict(Gpu.objects.values_list("uuid", "node__shape"))
    clusters = dict(Gpu.objects.values_list("uuid", "node__cluster"))
    courses = _courses_of(dict.fromkeys(shapes, 0), works, now)
    workloads = _workloads_tell(courses, now)
    for course in courses:
        uuid = course.gpu.uuid
        for box in course.boxes:
            of = UUID(box.record.gpr_id), UUID(box.record.slice), clusters[uuid], shapes[uuid]
            for begin_s, end_s in _stretches(box):
                percent = course.telemetry.values(course.gpu, box.record, min(begin_s + FIRST_LOOK_S, end_s))[_USE] or 0.0
                key = UsageKey(*of, day_of(datetime.fromtimestamp(begin_s, UTC)), workloads[box.run_key])
                length_ms = (end_s - begin_s) * 1000
                found[key] = Work(*map(add, found[key], (length_ms, length_ms, round(percent * length_ms / 100))))
    usage_step(now=now)
    for model in LEVELS[1:]:  # old_readings_write() writes what they have of the time before
        RollUpProgress.objects.update_or_create(table=model._meta.db_table, defaults={"done_at": step_floor(now, model)})
    next_minute = step_floor(now, Reading1m) + Reading1m.STEP
    with transaction.atomic():
        measured_add(progress_lock(), found, names_of(set(workloads.values())), until_at=next_minute)
    _workloads_sum_up(found)


def _workloads_tell(courses: Sequence[_Course], now: datetime) -> dict[RunKey, UUID]:
    """Tells the pods of all boxes, and of those that are over that they have ended."""
    workload_of: dict[RunKey, UUID] = {}
    for name in FLEETS:
        cluster = Cluster.objects.select_related("agent").get(name=name)
        agent, session_epoch = AgentIdentity(cluster, 0), cluster.agent.session_epoch
        namespace_of = {str(pk): name for pk, name in Namespace.objects.filter(cluster=cluster).values_list("slice", "name")}
        pods: dict[RunKey, list[PodSeen]] = {}
        gone: dict[float, list[str]] = defaultdict(list)
        for key, run in _runs(course for course in courses if course.cluster == name).items():
            pods[key] = list(run.pods(namespace_of[run.record.slice]))
            gone[run.end_s] += [pod.uid for pod in pods[key]]
        said = PodsRequest(session_epoch=session_epoch, pods=tuple(chain.from_iterable(pods.values())))
        pods_store(agent=agent, message=said, now=now)
        for end_s, uids in gone.items():
            if end_s < now.timestamp():
                over = PodsRequest(session_epoch=session_epoch, gone=tuple(uids))
                pods_store(agent=agent, message=over, now=datetime.fromtimestamp(end_s, UTC))
        known = dict(Pod.objects.filter(cluster=cluster).values_list("uid", "workload"))
        workload_of |= {key: known[of_run[0].uid] for key, of_run in pods.items()}
    return workload_of


def _runs(courses: Iterable[_Course]) -> dict[RunKey, _PastRun]:
    runs: dict[RunKey, _PastRun] = {}
    for course in courses:
        for box in course.boxes:
            run = runs.setdefault(box.run_key, _PastRun(box.record, SimulatedPods(course.telemetry)))
            run.gpus[course.node].append(course.gpu.uuid)
            run.end_s = max(run.end_s, box.end_s)
    return runs


def _workloads_sum_up(found: Mapping[UsageKey, Work]) -> None:
    """Stores what each workload did since its start, as measurements do."""
    sums: dict[UUID, Work] = defaultdict(lambda: NOTHING)
    for key, work in found.items():
        sums[key.workload] = Work(*map(add, sums[key.workload], work))
    rows = list(Workload.objects.filter(pk__in=sums))
    for row in rows:
        row.held_gpu_s, row.used_gpu_s = sums[row.pk].measured_ms / 1000, sums[row.pk].used_ms / 1000
    Workload.objects.bulk_update(rows, ["held_gpu_s", "used_gpu_s"])


def _stretches(box: _PastBox) -> Iterator[tuple[int, int]]:
    """Returns its hours, each within one day, and no second beyond its end."""
    begin_s, end_s = ceil(box.begin_s), int(box.end_s)
    while begin_s < end_s:
        until_s = min(begin_s + HOUR_S, (begin_s // DAY_S + 1) * DAY_S, end_s)
        yield begin_s, until_s
        begin_s = until_s


def _rows(model: type[Reading], courses: list[_Course], since: datetime, until: datetime) -> Iterator[Row]:
    step_s = int(model.STEP.total_seconds())
    first, last = (int(moment.timestamp()) // step_s for moment in (since, until))
    for number in range(last - 1, first, -1):
        yield from (course.row(number * step_s) for course in courses)


def _courses_of(series: Mapping[str, int], works: Mapping[str, str], now: datetime) -> list[_Course]:
    """Takes as `series` the ids of courses by UUID of GPU."""
    boxes = _boxes(now)
    made = []
    for cluster in FLEETS:
        telemetry = SimulatedTelemetry(seed=cluster, works=works)
        gpus = ((node.name, gpu) for node in fleet_of(cluster).nodes() for gpu in node.gpus if gpu.uuid in series)
        made += [_Course(series[gpu.uuid], cluster, node, gpu, telemetry, boxes[gpu.uuid]) for node, gpu in gpus]
    return made


def _boxes(now: datetime) -> dict[str, list[_PastBox]]:
    rows = ReservedGpu.objects.filter(reservation__active_at__isnull=False).order_by("-starts_at")
    names = ("active_at", "joined_at", "exit_began_at", "released_at", "slice", "gpr", "epoch", "run")
    found: dict[str, list[_PastBox]] = defaultdict(list)
    for row in rows.values_list("gpu__uuid", *(f"reservation__{name}" for name in names)):
        uuid, active_at, joined_at, exit_began_at, released_at, slice_id, gpr_id, epoch, run = row
        begin_at, end_at = max(active_at, joined_at or active_at), exit_began_at or released_at or now
        record = GpuRecord(
            epoch=epoch,
            assignment_id="",
            gpr_id=str(gpr_id),
            slice=str(slice_id),
            phase=GpuPhase.OPEN,
            run=run,
            active_s=begin_at.timestamp(),
        )
        found[uuid].append(_PastBox(begin_at.timestamp(), end_at.timestamp(), record))
    return found
