"""A request that starts after another one: its promise, why it waits, and what becomes of it however the other one ends."""

from __future__ import annotations

from copy import deepcopy
from datetime import timedelta
from typing import Any

import pytest

from core.errors import Conflict, InvalidInput
from gpr.allocation.live import LiveSnapshot, differences, snapshot_load
from gpr.allocation.snapshot import nodes_free_at
from gpr.allocation.starts import gprs_start
from gpr.approvals.services import gpr_approve
from gpr.followers.selectors import CHAIN_MAX
from gpr.models import AfterCondition, Gpr, GprState, Job, Promise, PromiseMove
from gpr.queue.decisions import gpr_evict
from gpr.queue.explanations import explain_gprs
from gpr.requests.editing import gpr_cancel, gpr_edit, spec_of
from gpr.requests.ending import gpr_extend, gpr_release
from journal.models import Event, Notice
from journal.notices.outbox import outbox_expand
from planner.causes import Cause
from planner.plan import Reason
from planner.snapshot import Slot
from slices.models import Slice
from tests.builders import make_slice
from tests.lifecycle.stage import EXIT, Stage, fresh, length_s
from tests.promises.feasible import faults

pytestmark = pytest.mark.django_db
S = GprState


@pytest.fixture(scope="module")
def built_stage(module_db: None) -> Stage:
    return Stage(nodes=3)


@pytest.fixture
def stage(built_stage: Stage, db: None) -> Stage:
    return deepcopy(built_stage)


@pytest.fixture
def other(stage: Stage) -> Slice:
    """Another workspace of the project, so that nothing but the order keeps the two apart."""
    return make_slice(stage.cluster, owner=stage.owner, project=stage.slice.project)


def ended(stage: Stage, gpr: Gpr) -> Gpr:
    stage.tick()
    stage.say(gpr, *EXIT)
    return fresh(gpr)


def promised(gpr: Gpr) -> Any:
    return Promise.objects.get(gpr=gpr).promised_start_at


def test_it_waits_beside_free_nodes_until_the_other_has_ended_and_then_starts_at_once(stage: Stage, other: Slice) -> None:
    first = stage.active(name="prep", duration_s=3600)
    then = stage.submit(other, after=first)
    assert first.ends_at is not None

    stage.tick()
    assert (fresh(then).state, promised(then)) == (S.QUEUED, nodes_free_at(first.ends_at))
    told = explain_gprs([fresh(then)], actor=stage.owner, now=stage.now)[then.pk]
    assert told.reason == Reason.WAITS_FOR_PREDECESSOR
    assert told.sentence.startswith("It starts after prep, which ends in 1 h")

    stage.after(600)
    gpr_release(gpr=first, actor=stage.owner, now=stage.now)
    stage.tick()
    assert (fresh(first).state, fresh(then).state) == (S.EXITING, S.QUEUED)
    stage.say(first, *EXIT)
    stage.tick()

    assert (fresh(first).state, fresh(then).state) == (S.RELEASED, S.PROVISIONING)
    assert not PromiseMove.objects.exists()


def test_a_chain_is_promised_one_behind_the_other_and_each_knows_when(stage: Stage, other: Slice) -> None:
    first = stage.submit(duration_s=3600)
    second = stage.submit(other, after=first, duration_s=1800)
    third = stage.submit(make_slice(stage.cluster, owner=stage.owner, project=stage.slice.project), after=second)
    step = timedelta(seconds=length_s(first)), timedelta(seconds=length_s(second))

    assert promised(second) >= promised(first) + step[0]
    assert promised(third) >= promised(second) + step[1]
    stage.tick()
    assert fresh(third).planned_start_at == stage.now + step[0] + step[1]  # as it is expected, sooner than it is promised
    assert differences(snapshot_load(now=stage.now), LiveSnapshot().load(now=stage.now)) == []


