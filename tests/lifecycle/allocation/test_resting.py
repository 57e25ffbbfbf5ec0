"""A tick that need not plan: nothing has happened since the last plan, and nothing is due."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.conf import settings
from pytest_django import DjangoAssertNumQueries

from gpr.allocation import allocator
from gpr.allocation.allocator import TickReport, tick
from gpr.models import AllocatorRecord, Gpr, GprState
from gpr.requests.editing import gpr_cancel
from gpr.requests.services import gpr_submit
from inventory.models import Node
from inventory.services.inventory import inventory_store
from slices.models import Quota
from tests.builders import NOW, agent_heard, make_cluster, make_slice, make_user, node_view, spec
from tests.lifecycle.stage import Stage, fresh

pytestmark = pytest.mark.django_db


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def rest(seconds: float) -> TickReport:
    """A tick that may rest; the agents are heard meanwhile."""
    for node in Node.objects.select_related("cluster"):
        agent_heard(node.cluster, at(seconds))
    report = tick(now=at(seconds), may_rest=True)
    assert report is not None
    return report


@pytest.fixture
def waiting() -> Gpr:
    """Returns the second of two requests for the only node."""
    cluster, ann = make_cluster(nodes=1), make_user(is_admin=True)
    gpr_submit(actor=ann, spec=spec(make_slice(cluster), name="first"), now=NOW)
    made = gpr_submit(actor=ann, spec=spec(make_slice(cluster), name="second"), now=NOW)
    tick(now=NOW)
    return made


def test_it_rests_once_a_plan_has_changed_nothing_and_plans_again_before_long(waiting: Gpr) -> None:
    assert [rest(second).rested for second in (1, 2, 3)] == [False, True, True]
    assert rest(1 + settings.EGS_REST_S).rested is False


def test_whatever_happens_ends_the_rest(waiting: Gpr) -> None:
    rest(1)
    assert rest(2).rested

    gpr_cancel(gpr=fresh(waiting), actor=waiting.owner, now=at(3))

    assert rest(3).rested is False


def test_a_start_that_is_due_ends_the_rest_and_is_on_time() -> None:
    cluster, ann = make_cluster(nodes=1), make_user(is_admin=True)
    later = gpr_submit(actor=ann, spec=spec(make_slice(cluster), name="later", earliest_start_at=at(5)), now=NOW)
    rest(1)

    assert [rest(second).rested for second in (2, 3, 4)] == [True] * 3
    assert rest(5).started == [later.pk]
    assert fresh(later).state == GprState.PROVISIONING


def test_a_tick_that_was_kicked_or_told_nothing_plans(waiting: Gpr) -> None:
    rest(1)

    report = tick(now=at(2))

    assert report is not None
    assert not report.rested


def test_where_rights_to_what_others_hold_are_weighed_each_tick_goes_on_with_it(waiting: Gpr) -> None:
    Quota.objects.create(project=waiting.slice.project, shape="H100-80GB", guaranteed_gpus=1, created_at=NOW)
    rest(1)

    assert not rest(2).rested


def test_a_tick_in_a_hurry_starts_what_it_can_and_the_next_one_foretells_the_others(waiting: Gpr, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "WHOLE_PAUSE", 10_000)
    cluster = waiting.slice.clusters.get()
    third = gpr_submit(actor=waiting.owner, spec=spec(make_slice(cluster), name="third"), now=at(1))
    rest(2)
    foretold_at = fresh(third).planned_start_at
    assert foretold_at is not None
    inventory_store(cluster=cluster, nodes=[node_view(f"{cluster.name}-n{i}") for i in range(2)], now=at(3))

    report = tick(now=at(3), may_hurry=True)

    assert report is not None
    assert report.started == [waiting.pk]
    assert fresh(third).planned_start_at == foretold_at
    assert not rest(4).rested
    sooner_at = fresh(third).planned_start_at
    assert sooner_at is not None
    assert sooner_at < foretold_at


def test_an_empty_queue_rests_too() -> None:
    make_cluster(nodes=1)
    rest(1)

    assert rest(2).rested
    assert AllocatorRecord.objects.get().tick_count == 1


def test_a_rest_costs_two_queries_and_deadlines_are_looked_at_every_five_seconds(
    waiting: Gpr, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    rest(1)
    with django_assert_num_queries(2):
        tick(now=at(2), may_rest=True)
    assert rest(6.5).rested
    assert AllocatorRecord.objects.get().last_tick_at == at(6.5)


def test_a_box_that_ends_is_not_kept_waiting_by_a_rest() -> None:
    gpr = Stage().active(duration_s=600, entry_s=5.7)
    assert gpr.ends_at is not None
    end_s = (gpr.ends_at - NOW).total_seconds()
    assert [rest(end_s - left_s).rested for left_s in (8, 7, 6, 2, 1)] == [False, True, True, True, True]
    assert fresh(gpr).state == GprState.ACTIVE

    tick(now=at(end_s - 0.4))
    rest(end_s)

    assert fresh(gpr).state == GprState.EXITING


def test_a_clock_that_is_set_back_ends_the_rest(waiting: Gpr) -> None:
    rest(1)

    assert not rest(-3600).rested
