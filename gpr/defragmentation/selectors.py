"""Reads the planner's proposals, with names for its ids, for administrators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Final

from django.conf import settings

from core.errors import InvalidInput
from core.words import duration_exact
from gpr.allocation.live import snapshot_load
from gpr.allocation.rows import gprs_by_id
from gpr.allocation.snapshot import Loaded, at, box_end_for, length_s
from gpr.models import GPUS_PER_NODE_MAX, NODES_MAX, Gpr
from gpr.requests.planning import can_never_start
from gpr.requests.spec import BOOKING_AHEAD, EARLIEST_START_MAX
from inventory.models import Cluster, Node
from inventory.selectors import shapes_known
from planner.feasibility import largest_that_fits
from planner.sharing.defragment import Proposal, Relocation, fit_booking, proposals
from planner.snapshot import Request
from slices.models import PRIORITY_DEFAULT, PRIORITY_MAX, PRIORITY_MIN

WANTED: Final = "wanted"  # the id of a booking that is not filed


@dataclass(frozen=True, slots=True)
class Moving:
    gpr: Gpr
    from_nodes: tuple[str, ...]
    to_nodes: tuple[str, ...]
    ends_at: datetime  # after notice
    frees_at: datetime
    restarts_at: datetime  # on `to_nodes`, if nothing else takes them
    lost_gpu_s: int
    idle_gpu_s: int


@dataclass(frozen=True, slots=True)
class Suggestion:
    gpr: Gpr | None  # None: for a booking that is not filed
    cluster: str
    shape: str
    nodes: tuple[str, ...]
    freed: tuple[str, ...]  # those of `nodes` that other boxes leave
    moves: tuple[Moving, ...]
    start_at: datetime
    instead_at: datetime
    cost_gpu_s: int
    value_gpu_s: int
    fingerprint: str  # of the moves and their effect; time alone does not change it


@dataclass(frozen=True, slots=True)
class WantedRoom:
    """Describes a booking that is not filed."""

    shape: str
    nodes: int
    starts_at: datetime
    duration_s: int
    gpus_per_node: int | None = None  # None: whole nodes
    cluster: Cluster | None = None  # None: any
    priority: int = PRIORITY_DEFAULT


@dataclass(frozen=True, slots=True)
class RoomAnswer:
    fits: bool  # without moves
    instead_at: datetime | None  # when it would fit next; None where it fits, or never does
    suggestion: Suggestion | None


def suggestions(*, now: datetime) -> list[Suggestion]:
    """Returns proposals for queued GPRs, the least cost first."""
    loaded = snapshot_load(now=now)
    return _suggestions_of(proposals(loaded.snapshot), loaded)


def suggestion_for(gpr: Gpr, *, now: datetime) -> Suggestion | None:
    """Returns None when no moves are worth their cost."""
    loaded = snapshot_load(now=now)
    return next(iter(_suggestions_of(proposals(loaded.snapshot, only=str(gpr.pk)), loaded)), None)


def room_question(wanted: WantedRoom, *, now: datetime) -> RoomAnswer:
    """Says whether this booking fits, and which moves would make it fit. Raises InvalidInput, or CanNeverStart with the most that fits."""
    _check(wanted, now)
    loaded = snapshot_load(now=now)
    booking = _booking(wanted, loaded)
    most = largest_that_fits(loaded.snapshot.pools, booking)
    if not most.fits:
        raise can_never_start(most.node_count, most.gpus_per_node)
    room = fit_booking(loaded.snapshot, booking)
    found = _suggestions_of([room.proposal] if room.proposal else [], loaded)
    return RoomAnswer(room.fits, None if room.instead_s is None else at(room.instead_s), next(iter(found), None))


def fingerprint_of(proposal: Proposal) -> str:
    moves = [(move.id, move.from_nodes, move.to_nodes) for move in proposal.relocations]
    done = (proposal.id, proposal.slot.pool, proposal.slot.nodes, proposal.instead_s, moves)
    return sha256(repr(done).encode()).hexdigest()[:16]


def _check(wanted: WantedRoom, now: datetime) -> None:
    errors: dict[str, list[str]] = {}
    for name, value, most in [
        ("nodes", wanted.nodes, NODES_MAX),
        ("gpus_per_node", wanted.gpus_per_node, GPUS_PER_NODE_MAX),
    ]:
        if value is not None and not 1 <= value <= most:
            errors[name] = [f"Must be from 1 to {most}."]
    if not PRIORITY_MIN <= wanted.priority <= PRIORITY_MAX:
        errors["priority"] = [f"Must be from {PRIORITY_MIN} to {PRIORITY_MAX}."]
    if wanted.shape not in shapes_known():
        errors["shape"] = ["No cluster has this shape."]
    if not 1 <= wanted.duration_s <= settings.EGS_DURATION_MAX_S:
        errors["duration_s"] = [f"Must be from one second to {duration_exact(settings.EGS_DURATION_MAX_S)}."]
    if not now + BOOKING_AHEAD <= wanted.starts_at <= now + EARLIEST_START_MAX:
        errors["starts_at"] = [f"Must lie between {duration_exact(BOOKING_AHEAD.total_seconds())} and a year from now."]
    if errors:
        raise InvalidInput(errors)


def _booking(wanted: WantedRoom, loaded: Loaded) -> Request:
    # It has no workspace, so that no quota limits it.
    asked = Gpr(shape=wanted.shape, remaining_s=wanted.duration_s)
    clusters = {wanted.cluster.name} if wanted.cluster else set(loaded.cluster_ids)
    return Request(
        id=WANTED,
        slice="",
        project="",
        priority=wanted.priority,
        rank=loaded.last_rank,
        node_count=wanted.nodes,
        gpus_per_node=wanted.gpus_per_node or 0,
        length_s=length_s(asked),
        # Moves free existing nodes only.
        pools=loaded.places.pools_for(asked, clusters, may_order=False),
        earliest_start_s=int(wanted.starts_at.timestamp()),
        is_fixed=True,
    )


def _suggestions_of(found: Sequence[Proposal], loaded: Loaded) -> list[Suggestion]:
    gprs = gprs_by_id(id_ for proposal in found for id_ in (proposal.id, *(move.id for move in proposal.relocations)) if id_ != WANTED)
    ids = {
        node
        for each in found
        for node in (*each.slot.nodes, *(node for move in each.relocations for node in (*move.from_nodes, *move.to_nodes)))
    }
    names = {str(pk): name for pk, name in Node.objects.filter(pk__in=ids).values_list("pk", "name")} if ids else {}
    return [_suggestion(proposal, loaded, gprs, names) for proposal in found]


def _suggestion(proposal: Proposal, loaded: Loaded, gprs: dict[str, Gpr], names: dict[str, str]) -> Suggestion:
    key = loaded.places.keys[proposal.slot.pool]
    return Suggestion(
        gpr=gprs.get(proposal.id),
        cluster=key.cluster,
        shape=key.shape,
        nodes=_names(proposal.slot.nodes, names),
        freed=_names(proposal.freed, names),
        moves=tuple(_moving(move, gprs[move.id], names) for move in proposal.relocations),
        start_at=at(proposal.start_s),
        instead_at=at(proposal.instead_s),
        cost_gpu_s=proposal.cost_gpu_s,
        value_gpu_s=proposal.value_gpu_s,
        fingerprint=fingerprint_of(proposal),
    )


def _moving(move: Relocation, gpr: Gpr, names: dict[str, str]) -> Moving:
    return Moving(
        gpr=gpr,
        from_nodes=_names(move.from_nodes, names),
        to_nodes=_names(move.to_nodes, names),
        ends_at=box_end_for(at(move.frees_s)),
        frees_at=at(move.frees_s),
        restarts_at=at(move.restarts_s),
        lost_gpu_s=move.lost_gpu_s,
        idle_gpu_s=move.idle_gpu_s,
    )


def _names(nodes: Iterable[str], names: dict[str, str]) -> tuple[str, ...]:
    return tuple(sorted(names.get(node, node) for node in nodes))
