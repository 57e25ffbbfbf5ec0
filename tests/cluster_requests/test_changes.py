"""An object changes, or is gone, and its GPR follows: what can be, and what stays as it was."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from gpr.allocation.advance import advance
from gpr.models import ClusterRequestRecord as ClaimRow
from gpr.models import Gpr, GprState, Promise
from gpr.queue.decisions import gpr_evict, gpr_set_priority
from gpr.requests.editing import gpr_edit, spec_of
from gpr.requests.end_reasons import ending
from gpr.requests.ending import gpr_extend, gpr_release
from journal.models import Event
from protocol.tenancy.cluster_requests import ClusterRequestVerdict
from slices.models import Namespace, Role, Slice
from slices.services import member_remove, member_set
from tests.builders import make_user
from tests.cluster_requests.stage import ClusterRequestStage, claim, gone, neighbor
from tests.lifecycle.stage import EXIT, fresh, moves_of

pytestmark = pytest.mark.django_db

TAKEN, REFUSED, LATER = ClusterRequestVerdict.TAKEN, ClusterRequestVerdict.REFUSED, ClusterRequestVerdict.LATER
S = GprState


# -- changed -------------------------------------------------------------------------------------------------------------


def test_while_it_waits_priority_and_duration_follow_the_object(stage: ClusterRequestStage) -> None:
    gpr = stage.filed("train")

    answer = stage.claim("train", generation=2, priority=150, duration="2h")

    assert (answer.verdict, answer.generation, answer.gpr_id) == (TAKEN, 2, str(gpr.pk))
    gpr = fresh(gpr)
    assert (gpr.priority, gpr.duration_s, gpr.state) == (150, 7200, S.QUEUED)


def test_a_generation_counts_once(stage: ClusterRequestStage) -> None:
    gpr = stage.filed("train")
    first = stage.claim("train", generation=2, priority=150)
    version = fresh(gpr).version

    assert stage.claim("train", generation=2, priority=150) == first
    assert fresh(gpr).version == version


def test_a_generation_that_comes_late_changes_nothing_back(stage: ClusterRequestStage) -> None:
    gpr = stage.filed("train")
    stage.claim("train", generation=3, priority=150)

    answer = stage.claim("train", generation=2, priority=120)

    assert (answer.verdict, answer.generation) == (TAKEN, 2)
    assert fresh(gpr).priority == 150


def test_what_the_object_did_not_change_stays_as_people_changed_it_here(stage: ClusterRequestStage) -> None:
    gpr = stage.filed("train")
    gpr_set_priority(gpr=gpr, priority=180, actor=stage.admin, why="", now=stage.now)

    assert stage.claim("train", generation=2, duration="2h").verdict == TAKEN

    gpr = fresh(gpr)
    assert (gpr.priority, gpr.duration_s) == (180, 7200)


def test_what_cannot_be_changed_of_an_object_is_refused_where_its_cluster_let_it_through(stage: ClusterRequestStage) -> None:
    gpr = stage.filed("train")

    answer = stage.claim("train", generation=2, nodes=2, gpus_per_node=2, duration="2h")

    assert (answer.verdict, answer.reason) == (REFUSED, "invalid_input")
    assert "nodes: " in answer.message
    assert "gpusPerNode: " in answer.message
    assert fresh(gpr).version == gpr.version


def test_the_same_duration_in_other_words_is_no_change(stage: ClusterRequestStage) -> None:
    gpr = stage.filed("train")

    assert stage.claim("train", generation=2, duration="60m", priority=101).verdict == TAKEN
    assert fresh(gpr).version == gpr.version


def test_a_change_may_need_approval(stage: ClusterRequestStage) -> None:
    gpr = stage.filed("train")

    assert stage.claim("train", generation=2, duration="8d").verdict == TAKEN
    assert fresh(gpr).state == S.PENDING_APPROVAL


@pytest.mark.parametrize(
    ("changes", "reason", "said"),
    [
        ({"duration": "soon"}, "invalid_input", "duration: "),
        ({"duration": "99d"}, "over_policy", "90 d"),
        ({"priority": 0}, "invalid_input", "priority: "),
    ],
)
def test_a_change_that_cannot_be_is_refused_and_the_request_stays_as_it_was(
    changes: dict[str, object], reason: str, said: str, stage: ClusterRequestStage
) -> None:
    gpr = stage.filed("train")

    answer = stage.claim("train", generation=2, **changes)

    assert (answer.verdict, answer.reason, answer.gpr_id) == (REFUSED, reason, str(gpr.pk))
    assert said in answer.message
    assert stage.claim("train", generation=2, **changes) == answer
    assert fresh(gpr).version == gpr.version


def test_after_a_refused_change_the_next_one_is_held_against_what_was_taken(stage: ClusterRequestStage) -> None:
    gpr = stage.filed("train")
    stage.claim("train", generation=2, duration="99d")

    assert stage.claim("train", generation=3).verdict == TAKEN
    assert stage.claim("train", generation=4, duration="3h").verdict == TAKEN
    assert fresh(gpr).duration_s == 3 * 3600


def test_one_that_is_active_becomes_longer(stage: ClusterRequestStage) -> None:
    gpr = stage.opened("train")
    ends_at = gpr.ends_at

    assert stage.claim("train", generation=2, duration="2h").verdict == TAKEN

    gpr = fresh(gpr)
    assert ends_at is not None
    assert (gpr.duration_s, gpr.ends_at) == (7200, ends_at + timedelta(hours=1))


def test_a_longer_duration_counts_what_was_added_here(stage: ClusterRequestStage) -> None:
    gpr = stage.opened("train")
    gpr_extend(gpr=gpr, extra_s=3600, actor=stage.owner, now=stage.now)

    assert stage.claim("train", generation=2, duration="2h").verdict == TAKEN
    assert fresh(gpr).duration_s == 7200
    assert stage.claim("train", generation=3, duration="3h").verdict == TAKEN
    assert fresh(gpr).duration_s == 10_800


@pytest.mark.parametrize(
    ("changes", "said"), [({"duration": "30m"}, "earlyRelease"), ({"priority": 150}, "waiting"), ({"duration": "30d"}, "7 d")]
)
def test_what_an_active_one_cannot_become_is_refused(changes: dict[str, object], said: str, stage: ClusterRequestStage) -> None:
    gpr = stage.opened("train")

    answer = stage.claim("train", generation=2, **changes)

    assert (answer.verdict, answer.gpr_id) == (REFUSED, str(gpr.pk))
    assert said in answer.message
    assert (fresh(gpr).version, fresh(gpr).state) == (gpr.version, S.ACTIVE)


def test_an_administrators_own_object_is_no_way_around_the_policy(stage: ClusterRequestStage) -> None:
    """Anybody who works in the namespace may change the object; the policy asks him on an administrator's page only."""
    member_set(slice_=stage.slice, user=stage.admin, role=Role.EDITOR, actor=None, now=stage.now)
    gpr = stage.opened("train", requester=stage.kubeconfig(stage.admin))
    assert gpr.owner == stage.admin

    answer = stage.claim("train", generation=2, duration="8d")

    assert (answer.verdict, answer.reason) == (REFUSED, "over_policy")
    assert fresh(gpr).duration_s == 3600


