"""Room that an administrator makes: notice, the move, the start that was proposed, and a refusal where the world has changed."""

from __future__ import annotations

from copy import deepcopy
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.test import override_settings

from core.errors import IllegalTransition, InvalidInput, StaleState
from gpr.defragmentation.selectors import Suggestion, WantedRoom, room_question, suggestion_for, suggestions
from gpr.defragmentation.services import gpr_make_room
from gpr.models import EndReason, Eviction, EvictionVictim, Gpr, GprState, Promise, VictimKind, VictimOutcome
from gpr.requests.editing import gpr_cancel
from gpr.requests.ending import gpr_release
from journal.models import Event
from tests.builders import SHAPE, make_slice
from tests.lifecycle.stage import EXIT, Stage, fresh, moves_of

# Each day: tests/planner/sharing/test_defragmenting.py, and tests/api/queue/test_defragmentation.py
pytestmark = [pytest.mark.django_db, pytest.mark.rotates]
S = GprState
NOTICE_S, DAY_S, HOUR_S = 600, 86_400, 3600


@pytest.fixture(autouse=True, scope="module")
def rules() -> Any:
    with override_settings(EGS_EVICTION_NOTICE_S=NOTICE_S, EGS_EVICTION_LEAST_RUN_S=0, EGS_EVICTION_GAIN_S=600):
        yield


class Scattered:
    """Two nodes of four GPUs: `small` has one of the first, `other` two of the second, and `waits` wants a whole node."""

    def __init__(self) -> None:
        self.stage = stage = Stage(nodes=2)
        leaves = self.active(gpus_per_node=3)
        self.other = self.active(gpus_per_node=2)
        self.small = self.active(gpus_per_node=1)
        gpr_release(gpr=leaves, actor=stage.owner, now=stage.after(60))
        stage.say(leaves, *EXIT)
        stage.tick()
        self.waits = stage.submit(self.slice(), nodes=1, duration_s=4 * HOUR_S)
        stage.tick()

    def slice(self) -> Any:
        return make_slice(self.stage.cluster, owner=self.stage.owner)

    def active(self, **asked: Any) -> Gpr:
        return self.stage.active(slice_=self.slice(), nodes=1, duration_s=DAY_S, **asked)

    @property
    def suggested(self) -> Suggestion:
        (found,) = suggestions(now=self.stage.now)
        return found

    def make_room(self, fingerprint: str | None = None) -> Eviction:
        return gpr_make_room(
            gpr=fresh(self.waits),
            fingerprint=fingerprint or self.suggested.fingerprint,
            actor=self.stage.admin,
            why="Release week.",
            now=self.stage.now,
        )


@pytest.fixture(scope="module")
def built_world(module_db: None, rules: None) -> Scattered:
    return Scattered()


@pytest.fixture
def world(built_world: Scattered, db: None) -> Scattered:
    return deepcopy(built_world)


def test_it_is_proposed_with_names_and_done_by_nobody_unasked(world: Scattered) -> None:
    made = world.suggested

    (move,) = made.moves
    assert (made.gpr, move.gpr) == (world.waits, world.small)
    assert made.freed == made.nodes == move.from_nodes != move.to_nodes
    assert made.start_at == world.stage.now + timedelta(seconds=NOTICE_S + settings.EGS_EXIT_ALLOWANCE_S)
    assert made.instead_at == fresh(world.waits).planned_start_at
    assert suggestion_for(world.waits, now=world.stage.now) == made
    for _ in range(3):
        world.stage.after(60)
        world.stage.tick()
    assert not Eviction.objects.exists()


def test_done_the_box_has_notice_and_the_other_is_promised_its_node(world: Scattered) -> None:
    made = world.suggested

    eviction = world.make_room()

    (victim,) = eviction.victims.all()
    ends_at = world.stage.now + timedelta(seconds=NOTICE_S)
    assert (victim.gpr, victim.kind, victim.outcome, victim.ends_at) == (world.small, VictimKind.DEFRAGMENT, VictimOutcome.NOTICED, ends_at)
    assert fresh(world.small).ends_at == ends_at
    assert {row.not_after_at for row in world.stage.held(world.small)} == {ends_at}
    assert (eviction.gpr, eviction.start_at, eviction.instead_at) == (world.waits, made.start_at, made.instead_at)
    promise = Promise.objects.get(gpr=world.waits)
    assert (promise.slot_start_at, promise.promised_start_at) == (made.start_at, made.start_at)
    assert promise.slot_nodes == [str(row.node_id) for row in world.stage.held(world.small)]
    assert not Event.objects.filter(kind="promise.moved").exists()


