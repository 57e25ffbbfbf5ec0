"""The hub tells an agent the states of the GPRs that are objects of its cluster."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from gpr.approvals.services import gpr_reject
from gpr.models import Gpr, GprState
from gpr.queue.decisions import gpr_evict
from gpr.requests.editing import gpr_cancel
from gpr.requests.ending import gpr_release
from inventory.models import Reservation
from planner.explain import STRANGER
from protocol.agents.listings import set_digest
from protocol.assignments import Phase
from protocol.tenancy.cluster_requests import CLUSTER_REQUEST_TOLD_S, ClusterRequestState
from slices.models import Namespace
from tests.builders import NOW, make_slice, make_user
from tests.cluster_requests.stage import ClusterRequestStage, claim, gone, neighbor, other_cluster
from tests.lifecycle.stage import ENTRY, EXIT
from tests.slices.kubeconfigs import ready_namespace

pytestmark = pytest.mark.django_db

UID = "uid-train"


def told(stage: ClusterRequestStage) -> ClusterRequestState:
    return stage.states()[UID]


def test_one_that_waits_has_a_place_a_promise_and_a_reason(stage: ClusterRequestStage) -> None:
    ahead = stage.submit(name="ahead", nodes=2, priority=150)
    gpr = stage.filed("train", nodes=2)
    gpr.refresh_from_db()

    state = told(stage)

    assert (state.gpr_id, state.state, state.position, state.is_ended, state.nodes) == (str(gpr.pk), "QUEUED", 2, False, ())
    assert state.promised_start_s == gpr.promise.promised_start_at.timestamp()
    assert gpr.planned_start_at is not None
    assert state.estimated_start_s == gpr.planned_start_at.timestamp()
    assert (state.started_s, state.ends_s, state.end_reason) == (None, None, "")
    assert state.filed_s == gpr.created_at.timestamp()
    assert state.message.startswith(f"It waits for {ahead.name} (ahead of it, 2 nodes, ends at 20")


def test_its_whole_life_is_told(stage: ClusterRequestStage) -> None:
    gpr = stage.filed("train")
    stage.tick()
    assert (told(stage).state, told(stage).nodes) == ("PROVISIONING", (f"{stage.cluster.name}-n0",))
    assert "Checks run on 1 node" in told(stage).message

    stage.say(gpr, *ENTRY)
    stage.tick()
    state = told(stage)
    assert (state.state, state.started_s, state.ends_s) == ("ACTIVE", NOW.timestamp(), (NOW + timedelta(hours=1)).timestamp())
    assert state.nodes == (f"{stage.cluster.name}-n0",)
    assert (state.position, state.estimated_start_s) == (None, None)

    gpr_release(gpr=Gpr.objects.get(pk=gpr.pk), actor=stage.owner, now=stage.now)
    assert (told(stage).state, told(stage).end_reason) == ("EXITING", "EARLY_RELEASE")
    assert told(stage).message == "Released early by its owner; its nodes are being taken back."

    stage.after(60)
    stage.say(gpr, *EXIT)
    stage.tick()
    state = told(stage)
    assert (state.state, state.is_ended, state.nodes, state.ends_s) == ("RELEASED", True, (), stage.now.timestamp())
    assert state.message == f"Released by {stage.owner.name} after 0 s of 1 h."


def test_what_holds_an_entry_up_is_told(stage: ClusterRequestStage) -> None:
    gpr = stage.filed("train")
    stage.tick()
    Reservation.objects.filter(gpr=gpr).update(failure="It has no driver.")

    assert told(stage).message == f"{stage.cluster.name}-n0: It has no driver."


def test_one_that_needs_approval_says_for_what_and_why_it_was_refused(stage: ClusterRequestStage) -> None:
    gpr = stage.filed("train", duration="8d")
    state = told(stage)
    assert (state.state, state.position, state.promised_start_s) == ("PENDING_APPROVAL", None, None)
    assert "longer than 7 d needs approval" in state.message

    gpr_reject(gpr=gpr, actor=stage.admin, why="Too long for a trial.", now=stage.now)

    state = told(stage)
    assert (state.state, state.is_ended) == ("REJECTED", True)
    assert state.message == f"Rejected by {stage.admin.name}: Too long for a trial."


def test_one_that_was_canceled_here_is_told(stage: ClusterRequestStage) -> None:
    gpr_cancel(gpr=stage.filed("train"), actor=stage.owner, now=stage.now)

    assert (told(stage).state, told(stage).message) == ("CANCELED", f"Canceled by {stage.owner.name} before it started.")


def test_an_end_is_told_for_an_hour(stage: ClusterRequestStage) -> None:
    stage.filed("train")
    stage.claims(gone("train"))

    stage.after(CLUSTER_REQUEST_TOLD_S - 1)
    assert stage.states().keys() == {UID}
    stage.after(1)
    assert stage.states() == {}
    assert stage.states() == {}


def test_a_list_that_the_agent_has_is_not_sent_again(stage: ClusterRequestStage) -> None:
    stage.filed("train")
    first = stage.agent.sync(at=stage.now)
    assert first.claims is not None
    assert first.claims_digest == set_digest(first.claims)

    assert stage.agent.sync(at=stage.now, have_claims=first.claims_digest).claims is None
    # The sentence has no time that is left in it: it would be another one each second.
    assert stage.agent.sync(at=stage.after(7), have_claims=first.claims_digest).claims is None

    stage.filed("second")
    again = stage.agent.sync(at=stage.now, have_claims=first.claims_digest)
    assert again.claims is not None
    assert [state.id for state in again.claims] == ["uid-second", UID]


def test_an_agent_is_told_of_its_own_cluster_alone(stage: ClusterRequestStage) -> None:
    stage.filed("train")
    _, agent = other_cluster(stage.now)

    assert agent.sync(at=stage.now).claims == ()


def test_others_of_the_same_workspace_are_named_and_those_of_others_are_not(stage: ClusterRequestStage) -> None:
    """Anybody who sees the namespace reads it, and need not be in the owner's other workspaces."""
    slice_ = make_slice(stage.cluster, name="second", owner=stage.owner, at=stage.now)
    foreign = stage.submit(slice_, name="canary", nodes=2)
    stage.tick()
    stage.filed("train", nodes=2)

    assert told(stage).message == f"It waits for the GPUs of {STRANGER}."
    assert foreign.name not in told(stage).message


