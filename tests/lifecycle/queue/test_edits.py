"""Edits and extensions are their owner's own affair: whoever waits beside him has the start that was promised."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from django.conf import settings
from django.db import transaction

from core.errors import CanNeverStart, Conflict
from gpr.models import Gpr, GprState, Promise, PromiseMove
from gpr.queue.moves import MoveTo, gpr_move
from gpr.requests.editing import gpr_edit, spec_of
from gpr.requests.ending import gpr_extend
from gpr.requests.estimates import Estimate, gpr_estimate
from gpr.requests.spec import GprSpec
from inventory.models import Cluster, Node
from inventory.services.inventory import inventory_store
from planner.causes import Cause
from slices.policies.services import policy_change, policy_of
from slices.quotas.services import quota_create, quota_delete
from slices.services import slice_set_clusters
from tests import factories
from tests.builders import SHAPE, make_cluster, node_view, spec
from tests.effort import IS_SOAK
from tests.lifecycle.stage import ENTRY, Stage, fresh

# Each day: tests/api/requests/test_change.py, and tests/planner/sharing/test_edits.py
pytestmark = [pytest.mark.django_db, pytest.mark.rotates]

HOUR_S = 3600


def promised_at(gpr: Gpr) -> Any:
    return Promise.objects.get(gpr=gpr).promised_start_at


def in_a_row(stage: Stage, *asked: dict[str, Any]) -> list[Gpr]:
    """They stand on one node, behind a box of two hours."""
    stage.active(duration_s=2 * HOUR_S)
    slices = [factories.make_slice(stage.cluster, owner=stage.owner) for _ in asked]
    return [stage.submit(of, **{"duration_s": 2 * HOUR_S, **ask}) for of, ask in zip(slices, asked, strict=True)]


@pytest.mark.parametrize(
    ("first", "change"),
    [
        ({}, {"duration_s": 7 * HOUR_S, "priority": 200}),
        ({"gpus_per_node": 2}, {"gpus_per_node": None}),
        # These make one change each; the cases above make several at once.
        pytest.param({}, {"duration_s": 7 * HOUR_S}, marks=pytest.mark.soak),
        pytest.param({"priority": 50}, {"duration_s": 12 * HOUR_S}, marks=pytest.mark.soak),
        pytest.param({"gpus_per_node": 2}, {"gpus_per_node": 4}, marks=pytest.mark.soak),
    ],
)
def test_who_asks_for_more_pushes_nobody_back(first: dict[str, Any], change: dict[str, Any]) -> None:
    """He himself may start later, and his page says that it was his edit."""
    stage = Stage(nodes=1)
    edited, beside, behind = in_a_row(stage, first, {"gpus_per_node": 2}, {"priority": 200})
    before = [promised_at(gpr) for gpr in (beside, behind)]

    gpr_edit(gpr=fresh(edited), actor=stage.owner, spec=spec_of(fresh(edited), **change), now=stage.now)
    stage.after(60)
    stage.tick()

    assert [promised_at(gpr) for gpr in (beside, behind)] == before
    assert set(PromiseMove.objects.values_list("gpr", "cause", "cause_id")) <= {(edited.pk, Cause.CHANGED, str(edited.pk))}


def test_whose_workspace_may_no_longer_use_the_cluster_of_its_slot_is_told_so() -> None:
    stage = Stage(nodes=1)
    other = make_cluster(name="other", nodes=1)
    both = factories.make_slice(stage.cluster, other, owner=stage.owner)
    stage.active(duration_s=HOUR_S)
    stage.submit(factories.make_slice(other, owner=stage.owner), duration_s=9 * HOUR_S)
    stage.tick()
    waits = stage.submit(both)
    assert Promise.objects.get(gpr=waits).slot_pool.startswith(stage.cluster.name)

    slice_set_clusters(slice_=both, clusters=[other], actor=stage.admin, now=stage.after(1))
    stage.tick()

    assert [(move.gpr_id, move.cause) for move in PromiseMove.objects.all()] == [(waits.pk, Cause.ACCESS)]


def test_a_new_name_takes_no_slot_away_though_the_policy_is_another_now() -> None:
    """A policy holds for requests from then on, and for what is asked from then on."""
    stage = Stage(nodes=1)
    stage.active(duration_s=HOUR_S)
    inventory_store(cluster=make_cluster(), nodes=[node_view("a100", shape="A100-80GB")], now=stage.now)
    slice_ = factories.make_slice(stage.cluster, owner=stage.owner)
    waits = stage.submit(slice_, shape="", min_gpu_memory_gib=40)
    before = Promise.objects.get(gpr=waits)
    policy_change(policy=policy_of(slice_), terms={"shapes": ["A100-80GB"]}, actor=stage.admin, now=stage.now)

    gpr_edit(gpr=waits, actor=stage.owner, spec=spec_of(fresh(waits), name="another"), now=stage.now)
    stage.tick()

    after = Promise.objects.get(gpr=waits)
    assert (after.slot_nodes, after.promised_start_at) == (before.slot_nodes, before.promised_start_at)


def test_who_lost_its_slot_and_had_no_other_for_a_while_is_told_why_it_starts_later() -> None:
    stage = Stage(nodes=1)
    _, second = in_a_row(stage, {}, {})
    ceiling = quota_create(
        owner=second.slice, shape=spec(second.slice).shape, change={"guaranteed_gpus": 0, "most_gpus": 0}, actor=stage.admin, now=stage.now
    )
    stage.tick()
    assert Promise.objects.get(gpr=second).slot_nodes == []

    stage.submit(factories.make_slice(stage.cluster, owner=stage.owner), duration_s=9 * HOUR_S)
    quota_delete(quota=ceiling, actor=stage.admin, now=stage.after(60))
    stage.tick()

    assert [(move.gpr_id, move.cause) for move in PromiseMove.objects.all()] == [(second.pk, Cause.QUOTA)]
    assert (Promise.objects.get(gpr=second).slot_nodes != [], Promise.objects.get(gpr=second).lost_cause) == (True, "")


def test_who_asks_for_less_while_all_are_late_is_late_by_no_more_than_the_others() -> None:
    stage = Stage(nodes=1)
    edited, *_ = in_a_row(stage, {}, {}, {})
    before = promised_at(edited)
    stage.now = Promise.objects.get(gpr=edited).slot_start_at + timedelta(minutes=15)
    stage.agent.sync(at=stage.now)

    gpr_edit(gpr=fresh(edited), actor=stage.owner, spec=spec_of(fresh(edited), duration_s=2 * HOUR_S - 1), now=stage.now)

    assert promised_at(edited) - before < timedelta(minutes=20)


def test_who_asks_for_more_keeps_his_start_where_there_is_room() -> None:
    stage = Stage(nodes=1)
    (alone,) = in_a_row(stage, {})
    before = promised_at(alone)

    gpr_edit(gpr=fresh(alone), actor=stage.owner, spec=spec_of(fresh(alone), duration_s=7 * HOUR_S), now=stage.now)

    assert promised_at(alone) == before
    assert not PromiseMove.objects.exists()


@pytest.mark.parametrize("late_s", [0, 20])
def test_nobody_lengthens_his_box_at_the_cost_of_one_who_is_a_few_seconds_late_already(late_s: int) -> None:
    stage = Stage(nodes=1)
    runs = stage.submit(duration_s=2 * HOUR_S)
    stage.tick()
    behind = stage.submit(factories.make_slice(stage.cluster, owner=stage.owner), duration_s=HOUR_S)
    before = promised_at(behind)
    stage.after(settings.EGS_ENTRY_ALLOWANCE_S + late_s)
    stage.say(runs, *ENTRY)
    stage.tick()
    stage.after(600)
    stage.tick()

    with pytest.raises(Conflict):
        gpr_extend(gpr=fresh(runs), extra_s=3 * HOUR_S, actor=stage.owner, now=stage.now)

    stage.tick()
    assert promised_at(behind) == before


def offered(stage: Stage, gpr: Gpr, spec: GprSpec) -> list[Estimate]:
    return gpr_estimate(actor=stage.owner, spec=spec, now=stage.now, edited=fresh(gpr))


@pytest.mark.parametrize(
    "change",
    [
        {"nodes": 1, "duration_s": 600},
        {"priority": 150},
        # These make one change each, or none; the first case makes both changes at once.
        *(pytest.param(change, marks=pytest.mark.soak) for change in ({"nodes": 1}, {"duration_s": 600}, {})),
    ],
)
def test_who_changes_his_request_gets_the_start_that_he_was_offered(change: dict[str, Any]) -> None:
    """Two nodes were his in some hours; what he asks for now fits before that."""
    stage = Stage(nodes=3)
    stage.active(nodes=1, duration_s=HOUR_S)
    for hours in (10, 20):
        stage.submit(factories.make_slice(stage.cluster, owner=stage.owner), nodes=1, duration_s=hours * HOUR_S)
        stage.tick()
    wide = stage.submit(factories.make_slice(stage.cluster, owner=stage.owner), nodes=2, duration_s=2 * HOUR_S)
    stage.tick()
    before, asked = promised_at(wide), spec_of(fresh(wide), **change)

    (offer,) = offered(stage, wide, asked)
    gpr_edit(gpr=fresh(wide), actor=stage.owner, spec=asked, now=stage.now)

    assert (fresh(wide).planned_start_at, promised_at(wide)) == (offer.start_at, offer.promised_start_at)
    assert promised_at(wide) <= before
    if change.get("nodes") == 1:
        assert promised_at(wide) - stage.now < timedelta(hours=2)


CHANGES: list[dict[str, Any]] = [
    *({"nodes": count} for count in (1, 2, 3)),
    *({"duration_s": length_s} for length_s in (600, 4 * HOUR_S, 20 * HOUR_S)),
    *({"gpus_per_node": count} for count in (1, 2, None)),
    *({"priority": priority} for priority in (50, 101)),
    {"shape": "", "min_gpu_memory_gib": 40},
    {"nodes": 1, "duration_s": 20 * HOUR_S},
    {},
]


def drawn(dice: Random) -> Stage:
    """One or two clusters, some with a second shape, boxes that run, and some that wait; one of them was moved by an administrator."""
    stage = Stage(nodes=dice.randint(1, 3))
    clusters = [stage.cluster, *(make_cluster(name="other", nodes=dice.randint(1, 2)) for _ in range(dice.randint(0, 1)))]
    for cluster in clusters:
        if dice.random() < 0.5:
            factories.add_nodes(cluster, 1, gpus=dice.choice([2, 4]), shape="A100-80GB")
    for number in range(dice.randint(4, 7)):
        size = {"nodes": dice.randint(1, 2), "gpus_per_node": dice.choice([None, 1, 2, 4])}
        ask = {**size, "duration_s": dice.choice([600, HOUR_S, 9 * HOUR_S]), "priority": dice.choice([50, 101, 101])}
        stage.after(dice.choice([0, 1, 30]))
        with suppress(CanNeverStart):
            stage.submit(factories.make_slice(*clusters, owner=stage.owner), name=f"job-{number}", **ask)
        if dice.random() < 0.5:
            stage.tick()
    stage.tick()
    if waiting := list(Gpr.objects.filter(state=GprState.QUEUED).order_by("name")):
        with suppress(Conflict):
            gpr_move(gpr=fresh(dice.choice(waiting)), to=dice.choice(list(MoveTo)), actor=stage.admin, now=stage.now)
    return stage


@pytest.mark.parametrize("seed", range(12 if IS_SOAK else 1))
def test_in_any_queue_an_edit_gives_what_its_offers_say_and_moves_nobody(seed: int) -> None:
    dice = Random(seed)
    stage = drawn(dice)
    for waits in Gpr.objects.filter(state=GprState.QUEUED).order_by("name"):
        for change in dice.sample(CHANGES, 3):
            asked = spec_of(fresh(waits), **change)
            try:
                offers = offered(stage, waits, asked)
            except CanNeverStart:
                with pytest.raises(CanNeverStart), transaction.atomic():
                    gpr_edit(gpr=fresh(waits), actor=stage.owner, spec=asked, now=stage.now)
                continue
            assert got_by(stage, waits, asked) == (offers[0].start_at, offers[0].promised_start_at), (waits.name, change)
            for offer in offers[1:]:
                there = replace(asked, shape=offer.shape, clusters=(Cluster.objects.get(name=offer.cluster),))
                assert got_by(stage, waits, there) == (offer.start_at, offer.promised_start_at), (waits.name, change, offer.cluster)


def test_who_was_moved_is_offered_another_cluster_as_what_an_edit_makes_of_him() -> None:
    """To go there is to ask for something else, so he would stand there where he stands by himself. While he stays here, the move holds."""
    stage = Stage(nodes=1)
    other = make_cluster(name="other", nodes=1)
    both = [stage.cluster, other]
    for clusters, duration_s in (([stage.cluster], HOUR_S // 2), ([other], HOUR_S)):
        stage.submit(factories.make_slice(*clusters, owner=stage.owner), duration_s=duration_s)
    stage.tick()
    moved, *_ = [
        stage.submit(factories.make_slice(*clusters, owner=stage.owner), duration_s=duration_s)
        for clusters, duration_s in ((both, 9 * HOUR_S), (both, 9 * HOUR_S), ([other], 600))
    ]
    gpr_move(gpr=fresh(moved), to=MoveTo.FIRST, actor=stage.admin, now=stage.now)
    asked = spec_of(fresh(moved))

    here, there = offered(stage, moved, asked)

    assert (here.cluster, there.cluster) == (stage.cluster.name, "other")
    assert got_by(stage, moved, replace(asked, name="another")) == (here.start_at, here.promised_start_at)
    assert got_by(stage, moved, replace(asked, clusters=(other,))) == (there.start_at, there.promised_start_at)
    for sooner in here.alternatives:
        assert got_by(stage, moved, replace(asked, duration_s=sooner.duration_s))[0] == sooner.start_at


def test_who_cannot_start_any_more_as_he_stands_is_offered_what_the_policy_of_now_lets_him_ask_for() -> None:
    stage = Stage(nodes=1)
    factories.add_nodes(stage.cluster, 1, gpus=4, shape="A100-80GB")
    slice_ = factories.make_slice(stage.cluster, owner=stage.owner)
    slice_.shapes = [SHAPE]
    slice_.save()
    stage.active(shape=SHAPE)
    waits = stage.submit(slice_, shape="", min_gpu_memory_gib=40)
    Node.objects.filter(shape=SHAPE).update(gone_at=stage.now)
    slice_.shapes = [SHAPE, "A100-80GB"]
    slice_.save()

    (there,) = offered(stage, waits, spec_of(fresh(waits)))

    assert (there.shape, there.start_at) == ("A100-80GB", stage.now)
    chosen = replace(spec_of(fresh(waits)), shape=there.shape)
    assert got_by(stage, waits, chosen) == (there.start_at, there.promised_start_at)


def got_by(stage: Stage, gpr: Gpr, asked: GprSpec) -> tuple[Any, Any]:
    """Returns what it would be told after this edit, of which nothing stays."""
    others = Promise.objects.exclude(gpr=gpr).order_by("pk").values_list("gpr", "promised_start_at")
    before = list(others)
    with transaction.atomic():
        gpr_edit(gpr=fresh(gpr), actor=stage.owner, spec=asked, now=stage.now)
        got = fresh(gpr).planned_start_at, promised_at(gpr)
        assert list(others.all()) == before
        transaction.set_rollback(True)
    return got
