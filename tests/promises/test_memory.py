"""What a newcomer's slack and margin follow from: alike arrivals are read as one, and of failures the last."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.db import connection

from gpr.models import Promise, Shadow, Witness
from gpr.planner.snapshot import Arrival, Failed
from gpr.services.requests import gpr_submit
from gpr.snapshot import RETURN_S, SLACK, memory_load
from inventory.models import Cluster
from journal.models import Event
from journal.services import event_record
from tests.builders import NOW, make_cluster, make_slice, make_user, spec

pytestmark = pytest.mark.django_db

NO_TIME = {"postgresql": "infinity", "sqlite": "2026-99-99 00:00:00"}


def test_alike_arrivals_count_together_from_the_first_on_and_old_ones_not_at_all() -> None:
    cluster, user = make_cluster(nodes=1), make_user(is_admin=True)
    asks = [(3600, NOW), (3600, NOW + timedelta(seconds=5)), (7200, NOW + timedelta(seconds=9))]
    gprs = [gpr_submit(actor=user, spec=spec(make_slice(cluster), duration_s=length_s), now=at) for length_s, at in asks]
    short, _, long = (Shadow.objects.get(gpr=gpr) for gpr in gprs)
    now_s = int(NOW.timestamp())

    assert memory_load(Witness(), {}, now=asks[-1][1]).arrivals == (
        Arrival(now_s, short.priority, short.gpu_s, 2),
        Arrival(now_s + 9, long.priority, long.gpu_s, 1),
    )

    later = NOW + timedelta(seconds=SLACK.observed_s + 7)
    assert memory_load(Witness(), {}, now=later).arrivals == (Arrival(now_s + 9, long.priority, long.gpu_s, 1),)


def fail(cluster: Cluster, *, kind: str = "node.not_ready", at: datetime = NOW) -> None:
    event_record(kind=kind, message="A node failed.", at=at, cluster_id=cluster.pk)


def test_of_nodes_that_failed_the_last_of_each_cluster_is_remembered() -> None:
    here, there, calm = (make_cluster(nodes=1, name=name) for name in ("here", "there", "calm"))
    for hours, kind in ((3, "node.gpus_lost"), (1, "node.not_ready"), (2, "node.not_ready")):
        fail(here, kind=kind, at=NOW - timedelta(hours=hours))
    fail(there)
    for kind in ("node.ready", "node.cordoned"):
        fail(calm, kind=kind)

    found = memory_load(Witness(), {cluster.pk: cluster.name for cluster in (here, there, calm)}, now=NOW).failed

    now_s = int(NOW.timestamp())
    assert set(found) == {Failed("here", now_s - 3600, RETURN_S), Failed("there", now_s, RETURN_S)}


def test_a_failure_at_no_time_at_all_stops_nobody_and_hides_no_other() -> None:
    cluster = make_cluster(nodes=1)
    fail(cluster)
    others = ", ".join(field.column for field in Event._meta.fields if field.column not in {"id", "at"})
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO journal_event (at, {others}) SELECT %s, {others} FROM journal_event", [NO_TIME[connection.vendor]])  # noqa: S608

    (failed,) = memory_load(Witness(), {cluster.pk: cluster.name}, now=NOW).failed

    assert failed.at_s == int(NOW.timestamp())


def test_a_failure_that_was_seen_moves_what_is_promised_behind_the_slot() -> None:
    cluster, user = make_cluster(nodes=1), make_user(is_admin=True)

    def promise() -> Promise:
        gpr = gpr_submit(actor=user, spec=spec(make_slice(cluster), duration_s=3600), now=NOW)
        return Promise.objects.get(gpr=gpr)

    promise()  # that of one that starts at once
    before = promise()
    fail(cluster)
    after = promise()

    assert before.promised_start_at == before.slot_start_at
    assert after.promised_start_at == after.slot_start_at + timedelta(seconds=SLACK.margin_most_s)
