"""Where in a snapshot's queue a request stands by its age: among equals who came first is first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from gpr.planner.snapshot import Request, Snapshot
from gpr.snapshot import Loaded

Ages = Mapping[str, datetime | None]


def ages_of(loaded: Loaded) -> dict[str, datetime | None]:
    """By which those that wait stand in the snapshot's queue."""
    return {id_: ask.turn_at for id_, ask in loaded.asks.items()}


def joined(snapshot: Snapshot, ages: Ages, newcomer: Request, queued_at: datetime) -> Snapshot:
    """With the newcomer at its age: those queued after it move back by one."""
    of_queue = [(ages[request.id], request.id) for request in snapshot.queue]
    rank = sum(age is not None and (age, id_) < (queued_at, newcomer.id) for age, id_ in of_queue)
    older, younger = snapshot.queue[:rank], snapshot.queue[rank:]
    queue = (*older, replace(newcomer, rank=rank), *(replace(request, rank=request.rank + 1) for request in younger))
    return replace(snapshot, queue=queue)


def joined_anew(loaded: Loaded, request: Request, queued_at: datetime) -> Snapshot:
    """With this, at its age, instead of the request of its id."""
    left = (other for other in loaded.snapshot.queue if other.id != request.id)
    others = tuple(replace(other, rank=rank) for rank, other in enumerate(left))
    return joined(replace(loaded.snapshot, queue=others), ages_of(loaded), request, queued_at)