@pytest.mark.parametrize(
    ("condition", "how", "state"),
    [
        (AfterCondition.ANY, "canceled", S.PROVISIONING),
        (AfterCondition.SUCCESS, "canceled", S.CANCELED),
        (AfterCondition.ANY, "evicted", S.PROVISIONING),
        (AfterCondition.SUCCESS, "evicted", S.CANCELED),
        (AfterCondition.SUCCESS, "released", S.PROVISIONING),
    ],
)
def test_what_becomes_of_it_when_the_other_has_ended(stage: Stage, other: Slice, condition: str, how: str, state: str) -> None:
    first = stage.submit(name="prep") if how == "canceled" else stage.active(name="prep", requeue_on_failure=False)
    then = stage.submit(other, name="train", after=first, after_condition=condition)
    last = stage.submit(make_slice(stage.cluster, owner=stage.owner, project=stage.slice.project), name="test", after=then)

    if how == "canceled":
        gpr_cancel(gpr=first, actor=stage.owner, now=stage.now)
    elif how == "evicted":
        gpr_evict(gpr=first, actor=stage.admin, why="room", now=stage.now)
    else:
        gpr_release(gpr=first, actor=stage.admin, now=stage.now)
    if how != "canceled":
        ended(stage, first)
    stage.tick()

    assert fresh(then).state == state
    if state == S.CANCELED:
        event = Event.objects.get(gpr_id=then.pk, kind="gpr.transition")
        assert event.message == f"train was canceled. It was to start once the request before it had ended well, but that was {how}."
        outbox_expand(now=stage.now)
        assert Notice.objects.filter(user=stage.owner, event=event).exists()
        assert fresh(last).state == S.PROVISIONING, "it starts after any end, and that was one"


@pytest.mark.parametrize(("outcome", "state"), [("SUCCEEDED", S.PROVISIONING), ("FAILED", S.CANCELED), ("", S.CANCELED)])
def test_after_one_with_a_job_it_depends_on_how_that_ended(stage: Stage, other: Slice, outcome: str, state: str) -> None:
    first = stage.active(name="prep")
    Job.objects.create(gpr=first, created_at=stage.now, image="prep:1", outcome=outcome, finished_at=stage.now)
    then = stage.submit(other, after=first, after_condition=AfterCondition.SUCCESS)
    gpr_release(gpr=first, actor=stage.owner, now=stage.now)
    ended(stage, first)

    stage.tick()

    assert fresh(then).state == state
    messages = Event.objects.filter(gpr_id=then.pk, new=S.CANCELED).values_list("message", flat=True)
    assert all("but its job did not succeed" in message for message in messages)


def evicted(stage: Stage, first: Gpr) -> None:
    stage.after(3600)
    gpr_evict(gpr=first, actor=stage.admin, why="room", now=stage.now)
    stage.after(300)
    ended(stage, first)
    for _ in range(2):  # the first tick starts it again, on free nodes
        stage.tick()


@pytest.mark.both_databases
def test_an_eviction_of_the_first_moves_its_promise_and_says_why(stage: Stage, other: Slice) -> None:
    first = stage.active(duration_s=7200)
    then = stage.submit(other, after=first)
    was = promised(then)

    evicted(stage, first)

    (move,) = PromiseMove.objects.all()
    assert (fresh(first).state, fresh(then).state) == (S.PROVISIONING, S.QUEUED)
    assert (move.gpr_id, move.old_start_at, move.cause, move.cause_id) == (then.pk, was, Cause.PREDECESSOR, str(first.pk))
    assert promised(then) == stage.now + timedelta(seconds=length_s(fresh(first)))


def test_what_its_owner_then_asks_instead_is_promised_sooner_and_still_counts_from_the_first_promise(stage: Stage, other: Slice) -> None:
    first = stage.active(duration_s=7200)
    nearer = stage.active(slice_=make_slice(stage.cluster, owner=stage.owner, project=stage.slice.project), duration_s=7500)
    then = stage.submit(other, after=first)
    was = promised(then)
    evicted(stage, first)
    assert nearer.ends_at is not None
    assert was < nodes_free_at(nearer.ends_at) < promised(then)

    gpr_edit(gpr=fresh(then), actor=stage.owner, spec=spec_of(fresh(then), after=nearer), now=stage.now)

    assert promised(then) == nodes_free_at(nearer.ends_at)
    assert Promise.objects.get(gpr=then).first_promised_start_at == was
    assert PromiseMove.objects.count() == 1


def test_nobodys_own_act_on_the_first_breaks_the_promise_of_who_comes_after(stage: Stage, other: Slice) -> None:
    """An extension and an edit are refused, as where they would break any other promise."""
    first = stage.active(duration_s=3600)
    then = stage.submit(other, name="train", after=first, duration_s=600)
    with pytest.raises(Conflict, match="train is next") as refusal:
        gpr_extend(gpr=first, extra_s=7200, actor=stage.owner, now=stage.now)
    assert refusal.value.extra["next_id"] == str(then.pk)

    last = stage.submit(make_slice(stage.cluster, owner=stage.owner, project=stage.slice.project), name="test", after=then)
    with pytest.raises(Conflict, match="test starts after it"):
        gpr_edit(gpr=fresh(then), actor=stage.owner, spec=spec_of(fresh(then), duration_s=86_400), now=stage.now)
    with pytest.raises(Conflict, match="needs approval"):
        gpr_edit(gpr=fresh(then), actor=stage.owner, spec=spec_of(fresh(then), **stage.approval_needed()), now=stage.now)
    gpr_edit(gpr=fresh(then), actor=stage.owner, spec=spec_of(fresh(then), duration_s=300, name="short"), now=stage.now)

    assert promised(last) >= promised(then) + timedelta(seconds=length_s(fresh(then)))
    assert not PromiseMove.objects.exists()


