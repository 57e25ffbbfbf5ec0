"""The age order of a snapshot's queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from gpr.allocation.snapshot import Loaded
from planner.snapshot import Request, Snapshot

Ages = Mapping[str, datetime | None]


def queue_ages(loaded: Loaded) -> dict[str, datetime | None]:
    return {id_: ask.turn_at for id_, ask in loaded.requests.items()}


def with_newcomer(snapshot: Snapshot, ages: Ages, newcomer: Request, queued_at: datetime) -> Snapshot:
    """Inserts `newcomer` by its age, in place of any request with its id."""
    others = [request for request in snapshot.queue if request.id != newcomer.id]
    before = (age is not None and (age, id_) < (queued_at, newcomer.id) for age, id_ in ((ages[each.id], each.id) for each in others))
    place = sum(before)
    in_order = enumerate((*others[:place], newcomer, *others[place:]))
    return replace(snapshot, queue=tuple(each if each.rank == rank else replace(each, rank=rank) for rank, each in in_order))
