"""Proposals to make room on purpose, as administrators read them: the planner's, with names for its ids. Nothing is written here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Final

from django.conf import settings

from core.errors import InvalidInput
from core.words import duration_exact
from gpr.allocation.rows import gprs_by_id
from gpr.allocation.snapshot import Loaded, at, box_end_for, length_s, snapshot_load
from gpr.models import GPUS_PER_NODE_MAX, NODES_MAX, Gpr
from gpr.requests.planning import can_never_start
from gpr.requests.spec import BOOKING_AHEAD, EARLIEST_START_MAX
from inventory.models import Cluster, Node
from inventory.selectors import shapes_known
from planner.feasibility import most_that_fits
from planner.sharing.defragment import Move, Proposal, proposals, room_for
from planner.snapshot import Request
from slices.models import PRIORITY_DEFAULT, PRIORITY_MAX, PRIORITY_MIN

WANTED: Final = "wanted"  # the id of a booking that nobody has filed


@dataclass(frozen=True, slots=True)
class Moving:
    """A GPR that would leave its nodes at `ends_at`, after notice, and run again on others: about `restarts_at`, if nobody comes."""

    gpr: Gpr
    from_nodes: tuple[str, ...]
    to_nodes: tuple[str, ...]
    ends_at: datetime
    frees_at: datetime
    restarts_at: datetime
    lost_gpu_s: int
    idle_gpu_s: int


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A proposal for `gpr`; None: for a booking that is only asked about. `nodes` are its nodes, `freed` those that others leave for it.

    `fingerprint`: of what would be done, for whom and instead of which start; what passes with time alone does not change it.
    """

    gpr: Gpr | None
    cluster: str
    shape: str
    nodes: tuple[str, ...]
    freed: tuple[str, ...]
    moves: tuple[Moving, ...]
    start_at: datetime
    instead_at: datetime
    cost_gpu_s: int
    value_gpu_s: int
    fingerprint: str


@dataclass(frozen=True, slots=True)
class WantedRoom:
    """A booking that somebody thinks of: nodes of a shape from one time on. `gpus_per_node` None: whole nodes; `cluster` None: any."""

    shape: str
    nodes: int
    starts_at: datetime
    duration_s: int
    gpus_per_node: int | None = None
    cluster: Cluster | None = None
    priority: int = PRIORITY_DEFAULT


@dataclass(frozen=True, slots=True)
class RoomAnswer:
    """`fits`: without moving anybody. `instead_at`: when it would next; None where it fits, or never does."""

    fits: bool
    instead_at: datetime | None
    suggestion: Suggestion | None


def suggestions(*, now: datetime) -> list[Suggestion]:
    """For those that wait, least cost first."""
    loaded = snapshot_load(now=now)
    return _suggestions_of(proposals(loaded.snapshot), loaded)


def suggestion_for(gpr: Gpr, *, now: datetime) -> Suggestion | None:
    """For this one; None where there is none, or none that is worth its cost."""
    loaded = snapshot_load(now=now)
    return next(iter(_suggestions_of(proposals(loaded.snapshot, only=str(gpr.pk)), loaded)), None)


def room_question(wanted: WantedRoom, *, now: datetime) -> RoomAnswer:
    """Could this be had, and by which moves? Raises InvalidInput, or CanNeverStart with the most that could."""
    _check(wanted, now)
    loaded = snapshot_load(now=now)
    booking = _booking(wanted, loaded)
    most = most_that_fits(loaded.snapshot.pools, booking)
    if not most.fits:
        raise can_never_start(most.node_count, most.gpus_per_node)
    room = room_for(loaded.snapshot, booking)
    told = _suggestions_of([room.proposal] if room.proposal else [], loaded)
    return RoomAnswer(room.fits, None if room.instead_s is None else at(room.instead_s), next(iter(told), None))


def fingerprint_of(proposal: Proposal) -> str:
    moves = [(move.id, move.from_nodes, move.to_nodes) for move in proposal.moves]
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
    """Of no workspace, so that no quota holds it back."""
    asked = Gpr(shape=wanted.shape, remaining_s=wanted.duration_s)
    clusters = {wanted.cluster.name} if wanted.cluster else set(loaded.cluster_ids)
    return Request(
        id=WANTED,
        slice="",
        project="",
        priority=wanted.priority,
        rank=len(loaded.snapshot.queue),
        node_count=wanted.nodes,
        gpus_per_node=wanted.gpus_per_node or 0,
        length_s=length_s(asked),
        # By moving boxes only what is there becomes free.
        pools=loaded.places.pools_for(asked, clusters, may_order=False),
        earliest_start_s=int(wanted.starts_at.timestamp()),
        is_fixed=True,
    )


def _suggestions_of(found: Sequence[Proposal], loaded: Loaded) -> list[Suggestion]:
    """Two queries, however many there are."""
    gprs = gprs_by_id(id_ for proposal in found for id_ in (proposal.id, *(move.id for move in proposal.moves)) if id_ != WANTED)
    ids = {
        node for each in found for node in (*each.slot.nodes, *(node for move in each.moves for node in (*move.from_nodes, *move.to_nodes)))
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
        moves=tuple(_moving(move, gprs[move.id], names) for move in proposal.moves),
        start_at=at(proposal.start_s),
        instead_at=at(proposal.instead_s),
        cost_gpu_s=proposal.cost_gpu_s,
        value_gpu_s=proposal.value_gpu_s,
        fingerprint=fingerprint_of(proposal),
    )


def _moving(move: Move, gpr: Gpr, names: dict[str, str]) -> Moving:
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
