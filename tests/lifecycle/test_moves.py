"""I12: every service that moves a GPR leaves one Event of it, and the Events tell its whole life."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from django.conf import settings

from gpr.allocation.advance import ENTRY_SILENCE_S
from gpr.approvals.services import gpr_approve, gpr_reject
from gpr.models import EndReason, Gpr, GprState
from gpr.queue.decisions import gpr_evict
from gpr.requests.editing import gpr_cancel, gpr_edit, spec_of
from gpr.requests.ending import exit_begin, gpr_release
from inventory.services.reservations import reservation_force_release
from journal.models import Event
from protocol.assignments import Phase
from tests.builders import make_slice
from tests.lifecycle.stage import EXIT, Stage, fresh, moves_of

pytestmark = pytest.mark.django_db

S = GprState
Do = Callable[[Stage, Gpr], object]


@dataclass(frozen=True, slots=True)
class Case:
    before: Callable[[Stage], Gpr]
    do: Do
    moves: list[tuple[str, str, str]]


def pending(stage: Stage) -> Gpr:
    return stage.submit(**stage.approval_needed())


def queued(stage: Stage) -> Gpr:
    return stage.submit()


def provisioning(stage: Stage) -> Gpr:
    gpr = stage.submit()
    stage.tick()
    return fresh(gpr)


def active(stage: Stage) -> Gpr:
    return stage.active()


def open_all(stage: Stage, gpr: Gpr) -> None:
    stage.say(gpr, Phase.ENTERED, Phase.ACTIVE)
    stage.tick()


def exiting(reason: EndReason, *, after_s: float = 60.0, **asked: Any) -> Callable[[Stage], Gpr]:
    def before(stage: Stage) -> Gpr:
        gpr = stage.active(**asked)
        stage.after(after_s)
        exit_begin(gpr=gpr, reason=reason, now=stage.now)
        return fresh(gpr)

    return before


def end(stage: Stage, gpr: Gpr) -> None:
    stage.say(gpr, *EXIT)
    stage.tick()


def expire(stage: Stage, gpr: Gpr) -> None:
    stage.after(gpr.duration_s)
    stage.tick()


def lose_a_node(stage: Stage, gpr: Gpr) -> None:
    stage.lose(stage.held(gpr)[0].node)
    stage.tick()


def lose_every_node(stage: Stage, gpr: Gpr) -> None:
    stage.agent.inventory(at=stage.now)
    stage.tick()  # looks for a spare, in vain
    stage.tick()


def fail_a_check(stage: Stage, gpr: Gpr) -> None:
    stage.say(gpr, Phase.FAILED, failure="The fan is loud.")
    stage.tick()


def stay_silent(stage: Stage, gpr: Gpr) -> None:
    stage.watched(settings.EGS_ENTRY_TIMEOUT_S + ENTRY_SILENCE_S + 1)
    stage.tick()


def force(stage: Stage, gpr: Gpr) -> None:
    for row in stage.held(gpr):
        reservation_force_release(reservation=row, actor=stage.admin, why="it burnt", now=stage.now)
    stage.tick()


def leave_early(stage: Stage, gpr: Gpr) -> None:
    stage.say(gpr, Phase.EXITING)
    stage.tick()


def edit(**changes: object) -> Do:
    def do(stage: Stage, gpr: Gpr) -> None:
        gpr_edit(gpr=gpr, actor=stage.owner, spec=spec_of(gpr, **changes), now=stage.now)

    return do


CASES = {
    "approve": Case(pending, lambda s, g: gpr_approve(gpr=g, actor=s.admin, now=s.now), [(S.PENDING_APPROVAL, S.QUEUED, "")]),
    "reject what is pending": Case(
        pending, lambda s, g: gpr_reject(gpr=g, actor=s.admin, why="no", now=s.now), [(S.PENDING_APPROVAL, S.REJECTED, "")]
    ),
    "reject what is queued": Case(queued, lambda s, g: gpr_reject(gpr=g, actor=s.admin, why="no", now=s.now), [(S.QUEUED, S.REJECTED, "")]),
    "cancel what is pending": Case(
        pending, lambda s, g: gpr_cancel(gpr=g, actor=s.owner, now=s.now), [(S.PENDING_APPROVAL, S.CANCELED, "")]
    ),
    "cancel what is queued": Case(queued, lambda s, g: gpr_cancel(gpr=g, actor=s.owner, now=s.now), [(S.QUEUED, S.CANCELED, "")]),
    "edit beyond the policy": Case(queued, edit(duration_s=8 * 86_400), [(S.QUEUED, S.PENDING_APPROVAL, "")]),
    "edit back into the policy": Case(pending, edit(duration_s=60), [(S.PENDING_APPROVAL, S.QUEUED, "")]),
    "edit within the policy": Case(queued, edit(duration_s=60), []),
    "edit what stays pending": Case(pending, edit(name="other"), []),
    "start": Case(queued, lambda s, g: s.tick(), [(S.QUEUED, S.PROVISIONING, "")]),
    "open": Case(
        provisioning,
        open_all,
        [(S.PROVISIONING, S.ACTIVE, "")],
    ),
    "release": Case(active, lambda s, g: gpr_release(gpr=g, actor=s.owner, now=s.now), [(S.ACTIVE, S.EXITING, "EARLY_RELEASE")]),
    "release on the way in": Case(
        provisioning, lambda s, g: gpr_release(gpr=g, actor=s.owner, now=s.now), [(S.PROVISIONING, S.EXITING, "EARLY_RELEASE")]
    ),
    "release by an administrator": Case(
        active, lambda s, g: gpr_release(gpr=g, actor=s.admin, now=s.now), [(S.ACTIVE, S.EXITING, "ADMIN")]
    ),
    "evict": Case(active, lambda s, g: gpr_evict(gpr=g, actor=s.admin, why="", now=s.now), [(S.ACTIVE, S.EXITING, "EVICTED")]),
    "expire": Case(active, expire, [(S.ACTIVE, S.EXITING, "EXPIRED")]),
    "lose a node on the way in": Case(provisioning, lose_a_node, [(S.PROVISIONING, S.EXITING, "NODE_FAILURE")]),
    "lose a node, and get a spare": Case(active, lose_a_node, []),
    "lose all nodes there are": Case(active, lose_every_node, [(S.ACTIVE, S.EXITING, "NODE_FAILURE")]),
    "fail a check": Case(provisioning, fail_a_check, [(S.PROVISIONING, S.EXITING, "CHECK_FAILED")]),
    "say nothing on the way in": Case(provisioning, stay_silent, [(S.PROVISIONING, S.EXITING, "CHECK_FAILED")]),
    "be forced out, and start anew": Case(
        active,
        force,
        [(S.ACTIVE, S.EXITING, "NODE_FAILURE"), (S.EXITING, S.QUEUED, "NODE_FAILURE"), (S.QUEUED, S.PROVISIONING, "")],
    ),
    "leave far too early": Case(active, leave_early, [(S.ACTIVE, S.EXITING, "NODE_FAILURE")]),
    "end when its time is over": Case(exiting(EndReason.EXPIRED, after_s=3600), end, [(S.EXITING, S.COMPLETED, "EXPIRED")]),
    "end when released": Case(exiting(EndReason.EARLY_RELEASE), end, [(S.EXITING, S.RELEASED, "EARLY_RELEASE")]),
    "end when idle": Case(exiting(EndReason.IDLE), end, [(S.EXITING, S.RELEASED, "IDLE")]),
    "end when released by an administrator": Case(exiting(EndReason.ADMIN), end, [(S.EXITING, S.RELEASED, "ADMIN")]),
    "end when evicted": Case(exiting(EndReason.EVICTED, requeue_on_failure=False), end, [(S.EXITING, S.EVICTED, "EVICTED")]),
    "end when a node failed": Case(exiting(EndReason.NODE_FAILURE, requeue_on_failure=False), end, [(S.EXITING, S.FAILED, "NODE_FAILURE")]),
    "end with no time left": Case(exiting(EndReason.NODE_FAILURE, after_s=3600), end, [(S.EXITING, S.FAILED, "NODE_FAILURE")]),
}


@pytest.fixture(scope="module")
def built_stage(module_db: None) -> Stage:
    return Stage()


@pytest.fixture
def stage(built_stage: Stage, db: None) -> Stage:
    return deepcopy(built_stage)


@pytest.mark.parametrize("name", CASES)
def test_a_service_leaves_one_event_of_each_move_that_it_makes(stage: Stage, name: str) -> None:
    case = CASES[name]
    gpr = case.before(stage)
    before = moves_of(gpr)

    case.do(stage, fresh(gpr))

    assert moves_of(gpr)[len(before) :] == case.moves
    assert fresh(gpr).state == (case.moves[-1][1] if case.moves else gpr.state)


@pytest.mark.parametrize("reason", [EndReason.EVICTED, EndReason.NODE_FAILURE])
def test_what_was_taken_back_waits_again_for_the_rest_of_its_time_at_its_old_age(stage: Stage, reason: EndReason) -> None:
    gpr = exiting(reason, after_s=600)(stage)
    queued_at = gpr.queued_at

    end(stage, gpr)

    again = fresh(gpr)
    # The same tick starts it anew, since the nodes are free.
    assert moves_of(gpr)[-2:] == [(S.EXITING, S.QUEUED, reason), (S.QUEUED, S.PROVISIONING, "")]
    assert (again.remaining_s, again.duration_s, again.run, again.queued_at) == (3000, 3600, 2, queued_at)
    assert (again.end_reason, again.active_at, again.ends_at, again.marks_passed) == ("", None, None, 0)


def test_a_gpr_whose_checks_fail_is_tried_again_so_many_times_and_then_has_failed(stage: Stage) -> None:
    gpr = stage.submit()

    for _ in range(settings.EGS_ENTRY_ATTEMPTS_MAX):
        stage.tick()
        fail_a_check(stage, gpr)
        end(stage, gpr)

    done = fresh(gpr)
    assert (done.state, done.run, done.remaining_s) == (S.FAILED, settings.EGS_ENTRY_ATTEMPTS_MAX, 3600)
    assert done.ended_at == stage.now


def test_a_submit_is_told_as_a_creation_in_the_state_it_is_born_in(stage: Stage) -> None:

    created = [(gpr.pk, gpr.state) for gpr in (queued(stage), pending(stage))]

    told = list(Event.objects.filter(kind="gpr.created").order_by("id").values_list("gpr_id", "new"))
    assert told == created
    assert not Event.objects.filter(kind="gpr.transition").exists()


def test_of_lives_that_move_at_once_the_events_of_each_are_one_chain_to_its_state(stage: Stage) -> None:
    gprs = [stage.submit(), stage.submit(make_slice(stage.cluster, owner=stage.owner))]
    stage.tick()
    for phases in ((Phase.ACTIVE,), EXIT):
        for gpr in gprs:
            stage.say(gpr, *phases)
        stage.tick()
        if phases != EXIT:
            stage.after(3600)
            stage.tick()

    way = [S.QUEUED, S.PROVISIONING, S.ACTIVE, S.EXITING, S.COMPLETED]
    for gpr in gprs:
        assert [(old, new) for old, new, _ in moves_of(gpr)] == list(pairwise(way))
        assert fresh(gpr).state == S.COMPLETED
