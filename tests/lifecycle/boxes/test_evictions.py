"""Evictions that the planner decides: whom, when, and for whom. test_eviction_notices.py has what a notice brings."""

from __future__ import annotations

from copy import deepcopy
from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings

from core.errors import BookingDoesNotFit, Conflict
from core.words import utc
from gpr.allocation.snapshot import box_end_for, nodes_free_at
from gpr.approvals.services import gpr_approve
from gpr.bookings.services import SeriesTerms, series_create
from gpr.evictions import withdrawals
from gpr.evictions.failed_jobs import KIND, failed_jobs_of
from gpr.models import Eviction, EvictionVictim, Gpr, GprState, RepeatRule, VictimOutcome
from gpr.requests.editing import gpr_cancel, gpr_edit, spec_of
from gpr.requests.ending import gpr_extend
from gpr.requests.estimates import RECLAIM, gpr_estimate
from gpr.requests.services import gpr_submit
from journal.models import Event
from protocol.tenancy.waiting_pods import JobFailed, PodsWaiting
from slices.models import Slice
from slices.quotas.services import quota_create
from tests.builders import SHAPE, make_slice, spec
from tests.cluster_requests.stage import other_cluster
from tests.lifecycle.boxes.evictions import DAY_S, LEAST_RUN_S, NOTICE_S, RULES, evicting_slice, noticed
from tests.lifecycle.stage import ENTRY, EXIT, Stage, fresh
from tests.slices.kubeconfigs import ready_namespace

pytestmark = pytest.mark.django_db
S = GprState


@pytest.fixture(autouse=True)
def rules() -> Any:
    with override_settings(**RULES):
        yield


@pytest.fixture(scope="module")
def built_stage(module_db: None) -> Stage:
    return Stage(nodes=1)


@pytest.fixture
def stage(built_stage: Stage, db: None) -> Stage:
    return deepcopy(built_stage)


@pytest.fixture
def other(stage: Stage) -> Slice:
    return evicting_slice(stage)


def failed_jobs(gpr: Gpr) -> tuple[str, ...]:
    return failed_jobs_of([gpr]).get(gpr.pk, ())


def test_a_request_that_waits_again_names_the_job_that_failed_with_its_box_while_no_pod_waits(stage: Stage, other: Slice) -> None:
    ready_namespace(stage.slice, stage.cluster, at=stage.now, name="vision")
    victim, _ = noticed(stage, other)
    failed = JobFailed(gpr_id=str(victim.pk), namespace="vision", name="train")
    stage.agent.sync(at=stage.now, jobs_failed=(failed,))  # it failed while the box was open: no word on a wait
    stage.after(NOTICE_S)
    stage.tick()
    other_cluster(stage.now)[1].sync(at=stage.now, jobs_failed=(failed,))
    assert not Event.objects.filter(kind=KIND).exists()

    for _ in range(2):  # the agent may not hear the answer
        stage.agent.sync(at=stage.now, jobs_failed=(failed, JobFailed(gpr_id="none", namespace="vision", name="train")))
    assert failed_jobs(fresh(victim)) == ()  # it does not wait yet
    stage.say(victim, *EXIT)
    stage.tick()

    (event,) = Event.objects.filter(kind=KIND)
    assert (event.gpr_id, event.slice_id) == (victim.pk, victim.slice_id)
    assert event.message == f"Job vision/train has failed since the nodes of {victim.name} were taken back."
    waits = fresh(victim)
    assert failed_jobs(waits) == ("vision/train",)
    stage.agent.sync(at=stage.now, waiting=(PodsWaiting(namespace="vision", count=1),))
    assert failed_jobs(waits) == ()
    stage.agent.sync(at=stage.now, waiting=())
    waits.run += 1
    assert failed_jobs(waits) == ()  # it was of the run before


def test_whoever_must_not_be_evicted_is_not(stage: Stage, other: Slice) -> None:
    victim, beneficiary = noticed(stage, other, evictable=False)

    assert not Eviction.objects.exists()
    ends_at = fresh(victim).ends_at
    assert ends_at is not None
    assert fresh(beneficiary).promise.promised_start_at > ends_at


