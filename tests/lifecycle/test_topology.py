"""A request that must be in one rack, and what its owner is told when its slot is not any more."""

from __future__ import annotations

import pytest

from gpr.models import Gpr, PromiseMove
from gpr.requests.editing import gpr_edit, spec_of
from planner.causes import Cause
from tests import factories
from tests.api.conftest import Caller
from tests.builders import make_slice, node_view, nodes_of
from tests.lifecycle.stage import ENTRY, Stage, fresh
from tests.pages.user_world import client_of

# Each day: tests/planner/board/test_gangs.py, and tests/inventory/test_reporting.py
pytestmark = [pytest.mark.django_db, pytest.mark.rotates]

HOUR_S = 3600
RACKS = dict.fromkeys("abc", "r")


def report(stage: Stage, racks: dict[str, str]) -> None:
    stage.agent.inventory(*(node_view(name, rack=rack) for name, rack in racks.items()), at=stage.now)


def gang_behind_two(stage: Stage, racks: dict[str, str], within: str) -> tuple[Gpr, list[str]]:
    """One node is taken for two hours, and two for one: the gang of two is to start on those. Their names are answered, too."""
    report(stage, racks)
    slices = [make_slice(stage.cluster, owner=stage.owner) for _ in range(3)]
    boxes = [
        stage.submit(slice_, nodes=nodes, duration_s=hours * HOUR_S)
        for slice_, nodes, hours in zip(slices[:2], (1, 2), (2, 1), strict=True)
    ]
    stage.tick()
    for box in boxes:
        stage.say(box, *ENTRY)
    gang = stage.submit(slices[2], nodes=2, within=within)
    stage.tick()
    ids = set(gang.promise.slot_nodes)
    names = [node.name for node in nodes_of(stage.cluster) if str(node.pk) in ids]
    assert names == [row.node.name for row in sorted(stage.held(boxes[1]), key=lambda row: row.node.name)]
    return gang, names


@pytest.mark.parametrize("rack", ["s", ""], ids=["another", "unknown"])
def test_when_a_node_is_reported_in_another_rack_the_owner_hears_of_that_and_not_that_it_edited_anything(rack: str) -> None:
    stage = Stage(nodes=0)
    gang, (first, _) = gang_behind_two(stage, RACKS, "rack")

    report(stage, {**RACKS, first: rack})
    stage.tick()

    move = PromiseMove.objects.get(gpr=gang)
    assert (move.cause, move.cause_id) == (Cause.TOPOLOGY, "")
    told = Caller(factories.token(stage.owner)).get(f"gprs/{gang.pk}/")
    assert [each["cause"] for each in told.json()["promise_moves"]] == [Cause.TOPOLOGY]
    assert client_of(stage.owner).get(f"/gprs/{gang.pk}/").status_code == 200
    assert fresh(gang).planned_start_at == move.new_start_at


def test_when_its_owner_wants_one_rack_the_edit_is_what_moved_it() -> None:
    stage = Stage(nodes=0)
    racks = dict(zip("abc", ("r", "r", "s"), strict=True))
    gang, _ = gang_behind_two(stage, racks, "")

    gpr_edit(gpr=fresh(gang), actor=stage.owner, spec=spec_of(fresh(gang), within="rack"), now=stage.now)

    move = PromiseMove.objects.get(gpr=gang)
    assert (move.cause, move.cause_id) == (Cause.CHANGED, str(gang.pk))


def test_an_edit_to_one_rack_keeps_the_promise_where_the_nodes_are_together_already() -> None:
    stage = Stage(nodes=0)
    gang, _ = gang_behind_two(stage, RACKS, "")
    before = gang.promise.promised_start_at

    gpr_edit(gpr=fresh(gang), actor=stage.owner, spec=spec_of(fresh(gang), within="rack"), now=stage.now)

    assert fresh(gang).promise.promised_start_at <= before
    assert not PromiseMove.objects.exists()
