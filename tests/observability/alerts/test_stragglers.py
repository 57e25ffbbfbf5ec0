"""A GPU that stays behind the others of its job is told to the owner of the box, once, and to nobody else."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from gpr.models import Gpr
from observability.alerts.models import Alert, AlertState
from observability.workloads.measuring import workloads_step
from observability.workloads.models import Workload
from tests.builders import NOW, make_cluster, make_slice, make_user, nodes_of
from tests.observability.alerts.simulated import STEP, Fleet, alerts, box, notices, only, told
from tests.observability.workloads.saying import pods_of, tell
from tests.slices.kubeconfigs import ready_namespace

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]
SLOW, BUSY = 60, 95


class Gang:
    """A job runs on the eight GPUs of a box. Its first GPU may be slow."""

    def __init__(self) -> None:
        cluster = make_cluster("c1", nodes=1, gpus=8)
        self.owner, self.stranger = make_user(), make_user()
        slice_ = make_slice(cluster, owner=self.owner)
        make_slice(cluster, owner=self.stranger)
        self.fleet = Fleet(cluster)
        self.box: Gpr = box(slice_, *nodes_of(cluster), owner=self.owner, at=NOW)
        self.fleet.minutes(0.25, utilization_percent=BUSY)
        ready_namespace(slice_, cluster, at=NOW, name="train")
        tell(cluster, *pods_of(self.box, "train"), at=self.fleet.now)

    def minutes(self, count: float, use: int) -> None:
        self.fleet.set(self.fleet.gpus[0], utilization_percent=use)
        for _ in range(int(timedelta(minutes=count) / STEP)):
            workloads_step(now=self.fleet.now)
            self.fleet.run(STEP)

    def states(self) -> list[str]:
        return [alert.state for alert in alerts("gpu-straggles")]


@pytest.fixture
def gang() -> Gang:
    only("gpu-straggles")
    return Gang()


def test_it_fires_after_five_minutes_and_is_resolved_when_the_gpu_keeps_up_again(gang: Gang) -> None:
    gang.minutes(5, SLOW)
    assert gang.states() == []
    gang.minutes(1, SLOW)
    assert gang.states() == [AlertState.FIRING]
    assert "GPU is behind its peers" in notices(gang.owner)[0]
    assert "Time behind its peers is 5 min or more" in notices(gang.owner)[0]
    assert Alert.objects.get().places.endswith("GPU 0")
    gang.minutes(6, BUSY)
    assert gang.states() == [AlertState.RESOLVED]
    assert (len(told("gpr.alert_fired")), len(told("gpr.alert_resolved"))) == (1, 1)
    assert not notices(gang.stranger)
    assert not told()  # administrators have enough to read


def test_noise_fires_nothing_and_ends_nothing(gang: Gang) -> None:
    noise = random.Random(4)
    for _ in range(12):
        gang.minutes(0.5, noise.choice((SLOW, BUSY)))
    assert gang.states() == []
    gang.minutes(6, SLOW)
    for _ in range(12):
        gang.minutes(0.5, noise.choice((SLOW, BUSY)))
    assert gang.states() == [AlertState.FIRING]
    assert (len(told("gpr.alert_fired")), len(told("gpr.alert_resolved"))) == (1, 0)


def test_a_checkpoint_of_all_makes_nobody_forget_who_was_behind(gang: Gang) -> None:
    gang.minutes(3, SLOW)
    gang.fleet.values["utilization_percent"] = 10
    gang.minutes(1, 10)
    gang.fleet.values["utilization_percent"] = BUSY
    gang.minutes(2, SLOW)
    assert gang.states() == [AlertState.FIRING]


def test_what_was_behind_before_the_present_box_is_told_to_nobody(gang: Gang) -> None:
    gang.minutes(4, SLOW)
    reserved = gang.fleet.gpus[0].reserved.get()
    reserved.starts_at = gang.fleet.now  # as if another box had it now
    reserved.save(update_fields=["starts_at"])
    Workload.objects.update(measured_at=gang.fleet.now)
    gang.fleet.run(timedelta(minutes=2), step=timedelta(seconds=20))
    assert gang.states() == []


def test_a_job_that_is_over_ends_its_alert(gang: Gang) -> None:
    gang.minutes(6, SLOW)
    tell(gang.fleet.cluster, gone=list(Workload.objects.get().pods.values_list("uid", flat=True)), at=gang.fleet.now)
    gang.minutes(16, BUSY)
    assert gang.states() == [AlertState.RESOLVED]