def test_a_box_on_its_way_in_is_left_alone_until_it_is_active(stage: Stage, other: Slice) -> None:
    victim = stage.submit(duration_s=DAY_S, priority=50)
    stage.tick()
    stage.submit(other, priority=150, may_evict=True)
    assert not Eviction.objects.exists()

    stage.after(5)
    stage.say(victim, *ENTRY)
    stage.tick()
    stage.after(1)
    stage.tick()
    (row,) = EvictionVictim.objects.all()
    assert fresh(victim).provisioning_at is not None
    assert row.ends_at >= victim.created_at + timedelta(seconds=LEAST_RUN_S)


def test_who_may_not_evict_by_policy_needs_approval_for_it(stage: Stage) -> None:
    victim = stage.active(duration_s=DAY_S, priority=50)
    stage.after(LEAST_RUN_S)
    stage.tick()
    asked = stage.submit(make_slice(stage.cluster, owner=stage.owner), priority=150, may_evict=True)
    assert (asked.state, asked.approval_reasons) == (S.PENDING_APPROVAL, ["It may evict others; that needs approval in this workspace."])
    assert not Eviction.objects.exists()

    gpr_approve(gpr=asked, actor=stage.admin, now=stage.after(1))
    stage.tick()
    assert EvictionVictim.objects.get().gpr == victim


def test_an_edit_that_would_evict_needs_approval_as_well_and_what_was_granted_stays(stage: Stage, other: Slice) -> None:
    stage.active(duration_s=DAY_S)
    plain = stage.submit(make_slice(stage.cluster, owner=stage.owner))
    gpr_edit(gpr=plain, actor=stage.owner, spec=spec_of(plain, may_evict=True), now=stage.now)
    assert fresh(plain).state == S.PENDING_APPROVAL

    gpr_approve(gpr=fresh(plain), actor=stage.admin, now=stage.after(1))
    gpr_edit(gpr=fresh(plain), actor=stage.owner, spec=spec_of(fresh(plain), name="renamed"), now=stage.now)
    assert fresh(plain).state == S.QUEUED


def test_whoever_is_entitled_takes_back_what_another_project_borrows(stage: Stage, other: Slice) -> None:
    """Nobody may evict by priority here, and the borrower's is even higher."""
    quota_create(owner=other.project, shape=SHAPE, change={"guaranteed_gpus": 4}, actor=stage.admin, now=stage.now)
    borrower = stage.active(duration_s=DAY_S, priority=200, evictable=False)
    stage.after(LEAST_RUN_S)
    stage.tick()
    entitled = stage.submit(other, priority=50)

    (row,) = EvictionVictim.objects.all()
    assert (row.gpr, row.eviction.gpr, row.kind) == (borrower, entitled, "reclaim")
    assert fresh(borrower).ends_at == stage.now + timedelta(seconds=NOTICE_S)

    stage.after(NOTICE_S)
    stage.tick()
    stage.say(borrower, *EXIT)
    stage.tick()
    assert (fresh(entitled).state, fresh(borrower).state) == (S.PROVISIONING, S.QUEUED)

    # It waits to borrow again, and does not take back what was taken from it.
    for _ in range(3):
        stage.after(LEAST_RUN_S)
        stage.tick()
    assert EvictionVictim.objects.count() == 1


def test_whoever_is_wanted_later_works_on_until_then_and_is_told_again_when_another_wants_it_sooner(stage: Stage, other: Slice) -> None:
    borrower, first = wanted_later(stage, other)
    wanted_at = stage.now + timedelta(hours=6)
    assert first.promise.promised_start_at == wanted_at
    assert fresh(borrower).ends_at == box_end_for(wanted_at)

    second = stage.submit(evicting_slice(stage), priority=200, may_evict=True, duration_s=600)

    assert fresh(borrower).ends_at == stage.now + timedelta(seconds=NOTICE_S)
    rows = EvictionVictim.objects.order_by("pk").values_list("eviction__gpr", "gpr", "outcome")
    assert list(rows) == [(first.pk, borrower.pk, VictimOutcome.SOONER), (second.pk, borrower.pk, VictimOutcome.NOTICED)]
    assert fresh(first).promise.promised_start_at == wanted_at

    gpr_cancel(gpr=fresh(second), actor=stage.owner, now=stage.after(10))
    stage.tick()

    assert fresh(borrower).ends_at == box_end_for(wanted_at)
    outcomes = EvictionVictim.objects.order_by("pk").values_list("outcome", flat=True)
    assert list(outcomes) == [VictimOutcome.NOTICED, VictimOutcome.SPARED]

    gpr_cancel(gpr=fresh(first), actor=stage.owner, now=stage.after(10))
    stage.tick()

    assert fresh(borrower).ends_at == borrower.ends_at


