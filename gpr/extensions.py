"""Until when a box can run for certain, and who is next on its nodes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from gpr.models import Gpr
from gpr.snapshot import at, end_by_books, snapshot_load


@dataclass(frozen=True, slots=True)
class ExtensionRoom:
    """`until`: the latest end at which all slots of others stay as they are. `next_id`: the request whose slot comes first."""

    until: datetime
    next_id: str


def extension_room(gpr: Gpr, *, now: datetime) -> ExtensionRoom | None:
    """None where no slot follows on its nodes, and none of its own workspace, which runs one request at a time."""
    snapshot = snapshot_load(now=now).snapshot
    box = next((box for box in snapshot.running if box.id == str(gpr.pk)), None)
    if box is None:
        return None
    nodes = set(box.nodes)
    slots = [
        (request.slot.start_s, request.id)
        for request in snapshot.queue
        if request.slot and request.slot.start_s >= box.end_s and (request.slice == box.slice or not nodes.isdisjoint(request.slot.nodes))
    ]
    if not slots:
        return None
    start_s, next_id = min(slots)
    return ExtensionRoom(end_by_books(at(start_s)), next_id)
