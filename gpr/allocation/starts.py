"""Starts GPRs on their planned nodes, and builds what every node that enters needs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db import transaction

from core.errors import Conflict, StaleState
from core.words import are, plural
from gpr.allocation.snapshot import Loaded, at, length_s
from gpr.lifecycle import gprs_transition
from gpr.models import Gpr, GprState
from gpr.promises.outcomes import promises_settle
from gpr.quotas.selectors import refuse_over_limit
from inventory.models import Cluster, agent_is_live
from inventory.rows import CLUSTERS
from inventory.services.reservations import HoldSpec, reservations_hold
from planner.snapshot import Slot
from slices.models import Namespace, Slice
from slices.quotas.services import quotas_keep

# Names of namespaces by slice and cluster.
Namespaces = Mapping[tuple[UUID, UUID | None], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Start:
    gpr: Gpr
    slot: Slot


@transaction.atomic
def gprs_start(starts: Sequence[Start], *, loaded: Loaded, now: datetime) -> None:
    """Start all of them or none.

    Raises StaleState when one changed since it was planned, or Conflict when a quota or cluster refuses it.
    """
    if any(start.gpr.version != loaded.requests[str(start.gpr.pk)].version for start in starts):
        raise StaleState("It was changed since it was planned.")
    gprs = [start.gpr for start in starts]
    projects = {gpr.slice.project_id for gpr in gprs}
    quotas_keep(projects)
    alike: dict[tuple[str, int], list[Gpr]] = defaultdict(list)
    for start in starts:
        alike[loaded.places.keys[start.slot.pool].cluster, start.gpr.run].append(start.gpr)
    for (name, run), some in alike.items():
        _move(some, starting_cluster(name, now), run + 1, now)
    namespaces = namespaces_of({gpr.slice_id for gpr in gprs})
    reservations_hold(specs=[_hold_of(start, namespaces, now) for start in starts])
    refuse_over_limit({taken for start in starts for taken in _taken(start, loaded)}, projects)
    promises_settle(gprs, now=now)


def _taken(start: Start, loaded: Loaded) -> tuple[tuple[UUID, str], ...]:
    # (owner, shape) of the quotas that the start counts against.
    shape = loaded.places.keys[start.slot.pool].shape
    return (start.gpr.slice.project_id, shape), (start.gpr.slice_id, shape)


def _move(gprs: Sequence[Gpr], cluster: Cluster, run: int, now: datetime) -> None:
    texts = (f"{plural(gpr.nodes, 'node')} of cluster {cluster.name} {are(gpr.nodes)} being prepared for {gpr.name}." for gpr in gprs)
    gprs_transition(
        messages=list(zip(gprs, texts, strict=True)),
        to=GprState.PROVISIONING,
        now=now,
        changes={"cluster": cluster, "provisioning_at": now, "run": run, "explanation": {}, "planned_start_at": None},
    )


def _hold_of(start: Start, namespaces: Namespaces, now: datetime) -> HoldSpec:
    gpr, slot = start.gpr, start.slot
    return HoldSpec(
        gpr_id=gpr.pk,
        slice_id=gpr.slice_id,
        run=gpr.run,
        node_ids=tuple(UUID(node_id) for node_id in slot.nodes),
        gpus_per_node=gpr.gpus_per_node,
        starts_at=now,
        # Whole seconds, as planned: a fraction would overlap the next slot and push it back.
        ends_at=at(slot.start_s + length_s(gpr)),
        enter_by_at=now + timedelta(seconds=settings.EGS_ENTRY_TIMEOUT_S),
        duration_s=gpr.remaining_s,
        namespaces=namespaces[gpr.slice_id, gpr.cluster_id],
        entry_steps=entry_steps(gpr),
        exit_steps=settings.EGS_EXIT_STEPS,
    )


def starting_cluster(name: str, now: datetime) -> Cluster:
    """Raises Conflict when its agent is silent, or it is disabled or was rewound."""
    cluster = CLUSTERS.get(name=name)
    if not agent_is_live(getattr(cluster, "agent", None), now, within_s=settings.EGS_AGENT_STALE_S):
        raise Conflict(f"The agent of cluster {name} has not been heard lately.")
    if not cluster.is_enabled or cluster.rewound_at is not None:
        raise Conflict(f"Cluster {name} takes nothing new at present.")
    return cluster


def namespaces_of(slice_ids: Collection[UUID]) -> Namespaces:
    # The lock makes changes of these namespaces wait until the start is stored.
    list(Slice.objects.select_for_update(no_key=True).filter(pk__in=slice_ids).order_by("pk").values_list("pk"))
    names: defaultdict[tuple[UUID, UUID | None], tuple[str, ...]] = defaultdict(tuple)
    rows = Namespace.objects.filter(slice__in=slice_ids).order_by("name")
    for slice_id, cluster_id, name in rows.values_list("slice", "cluster", "name"):
        names[slice_id, cluster_id] += (name,)
    return names


def entry_steps(gpr: Gpr) -> tuple[str, ...]:
    return settings.EGS_ENTRY_STEPS if gpr.run_checks else settings.EGS_ENTRY_STEPS_SHORT
