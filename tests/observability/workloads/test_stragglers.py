"""A rank that stays behind its peers is named within two minutes, and none that does as they do."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from core.clock import db_now
from gpr.models import Gpr
from observability.workloads.measuring import workloads_step
from observability.workloads.models import Workload
from observability.workloads.selectors import gpus_of
from observability.workloads.stragglers import AFTER, GpuWork, behind_since, stragglers_of
from protocol.gpus.telemetry import EVERY_S, GpuReading
from slices.namespaces.services import namespace_bind
from tests import factories
from tests.builders import node_view, unique
from tests.observability.telemetry.saying import store
from tests.observability.workloads.saying import pods_of, tell
from worker_agent.cluster.base import GpuPhase, GpuRecord, NodeState
from worker_agent.telemetry.simulated import SLOW_SHARE, SimulatedTelemetry, WorkKind

EVERY = timedelta(seconds=EVERY_S)
T0 = datetime.fromisoformat("2026-11-27T12:00:00+00:00")


def work(number: int, *, at: datetime, use: int | None = 95, clock: int | None = 1980, model: str = "H100") -> GpuWork:
    return GpuWork(f"gpu-{number}", model, at, use, clock)


def after(steps: int, **slow: int | None) -> dict[str, str]:
    """Eight GPUs of which the first one does this."""
    behind: dict[str, str] = {}
    for step in range(steps):
        at = T0 + step * EVERY
        behind = behind_since([work(0, at=at, **slow), *(work(number, at=at) for number in range(1, 8))], behind)  # type: ignore[arg-type]
    return behind


@pytest.mark.parametrize("slow", [{"use": 70}, {"clock": 1500}])
def test_a_gpu_with_less_use_or_a_lower_clock_than_its_peers_is_behind_since_it_began(slow: dict[str, int]) -> None:
    assert after(8, **slow) == {"gpu-0": T0.isoformat()}


@pytest.mark.parametrize("slow", [{"use": 90}, {"use": None}, {"clock": None}])
def test_a_gpu_that_is_nearly_as_busy_or_was_not_measured_is_not(slow: dict[str, int | None]) -> None:
    assert after(8, **slow) == {}


def test_while_all_write_a_checkpoint_nobody_is_judged_and_nothing_is_forgotten() -> None:
    behind = after(4, use=60)
    quiet = [work(number, at=T0 + 4 * EVERY, use=20) for number in range(8)]

    assert behind_since(quiet, behind) == behind
    assert behind_since([work(number, at=T0, use=0 if number else 99) for number in range(3)], {}) == {}


def test_gpus_of_another_model_are_no_peers() -> None:
    mixed = [work(number, at=T0, use=95 if number < 4 else 40, model="H100" if number < 4 else "A10") for number in range(8)]

    assert behind_since(mixed, {}) == {}


@pytest.mark.django_db
@pytest.mark.both_databases
def test_the_straggler_of_a_simulated_gang_is_named_within_two_minutes() -> None:
    cluster = factories.cluster(unique("c"), nodes=2, gpus=8)
    owner = factories.user(unique("owner"))
    vision = factories.make_slice(cluster, owner=owner)
    namespace_bind(slice_=vision, cluster=cluster, name="vision-ns", actor=None, now=db_now())
    box: Gpr = factories.active(vision, owner, nodes=2)
    tell(cluster, *pods_of(box, "vision-ns"))
    gpus = [gpu.gpu for gpu in gpus_of([Workload.objects.get()])[Workload.objects.get().pk]]
    began = db_now()
    works = {"vision": WorkKind.TRAINING}
    telemetry, slow = next(
        (telemetry, slow)
        for telemetry in (SimulatedTelemetry(seed=str(seed), works=works) for seed in range(100))
        if len(slow := slow_gpus(telemetry, [gpu.uuid for gpu in gpus])) == 1
    )

    def said(at: datetime) -> list[GpuReading]:
        nodes = {}
        for row in factories.held(box):
            view = node_view(row.node.name, gpus=8)
            records = dict.fromkeys((gpu.uuid for gpu in view.gpus), record(str(box.pk), began.timestamp() - 600))
            nodes[row.node.name] = NodeState(view=view, version="1", records=records)
        return list(telemetry.read(nodes, at.timestamp))

    named_after = None
    for step in range(20):
        at = began + step * EVERY
        store(cluster, *said(at), now=at)
        workloads_step(now=at)
        if stragglers := stragglers_of(Workload.objects.get(), now=at):
            named_after = at - began
            break

    assert named_after
    assert AFTER <= named_after <= timedelta(minutes=2)
    assert {gpu.uuid for gpu in gpus if str(gpu.pk) in stragglers} == slow
    assert Workload.objects.get().straggler_count == 1


def record(gpr_id: str, active_s: float) -> GpuRecord:
    return GpuRecord(epoch=1, assignment_id="a", gpr_id=gpr_id, slice="vision", phase=GpuPhase.OPEN, active_s=active_s)


def slow_gpus(telemetry: SimulatedTelemetry, uuids: list[str]) -> set[str]:
    return {uuid for uuid in uuids if telemetry.luck(uuid, "is slow") < SLOW_SHARE}