def test_one_that_is_being_prepared_cannot_be_changed(stage: ClusterRequestStage) -> None:
    gpr = stage.filed("train")
    stage.tick()

    answer = stage.claim("train", generation=2, duration="2h")

    assert (answer.verdict, answer.reason) == (REFUSED, "wrong_state")
    assert fresh(gpr).state == S.PROVISIONING


def test_nothing_is_changed_for_who_has_left_the_workspace(stage: ClusterRequestStage) -> None:
    editor = make_user(at=stage.now)
    member_set(slice_=stage.slice, user=editor, role=Role.EDITOR, actor=None, now=stage.now)
    gpr = stage.filed("train", requester=stage.kubeconfig(editor))
    member_remove(slice_=stage.slice, user=editor, actor=stage.owner, now=stage.now)

    answer = stage.claim("train", generation=2, priority=150)

    assert (answer.verdict, answer.reason) == (REFUSED, "not_allowed")
    assert fresh(gpr).priority == 101


def test_when_his_kubeconfig_has_run_out_his_object_can_still_be_changed(stage: ClusterRequestStage) -> None:
    requester = stage.kubeconfig(stage.owner)
    gpr = stage.filed("train", requester=requester)
    stage.slice.kubeconfigs.update(state="revoked")

    assert stage.claim("train", generation=2, priority=150, requester=requester).verdict == TAKEN
    assert fresh(gpr).priority == 150


def test_it_stays_a_request_like_any_other(stage: ClusterRequestStage) -> None:
    gpr = stage.filed("train")

    gpr_edit(gpr=gpr, actor=stage.owner, spec=spec_of(gpr, nodes=2), now=stage.now)
    stage.open(gpr)
    gpr_release(gpr=fresh(gpr), actor=stage.owner, now=stage.now)
    stage.leave(gpr)

    assert (fresh(gpr).state, fresh(gpr).nodes) == (S.RELEASED, 2)
    assert stage.claim("train").gpr_id == str(gpr.pk)


