"""What is stored of a maintenance, a supply, an order or of what was foretold makes no sense: nobody else waits for that."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db.models import JSONField, Model, Value

from gpr.models import Forecast, Gpr, GprState, Promise, PromiseMove, PromiseOutcome
from gpr.planner.plan import Cause
from gpr.services.ending import gpr_release
from inventory.models import CheckPolicy, Cluster, MaintenanceWindow, Node, Supply, SupplyOrder, SupplyOrderState
from inventory.services.maintenance import window_announce, window_draft
from journal.models import Event, Severity
from slices.models import Slice
from tests.builders import HOUR, make_slice, node_view, nodes_of
from tests.lifecycle.stage import EXIT, Stage, fresh
from tests.lifecycle.test_spoiled_clusters import BEFORE_ALL, Two, spoil
from tests.lifecycle.test_supplies import LEAD_S, busy_stage, ordering_slice, report, states, supply

pytestmark = pytest.mark.django_db

S, State = GprState, SupplyOrderState


def announce(stage: Stage, cluster: Cluster, *, node: Node | None = None, in_: timedelta = HOUR) -> MaintenanceWindow:
    starts_at = stage.now + in_
    window = window_draft(cluster=cluster, node=node, starts_at=starts_at, ends_at=starts_at + HOUR, now=stage.now, reason="disks")
    window_announce(window=window, actor=stage.admin, now=stage.now)
    return window


def of_one(stage: Stage) -> Slice:
    """Another workspace of the owner, in that cluster alone."""
    return make_slice(stage.cluster, owner=stage.owner)


def told() -> list[tuple[str, str, object]]:
    """What administrators are told of clusters."""
    rows = Event.objects.filter(kind="cluster.spoiled", severity=Severity.ERROR, slice_id=None)
    return list(rows.order_by("pk").values_list("reason", "message", "cluster_id"))


def test_a_maintenance_whose_end_cannot_be_read_closes_its_place_from_its_start_on_and_no_other() -> None:
    two = Two()
    announce(two.stage, two.stage.cluster, in_=2 * HOUR)
    spoil(MaintenanceWindow, "ends_at")

    anywhere = two.stage.submit(two.both, duration_s=4 * 3600)
    before_it = two.stage.submit(of_one(two.stage), duration_s=600)
    over_it = two.stage.submit(of_one(two.stage), duration_s=4 * 3600)
    two.tick()
    two.stage.after(3 * 3600)
    two.tick()

    assert (fresh(anywhere).state, fresh(before_it).state, fresh(over_it).state) == (S.PROVISIONING, S.PROVISIONING, S.QUEUED)
    assert Gpr.objects.values_list("cluster", flat=True).get(pk=anywhere.pk) == two.other.pk
    assert Promise.objects.get(gpr=over_it).promised_start_at > two.stage.now
    ((reason, message, cluster_id),) = told()
    assert (reason, cluster_id) == ("maintenance", two.stage.cluster.pk)
    assert "maintenance" in message


def test_a_maintenance_of_which_nothing_can_be_read_closes_its_node_and_leaves_the_others() -> None:
    stage = Stage(nodes=2)
    closed, open_ = nodes_of(stage.cluster)
    announce(stage, stage.cluster, node=closed, in_=20 * HOUR)
    spoil(MaintenanceWindow, "ends_at")
    spoil(MaintenanceWindow, "starts_at", BEFORE_ALL)

    first, second = stage.submit(), stage.submit(of_one(stage))
    stage.tick()
    stage.tick()

    assert (fresh(first).state, fresh(second).state) == (S.PROVISIONING, S.QUEUED)
    assert [row.node_id for row in stage.held(first)] == [open_.pk]
    assert len(told()) == 1


def test_when_a_maintenance_was_announced_decides_nothing() -> None:
    stage = Stage(nodes=1)
    announce(stage, stage.cluster, in_=20 * HOUR)
    spoil(MaintenanceWindow, "created_at")

    gpr = stage.submit(duration_s=600)
    stage.tick()

    assert fresh(gpr).state == S.PROVISIONING
    assert told() == []


def test_when_a_supply_was_added_decides_nothing_and_its_orders_are_told() -> None:
    stage = busy_stage()
    supply(stage)
    gpr = stage.submit(ordering_slice(stage))
    spoil(Supply, "created_at")

    stage.tick()
    reply = stage.agent.sync(at=stage.now)

    (order,) = SupplyOrder.objects.all()
    assert [told.id for told in reply.orders] == [str(order.pk)]
    stage.after(60)
    report(stage, node_view("came", gpus=4))
    stage.tick()
    assert (fresh(gpr).state, states()) == (S.PROVISIONING, [State.ARRIVED])


def test_from_a_supply_whose_failures_cannot_be_read_nothing_more_is_ordered_and_others_are_promised() -> None:
    stage = busy_stage()
    supply(stage)
    first = stage.submit(ordering_slice(stage))
    SupplyOrder.objects.update(state=State.FAILED, ended_at=stage.now)
    spoil(SupplyOrder, "ended_at")

    stage.tick()
    second = stage.submit(ordering_slice(stage))
    stage.tick()

    assert states() == [State.FAILED]
    assert Promise.objects.filter(gpr__in=[first, second]).count() == 2
    assert [(reason, cluster_id) for reason, _, cluster_id in told()] == [("supply", stage.cluster.pk)]


def test_an_order_of_which_cannot_be_read_when_it_comes_has_failed_and_whoever_waits_for_it_is_planned_elsewhere() -> None:
    stage = busy_stage()
    supply(stage)
    gpr = stage.submit(ordering_slice(stage))
    spoil(SupplyOrder, "expected_at")

    other = stage.submit(of_one(stage))
    assert stage.agent.sync(at=stage.now).orders == ()
    stage.tick()

    assert states() == [State.FAILED]
    assert Promise.objects.filter(gpr=other).exists()
    assert fresh(gpr).explanation["reason"] == "waits_for_gpus"
    (event,) = Event.objects.filter(kind="supply.order_failed")
    assert (event.severity, "cannot be read" in event.message) == (Severity.WARNING, True)
    assert set(PromiseMove.objects.filter(gpr=gpr).values_list("cause", flat=True)) <= {Cause.SUPPLY}


@pytest.mark.parametrize(("model", "column"), [(Gpr, "state_changed_at"), (Promise, "made_at"), (Supply, "created_at")])
def test_an_order_for_what_cannot_be_read_is_not_waited_for_and_stops_no_other(model: type[Model], column: str) -> None:
    stage = busy_stage()
    supply(stage)
    stage.submit(ordering_slice(stage))
    spoil(model, column, **({"state": S.QUEUED} if model is Gpr else {}))
    free = stage.submit(of_one(stage))
    stage.watched(LEAD_S + 901)

    stage.tick()

    assert State.ORDERED not in states()
    assert Promise.objects.filter(gpr=free).exists()


NO_TERMS: dict[str, Any] = {"limits": [5, None, ["x"], {"x": "y"}], "images": [5, ["x"], {"x": 1}], "skipped_steps": [5, None, "text", [5]]}


@pytest.mark.parametrize(("column", "stored"), [(column, stored) for column, all_ in NO_TERMS.items() for stored in all_])
def test_of_a_check_policy_that_makes_no_sense_nothing_holds_and_boxes_are_told_and_start(column: str, stored: Any) -> None:
    stage = Stage(nodes=2)
    runs = stage.active(duration_s=600)
    policy = CheckPolicy.objects.create(cluster=stage.cluster, pull_secret="mine", created_at=stage.now)
    CheckPolicy.objects.filter(pk=policy.pk).update(**{column: Value(stored, JSONField())})

    starts = stage.submit(of_one(stage), duration_s=600)
    stage.tick()
    reply = stage.agent.sync(at=stage.now)

    assert fresh(starts).state == S.PROVISIONING
    assert {(told.gpr_id, told.checks.pull_secret) for told in reply.assignments or ()} == {(str(runs.pk), ""), (str(starts.pk), "")}


def test_when_a_check_policy_was_made_decides_nothing() -> None:
    stage = Stage(nodes=1)
    CheckPolicy.objects.create(cluster=stage.cluster, pull_secret="mine", created_at=stage.now)
    spoil(CheckPolicy, "created_at")

    gpr = stage.submit()
    stage.tick()

    (told,) = stage.agent.sync(at=stage.now).assignments or ()
    assert (told.gpr_id, told.checks.pull_secret) == (str(gpr.pk), "mine")


def end(stage: Stage, gpr: Gpr) -> None:
    gpr_release(gpr=fresh(gpr), actor=stage.owner, now=stage.now)
    stage.say(gpr, *EXIT)
    stage.tick()


def test_a_forecast_that_cannot_be_read_teaches_nothing_and_keeps_nobody_from_a_promise_or_a_start() -> None:
    stage = Stage(nodes=1)
    runs = stage.active(duration_s=600)
    waits = stage.submit(of_one(stage), duration_s=600)
    spoil(Forecast, "made_at")

    other = stage.submit(of_one(stage), duration_s=600)
    end(stage, runs)

    assert Promise.objects.filter(gpr=other).exists()
    assert fresh(waits).state == S.PROVISIONING
    assert PromiseOutcome.objects.filter(gpr=waits, forecast=None).exists()


def test_what_came_of_a_forecast_teaches_nothing_where_it_cannot_be_read() -> None:
    stage = Stage(nodes=1)
    runs = stage.active(duration_s=600)
    waits = stage.submit(of_one(stage), duration_s=600)
    end(stage, runs)
    spoil(Forecast, "started_at", gpr=waits.pk)

    other = stage.submit(of_one(stage), duration_s=600)

    assert Promise.objects.filter(gpr=other).exists()


@pytest.mark.parametrize("column", ["p90_at", "first_promised_start_at"])
def test_who_starts_by_a_promise_that_cannot_be_scored_starts_all_the_same(column: str) -> None:
    stage = Stage(nodes=1)
    runs = stage.active(duration_s=600)
    waits = stage.submit(of_one(stage), duration_s=600)
    spoil(Promise, column, gpr=waits.pk)
    end(stage, runs)

    assert fresh(waits).state == S.PROVISIONING
