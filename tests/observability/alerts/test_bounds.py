"""Many rules and silences of members cost the others nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from journal.models import Event
from observability.alerts.judging import SubjectChange, advance
from observability.alerts.models import AlertRule, AlertSilence, AlertState, AlertSubject, CounterIncrease, CounterState, SubjectState
from observability.alerts.sources import counters
from observability.alerts.sources.trends import gpu_trends
from observability.alerts.telling import tell
from observability.models import LatestReading
from tests.builders import NOW, make_cluster, make_slice, make_user, nodes_of
from tests.observability.alerts.rows import alert_of, rule_of
from tests.observability.alerts.simulated import Fleet, alerts, box, notices, only, states, told

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]


def test_a_thousand_rules_of_workspaces_keep_nobody_from_being_told() -> None:
    cluster = make_cluster("c1", nodes=2, gpus=1)
    fleet, owner = Fleet(cluster), make_user()
    only("gpu-hot")
    own, other = make_slice(cluster, owner=owner), make_slice(cluster)
    gpr = box(own, nodes_of(cluster)[0], owner=owner, at=NOW)
    fleet.minutes(0.25)
    terms = {"name": "r", "signal": "temperature_c", "kind": "threshold", "severity": "info", "tells": "box", "created_at": NOW}
    AlertRule.objects.bulk_create(AlertRule(slice=other, level=n, clear_level=n, **terms) for n in range(1100))
    mine = rule_of(own, owner, level=75, clear_level=75)
    fleet.minutes(3, temperature_c=84)
    assert states("gpu-hot") == [AlertState.FIRING]
    assert [(alert.rule, alert.worst) for alert in alerts(gpr=gpr, rule__code="")] == [(mine, 84)]
    assert not alerts(slice=other)


def test_a_trend_of_a_workspace_reads_the_courses_of_its_own_gpus_alone() -> None:
    cluster = make_cluster("c1", nodes=3, gpus=1)
    fleet, owner = Fleet(cluster), make_user()
    only()
    slice_ = make_slice(cluster, owner=owner)
    box(slice_, nodes_of(cluster)[0], owner=owner, at=NOW)
    fleet.minutes(0.25)
    rule = rule_of(slice_, owner, kind="trend", level=5, clear_level=5, window_s=1800)
    with CaptureQueriesContext(connection) as queries:
        gpu_trends([rule], fleet.now)
    with connection.cursor() as cursor:
        cursor.execute(queries[0]["sql"])
        assert len(cursor.fetchall()) == 1
    assert LatestReading.objects.count() == 3


def test_new_gpus_are_taken_up_some_at_a_time_and_trends_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "NEW_AT_ONCE", 1)
    fleet, begun = Fleet(make_cluster("c1", nodes=3, gpus=1)), []
    only()
    for _ in range(2):
        rule_of(None, None, kind="trend", level=5, clear_level=5, window_s=1800)
    for _ in range(4):
        fleet.minutes(0.25, xid=79, ecc_uncorrected=2)
        begun.append((CounterState.objects.count(), AlertRule.objects.filter(judged_at__isnull=False).count()))
    assert begun == [(1, 1), (2, 2), (3, 2), (3, 2)]
    assert not CounterIncrease.objects.exists()
    assert not Event.objects.filter(kind="egs.fault").exists()


@pytest.mark.parametrize("what", ["node", "cluster"])
def test_a_workspace_silences_its_alerts_of_a_node_and_of_a_cluster_also_when_they_are_over(what: str) -> None:
    cluster = make_cluster("c1", nodes=1, gpus=1)
    fleet, owner = Fleet(cluster), make_user()
    only("gpu-hot")
    slice_ = make_slice(cluster, owner=owner)
    box(slice_, *nodes_of(cluster), owner=owner, at=NOW)
    of = {what: nodes_of(cluster)[0] if what == "node" else cluster}
    given = {"owner": owner, "slice": slice_, "reason": "r", "created_at": NOW, **of}
    silence = AlertSilence.objects.create(starts_at=NOW, ends_at=NOW + timedelta(minutes=5), **given)
    fleet.minutes(4, temperature_c=84)
    assert [alert.state for alert in alerts(slice=slice_)] == [AlertState.FIRING]
    assert not notices(owner)
    fleet.minutes(2)
    assert len(notices(owner)) == 1
    AlertSilence.objects.filter(pk=silence.pk).update(ends_at=fleet.now + timedelta(hours=1))
    fleet.minutes(3, temperature_c=60)
    assert [alert.state for alert in alerts(slice=slice_)] == [AlertState.RESOLVED]
    assert len(notices(owner)) == 1


def test_who_is_told_costs_the_same_queries_whatever_the_number_of_alerts_and_silences() -> None:
    cluster, owner = make_cluster("c1", nodes=3, gpus=1), make_user()
    slice_ = make_slice(cluster, owner=owner)
    counts = []
    for _ in range(2):
        for node in nodes_of(cluster):
            alert_of(slice_, owner, began_at=NOW)
            times = {"created_at": NOW, "starts_at": NOW, "ends_at": NOW + timedelta(days=900)}
            AlertSilence.objects.create(owner=owner, slice=slice_, node=node, reason="r", **times)
        with CaptureQueriesContext(connection) as queries:
            tell(now=NOW + timedelta(days=800))
        counts.append(len(queries))
    assert told("slice.alert_fired")
    assert counts[1] <= counts[0]
    assert Event.objects.filter(kind="slice.alert_fired").count() == 6


def test_a_time_that_grows_from_pass_to_pass_is_not_written_in_each() -> None:
    rule = rule_of(None, None, signal="reading", kind="absence", level=300, clear_level=60)
    subject = AlertSubject(rule=rule, state=SubjectState.FIRING, since_at=NOW, first=300, worst=300)

    moves = [advance(rule, subject, 300.0 + 15 * n, NOW + timedelta(seconds=15 * n)) for n in range(1, 240)]

    assert moves.count(SubjectChange.CHANGED) == 24
    assert subject.worst > 0.9 * (300 + 15 * 239)
