"""A replacement against whatever else happens to its GPR, its nodes and the node that it wants, each stopped in the worst moment."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.test import override_settings

from gpr.allocation.advance import advance
from gpr.models import Gpr, GprState, Promise, PromiseMove
from gpr.queue.decisions import gpr_evict
from gpr.replacement import services as replacing
from gpr.replacement.services import node_replace
from gpr.requests.ending import gpr_extend, gpr_release
from gpr.requests.services import gpr_submit
from inventory.models import Node, Reservation, ReservationState, ReservedGpu
from inventory.services.inventory import inventory_store
from inventory.services.sync import observations_store
from protocol.assignments import Desired, Phase
from tests.builders import make_slice, node_view, nodes_of, spec
from tests.inventory.agent import seen
from tests.lifecycle.stage import ENTRY, EXIT, Stage, fresh
from tests.promises.feasible import faults
from tests.promises.races.test_lock_order import Other, stopped_after

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres_only]
S = GprState


def replace_of(stage: Stage, gpr: Gpr) -> Callable[[], None]:
    node_id = stage.held(gpr)[0].node_id
    return lambda: node_replace(gpr=fresh(gpr), node_id=node_id, actor=stage.admin, why="a look", now=stage.now)


def swapping(stage: Stage, **asked: Any) -> tuple[Gpr, Reservation]:
    gpr = stage.active(**asked)
    replace_of(stage, gpr)()
    return gpr, Reservation.objects.get(replaces__isnull=False)


def say_open(stage: Stage, spare: Reservation) -> None:
    for phase in ENTRY:
        stage.agent.sync(seen(spare, phase, active_s=stage.now.timestamp()), at=stage.now)


def ends_whole(stage: Stage, gpr: Gpr) -> None:
    """All that it held is told to leave, and it is over when that has."""
    told = Reservation.objects.filter(gpr=gpr, state=ReservationState.HELD).values_list("desired", flat=True)
    assert set(told) == {Desired.ABSENT}
    stage.say(gpr, *EXIT)
    stage.tick()
    assert fresh(gpr).is_ended
    assert not ReservedGpu.objects.filter(state=ReservationState.HELD).exists()


ENDS: dict[str, Callable[[Stage, Gpr], None]] = {
    "release": lambda stage, gpr: gpr_release(gpr=fresh(gpr), actor=stage.owner, now=stage.now),
    "eviction": lambda stage, gpr: gpr_evict(gpr=fresh(gpr), actor=stage.admin, why="", now=stage.now, requeue=False),
}


@pytest.mark.parametrize("how", ENDS)
def test_an_end_that_comes_while_a_spare_is_taken_takes_the_spare_back_too(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(nodes=2)
    gpr = stage.active()
    other = Other(lambda: ENDS[how](stage, gpr))
    stopped_after(monkeypatch, replacing, "reservations_hold", other)

    replace_of(stage, gpr)()

    other.end()
    assert Reservation.objects.filter(gpr=gpr).count() == 2
    ends_whole(stage, gpr)


@pytest.mark.parametrize("how", ENDS)
def test_a_spare_that_is_wanted_while_its_gpr_ends_is_not_taken(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(nodes=2)
    gpr = stage.active()
    other = Other(replace_of(stage, gpr))
    from gpr.requests import ending

    stopped_after(monkeypatch, ending, "reservations_want_absent", other)

    ENDS[how](stage, gpr)

    other.end(error="IllegalTransition")
    assert Reservation.objects.filter(gpr=gpr).count() == 1
    ends_whole(stage, gpr)


@pytest.mark.parametrize("how", ENDS)
def test_an_end_that_comes_while_the_spare_takes_its_place_takes_both(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(nodes=2)
    gpr, spare = swapping(stage)
    say_open(stage, spare)
    other = Other(lambda: ENDS[how](stage, gpr))
    stopped_after(monkeypatch, replacing, "spare_join", other)

    advance(now=stage.now)

    other.end()
    assert fresh(gpr).state == S.EXITING
    ends_whole(stage, gpr)


def test_an_extension_that_comes_while_a_spare_is_taken_holds_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(nodes=2)
    gpr = stage.active()
    other = Other(lambda: gpr_extend(gpr=fresh(gpr), extra_s=600, actor=stage.owner, now=stage.now))
    stopped_after(monkeypatch, replacing, "reservations_hold", other)

    replace_of(stage, gpr)()

    other.end()
    assert gpr.ends_at is not None
    assert fresh(gpr).ends_at == gpr.ends_at + timedelta(seconds=600)
    assert set(Reservation.objects.filter(gpr=gpr).values_list("not_after_at", flat=True)) == {fresh(gpr).ends_at}


def test_whoever_files_for_the_only_free_node_meanwhile_is_promised_another_time(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(nodes=2)
    gpr, late = stage.active(), make_slice(stage.cluster, owner=stage.owner)
    other = Other(lambda: gpr_submit(actor=stage.owner, spec=spec(late), now=stage.now))
    stopped_after(monkeypatch, replacing, "spare_for", other)

    replace_of(stage, gpr)()

    other.end()
    assert Promise.objects.get(gpr__slice=late).slot_start_at > stage.now
    stage.tick()
    assert not PromiseMove.objects.exists()
    assert faults() == []


def test_a_spare_that_is_wanted_while_somebody_files_for_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(nodes=2)
    gpr, late = stage.active(), make_slice(stage.cluster, owner=stage.owner)
    other = Other(replace_of(stage, gpr))
    from gpr.requests import planning

    stopped_after(monkeypatch, planning, "snapshot_load", other)

    filed = gpr_submit(actor=stage.owner, spec=spec(late), now=stage.now)

    other.end(error="Conflict")
    stage.tick()
    assert fresh(filed).state == S.PROVISIONING
    assert not PromiseMove.objects.exists()


def test_an_agents_word_about_the_box_while_its_spare_takes_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(nodes=3)
    gpr, spare = swapping(stage, nodes=2)
    say_open(stage, spare)
    words = tuple(seen(row, Phase.ACTIVE, failure="its clock differs") for row in stage.held(gpr))
    other = Other(transaction.atomic(lambda: observations_store(cluster_id=stage.cluster.pk, observed=words, now=stage.now)))
    from inventory.services import reservations

    stopped_after(monkeypatch, reservations, "_take_out", other, before=True)

    advance(now=stage.now)

    other.end()
    assert Reservation.objects.get(pk=spare.pk).joined_at == stage.now
    assert set(Reservation.objects.filter(gpr=gpr).values_list("failure", flat=True)) == {"its clock differs"}


def test_an_inventory_that_comes_while_a_spare_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(nodes=3)
    gpr = stage.active(nodes=2)
    views = [node_view(node.name) for node in nodes_of(stage.cluster)]
    other = Other(lambda: inventory_store(cluster=stage.cluster, nodes=views, now=stage.now))
    from inventory.services import reservations

    stopped_after(monkeypatch, reservations, "_count_box", other, before=True)

    replace_of(stage, gpr)()

    other.end()
    assert Reservation.objects.filter(gpr=gpr, state=ReservationState.HELD).count() == 3
    assert Node.objects.filter(gone_at=None).count() == 3


@override_settings(EGS_SPARE_GRACE_S=1)
def test_of_two_who_replace_one_node_at_once_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(nodes=4)
    gpr = stage.active()
    other = Other(replace_of(stage, gpr))
    stopped_after(monkeypatch, replacing, "spare_for", other)

    replace_of(stage, gpr)()

    other.end(error="Conflict")
    assert Reservation.objects.filter(replaces__isnull=False).count() == 1
