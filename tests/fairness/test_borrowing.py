"""A box borrows by the planner's own rule if its project holds more than its guarantee."""

from __future__ import annotations

import pytest

from gpr.allocation.live import snapshot_load
from gpr.models import Gpr, GprState
from gpr.quotas.borrowing import BORROWS, WILL_BORROW, borrowers_among, borrowing_of
from gpr.requests.ending import gpr_release
from planner.promises.repair import board_of
from planner.sharing.rights import Rank, Rights
from slices.quotas.services import quota_create
from tests.builders import SHAPE, make_slice
from tests.lifecycle.stage import ENTRY, Stage, fresh

pytestmark = pytest.mark.django_db


@pytest.fixture
def stage() -> Stage:
    """It has 6 nodes of 8 GPUs."""
    return Stage(nodes=6, gpus=8)


def guarantee(stage: Stage, gpus: int) -> None:
    """Guarantees GPUs to the project of `stage.slice`."""
    quota_create(owner=stage.slice.project, shape=SHAPE, change={"guaranteed_gpus": gpus}, actor=None, now=stage.now)


def busy(stage: Stage) -> list[Gpr]:
    """Three boxes of its project hold 8, 4 and 16 GPUs with rising priority, and another project has one."""
    sizes = [{"nodes": 1}, {"nodes": 1, "gpus_per_node": 4}, {"nodes": 2}]
    owners = [stage.slice, *(make_slice(stage.cluster, owner=stage.owner, project=stage.slice.project) for _ in sizes[1:])]
    asked = [stage.submit(slice_, priority=101 + i, **size) for i, (slice_, size) in enumerate(zip(owners, sizes, strict=True))]
    asked.append(stage.submit(make_slice(stage.cluster, owner=stage.owner)))
    stage.tick()
    for gpr in asked:
        stage.say(gpr, *ENTRY)
    stage.tick()
    assert {fresh(gpr).state for gpr in asked} == {GprState.ACTIVE}
    return [fresh(gpr) for gpr in asked]


def by_the_whole_plan(stage: Stage) -> set[str]:
    snapshot = snapshot_load(now=stage.now).snapshot
    board, _ = board_of(snapshot)
    rights = Rights(board, snapshot.quotas)
    return {box.id for box in board.running.values() if rights.of_running(box) == Rank.BORROWS}


@pytest.mark.rotates  # each day: tests/planner/sharing/test_quotas.py
@pytest.mark.parametrize(
    ("guaranteed", "borrow"),
    [(0, ""), (4, "eight sixteen other"), (12, "sixteen other"), (20, "eight other"), (28, "other"), (48, "other")],
)
def test_who_runs_borrows_as_the_planner_sees_it(guaranteed: int, borrow: str, stage: Stage) -> None:
    """The highest priority fills the guarantee first, and who does not fit beside it borrows. Without any guarantee nobody does."""
    guarantee(stage, guaranteed)
    boxes = dict(zip(("eight", "four", "sixteen", "other"), busy(stage), strict=True))

    found = borrowers_among(boxes.values(), now=stage.now)

    assert {str(pk) for pk in found} == by_the_whole_plan(stage)
    assert {name for name, gpr in boxes.items() if gpr.pk in found} == set(borrow.split())


def test_each_is_told_alone_as_among_all(stage: Stage) -> None:
    guarantee(stage, 20)
    boxes = busy(stage)

    together = borrowers_among(boxes, now=stage.now)

    assert {gpr.pk for gpr in boxes if borrowers_among([gpr], now=stage.now)} == together


def test_a_box_whose_nodes_are_all_gone_borrows_nothing(stage: Stage) -> None:
    guarantee(stage, 4)
    eight = busy(stage)[0]
    for row in stage.held(eight):
        row.node.gone_at = stage.now
        row.node.save(update_fields=["gone_at"])

    assert {str(pk) for pk in borrowers_among([fresh(eight)], now=stage.now)} == by_the_whole_plan(stage) & {str(eight.pk)} == set()


def test_who_waits_to_borrow_is_told_before_and_while_it_runs_and_not_on_its_way_out(stage: Stage) -> None:
    guarantee(stage, 0)
    quota_create(owner=make_slice(stage.cluster).project, shape=SHAPE, change={"guaranteed_gpus": 48}, actor=None, now=stage.now)
    first = stage.submit(nodes=4)
    stage.tick()
    second = stage.submit(nodes=4)
    assert (borrowing_of(fresh(first), now=stage.now), borrowing_of(fresh(second), now=stage.now)) == (BORROWS, WILL_BORROW)

    stage.say(first, *ENTRY)
    stage.tick()
    assert borrowing_of(fresh(first), now=stage.now) == BORROWS

    gpr_release(gpr=fresh(first), actor=stage.owner, now=stage.now)
    assert borrowing_of(fresh(first), now=stage.now) == ""


def test_what_fits_into_the_guarantee_is_told_nothing(stage: Stage) -> None:
    guarantee(stage, 8)
    runs = stage.submit()
    stage.tick()
    waits = stage.submit()

    assert [borrowing_of(fresh(gpr), now=stage.now) for gpr in (runs, waits)] == ["", ""]
