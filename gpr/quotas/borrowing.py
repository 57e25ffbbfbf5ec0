"""Finds GPRs that run, or will run, beyond their project's guarantee."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Set
from datetime import datetime
from uuid import UUID

from gpr.allocation.rows import HELD, held_by_gpr
from gpr.allocation.snapshot import quotas_load, running_box
from gpr.models import Gpr, GprState
from planner.promises.repair import board_of
from planner.sharing.rights import Rank, Rights
from planner.snapshot import Node, Pool, Quota, Snapshot

_IT = "It {} GPUs beyond what its project is guaranteed: they may be taken back, after notice."
WOULD_BORROW, WILL_BORROW, BORROWS = (_IT.format(verb) for verb in ("would borrow", "will borrow", "borrows"))
# The states in which a GPR can be evicted, now or soon.
RUNS = frozenset({GprState.PROVISIONING, GprState.ACTIVE})


def borrowers_among(gprs: Iterable[Gpr], *, now: datetime) -> set[UUID]:
    """Runs three queries, none when no GPR runs."""
    gprs = list(gprs)
    planned = {gpr.pk for gpr in gprs if gpr.state == GprState.QUEUED and planned_to_borrow(gpr)}
    running = [gpr for gpr in gprs if gpr.state in RUNS]
    return planned | (_running_borrowers({gpr.slice.project_id for gpr in running}, now) & {gpr.pk for gpr in running})


def planned_to_borrow(gpr: Gpr) -> bool:
    return gpr.explanation.get("borrows") is True


def borrowing_of(gpr: Gpr, *, now: datetime) -> str:
    if gpr.pk not in borrowers_among([gpr], now=now):
        return ""
    return WILL_BORROW if gpr.state == GprState.QUEUED else BORROWS


def _running_borrowers(projects: Set[UUID], now: datetime) -> set[UUID]:
    quotas = quotas_load() if projects else ()
    if not any(quota.guaranteed for quota in quotas):
        return set()
    board, _ = board_of(_snapshot(projects, quotas, now))
    rights = Rights(board, quotas)
    return {UUID(box.id) for box in board.running.values() if rights.of_running(box) == Rank.BORROWS}


def _snapshot(projects: Set[UUID], quotas: tuple[Quota, ...], now: datetime) -> Snapshot:
    # Rights are per shape, so all nodes of a shape form one pool. What other projects hold makes no difference.
    held = HELD.filter(slice__project__in=projects)
    nodes: dict[str, dict[UUID, Node]] = defaultdict(dict)
    for pk, shape, gpu_count in held.filter(node__gone_at=None).values_list("node", "node__shape", "node__gpu_count"):
        nodes[shape][pk] = Node(str(pk), gpu_count)
    pools = tuple(Pool(shape, "", shape, tuple(of_shape.values())) for shape, of_shape in nodes.items())
    shapes = {node: shape for shape, of_shape in nodes.items() for node in of_shape}
    boxes = tuple(running_box(rows, shapes) for rows in held_by_gpr(held).values())
    return Snapshot(math.floor(now.timestamp()), pools, boxes, quotas=quotas)