def test_played_forward_the_other_starts_as_proposed_and_the_moved_one_runs_again_with_what_was_left(world: Scattered) -> None:
    made, stage = world.suggested, world.stage
    queued_at = world.small.queued_at
    world.make_room()

    stage.after(NOTICE_S)
    stage.tick()
    assert moves_of(world.small)[-1] == (S.ACTIVE, S.EXITING, EndReason.EVICTED)
    stage.after(settings.EGS_EXIT_ALLOWANCE_S - 5)
    stage.say(world.small, *EXIT)
    stage.tick()
    stage.after(5)
    stage.tick()

    starts = fresh(world.waits)
    assert starts.provisioning_at is not None
    assert starts.provisioning_at <= made.start_at
    again = fresh(world.small)
    assert (again.state, again.run, again.queued_at) == (S.PROVISIONING, 2, queued_at)
    assert tuple(row.node.name for row in stage.held(again)) == made.moves[0].to_nodes
    assert EvictionVictim.objects.get().outcome == VictimOutcome.EVICTED


def test_its_owner_is_told_why_and_not_for_whom_and_administrators_who_did_it(world: Scattered) -> None:
    world.make_room()

    notice = Event.objects.get(kind="gpr.eviction_noticed")
    assert (notice.gpr_id, notice.slice_id) == (world.small.pk, world.small.slice_id)
    assert "whole nodes come free" in notice.message
    assert world.waits.slice.name not in notice.message
    told = Event.objects.get(kind="queue.defragmented")
    assert (told.actor, told.slice_id) == (world.stage.admin, None)
    assert "Release week." in told.message
    assert told.data["moved"] == [str(world.small.pk)]


def changed(world: Scattered, how: str) -> None:
    stage = world.stage
    match how:
        case "canceled":
            gpr_cancel(gpr=fresh(world.waits), actor=stage.owner, now=stage.now)
        case "released":
            gpr_release(gpr=fresh(world.small), actor=stage.owner, now=stage.now)
        case "exempt now":
            Gpr.objects.filter(pk=world.small.pk).update(evictable=False)
        case "done already":
            world.make_room()


@pytest.mark.parametrize("how", ["canceled", "released", "exempt now", "done already"])
def test_when_the_world_has_changed_it_is_refused_and_nothing_changes(how: str, world: Scattered) -> None:
    shown = world.suggested.fingerprint
    changed(world, how)
    evictions, events = Eviction.objects.count(), Event.objects.count()

    with pytest.raises(IllegalTransition if how == "canceled" else StaleState):
        world.make_room(shown)

    assert (Eviction.objects.count(), Event.objects.count()) == (evictions, events)


def test_time_alone_does_not_change_what_was_shown(world: Scattered) -> None:
    shown = world.suggested.fingerprint
    world.stage.after(240)
    world.stage.tick()

    start_at = world.make_room(shown).start_at
    assert start_at is not None
    assert start_at > world.stage.now


@pytest.mark.parametrize("changes", [{"evictable": False}, {"requeue_on_failure": False}, {"is_booking": True}, {"priority": 300}])
def test_who_is_exempt_is_not_proposed(changes: dict[str, Any], world: Scattered) -> None:
    Gpr.objects.filter(pk__in=[world.small.pk, world.other.pk]).update(**changes)

    assert suggestions(now=world.stage.now) == []


def test_when_the_other_is_canceled_the_moved_one_is_spared(world: Scattered) -> None:
    ends_at = world.small.ends_at
    world.make_room()
    gpr_cancel(gpr=fresh(world.waits), actor=world.stage.owner, now=world.stage.after(10))
    world.stage.tick()

    assert EvictionVictim.objects.get().outcome == VictimOutcome.SPARED
    assert fresh(world.small).ends_at == ends_at


def wanted(world: Scattered, **changes: Any) -> WantedRoom:
    asked = {"shape": SHAPE, "nodes": 1, "starts_at": world.stage.now + timedelta(hours=2), "duration_s": 4 * HOUR_S}
    return WantedRoom(**{**asked, **changes})


def test_a_booking_that_nobody_filed_is_answered_and_nothing_is_written(world: Scattered) -> None:
    gpr_cancel(gpr=fresh(world.waits), actor=world.stage.owner, now=world.stage.now)
    events = Event.objects.count()

    answer = room_question(wanted(world), now=world.stage.now)

    assert not answer.fits
    assert answer.suggestion is not None
    assert (answer.suggestion.gpr, [move.gpr for move in answer.suggestion.moves]) == (None, [world.small])
    assert answer.suggestion.start_at == world.stage.now + timedelta(hours=2)
    assert answer.instead_at == answer.suggestion.instead_at
    assert room_question(wanted(world, starts_at=world.stage.now + timedelta(days=3)), now=world.stage.now).fits
    assert Event.objects.count() == events


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"nodes": 0}, "nodes"),
        ({"gpus_per_node": 0}, "gpus_per_node"),
        ({"shape": "none"}, "shape"),
        ({"priority": 0}, "priority"),
        ({"duration_s": 0}, "duration_s"),
        ({"ahead_s": 10}, "starts_at"),
    ],
)
def test_what_cannot_be_asked_is_said_by_its_field(changes: dict[str, Any], field: str, world: Scattered) -> None:
    ahead = {"starts_at": world.stage.now + timedelta(seconds=changes.pop("ahead_s"))} if "ahead_s" in changes else {}

    with pytest.raises(InvalidInput) as refused:
        room_question(wanted(world, **changes, **ahead), now=world.stage.now)

    assert list(refused.value.extra["errors"]) == [field]
