"""Noise makes nothing flap, one cause is one alert, and people are told of it once."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from inventory.models import Node
from inventory.services.reservations import ReservationReport, reservations_observe
from journal.models import Event
from observability.alerts.evaluation import alerts_evaluate
from observability.alerts.models import Alert, AlertRule, AlertSilence, AlertState, AlertSubject
from observability.alerts.telling import TOLD_MOST
from protocol.assignments import Phase
from tests.builders import NOW, make_cluster, make_slice, make_user, nodes_of
from tests.observability.alerts.simulated import Fleet, alerts, box, notices, only, states, told

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]
MINUTE = timedelta(minutes=1)


@pytest.fixture
def fleet() -> Fleet:
    return Fleet(make_cluster("c1", nodes=1, gpus=2))


def test_noise_around_a_level_flaps_nothing(fleet: Fleet) -> None:
    only("gpu-hot")
    noise = random.Random(4)
    for _ in range(20):  # around the level, above the level of its end
        fleet.run(MINUTE, step=MINUTE, values={"temperature_c": 83 + noise.choice((-2, -1, 0, 1, 2))})
    assert states() == [AlertState.FIRING]
    for _ in range(20):  # around the level of its end
        fleet.run(MINUTE, step=MINUTE, values={"temperature_c": 80 + noise.choice((-1, 0, 1))})
    assert states() == [AlertState.FIRING]
    assert (len(told()), len(told("alert.resolved"))) == (1, 0)
    fleet.minutes(3, temperature_c=75)
    assert states() == [AlertState.RESOLVED]
    assert (len(told()), len(told("alert.resolved"))) == (1, 1)


def test_a_spike_leaves_nothing(fleet: Fleet) -> None:
    only("gpu-hot")
    for temperature in (90, 60, 90, 60):
        fleet.minutes(1, temperature_c=temperature)
    assert not Alert.objects.exists()
    assert not Event.objects.filter(kind__contains="alert").exists()


def test_an_alert_that_gets_worse_is_told_again_also_if_it_was_acknowledged(fleet: Fleet) -> None:
    only("gpu-hot")
    fleet.minutes(4, temperature_c=84)
    admin = make_user(is_admin=True)
    Alert.objects.filter(slice=None).update(state=AlertState.ACKNOWLEDGED, owner=admin, acknowledged_at=fleet.now)
    fleet.minutes(4, temperature_c=89)
    (alert,) = alerts()
    assert (alert.state, alert.severity, alert.worst) == (AlertState.FIRING, "error", 89)
    assert [event.severity for event in Event.objects.filter(kind="alert.fired").order_by("pk")] == ["warning", "error"]


def test_forty_nodes_behind_a_dead_switch_are_one_alert_and_one_notice() -> None:
    cluster, admin = make_cluster("c1", nodes=40, gpus=1), make_user(is_admin=True)
    fleet = Fleet(cluster)
    only("node-not-ready", "readings-absent")
    fleet.minutes(0.5)
    for half in (nodes_of(cluster)[:15], nodes_of(cluster)[15:]):  # their leases run out one after the other
        Node.objects.filter(pk__in=[node.pk for node in half]).update(is_ready=False)
        fleet.silent |= {gpu.pk for gpu in fleet.gpus if gpu.node in half}
        fleet.minutes(0.5)
    fleet.run(8 * MINUTE, step=MINUTE / 2)

    (alert,) = alerts()
    assert (alert.rule.code, alert.state, alert.firing_count) == ("node-not-ready", AlertState.FIRING, 40)
    assert "and 37 others" in alert.places
    assert len(notices(admin)) == 1
    Node.objects.update(is_ready=True)
    fleet.silent = set()
    fleet.run(3 * MINUTE, step=MINUTE / 2)
    assert [text[:4] for text in notices(admin)] == ["Node", "Over"]
    assert len(alerts()) == 1


def test_what_breaks_much_later_elsewhere_is_another_alert_and_more_of_a_node_is_not() -> None:
    fleet = Fleet(make_cluster("c1", nodes=2, gpus=2))
    only("rows-failed")
    fleet.minutes(0.5, rows_failed=0)
    fleet.set(fleet.gpus[0], rows_failed=1)
    fleet.run(6 * MINUTE, step=MINUTE)
    fleet.set(fleet.gpus[1], rows_failed=1)
    fleet.run(6 * MINUTE, step=MINUTE)
    fleet.set(fleet.gpus[3], rows_failed=1)
    fleet.minutes(1)

    assert sorted(alert.firing_count for alert in alerts()) == [1, 2]
    assert len(told()) == 2


def test_an_alert_that_grows_says_so_once() -> None:
    fleet = Fleet(make_cluster("c1", nodes=1, gpus=4))
    only("rows-failed")
    fleet.minutes(0.5, rows_failed=0)
    fleet.set(fleet.gpus[0], rows_failed=1)
    fleet.minutes(1)
    fleet.minutes(1, rows_failed=1)
    assert not told("alert.grew")
    fleet.run(30 * MINUTE, step=2 * MINUTE)
    assert (len(told()), len(told("alert.grew"))) == (1, 1)
    assert "now 4" in told("alert.grew")[0]


def test_a_rule_that_fires_all_over_is_told_so_often_in_an_hour_and_goes_on_later(fleet: Fleet) -> None:
    only("rows-failed")
    rule, count = AlertRule.objects.get(code="rows-failed"), TOLD_MOST + 3
    for n in range(count):
        Alert.objects.create(
            rule=rule,
            severity="error",
            state="FIRING",
            began_at=NOW,
            joined_at=NOW,
            fired_at=NOW,
            places=f"n{n}",
            firing_count=1,
            most_count=1,
        )
    AlertSubject.objects.bulk_create(
        AlertSubject(
            alert=alert,
            rule=rule,
            subject_id=alert.pk,
            key=str(alert.pk),
            name=alert.places,
            state="FIRING",
            since_at=NOW,
            first=1,
            worst=1,
        )
        for alert in alerts()
    )
    from observability.alerts.telling import tell

    for minutes, number in ((1, TOLD_MOST), (30, TOLD_MOST), (62, count)):
        tell(now=NOW + timedelta(minutes=minutes))
        assert len(told()) == number


def test_a_silence_keeps_quiet_until_its_end_and_for_its_own_people_alone(fleet: Fleet) -> None:
    only("gpu-hot")
    admin, owner = make_user(is_admin=True), make_user()
    slice_ = make_slice(fleet.cluster, owner=owner)
    box(slice_, *nodes_of(fleet.cluster), owner=owner, at=NOW)
    AlertSilence.objects.create(
        owner=admin, cluster=fleet.cluster, reason="r", created_at=NOW, starts_at=NOW, ends_at=NOW + timedelta(minutes=8)
    )
    fleet.minutes(6, temperature_c=84)
    assert states() == [AlertState.FIRING]
    assert (len(notices(admin)), len(notices(owner))) == (0, 1)  # to its owner it is the box's alert
    fleet.minutes(3)
    assert (len(notices(admin)), len(notices(owner))) == (1, 1)


def test_an_alert_that_ends_while_it_is_silenced_was_never_told(fleet: Fleet) -> None:
    only("gpu-hot")
    admin = make_user(is_admin=True)
    rule = AlertRule.objects.get(code="gpu-hot")
    AlertSilence.objects.create(owner=admin, rule=rule, reason="r", created_at=NOW, starts_at=NOW, ends_at=NOW + timedelta(hours=1))
    fleet.minutes(4, temperature_c=84)
    fleet.minutes(4, temperature_c=60)
    assert states() == [AlertState.RESOLVED]
    assert not notices(admin)


def test_a_box_hears_of_its_own_time_alone(fleet: Fleet) -> None:
    """Nobody is told of a GPU that was hot before the box, or is hot after it."""
    only("gpu-hot")
    first, second = make_user(), make_user()
    fleet.minutes(4, temperature_c=84)
    gpr = box(make_slice(fleet.cluster, owner=first), *nodes_of(fleet.cluster), owner=first, at=fleet.now)
    fleet.minutes(1)
    (own,) = alerts(gpr=gpr)
    assert gpr.active_at is not None
    assert (own.state, own.began_at) == (AlertState.PENDING, gpr.active_at + timedelta(seconds=15))
    fleet.minutes(3)
    assert len(notices(first)) == 1
    for phase in (Phase.EXITING, Phase.RELEASED):
        reservations_observe([ReservationReport(row, phase) for row in gpr.reservations.all()], now=fleet.now)
    taker = box(make_slice(fleet.cluster, owner=second), *nodes_of(fleet.cluster), owner=second, at=fleet.now)
    fleet.minutes(1)

    own.refresh_from_db()
    assert own.state == AlertState.RESOLVED
    assert [alert.state for alert in alerts(gpr=taker)] == [AlertState.PENDING]
    assert states() == [AlertState.FIRING]  # for administrators it is the same all the time
    assert len(told()) == 1


def test_faults_that_were_counted_before_a_box_are_not_told_to_it(fleet: Fleet) -> None:
    only("ecc-uncorrected")
    owner = make_user()
    fleet.minutes(1, ecc_uncorrected=0)
    fleet.minutes(1, ecc_uncorrected=3)
    box(make_slice(fleet.cluster, owner=owner), *nodes_of(fleet.cluster), owner=owner, at=fleet.now)
    fleet.minutes(2)
    assert not alerts(gpr__isnull=False)
    fleet.minutes(1, ecc_uncorrected=4)
    assert [alert.worst for alert in alerts(gpr__isnull=False)] == [1]
    assert [alert.worst for alert in alerts(slice=None)] == [4]


def test_a_rule_that_is_switched_off_ends_its_alerts(fleet: Fleet) -> None:
    only("gpu-hot")
    fleet.minutes(4, temperature_c=84)
    AlertRule.objects.update(is_on=False)
    fleet.minutes(0.25)
    assert set(states()) == {AlertState.RESOLVED}
    assert not AlertSubject.objects.exclude(state="OVER").exists()


def test_gpus_that_are_no_longer_measured_or_gone_end_their_alerts(fleet: Fleet) -> None:
    only("gpu-hot")
    fleet.minutes(4, temperature_c=84)
    fleet.silent = {fleet.gpus[0].pk}
    fleet.run(14 * MINUTE, step=MINUTE)
    assert alerts(slice=None)[0].firing_count == 2
    fleet.run(4 * MINUTE, step=MINUTE)
    assert alerts(slice=None)[0].firing_count == 1
    type(fleet.gpus[1]).objects.filter(pk=fleet.gpus[1].pk).update(gone_at=fleet.now)
    fleet.minutes(0.25)
    assert states() == [AlertState.RESOLVED]


def test_a_step_costs_the_same_queries_for_one_gpu_and_for_all(fleet: Fleet) -> None:
    counts = []
    big = Fleet(make_cluster("c2", nodes=3, gpus=8))
    only(*(rule.code for rule in AlertRule.objects.all()))
    from observability.alerts.defaults import default_rules

    only(*(rule.code for rule in default_rules()))
    for one in (fleet, big):
        one.minutes(0.25, temperature_c=60, ecc_uncorrected=0)
        one.minutes(4, temperature_c=84, ecc_uncorrected=1, throttled_percent=90)
        with CaptureQueriesContext(connection) as queries:
            alerts_evaluate(now=one.now + timedelta(seconds=15))
        counts.append(len(queries))
    assert counts[1] <= counts[0]
    assert counts[0] < 90
