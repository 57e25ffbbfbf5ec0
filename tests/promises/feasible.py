"""Could the stored plan be kept? Read from the rows alone, without the planner: slots of who waits, and what is held.

Seconds, as the planner counts; a box begins and ends with its second.
"""

from __future__ import annotations

import math
from collections import defaultdict
from uuid import UUID

from django.conf import settings

from gpr.models import Gpr, GprState, Promise
from inventory.models import Node, Reservation, ReservationState

Stretch = tuple[float, float, int, str]


def faults() -> list[str]:
    """Every node with more GPUs promised than it has, and every slice with two boxes, at some time."""
    on_node: dict[str, list[Stretch]] = defaultdict(list)
    in_slice: dict[str, list[Stretch]] = defaultdict(list)
    nodes = {str(node.pk): node for node in Node.objects.all()}
    held_until: dict[UUID, float] = {}
    for row in Reservation.objects.filter(state=ReservationState.HELD).prefetch_related("gpus").select_related("gpr"):
        end_s: float = math.ceil(row.ends_at.timestamp())
        on_node[str(row.node_id)].append((-math.inf, end_s, row.gpus.count(), row.gpr.name))
        held_until[row.gpr_id] = max(end_s, held_until.get(row.gpr_id, 0))
        in_slice[str(row.slice_id)] = [(-math.inf, held_until[row.gpr_id], 1, row.gpr.name)]
    for promise in Promise.objects.filter(gpr__state=GprState.QUEUED).select_related("gpr"):
        gpr, start_s = promise.gpr, promise.slot_start_at.timestamp()
        end_s = start_s + settings.EGS_ENTRY_ALLOWANCE_S + gpr.remaining_s + settings.EGS_EXIT_ALLOWANCE_S
        for node_id in promise.slot_nodes:
            on_node[node_id].append((start_s, end_s, gpr.gpus_per_node or nodes[node_id].gpu_count, gpr.name))
        if promise.slot_nodes:
            in_slice[str(gpr.slice_id)].append((start_s, end_s, 1, gpr.name))
    return [
        *(text for node_id, stretches in on_node.items() for text in _over(nodes[node_id].name, nodes[node_id].gpu_count, stretches)),
        *(text for slice_, stretches in in_slice.items() for text in _over(f"slice {slice_}", 1, stretches)),
        *_wrong_slots(),
    ]


def _over(name: str, capacity: int, stretches: list[Stretch]) -> list[str]:
    """Load can only peak where a stretch begins."""
    found = []
    for start_s, _, _, who in stretches:
        there = [other for other in stretches if other[0] <= start_s < other[1]]
        if sum(count for _, _, count, _ in there) > capacity:
            found.append(f"{name} has {capacity}, and when {who} begins: {sorted(there)}")
    return found


def _wrong_slots() -> list[str]:
    rows = Gpr.objects.filter(state=GprState.QUEUED).select_related("promise")
    return [
        f"{gpr.name} asks for {gpr.nodes} nodes, its slot has {gpr.promise.slot_nodes}"
        for gpr in rows
        if hasattr(gpr, "promise") and not gpr.has_no_place and len(set(gpr.promise.slot_nodes)) != gpr.nodes
    ]
