"""Starts GPRs on their planned nodes, and builds what every node that enters needs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.db import transaction

from core.errors import Conflict, StaleState
from core.words import are, plural
from core.written_sql import WrittenQuery, load_together
from gpr.allocation.snapshot import Loaded, at, length_s
from gpr.allocation.stored_plan import plan_lock
from gpr.lifecycle import gprs_transition
from gpr.models import ENDED, Gpr, GprState
from gpr.promises.outcomes import promises_settle
from gpr.quotas.selectors import refuse_over_limit
from inventory.models import Cluster, Reservation, agent_is_live
from inventory.rows import CLUSTERS_THERE
from inventory.services.reservations import reservations_hold
from planner.snapshot import Slot
from slices.models import Life, Namespace, Slice
from slices.quotas.services import quotas_keep

# Names of namespaces by slice and cluster.
Namespaces = Mapping[tuple[UUID, UUID | None], tuple[str, ...]]


@transaction.atomic
def gprs_start(slots: Mapping[Gpr, Slot], *, loaded: Loaded, now: datetime) -> None:
    """Start all of them or none.

    Raises StaleState when one changed since it was planned, or Conflict when a quota or cluster refuses it.
    """
    if any(gpr.version != loaded.requests[str(gpr.pk)].version for gpr in slots):
        raise StaleState("It was changed since it was planned.")
    projects = {gpr.slice.project_id for gpr in slots}
    _refuse_unended([gpr.after_id for gpr in slots if gpr.after_id is not None])
    plan_lock()  # before rows of projects, as everybody who takes both
    quotas_keep(projects)
    alike: dict[tuple[str, int], list[Gpr]] = defaultdict(list)
    for gpr, slot in slots.items():
        alike[loaded.places.keys[slot.pool].cluster, gpr.run].append(gpr)
    for (name, run), some in alike.items():
        _move(some, starting_cluster(name, now), run + 1, now)
    namespaces = namespaces_of({gpr.slice_id for gpr in slots}, must_be_open=True)
    reservations_hold([row for gpr, slot in slots.items() for row in _box(gpr, slot, namespaces, now)])
    shapes = {gpr: loaded.places.keys[slot.pool].shape for gpr, slot in slots.items()}
    owners = {(owner, shape) for gpr, shape in shapes.items() for owner in (gpr.slice.project_id, gpr.slice_id)}
    refuse_over_limit(owners, projects)
    promises_settle(list(slots), now=now)


def _refuse_unended(predecessors: Sequence[UUID]) -> None:
    """Raises Conflict. The plan was made before, and a box that has ended may wait again since."""
    if predecessors and Gpr.objects.filter(pk__in=predecessors).exclude(state__in=ENDED).exists():
        raise Conflict("The request that it starts after has not ended yet.")


def _move(gprs: Sequence[Gpr], cluster: Cluster, run: int, now: datetime) -> None:
    texts = (f"{plural(gpr.nodes, 'node')} of cluster {cluster.name} {are(gpr.nodes)} being prepared for {gpr.name}." for gpr in gprs)
    gprs_transition(
        messages=list(zip(gprs, texts, strict=True)),
        to=GprState.PROVISIONING,
        now=now,
        changes={"cluster": cluster, "provisioning_at": now, "run": run, "explanation": {}, "planned_start_at": None},
    )


def _box(gpr: Gpr, slot: Slot, namespaces: Namespaces, now: datetime) -> list[Reservation]:
    # Whole seconds, as planned: a fraction would overlap the next slot and push it back.
    ends_at = at(slot.start_s + length_s(gpr))
    return [reservation_of(gpr, UUID(node_id), namespaces, starts_at=now, ends_at=ends_at) for node_id in sorted(slot.nodes)]


def reservation_of(gpr: Gpr, node_id: UUID, namespaces: Namespaces, *, starts_at: datetime, **when: Any) -> Reservation:
    """Makes a place of the GPR's box, to be held. `when`: its other times, and which reservation it replaces."""
    return Reservation(
        gpr=gpr,
        slice_id=gpr.slice_id,
        node_id=node_id,
        run=gpr.run,
        gang_count=gpr.nodes,
        starts_at=starts_at,
        enter_by_at=starts_at + timedelta(seconds=settings.EGS_ENTRY_TIMEOUT_S),
        duration_s=gpr.remaining_s,
        namespaces=list(namespaces[gpr.slice_id, gpr.cluster_id]),
        entry_steps=list(entry_steps(gpr)),
        exit_steps=list(settings.EGS_EXIT_STEPS),
        **when,
    )


def starting_cluster(name: str, now: datetime) -> Cluster:
    """Raises Conflict when its agent is silent, or it is disabled or was rewound."""
    cluster = {there.name: there for there in CLUSTERS_THERE()}[name]
    if not agent_is_live(getattr(cluster, "agent", None), now, within_s=settings.EGS_AGENT_STALE_S):
        raise Conflict(f"The agent of cluster {name} has not been heard lately.")
    if not cluster.is_enabled or cluster.rewound_at is not None:
        raise Conflict(f"Cluster {name} takes nothing new at present.")
    return cluster


def namespaces_of(slice_ids: Collection[UUID], *, must_be_open: bool = False) -> Namespaces:
    """Raises Conflict for a workspace that is closed but has to be open."""
    slices, namespaces = load_together((_LOCKED_SLICES, slice_ids), (_NAMESPACES, slice_ids))
    closed = [name for name, life in slices if life != Life.OPEN]
    if closed and must_be_open:
        raise Conflict(f"Workspace {closed[0]} is closed.")
    names: defaultdict[tuple[UUID, UUID | None], tuple[str, ...]] = defaultdict(tuple)
    for slice_id, cluster_id, name in namespaces:
        names[slice_id, cluster_id] += (name,)
    return names


# The lock makes changes of these namespaces, and who closes the workspace, wait until the start is stored.
_LOCKED_SLICES: Final = WrittenQuery(Slice.objects.select_for_update(no_key=True).order_by("pk").values_list("name", "life"))
_NAMESPACES: Final = WrittenQuery(Namespace.objects.order_by("name").values_list("slice", "cluster", "name"), key="slice__id")


def entry_steps(gpr: Gpr) -> tuple[str, ...]:
    return settings.EGS_ENTRY_STEPS if gpr.run_checks else settings.EGS_ENTRY_STEPS_SHORT
