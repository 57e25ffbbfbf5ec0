"""Each rule that EGS brings fires, says whom it concerns, and is resolved."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from inventory.models import AgentSession, Cluster, Node, Reservation, StepResult
from observability.alerts.defaults import default_rules
from observability.alerts.models import AlertRule, AlertState, CounterIncrease, SignalSample
from observability.models import LatestReading, Reading1m, Reading10m
from observability.telemetry.partitions import partitions_ensure
from slices.models import AtLimit, Budget, Period, Quota
from tests.builders import NOW, SHAPE, make_cluster, make_gpr, make_slice, make_user, nodes_of
from tests.observability.alerts.simulated import Fleet, alerts, box, latest, only, states, told

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]
FIRING, RESOLVED = AlertState.FIRING, AlertState.RESOLVED
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


@pytest.fixture
def cluster() -> Cluster:
    return make_cluster("c1", nodes=1, gpus=2)


@pytest.fixture
def fleet(cluster: Cluster) -> Fleet:
    return Fleet(cluster)


LEVELS: dict[str, tuple[dict[str, float], dict[str, float], float]] = {
    "gpu-hot": ({"temperature_c": 84}, {"temperature_c": 78}, 3),
    "gpu-memory-hot": ({"memory_temperature_c": 96}, {"memory_temperature_c": 90}, 3),
    "gpu-power": ({"power_w": 740}, {"power_w": 690}, 6),
    "gpu-throttled": ({"throttled_percent": 25}, {"throttled_percent": 0}, 6),
    "gpu-saturated": ({"utilization_percent": 100}, {"utilization_percent": 80}, 61),
}


@pytest.mark.parametrize("code", LEVELS)
def test_a_level_fires_after_its_hold_and_is_resolved_below_it(code: str, fleet: Fleet) -> None:
    bad, good, minutes = LEVELS[code]
    only(code)
    fleet.minutes(0.25, **good)
    assert not alerts()
    fleet.minutes(0.25, **bad)
    fleet.run(timedelta(minutes=minutes - 2), step=timedelta(minutes=minutes - 2) / 3)
    assert states(code) == [AlertState.PENDING]
    fleet.run(4 * MINUTE, step=MINUTE)
    assert states(code) == [FIRING]
    fleet.run(6 * MINUTE, step=MINUTE, values=good)
    assert states(code) == [RESOLVED]
    assert not any(alert.firing_count for alert in alerts())


COUNTS: dict[str, tuple[str, int, float]] = {
    "ecc-uncorrected": ("ecc_uncorrected", 1, 61),
    "ecc-corrected": ("ecc_corrected", 1500, 61),
    "rows-remapped": ("rows_remapped", 1, 24 * 60 + 1),
    "rows-failed": ("rows_failed", 1, 24 * 60 + 1),
}


@pytest.mark.parametrize("code", COUNTS)
def test_a_count_fires_at_once_and_is_resolved_when_its_window_has_passed(code: str, fleet: Fleet) -> None:
    name, rise, minutes = COUNTS[code]
    only(code)
    fleet.minutes(1, **{name: 7})
    assert not alerts()  # what it counted before anybody looked
    fleet.set(fleet.gpus[0], **{name: 7 + rise})
    fleet.minutes(0.5)
    assert states(code) == [FIRING]
    fleet.run(timedelta(minutes=minutes), step=timedelta(minutes=minutes / 4))
    assert states(code) == [RESOLVED]


@pytest.mark.parametrize(("code", "name", "rise"), [("nvlink-errors", "nvlink_errors", 1), ("pcie-replays", "pcie_replays", 4)])
def test_errors_that_go_on_fire_and_single_ones_do_not(code: str, name: str, rise: int, fleet: Fleet) -> None:
    only(code)
    count = 0
    fleet.minutes(0.5, **{name: count})
    fleet.minutes(1, **{name: count + rise})
    fleet.run(7 * MINUTE, step=MINUTE)
    assert not alerts(fired_at__isnull=False)
    for _ in range(7):
        count += 4 * rise
        fleet.run(MINUTE, step=MINUTE, values={name: count + rise})
    assert states(code) == [FIRING]
    fleet.minutes(1.5)
    assert states(code) == [RESOLVED]


@pytest.mark.parametrize(
    ("code", "xid"),
    [("xid-reboot-node", 79), ("xid-reset-gpu", 95), ("xid-contact-support", 61), ("xid-investigate", 48)],
)
def test_an_xid_fires_the_rule_of_what_has_to_be_done(code: str, xid: int, fleet: Fleet) -> None:
    only(code, "xid-restart-app")
    fleet.minutes(1, xid=43)
    fleet.minutes(0.5, xid=xid)
    assert [(alert.rule.code, alert.state) for alert in alerts()] == [(code, FIRING)]
    fleet.run(61 * MINUTE, step=15 * MINUTE)
    assert states(code) == [RESOLVED]


def test_several_xids_between_two_scrapes_fire_their_rules_once_each(fleet: Fleet) -> None:
    """The gauge shows the last alone. The counts are of some minutes: what leaves them and what stays is no news."""
    only("xid-reboot-node", "xid-investigate", "xid-reset-gpu")
    for xids, gauge in [({}, 0), ({48: 2, 79: 1}, 79), ({48: 2, 79: 1}, 79), ({48: 1}, 79), ({}, 79)]:
        fleet.xids = xids
        fleet.minutes(0.25, xid=gauge)
    counted = CounterIncrease.objects.filter(gpu=fleet.gpus[0]).values_list("signal", "count")
    assert sorted(counted) == [("xid_investigate", 2), ("xid_reboot_node", 1)]
    assert sorted(alert.rule.code for alert in alerts()) == ["xid-investigate", "xid-reboot-node"]
    fleet.xids = {79: 1}
    fleet.minutes(0.25)
    assert CounterIncrease.objects.filter(gpu=fleet.gpus[0], signal="xid_reboot_node").count() == 2  # the gauge shows the same


def test_an_xid_of_the_workload_is_its_owners_alone(fleet: Fleet, cluster: Cluster) -> None:
    only("xid-restart-app")
    owner = make_user()
    fleet.minutes(1, xid=0)
    gpr = box(make_slice(cluster, owner=owner), *nodes_of(cluster), owner=owner, at=fleet.now)
    fleet.minutes(1)
    fleet.minutes(1, xid=31)
    (alert,) = alerts("xid-restart-app")
    assert (alert.state, alert.gpr_id, alert.firing_count) == (FIRING, gpr.pk, 2)
    assert told("gpr.alert_fired")
    assert not told()
    fleet.run(61 * MINUTE, step=15 * MINUTE)
    assert alerts("xid-restart-app")[0].state == RESOLVED


def test_a_held_gpu_that_is_not_used_is_told_to_its_owner(fleet: Fleet, cluster: Cluster) -> None:
    only("gpu-unused")
    owner = make_user()
    fleet.run(40 * MINUTE, step=10 * MINUTE, values={"utilization_percent": 0})
    assert not alerts()  # nobody holds it
    box(make_slice(cluster, owner=owner), *nodes_of(cluster), owner=owner, at=fleet.now)
    fleet.run(35 * MINUTE, step=5 * MINUTE)
    assert [alert.state for alert in alerts("gpu-unused")] == [FIRING]
    fleet.run(7 * MINUTE, step=MINUTE, values={"utilization_percent": 70})
    assert [alert.state for alert in alerts("gpu-unused")] == [RESOLVED]


def course(gpu: Any, model: Any, *, minutes: int, until: Any, temperature: Callable[[float], float]) -> None:
    """Stores a course up to now. `temperature` takes the minutes since NOW."""
    step = int(model.STEP.total_seconds() // 60)
    model._default_manager.all().delete()
    partitions_ensure(model, (until - timedelta(minutes=n) for n in range(minutes)))
    times = [until - timedelta(minutes=n) for n in range(1, minutes, step)]
    model._default_manager.bulk_create(
        model(series_id=latest(gpu).pk, at=at, temperature_c=round(temperature((at - NOW) / MINUTE))) for at in times
    )


@pytest.mark.parametrize(
    ("code", "model", "window", "slope"), [("gpu-heating-up", Reading1m, 30, 0.5), ("gpu-temperature-creeps", Reading10m, 360, 0.04)]
)
def test_a_temperature_that_rises_steadily_is_foreseen_and_a_new_load_is_not(
    code: str, model: Any, window: int, slope: float, fleet: Fleet
) -> None:
    only(code)
    fleet.minutes(0.25, temperature_c=70)

    def shows(shape: Callable[[float], float]) -> None:
        began_at = fleet.now
        while fleet.now - began_at < 1.5 * window * MINUTE:
            course(fleet.gpus[0], model, minutes=window + 15, until=fleet.now, temperature=shape)
            fleet.run(window / 10 * MINUTE, step=window / 10 * MINUTE)

    shows(lambda minute: 40 if minute < window / 2 else 80)
    assert not alerts()
    shows(lambda minute: 40 + slope * minute)
    assert states(code) == [FIRING]
    shows(lambda minute: 75)
    assert states(code) == [RESOLVED]


def test_gpus_without_readings_are_one_alert(fleet: Fleet) -> None:
    only("readings-absent")
    fleet.minutes(1)
    fleet.silent = {gpu.pk for gpu in fleet.gpus}
    fleet.minutes(5.5)
    (alert,) = alerts("readings-absent")
    assert (alert.state, alert.firing_count) == (FIRING, 2)
    fleet.silent = set()
    fleet.minutes(0.5)
    assert states("readings-absent") == [RESOLVED]


def test_a_silent_agent_is_an_alert_and_not_one_for_each_of_its_gpus(fleet: Fleet) -> None:
    only("agent-silent", "readings-absent", "node-not-ready", "clock-skew")
    fleet.minutes(1)
    fleet.is_heard = False
    fleet.run(15 * MINUTE, step=MINUTE)
    assert [(alert.rule.code, alert.state) for alert in alerts()] == [("agent-silent", FIRING)]
    assert not told()  # the Event agent.silent tells of it
    fleet.is_heard = True
    fleet.minutes(1)
    assert states("agent-silent") == [RESOLVED]


def test_a_wrong_clock(fleet: Fleet, cluster: Cluster) -> None:
    only("clock-skew")
    AgentSession.objects.filter(cluster=cluster).update(clock_offset_s=-9.5)
    fleet.minutes(2)
    assert states("clock-skew") == [FIRING]
    AgentSession.objects.filter(cluster=cluster).update(clock_offset_s=0.1)
    fleet.minutes(2)
    assert states("clock-skew") == [RESOLVED]


def test_a_node_that_is_not_ready_unless_it_was_set_aside(fleet: Fleet, cluster: Cluster) -> None:
    only("node-not-ready")
    Node.objects.update(is_ready=False, cordoned_at=NOW)
    fleet.minutes(3)
    assert not alerts()
    Node.objects.update(cordoned_at=None)
    fleet.minutes(3)
    assert states("node-not-ready") == [FIRING]
    Node.objects.update(is_ready=True)
    fleet.minutes(2)
    assert states("node-not-ready") == [RESOLVED]


def test_a_bad_condition_of_a_node_that_stays() -> None:
    fleet = Fleet(make_cluster("c1", nodes=1, gpus=2))
    only("node-condition")
    told = {"type": "XidError", "status": "True", "reason": "", "message": "", "since_at": None}
    Node.objects.update(conditions=[told], is_ready=False)  # the alert node-not-ready tells of it
    fleet.run(6 * MINUTE, step=MINUTE)
    assert not alerts()
    Node.objects.update(is_ready=True)
    fleet.run(4 * MINUTE, step=MINUTE)
    assert states("node-condition") == [AlertState.PENDING]
    fleet.run(3 * MINUTE, step=MINUTE)
    assert states("node-condition") == [FIRING]
    Node.objects.update(conditions=[])
    fleet.minutes(2)
    assert states("node-condition") == [RESOLVED]


def test_a_node_that_fails_checks_again_and_again(fleet: Fleet, cluster: Cluster) -> None:
    only("failed-checks")
    box(make_slice(cluster), *nodes_of(cluster), owner=make_user(), at=NOW)
    row = Reservation.objects.get()
    for attempt in range(3):
        assert not alerts()
        at = fleet.now
        StepResult.objects.create(reservation=row, step="nccl", attempt=attempt, outcome="FAILED", started_at=at, ended_at=at)
        fleet.minutes(0.5)
    assert states("failed-checks") == [FIRING]
    fleet.run(DAY, step=DAY / 4)
    assert states("failed-checks") == [RESOLVED]


def test_a_request_that_waits_long_and_a_promise_at_risk(fleet: Fleet, cluster: Cluster) -> None:
    from gpr.models import Promise

    only("queue-wait", "promise-late")
    gpr = make_gpr(make_slice(cluster), planned_start_at=NOW + HOUR, queued_at=NOW - 23 * HOUR - 59 * MINUTE)
    soon = NOW + 2 * HOUR
    Promise.objects.create(gpr=gpr, made_at=NOW, first_promised_start_at=soon, promised_start_at=soon, slot_pool="p", slot_start_at=soon)
    fleet.minutes(3)
    assert [(alert.rule.code, alert.state) for alert in alerts()] == [("queue-wait", FIRING)]
    type(gpr).objects.update(planned_start_at=NOW + 3 * HOUR)
    fleet.minutes(3)
    assert states("promise-late") == [FIRING]
    type(gpr).objects.update(planned_start_at=NOW + HOUR)
    fleet.minutes(2)
    assert states("promise-late") == [RESOLVED]
    type(gpr).objects.update(state="CANCELED")
    fleet.minutes(0.25)
    assert states("queue-wait") == [RESOLVED]


def test_a_quota_that_is_nearly_used(fleet: Fleet, cluster: Cluster) -> None:
    only("quota-pressure")
    slice_ = make_slice(cluster)
    Quota.objects.create(slice=slice_, shape=SHAPE, guaranteed_gpus=2, most_gpus=2, created_at=NOW)
    gpr = box(slice_, *nodes_of(cluster), owner=make_user(), at=NOW)
    fleet.run(12 * MINUTE, step=MINUTE)
    assert states("quota-pressure") == [FIRING]
    assert len(alerts("quota-pressure", slice=slice_)) == 1  # its people see their own
    gpr.reservations.get().gpus.all().delete()
    fleet.run(12 * MINUTE, step=MINUTE)
    assert states("quota-pressure") == [RESOLVED]


def test_a_budget_that_is_nearly_used_and_one_that_will_be(fleet: Fleet, cluster: Cluster) -> None:
    only("budget-pressure", "budget-forecast")
    slice_ = make_slice(cluster)
    starts_at, ends_at = NOW - DAY, NOW + 30 * DAY
    budget = Budget.objects.create(
        slice=slice_, gpu_hours=40, at_limit=AtLimit.APPROVE, created_at=NOW, starts_at=starts_at, ends_at=ends_at, period=Period.RANGE
    )
    box(slice_, *nodes_of(cluster), owner=make_user(), at=NOW - DAY / 2)  # 24 of 40 GPU-hours so far
    SignalSample.objects.bulk_create(
        SignalSample(signal="budget_percent", subject_id=budget.pk, at=NOW - n * HOUR, value=60 - 1.2 * n) for n in range(1, 46)
    )
    fleet.run(2 * HOUR, step=10 * MINUTE)
    assert states("budget-forecast") == [FIRING]
    assert not alerts("budget-pressure")
    Budget.objects.update(gpu_hours=34)
    fleet.run(MINUTE, step=MINUTE)
    assert states("budget-pressure") == [FIRING]
    Budget.objects.update(gpu_hours=10_000)
    fleet.run(2 * MINUTE, step=MINUTE)
    assert states("budget-pressure") == [RESOLVED]
    SignalSample.objects.all().delete()
    SignalSample.objects.bulk_create(
        SignalSample(signal="budget_percent", subject_id=budget.pk, at=fleet.now - n * HOUR, value=0.3) for n in range(1, 46)
    )
    fleet.run(3 * HOUR, step=15 * MINUTE)
    assert states("budget-forecast") == [RESOLVED]


def test_every_rule_is_seen_to_fire_here() -> None:
    by_hand = {
        "xid-reboot-node", "xid-reset-gpu", "xid-contact-support", "xid-investigate", "xid-restart-app", "gpu-unused", "gpu-heating-up",
        "gpu-temperature-creeps", "nvlink-errors", "pcie-replays", "readings-absent", "agent-silent", "clock-skew", "node-not-ready",
        "failed-checks", "queue-wait", "promise-late", "quota-pressure", "budget-pressure", "budget-forecast", "gpu-straggles",
        "node-condition",
    }  # fmt: skip
    assert {rule.code for rule in default_rules()} == {*LEVELS, *COUNTS, *by_hand}
    only()
    assert AlertRule.objects.count() == len(default_rules())
    assert LatestReading.objects.count() == 0


def test_a_rule_that_a_manifest_brought_before_is_the_one_of_its_name() -> None:
    first, *_ = default_rules()
    AlertRule.objects.create(
        name=first.name, signal=first.signal, kind=first.kind, level=1, clear_level=1, severity=first.severity, created_at=NOW
    )

    only()

    assert AlertRule.objects.count() == len(default_rules())
    assert AlertRule.objects.get(code=first.code).level == 1