def test_after_one_that_waits_for_approval_nothing_is_promised_until_that_is_approved(stage: Stage, other: Slice) -> None:
    first = stage.submit(name="prep", **stage.approval_needed())
    then = stage.submit(other, after=first)
    edited = stage.submit(make_slice(stage.cluster, owner=stage.owner, project=stage.slice.project))
    gpr_edit(gpr=edited, actor=stage.owner, spec=spec_of(edited, after=first), now=stage.now)
    stage.tick()

    for gpr in (fresh(then), fresh(edited)):
        assert (gpr.state, gpr.explanation["reason"], gpr.current_promise) == (S.QUEUED, Reason.PREDECESSOR_HAS_NO_PLACE, None)
    assert faults() == []
    gpr_approve(gpr=fresh(first), actor=stage.admin, now=stage.now)

    for gpr in (then, edited):
        assert promised(gpr) >= promised(first) + timedelta(seconds=length_s(first))


def test_what_closes_a_chain_or_makes_it_too_long_or_has_ended_badly_is_refused(stage: Stage, other: Slice) -> None:
    first = stage.submit()
    then = stage.submit(other, after=first)
    canceled = stage.submit()
    gpr_cancel(gpr=canceled, actor=stage.owner, now=stage.now)

    def refused(work: Any, match: str) -> None:
        with pytest.raises(InvalidInput, match=f"after: .*{match}"):
            work()

    refused(lambda: gpr_edit(gpr=fresh(first), actor=stage.owner, spec=spec_of(fresh(first), after=then), now=stage.now), "after itself")
    refused(lambda: gpr_edit(gpr=fresh(first), actor=stage.owner, spec=spec_of(fresh(first), after=first), now=stage.now), "after itself")
    refused(lambda: stage.submit(after=canceled, after_condition=AfterCondition.SUCCESS), "has ended already")
    refused(lambda: stage.submit(after=first, is_booking=True, earliest_start_at=stage.now + timedelta(hours=9)), "A booking")
    assert stage.submit(after=canceled).promise.promised_start_at is not None
    before = then
    for _ in range(CHAIN_MAX - 2):
        before = stage.submit(other, after=before)
    refused(lambda: stage.submit(other, after=before), f"At most {CHAIN_MAX}")
    head = stage.submit()
    refused(lambda: gpr_edit(gpr=fresh(first), actor=stage.owner, spec=spec_of(fresh(first), after=head), now=stage.now), "At most")


def test_one_that_waits_again_may_be_put_behind_another_and_then_starts_after_that(stage: Stage, other: Slice) -> None:
    again, first = stage.active(nodes=2), stage.active(slice_=other)
    rival = stage.submit(make_slice(stage.cluster, owner=stage.owner, project=stage.slice.project), nodes=2, priority=150)
    gpr_evict(gpr=again, actor=stage.admin, why="room", now=stage.now)
    ended(stage, again)
    stage.tick()
    again = fresh(again)
    assert (again.state, again.run, fresh(rival).state) == (S.QUEUED, 1, S.PROVISIONING)

    gpr_edit(gpr=again, actor=stage.owner, spec=spec_of(again, after=first), now=stage.now)
    for before, state in ((rival, S.QUEUED), (first, S.PROVISIONING)):
        gpr_release(gpr=fresh(before), actor=stage.owner, now=stage.now)
        ended(stage, before)
        stage.tick()
        assert fresh(again).state == state


def test_a_start_is_refused_while_the_other_waits_again_though_the_plan_knew_it_ended(stage: Stage, other: Slice) -> None:
    first = stage.submit()
    then = stage.submit(other, after=first)
    loaded = snapshot_load(now=stage.now)
    pool = loaded.snapshot.pools[0]

    with pytest.raises(Conflict, match="has not ended yet"):
        gprs_start({fresh(then): Slot(pool.id, int(stage.now.timestamp()), (pool.nodes[0].id,))}, loaded=loaded, now=stage.now)