def wanted_later(stage: Stage, other: Slice) -> tuple[Gpr, Gpr]:
    """One that runs for a day, and one that is entitled to its GPUs in six hours."""
    quota_create(owner=other.project, shape=SHAPE, change={"guaranteed_gpus": 4}, actor=stage.admin, now=stage.now)
    borrower = stage.active(duration_s=DAY_S)
    stage.after(LEAST_RUN_S)
    stage.tick()
    return borrower, stage.submit(other, duration_s=600, earliest_start_at=stage.now + timedelta(hours=6))


def borrowed(stage: Stage, other: Slice) -> Gpr:
    """One that runs for a day on GPUs that are guaranteed to the other."""
    quota_create(owner=other.project, shape=SHAPE, change={"guaranteed_gpus": 4}, actor=stage.admin, now=stage.now)
    borrower = stage.active(duration_s=DAY_S)
    stage.after(LEAST_RUN_S)
    stage.tick()
    return borrower


def test_a_booking_within_its_guarantee_has_its_time_and_whoever_borrows_works_on_until_then(stage: Stage, other: Slice) -> None:
    borrower, at = borrowed(stage, other), stage.now + timedelta(hours=6)
    asked = spec(other, duration_s=600, earliest_start_at=at, is_booking=True)
    (offer,) = gpr_estimate(actor=stage.owner, spec=asked, now=stage.now)

    booking = gpr_submit(actor=stage.owner, spec=asked, now=stage.now)

    assert (offer.supply, offer.start_at, offer.promised_start_at) == (RECLAIM, at, at)
    assert booking.promise.promised_start_at == at
    (told,) = Event.objects.filter(kind="gpr.eviction_planned")
    assert told.message == f"Others end early for {booking.name}: it can start at {utc(at)}, as it is booked."
    (row,) = EvictionVictim.objects.all()
    assert (row.gpr, row.eviction.gpr, row.kind, row.ends_at) == (borrower, booking, "reclaim", box_end_for(at))
    assert row.eviction.instead_at is not None
    assert row.eviction.start_at == at < row.eviction.instead_at
    assert fresh(borrower).ends_at == box_end_for(at)

    for _ in range(3):
        stage.after(10)
        stage.tick()
    assert EvictionVictim.objects.count() == 1

    stage.now = box_end_for(at)
    stage.tick()
    stage.say(borrower, *EXIT)
    stage.now = at
    stage.tick()
    assert (fresh(booking).state, fresh(borrower).state) == (S.PROVISIONING, S.QUEUED)


def test_when_the_booking_is_canceled_whoever_made_way_for_it_is_spared(stage: Stage, other: Slice) -> None:
    borrower = borrowed(stage, other)
    booking = stage.submit(other, duration_s=600, earliest_start_at=stage.now + timedelta(hours=6), is_booking=True)
    gpr_cancel(gpr=fresh(booking), actor=stage.owner, now=stage.after(10))
    stage.tick()

    assert EvictionVictim.objects.get().outcome == VictimOutcome.SPARED
    assert fresh(borrower).ends_at == borrower.ends_at


def test_a_booking_too_soon_for_any_notice_is_refused_with_the_first_time_that_works(stage: Stage, other: Slice) -> None:
    borrower = borrowed(stage, other)
    asked = {"duration_s": 600, "is_booking": True}

    with pytest.raises(BookingDoesNotFit) as refused:
        stage.submit(other, earliest_start_at=stage.now + timedelta(minutes=6), **asked)

    after_at = refused.value.extra["nearest_after_at"]
    assert timedelta() <= after_at - nodes_free_at(stage.now + timedelta(seconds=NOTICE_S)) < timedelta(minutes=1)
    assert (fresh(borrower).ends_at, Eviction.objects.count()) == (borrower.ends_at, 0)

    stage.submit(other, earliest_start_at=after_at, **asked)
    assert EvictionVictim.objects.get().gpr == borrower


