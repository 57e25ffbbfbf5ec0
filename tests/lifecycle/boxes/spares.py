"""Helpers of the tests of spares: an agent's reports, a box's sick node, its spare, and the words for people."""

from __future__ import annotations

from typing import Any

import msgspec

from gpr.models import Gpr
from inventory.models import Node, Reservation
from inventory.services.sync import desired_set
from journal.models import Event
from protocol.assignments import Assignment, Phase
from protocol.nodes.inventory import NodeView
from tests.builders import node_view, nodes_of
from tests.inventory.agent import seen
from tests.lifecycle.stage import Stage, fresh

LEAST_S, WAIT_S = 600, 300
RULES = {"EGS_SPARE_GRACE_S": 0, "EGS_SPARE_LEAST_S": LEAST_S, "EGS_SPARE_WAIT_S": WAIT_S, "EGS_SPARE_TRIES_MAX": 2}


def report(stage: Stage, *gone: Node, sick: Node | None = None, away: Node | None = None, dropped: Node | None = None) -> None:
    """The agent tells the inventory: these are gone, one has a sick GPU, one is not ready, one has lost a GPU."""
    stage.agent.inventory(*(view(node, sick, away, dropped) for node in nodes_of(stage.cluster) if node not in gone), at=stage.now)


def view(node: Node, sick: Node | None, away: Node | None, dropped: Node | None) -> NodeView:
    whole = node_view(node.name, ready=node != away, broken=node == away, rack=node.rack)
    gpus = [msgspec.structs.replace(gpu, healthy=node != sick or gpu.index != 1) for gpu in whole.gpus]
    return msgspec.structs.replace(whole, gpus=tuple(gpu for gpu in gpus if node != dropped or gpu.index != 1))


def rows_of(gpr: Gpr) -> tuple[Reservation, Reservation | None]:
    """Returns the row that fails, and the last spare for it."""
    spares = list(Reservation.objects.filter(gpr=gpr, replaces__isnull=False).select_related("node", "replaces__node"))
    spare = max(spares, key=lambda row: (row.is_coming, row.starts_at), default=None)
    sick = spare.replaces if spare is not None else Reservation.objects.exclude(failing_at=None).select_related("node").get(gpr=gpr)
    assert sick is not None
    return sick, spare


def spare_of(gpr: Gpr) -> Reservation:
    _, spare = rows_of(gpr)
    assert spare is not None
    return spare


def told(gpr: Gpr, *kinds: str) -> list[str]:
    return list(Event.objects.filter(gpr_id=gpr.pk, kind__in=kinds).order_by("pk").values_list("message", flat=True))


def say(stage: Stage, row: Reservation, *phases: Phase, **changes: Any) -> None:
    """Its agent says so of this one node."""
    for phase in phases:
        given = {"active_s": fresh(row.gpr).active_at.timestamp()} if phase == Phase.ACTIVE else {}  # type: ignore[union-attr]
        stage.agent.sync(seen(row, phase, **{**given, **changes}), at=stage.now)


def wanted(stage: Stage) -> dict[str, Assignment]:
    """Returns what the agent is told, by node."""
    return {each.node: each for each in desired_set(cluster_id=stage.cluster.pk, now=stage.now)}


def swapping(stage: Stage, **asked: Any) -> Gpr:
    """One whose node has a sick GPU, and whose spare is on its way."""
    gpr = stage.active(**asked)
    report(stage, sick=stage.held(gpr)[0].node)
    stage.tick()
    return fresh(gpr)