# -- released early ------------------------------------------------------------------------------------------------------


def test_early_release_withdraws_what_waits(stage: ClusterRequestStage) -> None:
    gpr = stage.filed("train")

    assert stage.claim("train", generation=2, early_release=True).verdict == TAKEN
    assert fresh(gpr).state == S.CANCELED


def test_early_release_gives_the_nodes_back(stage: ClusterRequestStage) -> None:
    gpr = stage.opened("train")

    assert stage.claim("train", generation=2, early_release=True).verdict == TAKEN
    stage.leave(gpr)

    assert moves_of(gpr)[-2:] == [("ACTIVE", "EXITING", "EARLY_RELEASE"), ("EXITING", "RELEASED", "EARLY_RELEASE")]


def test_early_release_of_what_has_ended_is_taken(stage: ClusterRequestStage) -> None:
    gpr = stage.filed("train")
    stage.claims(gone("train"))

    assert stage.claim("train", generation=2, early_release=True).verdict == TAKEN
    assert fresh(gpr).state == S.CANCELED


# -- gone ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("duration", ["1h", "8d"])
def test_what_waits_in_the_queue_or_for_approval_is_canceled_with_its_object(duration: str, stage: ClusterRequestStage) -> None:
    gpr = stage.filed("train", duration=duration)

    (answer,) = stage.claims(gone("train"))

    assert (answer.verdict, answer.gpr_id) == (TAKEN, str(gpr.pk))
    assert fresh(gpr).state == S.CANCELED
    event = Event.objects.get(kind="gpr.object_gone", gpr_id=gpr.pk)
    assert event.message == f"Object train/train of cluster {stage.cluster.name}, as which train was filed, is gone."


def test_what_is_being_prepared_is_released_with_its_object(stage: ClusterRequestStage) -> None:
    gpr = stage.filed("train")
    stage.tick()

    stage.claims(gone("train"))
    stage.leave(gpr)

    assert fresh(gpr).state == S.RELEASED


def test_what_runs_is_released_with_its_object(stage: ClusterRequestStage) -> None:
    gpr = stage.opened("train")

    stage.claims(gone("train"))
    assert (fresh(gpr).state, fresh(gpr).end_reason) == (S.EXITING, "EARLY_RELEASE")
    stage.leave(gpr)
    assert fresh(gpr).state == S.RELEASED


def test_that_an_object_is_gone_may_be_said_again(stage: ClusterRequestStage) -> None:
    gpr = stage.opened("train")
    stage.claims(gone("train"))

    (answer,) = stage.claims(gone("train"))
    stage.leave(gpr)
    (after,) = stage.claims(gone("train"))

    assert (answer.verdict, after.verdict) == (TAKEN, TAKEN)
    assert fresh(gpr).state == S.RELEASED
    assert Event.objects.filter(kind="gpr.object_gone").count() == 1


def test_what_is_to_wait_again_is_withdrawn_when_it_does(stage: ClusterRequestStage) -> None:
    """It was evicted, and its object is deleted while the nodes are taken back: nobody wants it to run again."""
    gpr = stage.opened("train")
    gpr_evict(gpr=gpr, actor=stage.admin, why="room", now=stage.now)

    (answer,) = stage.claims(gone("train"))
    assert answer.verdict == LATER
    stage.say(gpr, *EXIT)
    advance(now=stage.now)
    assert fresh(gpr).state == S.QUEUED

    (answer,) = stage.claims(gone("train"))
    assert answer.verdict == TAKEN
    assert fresh(gpr).state == S.CANCELED


def test_it_is_gone_whatever_has_become_of_its_owner_and_namespace(stage: ClusterRequestStage) -> None:
    editor = make_user(at=stage.now)
    member_set(slice_=stage.slice, user=editor, role=Role.EDITOR, actor=None, now=stage.now)
    gpr = stage.filed("train", requester=stage.kubeconfig(editor))
    member_remove(slice_=stage.slice, user=editor, actor=stage.owner, now=stage.now)
    Namespace.objects.all().delete()

    (answer,) = stage.claims(gone("train"))

    assert answer.verdict == TAKEN
    assert fresh(gpr).state == S.CANCELED


# -- when the namespace is another workspace's by now --------------------------------------------------------------------


@pytest.fixture
def taken_over(stage: ClusterRequestStage) -> Slice:
    slice_, _ = neighbor(stage)
    return slice_


