"""Budgets of GPU-hours: what counts, what a request beyond one meets, and who is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from core.errors import OverPolicy
from gpr.approvals.services import gpr_approve
from gpr.budgets.bounds import budgets_send
from gpr.budgets.ledger import Ledger
from gpr.budgets.periods import Span, period_at, periods_between
from gpr.budgets.selectors import BudgetUse, budget_uses
from gpr.budgets.services import budgets_record
from gpr.models import Gpr, GprState, UsageProgress
from gpr.queue.decisions import gpr_set_priority
from gpr.requests.editing import gpr_edit, spec_of
from gpr.requests.ending import gpr_extend
from gpr.requests.services import gpr_submit, gprs_submit
from gpr.requests.spec import window_of
from gpr.usage.services import held_count
from inventory.models import Reservation
from journal.models import Event
from journal.notices.audience import hearers_of
from slices.budgets.services import budget_change, budget_create
from slices.models import AtLimit, Budget, Period, Project, Slice
from tests import factories
from tests.builders import SHAPE

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
TOLD = Event.objects.filter(kind__in=["budget.warned", "budget.spent"])


class Place:
    """It has a workspace on two nodes of 8 GPUs."""

    def __init__(self) -> None:
        self.people = factories.make_people()
        self.cluster = factories.cluster()
        self.slice = factories.make_slice(self.cluster, name="vision", owner=self.people.owner)
        self.now = timezone.now()

    def give(self, gpu_hours: int, owner: Project | Slice | None = None, **terms: Any) -> Budget:
        """Gives it for the day before and the thirty days from now."""
        owner, shape, at_limit = owner or self.slice, terms.pop("shape", ""), terms.pop("at_limit", AtLimit.APPROVE)
        dates = {"starts_at": self.now - timedelta(days=1), "ends_at": self.now + timedelta(days=30), **terms}
        return budget_create(
            owner=owner,
            shape=shape,
            period=Period.RANGE,
            change={"gpu_hours": gpu_hours, "at_limit": at_limit, "starts_at": dates["starts_at"], "ends_at": dates["ends_at"]},
            actor=None,
            now=self.now,
        )

    def ask(self, hours: float, nodes: int = 1, **changes: Any) -> Gpr:
        spec = factories.spec(self.slice, nodes=nodes, duration_s=int(hours * 3600), **changes)
        return gpr_submit(actor=self.people.owner, spec=spec, now=self.now)

    def use(self, budget: Budget) -> BudgetUse:
        (use,) = budget_uses([budget], now=self.now)
        (bounded,) = (each for each in budgets_send([budget.owner.pk], now=self.now)() if each.budget == budget)
        assert bounded.given_most_s >= (use.used_hours + use.committed_hours) * 3600 - 1e-3
        return use


@pytest.fixture
def place(db: None) -> Place:
    return Place()


def test_weeks_begin_on_monday_months_on_the_first_and_a_long_request_touches_several() -> None:
    at = datetime(2026, 12, 31, 15, tzinfo=UTC)  # a Thursday
    day = datetime(2026, 12, 28, tzinfo=UTC)

    assert period_at(Budget(period=Period.WEEK), at) == Span(day, day + timedelta(days=7))
    month = Span(datetime(2026, 12, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC))
    assert period_at(Budget(period=Period.MONTH), at) == month
    assert len(list(periods_between(Budget(period=Period.WEEK), at, at + timedelta(days=7)))) == 2
    past = Budget(period=Period.RANGE, starts_at=at - 2 * HOUR, ends_at=at - HOUR)
    assert list(periods_between(past, at, at + HOUR)) == []


def test_hours_held_are_used_and_hours_booked_from_now_on_are_committed(place: Place) -> None:
    of_slice, of_project = place.give(1000), place.give(1000, place.slice.project)
    other_shape = place.give(1000, shape=SHAPE)
    Budget.objects.filter(pk=other_shape.pk).update(shape="A100")
    gpr = factories.started(place.slice, place.people.owner, duration_s=7200)
    Reservation.objects.filter(gpr=gpr).update(starts_at=place.now - HOUR, ends_at=place.now + 2 * HOUR)
    place.ask(3, gpus_per_node=2)

    uses = budget_uses([of_slice, of_project, Budget.objects.get(pk=other_shape.pk)], now=place.now)

    assert [(use.used_hours, use.committed_hours, use.left_hours) for use in uses] == [(8, 22, 970), (8, 22, 970), (0, 0, 1000)]


def test_a_released_box_counts_until_its_release_and_a_period_cuts_what_reaches_out_of_it(place: Place) -> None:
    budget = place.give(100, starts_at=place.now - HOUR, ends_at=place.now + HOUR)
    gpr = factories.started(place.slice, place.people.owner)
    rows = Reservation.objects.filter(gpr=gpr)
    rows.update(starts_at=place.now - 4 * HOUR, ends_at=place.now + 4 * HOUR)

    assert (place.use(budget).used_hours, place.use(budget).committed_hours) == (8, 8)
    rows.update(state="RELEASED", released_at=place.now - HOUR / 2)
    assert (place.use(budget).used_hours, place.use(budget).committed_hours) == (4, 0)


def test_a_request_beyond_it_waits_for_approval_with_the_figures_and_one_within_it_does_not(place: Place) -> None:
    place.give(100, place.slice.project)
    assert place.ask(10).state == GprState.QUEUED

    gpr = place.ask(2, nodes=2)

    assert gpr.state == GprState.PENDING_APPROVAL
    (reason,) = gpr.approval_reasons
    name = place.slice.project.name
    assert reason.startswith(f"The budget of project {name} has 20 of 100 GPU-hours left from ")
    assert reason.endswith("; 32 were asked for, which needs approval. 16 GPUs may be booked for 1 h 15 min at most.")
    assert place.ask(2.5).state == GprState.QUEUED  # what waits for approval holds nothing of it


def test_a_budget_that_refuses_says_what_would_fit_and_many_at_once_share_it(place: Place) -> None:
    place.give(40, at_limit=AtLimit.REFUSE)
    specs = [factories.spec(place.slice, duration_s=3 * 3600, nodes=1) for _ in range(2)]

    fits, refused = gprs_submit(actor=place.people.owner, specs=specs, now=place.now, collect_errors=(OverPolicy,))

    assert isinstance(fits, Gpr)
    assert isinstance(refused, OverPolicy)
    assert (refused.extra["limit"], refused.extra["most"], refused.extra["fitting_duration_s"]) == ("gpu_hours", 16, 7200)
    assert str(refused).endswith("; 24 were asked for. 8 GPUs may be booked for 2 h at most.")
    assert Gpr.objects.count() == 1


def test_an_approval_is_held_to_a_budget_that_refuses_since_others_may_have_used_it_meanwhile(place: Place) -> None:
    place.give(40, at_limit=AtLimit.REFUSE)
    first, second = (place.ask(4, priority=300) for _ in range(2))
    assert {first.state, second.state} == {GprState.PENDING_APPROVAL}

    gpr_approve(gpr=first, actor=place.people.admin, now=place.now)
    with pytest.raises(OverPolicy):
        gpr_approve(gpr=second, actor=place.people.admin, now=place.now)
    with pytest.raises(OverPolicy):
        gpr_set_priority(gpr=second, priority=100, actor=place.people.admin, why="", now=place.now)

    assert set(Gpr.objects.values_list("state", flat=True)) == {GprState.QUEUED, GprState.PENDING_APPROVAL}


def test_an_edit_is_held_to_what_is_left_beside_the_request_itself(place: Place) -> None:
    budget = place.give(40)
    gpr = place.ask(4)

    assert gpr_edit(gpr=gpr, actor=place.people.owner, spec=spec_of(gpr, duration_s=5 * 3600), now=place.now).state == GprState.QUEUED
    budget_change(budget=budget, change={"gpu_hours": 8}, actor=place.people.admin, now=place.now)
    assert gpr_edit(gpr=gpr, actor=place.people.owner, spec=spec_of(gpr, priority=100), now=place.now).state == GprState.QUEUED
    more = gpr_edit(gpr=gpr, actor=place.people.owner, spec=spec_of(gpr, duration_s=6 * 3600), now=place.now)
    assert more.state == GprState.PENDING_APPROVAL
    budget_change(budget=budget, change={"at_limit": AtLimit.REFUSE}, actor=place.people.admin, now=place.now)
    with pytest.raises(OverPolicy):
        gpr_edit(gpr=more, actor=place.people.owner, spec=spec_of(more, duration_s=7 * 3600), now=place.now)


def test_an_extension_beyond_it_is_refused_unless_an_administrator_makes_it(place: Place) -> None:
    gpr = factories.active(place.slice, place.people.owner, duration_s=7200)
    place.give(24)

    with pytest.raises(OverPolicy, match="8 GPUs may be booked for"):
        gpr_extend(gpr=gpr, extra_s=3 * 3600, actor=place.people.owner, now=place.now)
    gpr_extend(gpr=gpr, extra_s=3 * 3600, actor=place.people.admin, now=place.now)

    gpr.refresh_from_db()
    assert gpr.duration_s == 5 * 3600


def test_its_people_are_told_once_in_a_period_at_80_percent_and_once_when_it_is_spent(place: Place) -> None:
    of_slice, of_project = place.give(10), place.give(20, place.slice.project)
    gpr = factories.started(place.slice, place.people.owner)
    Reservation.objects.filter(gpr=gpr).update(starts_at=place.now - HOUR, ends_at=place.now + 9 * HOUR)

    def told(after: timedelta) -> set[tuple[str, bool]]:
        budgets_record(now=place.now + after)
        return {(event.kind, event.slice_id is not None) for event in TOLD.all()}

    assert told(timedelta(0)) == told(timedelta(minutes=1)) == {("budget.warned", True)}
    assert told(HOUR) == told(HOUR) == {("budget.warned", True), ("budget.spent", True), ("budget.warned", False)}
    assert TOLD.count() == 3
    hearers = hearers_of(list(TOLD.all()))
    assert {(hearer.event.slice_id, hearer.user) for hearer in hearers} == {
        (place.slice.pk, place.people.owner),
        (None, place.people.admin),
    }
    message = TOLD.get(kind="budget.spent").message
    assert message.startswith("16 of 10 GPU-hours from ")
    assert message.endswith(" are used by workspace vision. Requests beyond it wait for approval.")
    assert Budget.objects.get(pk=of_project.pk).spent_at is None
    budget_change(budget=of_slice, change={"gpu_hours": 17}, actor=place.people.admin, now=place.now)
    told(HOUR)
    assert TOLD.count() == 4


def test_a_request_far_below_its_budgets_costs_one_query_a_near_one_six_and_without_budgets_news_cost_one(
    place: Place, django_assert_num_queries: Any
) -> None:
    with django_assert_num_queries(1):
        budgets_record(now=place.now)
    with django_assert_num_queries(0):
        assert budget_uses([], now=place.now) == []
    gpr = factories.started(place.slice, place.people.owner, duration_s=7200)
    place.give(10_000), place.give(100_000, place.slice.project)
    place.ask(3)
    asked = window_of(spec_of(gpr), place.now)

    for hours, query_count in ((10_000, 1), (50, 6)):
        Budget.objects.filter(slice=place.slice).update(gpu_hours=hours)
        with django_assert_num_queries(query_count):
            assert bool(Ledger.load([place.slice], now=place.now).excesses(asked)) is (hours == 50)


@pytest.mark.both_databases
def test_what_a_budget_can_have_given_is_bounded_by_all_that_counts_for_it(place: Place) -> None:
    """A box of days that are final and of today, another that was released, requests that wait, and the budgets of three periods."""
    long, short = (factories.started(place.slice, place.people.owner, nodes=1, duration_s=7200) for _ in range(2))
    Reservation.objects.filter(gpr=long).update(starts_at=place.now - timedelta(days=40), ends_at=place.now + HOUR)
    Reservation.objects.filter(gpr=short).update(
        starts_at=place.now - timedelta(days=3), ends_at=place.now, state="RELEASED", released_at=place.now - HOUR
    )
    place.ask(3), place.ask(200, gpus_per_node=1)
    ranged = place.give(10_000, place.slice.project)
    repeated = [
        budget_create(owner=place.slice, shape="", period=period, change={"gpu_hours": 10_000}, actor=None, now=place.now)
        for period in (Period.WEEK, Period.MONTH)
    ]

    for _ in range(2):
        for budget in (ranged, *repeated):
            assert place.use(budget).used_hours > 0
        for _ in range(2):  # 31 days each
            held_count(now=place.now)
    assert UsageProgress.objects.get().held_until_at