def test_a_booking_that_would_itself_only_borrow_takes_nothing_from_anybody(stage: Stage, other: Slice) -> None:
    quota_create(owner=make_slice(stage.cluster).project, shape=SHAPE, change={"guaranteed_gpus": 4}, actor=stage.admin, now=stage.now)
    stage.active(duration_s=DAY_S)
    stage.after(LEAST_RUN_S)

    with pytest.raises(BookingDoesNotFit):
        stage.submit(other, earliest_start_at=stage.now + timedelta(hours=6), is_booking=True)
    assert not Eviction.objects.exists()


def test_each_occurrence_of_a_series_takes_back_what_is_guaranteed_to_it(stage: Stage, other: Slice) -> None:
    quota_create(owner=other.project, shape=SHAPE, change={"guaranteed_gpus": 4}, actor=stage.admin, now=stage.now)
    borrower = stage.active(duration_s=3 * DAY_S)
    stage.after(LEAST_RUN_S)
    first_at = stage.now + timedelta(days=1)
    ask = SeriesTerms(spec=spec(other, duration_s=600), first_start_at=first_at, rule=RepeatRule.DAILY, zone="UTC", count=5)

    series = series_create(actor=stage.owner, ask=ask, now=stage.now)

    assert [row.refusal for row in series.occurrences.all()] == [""] * 5
    (notice,) = EvictionVictim.objects.filter(outcome=VictimOutcome.NOTICED)
    assert (notice.gpr, notice.eviction.start_at) == (borrower, first_at)


def test_it_is_spared_when_the_third_that_rested_on_its_end_is_gone_as_well(stage: Stage, other: Slice) -> None:
    borrower, entitled = wanted_later(stage, other)
    third = stage.submit(make_slice(stage.cluster, owner=stage.owner), duration_s=600)
    gpr_cancel(gpr=fresh(entitled), actor=stage.owner, now=stage.after(10))
    stage.tick()
    assert EvictionVictim.objects.get().outcome == VictimOutcome.NOTICED

    gpr_cancel(gpr=fresh(third), actor=stage.owner, now=stage.after(10))
    stage.after(withdrawals.REVIEWED_AGAIN.total_seconds())
    stage.tick()

    assert EvictionVictim.objects.get().outcome == VictimOutcome.SPARED
    assert fresh(borrower).ends_at == borrower.ends_at


def test_it_works_on_for_as_long_as_the_other_puts_its_start_off(stage: Stage, other: Slice) -> None:
    borrower, entitled = wanted_later(stage, other)
    later_at = stage.now + timedelta(hours=12)
    gpr_edit(gpr=fresh(entitled), spec=spec_of(fresh(entitled), earliest_start_at=later_at), actor=stage.owner, now=stage.after(10))
    stage.tick()

    slot_at = fresh(entitled).promise.slot_start_at
    assert slot_at >= later_at
    assert fresh(borrower).ends_at == box_end_for(slot_at)
    (row,) = EvictionVictim.objects.all()
    assert (row.outcome, row.ends_at, row.eviction.start_at) == (VictimOutcome.NOTICED, box_end_for(slot_at), slot_at)
    assert Event.objects.filter(kind="gpr.eviction_put_off", gpr_id=borrower.pk).count() == 1

    stage.after(10)
    stage.tick()
    assert fresh(borrower).ends_at == box_end_for(slot_at)


def test_an_extension_that_somebody_would_be_evicted_for_is_refused(stage: Stage, other: Slice) -> None:
    with override_settings(EGS_EVICTION_GAIN_S=600):
        own = stage.active(duration_s=2300, priority=50)
        stage.after(LEAST_RUN_S)
        stage.tick()
        quota_create(owner=other.project, shape=SHAPE, change={"guaranteed_gpus": 4}, actor=stage.admin, now=stage.now)
        stage.submit(other, priority=50)
        assert not EvictionVictim.objects.exists()  # it ends soon enough by itself

        with pytest.raises(Conflict, match="entitled"):
            gpr_extend(gpr=fresh(own), extra_s=7200, actor=stage.owner, now=stage.now)


def test_a_workspace_whose_nodes_are_gone_holds_them_all_the_same(stage: Stage) -> None:
    """Nothing else of it can start until its agent lets go, so nothing of it may be planned for now."""
    two = Stage(nodes=2)
    own = two.active(duration_s=DAY_S)
    (row,) = two.held(own)
    waits = two.submit(duration_s=3600)
    two.lose(row.node)
    two.after(1)

    report = two.tick()

    assert report.skipped == {}
    assert fresh(waits).explanation["reason"] == "waits_for_slice"