def test_who_has_the_namespace_now_neither_changes_nor_ends_nor_sees_the_request_of_before(
    stage: ClusterRequestStage, taken_over: Slice
) -> None:
    gpr = stage.filed("train")
    Namespace.objects.filter(name="train").update(slice=taken_over)

    same = stage.claim("train")
    changed = stage.claim("train", generation=2, priority=150)
    (deleted,) = stage.claims(gone("train"))

    assert [(answer.verdict, answer.gpr_id) for answer in (same, changed, deleted)] == [(REFUSED, ""), (REFUSED, ""), (TAKEN, "")]
    assert (fresh(gpr).version, fresh(gpr).state) == (gpr.version, S.QUEUED)
    assert stage.states() == {}


def test_an_object_of_a_namespace_that_is_bound_no_more_is_not_changed(stage: ClusterRequestStage) -> None:
    gpr = stage.filed("train")
    Namespace.objects.all().delete()

    answer = stage.claim("train", generation=2, priority=150)

    assert (answer.verdict, answer.reason) == (REFUSED, "namespace_not_bound")
    assert fresh(gpr).priority == 101


def test_each_row_knows_the_last_generation_that_was_answered(stage: ClusterRequestStage) -> None:
    stage.filed("train")
    stage.claim("train", generation=5, duration="99d")

    row = ClaimRow.objects.get()
    assert (row.generation, row.reason, row.asked["duration"]) == (5, "over_policy", "1h")
    assert Gpr.objects.count() == 1
    assert stage.claims(claim("train", generation=6))[0].verdict == TAKEN
    row.refresh_from_db()
    assert (row.generation, row.reason, row.message) == (6, "", "")


def test_what_waits_is_withdrawn_when_its_workspace_has_the_namespace_no_more(stage: ClusterRequestStage) -> None:
    gpr = stage.filed("train")
    others = stage.filed("other")
    ClaimRow.objects.filter(gpr=others).update(namespace="elsewhere")
    Namespace.objects.filter(name="train").update(name="elsewhere")

    stage.tick()

    gpr.refresh_from_db()
    others.refresh_from_db()
    assert gpr.state == GprState.CANCELED
    assert others.state != GprState.CANCELED
    event = Event.objects.get(kind="gpr.transition", gpr_id=gpr.pk, new=GprState.CANCELED)
    assert event.actor is None
    assert "has namespace train of cluster" in event.message


def test_what_an_object_ended_is_nobody_s_doing_whom_the_hub_knows(stage: ClusterRequestStage) -> None:
    running, waiting = stage.opened("run"), stage.filed("wait")

    stage.claims(gone("wait"), gone("run"))

    for gpr, to in ((waiting, GprState.CANCELED), (running, GprState.EXITING)):
        event = Event.objects.get(kind="gpr.transition", gpr_id=gpr.pk, new=to)
        assert event.actor is None
        assert ending(Gpr.objects.get(pk=gpr.pk), event).endswith(f"train/{gpr.name} of cluster {stage.cluster.name}.")


def test_many_that_are_gone_end_together_each_as_it_stands(stage: ClusterRequestStage) -> None:
    """One runs, one has ended, of one the namespace is another workspace's by now, of one nobody has heard."""
    running, *waiting = (stage.filed(f"job-{number}") for number in range(4))
    stage.open(running)
    ended = stage.filed("ended")
    stage.claims(gone("ended"))
    taken_over = stage.filed("taken-over")
    theirs, _ = neighbor(stage)
    ClaimRow.objects.filter(name="taken-over").update(namespace="theirs")
    assert Namespace.objects.get(name="theirs").slice == theirs
    told = ("never-was", *(f"job-{number}" for number in range(4)), "taken-over", "ended", "job-2")
    answers = stage.claims(*map(gone, told))

    assert {answer.verdict for answer in answers} == {TAKEN}
    assert [bool(answer.gpr_id) for answer in answers] == [False, True, True, True, True, False, True, True]
    assert fresh(taken_over).state == S.QUEUED
    assert [answer.uid for answer in answers][1:3] == ["uid-job-0", "uid-job-1"]
    assert [fresh(gpr).state for gpr in (running, *waiting, ended)] == [S.EXITING, *[S.CANCELED] * 4]
    assert Event.objects.filter(kind="gpr.object_gone").count() == 5
    assert not Promise.objects.filter(gpr__in=waiting).exists()


def test_that_many_are_gone_costs_little_more_than_that_few_are(stage: ClusterRequestStage) -> None:
    def query_count(*names: str) -> int:
        stage.claims(*map(claim, names))
        with CaptureQueriesContext(connection) as made:
            stage.claims(*map(gone, names))
        assert ClaimRow.objects.filter(name__in=names, gpr__state=S.CANCELED).count() == len(names)
        return len(made)

    few_count = query_count("a", "b", "c")
    assert query_count(*(f"job-{number}" for number in range(15))) <= few_count + 2