def test_a_filing_and_each_move_raise_the_generation_and_a_new_place_does_not(
    stage: ClusterRequestStage, django_capture_on_commit_callbacks: object
) -> None:
    before = stage.agent.sync(at=stage.now).generation
    gpr = stage.filed("train", nodes=2)
    filed = stage.agent.sync(at=stage.now).generation
    assert filed > before

    stage.submit(name="ahead", priority=200)
    assert stage.agent.sync(at=stage.now).generation == filed

    with django_capture_on_commit_callbacks(execute=True):  # type: ignore[operator]
        gpr_cancel(gpr=Gpr.objects.get(pk=gpr.pk), actor=stage.owner, now=stage.now)
    assert stage.agent.sync(at=stage.now).generation == filed + 1


def test_a_move_of_what_was_filed_here_raises_no_generation(stage: ClusterRequestStage, django_capture_on_commit_callbacks: object) -> None:
    gpr = stage.submit(name="plain")
    before = stage.agent.sync(at=stage.now).generation

    with django_capture_on_commit_callbacks(execute=True):  # type: ignore[operator]
        gpr_cancel(gpr=gpr, actor=stage.owner, now=stage.now)

    assert stage.agent.sync(at=stage.now).generation == before


def test_a_list_costs_as_much_for_many_as_for_a_few(stage: ClusterRequestStage) -> None:
    def query_count() -> int:
        with CaptureQueriesContext(connection) as captured:
            stage.agent.sync(at=stage.now)
        return len(captured)

    def more(numbers: range) -> None:
        for number in numbers:
            slice_ = make_slice(stage.cluster, owner=make_user(at=stage.now), at=stage.now)
            ready_namespace(slice_, stage.cluster, at=stage.now, name=f"of-{number}")
            stage.filed(f"waits-{number}", namespace=f"of-{number}", nodes=2)
            stage.filed(f"over-{number}", namespace=f"of-{number}")
            stage.claims(gone(f"over-{number}"))

    without = query_count()
    stage.opened("runs")
    more(range(3))
    few = query_count()
    more(range(3, 10))

    assert query_count() == few
    assert few - without <= 9


def test_an_unknown_end_of_a_namespace_hides_nothing(stage: ClusterRequestStage) -> None:
    """Bound to nobody by now: the object may still be there, and its status is right to the end."""
    stage.filed("train")
    Namespace.objects.all().delete()

    assert told(stage).state == "QUEUED"


def test_one_that_waits_again_is_told_so(stage: ClusterRequestStage) -> None:
    gpr = stage.opened("train")
    gpr_evict(gpr=gpr, actor=stage.admin, why="Somebody else needs it.", requeue=True, now=stage.now)
    stage.tick()
    stage.say(gpr, Phase.EXITING, Phase.RELEASED)
    stage.tick()

    gpr.refresh_from_db()
    state = told(stage)
    assert state.state == gpr.state
    assert gpr.state in {GprState.QUEUED, GprState.PROVISIONING}
    assert (state.is_ended, state.started_s, state.ends_s) == (False, None, None)


def test_of_a_neighbor_in_the_same_cluster_each_object_is_told_with_its_own(stage: ClusterRequestStage) -> None:
    neighbor(stage)
    stage.filed("train")
    stage.claims(claim("canary", namespace="theirs"))

    states = stage.states()

    assert {uid: Gpr.objects.get(pk=state.gpr_id).slice.name for uid, state in states.items()} == {
        UID: stage.slice.name,
        "uid-canary": "canary",
    }
